"""Each error of a transport has its reason."""

import httpx
import pytest

from univocal.http.errors import RefusedError
from univocal.origin.failures import origin_failure


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (httpx.PoolTimeout, "overloaded"),
        (httpx.ConnectTimeout, "origin-timeout"),
        (httpx.ReadTimeout, "origin-timeout"),
        (httpx.WriteTimeout, "origin-timeout"),
        (httpx.LocalProtocolError, "bad-target"),
        (httpx.RemoteProtocolError, "origin-bad-response"),
        (httpx.ConnectError, "origin-unreachable"),
        (httpx.ReadError, "origin-unreachable"),
        (httpx.UnsupportedProtocol, "origin-unreachable"),
    ],
)
def test_reason(kind, reason):
    error = kind("")
    refused = origin_failure(error)
    assert isinstance(refused, RefusedError)
    assert (refused.reason, refused.__cause__) == (reason, error)


@pytest.mark.parametrize("error", [LookupError(), RefusedError("overloaded")])
def test_any_other_error_stays(error):
    assert origin_failure(error) is error
