"""A listener's certificates: which one a client is shown, and for which hosts it then may ask."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from univocal.http.authority import DEFAULT_PORTS, parse_authority
from univocal.uri.sites import Sites


class Certificates:
    """The certificates of sites that have one of their own, by the names of the sites, and that of the rest.

    Each is in a context of its own, of which `default` is the one that a handshake begins with.
    """

    def __init__(
        self,
        default: ssl.SSLContext,
        of_sites: Mapping[str, ssl.SSLContext],
        sites: Sites,
    ) -> None:
        self.default = default
        self._of_sites = of_sites
        self._sites = sites
        self._ports = (*sites.ports, DEFAULT_PORTS[b"https"])  # a client's server name is without any
        if of_sites:
            default.sni_callback = self._choose

    def of(self, host: bytes) -> ssl.SSLContext:
        """The context of the site that serves `host`, a name or a Host field's value, or `default`."""
        authority = parse_authority(host)
        if authority is not None:
            for port in self._ports:
                located = self._sites.locate(authority[0], port)
                if located is not None and located[0].name in self._of_sites:
                    return self._of_sites[located[0].name]
        return self.default

    def _choose(self, connection: ssl.SSLObject, name: str | None, _begun_with: ssl.SSLContext) -> None:
        """Show the certificate of the site that the client names (RFC 6066 §3), else the default one."""
        if name is not None:
            connection.context = self.of(name.encode("ascii", "replace"))

    def suits(self, context: ssl.SSLContext) -> Callable[[bytes], bool] | None:
        """A function that tells whether a host may be asked for, of a client that was `shown` a certificate.

        RFC 9110 §7.4: not where the host's certificate is another. None: whichever; the certificate of all
        the rest may be good for any name, and a client without server name is shown no other.
        """
        if context is self.default:
            return None
        return lambda host: self.of(host) is context
