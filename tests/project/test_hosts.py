"""No file names a host that is not reserved: whoever registered it would get our users."""

import re
import subprocess
from pathlib import Path

from examples import cases

ROOT = Path(__file__).parents[2]

# RFC 2606 and RFC 6761.
RESERVED = re.compile(
    r"(?:.*\.)?(?:(?:example|test|invalid|localhost)|example\.(?:com|net|org))\.?", re.IGNORECASE
)
# Software and standards that are cited, and what XML is named by.
CITED = {
    *("jakarta.ee", "keepachangelog.com", "semver.org", "url.spec.whatwg.org", "wordpress.org"),
    *("www.sitemaps.org", "www.w3.org"),
}
REPOSITORIES = {"Kludex/uvicorn", "google/re2", "http-tests/cache-tests", "openresty/lua-nginx-module"}
BEGINNINGS = {"en.exa", "a.exa"}  # of hosts, where a prefix is purged
_URL = re.compile(
    r"(?:https?|wss?|rediss?)://(?:[^\s/@\"'<>]*@)?((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b)((?:/[\w.-]+){0,2})"
)
_HOST = re.compile(r"(?<![\w./-])(?:[a-z0-9-]+\.)+(?:com|dev|internal|io|local|net|org)(?![\w-])")


def made_up(text):
    """The hosts of a text's URLs that are not reserved, and repositories that are not cited."""
    for host, path in _URL.findall(text):
        if host == "github.com":
            if path.removesuffix(".git").strip("/") not in REPOSITORIES:
                yield host + path
        elif not RESERVED.fullmatch(host) and host not in CITED | BEGINNINGS:
            yield host


@cases(
    "text, expected",
    ("https://github.com/ours/ours/tree/main", ["github.com/ours/ours"]),
    ("see https://docs.ours.dev/page", ["docs.ours.dev"]),
    ("redis://user:word@cache.internal:6379", ["cache.internal"]),
    ("http://en.example/a http://127.0.0.1:8080 http://wiki.localhost:8080 http://a.example.com", []),
    ("https://github.com/google/re2/wiki/Syntax", []),
)
def test_a_host_is_reserved_cited_or_made_up(text, expected):
    assert list(made_up(text)) == expected


def test_no_file_names_a_host_that_is_made_up():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    found = {}
    for name in names.decode().split("\0")[:-1]:
        file = ROOT / name
        if file.is_file() and file != Path(__file__):
            hosts = [*made_up(text := file.read_text("utf-8", "replace"))]
            if file.suffix in {".conf", ".md", ".service", ".yml"}:
                hosts += [
                    host for host in _HOST.findall(text) if not RESERVED.fullmatch(host) and host not in CITED
                ]
            if hosts := [host for host in hosts if host != "github.com"]:
                found[name] = hosts
    assert found == {}
