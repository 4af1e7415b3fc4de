"""The laws of exchanges: what no client, no origin server and no store may ever be given."""

from __future__ import annotations

import json
import re
from collections import Counter

from fuzz.exchanges.grammar import HOST, ODD, POISON, SPELLINGS, Ask
from fuzz.exchanges.messages import Lines, Message, UnreadableError, age, lifetime, responses, unstorable
from fuzz.exchanges.replies import Of
from fuzz.exchanges.world import Client, Served, World, WrongError, address
from univocal.cache.stored import Stored
from univocal.judge.runtime import Limits

HOP_BY_HOP = {
    *(b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer"),
    *(b"upgrade", b"x-hop"),
}
CONDITIONS = {b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range"}
PATIENCE = Limits().collapse_timeout
FORBIDS_STALE = {b"must-revalidate", b"proxy-revalidate", b"no-cache"}
CONTENT_RANGE = re.compile(rb"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)")
PART = re.compile(rb"\r\ncontent-range: bytes ([0-9]+)-([0-9]+)/[0-9]+\r\n\r\n(.*)\Z", re.DOTALL)


def wrong(name: str, told: object) -> WrongError:
    return WrongError(f"{name}: {told}")


def judge(world: World, seen: Counter[str]) -> None:
    """Raise what is wrong once everything is over."""
    for stored in world.tiers.committed:
        judge_stored(world, stored)
        seen["stored"] += 1
    for client in world.all_clients:
        judge_client(world, client, seen)
    for served in world.served:
        judge_forwarded(world, served)
    judge_end(world)
    seen["asked"] += len(world.asks)
    seen["served"] += len(world.served)


# Stored responses


def judge_stored(world: World, stored: Stored) -> None:
    """A fresh reading of the octets that the origin server sent allows what is stored."""
    target = stored.key.rpartition(b" ")[2]
    of_target = [each for each in world.served if each.request.target == target]
    read = [(each, response) for each in of_target if (response := each.response()) is not None]
    number = stored.line(b"x-reply")
    heads = [pair for pair in read if next(iter(pair[1].every(b"x-reply")), None) == number]
    if not heads:
        raise wrong("stored", f"{stored.head!r} is no response's")
    reasons = [unstorable(each.request, response, heeds=world.heeds) for each, response in heads]
    if all(reasons):
        raise wrong("stored", f"reply {number!r} in spite of {reasons[0]}")
    if stored.bodiless:
        if stored.body:
            raise wrong("stored", "content of a HEAD")
        return
    for each, response in read:
        whole = response.complete and response.content == stored.body and each.request.method != b"HEAD"
        if whole and not unstorable(each.request, response, heeds=world.heeds):
            return
    told = Of.read(stored.line(b"x-of") or b";0;;")
    parts = [response for _, response in read if response.status == 206 and response.complete]
    first = stored.part.first if stored.part is not None else 0
    held = told.content[first : first + len(stored.body)] == stored.body
    if parts and held and (stored.part is not None or len(told.content) == len(stored.body)):
        return
    if parts and any(each.sending.mutated for each, _ in read if each.sending) and put_together(read, stored):
        return
    raise wrong("stored", f"content {stored.body!r} of reply {number!r}, which nobody sent whole")


def put_together(read: list[tuple[Served, Message]], stored: Stored) -> bool:
    """Tell whether each octet was sent at its place: parts that are put together may have been changed."""
    placed = [part for _, response in read if response.status == 206 for part in parts(response)]
    placed += [(0, len(response.content), response.content) for _, response in read if response.status == 200]
    first = stored.part.first if stored.part is not None else 0
    return all(
        any(
            at <= place < end and content[place - at : place - at + 1] == bytes((octet,))
            for at, end, content in placed
        )
        for place, octet in enumerate(stored.body, first)
    )


# Answers to clients


def judge_client(world: World, client: Client, seen: Counter[str]) -> None:
    sent = bytes(client.wire.sent)
    if POISON in sent:
        raise wrong("another's octets", sent[-300:])
    methods = [ask.method for _, ask, _ in client.asked]
    closed = client.wire.closed and not client.wire.aborted and not client.left
    if client.mutated:
        # Its requests are unknown; but each must be answered by a well-formed response.
        methods = (methods + [b"GET"] * 9)[:9]
    try:
        answers, rest = responses(sent, methods, closed=closed)
    except UnreadableError as error:
        if client.mutated:
            return
        raise wrong("unreadable", f"{error} in {sent!r}") from None
    if client.mutated:
        return
    count(client, answers, sent[rest:])
    for (name, ask, least), answer in zip(client.asked, answers, strict=False):
        if answer.complete:
            judge_answer(world, (b"%d" % name, ask, least), answer, client, seen)
        seen[f"{answer.status // 100}xx"] += 1


def count(client: Client, answers: list[Message], rest: bytes) -> None:
    """One answer for each request, unless one says that it is the last, or is seen to be cut.

    A client that reads nothing for too long is given up, perhaps behind an interim response.
    """
    if client.full and client.wire.aborted and rest.startswith(b"HTTP/1.1 1"):
        rest = b""
    if any(not answer.complete for answer in answers[:-1]) or (rest and not client.left):
        raise wrong("count", f"{rest!r} behind {len(answers)} answers to {len(client.asked)} requests")
    if client.left or (len(answers) == len(client.asked) and answers and answers[-1].complete):
        return
    last = answers[-1] if answers else None
    if client.open or (last is None and not client.stood):
        raise wrong("count", f"{len(answers)} answers to {len(client.asked)} requests")
    if last is None:
        return
    ask = client.asked[len(answers) - 1][1]
    ends = (
        ask.old or (b"connection", b"close") in ask.fields or b"close" in (last.field(b"connection") or b"")
    )
    if last.complete and not ends and not client.stood:
        raise wrong("count", f"closed after {len(answers)} answers to {len(client.asked)} requests")


def judge_answer(
    world: World, asked: tuple[bytes, Ask, int], answer: Message, client: Client, seen: Counter[str]
) -> None:
    name, ask, least = asked
    mutated = world.is_mutated(SPELLINGS[ask.target])
    hop_by_hop(answer.fields, known=not mutated)
    number = answer.field(b"x-reply")
    status = answer.field(b"cache-status") or b""
    for word in (b"hit", b"fwd-status=304", b"collapsed", b"stale"):
        seen[word.decode()] += word in status
    if number is None and not mutated:
        own(ask, answer, seen)
        return
    served = (
        world.served[int(number)] if number and number.isdigit() and int(number) < len(world.served) else None
    )
    if served is None or served.sending is None or mutated:
        return
    of = Of.read(answer.field(b"x-of") or b";0;;")
    if of.target != SPELLINGS[ask.target]:
        raise wrong("another's target", f"{of} for {ask}")
    if of.who not in {b"-", name}:
        raise wrong("another's response", f"{of} for {name!r}, {ask}")
    language = dict(ask.fields).get(b"accept-language", b"none")
    if of.language not in {b"", language}:
        raise wrong("another's variant", f"{of} for {ask}")
    if of.language and answer.status != 304 and b"accept-language" not in varies(answer):
        raise wrong("another's variant", f"{of} without its Vary: {answer}")
    if of.version < least:
        raise wrong("obsolete", f"{of} for {name!r}, which wants {least}: {ask}")
    judge_content(ask, answer, of, served)
    if served.request.field(b"x-id") != name and b"fwd-status=304" not in status:
        judge_sharing(ask, answer, served)
    if b"; hit" in status:
        judge_freshness(world, ask, answer, served, client.wire.written(answer.at))
        judge_succession(world, ask, world.asked_at[name], answer, served)


def judge_sharing(ask: Ask, answer: Message, served: Served) -> None:
    """A client that names itself gets only those answers of others that the origin server lets be shared."""
    says = {b"cookie", b"authorization"} & {name for name, _ in ask.fields}
    if says and lifetime(answer, served.received) is None and b"public" not in answer.directives:
        raise wrong("a visitor's page", f"{answer} for {ask}")


def hop_by_hop(fields: Lines, *, known: bool) -> None:
    """No field of one hop; the one that Connection names, if it is `known` that it still does."""
    names = {name for name, _ in fields} - ({b"x-hop"} if not known else set())
    if names & HOP_BY_HOP:
        raise wrong("hop by hop", names & HOP_BY_HOP)
    for name, allowed in ((b"connection", {b"close"}), (b"transfer-encoding", {b"chunked"})):
        values = [value for key, value in fields if key == name]
        if values and (len(values) > 1 or values[0] not in allowed):
            raise wrong("hop by hop", f"{name!r}: {values}")


def own(ask: Ask, answer: Message, seen: Counter[str]) -> None:
    """An answer of the proxy's own is a problem, or tells of a purge, or ends an OPTIONS."""
    seen["own"] += 1
    kind = answer.field(b"content-type")
    if ask.method == b"HEAD" or (ask.method == b"OPTIONS" and answer.field(b"allow")):
        return
    purged = ask.method == b"PURGE" and answer.status == 200
    expected = b"application/json" if purged else b"application/problem+json"
    if kind != expected or (not purged and json.loads(answer.content)["status"] != answer.status):
        raise wrong("own answer", answer)
    if b"no-store" not in answer.directives and answer.field(b"cache-control") is not None:
        raise wrong("own answer", "may be stored")


def judge_content(ask: Ask, answer: Message, of: Of, served: Served) -> None:
    whole, names = of.content, {name for name, _ in ask.fields}
    assert served.sending is not None
    expected: bytes | None = whole
    if ask.method == b"HEAD" or answer.status in {204, 304, 416}:
        expected = b""
    elif answer.status == 206:
        expected = b"".join(piece for start, stop, piece in parts(answer) if piece == whole[start:stop])
        if not expected or len(expected) != sum(len(piece) for _, _, piece in parts(answer)):
            raise wrong("content", f"{answer} of {whole!r}")
        expected = None
    if expected is not None and answer.content != expected:
        raise wrong("content", f"{answer} is not {expected!r}")
    for status, asked in ((412, CONDITIONS), (416, {b"range"})):
        ours = any(served.request.field(name) is not None for name in asked)
        if answer.status == status and ours and not names & asked:
            raise wrong(str(status), f"to a question of our own, for {ask}")
    if served.sending.honest:
        if answer.status == 304 and not names & {b"if-none-match", b"if-modified-since"}:
            raise wrong("304", f"for {ask}")
        if answer.status in {206, 416} and b"range" not in names:
            raise wrong(str(answer.status), f"for {ask}")


def parts(answer: Message) -> list[tuple[int, int, bytes]]:
    """The octets of a 206, with their places."""
    single = CONTENT_RANGE.fullmatch(answer.field(b"content-range") or b"")
    if single is not None:
        return [(int(single[1]), int(single[2]) + 1, answer.content)]
    _, _, boundary = (answer.field(b"content-type") or b"").partition(b"boundary=")
    found = [PART.search(part) for part in answer.content.split(b"--" + boundary)[1:-1]]
    return [(int(part[1]), int(part[2]) + 1, part[3].removesuffix(b"\r\n")) for part in found if part]


def first_asked(world: World, served: Served) -> float:
    """The time at which a request was first sent: one that was sent once more is as old as it was then.

    A refresh has no name. It may be any for the same target that had no answer.
    """
    name, target = served.request.field(b"x-id"), served.request.target
    if name is not None:
        return world.began.get(name, served.asked)
    alike = [each for each in world.served if each.request.target == target and each.asked < served.asked]
    unanswered = [each for each in alike if each.request.field(b"x-id") is None and each.response() is None]
    return min([served.asked, *(each.asked for each in unanswered)])


def judge_freshness(world: World, ask: Ask, answer: Message, served: Served, now: float) -> None:
    """A stored answer is fresh by a second reckoning, or may be stale."""
    came, told = served.response(), answer.directives
    fresh_for = lifetime(answer, served.received)
    assert came is not None
    reckoned = age(came, served.asked, served.received, now)
    first = first_asked(world, served)
    if not reckoned - 1 <= int(answer.field(b"age") or b"-9") <= age(came, first, served.received, now) + 1:
        raise wrong("age", f"{answer.field(b'age')!r} is {reckoned}: {answer}")
    asked = ask_directives(ask) if world.heeds else {}
    if b"no-cache" in asked or (b"no-cache" in told and told[b"no-cache"] is None):
        raise wrong("freshness", f"no-cache: {ask} {answer}")
    if fresh_for is None:
        return
    stale_for = reckoned - fresh_for
    window = int(told.get(b"stale-while-revalidate") or 0)
    if failed_since(world, served, now):
        window = max(window, int(told.get(b"stale-if-error") or 0))
    shared = b"s-maxage" in told and not window
    if stale_for > 1 and (FORBIDS_STALE & told.keys() or shared):
        raise wrong("freshness", f"stale for {stale_for}: {answer}")
    if stale_for > max(1 + window, world.rules.grace) and b"max-stale" not in asked:
        raise wrong("freshness", f"stale for {stale_for}: {answer}")


def failed_since(world: World, served: Served, now: float) -> bool:
    """A request that came after a response for the same target failed or was late, so the next asked none."""
    later = [each for each in world.served if served.received <= each.asked <= now and each is not served]
    for each in later:
        came = each.response() if each.request.target == served.request.target else served.response()
        if each.received >= each.asked + PATIENCE:  # whoever waited for it was answered without it
            return True
        if came is None or not came.complete or came.status in {429, *range(500, 600)}:
            return True
    return False


def judge_succession(world: World, ask: Ask, asked: int, answer: Message, served: Served) -> None:
    """No newer answer to a request that selects it has contradicted what is answered from the store."""
    for later in world.served:
        newer = served.headed_at < later.headed_at < later.done_at < asked
        newer = newer and served.received < later.received  # two of one moment have no order
        same = later.request.target == served.request.target
        other = newer and same and is_variant(world, later, ask)
        if newer and same and not other and contradicts(world, later, served, answer):
            raise wrong("succession", f"{answer} in spite of {later.response()} to {later.request}")


def is_variant(world: World, later: Served, ask: Ask) -> bool:
    """A newer answer is for other requests: what selects one response of a target selects them all (§4.1).

    Its own Vary tells of older ones only that they are for requests without the fields that it had.
    """
    came, asks = later.response(), Message(b"", list(ask.fields), b"", True, 0)
    others = [
        each for each in world.served if each is not later and each.request.target == later.request.target
    ]
    named = {name for each in others if (said := each.response()) is not None for name in varies(said)}
    if came is not None:
        named |= varies(came) & {name for name, _ in later.request.fields}
    return any(later.request.every(name) != asks.every(name) for name in named)


PASSING = {b"authorization", b"content-length", b"if-match", b"if-unmodified-since", b"range"}
"""A request with one of these goes past the cache, or asks for something else."""


def contradicts(world: World, later: Served, served: Served, answer: Message) -> bool:
    """A complete answer says, to whoever asked, that an older response is not to be used any more."""
    came, request = later.response(), later.request
    names = {name for name, _ in request.fields}
    if came is None or not came.complete or request.method != b"GET" or names & PASSING:
        return False
    if later.sending is None or later.sending.mutated or later.sending.surplus:
        return False
    if served.sending is None or later.sending.of.version < served.sending.of.version:
        return False  # it was purged, or made obsolete, while it came
    if any(
        each.request.method not in {b"GET", b"HEAD"}
        and later.asked <= each.received
        and (each is served or each.received <= served.asked)
        for each in world.served
    ):
        return False  # an unsafe request made obsolete what had been asked for before
    if b"no-store" in request.directives or any(
        request.every(name) != served.request.every(name) for name in varies(answer)
    ):
        return False
    told = came.directives
    private = b"private" in told and told[b"private"] is None
    if came.status == 304:
        forbids = (b"no-store" in told and b"must-understand" not in told) or private
        others = not varies(came) <= varies(answer)
        return came.field(b"etag") == answer.field(b"etag") is not None and (forbids or others)
    ordinary = b"x-id" in world.rules.ordinary and not names & {b"cookie", *dict(ODD)}
    if ordinary and (came.status < 400 or came.status in {404, 410}):
        return True
    shared = came.status == 200 and not unstorable(request, came, heeds=world.heeds)
    plain = came.field(b"set-cookie") is None and b"*" not in varies(came)
    return shared and plain and bool(lifetime(came, later.received))


def varies(answer: Message) -> set[bytes]:
    """The names in a response's Vary."""
    line = (answer.field(b"vary") or b"").lower()
    return {name.strip() for name in line.split(b",")} - {b""}


def ask_directives(ask: Ask) -> dict[bytes, bytes | None]:
    return Message(b"", list(ask.fields), b"", True, 0).directives


# Requests to the origin server


def judge_forwarded(world: World, served: Served) -> None:
    request = served.request
    names = [name for name, _ in request.fields]
    known = not any(ask.mutation for ask in world.asks.values())
    hop_by_hop(request.fields, known=known)
    if known and (names.count(b"host") != 1 or request.field(b"host") != HOST):
        raise wrong("forwarded", request)
    ask = world.asks.get(request.field(b"x-id") or b"")
    changed = {each.client for each in world.asks.values() if each.mutation}
    # A request that was changed on its way may bear another's number.
    asking = request.field(b"x-forwarded-for") or b""
    if ask is None or ask.mutation or asking.decode("latin-1") in map(address, changed):
        return
    claims = request.method in {b"GET", b"HEAD"} and b"x-http-method-override" in names
    if request.field(b"x-forwarded-host") != HOST or claims:
        raise wrong("forwarded", request)
    if request.target != SPELLINGS[ask.target] or b" univocal" not in (request.field(b"via") or b""):
        raise wrong("forwarded", request)
    if request.method == ask.method and request.content != (ask.content or b""):
        raise wrong("forwarded", f"{request.content!r} for {ask.content!r}")


def judge_end(world: World) -> None:
    """No request waits, and nothing is kept for one."""
    engine, store = world.engine, world.store
    left = {
        "flights": engine.flights.named,
        "refreshing": engine.flights._refreshing,
        "leases": store.leases._live,
        "reserved": store.stats.reserved,
        "tasks": engine.tasks,
        "errors": world.failures(),
    }
    if any(left.values()):
        raise wrong("left", {name: what for name, what in left.items() if what})
