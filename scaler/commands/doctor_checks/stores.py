"""What a ledger's store is, before any job is opened in it: version and durability, judged by its engine's own rules.

A new engine of `scaler.ledger.registry` is one function and one line in `STORES`.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scaler.commands.doctor_checks.base import Line, fail, ok, warn
from scaler.ledger.contract import LedgerRefused

_ABOUT = "ledger's store"
_INFO = b"*1\r\n$4\r\nINFO\r\n"


def look_at(url: str, made: frozenset[Path] = frozenset()) -> Line:
    """One line; blocks. The URL's password is never in it. `made`: folders that the controller makes when it starts."""
    scheme = urlsplit(url).scheme
    if scheme not in STORES:
        return fail(_ABOUT, f"scheme {scheme!r} is no engine's", f"use one of {', '.join(sorted(STORES))}")
    return STORES[scheme](url, made)


def shown(url: str) -> str:
    """The URL without user, password and parameters."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _sqlite(url: str, made: frozenset[Path]) -> Line:
    path = Path(unquote(urlsplit(url).path))
    about = f"{_ABOUT} {path}"
    if path.exists():
        return ok(about, f"SQLite {sqlite3.sqlite_version}, a file; every call is synced before it returns")
    if not path.parent.is_dir() and path.parent not in made:
        return fail(about, f"there is no folder {path.parent}", f"mkdir -p {path.parent}")
    return warn(about, "is not there yet", "the controller makes it when it starts, dry run or not")


def _valkey(url: str, _: frozenset[Path]) -> Line:
    try:
        from redis.exceptions import RedisError

        from scaler.ledger._valkey.address import check_server, parse_info, parse_url
    except ImportError:
        return fail(_ABOUT, "the client library is not installed", "pip install 'headrace[valkey]'")
    about = f"{_ABOUT} {shown(url)}"
    try:
        address = parse_url(url)
        connection = address.connection()
        try:
            connection.connect()
            connection.send_packed_command([_INFO], check_health=False)
            info = parse_info(connection.read_response(disable_decoding=True))
        finally:
            connection.disconnect()
        check_server(info, declared_durable=address.declared_durable)
    except LedgerRefused as error:
        return fail(about, f"refused: {error}", "as it says")
    except (RedisError, OSError) as error:
        return fail(
            about, f"does not answer: {error}", "see that it runs, and that address, password and network are right"
        )
    kept = "declared durable by the operator" if address.declared_durable else "appendonly yes; writes wait for WAITAOF"
    version = info.get("valkey_version") or info["redis_version"]
    return ok(about, f"{info.get('server_name', 'redis')} {version}, {info['maxmemory_policy']}, {kept}")


STORES: dict[str, Callable[[str, frozenset[Path]], Line]] = {"sqlite": _sqlite, "valkey": _valkey, "valkeys": _valkey}
"""Scheme -> what its store looks like."""
