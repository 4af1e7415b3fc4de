"""The origin servers of every site, how they are and how much they were asked, of all processes."""

import time
from functools import partial

from univocal.forward.upstream import Upstream
from univocal.origin.servers import MemberState, OriginServer
from univocal_app.commands import operate
from univocal_app.observe.origin_states import Listed, OriginStates
from univocal_app.observe.survey import Survey
from univocal_app.run.worker_client import read_row, row_line


async def test_the_origin_servers_of_every_process_are_one_list():
    surveys, told = [Survey() for _ in range(3)], []

    async def rows(about, shape):
        return [read_row(row_line(row), shape) for survey in surveys[1:] for row in survey.own(about)]

    surveys[0].others = rows
    for survey in surveys:
        servers = [OriginServer(f"http://{host}.example") for host in "ab"]
        upstream = Upstream.of(servers)
        listed = [
            Listed("sites[0]", "en.example", member.server.url + "/x", member, "/a/")
            for member in upstream.balance.members
        ]
        told.append((OriginStates(partial(tuple, listed), survey), upstream.balance))
    (parent, own), *workers = told
    for number, (_, balance) in enumerate(workers, 1):
        for asker in range(number):
            balance.take(asker, b"", 0)
        for member in balance.members[:number]:
            member.failures += 1
    first, second = own.members
    own.mark(second, time.monotonic(), up=False, reason="status 500")
    first.enter(MemberState.EJECTED, time.monotonic() - 1000)
    first.reason = "timeout"
    found = await parent.document()
    now = time.time()
    since = [each.pop("since") for each in found]
    assert found == [
        {"site": "en.example", "path": "/a/", "url": "http://a.example/x",
         "state": "ejected", "reason": "timeout",
         "requests": 2, "failures": 2, "under_way": 2},
        {"site": "en.example", "path": "/a/", "url": "http://b.example/x",
         "state": "down", "reason": "status 500",
         "requests": 1, "failures": 1, "under_way": 1},
    ]  # fmt: skip
    assert [now - 1020 < since[0] < now - 990, now - 20 < since[1] <= now] == [True, True]


def test_the_command_tells_a_site_from_its_route():
    row = {"site": "en.example", "path": "/", "url": "http://a:1", "state": "up", "reason": None, "since": 0}
    row |= {"requests": 1, "failures": 0, "under_way": 0}
    _, first, second = operate._text([row, row | {"path": "/api/"}]).splitlines()
    assert first.split()[1] == "en.example"
    assert second.split()[1] == "en.example/api/"
