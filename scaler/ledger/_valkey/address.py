"""A Valkey ledger's URL, and what a server must be like before anything is written to it.

`valkey://host:port/db`, or `valkeys://user:secret@host:port/db` with TLS. Parameters:
`durability=declared` - the operator vouches that the store is durable by itself: no append-only file, no WAITAOF;
`objects=/folder` - where bodies above 64 KiB lie; `timeout_s=5` - bound of every answer; `ca=/file` - CA of the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from redis import connection as client

from scaler.ledger.contract import LedgerRefused, LedgerUnavailable

_FUNCTIONS_SINCE, _WAITAOF_SINCE = (7, 0), (7, 2)
_PARAMETERS = frozenset({"durability", "objects", "timeout_s", "ca"})


class Connection(Protocol):
    """What is used of the client library's connection, which has no types of its own."""

    def connect(self) -> None:
        """Open, authenticate, choose the database."""
        ...

    def disconnect(self) -> None:
        """Close."""
        ...

    def send_packed_command(self, command: Sequence[bytes], check_health: bool) -> None:
        """Send bytes."""
        ...

    def can_read(self, timeout: float) -> bool:
        """Whether something comes within `timeout` seconds."""
        ...

    def read_response(self, disable_decoding: bool) -> Any:
        """The next reply; raises the server's refusals."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the store is and what the operator says about it."""

    host: str
    port: int
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca: str | None = None
    declared_durable: bool = False
    objects: Path | None = None
    timeout_s: float = 5.0

    def connection(self) -> Connection:
        """A connection that is not open yet, with a bound on every wait."""
        common: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "db": self.db,
            "username": self.username,
            "password": self.password,
            "socket_timeout": self.timeout_s,
            "socket_connect_timeout": self.timeout_s,
            "protocol": 2,
            "driver_info": None,
        }
        if self.tls:
            return cast("Connection", client.SSLConnection(**common, ssl_ca_certs=self.ca))
        return cast("Connection", client.Connection(**common))  # type: ignore[no-untyped-call]


def parse_url(url: str) -> Address:
    """The address in `url`; `LedgerRefused` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        if unknown := set(options) - _PARAMETERS:
            raise ValueError(f"unknown parameter {min(unknown)!r}; there are {', '.join(sorted(_PARAMETERS))}")
        if options.get("durability", "declared") != "declared":
            raise ValueError("durability can only be 'declared'")
        timeout_s, database = options.get("timeout_s", "5"), parts.path.strip("/") or "0"
        if not (timeout_s.isascii() and database.isascii()):
            raise ValueError("numbers are written with the digits 0 to 9")
        if not float(timeout_s) > 0:
            raise ValueError("timeout_s must be above 0")
        return Address(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 6379,
            db=int(database),
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=parts.scheme == "valkeys",
            ca=options.get("ca"),
            declared_durable="durability" in options,
            objects=Path(options["objects"]) if "objects" in options else None,
            timeout_s=float(timeout_s),
        )
    except ValueError as error:
        raise LedgerRefused(f"ledger URL: {error}") from error


def check_server(info: Mapping[str, str], *, declared_durable: bool) -> None:
    """`LedgerRefused`, with the remedy, where the server could lose what it acknowledged.

    `LedgerUnavailable` while it loads: it tells its log as switched off until all of it was read.
    """
    if info.get("loading") == "1":
        raise LedgerUnavailable("the store is loading its data")
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if info.get("role") != "master":
        raise LedgerRefused("this server is a replica: give the address of the primary")
    if info.get("maxmemory_policy") != "noeviction":
        raise LedgerRefused(
            f"maxmemory-policy is {info.get('maxmemory_policy')}: units could be evicted; set it to noeviction"
        )
    if declared_durable and version >= _FUNCTIONS_SINCE:
        return
    if version < _WAITAOF_SINCE:
        raise LedgerRefused(
            f"server {info['redis_version']} is too old to wait for its log: use Valkey 7.2 or newer, "
            "or add ?durability=declared if the store is durable by itself (that needs 7.0)"
        )
    if info.get("aof_enabled") != "1":
        raise LedgerRefused(
            "appendonly is off: a restart would lose acknowledged work; set appendonly yes, "
            "or add ?durability=declared if the store is durable by itself"
        )


def parse_info(text: bytes) -> dict[str, str]:
    """INFO's fields."""
    lines = (line.partition(":") for line in text.decode().splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in lines}
