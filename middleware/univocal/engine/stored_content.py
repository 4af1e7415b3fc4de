"""Content that is all there, on its way to one client at that client's pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from univocal.engine.broadcast import WINDOW
from univocal.engine.outcome import Account
from univocal.http.roles import Client
from univocal.store.loans import Loan
from univocal.store.memory import MemoryStore


class StoredContent:
    """The content that a client has not taken yet, and the loan by which memory counts it.

    It may outlive the stored response. Memory calls `recalled` where it needs the room for others.
    """

    __slots__ = ("_account", "_client", "_key", "_left", "_loan", "_memory", "_recalled", "closed")

    def __init__(
        self,
        client: Client,
        account: Account,
        memory: MemoryStore,
        key: bytes | None,
        recalled: Callable[[], None],
    ) -> None:
        self._client = client
        self._account = account
        self._memory = memory
        self._key = key  # None: the content is of no stored response
        self._recalled: Callable[[], None] | None = recalled
        self._left = memoryview(b"")
        self._loan: Loan | None = None
        self.closed = False

    def send(self, content: memoryview) -> bool:
        """Send content in pieces, as the client takes it; True once all of it is sent.

        No more than one piece waits at the client's connection. The client may leave within each call.
        """
        more = True
        while more and len(content) and not self.closed:
            piece, content = content[:WINDOW], content[WINDOW:]
            self._account.octets += len(piece)
            # A copy of the last piece does not keep all the content for a client that reads nothing.
            shared = len(content) or len(piece) == len(cast("bytes", piece.obj))
            more = self._client.write(piece if shared else bytes(piece))
        if not len(content) or self.closed:
            return not self.closed
        self.hold(content)
        return False

    def hold(self, content: memoryview) -> None:
        """Hold content until the client takes more, or until memory needs the room for others."""
        self._left = content
        if self._loan is None and self._key is not None and self._recalled is not None:
            self._loan = self._memory.lend(self._key, cast("bytes", content.obj), self._recalled)

    def resume(self) -> bool:
        """Send more, since the client takes it; True once all of it is sent."""
        if self._loan is not None:
            self._memory.taken(self._loan)
        return self.send(self._left)

    def close(self) -> None:
        """Send nothing more, and give the loan back."""
        self.closed = True
        if self._loan is not None:
            self._memory.give_back(self._loan)
        self._loan = self._recalled = None
        self._left = memoryview(b"")
