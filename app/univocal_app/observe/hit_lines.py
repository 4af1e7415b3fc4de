"""Lines of hits: what the hits of one page, one client or one moment have in common is made once."""

from __future__ import annotations

from typing import Final

from univocal.engine.outcome import Outcome
from univocal.http.messages import Received
from univocal.http.tables import remember
from univocal.judge.hits import Hit, Tally
from univocal_app.observe.log_lines import (
    PAGES,
    USUAL,
    Form,
    address_text,
    as_cached,
    as_combined,
    as_json,
    clf,
    host_text,
    iso,
    json_address,
    json_agents,
    json_named,
    json_referrers,
    json_version,
    request_text,
    written_values,
)

LONGEST_ADDRESS: Final = 64  # characters of a client's address that is remembered
LONGEST_PAGE: Final = 1024  # characters of a page's part of a line that is remembered


class HitLines:
    """Makes the line of a hit as `form` makes it of the hit's Outcome."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def line(self, hit: Hit, received: Received, begun: float, seconds: float) -> bytes:
        """The line, with its end; `begun` is in seconds since the epoch."""
        return self.whole(hit, received, begun, seconds)

    def whole(self, hit: Hit, received: Received, begun: float, seconds: float) -> bytes:
        """The line as it is made of the hit's Outcome."""
        return self._form(Outcome.of_hit(hit, received, begun, seconds))


class PageParts:
    """The parts of a line that the hits of one stored response by one spelling have in common.

    They hold for one `status`, for one number of bytes (`octets`), and for one `version` of HTTP.
    """

    __slots__ = ("after", "before", "octets", "status", "version")

    def __init__(self, status: int, octets: int, version: bytes, before: str, after: str) -> None:
        self.status, self.octets, self.version = status, octets, version
        self.before, self.after = before, after


class QuickHitLines(HitLines):
    """Joins the line from parts that it remembers: pages, addresses, and one moment."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._pages: dict[Tally, PageParts] = {}
        self._addresses: dict[str, str] = {}
        self._at = -1  # the moment that `_moment` tells
        self._moment = ""

    def page(self, hit: Hit, received: Received) -> PageParts:
        """The parts of the page that was hit."""
        page, stored = self._pages.get(hit.tally), hit.stored
        if (
            page is not None
            and page.octets == len(stored.body)
            and page.status == stored.status
            and page.version == received.version
        ):
            return page
        page = self.make_page(hit, received)
        if len(page.before) + len(page.after) <= LONGEST_PAGE:
            remember(self._pages, hit.tally, page, PAGES)
        return page

    def make_page(self, hit: Hit, received: Received) -> PageParts:
        """Make the parts of the page that was hit."""
        raise NotImplementedError

    def address(self, client: str | None) -> str:
        """The client's address as this form writes it."""
        if client is None:
            return self.make_address(None)
        text = self._addresses.get(client)
        if text is None:
            text = self.make_address(client)
            if len(client) <= LONGEST_ADDRESS:
                remember(self._addresses, client, text, PAGES)
        return text

    def make_address(self, client: str | None) -> str:
        """Write a client's address."""
        raise NotImplementedError


class JsonHitLines(QuickHitLines):
    """The lines of `as_json`."""

    def __init__(self) -> None:
        super().__init__(as_json)

    def line(self, hit: Hit, received: Received, begun: float, seconds: float) -> bytes:
        """The line, with its end; `begun` is in seconds since the epoch."""
        if hit.plan.credentials >= 0:
            return self.whole(hit, received, begun, seconds)
        page, plan, values = self.page(hit, received), hit.plan, hit.values
        millisecond = int(begun * 1000)
        if millisecond != self._at:
            self._at, self._moment = millisecond, f'{{"time":"{iso(millisecond)}","client":'
        agent = "null" if plan.agent < 0 else json_agents[values[plan.agent]]
        referrer = "null" if plan.referrer < 0 else json_referrers[values[plan.referrer]]
        name, request_ids = "", hit.tally.request_ids
        if request_ids is not None:
            name = f',"request_id":"{request_ids.planned(received, plan, values).decode("ascii")}"'
        return (
            f"{self._moment}{self.address(hit.client)}{page.before}{seconds_text(seconds)}"
            f'{page.after}{agent},"referrer":{referrer}{name},{USUAL}}}\n'
        ).encode("ascii")

    def make_page(self, hit: Hit, received: Received) -> PageParts:
        """Make the parts of the page that was hit."""
        status, octets = hit.stored.status, len(hit.stored.body)
        named = json_named(received, hit.canonical, hit.canonical.site.name)
        before = f'{named},"status":{status},"bytes":{octets},"seconds":'
        after = f',"protocol":{json_version(received.version)},"user_agent":'
        return PageParts(status, octets, received.version, before, after)

    def make_address(self, client: str | None) -> str:
        """Write a client's address."""
        return json_address(client)


class CombinedHitLines(QuickHitLines):
    """The lines of `as_combined`."""

    def __init__(self, form: Form = as_combined) -> None:
        super().__init__(form)

    def line(self, hit: Hit, received: Received, begun: float, seconds: float) -> bytes:
        """The line, with its end; `begun` is in seconds since the epoch."""
        if hit.plan.credentials >= 0:
            return self.whole(hit, received, begun, seconds)
        return f"{self.combined(hit, received, begun)}\n".encode("ascii")

    def combined(self, hit: Hit, received: Received, begun: float) -> str:
        """The columns of the "combined" format."""
        page, plan, values = self.page(hit, received), hit.plan, hit.values
        second = int(begun)
        if second != self._at:
            self._at, self._moment = second, f' - - [{clf(second)}] "'
        agent = "-" if plan.agent < 0 else written_values[values[plan.agent]]
        referrer = "-" if plan.referrer < 0 else written_values[values[plan.referrer]]
        return f'{self.address(hit.client)}{self._moment}{page.before}{referrer}" "{agent}"{page.after}'

    def make_page(self, hit: Hit, received: Received) -> PageParts:
        """Make the parts of the page that was hit."""
        status, octets = hit.stored.status, len(hit.stored.body)
        before = f'{request_text(received)}" {status} {octets} "'
        return PageParts(status, octets, received.version, before, self.after(hit))

    def after(self, hit: Hit) -> str:  # noqa: ARG002
        """The columns of the page that stand behind those of the "combined" format."""
        return ""

    def make_address(self, client: str | None) -> str:
        """Write a client's address."""
        return address_text(client).encode("ascii", "backslashreplace").decode("ascii")


class CachedHitLines(CombinedHitLines):
    """The lines of `as_cached`."""

    def __init__(self) -> None:
        super().__init__(as_cached)

    def line(self, hit: Hit, received: Received, begun: float, seconds: float) -> bytes:
        """The line, with its end; `begun` is in seconds since the epoch."""
        if hit.plan.credentials >= 0:
            return self.whole(hit, received, begun, seconds)
        return f"{self.combined(hit, received, begun)}{seconds_text(seconds)} -\n".encode("ascii")

    def after(self, hit: Hit) -> str:
        """The host and the cache status."""
        return f" {host_text(hit.canonical.authority.decode('ascii'))} hit "


_MICROSECONDS: Final = [f"0.{number:06d}" for number in range(1000)]


def seconds_text(seconds: float) -> str:
    """Six digits behind the point, as `format` rounds them, which takes longer."""
    micros = seconds * 1e6
    if 0.0 < micros < 999.0:
        whole = int(micros)
        rest = micros - whole
        # The product may be off by its last bit, so what lies near the middle is left to `format`.
        if rest < 0.499:
            return _MICROSECONDS[whole]
        if rest > 0.501:
            return _MICROSECONDS[whole + 1]
    return f"{seconds:.6f}"


def hit_lines_of(form: Form) -> HitLines:
    """Makes the lines of hits for a form."""
    if form is as_json:
        return JsonHitLines()
    if form is as_combined:
        return CombinedHitLines()
    return CachedHitLines() if form is as_cached else HitLines(form)
