"""Ordinary requests: of their answers alone something may be assumed that the origin did not say."""

import pytest

from examples import cases
from univocal.cache.personal import ORDINARY, oddities
from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Request

BROWSER = [
    *((b"host", b"en.example"), (b"user-agent", b"Mozilla/5.0"), (b"accept", b"*/*"), (b"dnt", b"1")),
    *((b"accept-language", b"de"), (b"accept-encoding", b"gzip, br"), (b"referer", b"http://en.example/")),
    *((b"sec-fetch-mode", b"navigate"), (b"sec-ch-ua", b'"x"'), (b"upgrade-insecure-requests", b"1")),
    *((b"if-none-match", b'"1"'), (b"range", b"bytes=0-1"), (b"cache-control", b"max-age=0")),
]


@cases(
    "fields, odd",
    ([], set()),
    (BROWSER, set()),
    ([(b"cookie", b"a=b; c=d"), (b"cookie", b"a=e")], {b"cookie", b"cookie:a", b"cookie:c"}),
    ([(b"cookie", b"a=" + b"b" * 4096)], {b"cookie"}),
    ([(b"authorization", b"Basic x")], {b"authorization"}),
    ([*BROWSER, (b"x-api-key", b"1")], {b"x-api-key"}),
    ([(b"depth", b"0"), (b"translate", b"f")], {b"depth", b"translate"}),
    ([(b"x-requested-with", b"XMLHttpRequest")], {b"x-requested-with"}),
    ([*BROWSER, (b"x-request-id", b"1"), (b"traceparent", b"00-1-2-01")], set()),
    ([(b"range", b"x"), (b"cookies", b"a=b")], {b"cookies"}),
    # Client hints, which browsers send where Accept-CH asks for them.
    ([(b"sec-ch-ua-full-version", b'"9"'), (b"sec-ch-prefers-reduced-motion", b"reduce")], set()),
    ([(b"full-version", b"9"), (b"reduced-motion", b"reduce")], {b"full-version", b"reduced-motion"}),
)
def test_cookies_and_unusual_fields_are_oddities(fields, odd):
    request = Request(b"GET", b"/a", fields)
    assert oddities(request, ORDINARY) == odd
    assert (request.names <= ORDINARY) is not bool(odd)


def test_operators_add_ordinary_fields_but_never_credentials():
    request = Request(b"GET", b"/a", [(b"x-shop", b"1")])
    told = Rules(ordinary_fields=(b"x-shop",))
    assert request.names <= told.ordinary
    assert not request.names <= Rules().ordinary
    assert not Request(b"GET", b"/a", [(b"cookie", b"a=b")]).names <= told.ordinary
    with pytest.raises(ConfigurationError, match="cookie"):
        Rules(ordinary_fields=(b"x-shop", b"cookie"))
