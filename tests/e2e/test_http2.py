"""HTTP/2 towards clients: httpx and curl ask `univocal serve`, whose origin server speaks HTTP/1.1."""

import asyncio
import os
import shutil
import signal
import subprocess

import httpx
import pytest

from authority import Authority
from support import origin_server, response_with, until
from univocal.http.errors import ConfigurationError
from univocal_app.run import certificate_files
from univocal_app.run.reading import read

TIMEOUT = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("server", "DNS:en.example,IP:127.0.0.1")
    made.issue("a", "DNS:a.example,DNS:en.example")
    return made


@pytest.fixture
def proxy(start_with, origin, authority):
    pair = "tls_cert = '{0}/{1}.pem'\ntls_key = '{0}/{1}.key'\n"
    return start_with(
        "http2 = true\naccess_log = 'off'\n"
        + pair.format(authority.folder, "server")
        + f"[[sites]]\nhosts = ['*']\nupstream = '{origin.url}'\n"
        + f"[[sites]]\nhosts = ['a.example']\nupstream = '{origin.url}'\n"
        + pair.format(authority.folder, "a")
    )


@pytest.fixture(scope="module")
def kept():
    """The URL of an origin server that keeps what it is sent, and that, by path."""
    stored = dict[str, bytes]()

    def answer(head, content):
        stored[head.split(b" ")[1].decode()] = content
        return response_with(b"kept")

    with origin_server(answer) as url:
        yield url, stored


@pytest.fixture(scope="module")
def storing(start_once, kept, authority):
    file = authority.folder / "storing.toml"
    file.write_text(
        "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nhttp2 = true\naccess_log = 'off'\n"
        "tls_cert = 'server.pem'\ntls_key = 'server.key'\n"
        f"[[sites]]\nhosts = ['*']\nupstream = '{kept[0]}'\n"
    )
    return start_once("serve", "--config", str(file))


@pytest.fixture
def curl(proxy, authority):
    """Ask by curl, which must have HTTP/2; the status, the version and the content that it got."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl (Debian package curl)")

    def curl(target, *options, name="en.example"):
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


def test_curl_asks_by_either_version(curl, origin):
    assert curl("/a%2fb/../x?", "--http2") == ("200", "2", "answer 1")
    assert curl("/a%2fb/../x?", "--http2") == ("200", "2", "answer 1")
    assert curl("/x?", "--http1.1") == ("200", "1.1", "answer 1")  # the same key, the same stored response
    assert curl("/x", "--http2") == ("200", "2", "answer 2")
    assert origin.lines == [b"GET /x? HTTP/1.1", b"GET /x HTTP/1.1"]
    assert b"x-forwarded-proto: https\r\n" in origin.seen[0]
    assert b"via: 2 univocal\r\n" in origin.seen[0]


async def test_httpx_asks_for_many_at_once_over_one_connection(proxy, authority, origin):
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


async def test_httpx_posts_over_one_connection_without_a_failure(storing, authority):
    """It sends END_STREAM in a frame of its own, when the origin server may have answered by then."""

    async def content():
        yield b"content"
        await asyncio.sleep(0.02)

    url = f"https://127.0.0.1:{storing.proxy[1]}/"
    async with httpx.AsyncClient(http2=True, verify=authority.client(), timeout=TIMEOUT) as client:
        length = {"Content-Length": "7"}
        for _ in range(5):
            posts = (client.post(url, content=content(), headers=length) for _ in range(20))
            assert {answer.status_code for answer in await asyncio.gather(*posts)} == {200}


def test_an_open_connection_does_not_prevent_the_shutdown(proxy, authority):
    url = f"https://127.0.0.1:{proxy.proxy[1]}/"
    with httpx.Client(http2=True, verify=authority.client(), timeout=TIMEOUT) as client:
        assert client.get(url).http_version == "HTTP/2"
        assert proxy.end(signal.SIGTERM) == 0


def test_curl_uploads_what_it_reads_from_a_pipe(storing, kept, authority):
    if shutil.which("curl") is None:
        pytest.skip("needs curl (Debian package curl)")
    content = os.urandom(300_000)
    subprocess.run(
        ["curl", "-sS", "--http2", "--cacert", str(authority.folder / "ca.pem"), "-T", "-",
         f"https://127.0.0.1:{storing.proxy[1]}/piped"],
        input=content, timeout=TIMEOUT, check=True, capture_output=True,
    )  # fmt: skip
    assert kept[1]["/piped"] == content


def load(program, *options):
    """The line of h2load about its requests."""
    if shutil.which("h2load") is None:
        pytest.skip("needs h2load (Debian package nghttp2-client)")
    url = f"https://127.0.0.1:{program.proxy[1]}/load"
    done = subprocess.run(
        ["h2load", *options, url], capture_output=True, text=True, timeout=10 * TIMEOUT, check=True
    )
    assert "Application protocol: h2" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("requests:")]
    return line


def test_one_connection_serves_any_number_of_requests(proxy):
    line = load(proxy, "-n", "6000", "-c", "1", "-m", "10")
    assert "6000 succeeded, 0 failed, 0 errored, 0 timeout" in line


def test_uploads_by_many_streams_all_arrive(storing, kept, tmp_path):
    (tmp_path / "content").write_bytes(b"x" * 30_000)
    line = load(storing, "-n", "400", "-c", "4", "-m", "10", "-d", str(tmp_path / "content"))
    assert "400 succeeded, 0 failed" in line
    assert kept[1]["/load"] == b"x" * 30_000


def test_a_browser_asks_by_http_2(proxy, origin, tmp_path):
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium (Debian package chromium)")
    page = b"<!doctype html><title>t</title><img src=/1><img src=/2><script src=/3></script><p>arrived"
    kinds = {b"/": b"text/html", b"/1": b"image/png", b"/2": b"image/png", b"/3": b"text/javascript"}

    def answer(head):
        origin.seen.append(head)
        path = head.split(b" ")[1]
        content = page if path == b"/" else b""
        fields = b"Content-Type: %b\r\nContent-Length: %d" % (kinds.get(path, b"text/plain"), len(content))
        return b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n%b\r\n\r\n%b" % (fields, content)

    origin.answer = answer
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-proxy-server", "--ignore-certificate-errors", "--virtual-time-budget=5000", "--dump-dom",
         f"--user-data-dir={tmp_path}/profile", f"https://127.0.0.1:{proxy.proxy[1]}/"],
        capture_output=True, text=True, timeout=6 * TIMEOUT, check=False,
    )  # fmt: skip
    assert "arrived" in done.stdout
    paths = {head.split(b" ")[1] for head in origin.seen}
    assert paths >= {b"/", b"/1", b"/2", b"/3"}
    assert all(b"via: 2 univocal\r\n" in head for head in origin.seen)


def test_a_reload_has_clients_connect_anew(proxy, authority, tmp_path):
    """The request that is under way then is answered by the old connection."""
    url = f"https://127.0.0.1:{proxy.proxy[1]}/"
    file = tmp_path / "univocal.toml"
    file.write_text(file.read_text().replace("http2 = true\n", "http2 = true\nmax_fields = 50\n"))

    def ask(client):
        answer = client.get(url)
        assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
        return answer.extensions["network_stream"].get_extra_info("client_addr")

    with httpx.Client(http2=True, verify=authority.client(), timeout=TIMEOUT) as client:
        first = ask(client)
        proxy.process.send_signal(signal.SIGHUP)
        until(lambda: ask(client) != first)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "false, or set tls_cert"),
        ("tls_cert = 'server.pem'\ntls_key = 'server.key'\n", "pip install 'univocal[http2]'"),
    ],
    ids=["TLS", "hpack"],
)
def test_http_2_needs(authority, monkeypatch, lines, said):
    file = authority.folder / "univocal.toml"
    file.write_text(
        f"[server]\nhttp2 = true\n{lines}[[sites]]\nhosts = ['*']\nupstream = 'http://127.0.0.1:9'\n"
    )
    monkeypatch.setattr(certificate_files, "find_spec", {"hpack": None}.__getitem__)
    with pytest.raises(ConfigurationError) as refused:
        read(file)
    assert refused.value.key == "server.http2"
    assert said in str(refused.value)
