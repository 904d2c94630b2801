"""What the controller must not forget: intents, orders to drain, the engine's memory, its epoch, the last decisions.

One small SQLite file beside the state. Everything of one tick is one transaction, durable before anything is acted on.
Where it cannot be written (a full disk), turns are kept and written with the next one, and the caller is told that they are
not durable.
A token is spent when its intent is written, never twice; an epoch rises with every start, and is never below the time of
that start, so that it rises also where the file was lost.

Non-goals: history beyond the last `_DECISIONS_KEPT` decisions (metrics and the ledger's own history have that).
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError

from scaler.model.plan import Memory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent

log = structlog.get_logger()

T = TypeVar("T")
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
    earlier: tuple[tuple[float, Json], ...] = ()
    """Decisions of turns that could not be written, each with its time, oldest first; of those that only repeat the last."""
    outcomes: tuple[tuple[int, Json], ...] = ()
    """(sequence number of the decision, what became of one of its commands)."""

    def then(self, later: "Turn") -> "Turn":
        """Both as one, where this one could not be written; the last word on an intent or an order is the later one's."""
        intents, intents_over = _joined(
            self.intents, self.intents_over, later.intents, later.intents_over, lambda each: each.token
        )
        orders, orders_over = _joined(
            self.orders, self.orders_over, later.orders, later.orders_over, lambda each: each.replica_id
        )
        return replace(
            later,
            intents=intents,
            intents_over=intents_over,
            orders=orders,
            orders_over=orders_over,
            earlier=self._decisions()[-_DECISIONS_KEPT:],
            outcomes=(*self.outcomes, *later.outcomes)[-_DECISIONS_KEPT:],
        )

    def _decisions(self) -> tuple[tuple[float, Json], ...]:
        if self.decision is None:
            return self.earlier
        repeats = bool(self.earlier) and _same(self.earlier[-1][1], self.decision)
        return (*(self.earlier[:-1] if repeats else self.earlier), (self.at_s, self.decision))


def _joined(
    put: tuple[T, ...],
    over: tuple[str, ...],
    later_put: tuple[T, ...],
    later_over: tuple[str, ...],
    key: Callable[[T], str],
) -> tuple[tuple[T, ...], tuple[str, ...]]:
    anew = {key(each): each for each in later_put}
    kept = {key(each): each for each in put} | anew
    return (
        tuple(each for name, each in kept.items() if name not in later_over),
        tuple(dict.fromkeys((*(name for name in over if name not in anew), *later_over))),
    )


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
        self._path = path
        self._seq = 0
        self._unwritten: Turn | None = None

    def close(self) -> None:
        """Give the file up."""
        self._db.close()

    def raise_epoch(self, now_s: float) -> int:
        """The epoch of this start: above every one before it. `JournalError` where it cannot be written."""
        epoch = max(int(self._fact("epoch") or 0) + 1, int(now_s))
        try:
            self._set_fact("epoch", str(epoch))
        except sqlite3.OperationalError as error:
            raise JournalError(f"journal {self._path}: {error}") from error
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
        """Write a tick durably, at once; keep it for the next one where the disk takes nothing."""
        whole = turn if self._unwritten is None else self._unwritten.then(turn)
        try:
            self._seq = self.write(whole)
        except (sqlite3.OperationalError, OSError) as error:
            if self._unwritten is None:
                log.error("journal_away", journal=str(self._path), error=str(error), launches="held until it is back")
            self._unwritten = whole
            return Committed(seq=self._seq, durable=False)
        if self._unwritten is not None:
            log.info("journal_back", journal=str(self._path))
        self._unwritten = None
        return Committed(seq=self._seq, durable=True)

    def write(self, turn: Turn) -> int:
        """Write a tick durably; returns the sequence number of its decision (the last one where it only repeats)."""
        with closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                seq = self._write(cursor, turn)
                cursor.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have ended it already
                    cursor.execute("ROLLBACK")
                raise
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
        for at_s, decision in turn.earlier:
            _write_decision(cursor, at_s, decision)
        return _write_decision(cursor, turn.at_s, turn.decision)

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


def _write_decision(cursor: sqlite3.Cursor, at_s: float, decision: Json | None) -> int:
    last = cursor.execute("SELECT seq, body FROM decisions ORDER BY seq DESC LIMIT 1").fetchone()
    if decision is None:
        return int(last[0]) if last else 0
    body = json.dumps(decision, sort_keys=True)
    if last is not None and _same(json.loads(last[1]), decision):
        cursor.execute(
            "UPDATE decisions SET until_s = ?, ticks = ticks + 1, body = ? WHERE seq = ?", (at_s, body, last[0])
        )
        return int(last[0])
    seq = int(last[0]) + 1 if last else 1
    cursor.execute("INSERT INTO decisions VALUES (?, ?, ?, 1, ?)", (seq, at_s, at_s, body))
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
