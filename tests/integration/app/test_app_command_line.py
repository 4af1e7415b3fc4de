"""The command line: texts and exit statuses, one message for what cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from univocal.engine.runtime import builtin_profiles

Fixture = Callable[..., Any]

URL = "http://en.example/wiki/A%2fB%28c%29"


def test_explain_json_is_the_contract(univocal: Fixture) -> None:
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


def test_explain_of_what_is_rejected(univocal: Fixture) -> None:
    ended = univocal("explain", "http://en.example/a/..;/%00", "--profile", "servlet", "--json")
    told = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert (told["canonical"], told["key"]) == (None, None)
    assert (told["rejected"], told["reasons"]) == (
        "control-character",
        ["control-character", "dot-segment-parameter"],
    )


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
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
        (["--version"], 0, ["univocal 0.1.0"]),
        (["--help"], 0, ["serve", "demo", "explain", "profiles", "check", "purge"]),
    ],
)
def test_what_is_said(univocal: Fixture, arguments: list[str], status: int, words: list[str]) -> None:
    ended = univocal(*arguments)
    assert ended.returncode == status
    assert ended.stderr == ""
    for word in words:
        assert word in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain"], "URL"),
        (["explain", "/wiki/A"], "no URL"),
        (["explain", "ftp://a/"], "no URL"),
        (["explain", URL, "--profile", "nope"], "--profile: found 'nope'; allowed: asgi, mediawiki"),
        (["explain", URL, "--profile", "asgi", "--config", "x"], "either --profile or --config"),
        (["profiles", "nope"], "no profile 'nope'"),
        (["serve"], "either --upstream URL or --config FILE"),
        (["serve", "--upstream", "http://a", "--config", "x"], "either --upstream URL or --config FILE"),
        (["serve", "--upstream", "a:80"], "--upstream: found 'a:80'"),
        (["serve", "--upstream", "http://a", "--profile", "nope"], "--profile: found 'nope'"),
        (
            ["serve", "--upstream", "http://a", "--listen", "8080"],
            "--listen: found '8080'; allowed: HOST:PORT",
        ),
        (["serve", "--config", "/nowhere/univocal.toml"], "/nowhere/univocal.toml: found 'No such file"),
        (["check"], "--config"),
        (["demo", "--listen", "nowhere"], "--listen: found 'nowhere'"),
        (["purge"], "nothing to purge"),
        (["purge", "wiki/A"], "no URL"),
        (["purge", "--tag", ""], "no tag"),
        (["purge", "http://a\r\nX: y/"], "names no host"),
        (["purge", "http://a/", "--via", "nowhere"], "no address of a proxy"),
        (["nonsense"], "No such command"),
    ],
)
def test_usage_errors_have_status_2_and_one_message(
    univocal: Fixture, arguments: list[str], said: str
) -> None:
    ended = univocal(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    # Usage errors come in a frame, folded to its width.
    assert said in " ".join(ended.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts = ['a'", "Unclosed array"),
        (
            "[[sites]]\nhosts = ['a']\nupstream = 'http://a'\nprofile = 'nope'",
            "sites[0].profile: found 'nope'",
        ),
        ("[[sites]]\nhosts = ['a b']\nupstream = 'http://a'", "sites[0].hosts: found 'a b'"),
        ("profiles = ['./none']\n[[sites]]\nhosts = ['a']\nupstream = 'http://a'", "found 'no directory'"),
        ("profiles = ['.']\n[[sites]]\nhosts = ['a']\nupstream = 'http://a'", "path.ring: found 'none'"),
    ],
)
def test_check_refuses_with_the_place(univocal: Fixture, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "univocal.toml"
    file.write_text(text)
    if "profiles = ['.']" in text:
        file.unlink()
        (tmp_path / "mine.toml").write_text('[path]\nring = "none"\n')
        file = tmp_path / "conf" / "univocal.toml"
        file.parent.mkdir()
        file.write_text(text.replace("'.'", "'..'"))
    for command in (["check"], ["explain", "http://a/"], ["serve"], ["profiles"]):
        ended = univocal(*command, "--config", str(file))
        assert ended.returncode == 2
        assert ended.stderr.startswith("univocal: ")
        assert said in ended.stderr
        assert ended.stderr.count("\n") == 1
        if "profiles = ['.']" not in text:
            break


def test_a_configuration_with_profiles_of_its_own(univocal: Fixture, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "mine.toml").write_text(
        'summary = "Mine"\nextends = "mediawiki"\n[path]\nmerge_slashes = true\n'
    )
    file = tmp_path / "univocal.toml"
    file.write_text(
        'profiles = ["profiles"]\n[[sites]]\nhosts = ["*.example"]\nprofile = "mine"\nupstream = "http://127.0.0.1:1"\n'
    )
    config = ("--config", str(file))
    assert univocal("check", *config).stdout == f"{file}: 1 site, nothing to object to\n"
    assert "mine       Mine" in univocal("profiles", *config).stdout
    assert "merge_slashes = true" in univocal("profiles", "mine", *config).stdout
    accepted = univocal("explain", "http://en.example/A//B", *config)
    assert (accepted.returncode, "http://en.example/A/B" in accepted.stdout) == (0, True)
    stranger = univocal("explain", "http://other.test/", *config, "--json")
    assert (stranger.returncode, json.loads(stranger.stdout)["rejected"]) == (1, "unknown-host")


def test_explain_ends_with_the_caches_settings(univocal: Fixture, tmp_path: Path) -> None:
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


def test_explain_shows_what_sites_do(univocal: Fixture, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    own = 'extends = "rfc3986"\n[charset]\npath = "windows-1251"\ntrust_encoding_fields = true\n'
    (tmp_path / "p" / "own.toml").write_text(own)
    file = tmp_path / "univocal.toml"
    file.write_text(
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
