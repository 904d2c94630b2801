"""Readings of the store in the contract's words: stats, workers, history, census."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scaler.ledger._valkey.wire import fence_of
from scaler.ledger.contract import CensusEntry, DeadLetter, LedgerRefused, UnitState
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

_STATES = {
    "P": UnitState.PENDING,
    "L": UnitState.LEASED,
    "C": UnitState.COMMITTED,
    "X": UnitState.CONSUMED,
    "D": UnitState.DROPPED,
    "E": UnitState.DROPPED,
    "F": UnitState.DEAD_LETTERED,
}
_ENTRY_FIELDS: dict[EventKind, tuple[tuple[str, Callable[[str], Scalar]], ...]] = {
    EventKind.LEASED: (("fence", str), ("attempt", int), ("progress", int)),
    EventKind.RELEASED: (("fence", str), ("reason", str), ("progress", int), ("published", int)),
    EventKind.COMMITTED: (("fence", str), ("attempt", int), ("tokens", int), ("oldest_version", int)),
    EventKind.DEAD_LETTERED: (("failures", int),),
}
"""Values of an entry in their order, where they are plain words; the other kinds are read below."""
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
    return json.dumps(dataclasses.asdict(report))


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
    raw, meta = json.loads(reply[0]), pairs(reply[1])
    if "settings" not in meta:
        raise LedgerRefused("the job is not configured")
    now_s, oldest_s = float(raw["now"]), raw.get("oldest_ready")

    def count(name: str) -> int:
        return int(meta.get(name, 0))

    return LedgerStats(
        at_s=now_s,
        store_epoch=count("epoch"),
        pending=count("pending"),
        backing_off=raw["backing_off"],
        running=count("running"),
        buffered=count("buffered"),
        ready_groups=raw["ready"],
        admissible=raw["admissible"],
        consumed=count("taken"),
        accepted=count("accepted"),
        dead_lettered=count("dead_lettered"),
        dropped=_drops(pairs(reply[2])),
        tokens=TokenCounts(
            committed=count("tokens_committed"), salvaged=count("tokens_salvaged"), discarded=count("tokens_discarded")
        ),
        interruptions_salvaged=count("hand_overs"),
        oldest_ready_age_s=None if oldest_s is None else now_s - float(oldest_s),
        version=count("version") - 1 if count("version") else None,
        trainer_epoch=count("trainer_epoch"),
        trainer=report_of(meta["trainer"]) if "trainer" in meta else None,
        trainer_at_s=float(meta["trainer_at"]) if "trainer_at" in meta else None,
        settings=settings_of(meta["settings"]),
    )


def _drops(counts: Mapping[str, str]) -> dict[str, dict[str, int]]:
    drops: dict[str, dict[str, int]] = {}
    for name, units in counts.items():
        reason, _, bucket = name.partition(" ")
        drops.setdefault(reason, {})[bucket] = int(units)
    return drops


def worker_of(fields: Mapping[str, str], leases: int) -> WorkerRecord:
    """A worker's record."""
    mark = None
    if "deadline" in fields:
        mark = DrainMark(deadline_s=float(fields["deadline"]), reason=fields["reason"], epoch=int(fields["epoch"]))
    return WorkerRecord(
        identity=WorkerIdentity(**json.loads(fields["identity"])),
        incarnation=int(fields["incarnation"]),
        registered_at_s=float(fields["registered"]),
        last_seen_at_s=float(fields["seen"]),
        status=WorkerStatus(**json.loads(fields["status"])) if "status" in fields else WorkerStatus(ready=False),
        drain=mark,
        leases=leases,
        committed_samples=int(fields["committed"]),
        gone="gone" in fields,
    )


def dead_letter_of(text: bytes) -> DeadLetter:
    """A dead letter in its JSON."""
    unit_id, failures, error = json.loads(text)
    return DeadLetter(unit_id=unit_id, failures=failures, error=error)


def census_entry(unit_id: str, text: str) -> CensusEntry:
    """A unit's state in its record."""
    code, fence, _ = text.split(" ", 2)
    return CensusEntry(unit_id, _STATES[code], None if fence == "0.0" else fence_of(fence))


def event_of(seq: bytes, fields: Sequence[bytes]) -> HistoryEvent:
    """An event in its stream entry: kind, time, worker, data, entries."""
    kind = EventKind(fields[1].decode())
    worker, data = fields[5].decode(), fields[7].decode()
    return HistoryEvent(
        seq=int(seq.partition(b"-")[0]),
        at_s=float(fields[3]),
        kind=kind,
        worker=worker or None,
        data=_data(kind, json.loads(data) if data else {}),
        entries=tuple(HistoryEntry(subject, _values(kind, subject, words)) for subject, words in _entries(fields[9])),
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
    return float(value) if "." in value else int(value)


def _entries(text: bytes) -> Iterator[tuple[str, str]]:
    """Subjects, each with the rest of its line; the length before a subject says where it ends."""
    at = 0
    while at < len(text):
        start = text.index(b" ", at) + 1
        end = start + int(text[at : start - 1])
        at = text.index(b"\n", end) + 1
        yield text[start:end].decode(), text[end + 1 : at - 1].decode()


def _values(kind: EventKind, subject: str, words: str) -> dict[str, Scalar]:
    if kind is EventKind.GROUP_DROPPED:
        reason, epoch = words.split(" ")
        redrawn_as = f"{subject.rpartition('.')[0]}.{epoch}"
        return {"reason": reason} if epoch == "-" else {"reason": reason, "redrawn_as": redrawn_as}
    if kind is EventKind.UNITS_PUT:
        epoch, index, size = words.split(" ")
        group = subject.removesuffix(f".{epoch}/{index}")
        return {"group": group, "epoch": int(epoch), "index": int(index), "group_size": int(size)}
    fields = _ENTRY_FIELDS.get(kind, ())
    return {name: read(word) for (name, read), word in zip(fields, words.split(" ") if fields else (), strict=True)}
