"""One connection to the store: every call is one round trip, bounded in time, and durable when it returns.

A connection is used for the server it was opened to and for no other: each time one is opened, the server is checked,
and a server that was not seen before (restart, failover, restored copy) raises the store epoch before anything else is
called. There are no silent reconnects: what fails, fails as `LedgerUnavailable`, and the next call opens anew.
"""

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)

from scaler.ledger._valkey.address import Address, Connection, check_server, parse_info
from scaler.ledger.contract import LedgerRefused, LedgerUnavailable, StaleEpoch

_OURS: dict[str, type[Exception]] = {"STALEEPOCH": StaleEpoch, "REFUSED": LedgerRefused, "BADVALUE": ValueError}
_DENIED = (AuthenticationError, AuthorizationError, NoPermissionError)
_FOREVER = frozenset({"ERR", "WRONGTYPE", "CROSSSLOT", "NOPERM"})
"""Server errors that no repetition heals."""
_RAISED_AT = re.compile(r" script: .*?on @user_function:[0-9]+\.$")
"""What the server adds to an error of ours: no word for whoever reads it."""


@cache
def library() -> tuple[str, str]:
    """The Lua library and the prefix of its functions, which depends on its text: versions live side by side."""
    folder = files(__package__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".lua"))
    body = "\n".join((folder / name).read_text() for name in names)
    prefix = f"headrace_{hashlib.sha256(body.encode()).hexdigest()[:12]}_"
    return f"#!lua name={prefix}lib\nlocal PREFIX = '{prefix}'\n{body}", prefix


_REDIRECTIONS = 3
_FIRST_NUDGE_S, _LAST_NUDGE_S = 250e-6, 0.1
_NUDGE = [b"*1\r\n$4\r\nPING\r\n"]


class FunctionMissing(Exception):
    """The server does not have the library, or not this version of it."""


class ShardElsewhere(Exception):
    """The job's keys are on another shard of a cluster."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port}")
        self.host = host
        self.port = port


class Link:
    """Calls functions of the library for one job."""

    def __init__(
        self, address: Address, job: str, now_s: Callable[[], float] | None = None, *, reads_only: bool = False
    ) -> None:
        """`now_s` replaces the store's clock in tests; with `reads_only` the job must be there and is left as it is."""
        self._address = address
        self._now_s = now_s
        self._job = job
        self._reads_only = reads_only
        self._keys = f"headrace:{{{job}}}:"
        self._connection: Connection | None = None
        self._library, self._prefix = library()
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._wait = _packed(("WAITAOF", 1, 0, int(address.timeout_s * 900)))

    def open(self) -> None:
        """Connect now, to learn at once whether the store may be used."""
        if self._connection is None:
            self._open()

    def call(self, name: str, *args: Any, durable: bool = True) -> Any:
        """Call a function; with `durable` it returns when what it wrote is on disk."""
        try:
            return self._function(self._connection or self._open(), name, args, durable=durable)
        except ShardElsewhere as error:
            raise self._moved(error) from error

    def command(self, name: str, key: str, *args: Any) -> Any:
        """A plain command on one of the job's keys."""
        return self.send(name, self._keys + key, *args)

    def send(self, *words: Any, durable: bool = False) -> Any:
        """Any command as it is; with `durable` it returns when what it wrote is on disk."""
        try:
            return self._answer(self._connection or self._open(), _packed(words), durable=durable)
        except ShardElsewhere as error:
            raise self._moved(error) from error

    def close(self) -> None:
        """Give the connection up."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _moved(self, error: ShardElsewhere) -> LedgerUnavailable:
        self.close()
        return LedgerUnavailable(f"the job has moved to another shard ({error}); the next call goes there")

    def _open(self) -> Connection:
        """A connection to the shard that has the job: any primary of a cluster says which that is."""
        address = self._address
        for _ in range(_REDIRECTIONS):
            try:
                return self._open_at(address)
            except ShardElsewhere as error:
                address = replace(address, host=error.host or address.host, port=error.port)
        raise LedgerUnavailable("the store sends from shard to shard")

    def _open_at(self, address: Address) -> Connection:
        connection = address.connection()
        try:
            connection.connect()
            info = parse_info(self._send(connection, _packed(("INFO",)), wait=False)[0])
            check_server(info, declared_durable=address.declared_durable)
            self._attach(connection, info["run_id"])
        except (RedisError, OSError) as error:
            connection.disconnect()
            raise _translated(error) from error
        except Exception:
            connection.disconnect()
            raise
        self._connection = connection
        return connection

    def _attach(self, connection: Connection, run_id: str) -> None:
        if not self._reads_only:
            self._function(connection, "attach", (run_id, random.randrange(1, 2**31)), durable=True)
        elif not self._answer(connection, _packed(("EXISTS", self._keys + "m")), durable=False):
            raise LedgerRefused(f"there is no job {self._job!r} in this store")

    def _function(self, connection: Connection, name: str, args: Sequence[Any], *, durable: bool) -> Any:
        now = "" if self._now_s is None else repr(self._now_s())
        call = _packed((now, *args), *self._head(name))
        try:
            return self._answer(connection, call, durable=durable)
        except FunctionMissing:
            self._answer(connection, _packed(("FUNCTION", "LOAD", "REPLACE", self._library)), durable=False)
            return self._answer(connection, call, durable=durable)

    def _head(self, name: str) -> tuple[int, bytes]:
        """The words that all calls of a function begin with: how many they are, and they themselves."""
        head = self._heads.get(name)
        if head is None:
            words = ("FCALL", self._prefix + name, 1, self._keys)
            head = self._heads[name] = len(words), b"".join(_words(words))
        return head

    def _answer(self, connection: Connection, command: bytes, *, durable: bool) -> Any:
        durable = durable and not self._address.declared_durable
        reply, synced = self._send(connection, command, wait=durable)
        if isinstance(reply, ResponseError):
            raise _translated(reply) from reply
        if durable and (isinstance(synced, ResponseError) or synced[0] < 1):
            raise LedgerUnavailable("the store has not synced its append-only file in time; is appendfsync set to no?")
        return reply

    def _send(self, connection: Connection, command: bytes, *, wait: bool) -> tuple[Any, Any]:
        """One round trip: the reply, and that to WAITAOF. Refusals come back as values, so that every reply is read."""
        try:
            connection.send_packed_command([command + self._wait if wait else command], check_health=False)
            reply = _read(connection)
            return reply, _read_nudging(connection) if wait else None
        except (RedisError, OSError) as error:
            self._connection = None
            connection.disconnect()
            raise _translated(error) from error
        except BaseException:
            # Interrupted between question and answer: what comes next on this connection would be somebody else's.
            self._connection = None
            connection.disconnect()
            raise


def _packed(words: Sequence[Any], more: int = 0, head: bytes = b"") -> bytes:
    """A command in the protocol's form. `head`: `more` words before these that are packed already.

    The library's own packing costs a good part of a call.
    """
    return b"".join((b"*%d\r\n" % (more + len(words)), head, *_words(words)))


def _words(words: Sequence[Any]) -> list[bytes]:
    pieces: list[bytes] = []
    for word in words:
        text = word if isinstance(word, bytes) else str(word).encode()
        pieces += (b"$%d\r\n" % len(text), text, b"\r\n")
    return pieces


def _read(connection: Connection) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def _read_nudging(connection: Connection) -> Any:
    """The reply to WAITAOF. A server with nothing to do looks ten times a second only whether its log is on disk."""
    nudges, delay_s = 0, _FIRST_NUDGE_S
    while delay_s < _LAST_NUDGE_S and not connection.can_read(delay_s):
        connection.send_packed_command(_NUDGE, check_health=False)
        nudges, delay_s = nudges + 1, 2 * delay_s
    reply = _read(connection)
    for _ in range(nudges):
        _read(connection)
    return reply


def _translated(error: Exception) -> Exception:
    """The contract's error for the client library's."""
    text = str(error)
    code, _, rest = text.partition(" ")
    code = getattr(error, "status_code", None) or code
    if code in _OURS:
        return _OURS[code](_RAISED_AT.sub("", rest))
    if isinstance(error, MovedError):
        return ShardElsewhere(error.host, error.port)
    if text == "Function not found":
        return FunctionMissing(text)
    if isinstance(error, _DENIED):
        return LedgerRefused(f"the store denies access: {text}")
    if isinstance(error, ResponseError) and not isinstance(error, BusyLoadingError | OutOfMemoryError):
        return LedgerRefused(f"the store refuses the call: {text}") if code in _FOREVER else LedgerUnavailable(text)
    return LedgerUnavailable(f"the store does not answer: {text}")
