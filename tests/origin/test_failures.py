"""Each error of a transport has its reason."""

import errno
import socket

import pytest

from examples import cases
from univocal.http.errors import RefusedError
from univocal.origin.failures import (
    ConnectError,
    ConnectTimeoutError,
    InvalidRequestError,
    InvalidResponseError,
    PoolTimeoutError,
    ReadError,
    ReadTimeoutError,
    UnsupportedSchemeError,
    WriteError,
    WriteTimeoutError,
    origin_failure,
)


@cases(
    "kind, reason, provoked",
    (PoolTimeoutError, "overloaded", False),
    (ConnectTimeoutError, "origin-timeout", False),
    (ReadTimeoutError, "origin-timeout", True),
    (WriteTimeoutError, "origin-timeout", True),
    (InvalidRequestError, "bad-target", True),
    (InvalidResponseError, "origin-bad-response", True),
    (ConnectError, "origin-unreachable", False),
    (ReadError, "origin-unreachable", True),
    (WriteError, "origin-unreachable", True),
    (UnsupportedSchemeError, "origin-unreachable", True),
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


@pytest.mark.parametrize(
    "cause",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "x"),
        socket.gaierror(socket.EAI_MEMORY, "x"),
        RuntimeError("can't start new thread"),
    ],
    ids=repr,
)
def test_too_little_memory_is_no_failure_of_the_origin_server(cause):
    error = ConnectError("x")
    error.__cause__ = cause
    refused = origin_failure(error, "http://a.example")
    assert (refused.reason, refused.failure) == ("overloaded", None)
