"""What one call sees and changes: the job's counters, its settings, and the history it writes."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter

from scaler.ledger._sqlite.schema import INDEX_BITS, INDEX_MASK, SEQ_BITS, WORKER_BITS
from scaler.ledger.bodies import ObjectStore
from scaler.ledger.contract import NOT_CONFIGURED, LedgerRefused, StaleEpoch
from scaler.ledger.history import EventKind, Scalar
from scaler.ledger.rules import place_in_group
from scaler.model.job import JobSettings, OnStale


@dataclasses.dataclass(slots=True)
class Counters:
    """A job's hot row; the fields are the columns of `counters`, in order."""

    store_epoch: int
    fence: int
    seq: int
    configured: int
    """Grows with each change of the settings, so that clients may keep them."""
    admitted: int
    ready: int
    batch: int
    trainer_epoch: int
    controller_epoch: int
    version: int | None
    version_epoch: int
    next_expiry_s: float | None
    """No lease runs out before this; may be early, since heartbeats do not move it."""
    next_due_s: float | None
    """No back-off ends before this."""
    pending: int
    half_done: int
    """Part of `pending`: not backing off, in a group of which a unit was leased before."""
    backing_off: int
    """Part of `pending`, disjoint from `half_done`; those whose time is over stay in it until the next lease."""
    running: int
    in_vain: int
    """Units dropped while they were leased whose holders have not let go of them yet."""
    buffered: int
    ready_groups: int
    taken: int
    accepted: int
    dead_lettered: int
    committed_tokens: int
    salvaged_tokens: int
    discarded_tokens: int
    salvages: int


FIELDS = tuple(field.name for field in dataclasses.fields(Counters))
_values = attrgetter(*FIELDS)
_SELECT = f"SELECT {', '.join(FIELDS)} FROM counters WHERE id = ?"
_UPDATE = f"UPDATE counters SET {', '.join(f'{name} = ?' for name in FIELDS)} WHERE id = ?"
INSERT_COUNTERS = f"INSERT INTO counters (id, {', '.join(FIELDS)}) VALUES (?{', ?' * len(FIELDS)})"

_INSERT_EVENT = "INSERT INTO history (hid, at_s, kind, worker, body) VALUES (?, ?, ?, ?, ?)"


def new_counters() -> tuple[float | None, ...]:
    """The values of a job that begins."""
    nullable = {"version", "next_expiry_s", "next_due_s"}
    return tuple(None if name in nullable else int(name == "store_epoch") for name in FIELDS)


_MOST_NAMES = 20_000
_encode = json.JSONEncoder(separators=(",", ":")).encode
_quote = json.encoder.encode_basestring_ascii


@lru_cache
def _keys_text(keys: Sequence[str]) -> str:
    return _encode(keys)


def run_text(name: str, store_epoch: int, fence: int, numbers: Sequence[int]) -> str:
    """JSON of what an event tells of units of one group under one token: `[name, "store_epoch.fence", numbers]`.

    `numbers` are the index of a unit and the values of the event's keys after the fence, then those of the next unit.
    """
    # By hand: the library builds an encoder for every text. A list of integers as Python writes it is JSON.
    return f'[{_quote(name)},"{store_epoch}.{fence}",{numbers}]'


def _rendered(entry: Sequence[Scalar] | str) -> str:
    return entry if isinstance(entry, str) else _encode(entry)


class ClientCache:
    """What never changes once it is durable: numbers of groups and workers, and settings by their change.

    To be cleared whenever a transaction is rolled back, since it may hold what that one had made up.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.configured = 0
        self.settings: JobSettings | None = None
        self.gids: dict[str, int] = {}
        self.wids: dict[str, int] = {}

    def note_gid(self, name: str, gid: int) -> None:
        """Remember a group's number."""
        if len(self.gids) >= _MOST_NAMES:
            self.gids.clear()
        self.gids[name] = gid


class Transaction:
    """One atomic step on one job. Counters are written back, and history appended, before it is committed."""

    def __init__(
        self, db: sqlite3.Connection, job: int, now_s: float, cache: ClientCache, objects: ObjectStore
    ) -> None:
        self.db = db
        self.job = job
        self.now_s = now_s
        self.objects = objects
        self.garbage: list[tuple[str, bytes]] = []
        """Units and records whose objects nobody names any more, once this is durable."""
        self.changed = False
        """Whether it wrote anything, once it is committed."""
        self.cache = cache
        row = db.execute(_SELECT, (job << WORKER_BITS,)).fetchone()
        self.counters = Counters(*row)
        self._before = row
        self._events: list[tuple[int, float, str, str | None, str]] = []

    @property
    def settings(self) -> JobSettings:
        """The job's rules; `LedgerRefused` where nobody has configured it."""
        if self.cache.settings is None or self.cache.configured != self.counters.configured:
            (text,) = self.db.execute("SELECT settings FROM jobs WHERE job = ?", (self.job,)).fetchone()
            if text is None:
                raise LedgerRefused(NOT_CONFIGURED)
            self.cache.settings, self.cache.configured = load_settings(text), self.counters.configured
        return self.cache.settings

    def record(
        self,
        kind: EventKind,
        entries: Iterable[Sequence[Scalar] | str] = (),
        *,
        keys: Sequence[str] = (),
        worker: str | None = None,
        data: Mapping[str, Scalar] | None = None,
    ) -> int:
        """Append an event; an entry is its subject followed by the values of `keys`, or a `run_text` of several.

        Returns its sequence number.
        """
        self.counters.seq = seq = self.counters.seq + 1
        body = f"[{_encode(data) if data else '{}'},{_keys_text(keys)},[{','.join(map(_rendered, entries))}]]"
        # Not `kind.value`, which in Python 3.11 is a call of a property written in Python.
        self._events.append((self.job << SEQ_BITS | seq, self.now_s, str(kind), worker, body))
        return seq

    def finish(self) -> None:
        """Write the history, and the counters back, if they changed."""
        self.db.executemany(_INSERT_EVENT, self._events)
        values = _values(self.counters)
        if values != self._before:
            self.db.execute(_UPDATE, (*values, self.job << WORKER_BITS))

    def check_trainer(self, trainer_epoch: int) -> None:
        """`StaleEpoch` unless the caller is the trainer that attached last."""
        if trainer_epoch != self.counters.trainer_epoch:
            raise StaleEpoch(f"trainer epoch {trainer_epoch}: {self.counters.trainer_epoch} has taken over")

    def check_controller(self, epoch: int) -> None:
        """`StaleEpoch` where a controller of a higher leader epoch has spoken; remembers the highest."""
        if epoch < self.counters.controller_epoch:
            raise StaleEpoch(f"controller epoch {epoch}: {self.counters.controller_epoch} has taken over")
        self.counters.controller_epoch = epoch

    def gid_of(self, name: str) -> int | None:
        """A group's number."""
        gid = self.cache.gids.get(name)
        if gid is not None:
            return gid
        row = self.db.execute("SELECT gid FROM groups WHERE job = ? AND name = ?", (self.job, name)).fetchone()
        if row is None:
            return None
        self.cache.note_gid(name, row[0])
        return int(row[0])

    def uids_of(self, unit_ids: Sequence[str]) -> list[int | None]:
        """Row ids of units; None for an id that no unit has."""
        uids: list[int | None] = []
        for wanted in unit_ids:
            name, _, index = wanted.rpartition("/")
            gid, place = self.gid_of(name), place_in_group(index)
            uids.append(None if gid is None or place < 0 else gid << INDEX_BITS | place)
        return uids


def unit_id(name: str, uid: int) -> str:
    """A unit's id, of its group's name and its row id."""
    return f"{name}/{uid & INDEX_MASK}"


def split_name(name: str) -> tuple[str, int]:
    """Group id and epoch of a group's name."""
    group_id, _, epoch = name.rpartition(".")
    return group_id, int(epoch)


def dump_settings(settings: JobSettings) -> str:
    """The JSON of the rules."""
    return json.dumps(dataclasses.asdict(settings))


def load_settings(text: str) -> JobSettings:
    """The rules in their JSON."""
    raw = json.loads(text)
    return JobSettings(**{**raw, "on_stale": OnStale(raw["on_stale"])})
