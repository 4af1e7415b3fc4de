"""Pairs of errors: httpx's, and those of `univocal.origin.failures` that mean the same."""

from __future__ import annotations

from typing import Final

from univocal.origin.client_library import httpx
from univocal.origin.failures import (
    ConnectError,
    ConnectTimeoutError,
    InvalidRequestError,
    InvalidResponseError,
    OriginTimeoutError,
    PoolTimeoutError,
    ReadError,
    ReadTimeoutError,
    TransportError,
    UnsupportedSchemeError,
    WriteError,
    WriteTimeoutError,
)

# Both trees, the special before the general.
_SAME: Final[tuple[tuple[type[TransportError], type[httpx.TransportError]], ...]] = (
    (ConnectTimeoutError, httpx.ConnectTimeout),
    (PoolTimeoutError, httpx.PoolTimeout),
    (ReadTimeoutError, httpx.ReadTimeout),
    (WriteTimeoutError, httpx.WriteTimeout),
    (OriginTimeoutError, httpx.TimeoutException),
    (ConnectError, httpx.ConnectError),
    (ReadError, httpx.ReadError),
    (WriteError, httpx.WriteError),
    (UnsupportedSchemeError, httpx.UnsupportedProtocol),
    (InvalidRequestError, httpx.LocalProtocolError),
    (InvalidResponseError, httpx.RemoteProtocolError),
    (TransportError, httpx.TransportError),
)


def as_httpx(error: Exception) -> Exception:
    """The error of httpx for a TransportError, which is its cause; any other error as it is."""
    for ours, theirs in _SAME:
        if isinstance(error, ours):
            other = theirs(str(error))
            other.__cause__ = error
            return other
    return error


def as_ours(error: Exception) -> Exception:
    """The TransportError for an error of an httpx transport, which is its cause; any other error as it is."""
    for ours, theirs in _SAME:
        if isinstance(error, theirs):
            other = ours(str(error))
            other.__cause__ = error
            return other
    return error
