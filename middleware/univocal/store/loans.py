"""Loans: content that slow clients are still being sent, while the store may have let go of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class Loan:
    """One client's part in content that is held for it; `recall` takes it back early."""

    __slots__ = ("_content", "recall")

    def __init__(self, content: bytes, recall: Callable[[], None]) -> None:
        self._content = content
        self.recall = recall

    @property
    def number(self) -> int:
        """The content's own number: it lives as long as this does."""
        return id(self._content)


class _Lent:
    """Content that is lent, and to whom; `kept` while the store has it, too."""

    __slots__ = ("kept", "loans", "octets")

    def __init__(self, octets: int, *, kept: bool) -> None:
        self.octets = octets
        self.kept = kept
        self.loans: dict[Loan, None] = {}


class Loans:
    """Every loan. Of what the store does not have itself, at most so many bytes are lent.

    Beyond that, the content of which nobody has taken anything for the longest time is recalled.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lent: OrderedDict[int, _Lent] = OrderedDict()  # the last to be taken from at the end
        self.outside = 0  # bytes that are held for clients alone

    def lend(self, content: bytes, recall: Callable[[], None], *, kept: bool) -> Loan:
        """Lend content, of which the store itself has a reference if `kept`."""
        loan = Loan(content, recall)
        lent = self._lent.get(loan.number)
        if lent is None:
            lent = self._lent[loan.number] = _Lent(len(content), kept=kept)
            self.outside += 0 if kept else lent.octets
        lent.loans[loan] = None
        self.taken(loan)
        return loan

    def taken(self, loan: Loan) -> None:
        """Record that a reader has taken a part of the lent content."""
        if loan.number in self._lent:
            self._lent.move_to_end(loan.number)

    def give_back(self, loan: Loan) -> None:
        """End a loan; a second time does nothing."""
        lent = self._lent.get(loan.number)
        if lent is None or loan not in lent.loans:
            return
        del lent.loans[loan]
        if not lent.loans:
            del self._lent[loan.number]
            self.outside -= 0 if lent.kept else lent.octets

    def keep(self, content: bytes, *, kept: bool) -> None:
        """Record that the store keeps the content from now on, or keeps it no longer."""
        lent = self._lent.get(id(content))
        if lent is not None and lent.kept is not kept:
            lent.kept = kept
            self.outside += -lent.octets if kept else lent.octets

    def trim(self, room: int | None = None) -> None:
        """Recall what is too much, or more than there is room for."""
        most = self.most if room is None else min(self.most, room)
        while self.outside > most:
            number = next((number for number, lent in self._lent.items() if not lent.kept), None)
            if number is None:
                return
            for loan in tuple(self._lent[number].loans):
                self.give_back(loan)
                loan.recall()
