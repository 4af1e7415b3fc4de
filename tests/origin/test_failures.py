"""Each error of a transport has its reason."""

import httpx
import pytest

from univocal.http.errors import RefusedError
from univocal.origin.failures import origin_failure


@pytest.mark.parametrize(
    ("kind", "reason", "provoked"),
    [
        (httpx.PoolTimeout, "overloaded", False),
        (httpx.ConnectTimeout, "origin-timeout", False),
        (httpx.ReadTimeout, "origin-timeout", True),
        (httpx.WriteTimeout, "origin-timeout", True),
        (httpx.LocalProtocolError, "bad-target", True),
        (httpx.RemoteProtocolError, "origin-bad-response", True),
        (httpx.ConnectError, "origin-unreachable", False),
        (httpx.ReadError, "origin-unreachable", True),
        (httpx.UnsupportedProtocol, "origin-unreachable", True),
    ],
)
def test_an_error_of_the_transport_has_its_reason(kind, reason, provoked):
    error = kind("")
    refused = origin_failure(error)
    assert isinstance(refused, RefusedError)
    assert (refused.reason, refused.__cause__, refused.provoked) == (reason, error, provoked)


def test_a_response_that_is_refused_is_the_origin_servers_failure():
    refused = RefusedError("origin-bad-response")
    assert origin_failure(refused, "http://a.example", "192.0.2.1:80") is refused
    assert refused.failure is not None
    assert refused.failure[:3] == ("http://a.example", "192.0.2.1:80", "malformed")
    known = refused.failure
    assert origin_failure(refused, "http://b.example") is refused
    assert (refused.failure, refused.provoked) == (known, True)


@pytest.mark.parametrize("error", [LookupError(), RefusedError("overloaded")])
def test_any_other_error_stays(error):
    assert origin_failure(error) is error
