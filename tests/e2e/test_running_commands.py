"""Commands that ask a running proxy: which of two they reach, with which token and over which TLS."""

import contextlib
import http.client
import json

import pytest
from typer.testing import CliRunner

from authority import Authority
from support import origin_server, response_with
from tests.ports import free_port
from univocal_app.commands.cli import app

URL = "http://en.example/page"
LISTENING = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")


@pytest.fixture
def univocal():
    """Run a command in this process, with these variables of the environment."""

    def run(*arguments, **variables):
        ended = CliRunner().invoke(app, arguments, env=variables)
        return ended.exit_code, ended.stdout, ended.stderr

    return run


def cache_status(proxy, target="/page", host="en.example"):
    with contextlib.closing(http.client.HTTPConnection(*proxy.proxy, timeout=20)) as connection:
        connection.request("GET", target, headers={"Host": host})
        response = connection.getresponse()
        response.read()
        return response.getheader("cache-status", "").split("; ")[1]


def is_stored(proxy, target="/page"):
    return cache_status(proxy, target) == "hit"


def admin_of(proxy):
    return "{}:{}".format(*proxy.admin)


@pytest.fixture(scope="module")
def both(start_once):
    page = response_with(b"page", b"Cache-Control: max-age=60\r\n")
    with origin_server(lambda *_: page) as url:
        yield [start_once("serve", "--upstream", url, *LISTENING) for _ in range(2)]


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
    status, _, said = univocal("purge", "--admin", scheme + admin_of(second), *what)
    assert (status, said.splitlines()[-1].partition("; ")[2]) == (0, "1 confirmed, 0 failed")
    assert is_stored(first)
    assert not is_stored(second)
    assert is_stored(second, "/other") is ("--all" not in what)


def test_all_says_how_many_responses_it_removed(univocal, proxies):
    assert univocal("purge", "--all", "--admin", admin_of(proxies[0]))[1] == "everything\tpurged 2\t*\n"


@pytest.mark.parametrize(("has_via", "reached"), [(False, 1), (True, 0)])
def test_purge_goes_to_via_before_the_environment(univocal, proxies, has_via, reached):
    via = ["--via", "http://{}:{}".format(*proxies[0].proxy)] if has_via else []
    assert univocal("purge", *via, URL, UNIVOCAL_ADMIN=admin_of(proxies[1]))[0] == 0
    assert [is_stored(proxy) for proxy in proxies] == [reached == 1, reached == 0]


def test_urls_of_a_file_go_to_the_named_admin(univocal, proxies, tmp_path):
    file = tmp_path / "urls"
    file.write_text(f"{URL}\nhttp://en.example/%6Fther\n")
    _, told, _ = univocal("purge", "--file", str(file), "--admin", admin_of(proxies[1]))
    assert told.splitlines() == [
        f"{URL}\tpurged 1\t{URL}",
        "http://en.example/%6Fther\tpurged 1\thttp://en.example/other",
    ]


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_every_command_reads_the_listener_from_the_environment(univocal, start, origin, tmp_path, scheme):
    file = tmp_path / "univocal.toml"
    file.write_text(f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n')
    address = f"{scheme}127.0.0.1:{free_port()}"
    start("serve", "--config", str(file), "--listen", "127.0.0.1:0", UNIVOCAL_ADMIN=address)
    _, told, _ = univocal("top", "--json", UNIVOCAL_ADMIN=address)
    assert json.loads(told)["origins"][0]["site"] == "en.example"
    assert univocal("reload", UNIVOCAL_ADMIN=address)[1] == "nothing has changed\n"
    assert univocal("purge", "--all", UNIVOCAL_ADMIN=address)[0] == 0


def test_every_command_sends_the_token_of_the_environment(univocal, start, origin, tmp_path):
    file = tmp_path / "univocal.toml"
    file.write_text(f'[purge]\nallow = []\n[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n')
    secret = {"UNIVOCAL_PURGE_TOKEN": "sesame"}
    proxy = start("serve", "--config", str(file), *LISTENING, **secret)
    for command in (["top", "--json"], ["reload"], ["purge", "--all"]):
        assert univocal(*command, "--admin", admin_of(proxy))[0] == 1
        assert univocal(*command, "--admin", admin_of(proxy), **secret)[0] == 0


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("server", "IP:127.0.0.1")
    return made


def test_a_private_authority_is_trusted_by_option(univocal, start_with, origin, authority):
    ca, pair = (authority.folder / name for name in ("ca.pem", "server"))
    running = start_with(
        f"tls_cert = '{pair}.pem'\ntls_key = '{pair}.key'\n"
        f"[[sites]]\nhosts = ['*']\nupstream = '{origin.url}'\n"
    )
    secure = "https://{}:{}".format(*running.proxy)
    for option in (["--ca", str(ca)], ["--insecure"]):
        status, told, _ = univocal("purge", "--via", secure, *option, URL)
        assert (status, told.split("\t")[1]) == (0, "purged 0")
    status, told, _ = univocal("purge", "--via", secure, URL)
    assert (status, "CERTIFICATE_VERIFY_FAILED" in told) == (1, True)
    status, _, said = univocal("top", "--admin", secure)
    assert (status, "--ca FILE" in said) == (1, True)


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
        status, _, said = univocal(*command, *options, COLUMNS="400")
        assert (status, words in said) == (2, True)


def test_a_unix_socket_is_an_address(univocal, tmp_path):
    """A stand-in answers: univocal's own listener is an address of the network."""
    with origin_server(lambda *_: response_with(b'{"changed": []}'), tmp_path / "admin.sock") as url:
        assert univocal("reload", "--admin", url)[:2] == (0, "nothing has changed\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "wiki.localhost"])
def test_a_loopback_url_is_its_own_address(univocal, proxies, host):
    port = proxies[0].proxy[1]
    url = f"http://{host}:{port}/page"
    assert cache_status(proxies[0], host=f"{host}:{port}") == "fwd=uri-miss"
    for option, count in (([url], "1 stored response; "), (["--prefix", url[:-1]], "0 stored responses; ")):
        status, _, said = univocal("purge", *option)
        assert (status, said[: len(count)]) == (0, count)


def test_a_failure_at_a_loopback_url_names_the_options(univocal):
    port = free_port()
    status, told, _ = univocal("purge", f"http://127.0.0.1:{port}/page")
    assert status == 1
    for words in (f"http://127.0.0.1:{port} did not answer: ", "--via ADDRESS", "--admin ADDRESS"):
        assert words in told


def test_a_server_that_takes_no_purge_is_named(univocal, origin):
    status, told, _ = univocal("purge", f"{origin.url}/page")
    assert (status, f"({origin.url} was asked). --via ADDRESS names another proxy" in told) == (1, True)


def test_options_go_before_a_loopback_url(univocal, proxies):
    first, second = proxies
    url = f"http://127.0.0.1:{first.proxy[1]}/page"
    for options, variables in (
        (("--admin", admin_of(second)), {}),
        (("--via", "http://{}:{}".format(*second.proxy)), {}),
        ((), {"UNIVOCAL_ADMIN": admin_of(second)}),
    ):
        status, _, said = univocal("purge", url, *options, **variables)
        assert (status, said.splitlines()[-1]) == (0, "0 stored responses; 1 confirmed, 0 failed")
    assert is_stored(first)
