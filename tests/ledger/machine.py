"""A ledger under several clients at once, against a small model of what they were told.

The model knows nothing of how a ledger works. It keeps what replies promised (who holds what until when, which tokens
were published, which samples were accepted, what is in the open batch) and after every step holds the store against it.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scaler.ledger.audit import Auditor
from scaler.ledger.contract import CommitOutcome, Ledger, StaleEpoch, UnitState
from scaler.model.job import OnStale
from scaler.model.work import Batch, Lease, ReleaseReason, Resume
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    groups,
    identity,
    release_of,
    settings,
    version,
)
from tests.builders.memory import memory_folder
from tests.ledger.factories import LedgerFactory

WORKERS = ("w0", "w1", "w2")
FINAL = {UnitState.CONSUMED, UnitState.DROPPED, UnitState.DEAD_LETTERED}
OVER = {UnitState.COMMITTED, *FINAL}


@dataclass
class Unit:
    """What was said of a unit."""

    resume: Resume
    token: object = None
    """The last fencing token handed out."""
    holder: str | None = None
    until_s: float = 0.0
    published: int = 0
    committed: bool = False
    state: UnitState = UnitState.PENDING
    """As the last census had it."""


@dataclass
class Model:
    """What was said of the job."""

    units: dict[str, Unit] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    """Every lease ever granted, so that old ones can be tried."""
    batch: tuple[int, frozenset[str]] | None = None
    trained: set[str] = field(default_factory=set)
    """Groups acknowledged."""


class LedgerMachine(RuleBasedStateMachine):
    """Workers, a trainer and a controller, each with its own client, in any order of calls."""

    def __init__(self, make: Callable[[Path], LedgerFactory]) -> None:
        super().__init__()
        self.folder = ExitStack()
        self.factory = make(self.folder.enter_context(memory_folder()))
        self.clients = {name: self.factory.open() for name in (*WORKERS, "trainer", "controller")}
        self.model = Model()
        self.auditor = Auditor()
        self.epoch = self.step = self.prompts = self.leader = 0

    def teardown(self) -> None:
        self.factory.close()
        self.folder.close()

    @property
    def watcher(self) -> Ledger:
        """The client that looks on."""
        return self.clients["controller"]

    @initialize(on_stale=st.sampled_from(OnStale), staleness=st.integers(0, 2), failures=st.integers(1, 2))
    def begin(self, on_stale: OnStale, staleness: int, failures: int) -> None:
        self.job = settings(
            max_staleness=staleness, on_stale=on_stale, unit_failure_limit=failures, max_concurrent=7, batch_groups=2
        )
        self.watcher.configure(self.job)
        self.epoch = self.clients["trainer"].attach_trainer("t")
        for worker in WORKERS:
            self.clients[worker].register(identity(worker))

    # --- prompts and time -----------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), resume=st.sampled_from(Resume))
    def put(self, count: int, resume: Resume) -> None:
        units = groups(count, first=self.prompts, resume=resume)
        self.prompts += count
        assert self.watcher.put_units(units) == len(units)
        assert self.watcher.put_units(units) == 0
        self.model.units.update({unit.unit_id: Unit(resume) for unit in units})

    @rule(seconds=st.sampled_from([0.5, 5.0, TTL_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.factory.now_s += seconds

    @rule()
    def expire(self) -> None:
        held_too_long = sum(
            unit.holder is not None and unit.until_s <= self.factory.now_s and unit.state is UnitState.LEASED
            for unit in self.model.units.values()
        )
        assert self.watcher.expire() == held_too_long

    @rule()
    def compact(self) -> None:
        assert self.watcher.compact() == 0

    # --- workers --------------------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(WORKERS))
    def work_through(self, worker: str) -> None:
        """Without a rule that finishes units in numbers, batches would be rare."""
        for lease in self.lease(worker, 4):
            unit = self.model.units[lease.unit.unit_id]
            one = commit_of(lease, 4, self.step)
            assert self.clients[worker].commit(worker, [one]) == (self.expected_outcome(unit, lease),)
            unit.committed, unit.holder = True, None

    @rule(worker=st.sampled_from(WORKERS), n=st.integers(1, 4))
    def lease_some(self, worker: str, n: int) -> None:
        self.lease(worker, n)

    def lease(self, worker: str, n: int) -> tuple[Lease, ...]:
        """Lease, and hold what is handed out against what is known."""
        reply = self.clients[worker].lease(worker, n, TTL_S)
        assert len(reply.leases) <= n
        for lease in reply.leases:
            unit = self.known(lease.unit.unit_id, lease.unit.resume)
            assert unit.holder is None or unit.until_s <= self.factory.now_s, "leased twice at the same time"
            assert unit.state not in OVER, "leased although it was over"
            assert unit.token is None or unit.token < lease.fencing_token  # type: ignore[operator]
            if unit.resume is Resume.RESTART:
                unit.published = 0
            assert lease.progress.tokens == tuple(range(unit.published)), "progress lost or invented"
            assert lease.deadline_s == self.factory.now_s + TTL_S
            unit.token, unit.holder, unit.until_s = lease.fencing_token, worker, lease.deadline_s
            self.model.leases.append(lease)
        return reply.leases

    def known(self, unit_id: str, resume: Resume) -> Unit:
        """The unit of an id; those of groups drawn again are first heard of when they are leased."""
        if unit_id not in self.model.units:
            assert unit_id.rpartition("/")[0].rpartition(".")[2] != "0", "a unit that nobody put"
        return self.model.units.setdefault(unit_id, Unit(resume))

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), tokens=st.integers(0, 3), gap=st.sampled_from([0, 0, 0, 1]), age=st.integers(0, 2))
    def heartbeat(self, data: st.DataObject, tokens: int, gap: int, age: int) -> None:
        lease = self.some_lease(data)
        unit = self.model.units[lease.unit.unit_id]
        news = delta(unit.published + gap, tokens, max(0, self.step - age))
        control = self.clients[lease.owner].heartbeat(lease.owner, [beat_of(lease, news)], READY, TTL_S)
        held = unit.holder is not None and unit.token == lease.fencing_token and unit.state is UnitState.LEASED
        assert (lease.unit.unit_id in {*control.lost, *control.abandon}) >= (not held or gap > 0)
        if held and not gap and lease.unit.unit_id not in control.lost:
            unit.published += tokens
            unit.until_s = self.factory.now_s + TTL_S

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), tokens=st.integers(1, 9), age=st.integers(0, 2), again=st.booleans())
    def commit(self, data: st.DataObject, tokens: int, age: int, again: bool) -> None:
        lease = self.some_lease(data)
        unit = self.model.units[lease.unit.unit_id]
        one = commit_of(lease, tokens, max(0, self.step - age))
        (outcome,) = self.clients[lease.owner].commit(lease.owner, [one])
        assert outcome is self.expected_outcome(unit, lease)
        if outcome is CommitOutcome.COMMITTED:
            unit.committed, unit.holder = True, None
            if again:
                assert self.watcher.commit(lease.owner, [one]) == (CommitOutcome.ALREADY,)

    def expected_outcome(self, unit: Unit, lease: Lease) -> CommitOutcome:
        """By the promise: valid until the fence is passed on, once, unless the unit can no longer be used."""
        if unit.token != lease.fencing_token:
            return CommitOutcome.REFUSED
        if unit.committed:
            return CommitOutcome.ALREADY
        return CommitOutcome.REFUSED if unit.state in FINAL else CommitOutcome.COMMITTED

    @precondition(lambda self: self.model.leases)
    @rule(
        data=st.data(),
        tokens=st.integers(0, 3),
        reason=st.sampled_from(
            [ReleaseReason.DRAIN, ReleaseReason.INFRASTRUCTURE, ReleaseReason.UNIT_FAILURE, ReleaseReason.ABANDONED]
        ),
    )
    def release(self, data: st.DataObject, tokens: int, reason: ReleaseReason) -> None:
        lease = self.some_lease(data)
        unit = self.model.units[lease.unit.unit_id]
        news = delta(unit.published, tokens, self.step)
        (released,) = self.clients[lease.owner].release(lease.owner, [release_of(lease, reason, news)])
        held = unit.holder is not None and unit.token == lease.fencing_token
        if unit.state not in FINAL:
            assert released == held
        if released and held and unit.state is UnitState.LEASED:
            unit.published += tokens
            unit.holder = None

    def some_lease(self, data: st.DataObject) -> Lease:
        """Mostly a recent lease, sometimes an old one."""
        leases = self.model.leases
        return leases[-1 - data.draw(st.integers(0, min(len(leases), 8) - 1))]

    @rule(worker=st.sampled_from(WORKERS), stays=st.booleans())
    def come_or_go(self, worker: str, stays: bool) -> None:
        if stays:
            self.clients[worker].register(identity(worker))
        else:
            self.clients[worker].release_worker(worker, ReleaseReason.DRAIN)
        for unit in self.model.units.values():
            if unit.holder == worker:
                unit.holder = None

    @rule(worker=st.sampled_from(WORKERS), ahead=st.integers(-1, 1))
    def drain(self, worker: str, ahead: int) -> None:
        epoch, before = self.leader + ahead, self.leader
        if epoch < before:
            try:
                self.watcher.drain(worker, self.factory.now_s + 60, "spot", epoch)
            except StaleEpoch:
                return
            raise AssertionError("an old controller was heard")
        if self.watcher.drain(worker, self.factory.now_s + 60, "spot", epoch):
            assert self.clients[worker].lease(worker, 1, TTL_S).leases == ()
            assert self.watcher.undrain(worker, epoch)
        self.leader = epoch

    # --- trainer --------------------------------------------------------------------------------------------------

    @rule()
    def another_trainer(self) -> None:
        old, self.epoch = self.epoch, self.clients["trainer"].attach_trainer("t")
        try:
            self.clients["trainer"].take_batch(old, 1, self.step, 0)
        except StaleEpoch:
            return
        raise AssertionError("an old trainer was heard")

    @rule(count=st.integers(1, 2))
    def take(self, count: int) -> None:
        trainer = self.clients["trainer"]
        batch = trainer.take_batch(self.epoch, count, self.step, self.job.max_staleness)
        if self.model.batch is not None:
            assert batch is not None
            assert batch.redelivered
            assert (batch.batch_id, contents(batch)) == self.model.batch
        elif batch is not None:
            assert not batch.redelivered
            assert len(batch.groups) == count
            self.check_fresh(batch)
            self.model.batch = (batch.batch_id, contents(batch))

    def check_fresh(self, batch: Batch) -> None:
        for group in batch.groups:
            assert all(self.model.units[unit.unit_id].committed for unit in group.units)
            oldest = min(sample.oldest_version for sample in group.samples)
            assert self.step - oldest <= self.job.max_staleness
            assert f"{group.group_id}.{group.group_epoch}" not in self.model.trained

    @precondition(lambda self: self.model.batch)
    @rule(data=st.data())
    def take_more(self, data: st.DataObject) -> None:
        assert self.model.batch is not None
        number, before = self.model.batch
        reject = data.draw(st.sets(st.sampled_from(sorted(before)))) if before else set()
        batch = self.clients["trainer"].take_more(self.epoch, number, [name.rpartition(".")[0] for name in reject])
        kept = before - reject
        after = kept if batch is None else contents(batch)
        assert kept <= after
        assert not after & reject
        self.model.batch = (number, after)

    @precondition(lambda self: self.model.batch)
    @rule(publish=st.booleans())
    def acknowledge(self, publish: bool) -> None:
        assert self.model.batch is not None
        number, members = self.model.batch
        trainer = self.clients["trainer"]
        assert [trainer.ack_batch(self.epoch, [number]), trainer.ack_batch(self.epoch, [number, 999])] == [1, 0]
        self.model.trained |= members
        self.model.batch = None
        if publish:
            self.step += 1
            trainer.publish(self.epoch, version(self.step))

    # --- what must hold after every step --------------------------------------------------------------------------

    @invariant()
    def the_store_holds_what_was_promised(self) -> None:
        if not self.epoch:
            return
        census = {entry.unit_id: entry for entry in self.watcher.census()}
        assert self.model.units.keys() <= census.keys(), "a unit was lost"
        for unit_id, entry in census.items():
            unit = self.model.units.get(unit_id)
            if unit is not None:
                self.check_unit(unit_id, unit, entry.state)
                unit.state = entry.state
        self.check_counts(Counter(entry.state for entry in census.values()))
        self.auditor.feed(self.watcher.history(self.auditor.last_seq))
        samples = {sample.unit_id: sample.fault for sample in self.watcher.samples()}
        self.auditor.compare(census.values(), samples, self.auditor.last_seq)
        assert self.auditor.report().findings == ()

    def check_unit(self, unit_id: str, unit: Unit, state: UnitState) -> None:
        assert unit.state not in FINAL or unit.state is state, f"{unit_id}: {unit.state} was final"
        if unit.committed:
            assert state in OVER, f"{unit_id}: its sample was lost"
        else:
            assert state not in (UnitState.COMMITTED, UnitState.CONSUMED), f"{unit_id}: a sample from nowhere"
        trained = unit_id.rpartition("/")[0] in self.model.trained
        assert trained == (state is UnitState.CONSUMED), unit_id
        if state is UnitState.LEASED:
            assert unit.holder is not None, f"{unit_id}: leased by nobody"
        if unit.state is UnitState.LEASED is not state:
            unit.holder = None

    def check_counts(self, states: Counter[UnitState]) -> None:
        stats = self.watcher.stats()
        assert stats.pending == states[UnitState.PENDING]
        assert stats.running == states[UnitState.LEASED]
        assert stats.buffered == states[UnitState.COMMITTED]
        assert stats.accepted == states[UnitState.CONSUMED]
        assert stats.dead_lettered == states[UnitState.DEAD_LETTERED] == len(self.watcher.dead_letters())
        assert sum(sum(lengths.values()) for lengths in stats.dropped.values()) == states[UnitState.DROPPED]
        in_batch = 0 if self.model.batch is None else len(self.model.batch[1])
        assert stats.consumed - stats.accepted == in_batch * self.job.group_size
        bound = (self.job.max_staleness + 1) * self.job.batch_samples
        room = min(self.job.max_concurrent - stats.running, bound - stats.buffered - stats.running)
        assert stats.admissible == max(0, room)
        assert stats.running + stats.buffered <= bound
        assert sum(record.leases for record in self.watcher.workers()) == stats.running
        assert stats.backing_off <= stats.pending


def contents(batch: Batch) -> frozenset[str]:
    """The names of a batch's groups."""
    return frozenset(f"{group.group_id}.{group.group_epoch}" for group in batch.groups)
