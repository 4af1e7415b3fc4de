"""The listener's certificates come from files, which are read again when they change."""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from univocal.http.errors import ConfigurationError, Objections
from univocal.server.tls import Certificates
from univocal.uri.sites import Sites
from univocal_app.config.tables import Configuration, ServerTable, SiteTable

# Certificates are read here: `ssl` tells neither the names nor the end of one that it does not trust, and it
# trusts none that has expired.
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _GENERALIZED_TIME, _BOOLEAN, _DNS_NAME = 0xA0, 0x18, 0x01, 0x82  # tags
_ALTERNATIVE_NAMES: Final = bytes.fromhex("0603551d11")  # the identifier of subjectAltName


def expiries(configuration: Configuration) -> list[dict[str, Any]]:
    """Each certificate of the listener: `site` ("" for that of all others), and when it `expires`.

    Seconds since the epoch; None for a file that cannot be read.
    """
    tables = [("", configuration.server.tls_cert)]
    tables += [(site.hosts[0], site.tls_cert) for site in configuration.sites]
    files = [(site, configuration.path(name)) for site, name in tables if name]
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


logger: Final = logging.getLogger("univocal")

# Seconds between two looks at the files. They are read once they have stood still for as long: whoever writes
# a certificate and its key may be between the two.
PERIOD: Final = 3.0

Stamp: TypeAlias = tuple[int, int, int] | None


class Certificate(NamedTuple):
    """A certificate that is shown to clients: its context, its end, and who issues clients' ones, if any."""

    context: ssl.SSLContext
    expires: float
    authority: bytes


@dataclass(frozen=True)
class Contexts:
    """The certificates of the listener by the names of sites, and the files that they were made from.

    The site "" is every other name. `files` are as they were before they were read.
    """

    by_site: dict[str, Certificate]
    files: dict[Path, Stamp]
    contents: dict[str, str]  # the digest of each, by its setting's key

    def of(self, site: str) -> Certificate:
        """The certificate that is for a site."""
        return self.by_site.get(site) or self.by_site[""]

    def shown(self, sites: Sites) -> Certificates:
        """The certificates as connections choose among them."""
        of_sites = {name: each.context for name, each in self.by_site.items() if name}
        authorities = {each.context: each.authority for each in self.by_site.values() if each.authority}
        return Certificates(self.of("").context, of_sites, sites, authorities)


def contexts_of(configuration: Configuration) -> Contexts | None:
    """Read the certificates of the listener; None: it is without TLS.

    Raises ConfigurationError with every invalid file.
    """
    contexts, objections, _ = _read(configuration)
    objections.conclude()
    return contexts


class _Read(NamedTuple):
    """The certificates, what is wrong with invalid ones, and their sites with the tables to blame."""

    contexts: Contexts | None
    objections: Objections
    unusable: dict[str, str]


def _read(configuration: Configuration, held: Contexts | None = None) -> _Read:
    """Read the certificates of the listener; those of `held` replace invalid files."""
    server, objections, reader = configuration.server, Objections(), _Reader(configuration)
    made, places = dict[str, Certificate](), dict[str, str]()
    with objections:
        if server.tls_cert or server.tls_key:
            places[""] = "server"
            made[""] = reader.certificate("server", server, "server", server.tls_client_ca)
        elif server.tls_client_ca:
            raise reader.without_tls("server", server.tls_client_ca)
    for number, site in enumerate(configuration.sites):
        with objections:
            name, place, ca = site.hosts[0], f"sites[{number}]", client_ca_of(configuration, site)
            asking = "server" if site.tls_client_ca is None else place
            if site.tls_cert or site.tls_key:
                places[name] = place
                made[name] = reader.certificate(place, site, asking, ca)
                if not server.tls_cert:
                    allowed = "none without server.tls_cert, the certificate for all other names"
                    raise configuration.error(f"{place}.tls_cert", site.tls_cert, allowed)
            elif ca != server.tls_client_ca:
                if not server.tls_cert:
                    raise reader.without_tls(place, ca)
                places[name] = "server"
                made[name] = reader.certificate("server", server, place, ca)
    with objections:
        _check_http2(configuration)
    unusable = {name: place for name, place in places.items() if name not in made}
    if held is not None:
        made |= {name: held.by_site[name] for name in unusable}
    contexts = Contexts(made, reader.files, reader.contents) if "" in made else None
    return _Read(contexts, objections, unusable)


@dataclass(frozen=True)
class _Reader:
    """Reads certificates, and notes the files that they come from."""

    configuration: Configuration
    files: dict[Path, Stamp] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)

    def certificate(self, place: str, table: ServerTable | SiteTable, asking: str, ca: str) -> Certificate:
        """The certificate that a table has; `asking` is the place that names the `ca`.

        Raises ConfigurationError.
        """
        error, certificate, key = self.configuration.error, table.tls_cert, table.tls_key
        if not certificate:
            raise error(f"{place}.tls_key", key, "none without tls_cert")
        named = {f"{place}.tls_cert": certificate, f"{place}.tls_key": key}
        paths = {each: self._file(each, name) for each, name in named.items() if name}
        for name, path in paths.items():
            if why := _unreadable(path, f"{place}.tls_key" == name):
                raise error(name, named[name], why)
        context = _context(http2=self.configuration.server.http2)
        pair = [str(path) for path in paths.values()]
        if why := load_pair(context, pair[0], pair[1] if key else None):
            allowed = "a file with a certificate in PEM; tls_key has its key"
            raise error(f"{place}.tls_cert", certificate, f"{allowed} ({why})")
        if ca:
            setting = f"{asking}.tls_client_ca"
            if why := _ask_for_certificates(context, str(self._file(setting, ca))):
                allowed = f"a file of certificates in PEM, of those who issue clients' ones ({why})"
                raise error(setting, ca, allowed)
        return Certificate(context, expiry_of_file(paths[f"{place}.tls_cert"]) or inf, ca.encode())

    def _file(self, setting: str, name: str) -> Path:
        file = self.configuration.path(name)
        self.files.setdefault(file, stamp_of(file))  # first: what changes from now on is read again
        self.contents[setting] = digest_of(file)
        return file

    def without_tls(self, place: str, ca: str) -> ConfigurationError:
        """The error of a table that asks for certificates, where no listener has TLS."""
        allowed = "none without server.tls_cert: clients show certificates by TLS"
        return self.configuration.error(f"{place}.tls_client_ca", ca, allowed)


def client_ca_of(configuration: Configuration, site: SiteTable) -> str:
    """The file of those who issue the certificates of a site's clients; empty: none does."""
    return configuration.server.tls_client_ca if site.tls_client_ca is None else site.tls_client_ca


def _ask_for_certificates(context: ssl.SSLContext, file: str) -> str:
    """Ask clients for a certificate; returns why the file of its issuers cannot be, "" if it can.

    A client without one is refused once it is known what it asks for.
    """
    try:
        context.load_verify_locations(file)
    except OSError as error:
        return reason_of(error)
    context.verify_mode = ssl.CERT_OPTIONAL
    return ""


def _unreadable(file: Path, has_key: bool) -> str:
    """The files allowed in the place of one that cannot be read, or is no key; "" if it may be."""
    try:
        content = file.read_bytes()
    except OSError as error:
        return f"a file that can be read ({reason_of(error)})"
    if has_key and b"PRIVATE KEY-----" not in content:
        return "a file with a private key in PEM (none is in it)"
    return ""


def _context(*, http2: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return context


def _check_http2(configuration: Configuration) -> None:
    server = configuration.server
    if server.http2 and not (server.tls_cert or server.tls_key):
        raise configuration.error("server.http2", True, "false, or set tls_cert")
    if server.http2 and find_spec("hpack") is None:
        allowed = "false, or true after pip install 'univocal[http2]'"
        raise configuration.error("server.http2", True, allowed)


def load_pair(context: ssl.SSLContext, certificate: str, key: str | None) -> str:
    """Load a certificate and its key, which may be in one file; returns why that cannot be, "" if it can."""
    try:
        # Nothing here can give the passphrase that a key asks for.
        context.load_cert_chain(certificate, key, password=str)
    except OSError as error:
        return reason_of(error)
    return ""


def digest_of(file: Path) -> str:
    """The digest of the content of a file; "" if it cannot be read."""
    try:
        return sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def reason_of(error: OSError) -> str:
    """Why a file could not be read, or is no PEM, in the system's words or OpenSSL's."""
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "no certificate is in it").lower().replace("_", " ")
    return error.strerror or str(error)


class CertificateFiles:
    """The certificates in force, and a watch over the files that they come from.

    Call `adopt` with what another configuration makes of them, after `contexts_of` has found nothing wrong.
    `contents` has the digest of each file that those in force were made from, by its setting's key.
    """

    def __init__(self, configuration: Configuration, sites: Sites, contexts: Contexts) -> None:
        self._seen = contexts.files
        self.adopt(configuration, sites, contexts)

    def current(self) -> Certificates:
        """The certificates for a connection that begins now."""
        return self._current

    def adopt(self, configuration: Configuration, sites: Sites, contexts: Contexts) -> None:
        """Use the certificates of `contexts`, which were made from `configuration`, for new connections.

        The next `look` reads files again that it has seen changed since.
        """
        self._configuration, self._sites = configuration, sites
        self._read = contexts.files
        self._use(contexts)

    def _use(self, contexts: Contexts) -> None:
        self._contexts, self._current = contexts, contexts.shown(self._sites)
        self.contents = contexts.contents

    def look(self) -> None:
        """Read the files if they have changed and stand still.

        A site whose new certificate cannot be, or has expired, keeps its old one, and that is said.
        """
        stamps = {file: stamp_of(file) for file in self._read}
        if stamps == self._read or stamps != self._seen:
            self._seen = stamps
            return
        self._read = stamps
        contexts, objections, unusable = _read(self._configuration, self._contexts)
        assert contexts is not None  # by the same configuration
        expired = self._expired(self._configuration, contexts)
        for each in [*objections.errors, *self._objections(self._configuration, expired)]:
            logger.warning("changed certificates are unusable, the old ones stay in use: %s", each)
        contexts = self._keeping({**expired, **unusable}, contexts)
        keys = [key for key, content in contexts.contents.items() if self.contents.get(key) != content]
        self._use(contexts)
        if keys:  # else the files were touched, no more
            logger.warning("changed certificates are in use: %s", ", ".join(keys))

    def refuse_expired(self, configuration: Configuration, contexts: Contexts) -> None:
        """Raise ConfigurationError for each certificate that has expired, where the one in force has not."""
        objections = Objections()
        objections.errors += self._objections(configuration, self._expired(configuration, contexts))
        objections.conclude()

    def _expired(self, configuration: Configuration, contexts: Contexts) -> dict[str, str]:
        """The sites whose certificate has expired and the one in force has not, with the tables to blame."""
        now, held, expired = time.time(), self._contexts, dict[str, str]()
        current = held.shown(self._sites)  # a thread may ask this, while `look` puts others into force
        ends = {each.context: each.expires for each in held.by_site.values()}
        if contexts.of("").expires <= now < held.of("").expires:
            expired[""] = "server"
        for number, site in enumerate(configuration.sites):
            name = site.hosts[0]
            own = held.by_site.get(name)
            in_force = [ends[current.of(host.encode())] for host in site.hosts]
            latest = max(in_force) if own is None else own.expires
            if contexts.of(name).expires <= now < latest:
                is_servers = "" in expired and not site.tls_cert
                expired[name] = "server" if is_servers else f"sites[{number}]"
        return expired

    def _objections(
        self, configuration: Configuration, expired: Mapping[str, str]
    ) -> Iterator[ConfigurationError]:
        files = {f"sites[{i}]": each.tls_cert for i, each in enumerate(configuration.sites)}
        files["server"], allowed = configuration.server.tls_cert, "a certificate that is valid now"
        for place in dict.fromkeys(expired.values()):
            which = "the certificate" if files[place] else "server.tls_cert, which takes its place,"
            mistake = f"{which} has expired, and the one in force has not"
            yield configuration.error(f"{place}.tls_cert", files[place], allowed, mistake)

    def _keeping(self, expired: Mapping[str, str], contexts: Contexts) -> Contexts:
        """The contexts, but those in force for some sites; both were made from the same configuration."""
        kept = {name: self._contexts.by_site[name] for name in expired.keys() & contexts.by_site.keys()}
        keys = [key for key in contexts.contents if key.rpartition(".")[0] in expired.values()]
        contents = contexts.contents | {key: self.contents[key] for key in keys if key in self.contents}
        return Contexts(contexts.by_site | kept, contexts.files, contents)


def stamp_of(file: Path) -> Stamp:
    """The state of a file, which is another when it has changed; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
