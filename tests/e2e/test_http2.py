"""HTTP/2 towards clients: httpx and curl ask `univocal serve`, whose origin server speaks HTTP/1.1."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from authority import Authority

Fixture = Callable[..., Any]

TIMEOUT = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("server", "DNS:en.example,IP:127.0.0.1")
    made.issue("a", "DNS:a.example,DNS:en.example")
    return made


@pytest.fixture
def proxy(start: Fixture, origin: Any, authority: Authority, tmp_path: Path) -> Any:
    file = tmp_path / "univocal.toml"
    pair = "tls_cert = '{0}/{1}.pem'\ntls_key = '{0}/{1}.key'\n"
    file.write_text(
        "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nhttp2 = true\n"
        + pair.format(authority.folder, "server")
        + f"[[sites]]\nhosts = ['*']\nupstream = '{origin.url}'\n"
        + f"[[sites]]\nhosts = ['a.example']\nupstream = '{origin.url}'\n"
        + pair.format(authority.folder, "a")
    )
    return start("serve", "--config", str(file))


@pytest.fixture
def curl(proxy: Any, authority: Authority) -> Fixture:
    """Ask by curl, which must have HTTP/2; the status, the version and the content that it got."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl (Debian package curl)")

    def curl(target: str, *options: str, name: str = "en.example") -> tuple[str, str, str]:
        done = subprocess.run(
            ["curl", "-sS", "--path-as-is", "--cacert", str(authority.folder / "ca.pem"), *options,
             "--resolve", f"{name}:{proxy.proxy[1]}:127.0.0.1", "-w", "\n%{http_code} %{http_version}",
             f"https://{name}:{proxy.proxy[1]}{target}"],
            capture_output=True, text=True, timeout=3 * TIMEOUT, check=True,
        )  # fmt: skip
        content, _, told = done.stdout.rpartition("\n")
        status, version = told.split(" ")
        return status, version, content

    return curl


def test_curl_asks_by_either_version(curl: Fixture, origin: Any) -> None:
    assert curl("/a%2fb/../x?", "--http2") == ("200", "2", "answer 1")
    assert curl("/a%2fb/../x?", "--http2") == ("200", "2", "answer 1")
    assert curl("/x?", "--http1.1") == ("200", "1.1", "answer 1")  # the same key, the same stored response
    assert curl("/x", "--http2") == ("200", "2", "answer 2")
    assert origin.lines == [b"GET /x? HTTP/1.1", b"GET /x HTTP/1.1"]
    assert b"x-forwarded-proto: https\r\n" in origin.seen[0]
    assert b"via: 2 univocal\r\n" in origin.seen[0]


def test_targets_are_exact(curl: Fixture, origin: Any) -> None:
    for target, line in (
        ("/a%2fb%28c%29?q=%7e", b"GET /a%2Fb%28c%29?q=%7e HTTP/1.1"),
        ("//b//c;d", b"GET //b//c;d HTTP/1.1"),
        ("/%2e%2e/x", b"GET /x HTTP/1.1"),
        ("/%252e", b"GET /%252e HTTP/1.1"),
    ):
        assert curl(target, "--http2")[0] == "200"
        assert origin.lines[-1] == line


def test_what_is_refused_and_what_has_content(curl: Fixture, origin: Any, tmp_path: Path) -> None:
    (tmp_path / "form").write_bytes(b"x" * 200_000)
    status, version, content = curl("/", "--http2", "-H", "Host: en.example:99999")
    assert (status, version, '"bad-host"' in content) == ("400", "2", True)
    status, version, content = curl("/", "--http2", "-H", "Host: other.example", name="a.example")
    assert (status, version, '"unknown-host"' in content) == ("421", "2", True)
    assert curl("/p", "--http2", "--data-binary", f"@{tmp_path}/form")[:2] == ("200", "2")
    assert b"content-length: 200000\r\n" in origin.seen[-1].lower()
    assert curl("/p", "--http2", "--head")[:2] == ("200", "2")
    assert curl("/p", "--http2", "-X", "PURGE")[:2] == ("200", "2")


def test_a_slow_reader_gets_everything(curl: Fixture, origin: Any, tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    origin.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)
    file = tmp_path / "content"
    # More than the five seconds after which an idle connection is closed.
    status, version, _ = curl("/slow", "--http2", "--limit-rate", "250k", "-o", str(file))
    assert (status, version) == ("200", "2")
    assert file.read_bytes() == content


async def test_httpx_asks_for_many_at_once_over_one_connection(
    proxy: Any, authority: Authority, origin: Any
) -> None:
    content = b"0123456789" * 30_000
    head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: %d\r\n\r\n" % len(content)
    origin.answer = lambda _: head + content
    url = f"https://127.0.0.1:{proxy.proxy[1]}"
    async with httpx.AsyncClient(http2=True, verify=authority.client(), timeout=TIMEOUT) as client:
        await client.get(f"{url}/0")
        answers = await asyncio.gather(*(client.get(f"{url}/{number % 7}") for number in range(60)))
        posted = await client.post(f"{url}/form", content=b"y" * 100_000, headers={"cookie": "a=b; c=d"})
    for answer in (*answers, posted):
        assert (answer.status_code, answer.http_version, answer.content) == (200, "HTTP/2", content)
        assert len(answer.headers.get_list("date")) == 1
    assert any("hit" in answer.headers["cache-status"] for answer in answers)


def test_who_has_a_connection_open_keeps_nobody_from_ending(proxy: Any, authority: Authority) -> None:
    url = f"https://127.0.0.1:{proxy.proxy[1]}/"
    with httpx.Client(http2=True, verify=authority.client(), timeout=TIMEOUT) as client:
        assert client.get(url).http_version == "HTTP/2"
        assert proxy.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("lines", "without", "said"),
    [
        ("", False, "true beside tls_cert"),
        ("tls_cert = 'server.pem'\ntls_key = 'server.key'\n", True, "zttp"),
    ],
    ids=["without TLS", "without zttp"],
)
def test_http_2_needs(
    root: Path, authority: Authority, tmp_path: Path, lines: str, without: bool, said: str
) -> None:
    file = authority.folder / "univocal.toml"
    file.write_text(
        f"[server]\nhttp2 = true\n{lines}[[sites]]\nhosts = ['*']\nupstream = 'http://127.0.0.1:9'\n"
    )
    hidden = (
        "import importlib.util as u; f = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'zttp' else f(name, *rest)\n"
    )
    program = (hidden if without else "") + "from univocal_app.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "check", "--config", str(file)],
        env={**os.environ, "PYTHONPATH": f"{root}/app:{root}/middleware", "NO_COLOR": "1"},
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "server.http2" in done.stderr
    assert said in " ".join(done.stderr.split())
