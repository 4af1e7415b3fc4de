"""An intermediary drops, changes and adds fields of the messages that pass it (RFC 9110 §7.6). Pure.

It also lets a connection become another protocol's (§7.8).
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from univocal.http.errors import RefusedError
from univocal.http.grammar import SIGNS, is_token, quoted
from univocal.http.messages import (
    LENGTH_DIGITS,
    RETRIEVAL,
    Field,
    Fields,
    Response,
    content_length_value,
    cookie_names,
    values,
)
from univocal.http.tables import remember

_PSEUDONYM: Final = b"univocal"
VIA: Final = b"1.1 " + _PSEUDONYM
# A member of a Via that names this pseudonym as the one by which the message was received.
_OUR_HOP: Final = re.compile(rb"(?:\A|,)[ \t]*[^ \t,]+[ \t]+%b(?![^ \t,])" % _PSEUDONYM)

# A chain of proxies may hold several of this kind, with one pseudonym; a longer one goes in circles.
MOST_TIMES_HERE: Final = 16

# RFC 9110 §7.6.1: meant for the next hop only, whether Connection names them or not. The proxy
# credentials are consumed by the first proxy (§11.7), and to the client this one is the origin server.
HOP_BY_HOP: Final = frozenset(
    b"connection http2-settings keep-alive proxy-authenticate proxy-authentication-info "
    b"proxy-authorization proxy-connection te trailer transfer-encoding upgrade".split()
)

# "A sender MUST NOT send a connection option corresponding to a field that is intended for all
# recipients" (§7.6.1). A client that does wants a check or a cache key to miss what the origin needs.
_PROTECTED: Final = frozenset(
    b"accept-ranges age authorization cache-control cdn-cache-control cookie date etag expect expires "
    b"forwarded host last-modified location max-forwards origin pragma range set-cookie "
    b"strict-transport-security uri-path-encoding uri-query-encoding vary via warning "
    b"www-authenticate".split()
)
_PROTECTED_FAMILIES: Final = (b"access-control-", b"content-", b"if-", b"sec-", b"x-forwarded-")

# Fields that frameworks read in place of the request's own method. WordPress's editor deletes by a POST with
# one. A GET or HEAD with one would be answered by what is stored for it, or store what answers another
# method.
METHOD_OVERRIDES: Final = frozenset(
    b"x-http-method x-http-method-override x-method x-method-override x-request-method".split()
)
# Fields that pages of a framework send with a POST, and that name another URL in a GET.
_FOR_UNSAFE: Final = METHOD_OVERRIDES | {b"x-sveltekit-pathname", b"x-sveltekit-search"}
_ZERO: Final = 0x30

# The fields by which an intermediary tells for whom it asks, and by which scheme it was asked. No client
# has a reason to send one of them with a request of its own.
_SENDER: Final = frozenset(
    b"forwarded x-forwarded x-forward-for forwarded-for forwarded-for-ip forwarded-host forwarded-proto "
    b"x-original-for x-original-forwarded-for x-original-remote-addr x-coming-from "
    b"true-client-ip cf-connecting-ip cf-connecting-ipv6 fastly-client-ip fly-client-ip do-connecting-ip "
    b"x-azure-clientip x-appengine-user-ip x-appengine-remote-addr x-nf-client-connection-ip "
    b"x-vercel-forwarded-for x-vercel-proxied-for x-envoy-external-address x-sucuri-clientip incap-client-ip "
    b"x-real-ip real-ip x-client-ip client-ip x-cluster-client-ip proxy-client-ip wl-proxy-client-ip "
    b"x-originating-ip x-remote-ip x-remote-addr x-proxyuser-ip x-custom-ip-authorization "
    b"x-scheme x-url-scheme x-client-scheme x-proto x-client-proto x-https x-ssl x-arr-ssl front-end-https "
    b"cloudfront-forwarded-proto cf-visitor x-appservice-proto x-appengine-https wl-proxy-ssl "
    b"ssl-offloaded".split()
)
_SENDER_FAMILIES: Final = (b"x-forwarded-",)

# Fields that frameworks and servers read in place of the request's own URL, host, port, prefix, method or
# user as well, or that their own parts send one another; what makes them hand out files by a path of the
# client's; and "proxy", which CGI hands to programs as HTTP_PROXY. The test of each names its reader.
_UNTRUSTED: Final = (
    _FOR_UNSAFE
    | _SENDER
    | frozenset(
        # host
        b"x-host x-host-override x-http-host x-http-host-override x-real-host x-proxy-host proxy-host "
        b"fastly-host fastly-orig-host x-backend-host "
        # URL and prefix
        b"x-rewrite-url x-rewrite-uri x-rewrite-path x-override-url x-override-uri x-proxy-url proxy-url "
        b"x-real-url x-real-uri x-request-uri x-request-url request-uri x-http-path-override x-path-info "
        b"x-envoy-original-path x-envoy-original-host x-envoy-original-url x-waws-unencoded-url "
        b"x-matched-path x-now-route-matches x-forward-host x-forward-proto x-http-status-code-override "
        b"x-url x-uri x-replaced-path x-override-host host-override x-ingress-path "
        b"x-script-name script-name x-base-url base-url http-url x-http-destinationurl x-ms-original-url "
        # parts of a framework
        b"x-nextjs-data x-nextjs-request-id x-nextjs-html-request-id x-nextjs-postponed next-resume "
        b"x-next-resume-state-length x-nuxt-no-ssr x-nuxt-error x-nitro-prerender x-react-router-spa-mode "
        b"x-react-router-prerender-data x-astro-path x-astro-locals x-sveltekit-error "
        # port
        b"x-port x-server-port "
        # files
        b"x-send-file x-reproxy-url x-reproxy-file "
        # fragments and buffers
        b"surrogate-capability x-php-ob-level "
        # environment
        b"https path-info proxy query-string remote-addr remote-host remote-user script-filename "
        b"php-auth-user php-auth-pw php-auth-digest "
        # WebSphere's $WSSN and its like
        b"-wsat -wscc -wscs -wsis -wsks -wsla -wspc -wspr -wsra -wsrh -wsru -wssc -wssi -wssn -wssp".split()
    )
)
_UNTRUSTED_FAMILIES: Final = (
    *_SENDER_FAMILIES,
    *b"x-original- x-accel- x-sendfile x-lighttpd- x-middleware- x-invoke-".split(),
)

# The fields of most requests: one subtraction of sets tells them apart, and nothing looks further.
_USUAL: Final = frozenset(
    b"accept accept-encoding accept-language cache-control connection content-length content-type cookie dnt "
    b"host if-modified-since if-none-match origin pragma priority range referer sec-ch-ua sec-ch-ua-mobile "
    b"sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user "
    b"upgrade-insecure-requests user-agent".split()
)

# Fields of requests that have content, or that may be for another method.
_WEIGHED: Final = _FOR_UNSAFE | {b"content-length", b"expect", b"transfer-encoding"}

# CGI and WSGI write every field name in capitals with "_" for "-" (some servers for any other sign, too),
# so that to the application such a spelling is the field itself.
AS_CGI_READS: Final = bytes.maketrans(SIGNS, b"-" * len(SIGNS))


class ForwardedNames:
    """The conclusions from the names of a request's fields, in their order, for forwarding it."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.host = names.index(b"host") if b"host" in names else -1  # where Host stands
        self.counts = b"max-forwards" in names
        self.has_via = b"via" in names
        self.connects = b"connection" in names
        self.is_chunked = b"transfer-encoding" in names
        # It has no content. The names and Connection decide which fields go on, whatever the method is.
        self.is_plain = _WEIGHED.isdisjoint(names)
        untrusted = frozenset([name for name in names if name not in _USUAL and _is_untrusted(name)])
        nearest = HOP_BY_HOP.intersection(names) | {b"host"}
        self.nearest = nearest | {name for name in untrusted if _tells_the_sender(name[:64])}  # written anew
        self.dropped = nearest | untrusted


# Clients use few sets of names: so many are remembered, of at most so many bytes.
_MOST: Final = 1024
_LONGEST: Final = 2048
_concluded: Final[dict[tuple[bytes, ...], ForwardedNames]] = {}


def forwarded_names(names: tuple[bytes, ...]) -> ForwardedNames:
    """The conclusions from these names of a request's fields, in lower case."""
    concluded = _concluded.get(names)
    if concluded is None:
        concluded = ForwardedNames(names)
        if sum(map(len, names)) <= _LONGEST:
            remember(_concluded, names, concluded, _MOST)
    return concluded


def request_fields(
    fields: Sequence[Field],
    *,
    host: bytes,
    client: str | None,
    scheme: bytes,
    method: bytes = b"GET",
    authority: bytes | None = None,
    forwarded_for: Sequence[bytes] = (),
    via: bytes = VIA,
    names: ForwardedNames | None = None,
    screened: bool = False,
) -> Fields:
    """The fields with which a received request is forwarded (RFC 9110 §7.6, RFC 7239).

    `host` is the Host field sent; `authority` what the client asked for (default: `host`). `client` is the
    peer's address, `forwarded_for` the addresses before it that a trusted proxy vouched for. `names` are the
    conclusions from the fields' names, if the caller has them. `screened` fields have been through
    `end_to_end`, without those that Connection names. Content whose length is unknown stays chunked. Trailers
    are not relayed: TE goes no further.
    """
    names = names or forwarded_names(tuple([name for name, _ in fields]))
    dropped = names.nearest if screened else names.dropped
    if not names.is_plain:
        fields = framed_anew(fields)
        if method not in RETRIEVAL:
            dropped -= _FOR_UNSAFE
    if names.connects and not screened:
        dropped |= connection_options(fields)
    forwarded = [(b"host", host), *[field for field in fields if field[0] not in dropped]]
    if names.is_chunked:
        # RFC 9112 §6.3: Transfer-Encoding overrides Content-Length, and the coding is this hop's own.
        forwarded = [field for field in forwarded if field[0] != b"content-length"]
        forwarded.append((b"transfer-encoding", b"chunked"))
    authority = host if authority is None else authority
    is_direct = not forwarded_for and len(authority) <= 255  # clients that are many, and ask often
    sender = _direct_sender_fields if is_direct else sender_fields
    forwarded += sender(authority, client, scheme, tuple(forwarded_for))
    forwarded.append((b"via", via))  # RFC 9110 §7.6.3
    return forwarded


def response_fields(fields: Sequence[Field], *, status: int = 200, date: bytes | None = None) -> Fields:
    """The fields with which a received response is forwarded; `date` is used where Date is missing.

    Raises RefusedError if the Content-Length is no number, or two.
    """
    named = dict(fields)
    length = named.get(b"content-length", b"1")
    # Without leading zeros, and as `content_length_value` has it.
    is_number = length.isdigit() and length[0] != _ZERO and len(length) <= LENGTH_DIGITS
    if len(named) < len(fields) or not is_number:
        framed = one_length(fields)
        if framed is None:
            raise RefusedError("origin-bad-response")
        fields = framed
    dropped = HOP_BY_HOP.intersection(named)
    if b"connection" in dropped:
        dropped |= connection_options(fields)
    if status == 204 or status < 200:
        dropped |= {b"content-length"}  # RFC 9110 §8.6: a server MUST NOT send it in these
    forwarded = [field for field in fields if field[0] not in dropped] if dropped else list(fields)
    if date is not None and b"date" not in named:
        forwarded.append((b"date", date))  # RFC 9110 §6.6.1
    forwarded.append((b"via", VIA))
    return forwarded


def end_to_end(
    fields: Sequence[Field], method: bytes = b"GET", keyed: AbstractSet[bytes] = frozenset()
) -> Fields:
    """`fields` without those that claim another URL, host, scheme, port, prefix, user or peer address.

    A GET or HEAD loses those that claim another method, too; no other `method` is answered from the cache.
    Fields that Connection names do not go on either, but for those that are known to be meant for this hop: a
    cache that chose a variant by one would keep what the origin server answered without it. Fields that are
    `keyed` stay, in this one spelling.
    """
    names = {name for name, _ in fields}
    dropped = _untrusted(names - _USUAL, method) if not names <= _USUAL else set()
    if keyed:
        dropped -= keyed
        dropped |= {name for name in names - keyed if name[:64].translate(AS_CGI_READS) in keyed}
    if b"connection" in names:
        dropped |= connection_options(fields) - HOP_BY_HOP
    return [field for field in fields if field[0] not in dropped] if dropped else list(fields)


def speaks_for_another(names: AbstractSet[bytes]) -> bool:
    """Tell whether one of these field names (lower case) says that somebody else made the request."""
    unusual = names - _USUAL
    return bool(unusual) and any(_tells_the_sender(name[:64]) for name in unusual)  # no known one is so long


def forwards_left(method: bytes, fields: Sequence[Field]) -> Fields | None:
    """`fields` with Max-Forwards one less; None: answer here, forward no further (RFC 9110 §7.6.2).

    Only OPTIONS and TRACE count hops; a value that is no number is left alone.
    """
    if method not in (b"OPTIONS", b"TRACE"):
        return list(fields)
    counted: Fields = []
    for name, value in fields:
        left = value.strip(b" \t")
        if name != b"max-forwards" or not left.isdigit():
            counted.append((name, value))
        elif left.strip(b"0"):
            # The value may be lowered to the largest that is supported here: nine digits.
            counted.append((name, b"%d" % (int(left.lstrip(b"0")[:9]) - 1)))
        else:
            return None
    return counted


def times_here(fields: Sequence[Field]) -> int:
    """The number of times that a request has come through a proxy of this pseudonym (RFC 9110 §7.6.3)."""
    return sum([len(_OUR_HOP.findall(value)) for value in values(fields, b"via")])


def request_has_content(fields: Sequence[Field]) -> bool:
    """A received HTTP/1.1 request announces content (RFC 9112 §6)."""
    for name, value in fields:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t").strip(b"0")):
            return True
    return False


def framed_anew(fields: Sequence[Field]) -> Fields:
    """The fields of a request with a Content-Length that can be read in one way alone (RFC 9110 §8.6).

    A client without content waits for no 100 (Continue), whatever its Expect field says. A server that waits
    for such content would never end: the expectation is not forwarded (§10.1.1).
    """
    names = [name for name, _ in fields]
    if b"content-length" not in names and b"expect" not in names:
        return list(fields)
    waits = request_has_content(fields)
    framed: Fields = []
    for name, value in fields:
        if name == b"content-length" and (length := content_length_value(value)) is not None:
            framed.append((name, b"%d" % length))
        elif name != b"expect" or waits or not _expects_continue(value):
            framed.append((name, value))
    return framed


def _expects_continue(value: bytes) -> bool:
    return b"100-continue" in [member.strip(b" \t") for member in value.lower().split(b",")]


def one_length(fields: Sequence[Field]) -> Fields | None:
    """The fields of a response with one Content-Length, a number without leading zeros (RFC 9110 §8.6).

    Repeated, as a list or in lines of its own, it means the same; None where it is no number, or two.
    """
    lines = values(fields, b"content-length")
    if not lines or (len(lines) == 1 and _is_plain(lines[0])):
        return list(fields)
    lengths = {member.strip(b" \t") for line in lines for member in line.split(b",")}
    length = content_length_value(lengths.pop()) if len(lengths) == 1 else None
    if length is None:
        return None
    framed = [field for field in fields if field[0] != b"content-length"]
    place = next(place for place, field in enumerate(fields) if field[0] == b"content-length")
    framed.insert(place, (b"content-length", b"%d" % length))
    return framed


def _is_plain(length: bytes) -> bool:
    """Tell whether a length is written in the shortest way, and is no larger than any file."""
    return length.isdigit() and len(length) < 16 and (length[0] != 0x30 or length == b"0")


def connection_options(fields: Sequence[Field]) -> frozenset[bytes]:
    """The names of fields that Connection makes this hop's own, lower case (RFC 9110 §7.6.1).

    A field that is meant for all recipients is none of them, even if Connection names it.
    """
    lines = [value for name, value in fields if name == b"connection"]
    if len(lines) == 1 and len(lines[0]) <= 64:
        return _options_in(lines[0])
    # Thousands may be named, and none of them sent.
    return _options(lines, {name for name, _ in fields}) if lines else frozenset()


def _options(lines: Iterable[bytes], sent: Collection[bytes] | None = None) -> frozenset[bytes]:
    named = {*b",".join(lines).lower().replace(b" ", b",").replace(b"\t", b",").split(b",")} - {b""}
    present = named if sent is None else named.intersection(sent)
    return frozenset(name for name in present if not _is_protected(name))


@lru_cache(maxsize=256)
def _options_in(line: bytes) -> frozenset[bytes]:
    return _options([line])


def _is_protected(name: bytes) -> bool:
    return name in _PROTECTED or name.startswith(_PROTECTED_FAMILIES)


def _untrusted(names: AbstractSet[bytes], method: bytes) -> set[bytes]:
    """Those of `names` that a stranger may not send with this method."""
    untrusted = {name for name in names if _is_untrusted(name)}
    return untrusted if method in RETRIEVAL else untrusted - _FOR_UNSAFE


def _is_untrusted(name: bytes) -> bool:
    return _short_is_untrusted(name) if len(name) <= 64 else _claims(name)


@lru_cache(maxsize=1024)
def _tells_the_sender(name: bytes) -> bool:
    read = name.translate(AS_CGI_READS)
    return read in _SENDER or read.startswith(_SENDER_FAMILIES)


def _claims(name: bytes) -> bool:
    """The field claims something for the client, in any of the spellings that CGI reads alike."""
    read = name.translate(AS_CGI_READS)
    if read in _UNTRUSTED or read.startswith(_UNTRUSTED_FAMILIES):
        return True
    # A second spelling of a field that framing, a cache or a check depends on, which none of them would see.
    return read != name and (read in HOP_BY_HOP or _is_protected(read) or read.startswith(b"accept-"))


_short_is_untrusted: Final = lru_cache(maxsize=1024)(_claims)


def sender_fields(
    authority: bytes, client: str | None, scheme: bytes, before: Sequence[bytes] = ()
) -> tuple[Field, ...]:
    """X-Forwarded-* and Forwarded as they name the client, the host and the scheme (RFC 7239).

    `before` are the addresses of those for whom `client` asks.
    """
    # RFC 7239 §6 knows no IPv6 zone, and it means nothing to another machine.
    peer = client.partition("%")[0].encode("ascii", "replace") if client else b""
    addresses = [*before, peer] if peer else list(before)
    fields: Fields = []
    if addresses:
        fields.append((b"x-forwarded-for", b", ".join(addresses)))
    fields.append((b"x-forwarded-host", authority))
    fields.append((b"x-forwarded-proto", scheme))
    hops = [b"for=" + _node(address) for address in before]
    hops.append(b"for=%b;host=%b;proto=%b" % (_node(peer or b"unknown"), _value(authority), scheme))
    return (*fields, (b"forwarded", b", ".join(hops)))


_direct_sender_fields: Final = lru_cache(maxsize=1024)(sender_fields)


def _node(address: bytes) -> bytes:
    """An address as RFC 7239 §6 writes it: IPv6 in brackets and quotes."""
    if address.count(b":") > 1 and not address.startswith(b"["):
        address = b"[%b]" % address
    return _value(address)


def _value(text: bytes) -> bytes:
    """`text` as a token where it is one, else as a quoted-string (RFC 9110 §5.6)."""
    return text if is_token(text) else quoted(text)


_AFFINITY: Final = b"univocal-origin"  # all cookies whose names begin so are ours
_TAG: Final = re.compile(rb"[0-9a-f]{4}")
_FOR_OTHERS: Final = (b"public", b"s-maxage")


class Affinity:
    """The cookie that keeps clients at one of a route's origin servers (RFC 6265 §4.1).

    Each `path` has its own: a client may have another origin server there; b"" is a whole site. `setting` is
    "cookie" for all clients, "cookie:NAME" for those to which the application has given that cookie.
    """

    def __init__(self, setting: str, path: bytes) -> None:
        self._session: Final = setting.partition(":")[2].encode()
        path_tag = b"-" + blake2b(path, digest_size=4).hexdigest().encode() if path else b""
        self._name: Final = _AFFINITY + path_tag

    def take(self, fields: Fields) -> tuple[Fields, bytes]:
        """The fields of a request without our cookies, and the origin server's tag; b"": it has none."""
        if not any(field == b"cookie" and _AFFINITY in value for field, value in fields):
            return fields, b""
        kept, tag = list[Field](), b""
        for field, value in fields:
            if field != b"cookie" or _AFFINITY not in value:
                kept.append((field, value))
                continue
            others = list[bytes]()
            for pair in value.split(b";"):
                cookie, _, given = pair.strip(b" \t").partition(b"=")
                if not cookie.startswith(_AFFINITY):
                    others.append(pair)
                elif cookie == self._name and _TAG.fullmatch(given):
                    tag = given
            if others:
                kept.append((field, b";".join(others).strip(b" \t")))
        return kept, tag

    def concerns(self, asked: Fields, answered: Fields) -> bool:
        """Tell whether a client stays, by the fields of its request and of the response to it."""
        session = self._session
        if not session or session in cookie_names(asked):
            return True
        set_cookies = values(answered, b"set-cookie")
        return any(line.partition(b"=")[0].strip(b" \t") == session for line in set_cookies)

    def keep(self, response: Response, known: bytes, scheme: bytes) -> Response:
        """The response to a client with the `known` tag, with the cookie if that is news to it.

        The caller leaves out responses that are stored. One that says that others may store it gets no
        cookie, either: a cache in front of us would send all of its clients to one origin server.
        """
        tag, directives = response.origin_tag, b",".join(values(response.fields, b"cache-control")).lower()
        if tag in {b"", known} or any(directive in directives for directive in _FOR_OTHERS):
            return response
        secure = b"; Secure" if scheme == b"https" else b""
        cookie = b"%b=%b; Path=/; HttpOnly; SameSite=Lax%b" % (self._name, tag, secure)
        return Response(response.status, [*response.fields, (b"set-cookie", cookie)], server=response.server)


# A connection becomes another protocol's (§7.8)
#
# A tunnel opened by mistake lets a client reach the server at its other end past every check. So univocal
# opens one only if the request names one protocol in the one unambiguous form. The origin server's answer has
# to match it.

WEBSOCKET: Final = b"websocket"
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 §1.3

# By these a client would send requests past the cache and every check: request smuggling, if to order.
_CARRY_HTTP: Final = frozenset((b"h2", b"h2c", b"h3", b"http", b"tls"))


class Line(Protocol):
    """A connection that may be given away after a 101, to speak another protocol."""

    def switch(self, end: Any) -> Switched:
        """Give the connection to `end`, an asyncio protocol, which hears of all that comes from now on."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Ignore it: `end` reports the close."""


class Switched(NamedTuple):
    """A connection that was given away."""

    transport: Any  # asyncio's
    early: bytes = b""  # bytes that have come behind the messages of HTTP
    full: bool = False  # it takes no more for now


class Switching(Response):
    """A 101: its head, and the connection to the origin server that it speaks of."""

    def __init__(self, status: int, fields: Fields, line: Line) -> None:
        super().__init__(status, fields)
        self.line = line


def requested_upgrade(
    method: bytes, version: str, fields: Sequence[Field], allowed: Collection[bytes]
) -> bytes:
    """The one protocol that a request asks to switch to, b"" if it asks for none that is `allowed`.

    Names are compared without regard to case, and `allowed` has them in lower case. Content could be of
    the old protocol or of the new one, and HTTP/1.0 has no such field.
    """
    lines = values(fields, b"upgrade")
    if len(lines) != 1 or version != "1.1" or method == b"HEAD" or request_has_content(fields):
        return b""
    protocol = lines[0].strip(b" \t")
    if protocol.lower() not in allowed or not _names_upgrade(fields):
        return b""
    # RFC 6455 §4.1: the method of a WebSocket's handshake is GET.
    return b"" if protocol.lower() == WEBSOCKET and method != b"GET" else protocol


def carries_http(protocol: bytes) -> bool:
    """Tell whether requests of HTTP could be sent by a protocol of this name."""
    name, _, _ = protocol.lower().partition(b"/")
    return name in _CARRY_HTTP


def is_protocol(name: bytes) -> bool:
    """Tell whether `name` is a protocol's, with or without a version (RFC 9110 §7.8)."""
    protocol, slash, version = name.partition(b"/")
    return is_token(protocol) and (is_token(version) or not slash)


def upgrade_fields(protocol: bytes) -> Fields:
    """The two fields by which a message speaks of switching to `protocol`."""
    return [(b"connection", b"Upgrade"), (b"upgrade", protocol)]


def switching_fields(requested: bytes, request: Sequence[Field], fields: Sequence[Field]) -> Fields:
    """The fields with which a 101 is passed on. Raises RefusedError if it is no answer to what was asked.

    RFC 9110 §7.8: it names the protocol, which is the one asked for. RFC 6455 §4.2.2: a WebSocket's proves by
    the client's key that the origin server has read this handshake.
    """
    protocols = [value.strip(b" \t").lower() for value in values(fields, b"upgrade")]
    if not requested or protocols != [requested.lower()] or not _names_upgrade(fields):
        raise RefusedError("origin-bad-response")
    if requested.lower() == WEBSOCKET and not _accepts(request, fields):
        raise RefusedError("origin-bad-response")
    return [*response_fields(fields, status=101), *upgrade_fields(protocols[0])]


def _accepts(request: Sequence[Field], fields: Sequence[Field]) -> bool:
    keys, accepted = values(request, b"sec-websocket-key"), values(fields, b"sec-websocket-accept")
    if len(keys) != 1 or len(accepted) != 1:
        return False
    digest = hashlib.sha1(keys[0].strip(b" \t") + _GUID, usedforsecurity=False).digest()
    return accepted[0].strip(b" \t") == codecs.encode(digest, "base64").strip()


def _names_upgrade(fields: Sequence[Field]) -> bool:
    options = b",".join(values(fields, b"connection")).lower().split(b",")
    return b"upgrade" in [option.strip(b" \t") for option in options]
