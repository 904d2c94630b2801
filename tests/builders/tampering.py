"""Hands in a store that no ledger's call would make: one small class an engine, so that audit can be put to the test."""

import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from scaler.ledger._sqlite.schema import INDEX_BITS, PENDING, SEQ_BITS
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent
from tests.builders.valkey_server import ValkeyServer

_RUN_HEAD_OF_TWO = 3 + 2 * 4
"""Bytes before the records, of two samples in one field."""


class Tamperer(Protocol):
    """Changes the one job of a store behind its ledger's back."""

    @property
    def url(self) -> str:
        """The ledger's URL, for a command line."""
        ...

    @property
    def job(self) -> str:
        """The job's name in the store."""
        ...

    def remove_unit(self, unit_id: str) -> None:
        """Delete its row."""
        ...

    def make_pending(self, unit_id: str) -> None:
        """As if nobody had leased it."""
        ...

    def set_fence_counter(self, unit_id: str, counter: int) -> None:
        """Another fence than the history tells."""
        ...

    def remove_sample(self, unit_id: str) -> None:
        """Delete what holds its sample, which may hold others of its group too."""
        ...

    def garble_sample(self, unit_id: str) -> None:
        """The same bytes in number, none of them as written."""
        ...

    def remove_event(self, seq: int) -> None:
        """Delete an event."""
        ...

    def append_event(self, event: HistoryEvent) -> None:
        """Add an event under its own number, which must be the newest; about leases, commits and batches only."""
        ...


class SqliteTamperer:
    """By SQL."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def url(self) -> str:
        return f"sqlite://{self._path}"

    @property
    def job(self) -> str:
        return str(self._one("SELECT name FROM jobs"))

    def remove_unit(self, unit_id: str) -> None:
        self._change("DELETE FROM units WHERE uid = ?", self._uid(unit_id))

    def make_pending(self, unit_id: str) -> None:
        self._change("UPDATE units SET state = ? WHERE uid = ?", PENDING, self._uid(unit_id))

    def set_fence_counter(self, unit_id: str, counter: int) -> None:
        self._change("UPDATE units SET fence = ? WHERE uid = ?", counter, self._uid(unit_id))

    def remove_sample(self, unit_id: str) -> None:
        self._change("DELETE FROM samples WHERE uid = ?", self._uid(unit_id))

    def garble_sample(self, unit_id: str) -> None:
        self._change("UPDATE samples SET body = zeroblob(length(body)) WHERE uid = ?", self._uid(unit_id))

    def remove_event(self, seq: int) -> None:
        self._change("DELETE FROM history WHERE hid = ?", self._hid(seq))

    def append_event(self, event: HistoryEvent) -> None:
        keys = list(event.entries[0].data)
        entries = [[entry.subject, *entry.data.values()] for entry in event.entries]
        body = json.dumps([dict(event.data), keys, entries])
        row = (self._hid(event.seq), event.at_s, event.kind.value, event.worker, body)
        self._change("INSERT INTO history (hid, at_s, kind, worker, body) VALUES (?, ?, ?, ?, ?)", *row)

    def _uid(self, unit_id: str) -> int:
        group, _, index = unit_id.rpartition("/")
        return int(str(self._one("SELECT gid FROM groups WHERE name = ?", group))) << INDEX_BITS | int(index)

    def _hid(self, seq: int) -> int:
        return int(str(self._one("SELECT job FROM jobs"))) << SEQ_BITS | seq

    def _one(self, query: str, *values: object) -> object:
        with closing(sqlite3.connect(self._path)) as db:
            ((value,),) = db.execute(query, values).fetchall()
        return value

    def _change(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self._path)) as db, db:
            assert db.execute(statement, values).rowcount == 1


class ValkeyTamperer:
    """By plain commands."""

    def __init__(self, server: ValkeyServer) -> None:
        self._server = server
        with server.client() as client:
            (key,) = client.keys("headrace:{*}:u")
        self._prefix = key.decode().removesuffix("u")

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def job(self) -> str:
        return str(self._prefix.removeprefix("headrace:{").removesuffix("}:"))

    def remove_unit(self, unit_id: str) -> None:
        assert self._command("HDEL", "u", unit_id) == 1

    def make_pending(self, unit_id: str) -> None:
        self._edit(unit_id, 0, struct.pack("<B", 1))

    def set_fence_counter(self, unit_id: str, counter: int) -> None:
        self._edit(unit_id, 5, struct.pack("<d", counter))

    def remove_sample(self, unit_id: str) -> None:
        assert self._command("HDEL", "s", unit_id) == 1

    def garble_sample(self, unit_id: str) -> None:
        run = self._command("HGET", "s", unit_id)
        self._command("HSET", "s", unit_id, run[:_RUN_HEAD_OF_TWO] + bytes(len(run) - _RUN_HEAD_OF_TWO))

    def remove_event(self, seq: int) -> None:
        assert self._command("XDEL", "x", f"{seq}-0") == 1

    def append_event(self, event: HistoryEvent) -> None:
        worker = (event.worker or "").encode()
        data = json.dumps({name: str(value) for name, value in event.data.items()}).encode() if event.data else b""
        head = f"{event.kind.value} {event.at_s:.6f} {len(worker)} {len(data)}\n".encode()
        entries = b"".join(_packed(event.kind, entry) for entry in event.entries)
        self._command("XADD", "x", f"{event.seq}-0", "e", head + worker + data + entries)

    def _edit(self, unit_id: str, at: int, value: bytes) -> None:
        """A unit's record is packed: its state is byte 0, its fence's counter bytes 5 to 12."""
        record = self._command("HGET", "u", unit_id)
        self._command("HSET", "u", unit_id, record[:at] + value + record[at + len(value) :])

    def _command(self, name: str, key: str, *words: object) -> Any:
        with self._server.client() as client:
            return client.execute_command(name, self._prefix + key, *words)


def _packed(kind: EventKind, entry: HistoryEntry) -> bytes:
    """An entry as the engine writes it: length, subject, and of a commit its fence, attempt, tokens and oldest version."""
    subject = entry.subject.encode()
    packed = struct.pack("<H", len(subject)) + subject
    if kind is not EventKind.COMMITTED:
        return packed
    store_epoch, _, counter = str(entry.data["fence"]).partition(".")
    facts = (int(str(entry.data[name])) for name in ("attempt", "tokens", "oldest_version"))
    attempt, tokens, oldest = facts
    return packed + struct.pack("<BIdIIIi", 3, int(store_epoch), float(counter), attempt, 0, tokens, oldest)
