"""The soak finds what it is there to find."""

import httpx

from benchmarks.soak import grown
from benchmarks.soak_origin import Pages, body_of
from benchmarks.soak_visitors import Visitors
from examples import cases


@cases(
    "status, body, wrong",
    (200, body_of("/page/1", 2), False),
    (200, body_of("/page/1", 3), False),
    (200, body_of("/page/1", 1), True),  # older than what a purge has confirmed
    (200, body_of("/page/1", 4), True),
    (200, body_of("/page/2", 2), True),
    (200, body_of("/page/1", 2)[:-1], True),
    (404, body_of("/page/1", 2), True),
    (502, b"", False),
)
def test_a_body_has_its_own_url_and_no_purged_version(status, body, wrong):
    pages = Pages()
    pages.versions["/page/1"] = 3
    visitors = Visitors(pages, 0, 0, lambda: None)
    visitors._check("/page/1", 2, httpx.Response(status, content=body))
    assert bool(visitors.tally.wrong) is wrong


def test_growth_after_the_first_tenth_is_found():
    assert grown([20.0] * 5 + [60.0] * 45) == []
    assert grown([60.0 + second for second in range(50)]) == ["67.0 MiB grew to 107.0"]
