"""Names of single requests, by which the logs of several programs are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import getrandbits
from typing import Final

from univocal.http.forward import AS_CGI_READS
from univocal.http.messages import Fields, Received
from univocal.judge.plan import Plan
from univocal.judge.trust import NO_OWN_PROXIES, Networks, trusted_for, within

# No character that a field, a line of the log, JSON or HTML would escape.
_KEPT: Final = re.compile(rb"[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch


class RequestIds:
    """The field that names requests: a trusted proxy's is kept, all others get a name of ours.

    A name is made once, and stands in `Received.request_id` from then on. It is no secret: 32 hexadecimal
    digits by chance.
    """

    def __init__(
        self, name: bytes, trusted: Networks, trusted_at: Mapping[str, Networks] = NO_OWN_PROXIES
    ) -> None:
        self.name: Final = name.lower()
        self._read: Final = self.name.translate(AS_CGI_READS)
        self._trusted: Final = trusted
        self._trusted_at: Final = trusted_at  # by the names of listeners

    def identify(self, received: Received, fields: Fields) -> Fields:
        """Name a request, if it has no name; its fields with this name and no other."""
        read, length, given, named = self._read, len(self._read), list[bytes](), Fields()
        for field in fields:
            if len(field[0]) == length and field[0].translate(AS_CGI_READS) == read:
                given.append(field[1] if field[0] == self.name else b"")
            else:
                named.append(field)
        if not received.request_id:
            is_kept = len(given) == 1 and _KEPT(given[0]) is not None
            is_kept = is_kept and within(
                received.client, trusted_for(received, self._trusted, self._trusted_at)
            )
            received.request_id = given[0] if is_kept else b"%032x" % getrandbits(128)
        named.append((self.name, received.request_id))
        return named

    def planned(self, received: Received, plan: Plan, given: Sequence[bytes]) -> bytes:
        """The name of an ordinary request."""
        if not received.request_id:
            is_given, name = self.name in plan.names, self.name
            self.identify(received, [(name, given[plan.names.index(name)].strip(b" \t"))] if is_given else [])
        return received.request_id
