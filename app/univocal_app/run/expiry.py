"""The expiry of the certificates of the listener."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from univocal_app.config.tables import Configuration

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _GENERALIZED_TIME, _BOOLEAN, _DNS_NAME = 0xA0, 0x18, 0x01, 0x82  # tags
_ALTERNATIVE_NAMES: Final = bytes.fromhex("0603551d11")  # the identifier of subjectAltName


def expiries(configuration: Configuration, source: str) -> list[dict[str, Any]]:
    """Each certificate of the listener: `site` ("" for that of all others), and when it `expires`.

    Seconds since the epoch; None for a file that cannot be read.
    """
    tables = [("", configuration.server.tls_cert)]
    tables += [(site.hosts[0], site.tls_cert) for site in configuration.sites]
    files = [(site, Path(source).parent / name) for site, name in tables if name]
    return [{"site": site, "expires": expiry_of_file(file)} for site, file in files]


def expiry_of_file(file: Path) -> int | None:
    """The end of the validity of the certificate in a file, as `expiry_of` has it; None if there is none."""
    try:
        return _expiry_then(file, file.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=256)
def _expiry_then(file: Path, _: int) -> int:
    return expiry_of(file.read_text("latin-1"))


def expiry_of(pem: str) -> int:
    """The notAfter of the first certificate (RFC 5280 §4.1.2.5), in seconds. Raises ValueError."""
    match = _PEM.search(pem)
    if match is None:
        raise ValueError("no certificate is in it")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(match[0]))
    except IndexError:
        raise ValueError("the certificate is cut short") from None


def names_of(file: Path) -> frozenset[str]:
    """The DNS names of the first certificate in a file (RFC 5280 §4.2.1.6); empty if it has none."""
    match = _PEM.search(file.read_text("latin-1"))
    der = b"" if match is None else ssl.PEM_cert_to_DER_cert(match[0])
    at = der.find(_ALTERNATIVE_NAMES)
    if at < 0:
        return frozenset()
    at += len(_ALTERNATIVE_NAMES)
    if der[at] == _BOOLEAN:
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)  # the OCTET STRING, and in it the list
    _, at, end = _element(der, at)
    names = list[str]()
    while at < end:
        tag, start, at = _element(der, at)
        if tag == _DNS_NAME:
            names.append(der[start:at].decode("latin-1").lower())
    return frozenset(names)


def _not_after(der: bytes) -> int:
    """The end of the validity, which is in Certificate, TBSCertificate behind four members or five."""
    _, certificate, _ = _element(der, 0)
    _, signed, _ = _element(der, certificate)
    tag, _, end = _element(der, signed)
    for _ in range(3 if tag == _VERSION else 2):  # serial number, signature, issuer: one is behind us
        _, _, end = _element(der, end)
    _, validity, _ = _element(der, end)
    _, _, end = _element(der, validity)  # notBefore
    tag, start, end = _element(der, end)
    text = der[start:end].decode("ascii")
    if tag != _GENERALIZED_TIME:  # a UTCTime has two digits of the year
        text = ("19" if text >= "50" else "20") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of an element, and where its content begins and ends (X.690 §8.1)."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start])
    return der[at], start, start + length
