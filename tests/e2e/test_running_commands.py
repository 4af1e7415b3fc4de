"""Commands that ask a running proxy: which of two they reach, with which token and over which TLS."""

import http.client
import json

import pytest

from authority import Authority
from support import origin_server, response_with
from tests.ports import free_port

URL = "http://en.example/page"


def cache_status(proxy, target="/page"):
    connection = http.client.HTTPConnection(*proxy.proxy, timeout=20)
    try:
        connection.request("GET", target, headers={"Host": "en.example"})
        response = connection.getresponse()
        response.read()
        return response.getheader("cache-status", "").split("; ")[1]
    finally:
        connection.close()


def is_stored(proxy, target="/page"):
    return cache_status(proxy, target) == "hit"


def admin_of(proxy):
    return "{}:{}".format(*proxy.admin)


@pytest.fixture(scope="module")
def both(start_once):
    listening = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    page = response_with(b"page", b"Cache-Control: max-age=60\r\n")
    with origin_server(lambda *_: page) as url:
        yield [start_once("serve", "--upstream", url, *listening) for _ in range(2)]


@pytest.fixture
def proxies(both, ask):
    """Two proxies of one machine, each of which has stored two pages and nothing else."""
    for proxy in both:
        assert ask(proxy.admin, "/-/purge", "localhost", "POST", body='{"all": true}').status == 200
        for target in ("/page", "/other"):
            assert cache_status(proxy, target) == "fwd=uri-miss"
    return both


@pytest.mark.parametrize("scheme", ["", "http://"])
@pytest.mark.parametrize(
    "what", [[URL], ["--prefix", "http://en.example/p"], ["--pattern", "/page$"], ["--all"]], ids=str
)
def test_purge_goes_to_the_listener_that_admin_names(univocal, proxies, what, scheme):
    first, second = proxies
    ended = univocal("purge", "--admin", scheme + admin_of(second), *what)
    assert ended.returncode == 0, ended
    assert ended.stderr.endswith("1 confirmed, 0 failed\n")
    assert is_stored(first)
    assert not is_stored(second)
    assert is_stored(second, "/other") is ("--all" not in what)


def test_all_says_how_many_responses_it_removed(univocal, proxies):
    ended = univocal("purge", "--all", "--admin", admin_of(proxies[0]))
    assert ended.stdout == "everything\tpurged 2\t*\n"


def test_purge_goes_to_the_listener_of_the_environment(univocal, proxies):
    first, second = proxies
    assert univocal("purge", URL, UNIVOCAL_ADMIN=admin_of(second)).returncode == 0
    assert is_stored(first)
    assert not is_stored(second)


def test_via_goes_before_the_environment(univocal, proxies):
    first, second = proxies
    via = "http://{}:{}".format(*first.proxy)
    assert univocal("purge", "--via", via, URL, UNIVOCAL_ADMIN=admin_of(second)).returncode == 0
    assert not is_stored(first)
    assert is_stored(second)


def test_urls_of_a_file_go_to_the_named_admin(univocal, proxies, tmp_path):
    file = tmp_path / "urls"
    file.write_text(f"{URL}\nhttp://en.example/%6Fther\n")
    ended = univocal("purge", "--file", str(file), "--admin", admin_of(proxies[1]))
    assert ended.stdout.splitlines() == [
        f"{URL}\tpurged 1\t{URL}",
        "http://en.example/%6Fther\tpurged 1\thttp://en.example/other",
    ]


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_every_command_reads_the_listener_from_the_environment(univocal, start, origin, tmp_path, scheme):
    file = tmp_path / "univocal.toml"
    file.write_text(f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n')
    address = f"{scheme}127.0.0.1:{free_port()}"
    start("serve", "--config", str(file), "--listen", "127.0.0.1:0", UNIVOCAL_ADMIN=address)
    told = univocal("top", "--json", UNIVOCAL_ADMIN=address)
    assert json.loads(told.stdout)["origins"][0]["site"] == "en.example"
    assert univocal("reload", UNIVOCAL_ADMIN=address).stdout == "nothing has changed\n"
    assert univocal("purge", "--all", UNIVOCAL_ADMIN=address).returncode == 0


def test_every_command_sends_the_token_of_the_environment(univocal, start, origin, tmp_path):
    file = tmp_path / "univocal.toml"
    file.write_text(f'[purge]\nallow = []\n[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n')
    secret = {"UNIVOCAL_PURGE_TOKEN": "sesame"}
    addresses = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    proxy = start("serve", "--config", str(file), *addresses, **secret)
    for command in (["top", "--json"], ["reload"], ["purge", "--all"]):
        assert univocal(*command, "--admin", admin_of(proxy)).returncode == 1
        assert univocal(*command, "--admin", admin_of(proxy), **secret).returncode == 0


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("server", "IP:127.0.0.1")
    return made


@pytest.fixture
def secure(start_with, origin, authority):
    """The address of a proxy with TLS."""
    folder = authority.folder
    running = start_with(
        f"tls_cert = '{folder / 'server.pem'}'\ntls_key = '{folder / 'server.key'}'\n"
        f"[[sites]]\nhosts = ['*']\nupstream = '{origin.url}'\n"
    )
    return "https://{}:{}".format(*running.proxy)


@pytest.mark.parametrize("trusts", ["--ca", "--insecure"])
def test_purge_trusts_a_private_authority(univocal, secure, authority, trusts):
    option = [trusts, str(authority.folder / "ca.pem")] if trusts == "--ca" else [trusts]
    ended = univocal("purge", "--via", secure, *option, URL)
    assert ended.returncode == 0, ended
    assert "purged 0" in ended.stdout


def test_a_certificate_of_nobody_known_is_not_trusted(univocal, secure):
    ended = univocal("purge", "--via", secure, URL)
    assert ended.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in ended.stdout
    ended = univocal("top", "--admin", secure)
    assert ended.returncode == 1
    assert "--ca FILE" in ended.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--admin", "nonsense"], "'nonsense' is not the address of an admin listener"),
        (["--admin", "http://127.0.0.1:8081/path"], "is not the address of an admin listener"),
        (["--ca", "/nowhere/ca.pem"], "is no file of certificates"),
        (["--ca", __file__, "--insecure"], "either --ca or --insecure"),
        (["--ca", __file__], "is no file of certificates"),
    ],
)
def test_invalid_options_are_a_usage_error(univocal, options, words):
    for command in (["purge", "--all"], ["reload"], ["top"]):
        ended = univocal(*command, *options, COLUMNS="400")
        assert ended.returncode == 2
        assert words in ended.stderr


def test_a_unix_socket_is_an_address(univocal, tmp_path):
    """A stand-in answers: univocal's own listener is an address of the network."""
    with origin_server(lambda *_: response_with(b'{"changed": []}'), tmp_path / "admin.sock") as url:
        ended = univocal("reload", "--admin", url)
    assert (ended.returncode, ended.stdout) == (0, "nothing has changed\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "wiki.localhost"])
def test_a_loopback_url_is_its_own_address(univocal, start, origin, host):
    proxy = start("serve", "--upstream", origin.url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    url = f"http://{host}:{proxy.proxy[1]}/page"
    connection = http.client.HTTPConnection(*proxy.proxy, timeout=20)
    connection.request("GET", "/page", headers={"Host": f"{host}:{proxy.proxy[1]}"})
    connection.getresponse().read()
    connection.close()
    for option in ([url], ["--prefix", url[:-1]]):
        ended = univocal("purge", *option)
        assert ended.returncode == 0, ended
        assert ended.stderr.startswith("1 stored response; " if option == [url] else "0 stored responses; ")


def test_a_failure_at_a_loopback_url_names_the_options(univocal):
    port = free_port()
    ended = univocal("purge", f"http://127.0.0.1:{port}/page")
    assert ended.returncode == 1
    assert f"http://127.0.0.1:{port} did not answer: " in ended.stdout
    assert "--via ADDRESS" in ended.stdout
    assert "--admin ADDRESS" in ended.stdout


def test_a_server_that_takes_no_purge_is_named(univocal, origin):
    ended = univocal("purge", f"{origin.url}/page")
    assert ended.returncode == 1
    assert f"({origin.url} was asked). --via ADDRESS names another proxy" in ended.stdout


def test_options_go_before_a_loopback_url(univocal, proxies):
    first, second = proxies
    url = f"http://127.0.0.1:{first.proxy[1]}/page"
    for ended in (
        univocal("purge", url, "--admin", admin_of(second)),
        univocal("purge", url, "--via", "http://{}:{}".format(*second.proxy)),
        univocal("purge", url, UNIVOCAL_ADMIN=admin_of(second)),
    ):
        assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
            0,
            "0 stored responses; 1 confirmed, 0 failed",
        )
    assert is_stored(first)
