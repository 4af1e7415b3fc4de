"""The README's claims: its examples run, its table is the profiles', its links lead somewhere."""

import re
import shlex
import tomllib

import httpx
import pytest

from tests.asgi.conftest import Client
from univocal.judge.profiles import builtin_profiles
from univocal.uri.target import Rejected, canonical_target
from univocal_app.config.tables import validate


@pytest.fixture(scope="module")
def text(root):
    """The README."""
    return (root / "README.md").read_text("utf-8")


def blocks(text, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)


async def test_the_second_spelling_is_a_hit(text):
    module = {}
    exec(compile(blocks(text, "python")[0], "README.md", "exec"), module)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(module["app"])) as browser:
        first, second = [await browser.get(f"http://a/pages/{title}") for title in ("A-B", "A%2DB")]
    assert first.headers["cache-status"] == "univocal; fwd=uri-miss; stored"
    assert second.headers["cache-status"].startswith("univocal; hit")
    assert second.json() == {"title": "A-B"}
    refused = await Client(module["app"])("/shop/../admin", extensions={})  # which httpx would respell
    assert (refused.status, refused.problem["reason"]) == (400, "dot-segment")


def test_the_readme_is_short(text):
    assert len(text.splitlines()) <= 120


def test_every_link_leads_into_the_checkout(root, text):
    links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    assert len(links) > 15
    for link in (one or other for one, other in links):
        assert (root / link).exists(), link


def test_the_demo_and_the_tests_come_first(text):
    places = [text.index(each) for each in ("make demo", "make test", "CacheMiddleware", "univocal serve")]
    assert places == sorted(places)


def test_the_commands_that_need_no_proxy(text, univocal):
    commands = re.findall(r"(?m)^\.venv/bin/univocal (explain .*)$", text)
    assert commands
    for command in commands:
        assert univocal(*shlex.split(command)).returncode == 0


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**/*.md"]
)
def test_links_lead_somewhere(root, page):
    for file in root.glob(page):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text("utf-8")):
            assert (file.parent / link).exists(), f"{file.name}: {link}"


def test_the_table_of_attacks(root):
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


def test_the_reference_shows_the_defaults(root):
    shown = tomllib.loads(blocks((root / "docs" / "reference.md").read_text("utf-8"), "toml")[0])
    site = {"hosts": ["en.example"], "upstream": "http://127.0.0.1:9001"}
    defaults = validate({"sites": [site]}, "defaults").model_dump()
    configuration = validate(shown, "docs/reference.md").model_dump()
    (own,), (default,) = configuration.pop("sites"), defaults.pop("sites")
    assert configuration == defaults
    assert own.keys() == default.keys()
    differing = {name for name in own if own[name] != default[name]}
    assert differing == {"access", "hosts", "max_body", "redirect", "routes", "tls_client_ca"}
    # The site shows the server's value, which it has without one of its own, or a placeholder.
    assert own["max_body"] == defaults["server"]["max_body"]
    assert own["tls_client_ca"] == defaults["server"]["tls_client_ca"]
    assert own["redirect"]["to"] == ""
    assert {**own["access"], "limits": None} == default["access"]
