"""The tables `[sites.access]` and `[sites.routes.access]` become bounds on the access to sites and routes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
import shlex
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Final

from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.http.errors import ConfigurationError, Objections, RefusedError
from univocal.judge.access import Restriction, condition_of, rate_of
from univocal.judge.forward_auth import ForwardAuth
from univocal.judge.runtime import Runtime
from univocal.judge.trust import networks
from univocal_app.config.tables import AccessTable, Configuration, Name
from univocal_app.config.values import authorization_server
from univocal_app.run.certificate_files import client_ca_of, stamp_of

logger: Final = logging.getLogger("univocal")

_KINDS: Final = {"$2a$": "bcrypt", "$2b$": "bcrypt", "$2y$": "bcrypt", "$argon2": "argon2"}
_THREADS: Final = 2  # that verify passwords: each takes a core for some 100 ms
_MOST_WAITING: Final = 64
_MOST_KNOWN: Final = 4096  # credentials that are remembered, right or wrong
_LONGEST: Final = 72  # bytes that bcrypt reads of a password

_threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="univocal-passwords")


def read_users(file: Path, key: str, source: str) -> dict[bytes, bytes]:
    """The hash of each user's password. Raises ConfigurationError for an invalid file."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        allowed = f"a file of users as htpasswd -B writes it ({error.strerror or error})"
        raise ConfigurationError(source, key, str(file), allowed) from None
    users = dict[bytes, bytes]()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        name, colon, digest = line.rstrip().partition(b":")
        module = next((each for prefix, each in _KINDS.items() if digest.startswith(prefix.encode())), None)
        if not (name and colon and module):
            allowed = "lines of a name, a colon and a hash by bcrypt (htpasswd -B) or argon2"
            if name and colon and digest:
                command = shlex.join(["htpasswd", "-B", str(file), name.decode("utf-8", "replace")])
                allowed += f". Set the password anew: {command}"
            raise ConfigurationError(source, key, f"{file}, line {number}", allowed)
        try:
            import_module(module)
        except ImportError:
            allowed = "a file, after pip install 'univocal[auth]'"
            raise ConfigurationError(source, key, str(file), allowed) from None
        users[name] = digest
    return users


def _is_right(password: bytes, digest: bytes) -> bool:
    """Tell whether a hash is a password's; it takes its time."""
    if digest.startswith(b"$argon2"):
        argon2 = import_module("argon2")
        try:
            return bool(argon2.PasswordHasher().verify(digest.decode("ascii", "replace"), password))
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False
    try:
        return bool(import_module("bcrypt").checkpw(password[:_LONGEST], digest))
    except ValueError:  # the hash is cut short, or the password has a NUL
        return False


class UserFile:
    """The users of a file (`univocal.judge.access.Users`); `look` reads it again if it has changed.

    Verified credentials are remembered by a digest with a key of this process. Right ones and wrong ones are
    apart, so that wrong ones displace no others.
    """

    def __init__(self, file: Path, key: str, source: str) -> None:
        self._file, self._key, self._source = file, key, source
        self._secret = secrets.token_bytes(32)
        self._stamp = stamp_of(self._file)
        self._use(read_users(file, key, source))

    def _use(self, users: Mapping[bytes, bytes]) -> None:
        self._users = dict(users)
        # For an unknown name: its answer takes as long as a known one's.
        self._anybody = next(iter(self._users.values()), b"")
        self._known = {True: OrderedDict[bytes, None](), False: OrderedDict[bytes, None]()}
        self._waiting = dict[bytes, asyncio.Future[bool]]()

    def knows(self, credentials: bytes) -> bool | None:
        """Tell whether credentials are right; None: that has to be verified."""
        digest = self._digest(credentials)
        return next((answer for answer, known in self._known.items() if digest in known), None)

    async def verify(self, credentials: bytes) -> bool:
        """Verify credentials in a thread; requests with the same ones wait for one answer.

        Raises RefusedError if too many wait.
        """
        digest, waiting, known = self._digest(credentials), self._waiting, self._known
        future = waiting.get(digest)
        if future is None:
            if len(waiting) >= _MOST_WAITING:
                raise RefusedError("overloaded")
            future = asyncio.wrap_future(_threads.submit(self._checker(credentials)))
            waiting[digest] = future
            future.add_done_callback(lambda _: waiting.pop(digest, None))
        is_right = await asyncio.shield(future)
        seen = known[is_right]
        seen[digest] = None
        if len(seen) > _MOST_KNOWN:
            seen.popitem(last=False)
        return is_right

    def look(self) -> None:
        """Read the file again if it has changed; if it is invalid, log that and keep the users."""
        stamp = stamp_of(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._use(read_users(self._file, self._key, self._source))
        except ConfigurationError as error:
            logger.warning("the changed file of users is unreadable, the old users stay: %s", error)
        else:
            logger.warning("changed users are in force: %s", self._file)

    def _checker(self, credentials: bytes) -> Callable[[], bool]:
        name, _, password = _decoded(credentials).partition(b":")
        digest = self._users.get(name)
        checked = digest or self._anybody
        return lambda: _is_right(password, checked) and digest is not None

    def _digest(self, credentials: bytes) -> bytes:
        return blake2b(credentials, key=self._secret, digest_size=16).digest()


def _decoded(credentials: bytes) -> bytes:
    with suppress(binascii.Error):
        return base64.b64decode(credentials, validate=True)
    return b""


def restrictions_of(
    configuration: Configuration, proxies: Mapping[str, ReverseProxy] = MappingProxyType({})
) -> dict[Name, Restriction]:
    """The bounds on access by the names of sites, and of routes that have settings of their own.

    Raises ConfigurationError for what does not go together, and for invalid files of users. `proxies`
    are the ways to authorization servers, by the places of tables.
    """
    made: dict[Name, Restriction] = {}
    objections = Objections()
    reader = _Reader(configuration, proxies)
    for each in configuration.tables():
        site, route, where = each.site, each.route, f"{each.place}.access"
        authority, table = (client_ca_of(configuration, site) or "").encode(), site.access
        with objections:
            if route is None:
                named = [table, *(route.access for route in site.routes)]
                if table.private and not (authority or any(one.basic or one.forward for one in named)):
                    raise reader.nameless(where, "private", True, "basic` or `forward")
                if table.model_fields_set or authority:
                    made[each.name] = reader.restriction(site.hosts[0], table, table, where, where, authority)
            elif route.access.model_fields_set:
                merged = table.model_copy(update=route.access.written())
                name, place = f"{site.hosts[0]}{route.path}", f"{each.site_place}.access"
                made[each.name] = reader.restriction(name, merged, route.access, where, place, authority)
    objections.conclude()
    return made


def user_files(runtime: Runtime) -> Iterator[UserFile]:
    """The files of users that a runtime knows, each once."""
    restrictions = (each.restriction for each in runtime.settings.values())
    files = (each.users for each in restrictions if each is not None)
    yield from {id(each): each for each in files if isinstance(each, UserFile)}.values()


@dataclass(frozen=True)
class _Reader:
    """Reads tables of access; makes one object of what several of them name."""

    configuration: Configuration
    proxies: Mapping[str, ReverseProxy]
    files: dict[Path, UserFile] = field(default_factory=dict)
    servers: dict[tuple[str, tuple[str, ...], float], ForwardAuth] = field(default_factory=dict)

    def restriction(
        self, name: str, table: AccessTable, own: AccessTable, where: str, site: str, authority: bytes
    ) -> Restriction:
        """The bounds of a `table`, of which `own` is at the place `where`, and all else at the `site`'s."""

        def place_of(key: str) -> str:
            return where if key in own.model_fields_set else site

        users = self._users(table.basic, f"{place_of('basic')}.basic") if table.basic else None
        forward = self._forward(place_of("forward"), table) if table.forward else None
        names = "basic` or `forward"
        if own.private and not (users or forward or authority):
            raise self.nameless(where, "private", True, names)
        if forward and not table.private and "private" in table.model_fields_set:
            allowed = "true: what is stored behind `forward` is always kept by user"
            raise self.configuration.error(f"{place_of('private')}.private", False, allowed)
        if table.forward_fields and not forward and "forward_fields" in own.model_fields_set:
            raise self.nameless(where, "forward_fields", table.forward_fields, "forward")
        if own.limits and not (users or authority or (forward and table.forward_fields)):
            raise self.nameless(where, "limits", own.limits.rate, "basic` or `forward` with `forward_fields")
        conditions = [
            condition_of(subject, texts, is_required=is_required)
            for is_required, each in ((False, table.refuse), (True, table.require))
            for subject, texts in each.items()
        ]
        return Restriction(
            name,
            networks(table.allow),
            networks(table.deny),
            rate_of(table.rate) if table.rate else None,
            users,
            table.reading == "canonical",
            table.private and bool(users or authority),
            forward,
            rate_of(table.limits.rate) if table.limits else None,
            authority,
            tuple(conditions),
        )

    def nameless(self, place: str, key: str, found: object, lacking: str) -> ConfigurationError:
        """The error of a setting about users where clients have no names."""
        allowed = f"{'false' if found is True else 'none'} without `{lacking}`: nobody has a name"
        return self.configuration.error(f"{place}.{key}", found, allowed)

    def _users(self, name: str, key: str) -> UserFile:
        """The users of a file, which is read once; an invalid one is reported at each key that names it."""
        path = self.configuration.path(name)
        if path not in self.files:
            self.files[path] = UserFile(path, key, self.configuration.source)
        return self.files[path]

    def _forward(self, place: str, table: AccessTable) -> ForwardAuth:
        known = place, tuple(table.forward_fields), table.forward_ttl
        if known not in self.servers:
            names = dict.fromkeys(name.lower().encode() for name in table.forward_fields)
            proxy = self.proxies.get(place)
            next_hop = None if proxy is None else proxy.upstream
            target = authorization_server(table.forward)[1].encode()
            self.servers[known] = ForwardAuth(next_hop, target, list(names), table.forward_ttl)
        return self.servers[known]
