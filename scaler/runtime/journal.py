"""What the controller must not forget: intents, orders to drain, the engine's memory, its epoch, the last decisions.

One small SQLite file beside the state. Everything of one tick is one transaction, durable before anything is acted on.
A token is spent when its intent is written, never twice; an epoch rises with every start, and is never below the time of
that start, so that it rises also where the file was lost.

Non-goals: history beyond the last `_DECISIONS_KEPT` decisions (metrics and the ledger's own history have that).
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from scaler.model.plan import Memory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent

_DECISIONS_KEPT = 1000
"""Decisions that only repeat are one row: days of a quiet fleet, a few hours of a busy one, below 1 MiB."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts(key TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS intents(token TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS orders(replica_id TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS decisions(
    seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, until_s REAL NOT NULL, ticks INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outcomes(seq INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS outcomes_by_decision ON outcomes(seq);
"""
_MEMORY: TypeAdapter[Memory] = TypeAdapter(Memory)
_INTENT: TypeAdapter[Intent] = TypeAdapter(Intent)
_ORDER: TypeAdapter[DrainOrder] = TypeAdapter(DrainOrder)

Json = Mapping[str, Any]


class JournalError(Exception):
    """The journal cannot be used: not writable, or not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one tick changed, written in one transaction."""

    at_s: float
    memory: Memory
    intents: tuple[Intent, ...] = ()
    """New, or answered since."""
    intents_over: tuple[str, ...] = ()
    orders: tuple[DrainOrder, ...] = ()
    orders_over: tuple[str, ...] = ()
    decision: Json | None = None
    outcomes: tuple[tuple[int, Json], ...] = ()
    """(sequence number of the decision, what became of one of its commands)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A tick that was written: `seq` of its decision, and whether a crash can still lose it."""

    seq: int
    durable: bool


class TurnJournal(Protocol):
    """What the loop keeps its turns in. What is not durable yet is written with the next turn."""

    def memory(self) -> Memory:
        """The engine's memory as last written."""
        ...

    def intents(self) -> tuple[Intent, ...]:
        """Launches that nothing has settled yet, oldest first."""
        ...

    def orders(self) -> tuple[DrainOrder, ...]:
        """Drains that the ledger has not shown yet."""
        ...

    async def commit(self, turn: Turn) -> Committed:
        """Write a tick."""
        ...


class Journal:
    """See the module's docstring. Calls block for one write."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """Open or make the file; `JournalError` where it cannot be used.

        `durable`: a commit waits for the disk. Not where the file is history only: a crash of the machine may lose its end.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"journal {path}: {error}") from error

    def close(self) -> None:
        """Give the file up."""
        self._db.close()

    def raise_epoch(self, now_s: float) -> int:
        """The epoch of this start: above every one before it."""
        epoch = max(int(self._fact("epoch") or 0) + 1, int(now_s))
        self._set_fact("epoch", str(epoch))
        return epoch

    def memory(self) -> Memory:
        """The engine's memory as last written; a fresh one where there is none, or none that can be read.

        A fresh one counts its launch tokens from this start's epoch, past every token of a journal that was lost.
        """
        body = self._fact("memory")
        if body is None:
            return Memory(next_intent=int(self._fact("epoch") or 0))
        try:
            return _MEMORY.validate_json(body)
        except ValidationError:
            # Written by another version. The counter behind launch tokens is what must survive it.
            return Memory(next_intent=int(json.loads(body).get("next_intent", 0)))

    def intents(self) -> tuple[Intent, ...]:
        """Launches that nothing has settled yet, oldest first."""
        rows = self._rows("SELECT body FROM intents")
        return tuple(sorted((_INTENT.validate_json(row[0]) for row in rows), key=lambda each: each.decided_at_s))

    def orders(self) -> tuple[DrainOrder, ...]:
        """Drains that the ledger has not shown yet."""
        return tuple(_ORDER.validate_json(row[0]) for row in self._rows("SELECT body FROM orders"))

    async def commit(self, turn: Turn) -> Committed:
        """Write a tick durably, at once."""
        return Committed(seq=self.write(turn), durable=True)

    def write(self, turn: Turn) -> int:
        """Write a tick durably; returns the sequence number of its decision (the last one where it only repeats)."""
        with closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                seq = self._write(cursor, turn)
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")
        return seq

    def decisions(self, last: int) -> list[dict[str, Any]]:
        """The last decisions, newest first, each with its time, how often it was repeated, and its outcomes."""
        rows = self._rows(
            "SELECT seq, at_s, until_s, ticks, body FROM decisions ORDER BY seq DESC LIMIT ?", max(0, last)
        )
        return [self._decision(*row) for row in rows]

    def _write(self, cursor: sqlite3.Cursor, turn: Turn) -> int:
        put = "INSERT OR REPLACE INTO {} VALUES (?, ?)".format
        cursor.execute(put("facts"), ("memory", _MEMORY.dump_json(turn.memory).decode()))
        cursor.executemany(put("intents"), ((each.token, _INTENT.dump_json(each).decode()) for each in turn.intents))
        cursor.executemany("DELETE FROM intents WHERE token = ?", ((token,) for token in turn.intents_over))
        cursor.executemany(put("orders"), ((each.replica_id, _ORDER.dump_json(each).decode()) for each in turn.orders))
        cursor.executemany("DELETE FROM orders WHERE replica_id = ?", ((each,) for each in turn.orders_over))
        cursor.executemany(
            "INSERT INTO outcomes VALUES (?, ?)", ((seq, json.dumps(outcome)) for seq, outcome in turn.outcomes)
        )
        return _write_decision(cursor, turn)

    def _decision(self, seq: int, at_s: float, until_s: float, ticks: int, body: str) -> dict[str, Any]:
        outcomes = [json.loads(row[0]) for row in self._rows("SELECT body FROM outcomes WHERE seq = ?", seq)]
        head = {"seq": seq, "at_s": at_s, "until_s": until_s, "ticks": ticks}
        return {**head, **json.loads(body), "outcomes": outcomes}

    def _rows(self, statement: str, *values: object) -> Iterable[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

    def _fact(self, key: str) -> str | None:
        row = self._db.execute("SELECT body FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _set_fact(self, key: str, body: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, body))


def _write_decision(cursor: sqlite3.Cursor, turn: Turn) -> int:
    last = cursor.execute("SELECT seq, body FROM decisions ORDER BY seq DESC LIMIT 1").fetchone()
    if turn.decision is None:
        return int(last[0]) if last else 0
    body = json.dumps(turn.decision, sort_keys=True)
    if last is not None and _same(json.loads(last[1]), turn.decision):
        cursor.execute(
            "UPDATE decisions SET until_s = ?, ticks = ticks + 1, body = ? WHERE seq = ?", (turn.at_s, body, last[0])
        )
        return int(last[0])
    seq = int(last[0]) + 1 if last else 1
    cursor.execute("INSERT INTO decisions VALUES (?, ?, ?, 1, ?)", (seq, turn.at_s, turn.at_s, body))
    cursor.execute("DELETE FROM decisions WHERE seq <= ?", (seq - _DECISIONS_KEPT,))
    cursor.execute("DELETE FROM outcomes WHERE seq <= ?", (seq - _DECISIONS_KEPT,))
    return seq


def _same(before: Json, now: Json) -> bool:
    """Whether a decision only repeats: nothing commanded, and the same sizes for the same reasons."""
    return not now["commands"] and not before["commands"] and _gist(before) == _gist(now)


def _gist(decision: Json) -> list[tuple[object, ...]]:
    return [
        (
            stage["stage"], stage["desired"], stage["requested"], stage["observed"], stage["ready"],
            stage["reason"]["code"], [clamp["code"] for clamp in stage["reason"]["clamps"]],
        )
        for stage in decision["stages"]
    ]  # fmt: skip
