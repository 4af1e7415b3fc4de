"""An origin server that answers with pages: at once, or when a test lets it."""

from typing import NamedTuple

from univocal.http.intermediary import request_has_content
from univocal.http.messages import Response

NOW = b"Mon, 21 Sep 2026 14:13:20 GMT"


class Page(NamedTuple):
    """An answer of the origin server; its content goes out in pieces of this size."""

    status: int = 200
    fields: tuple = ((b"cache-control", b"no-store"),)
    content: bytes = b"answer"
    interims: tuple = ()
    is_early: bool = False  # it answers before the request's content
    is_cut: bool = False
    is_held: bool = False  # until a test lets it go
    has_length: bool = True
    size: int = 16384


USUAL = Page()


class Asked:
    """A request that has come to the origin server: its target, fields and content."""

    def __init__(self, origin, request, content, answer):
        self._origin, self._answer = origin, answer
        self.method, self.target, self.bond = request.method, request.target, request.bond
        self.fields, self.content = list(request.fields), b""
        self.chunks, self.is_complete, self.is_cancelled, self.is_paused = 0, False, False, False
        self.is_answered = False
        self._incoming = content
        page = self.page = origin.pages.get(self.target.partition(b"?")[0], origin.unknown)
        self._left = page.content
        for status, fields in page.interims:
            answer.interim(status, list(fields))
        if page.is_early:
            self.answer()
        elif content is None:
            self.finish()
        else:
            content.attach(self)

    @property
    def parts(self):
        return self.method, self.target, self.fields, self.content

    def write(self, chunk):
        self.content += chunk
        self.chunks += 1
        return self._origin.is_greedy

    def finish(self):
        self.is_complete = True
        if not (self._origin.holds or self.page.is_held):
            self.answer()

    def take_more(self):
        self._incoming.resume()

    def answer(self):
        page, status = self.page, self.page.status
        if self.is_cancelled or self.is_answered:
            return
        self.is_answered = True
        etag = dict(page.fields).get(b"etag")
        if etag is not None and (b"if-none-match", etag) in self.fields:
            status = 304
        fields = [(b"date", self._origin.date), *page.fields]
        if page.has_length and status not in {204, 304} and not page.is_cut:
            fields.append((b"content-length", b"%d" % len(page.content)))
        self._answer.start(Response(status, fields))
        if self.method == b"HEAD" or status in {204, 304}:
            self._left = b""
        self.resume()

    def pause(self):
        self.is_paused = True

    def resume(self):
        self.is_paused = False
        while self._left and not self.is_paused and not self.is_cancelled:
            piece, self._left = self._left[: self.page.size], self._left[self.page.size :]
            if not self._answer.write(piece):
                self.is_paused = True
        if self._left is not None and not self._left and not self.is_cancelled:
            self._left = None
            if self.page.is_cut:
                self._answer.fail(ConnectionResetError())
            else:
                self._answer.finish()

    def cancel(self):
        self.is_cancelled = True


class Origin:
    """An origin server that answers `pages` by path; while it `holds`, when a test says so."""

    def __init__(self, pages=(), unknown=USUAL, date=NOW):
        self.pages, self.unknown, self.date = dict(pages), unknown, date
        self.asked, self.holds, self.is_greedy = [], False, True

    def ask(self, request, answer):
        asked = Asked.__new__(Asked)
        self.asked.append(asked)
        content = request.content if request_has_content(request.fields) else None
        asked.__init__(self, request, content, answer)
        return asked

    def let(self):
        """Answer what is held."""
        for each in self.asked:
            if each.is_complete:
                each.answer()
