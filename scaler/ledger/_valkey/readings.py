"""Readings of the store in the contract's words: stats, workers, history, census."""

import dataclasses
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from scaler.ledger.contract import NOT_CONFIGURED, CensusEntry, DeadLetter, LedgerRefused, UnitState
from scaler.ledger.flat import flat
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent, Scalar
from scaler.model.job import (
    DrainMark,
    JobSettings,
    LedgerStats,
    OnStale,
    Phase,
    TokenCounts,
    TrainerReport,
    WorkerIdentity,
    WorkerRecord,
    WorkerStatus,
)
from scaler.model.work import DropReason, FencingToken, ReleaseReason

_STATES = (
    UnitState.PENDING,
    UnitState.LEASED,
    UnitState.COMMITTED,
    UnitState.CONSUMED,
    UnitState.DROPPED,
    UnitState.DROPPED,
    UnitState.DEAD_LETTERED,
)
"""By the number in a unit's record, from 1. Dropped units with and without a sample are apart there."""
_TOLD = struct.Struct("<BIdIIIi")
"""Of a unit: state, store epoch, counter, attempt, tokens published, tokens of the sample, oldest version."""
_RETURN = struct.Struct("<BI")
_GROUP_END = struct.Struct("<Bd")
_NUMBER = struct.Struct("<I")
_LENGTH = struct.Struct("<H")
_DROPS = (DropReason.STALE, DropReason.FILTERED, DropReason.DEAD_LETTERED)
_RETURNS = (
    ReleaseReason.DRAIN,
    ReleaseReason.INFRASTRUCTURE,
    ReleaseReason.UNIT_FAILURE,
    ReleaseReason.ABANDONED,
    ReleaseReason.WORKER_LOST,
    ReleaseReason.EXPIRED,
    ReleaseReason.SUPERSEDED,
)
_SILENT = WorkerStatus(ready=False)
"""Of a worker that has said nothing of itself yet."""
_TEXT_DATA = frozenset({"reason", "owner", "digest"})


def settings_text(settings: JobSettings) -> str:
    """The rules as JSON."""
    return json.dumps(dataclasses.asdict(settings))


def settings_of(text: str) -> JobSettings:
    """The rules in their JSON."""
    raw = json.loads(text)
    return JobSettings(**{**raw, "on_stale": OnStale(raw["on_stale"])})


def report_text(report: TrainerReport) -> str:
    """A trainer's word of itself, as JSON."""
    return json.dumps(flat(report))


def report_of(text: str) -> TrainerReport:
    """The report in its JSON."""
    raw = json.loads(text)
    phases = {Phase(name): seconds for name, seconds in raw["phase_s"].items()}
    return TrainerReport(**{**raw, "phase": Phase(raw["phase"]), "phase_s": phases})


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """A hash as the server sends it."""
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def stats_of(reply: Sequence[Any]) -> LedgerStats:
    """The reading in a reply: what was computed, the counters, the drops."""
    raw, words = json.loads(reply[0]), pairs(reply[1])
    if "settings" not in words:
        raise LedgerRefused(NOT_CONFIGURED)
    now_s, oldest_s = float(raw["now"]), raw.get("oldest_ready")
    return LedgerStats(
        at_s=now_s,
        store_epoch=raw["epoch"],
        pending=raw["pending"],
        backing_off=raw["backing_off"],
        running=raw["running"],
        buffered=raw["buffered"],
        ready_groups=raw["ready"],
        admissible=raw["admissible"],
        consumed=raw["consumed"],
        accepted=raw["accepted"],
        dead_lettered=raw["dead_lettered"],
        dropped=_drops(pairs(reply[2])),
        tokens=TokenCounts(
            committed=raw["committed_tokens"], salvaged=raw["salvaged_tokens"], discarded=raw["discarded_tokens"]
        ),
        interruptions_salvaged=raw["hand_overs"],
        oldest_ready_age_s=None if oldest_s is None else now_s - float(oldest_s),
        version=None if raw["version"] < 0 else raw["version"],
        trainer_epoch=raw["trainer_epoch"],
        trainer=report_of(words["trainer"]) if "trainer" in words else None,
        trainer_at_s=float(words["trainer_at"]) if "trainer_at" in words else None,
        settings=settings_of(words["settings"]),
    )


def _drops(counts: Mapping[str, str]) -> dict[str, dict[str, int]]:
    drops: dict[str, dict[str, int]] = {}
    for name, units in counts.items():
        reason, _, bucket = name.partition(" ")
        drops.setdefault(reason, {})[bucket] = int(units)
    return drops


def workers_of(text: bytes) -> tuple[WorkerRecord, ...]:
    """The workers' records in their JSON: of each its hash as the server sends it, and how many units it holds."""
    return tuple(_worker(dict(zip(flat[::2], flat[1::2], strict=True)), leases) for flat, leases in json.loads(text))


def _worker(fields: Mapping[str, str], leases: int) -> WorkerRecord:
    mark = None
    if "deadline" in fields:
        mark = DrainMark(deadline_s=float(fields["deadline"]), reason=fields["reason"], epoch=int(fields["epoch"]))
    return WorkerRecord(
        identity=_identity(fields["identity"]),
        incarnation=int(fields["incarnation"]),
        registered_at_s=float(fields["registered"]),
        last_seen_at_s=float(fields["seen"]),
        status=WorkerStatus(**json.loads(fields["status"])) if "status" in fields else _SILENT,
        drain=mark,
        leases=leases,
        committed_samples=int(fields["committed"]),
        gone="gone" in fields,
    )


@lru_cache(maxsize=1 << 14)  # a worker says who it is once, and is read every few seconds
def _identity(text: str) -> WorkerIdentity:
    return WorkerIdentity(**json.loads(text))


def dead_letter_of(text: bytes) -> DeadLetter:
    """A dead letter in its JSON."""
    unit_id, failures, error = json.loads(text)
    return DeadLetter(unit_id=unit_id, failures=failures, error=error)


def census_entry(unit_id: str, record: bytes) -> CensusEntry:
    """A unit's state in its record."""
    state, store_epoch, counter, attempt, *_ = _TOLD.unpack_from(record)
    token = FencingToken(store_epoch, int(counter)) if attempt else None
    return CensusEntry(unit_id, _STATES[state - 1], token)


def event_of(seq: bytes, text: bytes) -> HistoryEvent:
    """An event in its stream entry: a line of kind, time and two lengths; worker; data; entries."""
    head, _, rest = text.partition(b"\n")
    word, at_s, worker_bytes, data_bytes = head.split(b" ")
    kind, data_at = EventKind(word.decode()), int(worker_bytes)
    entries_at = data_at + int(data_bytes)
    data = rest[data_at:entries_at]
    return HistoryEvent(
        seq=int(seq.partition(b"-")[0]),
        at_s=float(at_s),
        kind=kind,
        worker=rest[:data_at].decode() or None,
        data=_data(kind, json.loads(data) if data else {}),
        entries=tuple(_entries(kind, rest, entries_at)),
    )


def _data(kind: EventKind, raw: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Numbers travel as text, since Lua would round them."""
    data = {name: value if name in _TEXT_DATA or value is None else _number(value) for name, value in raw.items()}
    if kind is EventKind.WORKER_DRAINED:
        data.setdefault("deadline_s", None)
    return data


def _number(value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    return int(value) if value.lstrip("-").isdecimal() else float(value)


def _entries(kind: EventKind, text: bytes, at: int) -> Iterator[HistoryEntry]:
    size, read = _ENTRIES.get(kind, (0, None))
    while at < len(text):
        (length,) = _LENGTH.unpack_from(text, at)
        at += _LENGTH.size + length
        subject = text[at - length : at].decode()
        yield HistoryEntry(subject, read(subject, text[at : at + size])) if read else HistoryEntry(subject)
        at += size


def _told(facts: bytes) -> tuple[str, int, int, int, int]:
    """Fence, attempt, tokens published, tokens of the sample, oldest version."""
    _, store_epoch, counter, attempt, published, tokens, oldest = _TOLD.unpack_from(facts)
    return f"{store_epoch}.{counter:.0f}", attempt, published, tokens, oldest


def _leased(_: str, facts: bytes) -> dict[str, Scalar]:
    fence, attempt, published, _tokens, _oldest = _told(facts)
    return {"fence": fence, "attempt": attempt, "progress": published}


def _released(_: str, facts: bytes) -> dict[str, Scalar]:
    fence, _attempt, kept, _tokens, _oldest = _told(facts)
    reason, published = _RETURN.unpack_from(facts, _TOLD.size)
    return {"fence": fence, "reason": _RETURNS[reason - 1].value, "progress": kept, "published": published}


def _committed(_: str, facts: bytes) -> dict[str, Scalar]:
    fence, attempt, _published, tokens, oldest = _told(facts)
    return {"fence": fence, "attempt": attempt, "tokens": tokens, "oldest_version": oldest}


def _put(subject: str, facts: bytes) -> dict[str, Scalar]:
    name, _, index = subject.rpartition("/")
    group, _, epoch = name.rpartition(".")
    return {"group": group, "epoch": int(epoch), "index": int(index), "group_size": _NUMBER.unpack(facts)[0]}


def _dead_lettered(_: str, facts: bytes) -> dict[str, Scalar]:
    return {"failures": _NUMBER.unpack(facts)[0]}


def _group_dropped(subject: str, facts: bytes) -> dict[str, Scalar]:
    reason, epoch = _GROUP_END.unpack(facts)
    data: dict[str, Scalar] = {"reason": _DROPS[reason - 1].value}
    if epoch >= 0:
        data["redrawn_as"] = f"{subject.rpartition('.')[0]}.{epoch:.0f}"
    return data


_ENTRIES: dict[EventKind, tuple[int, Callable[[str, bytes], dict[str, Scalar]]]] = {
    EventKind.LEASED: (_TOLD.size, _leased),
    EventKind.RELEASED: (_TOLD.size + _RETURN.size, _released),
    EventKind.COMMITTED: (_TOLD.size, _committed),
    EventKind.UNITS_PUT: (_NUMBER.size, _put),
    EventKind.DEAD_LETTERED: (_NUMBER.size, _dead_lettered),
    EventKind.GROUP_DROPPED: (_GROUP_END.size, _group_dropped),
}
"""What follows a subject: its size, and how it is read. The kinds that are not here have subjects only."""
