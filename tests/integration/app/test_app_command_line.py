"""The command line: texts and exit statuses, one message for what cannot be."""

import json
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import univocal as univocal_library
from examples import cases
from univocal import ProfileError
from univocal.judge.profiles import builtin_profiles
from univocal_app.commands.settings import everywhere
from univocal_app.run.configured import runtime_of

ROOT = Path(__file__).parents[3]
URL = "http://en.example/wiki/A%2fB%28c%29"
SITE = '[[sites]]\nhosts = ["a.example"]\nupstream = "http://127.0.0.1:9"\n'


def test_explain_json_is_the_contract(univocal):
    ended = univocal("explain", URL, "--profile", "mediawiki", "--json")
    told = json.loads(ended.stdout)
    assert ended.returncode == 0
    assert list(told) == ["canonical", "rejected", "reasons", "key", "stages"]
    assert (told["canonical"], told["rejected"], told["reasons"]) == (
        "http://en.example/wiki/A/B(c)",
        None,
        [],
    )
    assert told["key"].endswith(" http en.example /wiki/A/B(c)")
    assert all(list(stage) == ["name", "before", "after", "lossy"] for stage in told["stages"])
    assert told["stages"][0]["before"] == "/wiki/A%2fB%28c%29"
    assert told["stages"][-1]["after"] == "/wiki/A/B(c)"


@cases(
    "arguments, word",
    (["explain", "http://a/b//c", "--profile", "FILE"], "http://a/b/c"),
    (["profiles", "FILE"], "merge_slashes = true"),
    (["profiles", "export", "FILE", "--to", "js"], "profile shop"),
)
def test_a_profile_is_named_by_its_file(univocal, tmp_path, arguments, word):
    file = tmp_path / "shop.toml"
    file.write_text('extends = "rfc3986"\n[path]\nmerge_slashes = true\n')
    ended = univocal(*(str(file) if each == "FILE" else each for each in arguments))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert word in ended.stdout


def test_a_served_profile_may_be_a_file(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('extends = "rfc3986"\n[path]\nmerge_slashes = true\n')
    configuration = everywhere(["http://a"], str(file))
    sites = runtime_of(configuration).sites
    assert sites.canonicalize("http://a/b//c") == "http://a/b/c"
    file.write_text("[path]\nmerge_slash = true\n")
    with pytest.raises(ProfileError, match="merge_slash"):
        everywhere(["http://a"], str(file))


def test_explain_of_what_is_rejected(univocal):
    ended = univocal("explain", "http://en.example/a/..;/%00", "--profile", "servlet", "--json")
    told = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert (told["canonical"], told["key"]) == (None, None)
    assert (told["rejected"], told["reasons"]) == (
        "control-character",
        ["control-character", "dot-segment-parameter"],
    )


@cases(
    "arguments, status, words",
    (["explain", URL, "--profile", "mediawiki"], 0, ["ring", "/wiki/A/B(c)", "unchanged", "canonical"]),
    (
        ["explain", "http://a/x;p/..;/y", "--profile", "servlet"],
        1,
        ["parameters", "rejected", "dot-segment-parameter"],
    ),
    (["explain", "http://user@a/"], 1, ["rejected", "bad-target"]),
    (["explain", "http://a%2Fb/"], 1, ["rejected", "bad-host"]),
    (["explain", "HTTPS://EN.example.:443"], 0, ["canonical", "https://en.example/"]),
    (["explain", "http://кошка.example/я"], 0, ["http://xn--80atap4c.example/%D1%8F"]),
    (["explain", "http://a/\x1b[31m"], 1, ["rejected", "control-character", "\\x1b[31m"]),
    (["profiles"], 0, list(builtin_profiles())),
    (["profiles", "restbase"], 0, ["summary = ", "[path]", 'decode = ": @ ! $ ( ) * , ;"', "digest"]),
    (["--version"], 0, ["univocal 0.2.0"]),
    (["--help"], 0, ["serve", "demo", "explain", "profiles", "check", "purge"]),
)
def test_commands_print_their_results_with_their_status(univocal, arguments, status, words):
    ended = univocal(*arguments)
    assert ended.returncode == status
    assert ended.stderr == ""
    for word in words:
        assert word in ended.stdout


@cases(
    "arguments, said",
    (["explain"], "URL"),
    (["explain", "/wiki/A"], "not a URL"),
    (["explain", "ftp://a/"], "not a URL"),
    (
        ["explain", URL, "--profile", "nope"],
        "--profile: there is no profile 'nope', and no such file. `univocal profiles` lists them.",
    ),
    (["explain", URL, "--profile", "asgi", "--config", "x"], "either --profile or --config"),
    (["profiles", "nope"], "no profile 'nope'"),
    (["serve"], "either --upstream URL or --config FILE"),
    (["serve", "--upstream", "http://a", "--config", "x"], "either --upstream URL or --config FILE"),
    (["serve", "--upstream", "a:80"], "--upstream: found 'a:80'"),
    (["serve", "--upstream", "http://a", "--profile", "nope"], "--profile: there is no profile 'nope'"),
    (["serve", "--upstream", "http://a", "--listen", "8080"], "--listen: found '8080'; allowed: HOST:PORT"),
    (["serve", "--config", "/nowhere/univocal.toml"], "/nowhere/univocal.toml: found 'No such file"),
    (["check"], "--config"),
    (["demo", "--listen", "nowhere"], "--listen: found 'nowhere'"),
    (["purge"], "nothing to purge"),
    (["purge", "wiki/A"], "not a URL"),
    (["purge", "--tag", ""], "--tag '': a tag has"),
    (["purge", "http://a\r\nX: y/"], "names no host"),
    (["purge", "http://a/", "--via", "nowhere"], "is not the address of a proxy"),
    (["reload", "--admin", f"{'a' * 64}.example:80"], "is not the address of an admin listener"),
    (["reload", "--admin", "a..example:80"], "is not the address of an admin listener"),
    (["nonsense"], "No such command"),
)
def test_usage_errors_have_status_2_and_one_message(univocal, arguments, said):
    ended = univocal(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    # Usage errors come in a frame, folded to its width.
    assert said in " ".join(ended.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", ["serve", "check", "explain http://a/", "profiles import --from nginx"])
def test_an_unreadable_file_is_said_in_one_line(command, univocal, written, monkeypatch):
    file = written("")
    whole = Path.open

    def opened(path, *arguments, **options):
        if path == file:
            raise PermissionError(13, "Permission denied")
        return whole(path, *arguments, **options)

    # Root reads every file.
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(Path, "open", opened)
    ended = univocal(*command.split(), *([] if "import" in command else ["--config"]), str(file))
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.startswith(f"univocal: {file}: ")


@cases(
    "text, said",
    (f"profiles = ['./none']\n{SITE}", "profiles[0]: found './none'"),
    (f"[cache]\nttl = {'1' * 5001}\n{SITE}", "univocal.toml: invalid TOML: an integer has at most 64 bits"),
    (f"[cache]\nttl = 0x{'f' * 5000}\n{SITE}", "univocal.toml:2: cache.ttl: an integer has at most 64 bits"),
    *(
        (f'{SITE}{key} = "\\u0000"', f"sites[0].{key}: a text cannot have the character U+0000")
        for key in ("error_pages", "tls_cert", "access.basic", "origin.tls_ca")
    ),
    (f'include = ["\\u0000"]\n{SITE}', "include[0]: a text cannot have the character U+0000"),
    *(
        (f"{SITE}redirect = '{text}'", f"sites[0].redirect: found {text!r}; allowed: {allowed}")
        for text, allowed in (
            ("new.example", "a path, or http://"),
            ("//new.example/", "a path, or http://"),
            # Part of the path would be part of the host.
            ("https://new.example{rest}", "a path, or http://"),
            ("https://{path}/", "a path, or http://"),
            ("/a b", "a path, or http://"),
            ("/{client}", "a path, or http://"),
            ("/{1}", "no {1}, which is the first group"),
        )
    ),
)
def test_check_refuses_with_the_place(checked, text, said):
    ended = checked(text)
    assert ended.returncode == 2
    assert ended.stderr.startswith("univocal: ")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_every_command_refuses_with_the_place(univocal, written, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.toml").write_text('[path]\nring = "none"\n')
    file = written(f"profiles = ['own']\n{SITE}")
    for command in (["check"], ["explain", "http://a/"], ["serve"], ["profiles"]):
        ended = univocal(*command, "--config", str(file))
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert ended.stderr.startswith("univocal: ")
        assert "path.ring: found 'none'" in ended.stderr


def test_a_configuration_with_profiles_of_its_own(univocal, tmp_path, written):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "mine.toml").write_text(
        'summary = "Mine"\nextends = "mediawiki"\n[path]\nmerge_slashes = true\n'
    )
    file = written(
        'profiles = ["profiles"]\n[[sites]]\nhosts = ["*.example"]\nprofile = "mine"\nupstream = "http://127.0.0.1:1"\n'
    )
    config = ("--config", str(file))
    assert univocal("check", *config).stdout == f"{file}: valid, 1 site\n"
    assert re.search("(?m)^mine +Mine$", univocal("profiles", *config).stdout)
    assert "merge_slashes = true" in univocal("profiles", "mine", *config).stdout
    accepted = univocal("explain", "http://en.example/A//B", *config)
    assert (accepted.returncode, "http://en.example/A/B" in accepted.stdout) == (0, True)
    stranger = univocal("explain", "http://other.test/", *config, "--json")
    assert (stranger.returncode, json.loads(stranger.stdout)["rejected"]) == (1, "unknown-host")


def test_explain_ends_with_the_caches_settings(univocal, tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "blog.toml").write_text("[cache]\nttl = 300\nbypass_cookies = ['wp_*']\n")
    file = tmp_path / "univocal.toml"
    site = '[[sites]]\nhosts = ["{0}"]\nprofile = "{1}"\nupstream = "http://127.0.0.1:9"\n'
    blogs = site.format("a", "blog") + site.format("b", "blog") + "cache = { ttl = 7 }\n"
    file.write_text(f'profiles = ["./p"]\n{blogs}{site.format("c", "rfc3986")}')
    config = ("--config", str(file))
    assert '\n[cache]\nttl = 300\nbypass_cookies = ["wp_*"]\n' in univocal("profiles", "blog", *config).stdout
    for host, told in {"a": "ttl = 300, bypass_cookies", "b": "ttl = 7, bypass_cookies"}.items():
        shown = univocal("explain", f"http://{host}/", *config).stdout
        assert f'cache      {told} = ["wp_*"]\n' in shown
    assert "cache  " not in univocal("explain", "http://c/", *config).stdout


def test_explain_shows_what_sites_do(univocal, tmp_path, written):
    (tmp_path / "p").mkdir()
    own = 'extends = "rfc3986"\n[charset]\npath = "windows-1251"\ntrust_encoding_fields = true\n'
    (tmp_path / "p" / "own.toml").write_text(own)
    file = written(
        'profiles = ["./p"]\n[[sites]]\nhosts = ["al.example"]\n'
        'aliases = ["www.al.example"]\nscheme = "https"\n'
        'profile = "own"\nupstream = "http://127.0.0.1:9/v1/"\n'
    )
    said = ("--config", str(file), "--json")
    told = json.loads(univocal("explain", "HTTP://WWW.AL.example:80", *said).stdout)
    stages = {stage["name"]: stage for stage in told["stages"]}
    assert stages["authority"] == {
        "name": "authority",
        "before": "HTTP://WWW.AL.example:80",
        "after": "https://al.example",
        "lossy": True,
    }
    assert (stages["empty-path"]["before"], stages["empty-path"]["after"]) == ("", "/")
    assert (stages["upstream"]["before"], stages["upstream"]["after"]) == ("/", "/v1/")
    declared = univocal("explain", "https://al.example/%EF", *said, "--path-encoding", "koi8-r")
    assert json.loads(declared.stdout)["canonical"] == "https://al.example/%D0%9E"
    assert told["canonical"] == "https://al.example/"


def test_explain_has_the_profile_that_refused(univocal, written):
    file = written(
        '[[sites]]\nhosts = ["a.example"]\nprofile = "nginx"\nupstream = "http://127.0.0.1:9"\n'
        '[[sites.routes]]\npath = "/api/"\nprofile = "tomcat"\n'
    )
    told = univocal("explain", "http://a.example//api/..;/x%2Fy", "--config", str(file))
    assert (told.returncode, told.stdout.partition(":")[0]) == (1, "profile tomcat")


EVERYTHING_WRONG = """profiles = ["profiles"]
[server]
listn = "x"
workers = "two"
[[sites]]
hosts = ["a.example"]
upstream = "http://127.0.0.1:9"
profile = "nope"
[sites.cache]
ttl = -1
[[sites]]
hosts = ["b.example"]
upstream = "http://127.0.0.1:9"
[[sites.routes]]
path = "/x/"
[[sites.routes]]
path = "/y/"
profile = "bad"
"""


def test_every_error_is_told_at_once_with_its_line(univocal, tmp_path, written):
    (tmp_path / "profiles").mkdir()
    file = written(EVERYTHING_WRONG)
    for command in ("check", "serve"):
        ended = univocal(command, "--config", str(file))
        assert ended.returncode == 2
        unknown, *others = ended.stderr.splitlines()
        assert unknown == f"univocal: {file}:3: server.listn: unknown key. Did you mean `listen`?"
        assert [re.split(r": (?:found|there is) ", line)[0] for line in others] == [
            f"univocal: {file}:4: server.workers",
            f"univocal: {file}:8: sites[0].profile",
            f"univocal: {file}:10: sites[0].cache.ttl",
            f"univocal: {file}:18: sites[1].routes[1].profile",
        ]


WRONG_AT_EVERY_DEPTH = """\
profiles = ["./none"]
[server]
listen = "127.0.0.1:99999"
workers = 0
access_log = "/none/access.log"
tls_cert = "none.pem"
[origin]
tls_ca = "none.pem"
http2 = true
[purge]
token_env = "A_TOKEN"
[[sites]]
hosts = ["a", "a"]
upstream = "ftp://x"
[sites.origin]
tls_cert = "none.pem"
[[sites]]
hosts = ["b c"]
aliases = ["*.d"]
upstream = ["http://x/a", "http://x/b"]
[[sites.routes]]
path = "api"
"""


def test_no_error_hides_another(univocal, written, monkeypatch):
    """An invalid value does not hide keys that need it, nor a missing file errors in the rest."""
    file = written(WRONG_AT_EVERY_DEPTH)
    monkeypatch.setenv("A_TOKEN", "a b")
    ended = univocal("check", "--config", str(file))
    assert ended.returncode == 2
    told = [
        line.split(": found ")[0].removeprefix(f"univocal: {file}:") for line in ended.stderr.splitlines()
    ]
    assert told == [
        "1: profiles[0]",
        "3: server.listen",
        "4: server.workers",
        "5: server.access_log",
        "6: server.tls_cert",
        "8: origin.tls_ca",
        "9: origin.http2",
        "13: sites[0].hosts",
        "14: sites[0].upstream",
        "16: sites[0].origin.tls_cert",
        "18: sites[1].hosts",
        "19: sites[1].aliases",
        "20: sites[1].upstream[1]",
        "22: sites[1].routes[0].path",
        "univocal: environment: A_TOKEN",
    ]


def test_an_error_brings_no_others_about(univocal, written):
    """A store that cannot be is no memory; a directory that is not there may have the profile."""
    file = written(
        'profiles = ["./none"]\n[server]\nworkers = 2\n[cache]\nstore = "mysql://a"\n'
        '[[sites]]\nhosts = "a"\nprofile = "mine"\nupstream = { url = "x", weight = 2 }\n'
    )
    ended = univocal("check", "--config", str(file))
    assert [line.split(": found ")[0].rpartition(":")[2] for line in ended.stderr.splitlines()] == [
        " profiles[0]",
        " cache.store",
        " sites[0].hosts",
        " sites[0].upstream",
    ]


@cases(
    "text, place, mistake",
    ("[server]\nlisten =\n", "2:9", "invalid value"),
    ("\n\n[server", "3:8", "expected ']' at the end of a table declaration"),
    ("a = [\n\n", "2:1", "invalid value"),
    ("a = 1 b = 2", "1:7", "expected a newline"),
    ("[server]\n[server]\n", "2:8", "cannot declare `server` twice"),
    ("[a.b]\n[a.b]\n", "2:5", "cannot declare `a.b` twice"),
)
def test_invalid_toml_has_its_line_and_column(univocal, written, text, place, mistake):
    file = written(text)
    ended = univocal("check", "--config", str(file))
    assert ended.stderr == f"univocal: {file}:{place}: invalid TOML: {mistake}\n"


def test_every_option_and_variable_that_cannot_be_is_told(univocal, monkeypatch):
    options = ["--upstream", "nonsense", "--profile", "none", "--listen", "a"]
    for name, value in (("ADMIN", "b"), ("WORKERS", "2"), ("CACHE_TTL", "5")):
        monkeypatch.setenv(f"UNIVOCAL_{name}", value)
    ended = univocal("serve", *options)
    assert ended.returncode == 2
    assert {
        re.split(r": (?:found|there is|no such) ", line)[0].removeprefix("univocal: ")
        for line in ended.stderr.splitlines()
    } == {
        "command line: --upstream",
        "command line: --profile",
        "command line: --listen",
        "environment: UNIVOCAL_ADMIN",
        "environment: UNIVOCAL_WORKERS",
        "environment: UNIVOCAL_CACHE_TTL",
    }


def test_a_mistake_that_sites_share_is_told_once(univocal, tmp_path):
    file = tmp_path / "univocal.toml"
    sites = "".join(f'[[sites]]\nhosts = ["{host}"]\nupstream = "https://a"\n' for host in "ab")
    own = '[sites.origin]\ntls_ca = "none.pem"\n'  # the same file, but a setting of its own
    file.write_text(f'[origin]\ntls_ca = "none.pem"\n{sites}{own}')
    ended = univocal("check", "--config", str(file))
    assert ended.returncode == 2
    assert [line.split(": found ")[0] for line in ended.stderr.splitlines()] == [
        f"univocal: {file}:2: origin.tls_ca",
        f"univocal: {file}:10: sites[1].origin.tls_ca",
    ]
    file.write_text(f'[origin]\ntls_ca = "none.pem"\n{sites}')
    assert len(univocal("check", "--config", str(file)).stderr.splitlines()) == 1


def test_every_error_of_the_profiles_is_told_at_once(univocal, tmp_path):
    (tmp_path / "one.toml").write_text('# first\n[path]\nrung = "x"\nmerge_slashes = 3\n')
    (tmp_path / "two.toml").write_text('[query]\n\nring = "none"\n')
    file = tmp_path / "conf" / "univocal.toml"
    file.parent.mkdir()
    file.write_text('profiles = [".."]\n[[sites]]\nhosts = ["a"]\nupstream = "http://a"\n')
    ended = univocal("check", "--config", str(file))
    assert ended.returncode == 2
    places = [Path(line.split(": ")[1]).name for line in ended.stderr.splitlines()]
    assert places == ["one.toml:3", "one.toml:4", "two.toml:3"]


def test_check_finds_what_this_machine_refuses(univocal, tmp_path):
    site = '[[sites]]\nhosts = ["a"]\nupstream = "http://a"\n'
    file, log = tmp_path / "univocal.toml", tmp_path / "access.log"

    def checked(server):
        file.write_text(f"[server]\n{server}\n{site}")
        return univocal("check", "--config", str(file))

    nowhere = checked(f'access_log = "{tmp_path}/none/access.log"')
    assert (nowhere.returncode, "server.access_log" in nowhere.stderr) == (2, True)
    directory = checked(f'access_log = "{tmp_path}"')
    assert (directory.returncode, "Is a directory" in directory.stderr) == (2, True)
    foreign = checked('listen = "192.0.2.1:8080"\nadmin = "192.0.2.1:8081"')
    assert (foreign.returncode, foreign.stderr.count("an address of this machine")) == (2, 2)
    both = checked('access_log = "/none/access.log"\nlisten = "192.0.2.1:8080"\nworkers = "many"')
    said = sorted(line.split(": ")[2] for line in both.stderr.splitlines())
    assert said == ["server.access_log", "server.listen", "server.workers"]
    assert checked(f'access_log = "{log}"').returncode == 0
    assert not log.exists()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        assert checked(f'listen = "127.0.0.1:{busy.getsockname()[1]}"').returncode == 0


@cases(
    "variable, value, said",
    ("UNIVOCAL_LISTEN", "8080", "environment: UNIVOCAL_LISTEN: found '8080'"),
    ("UNIVOCAL_LISTEN", "192.0.2.1:1", "environment: UNIVOCAL_LISTEN: found '192.0.2.1:1'"),
    ("UNIVOCAL_PROFILE", "nope", "environment: UNIVOCAL_PROFILE: there is no profile 'nope'"),
    ("UNIVOCAL_WORKERS", "2", "UNIVOCAL_WORKERS: no such variable: set server.workers"),
    ("UNIVOCAL_CACHE_TTL", "60", "UNIVOCAL_CACHE_TTL: no such variable: set cache.ttl"),
)
def test_a_variable_is_read_or_refused(univocal, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    listen = [] if variable == "UNIVOCAL_LISTEN" else ["--listen", "127.0.0.1:0"]
    ended = univocal("serve", "--upstream", "http://127.0.0.1:9", *listen, "--admin", "127.0.0.1:0")
    assert (ended.returncode, said in ended.stderr) == (2, True)


def test_arguments_go_before_the_environment(univocal, monkeypatch):
    monkeypatch.setenv("UNIVOCAL_CONFIG", "/nowhere/univocal.toml")
    monkeypatch.setenv("UNIVOCAL_LISTEN", "8080")
    assert "/nowhere/univocal.toml" in univocal("serve").stderr
    typed = univocal("serve", "--upstream", "http://127.0.0.1:9", "--listen", "192.0.2.1:1")
    assert "command line: --listen: found '192.0.2.1:1'" in typed.stderr


def test_an_address_beside_a_file_is_named_by_its_source(univocal, tmp_path):
    file = tmp_path / "univocal.toml"
    site = '[[sites]]\nhosts = ["a"]\nupstream = "http://a"\n'
    file.write_text(f'[server]\nlisten = "192.0.2.1:2"\nadmin = "127.0.0.1:0"\n{site}')
    typed = univocal("serve", "--config", str(file), "--listen", "192.0.2.1:1").stderr
    assert "command line: --listen: found '192.0.2.1:1'" in typed
    written = univocal("serve", "--config", str(file)).stderr
    assert f"{file}: server.listen: found '192.0.2.1:2'" in written


def test_a_variable_that_means_nothing_is_named(univocal, monkeypatch):
    monkeypatch.setenv("UNIVOCAL_LISTN", "127.0.0.1:80")
    monkeypatch.setenv("UNIVOCAL_PURGE_TOKEN", "secret")
    monkeypatch.setenv("UNIVOCAL_PORT_8080_TCP_ADDR", "192.0.2.1")
    monkeypatch.setenv("UNIVOCAL_SERVICE_HOST", "192.0.2.1")
    said = univocal("serve", "--upstream", "http://127.0.0.1:9", "--listen", "192.0.2.1:1").stderr
    first = said.splitlines()[0]
    assert first.endswith(" WARNING univocal: UNIVOCAL_LISTN in the environment is unknown to univocal")
    assert "UNIVOCAL_LISTN" in said
    assert not any(word in said for word in ("TOKEN", "TCP_ADDR", "SERVICE_HOST", "secret"))


def test_short_help_and_completion(univocal):
    assert univocal("-h").stdout == univocal("--help").stdout
    assert "--listen" in univocal("serve", "-h").stdout
    assert "--install-completion" in univocal("-h").stdout


def test_check_warns_of_a_name_that_does_not_resolve(univocal, written):
    file = written(
        '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
        '[[sites]]\nhosts = ["a"]\nupstream = ["http://127.0.0.1:9", "http://nobody.invalid:9"]\n'
    )
    ended = univocal("check", "--config", str(file))
    assert ended.returncode == 0
    (warning,) = ended.stderr.splitlines()
    assert warning.startswith(
        f"univocal: warning: {file}:6: sites[0].upstream[1]: the name `nobody.invalid` does not resolve"
    )


@pytest.mark.parametrize("name", ["upstream", "profile"])
def test_a_variable_beside_a_typed_file_is_refused(univocal, monkeypatch, written, name):
    file = written('[[sites]]\nhosts = ["a"]\nupstream = "http://a"\n')
    monkeypatch.setenv(f"UNIVOCAL_{name.upper()}", "http://b")
    ended = univocal("serve", "--config", str(file))
    assert ended.returncode == 2
    assert f"UNIVOCAL_{name.upper()} is set beside --config" in " ".join(
        re.sub("[│\n]", " ", ended.stderr).split()
    )


WITHOUT_DOCSTRINGS = """
import sys
from univocal_app.commands.cli import app
for line in sys.stdin:
    try:
        app([*line.split(), "--help"])
    except SystemExit as end:
        if end.code:
            raise
"""


def test_help_is_there_without_docstrings():
    commands = ["", "serve", "check", "purge", "top", "profiles show", "profiles import"]
    paths = f"{ROOT}/app{os.pathsep}{ROOT}/middleware"
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONOPTIMIZE": "2", "NO_COLOR": "1", "COLUMNS": "80"}
    program = [sys.executable, "-c", WITHOUT_DOCSTRINGS]
    text = "\n".join(commands)
    ended = subprocess.run(program, input=text, capture_output=True, text=True, check=True, env=environment)
    _, *helps = ended.stdout.split("Usage:")
    assert len(helps) == len(commands)
    for said in helps:
        assert re.search(r"(?m)^ [A-Z][a-z]+ .*[a-z]", said.partition("╭")[0]), said


def test_the_version_is_an_attribute():
    assert univocal_library.__version__ == version("univocal")


def test_the_library_alone_explains_on_an_ascii_terminal():
    paths = f"{ROOT}/app{os.pathsep}{ROOT}/middleware"
    code = "import sys; sys.argv[1:] = ['explain', 'http://a.example/К']\n"
    code += "from univocal_app.commands.library_alone import main; main('typer')"
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "canonical  http://a.example/%D0%9A" in ended.stdout


@cases(
    "text, said",
    ('[purge]\nallow = ["127.0.0.1", "0.0.0.0/0"]\n' + SITE, ":2: purge.allow[1]: 0.0.0.0/0 is everybody"),
    ('[purge]\nallow = ["::/0"]\n' + SITE, "::/0 is everybody"),
    ('[server]\nlisten = "127.0.0.1:9"\n' + SITE, "http://127.0.0.1:9 is a listener of this program"),
    ("[server]\nproxy_protocol = true\ntrusted_proxies = []\n" + SITE, "no proxy is trusted"),
    ("[server]\nproxy_protocol = true\n" + SITE, ""),
    (
        '[server]\nlisten = [{ address = "127.0.0.1:0", proxy_protocol = true, trusted_proxies = [] }]\n'
        + SITE,
        "no proxy is trusted",
    ),
    (SITE, ""),
)
def test_check_warns_of_what_is_hardly_meant(checked, text, said):
    ended = checked(text)
    assert ended.returncode == 0
    assert (said in ended.stderr) if said else (ended.stderr == "")


@cases(
    "text, said",
    (SITE + '[sites.response]\nset = ["X-A: b"]\n', 'write `set = { "Name" = "value" }`'),
    (SITE + '[sites.cache]\nbypass_cookies = "x"\n', 'write `["x"]`'),
    ('[[sites.routes]]\npath = "/a/"\n' + SITE, ":1: before the first `[[sites]]`: `[[sites.routes]]`"),
)
def test_a_mistake_of_form_says_what_to_write(checked, text, said):
    ended = checked(text)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


def test_a_byte_order_mark_is_no_mistake(univocal, written):
    file = written("\ufeff" + SITE)
    assert univocal("check", "--config", str(file)).returncode == 0
    file.write_text("\ufeff" + SITE + "lisen = 1\n")
    assert f"{file}:4: sites[0].lisen" in univocal("check", "--config", str(file)).stderr
