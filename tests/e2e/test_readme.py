"""What the README claims: its examples run, its table is the profiles', its links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from univocal.judge.profiles import builtin_profiles
from univocal.uri.pipeline import Rejected, canonical_target
from univocal_app.config.tables import validate
from univocal_app.run.assemble import runtime_of

Fixture = Callable[..., Any]


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    """The README."""
    return (root / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)


async def refusal(app: Any, target: bytes) -> tuple[int, str]:
    """Status and reason for a target that httpx would respell."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(target.decode()),
        "raw_path": target,
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"en.example")],
        "client": ("192.0.2.1", 50000),
        "server": ("en.example", 80),
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(body)["reason"]


async def test_the_mounted_middleware(text: str) -> None:
    mounted: dict[str, Any] = {}
    exec(compile(blocks(text, "python")[0], "README.md", "exec"), mounted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(mounted["app"])) as browser:
        answers = [await browser.get(f"http://a/pages/{title}") for title in ("A-B", "A%2DB", "A%2dB")]
        assert [answer.json() for answer in answers] == [{"title": "A-B"}] * 3
        # As the README says: nothing is stored without explicit freshness, and a dot segment is refused.
        assert all("fwd=uri-miss" in answer.headers["cache-status"] for answer in answers)
        assert not any("stored" in answer.headers["cache-status"] for answer in answers)
    assert await refusal(mounted["app"], b"/shop/../admin") == (400, "dot-segment")


async def test_the_proxy_by_itself(text: str) -> None:
    module: dict[str, Any] = {}
    exec(compile(blocks(text, "python")[1], "README.md", "exec"), module)
    assert await refusal(module["proxy"], b"/a/..;/admin") == (400, "dot-segment-parameter")


async def test_the_test_with_respx(text: str) -> None:
    module: dict[str, Any] = {}
    exec(compile(blocks(text, "python")[2], "README.md", "exec"), module)
    await module["test_the_second_spelling_is_a_hit"]()


def test_the_configuration_of_the_readme_is_one(text: str) -> None:
    (block,) = blocks(text, "toml")
    runtime = runtime_of(validate(tomllib.loads(block), "README.md"), "README.md")
    assert [site.name for site in runtime.sites.sites] == ["en.example"]


def test_the_commands_that_need_no_proxy(text: str, univocal: Fixture) -> None:
    commands = re.findall(r"(?m)^\.venv/bin/univocal (explain .*)$", text)
    assert commands
    for command in commands:
        assert univocal(*shlex.split(command)).returncode == 0


def test_the_profile_table(text: str) -> None:
    assert sorted(re.findall(r"(?m)^\| `([a-z0-9-]+)` \|", text)) == sorted(builtin_profiles())


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**/*.md"]
)
def test_links_lead_somewhere(root: Path, page: str) -> None:
    for file in root.glob(page):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text("utf-8")):
            assert (file.parent / link).exists(), f"{file.name}: {link}"


def test_the_table_of_attacks(root: Path) -> None:
    rows = re.findall(
        r"(?m)^\| (\w+) \| `(/.*?)` \| (.*?) \|$", (root / "docs" / "security.md").read_text("utf-8")
    )
    assert len(rows) > 15
    for profile, path, told in rows:
        result = canonical_target(path.encode(), builtin_profiles()[profile])
        expected = told.split("`")[1]
        if told.startswith("400 "):
            assert isinstance(result, Rejected)
            assert result.reason == expected
        else:
            assert result == expected.encode()


def test_the_reference_shows_the_defaults(root: Path) -> None:
    shown = tomllib.loads(blocks((root / "docs" / "reference.md").read_text("utf-8"), "toml")[0])
    site = {"hosts": ["en.example"], "upstream": "http://127.0.0.1:9001"}
    defaults = validate({"sites": [site]}, "defaults").model_dump()
    configuration = validate(shown, "docs/reference.md").model_dump()
    (own,), (default,) = configuration.pop("sites"), defaults.pop("sites")
    assert configuration == defaults
    assert own.keys() == default.keys()
    differing = {name for name in own if own[name] != default[name]}
    assert differing == {"hosts", "routes"}
