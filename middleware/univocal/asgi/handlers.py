"""The words that handlers of an application have: `cached`, `tag` and `purge`.

They find the cache by a context variable, which holds the call of the application that they are part of.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from univocal.asgi.messages import App, Receive, Scope, Send
from univocal.engine.exchange import Engine
from univocal.engine.outcome import Outcome, Purged, Times, carry_out
from univocal.http.errors import ConfigurationError, RefusedError
from univocal.http.messages import MAX_DELTA, Fields, Instructions, Response
from univocal.http.settings import DURATIONS, seconds
from univocal.judge.orders import Order, ordered
from univocal.uri.target import Canonical

logger: Final = logging.getLogger("univocal")
_FIRST_WORDS: Final = threading.Lock()  # of any call

Handler = TypeVar("Handler", bound=Callable[..., Any])
_Say: TypeAlias = Callable[[], AbstractContextManager[None]]

_NAMES: Final = 'URLs, tag="…", prefix="…", pattern="…" or everything=True'


class PurgeArguments(NamedTuple):
    """The responses that one call of `purge` names, each way of naming them at most once."""

    urls: tuple[str, ...]
    prefix: str | None = None
    tag: str | None = None
    pattern: str | None = None
    everything: bool = False
    soft: bool = False

    def documents(self) -> list[dict[str, object]]:
        """The orders, as `order_by_name` takes them. Raises TypeError for a wrong argument, ValueError."""
        for url in self.urls:
            _require("a URL", url, str, "a string")
        for name in ("prefix", "tag", "pattern"):
            _require(name, getattr(self, name), str | None, f"one string, such as {name}={_EXAMPLES[name]!r}")
        for name in ("everything", "soft"):
            _require(name, getattr(self, name), bool, "True or False")
        named: list[dict[str, object]] = []
        if self.urls:
            named.append({"url": self.urls[0]} if len(self.urls) == 1 else {"urls": list(self.urls)})
        others: dict[str, object] = {"prefix": self.prefix, "tag": self.tag, "pattern": self.pattern}
        others["all"] = True if self.everything else None
        named += [{name: value} for name, value in others.items() if value is not None]
        if not named:
            raise ValueError(f"purge: found nothing to purge; allowed: {_NAMES}")
        if self.tag == "":
            raise ValueError("purge: tag: found ''; allowed: a tag that responses have")
        return [{**each, "soft": self.soft} for each in named]

    def below(self, base: str) -> PurgeArguments:
        """The same, where paths are of the host that `base` names."""
        prefix = None if self.prefix is None else _absolute(self.prefix, base)
        return self._replace(urls=tuple(_absolute(url, base) for url in self.urls), prefix=prefix)

    def check_hosts(self, source: str = "purge", *, paths: bool = False) -> None:
        """Raise ValueError for a URL or a prefix without a host; `source` is the method that got it.

        With `paths` it may be a path.
        """
        allowed = f'a path, such as "/items/1", or {HOSTED}' if paths else HOSTED
        hint = "" if paths or source != "purge" else "; within a handler, univocal.purge takes paths"
        for url in (*self.urls, *([] if self.prefix is None else [self.prefix])):
            _require("a URL", url, str, "a string", source)
            if "://" not in url and not (paths and url.startswith("/")):
                raise ValueError(f"{source}: found {url!r}; allowed: {allowed}{hint}")


_EXAMPLES: Final = {"prefix": "http://en.example/items/", "tag": "items", "pattern": r"/items/\d+$"}
HOSTED: Final = 'an absolute URL, such as "http://en.example/items/1"'


def _absolute(url: str, base: str) -> str:
    return url if not url.startswith("/") else base + url


def _require(name: str, value: object, kind: Any, allowed: str, source: str = "purge") -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{source}: {name}: found {value!r}; allowed: {allowed}")


class Purger:
    """Purges a cache, in two steps: what is named is understood, and removed; `begin` connects its store."""

    def __init__(self, engine: Engine, begin: Callable[[], Awaitable[None]]) -> None:
        self._engine, self._begin = engine, begin

    async def orders(self, purges: PurgeArguments) -> list[Order]:
        """The orders that are named. Raises RefusedError, TypeError, ValueError."""
        return [await ordered(each, self._engine.gate.runtime) for each in purges.documents()]

    async def carry_out(self, orders: Iterable[Order], *, announced: bool = True) -> int:
        """Remove what the orders mean, and give its number. Raises RefusedError."""
        await self._begin()
        return sum([await self._carry_out(order, announced=announced) for order in orders])

    async def _carry_out(self, order: Order, *, announced: bool) -> int:
        engine, purged = self._engine, Purged(order)
        begun, ticks = engine.clock(), time.perf_counter()
        try:
            purged = await carry_out(order, engine.gate.tiers, begun)
        finally:
            seconds = time.perf_counter() - ticks
            if announced:
                engine.audience.announce(Outcome.ordered(purged, Times(begun, seconds, seconds)))
        return purged.count or 0


class HandlerCall:
    """One call of an application, by whose end its handlers have said what they say of the response."""

    def __init__(self, purger: Purger, canonical: Canonical) -> None:
        self.ended = False
        self.streamed = False  # the response has no length, and has come in several messages to its end
        self._purger = purger
        self._canonical = canonical
        self._instructions: Instructions | None = None
        self._scope: Scope = {}
        self._outer: HandlerCall | None = None  # of a cache around this one
        self._again: dict[Order, None] = {}  # each once, in their order
        self._loop = asyncio.get_running_loop()

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application; its purges are carried out a second time at its end.

        A dependency that commits after the response would else be overtaken by a response fetched between. A
        stream behind whose end the application fails is purged: Starlette's BaseHTTPMiddleware ends a stream
        that has failed, and raises the error then.
        """
        self._scope, self._outer = scope, _CALL.get()
        token = _CALL.set(self)
        try:
            await app(scope, receive, send)
        except Exception:
            if self.streamed:
                self._repeat(await self._purger.orders(PurgeArguments((self._canonical.url.decode(),))))
            raise
        finally:
            _CALL.reset(token)
            self.ended = True
            if self._again:
                await self._purge_again()

    @property
    def is_silent(self) -> bool:
        """Tell whether handlers have said nothing of the response yet."""
        return self._instructions is None

    @property
    def instructions(self) -> Instructions:
        """The words of handlers about the response; tags may be added until its end."""
        if self._instructions is None:
            with _FIRST_WORDS:  # two threads may say something at the same time
                self._instructions = self._instructions or Instructions()
        return self._instructions

    def response(self, status: int, fields: Fields) -> Response:
        """The head of the response that the application has made."""
        return Response(status, fields, instructions=self.instructions)

    # Said by handlers

    @property
    def all(self) -> list[HandlerCall]:
        """This call, and those of the caches around this one: a handler speaks to all of them."""
        return [self] if self._outer is None else [self, *self._outer.all]

    def may_be_answered_by(self, handler: object) -> bool:
        """Tell whether the response may be a handler's own: the router names no other function.

        Routers of Starlette and FastAPI name one. A class or an object may call any handler as its own.
        """
        endpoint = _innermost(self._scope.get("endpoint"))
        return endpoint is handler or not inspect.isroutine(endpoint)

    def _base(self) -> str:
        return f"{self._canonical.scheme.decode()}://{self._canonical.authority.decode()}"

    async def purge(self, purges: PurgeArguments) -> int:
        """Purge at once, and again at the end of the call. Raises what the caches' `purge` does."""
        hosted = purges.below(self._base())
        return sum([await call._purge(hosted) for call in self.all])

    async def _purge(self, purges: PurgeArguments) -> int:
        orders = await self._purger.orders(purges)
        if not self.ended and self._scope["type"] == "http":  # a WebSocket may purge for days
            self._repeat(orders)
        return await self._purger.carry_out(orders)

    def _repeat(self, orders: Iterable[Order]) -> None:
        self._again.update(dict.fromkeys(orders))

    def purge_from_thread(self, purges: PurgeArguments) -> int:
        """The same from another thread than the event loop's. Raises RuntimeError in that one."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise RuntimeError("purge.sync would stop the event loop: write `await purge(…)`")
        return asyncio.run_coroutine_threadsafe(self.purge(purges), self._loop).result()

    async def _purge_again(self) -> None:
        try:
            await self._purger.carry_out(self._again, announced=False)
        except RefusedError:  # the handler was told of it, and what is owed is purged later
            logger.warning("a purge in a handler was not confirmed at the end of its call")


_CALL: Final = ContextVar[HandlerCall | None]("univocal", default=None)


def _call(name: str, *, require: bool) -> HandlerCall | None:
    call = _CALL.get()
    if call is None and require:
        raise LookupError(f"{name}: no CacheMiddleware is around this code")
    return call


def _call_to_purge(purges: PurgeArguments, *, require: bool) -> HandlerCall | None:
    """The call of the handler that purges. Raises TypeError and ValueError for a wrong argument."""
    purges.documents()
    purges.check_hosts(paths=True)
    return _call("purge", require=require)


def tag(*tags: str, require: bool = False) -> None:
    """Give the response that is being made tags, by which it is purged; clients do not see them.

    Each is one tag, whatever its characters. Without a cache this does nothing or, with `require`, raises
    LookupError. Raises TypeError and ValueError for what is no tag.
    """
    names = _tags("tag", tags)
    call = _call("tag", require=require)
    for each in [] if call is None else call.all:
        each.instructions.tags.update(names)


def _tags(source: str, tags: Iterable[str]) -> list[bytes]:
    for each in tags:
        if not isinstance(each, str):
            raise TypeError(f"{source}: found {each!r}; allowed: strings, one for each tag")
        if not each:
            raise ValueError(f"{source}: found ''; allowed: a tag of one character or more")
    return [each.encode() for each in tags]


class _Purge:
    """`purge`, and `purge.sync` for handlers that run in a thread."""

    async def __call__(
        self,
        *urls: str,
        tag: str | None = None,
        prefix: str | None = None,
        pattern: str | None = None,
        everything: bool = False,
        soft: bool = False,
        require: bool = False,
    ) -> int:
        """Remove stored responses at once, and again when the call of this handler has ended.

        It removes those of these URLs and those that the other arguments name. Paths are of the request's own
        host. `soft` marks responses stale instead. Returns their number; 0 without a cache or, with
        `require`, raises LookupError. Raises what `CacheMiddleware.purge` does.
        """
        purges = PurgeArguments(urls, prefix, tag, pattern, everything, soft)
        call = _call_to_purge(purges, require=require)
        return 0 if call is None else await call.purge(purges)

    def sync(
        self,
        *urls: str,
        tag: str | None = None,
        prefix: str | None = None,
        pattern: str | None = None,
        everything: bool = False,
        soft: bool = False,
        require: bool = False,
    ) -> int:
        """The same for a `def` handler, from its thread. Raises RuntimeError in the event loop's."""
        purges = PurgeArguments(urls, prefix, tag, pattern, everything, soft)
        call = _call_to_purge(purges, require=require)
        return 0 if call is None else call.purge_from_thread(purges)


purge: Final = _Purge()


def cached(
    ttl: float | str | Literal[False] | None = None,
    *,
    grace: float | str | None = None,
    tags: Iterable[str] = (),
) -> Callable[[Handler], Handler]:
    """Store the responses of a handler for `ttl` seconds, as if they had Cache-Control: max-age.

    Clients do not see this lifetime, and errors do not get it. With False nothing of the handler is stored;
    without it the response's own fields and the rules decide. For `grace` more seconds a stale response is
    served while it is fetched again. `tags` name the responses for purges. A response with no-store, private
    or no-cache keeps to that. A handler that the route's own one calls gives no lifetime, but may shorten it.

    Handlers are functions, objects and classes with `__call__`, and classes of views with `dispatch`. Raises
    ConfigurationError, TypeError.
    """
    lifetime = None if ttl is None or ttl is False else _seconds("ttl", ttl)
    window = None if grace is None else _seconds("grace", grace)
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise ConfigurationError("cached", "tags", tags, 'a list of tags, such as ["items"]')
    names = _tags("cached", tuple(tags))

    words = _Words(ttl is False, lifetime, window, names)
    return lambda handler: _saying(handler, functools.partial(_speaking, words, _innermost(handler)))


class _Words(NamedTuple):
    """The words of one `cached`."""

    no_store: bool
    lifetime: int | None
    window: int | None
    tags: list[bytes]


@contextmanager
def _speaking(words: _Words, handler: object) -> Iterator[None]:
    """Say the words of a handler while it runs; one that raises takes its lifetime back.

    The answer to its error may be a page for one client.
    """
    innermost, before = _CALL.get(), []
    for call in [] if innermost is None else innermost.all:
        said, is_own = call.instructions, call.may_be_answered_by(handler)
        before.append((said, said.max_age, said.stale_while_revalidate))
        said.no_store = said.no_store or words.no_store
        said.tags.update(words.tags)
        said.max_age = _strictest(said.max_age, words.lifetime, is_own=is_own)
        said.stale_while_revalidate = _strictest(said.stale_while_revalidate, words.window, is_own=is_own)
    try:
        yield
    except BaseException:
        for said, lifetime, window in before:
            said.max_age, said.stale_while_revalidate = lifetime, window
        raise


def _strictest(before: int | None, seconds: int | None, *, is_own: bool) -> int | None:
    """The strictest of what handlers on the way of one response say; one that is only called may shorten."""
    if before is None:
        return seconds if is_own else None
    return before if seconds is None else min(before, seconds)


def _seconds(name: str, value: object) -> int:
    try:
        number = seconds(value)
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < float("inf"):
        allowed = DURATIONS + ("; False to store nothing" if name == "ttl" else "")
        raise ConfigurationError("cached", name, value, allowed)
    return min(int(number), MAX_DELTA)


def _innermost(handler: Any) -> Any:
    """The function within decorators, partial functions and methods; any other object itself."""
    inner = inspect.unwrap(handler)
    if isinstance(inner, functools.partial):
        return _innermost(inner.func)
    return _innermost(inner.__func__) if inspect.ismethod(inner) else inner


def _saying(handler: Any, say: _Say) -> Any:
    """A handler that does what it does within `say`."""
    if isinstance(handler, functools.partial) and not isinstance(handler.func, type):
        return functools.partial(_saying(handler.func, say), *handler.args, **handler.keywords)
    if isinstance(handler, type):
        own = {name for base in handler.__mro__[:-1] for name in vars(base)}
        for name in ("__call__", "dispatch"):
            if name in own:
                setattr(handler, name, _saying(getattr(handler, name), say))
                return handler
    elif inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"cached: found {handler!r}, a generator; allowed: handlers that return a response")
    elif inspect.isroutine(handler):
        return functools.wraps(handler)(_function(handler, say))
    elif callable(handler):
        kind = _AsyncCallable if inspect.iscoroutinefunction(handler.__call__) else _Callable
        return kind(handler, say)
    raise TypeError(f"cached: found {handler!r}; allowed: a handler, or a class with __call__ or dispatch")


def _function(handler: Callable[..., Any], say: _Say) -> Callable[..., Any]:
    async def saying_and_awaiting(*args: Any, **named: Any) -> Any:
        with say():
            return await handler(*args, **named)

    def saying(*args: Any, **named: Any) -> Any:
        with say():
            return handler(*args, **named)

    function: Any = saying_and_awaiting if inspect.iscoroutinefunction(handler) else saying
    # Frameworks look annotations that are texts up among the globals of the function that they are given.
    globals_of = getattr(inspect.unwrap(handler), "__globals__", globals())
    return FunctionType(function.__code__, globals_of, None, None, function.__closure__)


class _Callable:
    """An object that is called, within `say`."""

    def __init__(self, handler: Any, say: _Say) -> None:
        functools.update_wrapper(self, handler)
        self._handler, self._say = handler, say

    def __call__(self, *args: Any, **named: Any) -> Any:
        with self._say():
            return self._handler(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)


class _AsyncCallable(_Callable):
    async def __call__(self, *args: Any, **named: Any) -> Any:
        with self._say():
            return await self._handler(*args, **named)
