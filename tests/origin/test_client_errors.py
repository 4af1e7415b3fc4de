"""Errors of httpx, and those of the origin room that mean the same."""

import httpx
import pytest

from univocal.http.errors import RefusedError
from univocal.origin import failures
from univocal.origin.client_library import as_httpx, as_ours


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (failures.ConnectError, httpx.ConnectError),
        (failures.ConnectTimeoutError, httpx.ConnectTimeout),
        (failures.PoolTimeoutError, httpx.PoolTimeout),
        (failures.ReadError, httpx.ReadError),
        (failures.ReadTimeoutError, httpx.ReadTimeout),
        (failures.WriteError, httpx.WriteError),
        (failures.WriteTimeoutError, httpx.WriteTimeout),
        (failures.InvalidRequestError, httpx.LocalProtocolError),
        (failures.InvalidResponseError, httpx.RemoteProtocolError),
        (failures.UnsupportedSchemeError, httpx.UnsupportedProtocol),
    ],
)
def test_an_error_becomes_the_one_that_means_the_same(ours, theirs):
    for turned, error, kind in ((as_httpx, ours("why"), theirs), (as_ours, theirs("why"), ours)):
        other = turned(error)
        assert (type(other), str(other), other.__cause__) == (kind, "why", error)


@pytest.mark.parametrize("error", [LookupError(), httpx.DecodingError("no"), RefusedError("overloaded")])
def test_any_other_error_stays(error):
    assert as_ours(error) is as_httpx(error) is error
