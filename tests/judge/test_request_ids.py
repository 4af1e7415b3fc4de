"""Names of requests: a trusted proxy's are kept, a stranger's never."""

import re

import pytest

from examples import cases
from univocal.http.messages import Received
from univocal.judge.admission import plan_of
from univocal.judge.runtime import RequestIds
from univocal.judge.trust import networks

IDS = RequestIds(b"X-Request-Id", networks(["10.0.0.0/8"]))
NEW = re.compile(rb"[0-9a-f]{32}")
KEPT = b"f-47.a_c~1:0+/=@9"


def received(client="10.0.0.1", *, introduced=False):
    return Received(b"GET", b"/", client=client, introduced=introduced)


@cases(
    "client, introduced, values, is_kept",
    ("10.0.0.1", False, [KEPT], True),
    ("10.0.0.1", False, [], False),
    ("10.0.0.1", False, [KEPT, KEPT], False),
    ("10.0.0.1", False, [KEPT, KEPT, KEPT], False),
    ("10.0.0.1", False, [b""], False),
    ("10.0.0.1", False, [b"a b"], False),
    ("10.0.0.1", False, [b'a"b'], False),
    ("10.0.0.1", False, [b"a<b"], False),
    ("10.0.0.1", False, [b"a\xe9"], False),
    ("10.0.0.1", False, [b"a" * 128], True),
    ("10.0.0.1", False, [b"a" * 129], False),
    ("10.0.0.1", True, [KEPT], False),  # a PROXY header named the peer
    ("198.51.100.7", False, [KEPT], False),
    (None, False, [KEPT], False),
)
def test_only_a_plain_name_of_a_trusted_proxy_is_kept(client, introduced, values, is_kept):
    request = received(client, introduced=introduced)
    fields = [(b"host", b"a"), *[(b"x-request-id", value) for value in values], (b"accept", b"*/*")]
    named = IDS.identify(request, fields)
    assert named == [(b"host", b"a"), (b"accept", b"*/*"), (b"x-request-id", request.request_id)]
    assert request.request_id in values if is_kept else NEW.fullmatch(request.request_id)


@pytest.mark.parametrize("name", [b"x_request_id", b"x-request_id"])
def test_no_other_spelling_that_cgi_reads_alike_goes_on(name):
    request = received()
    assert IDS.identify(request, [(name, KEPT)]) == [(b"x-request-id", request.request_id)]
    assert NEW.fullmatch(request.request_id)


def test_another_spelling_replaces_no_name_of_a_trusted_proxy():
    fields = [(b"x-request-id", KEPT), (b"x_request_id", b"another")]
    assert IDS.identify(received(), fields) == fields[:1]
    names, values = zip(*fields, strict=True)
    assert IDS.planned(received(), names, values) == KEPT


def test_a_request_has_one_name_for_ever():
    request = received()
    first = IDS.identify(request, [])
    assert IDS.identify(request, [(b"x-request-id", KEPT)]) == first


def test_no_two_requests_share_a_name():
    requests = [received() for _ in range(1000)]
    for request in requests:
        IDS.identify(request, [])
    assert len({request.request_id for request in requests}) == 1000


@pytest.mark.parametrize(("client", "is_kept"), [("10.0.0.1", True), ("198.51.100.7", False)])
def test_a_hit_is_named_like_any_other_request(client, is_kept):
    plan = plan_of((b"Host", b"X-Request-Id"))
    assert plan is not None
    request = received(client)
    assert (IDS.planned(request, plan.names, (b"a", KEPT + b" ")) == KEPT) is is_kept
    bare = plan_of((b"Host",))
    assert bare is not None
    assert NEW.fullmatch(IDS.planned(received(client), bare.names, (b"a",)))
