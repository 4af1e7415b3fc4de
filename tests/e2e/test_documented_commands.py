"""Every command on every page is run: here, or by the test that a table names.

A `text` block right behind commands is what they show: each of its lines, in order; `…` is anything.
Commands run in sh. Typed in zsh, they start the same programs with the same words.
"""

import ast
import gzip
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

import forking
from univocal import CacheMiddleware, ReverseProxy, builtin_profiles
from univocal.uri.profile import parse
from univocal_app.config.tables import Configuration, validate

Fixture = Callable[..., Any]

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(each.relative_to(ROOT))
    for each in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
)
TIMEOUT = 60
TOKEN = "a-token-of-the-pages"


class By(NamedTuple):
    """The test that runs a command, or the make target that .ci/run calls; and why not all of it is run."""

    test: str
    unless: str = ""


# A page whose commands are run by a test of its own, in order: each needs the whole compose stack.
TOUR = "docs/tour.md"
E2E, TOOLS = "tests/e2e/test_", "tests/tools/test_"
TOURED = By(E2E + "tour.py::test_the_readmes_stack_does_what_it_says")
SERVICE = By(E2E + "systemd.py::test_systemd_takes_the_units", "it would change this machine")
PROBE = By(E2E + "profiles_page.py::test_the_probe_tells_what_the_page_says")
LEARN = "tests/integration/learn/test_learn_commands.py::"
WIKI = "tests/integration/applications/test_applications_mediawiki.py::"

# Patterns of commands that are not run here.
ELSEWHERE = {
    r"make test": By("make test"),
    r"make test-compiled": By("make test-compiled"),
    r"make test-lowest": By("make test-lowest"),
    r"make check": By("make check"),
    r"make format": By(TOOLS + "make.py::test_sources_are_rewritten_as_the_check_wants_them"),
    r"make demo": By(E2E + "demo.py::test_visitors_come_on_request_and_leave_printed_pages_alone"),
    r"make reference": By("tests/project/test_reference_page.py::test_the_tables_are_what_the_code_says"),
    r"make comparison": By(TOOLS + "comparison_page.py::test_the_page_tells_what_is_measured"),
    r"make differential .*": By(
        E2E + "differential.py::test_univocal_makes_no_mistake_in_twenty_sequences",
        "thousands take minutes, and Varnish and nginx beside",
    ),
    r"make fuzz .*": By("make fuzz"),
    r"make laws": By("make test", "its tests are among those of LONG=1 make test"),
    r"make conformance( ARGS=--published)?": By("", "the suite is cloned from elsewhere, and needs Node"),
    r"make screenshots": By(TOOLS + "screenshots.py::test_the_pictures_can_be_made_anew"),
    r"make bench-short": By("make bench-short"),
    r"make bench": By("make bench-short", "all rounds, which take 15 minutes"),
    r"UNIVOCAL_CLUSTER_URLS=.* make test ARGS=.*": By(
        E2E + "cluster.py::test_no_answer_is_older_than_the_last_purge_allows"
    ),
    # The programs that make bench runs.
    r"python -m benchmarks": By("make bench-short"),
    r"\.venv-test/bin/python benchmarks/observe\.py": By(
        TOOLS + "bench_observe.py::test_the_cost_of_each_counter_is_measured"
    ),
    # Other machines, the system's services, indexes.
    r"univocal warm --sitemap .*": By(E2E + "warming.py::test_a_sitemap_and_an_index_of_them_name_the_urls"),
    r"docker compose .*": TOURED,
    r"curl .*wiki\.localhost:8082/.*": TOURED,
    r"\.venv/bin/uvicorn shop:app .*|(curl|\.venv/bin/univocal purge) .*127\.0\.0\.1:8000/.*": By(
        E2E + "readme.py::test_the_second_spelling_is_a_hit"
    ),
    r"(python3 -m venv \.venv && \.venv/bin/)?pip install .*": By(
        TOOLS + "packaging.py::test_the_wheel_alone_is_the_middleware", "extras come from an index"
    ),
    r"python3 -m venv /opt/univocal .*": By(
        TOOLS + "packaging.py::test_the_wheel_alone_is_the_middleware", "it would change this machine"
    ),
    r"/opt/univocal/bin/univocal files .*": By(
        E2E + "service_files.py::test_files_are_written_and_none_is_overwritten_unasked"
    ),
    r"systemctl .*": SERVICE,
    r"univocal check .* && systemctl reload univocal": By(
        E2E + "in_front.py::test_the_file_to_begin_with_is_one", "it would change this machine"
    ),
    # Commands that run until they are ended.
    r"(\.venv/bin/)?univocal serve --upstream http://127\.0\.0\.1:9000 --profile .*": By(
        E2E + "serve.py::test_every_spelling_is_one_resource"
    ),
    r"univocal serve --upstream .* --upstream .*": By(
        E2E + "serve.py::test_several_upstreams_share_the_requests"
    ),
    r"univocal origins( .*)?": By(E2E + "origins.py::test_a_drain_under_load_fails_no_request"),
    r"univocal log": By(E2E + "live.py::test_log_follows_and_ends_at_ctrl_c"),
    r"univocal log --(status|site) .*": By(E2E + "live.py::test_log_filters"),
    r"univocal log --since .*": By(E2E + "live.py::test_since_begins_with_the_log_of_the_proxy"),
    r"curl -N .*/-/events.*": By(E2E + "events.py::test_filters_choose_by_site_status_and_cache"),
    # Commands that send thousands of requests, or need a whole application.
    r"univocal probe .*": By(LEARN + "test_the_sample_may_be_a_sitemap_or_a_log"),
    r"univocal discover .*": By(LEARN + "test_discover_asks_the_origin"),
    r"univocal replay .*": By(LEARN + "test_replay_compares_profiles"),
    r"(\.venv/bin/)?univocal audit .*": By(LEARN + "test_audit_says_it_in_plain_words"),
    r"curl .* -H 'Host: wiki\.example' .*": By(WIKI + "test_a_page_is_one_resource_until_it_is_edited"),
    r"univocal explain --config univocal\.toml 'http://wiki\.example/.*": By(
        WIKI + "test_a_subpage_is_one_title_to_rest"
    ),
    # A script, run as a whole.
    r"origin=http.*|same\(\) \{.*|for c in .*|same .*": PROBE,
}

# Python that is run elsewhere, by page and place on it; None: all of it.
PYTHON_ELSEWHERE = {
    ("README.md", 0): By(E2E + "readme.py::test_the_second_spelling_is_a_hit"),
    ("docs/library.md", None): By(E2E + "library_page.py::test_every_example_runs"),
    ("docs/profiles.md", None): PROBE,
    ("docs/how-to/mounting.md", None): By(E2E + "mounting_pages.py::test_every_example_of_mounting_runs"),
    ("docs/how-to/testing.md", None): By(E2E + "mounting_pages.py::test_the_tests_of_the_page_pass"),
    ("docs/how-to/purging.md", 0): By(
        "tests/integration/clients/test_clients_wagtail.py::test_a_published_page_is_seen_in_every_spelling"
    ),
    ("docs/how-to/purging.md", 1): By(
        "tests/integration/clients/test_clients_django.py::test_a_purge_reaches_every_variant"
    ),
}


# The contents of the pages.


class Command(NamedTuple):
    """One command of a page's sh blocks, the lines that its block shows, and whether it is the last."""

    page: str
    text: str
    shown: tuple[str, ...] = ()
    is_last: bool = False


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


def commands(page: str) -> Iterator[Command]:
    text = (ROOT / page).read_text("utf-8")
    for block, shown in re.findall(r"(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", text):
        lines = []
        found = []
        for line in block.splitlines():
            lines.append(line)
            if is_whole(whole := "\n".join(lines)) and whole.strip():
                found.append(whole.strip())
                lines = []
        assert not any(lines), f"{page}: no command: {lines}"
        for each in found:
            yield Command(page, each, tuple(shown.splitlines()), each is found[-1])
    for row in re.findall(r"(?m)^\| `(make [^`]+)` \|", text):
        yield Command(page, row)


def is_whole(text: str) -> bool:
    """Tell whether a shell would begin to run the text, without waiting for another line."""
    if text.count("'") % 2 == 0 and not re.search(r"[{\\]$|\bdo\b|^\}", text, re.MULTILINE):
        return True
    return subprocess.run(["sh", "-n", "-c", text], capture_output=True, check=False).returncode == 0


COMMANDS = [command for page in PAGES if page != TOUR for command in commands(page)]


def rows_for(command: Command) -> list[str]:
    return [pattern for pattern in ELSEWHERE if re.fullmatch(pattern, command.text, re.DOTALL)]


def test_no_command_has_a_comment():
    with_comment = re.compile(r"(?m)(?:^|\s)#")
    assert [command for command in COMMANDS if with_comment.search(command.text)] == []


def test_each_command_has_one_place_at_most():
    assert len(COMMANDS) > 100
    assert [(command.text, rows) for command in COMMANDS if len(rows := rows_for(command)) > 1] == []


def test_the_tables_have_no_row_that_no_page_has():
    used = {pattern for command in COMMANDS for pattern in rows_for(command)}
    assert ELSEWHERE.keys() - used == set()
    there = {(page, at) for page in PAGES for at in [None, *range(len(blocks(page, "python")))]}
    assert PYTHON_ELSEWHERE.keys() - there == set()


@pytest.mark.parametrize("by", sorted({*ELSEWHERE.values(), *PYTHON_ELSEWHERE.values()}))
def test_the_test_that_runs_a_command_exists(by):
    if not by.test:
        assert by.unless
        return
    if by.test.startswith("make "):
        target = by.test.removeprefix("make ")
        script = (ROOT / ".ci" / "run").read_text("utf-8")
        assert re.search(rf"(?m)^[^#\n]*\bmake .*(?<=\s){target}\s", script)
        return
    module, _, name = by.test.partition("::")
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


FOLDERS = "app|benchmarks|deploy|docs|fuzz|middleware|tests|tools"
ABSENT = {"tests/NAME"}  # one that stands for any


@pytest.mark.parametrize("page", [*PAGES, "SECURITY.md", "CHANGELOG.md"])
def test_files_and_targets_named_by_a_page_exist(page):
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text("utf-8"))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for code in re.findall(r"`([^`\n]+)`", text):
        for name in re.findall(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w", code):
            assert (
                name in ABSENT or (ROOT / name).exists() or (ROOT / "middleware" / "univocal" / name).exists()
            ), name
        for target in re.findall(r"\bmake ((?:[A-Z]+=\S+ )*)([a-z-]+)", code):
            assert re.search(rf"(?m)^{target[1]}:", makefile), target


# Those that are run here.


class Scene:
    """A directory with what the pages presuppose, and programs that are started as they are needed."""

    def __init__(self, folder: Path, start: Fixture, origin: Any) -> None:
        self.folder, self.start, self.origin = folder, start, origin
        self.said = ""  # by the commands of a block so far
        self.demo = self.served = None
        self.environment = {**os.environ, "UNIVOCAL_PURGE_TOKEN": TOKEN, "NO_COLOR": "1"}
        self.environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        for name in [name for name in self.environment if name.lower().endswith("_proxy")]:
            del self.environment[name]
        self.write("bin/find-what-changed", "#!/bin/sh\ncat changed.txt\n").chmod(0o755)
        self.write("changed.txt", "# what an editor has saved\n\nhttp://en.example/wiki/A\n")

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def the_demo(self) -> Any:
        listeners = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        self.demo = self.demo or self.start("demo", *listeners, until="%2F is a slash to it")
        return self.demo

    def the_proxy(self) -> Any:
        """univocal before an origin that answers all, or with the page's own file."""
        if self.served is None:
            file = self.folder / "univocal.toml"
            if not file.exists():
                site = f'[[sites]]\nhosts = ["*"]\nprofile = "mediawiki"\nupstream = "{self.origin.url}"\n'
                self.write("univocal.toml", site)
            listeners = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
            self.served = self.start("serve", "--config", str(file), *listeners, UNIVOCAL_PURGE_TOKEN=TOKEN)
        return self.served

    def as_here(self, command: Command) -> str:
        """The command with this test's ports and files in place of the page's."""
        text = command.text.replace(".venv/bin/univocal", "univocal")
        text = text.replace("/var/log/univocal", str(self.folder))
        of_the_demo = command.page in {"docs/tutorial.md", "docs/how-to/page.md"} or ".localhost" in text
        if not re.search(r"curl|univocal (purge|top|warm)", text):
            return text
        running = self.the_demo() if of_the_demo else self.the_proxy()
        if of_the_demo:
            for port, path in (("34567", "/wiki/"), ("34568", "/shop/")):
                text = text.replace(port, re.search(rf"http://127\.0\.0\.1:(\d+){path}", running.said)[1])
        proxy, admin = (f":{port}" for _, port in (running.proxy, running.admin))
        text = (
            text.replace("192.0.2.1:8080", "127.0.0.1:8080").replace(":8080", proxy).replace(":8081", admin)
        )
        text = text.replace("univocal top", f"univocal top --admin http://127.0.0.1{admin}")
        listeners = f"--via http://127.0.0.1{proxy} --admin http://127.0.0.1{admin}"
        text = text.replace("univocal warm", f"univocal warm --via http://127.0.0.1{proxy}")
        text = text.replace("univocal purge", f"univocal purge {listeners}")
        return text.replace("curl ", r"curl -sS -w '%{stderr}status %{http_code}' ")

    def run(self, command: Command) -> None:
        if command.text == "univocal serve --config univocal.toml":
            self.the_proxy()
            return
        text = self.as_here(command)
        ended = typed(["sh"], text, self.folder, self.environment)
        said = ended.stdout.replace("\r\n", "\n")
        assert ended.returncode == 0, f"{command}\n{said}\n{ended.stderr}"
        self.said += said
        if "curl" in text:
            statuses = ["200", *re.findall(r"HTTP/1.1 (\d+)", "\n".join(command.shown))]
            assert re.findall(r"status (\d+)", ended.stderr)[0] in statuses, f"{command}\n{said}"
        if command.is_last:
            shown = ".*".join(re.escape(part) for line in command.shown for part in line.split("…"))
            assert re.search(shown, self.said, re.IGNORECASE | re.DOTALL), f"{command}\n{self.said}"
            self.said = ""


def typed(shell: list[str], text: str, folder: Path, environment: dict[str, str]) -> Any:
    """Have a shell run these lines, and return how it ended."""
    return subprocess.run(
        shell, input=f"{text}\nexit $?\n", cwd=folder, env=environment, capture_output=True, text=True,
        timeout=TIMEOUT, check=False,
    )  # fmt: skip


@pytest.fixture
def scene(tmp_path: Path, start: Fixture, origin: Any) -> Iterator[Scene]:
    if shutil.which("curl") is None:
        pytest.skip("needs curl (Debian package curl)")
    made = Scene(tmp_path, start, origin)
    with forking.command(tmp_path / "bin" / "univocal"):
        yield made


RING = "size_t ring[256] = {" + ",".join(map(str, builtin_profiles()["mediawiki"].ring.forms)) + "};"
RULE = "map http://en.example/ http://127.0.0.1:9001/ @plugin=tslua.so @pparam=normalize-path.lua"
REMAP = f'{RULE} @pparam="3A 2F" @pparam="5B 5D"\n'
SERVER = "server { server_name en.example; listen 80;\nlocation / { proxy_pass http://127.0.0.1:9001; }\n}\n"


def files_of(page: str, scene: Scene) -> None:
    """Write the files, and ask the requests, that the page's reader has made before."""
    if page == "docs/how-to/purging.md":
        scene.run(Command(page, "curl -H 'Host: en.example' http://127.0.0.1:8080/wiki/A/B"))
    if page == "docs/profiles.md":
        profile, configuration = blocks(page, "toml")[:2]
        scene.write("profiles/shop.toml", profile)
        scene.write("univocal.toml", configuration.replace("http://127.0.0.1:9000", scene.origin.url))
        for name, text in (("normalize_path.vcl", RING), ("remap.config", REMAP), ("nginx.conf", SERVER)):
            scene.write(name, text)
    if page == "docs/how-to/from-nginx.md":
        scene.write("nginx.conf", SERVER)
        (scene.folder / "profiles").mkdir()
    if page == "docs/how-to/observing.md":
        example = re.findall(r"(?m)^(\{\"time\".*)$", (ROOT / "docs/how-to/purging.md").read_text("utf-8"))
        (scene.folder / "access.log.1.gz").write_bytes(gzip.compress("\n".join(example).encode() + b"\n"))


def commands_here(page: str) -> list[Command]:
    """The commands of a page that are run here."""
    return [command for command in commands(page) if not rows_for(command)]


HERE = [page for page in PAGES if page != TOUR and commands_here(page)]


@pytest.mark.parametrize("page", HERE)
def test_the_commands_of_a_page(page, scene):
    files_of(page, scene)
    for command in commands_here(page):
        scene.run(command)


def test_commands_have_the_same_words_typed_in_zsh(tmp_path):
    """There a comment behind a command would be an argument, and `?` in a URL a pattern of files."""
    if shutil.which("zsh") is None:
        pytest.skip("needs zsh (Debian package zsh)")
    for program in ("curl", "univocal", "mkdir", "find-what-changed"):
        (tmp_path / program).write_text("""#!/bin/sh\nprintf '<%s>' "${0##*/}" "$@"; echo\n""")
        (tmp_path / program).chmod(0o755)
    lines = [command.text.replace(".venv/bin/", "") for page in HERE for command in commands_here(page)]
    text = "\n".join(f"{line}\necho status $?" for line in lines)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "UNIVOCAL_PURGE_TOKEN": TOKEN}
    zsh = ["zsh", "-f", "-i", "+Z", "-o", "nopromptsp"]
    in_sh, in_zsh = (typed(shell, text, tmp_path, environment).stdout for shell in (["sh"], zsh))
    assert in_zsh == in_sh
    assert set(re.findall(r"(?m)^status .*", in_sh)) == {"status 0"}
    assert in_sh.count("status 0") == len(lines) > 40


# Other languages.


def is_profile(block: dict[str, Any]) -> bool:
    return not block.keys() <= {*Configuration.model_fields, "upstream"}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")])
def test_toml_is_a_configuration_or_a_profile(page):
    for text in blocks(page, "toml"):
        block = tomllib.loads(text)
        if is_profile(block):
            assert parse({"mine": text}, builtin_profiles())["mine"].name == "mine"
            continue
        if block.get("server", {}).get("workers", 1) > 1:
            block["cache"] = {"store": "redis://127.0.0.1:6379/0"}  # as the page has it further up
        site = {"hosts": ["*"], "upstream": block.pop("upstream", "http://127.0.0.1:9001")}
        assert validate({"sites": [site], **block}, page).sites


PYTHON = [
    (page, at)
    for page in PAGES
    for at in range(len(blocks(page, "python")))
    if not PYTHON_ELSEWHERE.keys() & {(page, at), (page, None)}
]


@pytest.mark.parametrize(("page", "at"), PYTHON)
def test_python_runs_without_a_complaint(page, at, scene, capfd):
    text = blocks(page, "python")[at]
    if ":8080" in text:
        text = text.replace(":8080", f":{scene.the_proxy().proxy[1]}")
    known = {"CacheMiddleware": CacheMiddleware, "ReverseProxy": ReverseProxy, "app": FastAPI()}
    exec(compile(text, page, "exec"), {**known, "get_asgi_application": Starlette})
    assert capfd.readouterr().err == ""
