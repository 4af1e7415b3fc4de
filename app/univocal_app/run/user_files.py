"""Users and their passwords, in files as htpasswd(1) writes them; read again when they change."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
import shlex
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Final

from univocal.http.errors import ConfigurationError, RefusedError

logger: Final = logging.getLogger("univocal")

_KINDS: Final = {"$2a$": "bcrypt", "$2b$": "bcrypt", "$2y$": "bcrypt", "$argon2": "argon2"}
_THREADS: Final = 2  # that verify passwords: each takes a core for some 100 ms
_MOST_WAITING: Final = 64
_MOST_KNOWN: Final = 4096  # credentials that are remembered, right or wrong
_LONGEST: Final = 72  # bytes that bcrypt reads of a password

_threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="univocal-passwords")


def read_users(file: Path, key: str, source: str) -> dict[bytes, bytes]:
    """The hash of each user's password. Raises ConfigurationError for a file that cannot be."""
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
        self._stamp = self._stamped()
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
        """Verify credentials in a thread; those who come with the same meanwhile wait for one answer.

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
        """Read the file again if it has changed; if it cannot be, say so and keep the users."""
        stamp = self._stamped()
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

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def _decoded(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True)
    except binascii.Error:
        return b""
