"""The container files hang together: what they name exists, and the proxy takes its configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from univocal_app.config.tables import Configuration, parsed, validate
from univocal_app.run.assemble import runtime_of


def load(file: Path) -> Configuration:
    return validate(parsed(file), str(file))


@pytest.fixture(scope="module")
def compose(root: Path) -> str:
    """The compose file."""
    return (root / "docker-compose.yml").read_text("utf-8")


def test_the_stack_has_a_configuration_that_is_accepted(root: Path) -> None:
    file = root / "compose" / "univocal.toml"
    configuration = load(file)
    runtime_of(configuration, str(file))
    assert str(configuration.server.listen) == "0.0.0.0:8080"


def test_every_upstream_is_a_service(root: Path, compose: str) -> None:
    services = set(re.findall(r"(?m)^  ([a-z]+):", compose))
    configuration = load(root / "compose" / "univocal.toml")
    urls = [url for site in configuration.sites for url in site.upstream.urls]
    assert {re.split("[:/]+", url)[1] for url in urls} <= services


def test_what_is_mounted_or_built_exists(root: Path, compose: str) -> None:
    named = re.findall(r"\"\./([^:\"]+):", compose) + re.findall(r"build: (\S+)", compose)
    assert len(named) >= 4
    assert all((root / name).exists() for name in named)


def test_published_on_loopback_alone(compose: str) -> None:
    assert re.findall(r"ports: (.*)", compose) == ['["127.0.0.1:8080:8080"]', '["127.0.0.1:8082:8080"]']


def test_the_proxies_share_a_service_that_is_there(root: Path, compose: str) -> None:
    store = load(root / "compose" / "univocal.toml").cache.store
    assert re.split("[:/]+", store)[:2] == ["redis", "redis"]
    assert re.search(r"(?m)^  redis:$", compose)
    assert "redis" in re.findall(r"'\.\[(.*)\]'", (root / "Dockerfile").read_text("utf-8"))[0].split(",")


@pytest.mark.parametrize("folder", [".", "compose/app"])
def test_images(root: Path, folder: str) -> None:
    text = (root / folder / "Dockerfile").read_text("utf-8")
    users = re.findall(r"(?m)^USER (\S+)", text)
    assert users
    assert users[-1] not in {"root", "0"}
    assert f" {users[-1]}\n" in text
    assert text.startswith("FROM python:3.13-slim\n")
    for sources in re.findall(r"(?m)^COPY (.*) \S+$", text):
        assert all((root / folder / source).exists() for source in sources.split())


def test_what_an_image_copies_is_not_ignored(root: Path) -> None:
    kept = {
        line[1:] for line in (root / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    }
    copied = re.findall(r"(?m)^COPY (.*) \S+$", (root / "Dockerfile").read_text("utf-8"))
    assert {source for sources in copied for source in sources.split()} <= kept
