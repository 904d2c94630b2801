"""Prove from a ledger's history that nothing was lost, doubled, fenced wrongly or trained twice.

Judges from the recorded history, and at its end compares what follows from it with the units that the store really
holds, and looks whether the sample of each committed unit is there and decodes. Before all that the store checks itself
where it can (an SQLite file; a server has done so when it started). It shares no code with the engines, neither
transitions nor rules: it is the second opinion.

A store that cannot be read is no verdict but `LedgerRefused`.

What it cannot see: numbers that changed inside a sample in the store's own record (it has no checksum; an object above
64 KiB has), samples of units that are consumed, prompts, journals of progress, and what is counted or told beside the
history (statistics, workers, dead letters' errors).

What is compacted away cannot be proved and is counted as such, never guessed. Units that somebody changes while the
audit runs are left out of the final comparison, so that a live ledger can be audited.

Not its business: whether the samples are any good.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from scaler.ledger.audit_report import AuditReport, BatchTrail, Facts, Fault, Finding, UnitTrail
from scaler.ledger.contract import CensusEntry, Ledger, UnitState, legible
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent


class Auditor:
    """Feed it every event in order, then the census; `report` is the verdict."""

    def __init__(self) -> None:
        self._facts = Facts()
        self._findings: list[Finding] = []
        self._events = 0
        self._last_seq: int | None = None
        self._missing_through = 0
        """The newest event that is missing before the first, 0 if none."""
        self._announced_through = 0
        """The newest event that a COMPACTED event says is gone."""
        self._skipped = 0
        self._unprovable: set[str] = set()
        self._handlers: dict[EventKind, Callable[[HistoryEvent], None]] = {
            EventKind.CONFIGURED: self._on_configured,
            EventKind.STORE_EPOCH: self._on_store_epoch,
            EventKind.UNITS_PUT: self._each(self._on_put),
            EventKind.LEASED: self._each(self._on_leased),
            EventKind.RELEASED: self._each(self._on_released),
            EventKind.COMMITTED: self._each(self._on_committed),
            EventKind.DEAD_LETTERED: self._each(self._on_dead_lettered),
            EventKind.GROUP_DROPPED: self._each(self._on_group_dropped),
            EventKind.BATCH_TAKEN: self._on_batch_taken,
            EventKind.BATCH_ACKED: self._on_batch_acked,
            EventKind.TRAINER_ATTACHED: self._on_trainer_attached,
            EventKind.COMPACTED: self._on_compacted,
        }

    def feed(self, events: Iterable[HistoryEvent]) -> None:
        """Take events, in order of their sequence numbers."""
        for event in events:
            with legible(f"event {event.seq}"):
                self._feed(event)

    def _feed(self, event: HistoryEvent) -> None:
        self._check_sequence(event)
        self._events += 1
        handler = self._handlers.get(event.kind)
        if handler is not None:
            handler(event)

    @property
    def last_seq(self) -> int:
        """The newest event seen, 0 before any."""
        return self._last_seq or 0

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong so far; `report` adds what only the end can show."""
        return self._findings

    def compare(self, census: Iterable[CensusEntry], samples: Mapping[str, str], changed_after_seq: int) -> None:
        """Hold the store's units and samples against the history; units with events after `changed_after_seq` are left out.

        `samples` has the unit of every sample, and why it cannot be read, or ''.
        """
        present: set[str] = set()
        for entry in census:
            present.add(entry.unit_id)
            self._compare_one(entry, changed_after_seq)
            if entry.state is UnitState.COMMITTED:
                self._check_sample(entry.unit_id, samples, changed_after_seq)
        for unit_id, unit in self._facts.units.items():
            if unit_id not in present and unit.last_seq <= changed_after_seq:
                self._check_absent(unit_id, unit)

    def report(self) -> AuditReport:
        """The verdict on all that was fed."""
        self._check_redraws()
        if self._missing_through > self._announced_through:
            lost = f"seq {self._announced_through + 1} to {self._missing_through}"
            self._fault(Fault.HISTORY_GAP, lost, None, "the beginning is missing, and no compaction says so")
        self._unprovable |= {unit_id for unit_id, unit in self._facts.units.items() if not unit.proved}
        return AuditReport(
            events=self._events,
            units=dict(Counter(unit.state.value for unit in self._facts.units.values())),
            findings=tuple(self._findings),
            unprovable_units=len(self._unprovable),
            compacted_through_seq=self._facts.compacted_through,
            skipped_live_units=self._skipped,
        )

    # --- events -------------------------------------------------------------------------------------------------

    def _check_sequence(self, event: HistoryEvent) -> None:
        expected = None if self._last_seq is None else self._last_seq + 1
        if expected is None and event.seq > 1:
            # A history that does not start at 1 was compacted; the marker that says so is in what is left, or it is a gap.
            self._facts.compacted_through = self._missing_through = event.seq - 1
        elif expected is not None and event.seq != expected:
            self._fault(
                Fault.HISTORY_GAP, f"seq {expected}", event.seq, f"event {expected} is missing before {event.seq}"
            )
        self._last_seq = event.seq

    def _each(self, handle: Callable[[HistoryEvent, HistoryEntry], None]) -> Callable[[HistoryEvent], None]:
        def handle_all(event: HistoryEvent) -> None:
            for entry in event.entries:
                handle(event, entry)

        return handle_all

    def _on_configured(self, event: HistoryEvent) -> None:
        staleness = event.data.get("max_staleness")
        self._facts.max_staleness = None if staleness is None else int(staleness)

    def _on_store_epoch(self, event: HistoryEvent) -> None:
        epoch = _int(event.data, "store_epoch")
        if epoch <= self._facts.store_epoch:
            self._fault(Fault.EPOCH_BROKEN, "store", event.seq, f"store epoch {epoch} after {self._facts.store_epoch}")
        self._facts.store_epoch = epoch
        for unit in self._facts.units.values():
            if unit.state is UnitState.LEASED:
                unit.state, unit.kept = UnitState.PENDING, None

    def _on_put(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        group = f"{entry.data['group']}.{entry.data['epoch']}"
        if entry.subject in self._facts.units:
            self._fault(Fault.UNIT_PUT_TWICE, entry.subject, event.seq, "put although it was known")
            return
        self._facts.units[entry.subject] = UnitTrail(group=group, last_seq=event.seq)
        self._facts.groups.setdefault(group, set()).add(entry.subject)
        self._facts.group_size[group] = _int(entry.data, "group_size")

    def _on_leased(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        unit, fence = self._unit(event, entry), _fence(entry)
        if unit.state is not UnitState.PENDING:
            self._fault(Fault.FENCE_BROKEN, entry.subject, event.seq, f"leased while {unit.state}")
        if unit.fence is not None and fence <= unit.fence:
            self._fault(Fault.FENCE_BROKEN, entry.subject, event.seq, f"fence {fence} after {unit.fence}")
        if fence[0] < self._facts.store_epoch:
            self._fault(
                Fault.EPOCH_BROKEN, entry.subject, event.seq, f"fence {fence} in store epoch {self._facts.store_epoch}"
            )
        handed = _int(entry.data, "progress")
        if unit.kept is not None and handed < unit.kept:
            self._fault(
                Fault.PROGRESS_LOST, entry.subject, event.seq, f"{handed} tokens handed over of {unit.kept} kept"
            )
        unit.state, unit.fence, unit.kept = UnitState.LEASED, fence, handed

    def _on_released(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        unit, fence = self._unit(event, entry), _fence(entry)
        if unit.state is not UnitState.LEASED or (unit.fence is not None and fence != unit.fence):
            self._fault(
                Fault.FENCE_BROKEN,
                entry.subject,
                event.seq,
                f"released under {fence}, is {unit.state} under {unit.fence}",
            )
        unit.state, unit.kept = UnitState.PENDING, _int(entry.data, "progress")
        unit.fence = max(fence, unit.fence or fence)

    def _on_committed(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        unit, fence = self._unit(event, entry), _fence(entry)
        if unit.committed_fence is not None or unit.state is UnitState.COMMITTED:
            self._fault(
                Fault.SAMPLE_DOUBLED, entry.subject, event.seq, f"committed under {fence} and {unit.committed_fence}"
            )
        elif unit.state in _FINAL:
            self._fault(Fault.SAMPLE_DOUBLED, entry.subject, event.seq, f"committed although {unit.state}")
        # A late commit, after the lease ran out, is right as long as the fence was not passed on.
        if unit.fence is not None and fence != unit.fence:
            self._fault(
                Fault.FENCE_BROKEN, entry.subject, event.seq, f"committed under {fence}, the last is {unit.fence}"
            )
        if fence[0] < self._facts.store_epoch:
            self._fault(
                Fault.EPOCH_BROKEN, entry.subject, event.seq, f"fence {fence} in store epoch {self._facts.store_epoch}"
            )
        unit.state, unit.fence, unit.committed_fence = UnitState.COMMITTED, fence, fence
        unit.oldest_version = _int(entry.data, "oldest_version")

    def _on_dead_lettered(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        unit = self._unit(event, entry)
        if unit.committed_fence is not None:
            self._fault(Fault.SAMPLE_LOST, entry.subject, event.seq, "dead-lettered although it was committed")
        unit.state = UnitState.DEAD_LETTERED

    def _on_group_dropped(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        group = entry.subject
        for unit_id in self._facts.groups.get(group, ()):
            unit = self._facts.units[unit_id]
            if unit.state is UnitState.CONSUMED:
                self._fault(Fault.BATCH_BROKEN, unit_id, event.seq, "dropped although it was trained on")
            if unit.state is not UnitState.DEAD_LETTERED:
                unit.state = UnitState.DROPPED
            unit.last_seq = event.seq
        self._facts.in_batch.pop(group, None)
        redrawn = entry.data.get("redrawn_as")
        if isinstance(redrawn, str):
            self._facts.redrawn[redrawn] = event.seq

    def _on_batch_taken(self, event: HistoryEvent) -> None:
        number, groups = _int(event.data, "batch"), tuple(entry.subject for entry in event.entries)
        self._check_trainer(event, f"batch {number}")
        before = self._facts.batches.get(number)
        if before is not None and before.acked:
            self._fault(Fault.BATCH_BROKEN, f"batch {number}", event.seq, "taken after it was acknowledged")
        new = [group for group in groups if before is None or group not in before.groups]
        for group in new:
            self._check_taken(event, number, group)
            self._facts.in_batch[group] = number
        self._facts.batches[number] = BatchTrail(groups)

    def _on_batch_acked(self, event: HistoryEvent) -> None:
        number, groups = _int(event.data, "batch"), tuple(entry.subject for entry in event.entries)
        self._check_trainer(event, f"batch {number}")
        taken = self._facts.batches.get(number)
        if taken is None and not self._facts.compacted_through:
            self._fault(Fault.BATCH_BROKEN, f"batch {number}", event.seq, "acknowledged, never taken")
        if taken is not None and sorted(taken.groups) != sorted(groups):
            self._fault(Fault.BATCH_BROKEN, f"batch {number}", event.seq, "acknowledged with other groups than taken")
        if taken is not None and taken.acked:
            self._fault(Fault.BATCH_BROKEN, f"batch {number}", event.seq, "acknowledged twice")
        for group in groups:
            self._consume(event, number, group)
        self._facts.batches[number] = BatchTrail(groups, acked=True)

    def _on_trainer_attached(self, event: HistoryEvent) -> None:
        epoch = _int(event.data, "trainer_epoch")
        if epoch <= self._facts.trainer_epoch:
            self._fault(Fault.EPOCH_BROKEN, "trainer", event.seq, f"epoch {epoch} after {self._facts.trainer_epoch}")
        self._facts.trainer_epoch = epoch

    def _on_compacted(self, event: HistoryEvent) -> None:
        self._announced_through = max(self._announced_through, _int(event.data, "through_seq"))
        self._facts.compacted_through = max(self._facts.compacted_through, self._announced_through)

    # --- checks -------------------------------------------------------------------------------------------------

    def _unit(self, event: HistoryEvent, entry: HistoryEntry) -> UnitTrail:
        unit = self._facts.units.get(entry.subject)
        if unit is None:
            unit = UnitTrail(group=entry.subject.rpartition("/")[0], kept=None, proved=False)
            self._facts.units[entry.subject] = unit
            self._facts.groups.setdefault(unit.group, set()).add(entry.subject)
            if not self._facts.compacted_through:
                self._fault(Fault.UNIT_INVENTED, entry.subject, event.seq, f"{event.kind} before it was put")
            elif event.kind is EventKind.RELEASED:
                unit.state = UnitState.LEASED
        unit.last_seq = event.seq
        return unit

    def _check_trainer(self, event: HistoryEvent, subject: str) -> None:
        epoch = _int(event.data, "trainer_epoch")
        if epoch < self._facts.trainer_epoch:
            self._fault(
                Fault.EPOCH_BROKEN,
                subject,
                event.seq,
                f"trainer epoch {epoch}, but {self._facts.trainer_epoch} took over",
            )

    def _check_taken(self, event: HistoryEvent, number: int, group: str) -> None:
        other = self._facts.in_batch.get(group)
        if other is not None and other != number:
            self._fault(Fault.GROUP_TRAINED_TWICE, group, event.seq, f"in batch {number} and in batch {other}")
        units = [self._facts.units[unit_id] for unit_id in self._facts.groups.get(group, ())]
        committed = [unit for unit in units if unit.state is UnitState.COMMITTED]
        size = self._facts.group_size.get(group)
        if len(committed) < len(units) or (size is not None and len(committed) != size):
            self._fault(
                Fault.GROUP_INCOMPLETE,
                group,
                event.seq,
                f"in batch {number} with {len(committed)} of {size} units committed",
            )
        age = _int(event.data, "trainer_version") - min((unit.oldest_version for unit in committed), default=0)
        if committed and self._facts.max_staleness is not None and age > self._facts.max_staleness:
            self._fault(
                Fault.GROUP_TOO_STALE, group, event.seq, f"{age} versions old, bound {self._facts.max_staleness}"
            )

    def _consume(self, event: HistoryEvent, number: int, group: str) -> None:
        prompt = group.rpartition(".")[0]
        before = self._facts.trained.setdefault(prompt, number)
        if before != number:
            self._fault(
                Fault.GROUP_TRAINED_TWICE, group, event.seq, f"acknowledged in batch {before} and in batch {number}"
            )
        for unit_id in self._facts.groups.get(group, ()):
            unit = self._facts.units[unit_id]
            unit.state, unit.last_seq = UnitState.CONSUMED, event.seq

    def _compare_one(self, entry: CensusEntry, changed_after_seq: int) -> None:
        unit = self._facts.units.get(entry.unit_id)
        if unit is None:
            self._unprovable.add(entry.unit_id)
            if not self._facts.compacted_through:
                self._fault(Fault.UNIT_INVENTED, entry.unit_id, None, "in the store, not in the history")
        elif unit.last_seq > changed_after_seq:
            self._skipped += 1
        else:
            self._check_state(entry, unit)

    def _check_state(self, entry: CensusEntry, unit: UnitTrail) -> None:
        if entry.state is not unit.state:
            lost = unit.state is UnitState.COMMITTED and entry.state in (UnitState.PENDING, UnitState.LEASED)
            fault = Fault.SAMPLE_LOST if lost else Fault.STATE_MISMATCH
            self._fault(fault, entry.unit_id, None, f"history says {unit.state}, the store has {entry.state}")
        elif entry.state is UnitState.LEASED and entry.fencing_token is not None:
            held = (entry.fencing_token.store_epoch, entry.fencing_token.counter)
            if held != unit.fence:
                self._fault(Fault.FENCE_BROKEN, entry.unit_id, None, f"history says {unit.fence}, the store has {held}")

    def _check_sample(self, unit_id: str, samples: Mapping[str, str], changed_after_seq: int) -> None:
        unit = self._facts.units.get(unit_id)
        fault = samples.get(unit_id, "it is not in the store")
        if fault and (unit is None or unit.last_seq <= changed_after_seq):
            self._fault(Fault.SAMPLE_LOST, unit_id, None, f"its sample cannot be read: {fault}")

    def _check_absent(self, unit_id: str, unit: UnitTrail) -> None:
        if unit.state not in _FINAL:
            fault = Fault.SAMPLE_LOST if unit.state is UnitState.COMMITTED else Fault.UNIT_LOST
            self._fault(fault, unit_id, None, f"{unit.state} by the history, and not in the store")

    def _check_redraws(self) -> None:
        for group, seq in self._facts.redrawn.items():
            if group not in self._facts.groups:
                self._fault(Fault.UNIT_LOST, group, seq, "announced as a new draw, never put")
        for group, size in self._facts.group_size.items():
            known = len(self._facts.groups[group])
            if known != size:
                self._fault(Fault.UNIT_LOST, group, None, f"{known} of its {size} units were put")

    def _fault(self, fault: Fault, subject: str, seq: int | None, message: str) -> None:
        self._findings.append(Finding(fault=fault, subject=subject, seq=seq, message=message))


_FINAL = frozenset({UnitState.CONSUMED, UnitState.DROPPED, UnitState.DEAD_LETTERED})


def _int(data: Mapping[str, Any], key: str) -> int:
    return int(data[key])


def _fence(entry: HistoryEntry) -> tuple[int, int]:
    store_epoch, _, counter = str(entry.data["fence"]).partition(".")
    return int(store_epoch), int(counter)


def audit(ledger: Ledger) -> AuditReport:
    """Audit an open ledger: has it check itself, reads its whole history, then every unit and sample it holds.

    Raises:
        LedgerRefused: it is damaged, so that it cannot be read as a ledger.
        LedgerUnavailable: it does not answer.
    """
    ledger.check()
    auditor = Auditor()
    auditor.feed(events_of(ledger, 0))
    before = auditor.last_seq
    with legible("its units and samples"):
        census = list(ledger.census())
        samples = {sample.unit_id: sample.fault for sample in ledger.samples()}
    auditor.feed(events_of(ledger, before))
    with legible("its units"):
        auditor.compare(census, samples, before)
        return auditor.report()


def events_of(ledger: Ledger, after_seq: int = 0) -> Iterator[HistoryEvent]:
    """All events after a sequence number, page by page; `LedgerRefused` where they cannot be read."""
    while page := _page(ledger, after_seq):
        yield from page
        after_seq = page[-1].seq


def _page(ledger: Ledger, after_seq: int) -> Sequence[HistoryEvent]:
    with legible(f"history after event {after_seq}"):
        return ledger.history(after_seq)
