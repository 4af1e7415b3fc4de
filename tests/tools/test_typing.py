"""Type checkers read the library and the examples of docs/library.md as an application's author has them."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

TYPED = """
from pathlib import Path

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.types import ASGIApp

from univocal import CacheMiddleware, Outcome, ReverseProxy, Rules, Site, Sites, cached, purge, tag

fast, star = FastAPI(), Starlette()
apps: list[ASGIApp] = [
    CacheMiddleware(fast),
    CacheMiddleware(star, "mediawiki", rules=Rules(ttl=1)),
    CacheMiddleware(ReverseProxy("http://127.0.0.1:9000")),
]
fast.add_middleware(CacheMiddleware, rules=Rules(ttl=60))
star.add_middleware(CacheMiddleware)


rules = Rules(
    ttl="5m", grace="1h", ttl_by_status={404: "10s"}, bypass=["/x"], compress=["gzip"], targeted=["My-CC"]
)
Rules(ttl=0.5, bypass=("/x",), compress=(b"gzip",), ordinary_fields=["x-a"], keep_cookies=["a*"])
CacheMiddleware(fast, rules=rules, store="memory", enabled=False)
CacheMiddleware(fast, sites={"*": "asgi", "/api/": Path("shop.toml")})
CacheMiddleware(fast, sites=Sites([Site.of("a", "asgi", rules=rules)])).clear()


@fast.get("/items/{number}")
@cached(ttl=60, grace="5m", tags=["items"])
async def item(number: int) -> str:
    tag(f"item-{number}")
    return str(number)


@cached(False)
def change(number: int) -> int:
    return purge.sync(f"/items/{number}", tag="items") + number


async def made(number: int) -> str:
    return (await item(number)) + str(change(number)) + str(await purge(prefix="/", require=True))


def note(outcome: Outcome) -> None:
    print(outcome.status)


async def purge_all(cache: CacheMiddleware) -> int:
    return await cache.purge("http://en.example/")


CacheMiddleware(fast, listeners=[note])
"""
WRONG = """CacheMiddleware(fast, profile=3)
Rules(ttl=[5])
cached(60)(5)
item("a")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "checker", [["mypy", "--strict"], ["basedpyright", "--level", "error", "--pythonpath", sys.executable]]
)
def test_applications_are_typed(tmp_path, root, checker, pytestconfig):
    """With the library as a user has it: mypy and pyright read what is installed.

    From one run to the next, mypy remembers its findings about other projects' modules.
    """
    (tmp_path / "right.py").write_text(TYPED)
    (tmp_path / "wrong.py").write_text(TYPED + WRONG)
    text = (root / "docs" / "library.md").read_text("utf-8")
    examples = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    page = "async def main() -> None:\n" + textwrap.indent(examples, "    ")
    (tmp_path / "page.py").write_text(page)
    name, *options = checker
    if name == "mypy":
        remembered = getattr(pytestconfig, "cache", None)  # pytest can do without
        options += ["--cache-dir", str(remembered.mkdir("mypy") if remembered else tmp_path / "mypy")]
    paths = [str(root / "middleware"), str(root / "app")]
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "standard", "extraPaths": paths})
    )

    ended = subprocess.run(
        [sys.executable, "-m", name, *options, "right.py", "wrong.py", "page.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    told = [line for line in ended.stdout.splitlines() if "error: " in line]
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert [line for line in told if "wrong.py" not in line] == []
    wrong = TYPED.count("\n") + 1
    assert {int(line.split(":")[1]) for line in told} == set(range(wrong, wrong + 4))
