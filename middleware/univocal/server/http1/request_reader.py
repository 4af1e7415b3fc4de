"""The reader of requests: it takes bytes and gives heads and content, one after the other. It has no socket.

llhttp reads the heads, and a reader of `http/content.py` the content: the end of each message is known to the
byte, and all content costs the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias

from univocal.http.content import ALL_READ, READERS, ContentReader, Framing
from univocal.http.errors import RefusedError
from univocal.http.tables import moves
from univocal.server.http1.llhttp import HeadReader, IncomingHead
from univocal.server.listener import PIECE, Bounds

_BLANK_LINE: Final = b"\r\n\r\n"
_LINE_END_OCTETS: Final = b"\r\n"
_BLOCK: Final = 4096  # bytes of empty lines that are passed over at once
_ALIKE: Final = (b"\r\n" * (_BLOCK // 2), b"\n" * _BLOCK)
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")


class RequestState(Enum):
    """The parts of a request that may come next."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    BETWEEN = "a request line, or empty lines before it"
    HEAD = "more of a head"
    JUDGING = "nothing, until its head is accepted"
    CONTENT = "content"
    TRAILERS = "the trailers of chunked content"
    STOPPED = "nothing is read any more"


# Looking up an enumeration's member costs a call in Python 3.11.
_BETWEEN: Final = RequestState.BETWEEN
_HEAD: Final = RequestState.HEAD
_JUDGING: Final = RequestState.JUDGING
_CONTENT: Final = RequestState.CONTENT
_TRAILERS: Final = RequestState.TRAILERS
_STOPPED: Final = RequestState.STOPPED

MOVES: Final[Mapping[RequestState, Mapping[RequestState, str]]] = {
    RequestState.BETWEEN: {RequestState.HEAD: "a byte of a request line", RequestState.STOPPED: "`stop`"},
    RequestState.HEAD: {RequestState.JUDGING: "an empty line", RequestState.STOPPED: "a refusal, or `stop`"},
    RequestState.JUDGING: {
        RequestState.BETWEEN: "`accept`: no content follows",
        RequestState.CONTENT: "`accept`: content follows",
        RequestState.STOPPED: "a refusal, or `stop`",
    },
    RequestState.CONTENT: {
        RequestState.BETWEEN: "the last of its bytes",
        RequestState.TRAILERS: "the line of the last chunk",
        RequestState.STOPPED: "a refusal, or `stop`",
    },
    RequestState.TRAILERS: {
        RequestState.BETWEEN: "an empty line",
        RequestState.STOPPED: "a refusal, or `stop`",
    },
    RequestState.STOPPED: {RequestState.STOPPED: "`stop`, again"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)
_READERS: Final = READERS["request"]
_LENGTH: Final = Framing.LENGTH
_CHUNKS: Final = Framing.CHUNKS


class End(Enum):
    """The end of a request's content."""

    END = "the content is complete"


END: Final = End.END

Event: TypeAlias = IncomingHead | bytes | End


class RequestReader:
    """Reads requests: `push` what has come, then call `next` until it returns None: more bytes are needed.

    `next` gives an IncomingHead, to be accepted once it has no fault; where content follows it, bytes, any
    number of times, and END. It raises RefusedError, after which nothing more comes; `head` is the last
    one, as far as it is known. `state` moves as `MOVES` says.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds  # they may change
        self.octets = b""  # that have come, and are not all read
        self._at = 0  # those before this place are read
        self._heads = HeadReader()
        self._before = b""  # the last bytes of a head, before that place
        self._silence = 0  # bytes of a head, or of trailers, so far
        self._content: ContentReader = ALL_READ
        self.state = _BETWEEN

    @property
    def head(self) -> IncomingHead:
        """The last head, as far as it is known."""
        return self._heads.known

    def push(self, octets: bytes) -> None:
        """Take bytes that have come, unless nothing is read any more."""
        if self.state is _STOPPED:
            return
        self.octets = self.octets[self._at :] + octets if self.octets else octets
        self._at = 0

    def drop(self) -> None:
        """Drop the bytes that were read, so that `octets` are those that wait."""
        if self._at:
            self.octets, self._at = self.octets[self._at :], 0

    def next(self) -> Event | None:
        """Read on: at most a head, or some content."""
        while True:
            state = self.state
            if state is _CONTENT:
                if content := self._read_content():
                    return content
                if not self._content.is_over:
                    return None
                self.state = _MOVES[state, _TRAILERS if self._content.leaves_trailers else _BETWEEN]
                self._content, self._before, self._silence = ALL_READ, b"", 0
                if self.state is _BETWEEN:
                    return END
            elif state is _BETWEEN:
                if self._at == len(self.octets) or not self._skip_empty_lines():
                    return None
            elif state is _HEAD:
                if not self._read_head():
                    return None
                self.state = _MOVES[state, _JUDGING]
                return self._heads.known
            elif state is _TRAILERS:
                if not self._read_trailers():
                    return None
                self.state = _MOVES[state, _BETWEEN]
                return END
            else:
                return None

    def accept(self) -> bool:
        """Go on behind a head that has no fault; True: content follows."""
        length = self._heads.known.length
        self._heads.take(has_content=length != 0)
        self.state = _MOVES[self.state, _CONTENT if length != 0 else _BETWEEN]
        if length != 0:
            self._content = content = _READERS[_CHUNKS if length is None else _LENGTH]()
            content.begin(length or 0)
        return length != 0

    def whole_head(self, most: int) -> bytes:
        """The next head, if it is a GET's, all of it is there, and it has no more than so many bytes."""
        if self.state is not _BETWEEN or not self.octets.startswith(b"GET /", self._at):
            return b""
        end = self.octets.find(_BLANK_LINE, self._at, self._at + most)
        return b"" if end < 0 else self.octets[self._at : end + 4]

    def skip(self, octets: int) -> None:
        """Handle a whole head that was read elsewhere."""
        self._at += octets

    def rest(self) -> bytes:
        """Give up what has not been read."""
        octets, self.octets = self.octets[self._at :], b""
        self._at = 0
        return octets

    def stop(self) -> None:
        """Read no more, and let go of the parser: circles wait for the garbage collector."""
        self.state = _MOVES[self.state, _STOPPED]
        self.octets, self._at = b"", 0
        self._heads.stop()

    # Heads

    def _skip_empty_lines(self) -> bool:
        """Go on to a request line (RFC 9112 §2.2); False: none has begun."""
        octets, begin = self.octets, self._at
        begin += octets.startswith(b"\n", begin)  # the rest of a line's end
        while octets.startswith(_ALIKE, begin):
            begin += _BLOCK
        while len(octets) - begin >= _BLOCK and (passed := _empty_lines(octets[begin : begin + _BLOCK])):
            begin += passed
        end = _LINE_ENDS.match(octets, begin).end()  # type: ignore[union-attr]
        has_begun = end < len(octets)
        self._at = begin
        if end > begin:
            lines = octets[begin:end]
            lone = lines.replace(b"\r\n", b"").count(b"\r")
            if lone > 1 or (lone and (has_begun or not lines.endswith(b"\r"))):
                self._begin_head()
                raise RefusedError("bad-framing")
            self._at = end - lone  # of the last one more may come
        if has_begun:
            self._begin_head()
        return has_begun

    def _begin_head(self) -> None:
        self.state = _MOVES[self.state, _HEAD]
        self._heads.expect()
        self._before, self._silence = b"", 0

    def _read_head(self) -> bool:
        """Feed llhttp the bytes up to the next empty line, and none behind it; True: the head is whole."""
        while self._at < len(self.octets):
            octets = self.octets[self._at : self._end_of_head()]
            if self._silence:
                whole = self._feed(octets, octets)
            else:
                begun = self._heads.begin(octets, self._bounds.limits.max_target)
                if begun is None:
                    return False
                whole = self._feed(octets, begun)
            if whole:
                return True
        return False

    def _read_trailers(self) -> bool:
        """Read what follows the last chunk; True: its end has come."""
        if not self._silence:
            first = self.octets[self._at : self._at + 2]
            if first == b"\r\n":
                self._at += 2
                return True
            if b"\r\n".startswith(first):
                return False
            self._heads.begin_trailers()
        while self._at < len(self.octets):
            octets = self.octets[self._at : self._end_of_head()]
            if self._feed(octets, octets):
                self._heads.take(has_content=False)
                return True
        return False

    def _feed(self, octets: bytes, begun: bytes) -> bool:
        """Read bytes of a head, or of trailers, of which llhttp is fed those that have `begun`."""
        self._before = (self._before + octets[-3:])[-3:]
        self._at += len(octets)
        self._silence += len(octets)
        whole = self._heads.feed(begun)
        if 0 < self._bounds.max_silence < self._silence:
            raise RefusedError("fields-too-large")
        return whole

    def _end_of_head(self) -> int:
        """The place behind the empty line that ends a head, or up to which it is parsed for now."""
        octets, at, before = self.octets, self._at, self._before
        if before:  # an empty line may have begun there
            blank = (before + octets[at : at + 3]).find(_BLANK_LINE)
            if blank >= 0:
                return at + blank + 4 - len(before)
        blank = octets.find(_BLANK_LINE, at, at + PIECE)
        return at + PIECE if blank < 0 else blank + 4

    # Content

    def _read_content(self) -> bytes:
        """Some content; none: more bytes are needed, or it is over."""
        reader = self._content
        if reader.is_over:
            return b""
        content, self._at = reader.read(self.octets, self._at)
        if reader.fault:
            raise RefusedError(reader.fault)
        return content


def _empty_lines(block: bytes) -> int:
    """How many bytes may be passed over: those of a whole block of empty lines, or none."""
    lines = block.removesuffix(b"\r")  # the rest of this line's end may come
    if lines.translate(None, _LINE_END_OCTETS):
        return 0
    return len(lines) if lines.count(b"\r") == lines.count(b"\r\n") else 0
