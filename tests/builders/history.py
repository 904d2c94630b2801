"""A story told as ledger events: each call is one event, with the next sequence number."""

from scaler.ledger.contract import CensusEntry, UnitState
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent, Scalar
from scaler.model.work import FencingToken


class Story:
    """Writes events; `census` is what a store that went through exactly this would hold."""

    def __init__(self, group_size: int = 2, max_staleness: int = 1) -> None:
        self.events: list[HistoryEvent] = []
        self.group_size = group_size
        self.tell(EventKind.CONFIGURED, data={"group_size": group_size, "max_staleness": max_staleness})

    def tell(
        self,
        kind: EventKind,
        entries: list[tuple[str, dict[str, Scalar]]] | None = None,
        data: dict[str, Scalar] | None = None,
    ) -> "Story":
        seq = self.events[-1].seq + 1 if self.events else 1
        subjects = tuple(HistoryEntry(subject, facts) for subject, facts in entries or [])
        self.events.append(HistoryEvent(seq=seq, at_s=float(seq), kind=kind, data=data or {}, entries=subjects))
        return self

    def put(self, group: str = "g", epoch: int = 0, size: int | None = None) -> "Story":
        members = range(self.group_size if size is None else size)
        entries: list[tuple[str, dict[str, Scalar]]] = [
            (f"{group}.{epoch}/{i}", {"group": group, "epoch": epoch, "index": i, "group_size": self.group_size})
            for i in members
        ]
        return self.tell(EventKind.UNITS_PUT, entries)

    def lease(self, unit: str, fence: str, progress: int = 0, attempt: int = 1) -> "Story":
        return self.tell(EventKind.LEASED, [(unit, {"fence": fence, "attempt": attempt, "progress": progress})])

    def release(self, unit: str, fence: str, progress: int = 0, reason: str = "drain") -> "Story":
        facts: dict[str, Scalar] = {"fence": fence, "reason": reason, "progress": progress, "published": progress}
        return self.tell(EventKind.RELEASED, [(unit, facts)])

    def commit(self, unit: str, fence: str, version: int = 0, tokens: int = 5) -> "Story":
        facts: dict[str, Scalar] = {"fence": fence, "attempt": 1, "tokens": tokens, "oldest_version": version}
        return self.tell(EventKind.COMMITTED, [(unit, facts)])

    def run(self, unit: str, fence: str, version: int = 0) -> "Story":
        return self.lease(unit, fence).commit(unit, fence, version)

    def attach(self, epoch: int) -> "Story":
        return self.tell(EventKind.TRAINER_ATTACHED, data={"trainer_epoch": epoch, "owner": "t"})

    def take(self, batch: int, *groups: str, epoch: int = 1, version: int = 0) -> "Story":
        data: dict[str, Scalar] = {"batch": batch, "trainer_epoch": epoch, "trainer_version": version}
        return self.tell(EventKind.BATCH_TAKEN, [(group, {}) for group in groups], data)

    def ack(self, batch: int, *groups: str, epoch: int = 1) -> "Story":
        return self.tell(
            EventKind.BATCH_ACKED, [(group, {}) for group in groups], {"batch": batch, "trainer_epoch": epoch}
        )

    def drop(self, group: str, reason: str = "stale", redrawn_as: str | None = None) -> "Story":
        facts: dict[str, Scalar] = {"reason": reason}
        if redrawn_as:
            facts["redrawn_as"] = redrawn_as
        return self.tell(EventKind.GROUP_DROPPED, [(group, facts)])


def held(unit: str, state: UnitState = UnitState.PENDING, fence: str | None = None) -> CensusEntry:
    """A unit as the store holds it."""
    token = None if fence is None else FencingToken(*(int(part) for part in fence.split(".")))
    return CensusEntry(unit, state, token)
