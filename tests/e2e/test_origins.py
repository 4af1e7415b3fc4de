"""Origin servers in operation: backups, draining under load, clients that stay, one line for each change."""

import itertools
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from forking import LOOKS_EVERY, NAMES_AT
from name_server import name_server
from ports import free_port
from support import origin_server, response_with, until
from tests.e2e.conftest import asked, workers_of


class Application:
    """An origin server that answers with its name; `cookies` are the Cookie fields that it was sent."""

    def __init__(self, name):
        self.name, self.seconds, self.status = name, 0.0, 200
        self.cookies = []
        self.requests = 0

    def answer(self, head, _):
        path, cookie = head.split(b" ")[1], re.search(rb"(?im)^cookie: *([^\r]*)", head)
        self.requests += 1
        self.cookies.append(cookie and cookie[1].decode())
        if path != b"/healthz":
            time.sleep(self.seconds)
        fields = {
            b"/cached": b"Cache-Control: max-age=60\r\n",
            b"/public": b"Cache-Control: public, no-cache\r\n",
        }
        fields |= {b"/login": b"Set-Cookie: session=1\r\n"}
        closes = b"Connection: close\r\n" if self.name == "main" else b""
        yield response_with(self.name.encode(), fields.get(path, b"") + closes, b"%d x" % self.status)
        if closes:  # no connection outlives it
            raise ConnectionError


@contextmanager
def application(name, port=0):
    made = Application(name)
    with origin_server(made.answer, port=port) as made.url:
        yield made


@pytest.fixture
def applications():
    with ExitStack() as stack:
        yield [stack.enter_context(application(name)) for name in "abc"]


def lines(fields):
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items())


def get(address, target="/", **fields):
    answer = asked(address, target, fields.pop("Host", "en.example"), fields=lines(fields))
    told = {name.replace("-", "_"): answer.value(name) for name in ("set-cookie", "cache-status")}
    return SimpleNamespace(status=answer.status, body=answer.body.decode(), **told)


def post(address, target, document, **fields):
    answer = asked(address, target, "127.0.0.1", "POST", lines(fields), json.dumps(document))
    return answer.status, json.loads(answer.body)


def origins_of(proxy):
    return {each["url"]: each for each in json.loads(get(proxy.admin, "/-/origins", Host="127.0.0.1").body)}


@pytest.fixture
def begin(inside, start_with):
    """begin(upstream, origin settings): a proxy by the file tmp_path/univocal.toml."""

    def begin(upstream, origin="", server="", more=""):
        text = settings(upstream, origin, server, more)
        return start_with(text, **{LOOKS_EVERY: "0.1"}) if server else inside(text)

    return begin


def settings(upstream, origin="", server="", more=""):
    listed = json.dumps(upstream).replace('": ', '" = ')
    return (
        f"access_log = 'off'\n{server}\n"
        f"[[sites]]\nhosts = ['en.example']\nupstream = {listed}\n[sites.origin]\n{origin}\n{more}"
    )


def backup(application):
    return {"url": application.url, "backup": True}


@pytest.fixture(params=[1, 2])
def workers(request):
    """The settings of one process, and of two workers."""
    if request.param == 1:
        return ""
    return "workers = 2"


# Backups


def test_a_backup_answers_while_no_other_is_up(begin, applications):
    second, _, _ = applications
    port = free_port()
    with application("main", port) as main:
        proxy = begin([main.url, backup(second)], "fails = 1\neject = 0.2")
        assert {get(proxy.proxy).body for _ in range(10)} == {"main"}
        assert {url: each["state"] for url, each in origins_of(proxy).items()} == {
            main.url: "up",
            second.url: "backup",
        }
    answers = [get(proxy.proxy) for _ in range(10)]
    assert {(each.status, each.body) for each in answers} == {(200, "a")}
    assert origins_of(proxy)[f"http://127.0.0.1:{port}"]["state"] == "ejected"
    with application("main", port) as main:
        until(lambda: get(proxy.proxy).body == "main")
        until(lambda: {get(proxy.proxy).body for _ in range(5)} == {"main"})


# Draining


def test_a_drain_under_load_fails_no_request(begin, univocal_inside, applications, workers, tmp_path):
    first, second, third = applications
    first.seconds = second.seconds = 0.02
    proxy = begin([first.url, second.url], "", workers)
    admin = "{}:{}".format(*proxy.admin)
    statuses, over = Counter[int](), threading.Event()

    def load():
        for number in itertools.count():
            if over.is_set():
                return
            statuses[get(proxy.proxy, f"/{number}").status] += 1

    clients = [threading.Thread(target=load) for _ in range(6)]
    for each in clients:
        each.start()
    try:
        until(lambda: first.requests > 10 and second.requests > 10)
        drained = univocal_inside("origins", "drain", first.url, "--wait", "10", "--admin", admin)
        assert drained.returncode == 0, drained
        assert drained.stdout.splitlines()[1].split()[0] == "draining"
        before = first.requests
        count = second.requests
        until(lambda: second.requests > count + 10)
        assert first.requests == before
        assert origins_of(proxy)[first.url]["state"] == "draining"
        assert univocal_inside("origins", "enable", first.url, "--admin", admin).returncode == 0
        until(lambda: first.requests > before + 10)
    finally:
        over.set()
        for each in clients:
            each.join()
    assert set(statuses) == {200}
    # A drain outlives a reload, in which every way is made anew, and a worker.
    assert post(proxy.admin, "/-/origins/drain", {"url": first.url})[0] == 200
    requests = first.requests, second.requests
    file = tmp_path / "univocal.toml"
    text = file.read_text().replace(second.url, third.url)
    file.write_text(text.replace("[sites.origin]", "[sites.origin]\nconnect_timeout = 3"))
    assert post(proxy.admin, "/-/reload", {})[0] == 200
    assert {get(proxy.proxy).body for _ in range(20)} == {"c"}
    assert origins_of(proxy)[first.url]["state"] == "draining"
    if workers:
        killed, kept = workers_of(proxy.process.pid)
        os.kill(killed, signal.SIGKILL)
        until(lambda: len({*workers_of(proxy.process.pid)} - {killed, kept}) == 1)
        until(lambda: get(proxy.admin, "/-/ready", Host="127.0.0.1").status == 200)
        assert {get(proxy.proxy).body for _ in range(30)} == {"c"}
    assert (first.requests, second.requests) == requests


def test_the_last_one_that_is_up_is_not_drained(begin, univocal_inside, applications):
    first, second, _ = applications
    proxy = begin([first.url, second.url])
    admin = "{}:{}".format(*proxy.admin)
    assert univocal_inside("origins", "drain", first.url, "--admin", admin).returncode == 0
    refused = univocal_inside("origins", "drain", second.url, "--admin", admin)
    assert refused.returncode == 1
    assert "409" in refused.stderr
    assert get(proxy.proxy).body == "b"


def test_a_drain_shows_the_drained_server_alone(begin):
    """A port that begins with the digits of another one's is of another server."""
    urls = [f"http://127.0.0.1:{port}" for port in (9000, 900)]
    proxy = begin(urls)
    for action in ("drain", "enable"):
        _, told = post(proxy.admin, f"/-/origins/{action}", {"url": urls[1]})
        assert [each["url"] for each in told["origins"]] == urls[1:]


def test_a_reload_leaves_no_site_drained_servers_alone(begin, applications, workers, tmp_path, caplog):
    first, second, _ = (each.url for each in applications)
    proxy = begin([first, second], "", workers)
    file = tmp_path / "univocal.toml"
    text = file.read_text()
    assert post(proxy.admin, "/-/origins/drain", {"url": first})[0] == 200
    file.write_text(text.replace(f'"{first}", ', ""))
    assert post(proxy.admin, "/-/reload", {})[0] == 200
    file.write_text(text.replace(f', "{second}"', ""))
    assert post(proxy.admin, "/-/reload", {})[0] == 200
    assert {(answer.status, answer.body) for answer in (get(proxy.proxy) for _ in range(9))} == {(200, "a")}
    assert origins_of(proxy)[first]["state"] == "up"
    assert workers or f"{first} is drained no more" in caplog.text


def test_a_drained_server_of_no_site_can_be_enabled(begin, univocal_inside, applications, tmp_path):
    first, second, _ = (each.url for each in applications)
    proxy = begin([first, second])
    admin = "{}:{}".format(*proxy.admin)
    file = tmp_path / "univocal.toml"
    text = file.read_text()
    assert post(proxy.admin, "/-/origins/drain", {"url": first})[0] == 200
    file.write_text(text.replace(f'"{first}", ', ""))
    assert post(proxy.admin, "/-/reload", {})[0] == 200
    for status in (0, 1):
        enabled = univocal_inside("origins", "enable", first, "--admin", admin)
        assert enabled.returncode == status, enabled
    assert "admin listener of a univocal" not in enabled.stderr
    file.write_text(text)
    assert post(proxy.admin, "/-/reload", {})[0] == 200
    assert origins_of(proxy)[first]["state"] == "up"


NO_DRAINS = [
    (
        {"url": "http://nobody.example"},
        404,
        "no origin server has the URL http://nobody.example; configured:",
    ),
    ({"url": 1}, 400, "url"),
    ({}, 400, "url"),
    (["x"], 400, "url"),
    ({"url": "x" * 5000}, 400, "4096"),
]


def test_bad_drains_and_another_sites_are_problems(begin, applications):
    proxy = begin([applications[0].url, applications[1].url])
    for document, status, words in NO_DRAINS:
        answered, problem = post(proxy.admin, "/-/origins/drain", document)
        assert (answered, words in problem["detail"]) == (status, True), document
    fields = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    status, _ = post(proxy.admin, "/-/origins/drain", {"url": applications[0].url}, **fields)
    assert status == 403
    assert origins_of(proxy)[applications[0].url]["state"] == "up"


@pytest.mark.parametrize(
    "arguments", [["drain"], ["enable"], ["list", "http://a"], ["enable", "http://a", "--wait", "1"]], ids=str
)
def test_invalid_arguments_are_a_usage_error(univocal_inside, arguments):
    assert univocal_inside("origins", *arguments).returncode == 2


def test_metrics_and_command_show_every_state(begin, univocal_inside, applications):
    first, second, third = applications
    proxy = begin([first.url, second.url, backup(third)])
    post(proxy.admin, "/-/origins/drain", {"url": first.url})
    told = univocal_inside("origins", "--json", "--admin", "{}:{}".format(*proxy.admin))
    assert {each["url"]: each["state"] for each in json.loads(told.stdout)} == {
        first.url: "draining",
        second.url: "up",
        third.url: "backup",
    }
    metrics = get(proxy.admin, "/metrics", Host="127.0.0.1").body
    lines = re.findall(
        r'^univocal_origin_state\{origin="(.*)",site="en.example",state="(.*)"\} 1.0$', metrics, re.MULTILINE
    )
    assert dict(lines) == {first.url: "draining", second.url: "up", third.url: "backup"}
    assert len(re.findall(r"^univocal_origin_up\{.*\} 1.0$", metrics, re.MULTILINE)) == 3


# Clients that stay


def cookie_of(answer):
    assert answer.set_cookie is not None
    pair, *attributes = answer.set_cookie.split("; ")
    assert re.fullmatch("univocal-origin=[0-9a-f]{4}", pair)
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]
    return pair


@pytest.mark.parametrize("choice", ["hash", "round-robin", "least-requests"])
def test_a_client_stays_at_its_origin_server(begin, applications, choice):
    proxy = begin([each.url for each in applications], f'choice = "{choice}"\nsticky = "cookie"')
    for number in range(8):
        answer = get(proxy.proxy, f"/{number}")
        cookie = cookie_of(answer)
        answers = [get(proxy.proxy, f"/{each}", Cookie=f"a=1; {cookie}; b=2") for each in range(10)]
        assert {each.body for each in answers} == {answer.body}
        assert {each.set_cookie for each in answers} == {None}
    assert {each for one in applications for each in one.cookies} == {None, "a=1; b=2"}


def test_a_response_that_may_be_stored_has_no_cookie(begin, applications):
    proxy = begin([each.url for each in applications], 'choice = "hash"\nsticky = "cookie"')
    cookie = cookie_of(get(proxy.proxy, "/"))
    first, second = get(proxy.proxy, "/cached"), get(proxy.proxy, "/cached", Cookie=cookie)
    assert (first.set_cookie, second.set_cookie) == (None, None)
    assert second.cache_status.startswith("univocal; hit")
    assert get(proxy.proxy, "/public", Authorization="Basic eDp5").set_cookie is None  # others may store it


def test_a_client_whose_origin_server_is_drained_goes_to_another(begin, applications):
    proxy = begin([each.url for each in applications], 'choice = "hash"\nsticky = "cookie"')
    answer = get(proxy.proxy)
    url = next(each.url for each in applications if each.name == answer.body)
    assert post(proxy.admin, "/-/origins/drain", {"url": url})[0] == 200
    moved = get(proxy.proxy, Cookie=cookie_of(answer))
    assert moved.body != answer.body
    assert post(proxy.admin, "/-/origins/enable", {"url": url})[0] == 200
    stays = [get(proxy.proxy, f"/{each}", Cookie=cookie_of(moved)) for each in range(10)]
    assert {each.body for each in stays} == {moved.body}


def test_an_applications_cookie_makes_a_client_stay(begin, applications):
    proxy = begin([each.url for each in applications], 'choice = "round-robin"\nsticky = "cookie:session"')
    assert get(proxy.proxy).set_cookie is None
    login = asked(proxy.proxy, "/login", "en.example")
    name, cookies = login.body.decode(), re.findall(r"(?im)^set-cookie: *(.*)\r$", login.head)
    assert [each.partition("=")[0] for each in cookies] == ["session", "univocal-origin"]
    cookie = "; ".join(each.partition(";")[0] for each in cookies)
    assert {get(proxy.proxy, f"/{each}", Cookie=cookie).body for each in range(10)} == {name}


def test_a_clients_own_cookie_is_not_believed(begin, applications):
    proxy = begin([each.url for each in applications], 'choice = "hash"\nsticky = "cookie"')
    for value in ("", "zzzz", "0000", "x" * 5000, "../.."):
        answer = get(proxy.proxy, Cookie=f"univocal-origin={value}")
        assert answer.status == 200
        assert cookie_of(answer)
    assert {each for one in applications for each in one.cookies} == {None}


def test_a_route_has_a_cookie_of_its_own(begin, applications):
    first, second, third = applications
    route = f"[[sites.routes]]\npath = '/api/'\nupstream = ['{second.url}', '{third.url}']\n"
    proxy = begin([first.url, second.url], 'choice = "hash"\nsticky = "cookie"', more=route)
    name = (get(proxy.proxy, "/api/").set_cookie or "").partition("=")[0]
    assert re.fullmatch("univocal-origin-[0-9a-f]{8}", name)


# Workers


ELSEWHERE = (  # in no other place, and in a route and another site
    "",
    "[[sites.routes]]\npath = '/api/'\nupstream = '{url}'\norigin.retries = 0\n"
    "[[sites]]\nhosts = ['de.example']\nupstream = '{url}'\norigin = {{ fails = 1 }}\n",
)


@pytest.mark.parametrize(
    ("workers", "elsewhere"),
    [(1, *ELSEWHERE[:1]), (1, *ELSEWHERE[1:]), (2, *ELSEWHERE[1:])],
    indirect=["workers"],
)
def test_a_server_that_is_back_is_up_everywhere(begin, workers, elsewhere):
    port = free_port()
    with application("main", port) as main:
        url = main.url
        proxy = begin(url, "fails = 1", workers, elsewhere.format(url=url))
        assert get(proxy.proxy, "/a").status == 200
    for target, host in (("/b", "en.example"), ("/api/b", "en.example"), ("/b", "de.example")):
        until(lambda target=target, host=host: get(proxy.proxy, target, Host=host).status in (502, 421))
    until(lambda: {*states_of(proxy, url)} == {"failing"})
    time.sleep(0.3)  # both workers know of it
    with application("main", port) as main:
        assert get(proxy.proxy, "/c").status == 200  # of one worker, which the kernel chooses
        until(lambda: {*states_of(proxy, url)} == {"up"})
        time.sleep(0.3)
        assert {*states_of(proxy, url)} == {"up"}
        listed = json.loads(get(proxy.admin, "/-/origins", Host="127.0.0.1").body)
        assert {each["state"] for each in listed} == {"up"}
    assert proxy.end() == 0
    assert proxy.err.count("is failing") == 1


def states_of(proxy, url):
    """The states that are 1 in the metrics."""
    metrics = get(proxy.admin, "/metrics", Host="127.0.0.1").body
    return re.findall(
        rf'univocal_origin_state{{origin="{re.escape(url)}",site="[^"]*",state="(\w+)"}} 1.0', metrics
    )


# The log


def test_a_change_is_logged_once_for_all_workers(begin, applications, workers):
    health = 'health = { path = "/healthz", interval = 0.1, timeout = 20, rises = 1, falls = 1 }'
    proxy = begin([applications[0].url, applications[1].url], health, workers)
    until(lambda: applications[0].requests and applications[1].requests)
    applications[0].status = 503
    until(lambda: origins_of(proxy)[applications[0].url]["state"] == "down")
    time.sleep(0.3)  # every process has found it out
    applications[0].status = 200
    until(lambda: origins_of(proxy)[applications[0].url]["state"] == "up")
    time.sleep(0.3)
    assert proxy.end() == 0
    lines = [line.partition(": ")[2] for line in proxy.err.splitlines() if "health checks" in line]
    said = "as its health checks say"
    assert [re.sub("^WARNING: ", "", line) for line in lines] == [
        f"{applications[0].url} is down, {said}: status 503",
        f"{applications[0].url} is up, {said}: status 200",
    ]


PATIENT = '[[sites.routes]]\npath = "/slow/"\n[sites.routes.origin]\nread_timeout = "20s"\n'


def test_a_slow_path_of_the_same_servers_has_more_time(begin, applications):
    slow = applications[0]
    slow.seconds = 0.6
    timeouts = "read_timeout = 0.2\nretries = 0\nfails = 2"
    proxy = begin(slow.url, timeouts, more=PATIENT)
    for is_reloaded in (False, True):
        if is_reloaded:
            text = settings(slow.url, timeouts.replace("0.2", "0.3"), more=PATIENT)
            assert proxy.reload(text)[0] == 200
        assert get(proxy.proxy, "/slow/a").status == 200
        assert get(proxy.proxy, "/slower").status == 504
    assert list(origins_of(proxy)) == [slow.url]


def test_a_route_shares_the_state_of_the_sites_servers(begin, applications):
    applications[0].seconds = 0.6
    proxy = begin(applications[0].url, "read_timeout = 0.2\nretries = 0\nfails = 2", more=PATIENT)
    for _ in range(2):
        assert get(proxy.proxy, "/a").status == 504
    assert origins_of(proxy)[applications[0].url]["state"] == "failing"
    assert get(proxy.proxy, "/slow/a").status == 200
    assert origins_of(proxy)[applications[0].url]["state"] == "up"


def test_a_route_has_retries_of_its_own(begin, applications):
    for each in applications:
        each.seconds = 0.6
    servers = [each.url for each in applications]
    more = PATIENT.replace('read_timeout = "20s"', "retries = 2")
    proxy = begin(servers, "read_timeout = 0.2\nretries = 0", more=more)
    for target, requests in (("/a", 1), ("/slow/a", 4)):
        assert get(proxy.proxy, target).status == 504
        until(lambda requests=requests: sum(each.requests for each in applications) >= requests)
    assert sum(each.requests for each in applications) == 4


@pytest.fixture
def names():
    with name_server() as names:
        yield names


def test_a_service_is_served_checked_shown_and_read_again(names, start, univocal, applications, tmp_path):
    service, variables = "srv+http://_http._tcp.app.example", {NAMES_AT: str(names.port)}
    names.records["here.example", "A"] = ["127.0.0.1"]

    def lead_to(*applications):
        names.records["_http._tcp.app.example", "SRV"] = [
            f"{number} 5 {urlsplit(each.url).port} here.example." for number, each in enumerate(applications)
        ]

    def write(origin):
        file.write_text(
            "[server]\nworkers = 2\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\naccess_log = 'off'\n"
            f"[origin]\n{origin}\n[[sites]]\nhosts = ['en.example']\nupstream = '{service}'\n"
        )

    def check():
        return univocal("check", "--config", str(file), **variables)

    file = tmp_path / "univocal.toml"
    write("resolve = 0.2")
    assert "_http._tcp.app.example` does not resolve here" in check().stderr
    lead_to(applications[0], applications[1])
    assert check().stderr == ""
    write("transport = 'httpx'")
    refused = check()
    assert refused.returncode == 2
    assert f"sites[0].upstream: found '{service}'" in refused.stderr
    write("resolve = 0.2")
    proxy = start("serve", "--config", str(file), **variables)
    assert {get(proxy.proxy, f"/{number}").body for number in range(20)} == {"a"}
    assert service in get(proxy.admin, "/-/config", Host="127.0.0.1").body
    shown = json.loads(get(proxy.admin, "/-/origins", Host="127.0.0.1").body)
    assert {each["url"] for each in shown} == {service}
    assert {each["state"] for each in shown} == {"up", "backup"}
    lead_to(applications[2])
    until(lambda: {get(proxy.proxy, f"/{number}").body for number in range(20)} == {"c"})
    write("resolve = 0.3")
    assert post(proxy.admin, "/-/reload", {})[0] == 200
    names.fails = True
    assert {get(proxy.proxy, f"/again/{number}").body for number in range(20)} == {"c"}
