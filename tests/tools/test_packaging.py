"""The wheel and the source distribution: an index would take them, and the wheel is all that a user needs."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser

import pytest

pytestmark = pytest.mark.long

MOUNTED = """
import asyncio
import httpx
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from univocal import CacheMiddleware

async def page(request):
    return PlainTextResponse("page", headers={"Cache-Control": "max-age=60"})

async def main():
    app = CacheMiddleware(Starlette(routes=[Route("/page", page)]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a.example") as client:
        for spelling in ("/page", "/%70age"):
            print((await client.get(spelling)).headers["cache-status"])

asyncio.run(main())
"""


NO_COMPILER = {"CC": "no-such-compiler"}


def run(*command, cwd, **variables):
    """Run a program as a user's shell would, without what this test's own environment says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env=clean | variables
    )


def build(root, directory, *options, **variables):
    """Build distributions of the checkout into a directory."""
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, *options, root)
    return run(*command, cwd=directory, **variables)


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """The directory in which both are: the machine has no compiler."""
    directory = tmp_path_factory.mktemp("dist")
    ended = build(root, directory, **NO_COMPILER)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return directory


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The programs of an environment that has the wheel, with no extra."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory)
    (wheel,) = built.glob("*.whl")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        directory / "bin" / "python",
        "--disable-pip-version-check",
    )
    ended = run(*pip, "install", "--quiet", "--no-compile", wheel, cwd=directory)
    assert ended.returncode == 0, ended.stderr
    return directory / "bin"


def test_an_index_takes_both(built):
    files = sorted(built.iterdir())
    assert len(files) == 2
    ended = run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)
    assert (ended.returncode, ended.stdout.count("PASSED")) == (0, 2)


def test_a_wheel_made_without_a_compiler_is_pure(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]


def test_a_compiled_wheel_needs_a_compiler(root, tmp_path):
    options = ("--wheel", "--skip-dependency-check")
    ended = build(root, tmp_path, *options, HATCH_BUILD_HOOKS_ENABLE="1", **NO_COMPILER)
    assert (ended.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "no C compiler: there is no program 'no-such-compiler'." in ended.stdout + ended.stderr


def test_wheel_and_source_hold_the_files_they_need(root, built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(metadata).decode())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "univocal",
        "univocal_app",
        "univocal_learn",
    }
    assert {"univocal/py.typed", "univocal/profiles/mediawiki.toml"} <= set(names)
    templates = {
        f"univocal_learn/exporters/templates/canonicalize.{each}.in" for each in ("js", "lua", "py", "vcl")
    }
    assert templates <= set(names)
    assert {"univocal/store/redis/lua/publish.lua", "univocal/store/redis/lua/commit.lua"} <= set(names)
    assert told.get_all("Project-URL") is None  # no address is ours
    service = {
        path for path in (root / "deploy").rglob("*") if path.is_file() and "compose" not in path.parts
    }
    assert service
    packaged = {f"univocal_app/{path.relative_to(root)}" for path in service}
    assert packaged == {name for name in names if name.startswith("univocal_app/deploy/")}
    with tarfile.open(source) as archive:
        assert {"README.md", "Makefile", "tests"} <= {name.split("/")[1] for name in archive.getnames()[1:]}


def test_the_wheel_alone_is_the_middleware(installed, tmp_path):
    ended = run(installed / "python", "-c", MOUNTED, cwd=tmp_path)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["univocal; fwd=uri-miss; stored", "univocal; hit; ttl=60"]


@pytest.mark.parametrize("program", [["univocal"], ["python", "-m", "univocal"]])
def test_without_its_extra_the_program_says_which(installed, tmp_path, program):
    name, *arguments = program
    ended = run(installed / name, *arguments, "serve", "--upstream", "http://127.0.0.1:9", cwd=tmp_path)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "pip install 'univocal[proxy]'" in ended.stderr


def test_the_library_alone_tells_its_form(installed, tmp_path):
    told = run(installed / "univocal", "--version", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (0, "univocal 0.2.0 (pure)\n")


def test_the_library_alone_explains_and_writes_files(root, installed, tmp_path):
    explained = run(installed / "univocal", "explain", "http://a.example/%7Ea", cwd=tmp_path)
    assert (explained.returncode, explained.stderr) == (0, "")
    assert "canonical  http://a.example/~a" in explained.stdout
    refused = run(installed / "univocal", "explain", "http://a.example/%zz", "--profile", "s4", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "there is no profile 's4'" in refused.stderr
    listed = run(installed / "univocal", "profiles", cwd=tmp_path)
    assert listed.stdout.startswith("aiohttp ")
    unit = run(installed / "univocal", "files", "univocal.service", cwd=tmp_path)
    assert unit.stdout == (root / "deploy/systemd/univocal.service").read_text("utf-8")
    told = run(installed / "univocal", cwd=tmp_path)
    assert (told.returncode, "pip install 'univocal[proxy]'" in told.stdout) == (0, True)
