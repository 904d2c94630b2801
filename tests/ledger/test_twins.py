"""The two engines are told the same, many units a call, and must say the same of it: they share no code that decides.

Fencing tokens are each engine's own; everything else that a client sees is compared.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from scaler.ledger.contract import Beat, Commit, Control, LeaseReply, Ledger, Release
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent
from scaler.model.job import OnStale
from scaler.model.work import Batch, FencingToken, Lease, ReleaseReason, Resume
from tests.builders.ledger import READY, TTL_S, delta, groups, identity, sample, version
from tests.builders.ledger import settings as job_settings
from tests.ledger.factories import ENGINES

T = TypeVar("T")
WORKERS = ("w0", "w1", "w2")
NOBODYS = FencingToken(1, 10**6)
NO_UNITS = ("g0.0/01", "g0.0/99", "g0.0/-1", "g0.0", "", "nobody.0/0")
REASONS = (ReleaseReason.DRAIN, ReleaseReason.INFRASTRUCTURE, ReleaseReason.UNIT_FAILURE, ReleaseReason.ABANDONED)
PICKS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12)
"""Of each unit of a call: which of the last leases, how many tokens, how many versions ago."""


class TwinMachine(RuleBasedStateMachine):
    """Each rule makes one call, on both engines."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.factories = [ENGINES[name](Path(self.folder.name)) for name in sorted(ENGINES)]
        self.ledgers = [factory.open() for factory in self.factories]
        self.leases: list[tuple[Lease, ...]] = []
        """Every lease so far, as each engine granted it."""
        self.epoch = self.step = self.prompts = 0
        self.batch: Batch | None = None

    def teardown(self) -> None:
        for factory in self.factories:
            factory.close()
        self.folder.cleanup()

    def both(self, call: Callable[[Ledger, int], T], show: Callable[[T], Any] = lambda reply: reply) -> list[T]:
        """Both replies; what they show must be the same."""
        replies = [call(ledger, which) for which, ledger in enumerate(self.ledgers)]
        one, two = map(show, replies)
        assert one == two
        return replies

    @initialize(on_stale=st.sampled_from(OnStale), staleness=st.integers(0, 2), failures=st.integers(1, 2))
    def begin(self, on_stale: OnStale, staleness: int, failures: int) -> None:
        job = job_settings(
            max_staleness=staleness, on_stale=on_stale, unit_failure_limit=failures, max_concurrent=30, batch_groups=9
        )
        self.both(lambda ledger, _: ledger.configure(job))
        self.epoch, _ = self.both(lambda ledger, _: ledger.attach_trainer("t"))
        for worker in WORKERS:
            self.come_or_go(worker, stays=True)

    @rule(count=st.integers(1, 2), size=st.integers(1, 9), resume=st.sampled_from(Resume))
    def put(self, count: int, size: int, resume: Resume) -> None:
        units = groups(count, size, first=self.prompts, resume=resume)
        self.prompts += count
        self.both(lambda ledger, _: ledger.put_units(units))

    @rule(seconds=st.sampled_from([0.5, 5.0, 0.6 * TTL_S, TTL_S + 1]))
    def time_passes(self, seconds: float) -> None:
        for factory in self.factories:
            factory.now_s += seconds

    @rule(worker=st.sampled_from(WORKERS), n=st.integers(1, 20))
    def lease(self, worker: str, n: int) -> None:
        replies = self.both(lambda ledger, _: ledger.lease(worker, n, TTL_S), of_lease_reply)
        self.leases += zip(*(reply.leases for reply in replies), strict=True)

    @rule(worker=st.sampled_from(WORKERS), n=st.integers(1, 20), tokens=st.integers(1, 3))
    def lease_and_commit(self, worker: str, n: int, tokens: int) -> None:
        """Without a rule that finishes many units, batches would be rare."""
        before = len(self.leases)
        self.lease(worker, n)
        self.both(
            lambda ledger, which: ledger.commit(
                worker, [self.commit_of(lease[which], tokens, 0) for lease in self.leases[before:]]
            )
        )

    def commit_of(self, lease: Lease, tokens: int, age: int) -> Commit:
        unit_id = lease.unit.unit_id
        body = sample(unit_id, tokens, max(0, self.step - age))
        return Commit(unit_id=unit_id, fencing_token=lease.fencing_token, sample=body)

    def picked(self, picks: Iterable[tuple[int, int, int]], which: int) -> Iterable[tuple[Lease, int, int]]:
        for back, tokens, age in picks:
            if back < len(self.leases):
                yield self.leases[-1 - back][which], tokens, age

    @rule(worker=st.sampled_from(WORKERS), picks=PICKS, strange=st.booleans())
    def commit(self, worker: str, picks: list[tuple[int, int, int]], strange: bool) -> None:
        def call(ledger: Ledger, which: int) -> Any:
            commits = [self.commit_of(*pick) for pick in self.picked(picks, which)]
            commits += [
                Commit(unit_id=name, fencing_token=NOBODYS, sample=sample(name)) for name in NO_UNITS if strange
            ]
            return ledger.commit(worker, commits)

        self.both(call)

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 12), tokens=st.integers(1, 3), age=st.integers(0, 2))
    def commit_side_by_side(self, worker: str, count: int, tokens: int, age: int) -> None:
        self.both(
            lambda ledger, which: ledger.commit(
                worker, [self.commit_of(lease[which], tokens, age) for lease in self.leases[-count:]]
            )
        )

    @rule(worker=st.sampled_from(WORKERS), picks=PICKS, strange=st.booleans())
    def heartbeat(self, worker: str, picks: list[tuple[int, int, int]], strange: bool) -> None:
        def call(ledger: Ledger, which: int) -> Control:
            beats = [
                Beat(
                    unit_id=lease.unit.unit_id,
                    fencing_token=lease.fencing_token,
                    progress=delta(len(lease.progress.tokens), tokens, max(0, self.step - age)) if tokens else None,
                )
                for lease, tokens, age in self.picked(picks, which)
            ]
            beats += [Beat(unit_id=name, fencing_token=NOBODYS) for name in NO_UNITS if strange]
            return ledger.heartbeat(worker, beats, READY, TTL_S)

        self.both(call, of_control)

    @rule(worker=st.sampled_from(WORKERS), picks=PICKS, reason=st.sampled_from(REASONS), strange=st.booleans())
    def release(self, worker: str, picks: list[tuple[int, int, int]], reason: ReleaseReason, strange: bool) -> None:
        def call(ledger: Ledger, which: int) -> Any:
            releases = [
                Release(
                    unit_id=lease.unit.unit_id,
                    fencing_token=lease.fencing_token,
                    reason=reason,
                    progress=delta(len(lease.progress.tokens), tokens, max(0, self.step - age)) if tokens else None,
                )
                for lease, tokens, age in sorted(self.picked(picks, which), key=as_put)
            ]
            releases += [Release(unit_id=name, fencing_token=NOBODYS, reason=reason) for name in NO_UNITS if strange]
            return ledger.release(worker, releases)

        self.both(call)

    @rule(n=st.integers(2, 9), kept=st.integers(0, 4), tokens=st.integers(0, 2), age=st.integers(0, 2), beats=PICKS)
    def relay(self, n: int, kept: int, tokens: int, age: int, beats: list[tuple[int, int, int]]) -> None:
        """One worker publishes and gives some back, another takes them up, and both go on for a while."""
        before = len(self.leases)
        self.lease("w0", n)
        self.heartbeat("w0", [(back, tokens, age) for back in range(n)], strange=False)
        given_back = [(back, tokens, 0) for back in range(len(self.leases) - before - kept)]
        self.release("w0", given_back, ReleaseReason.DRAIN, strange=False)
        self.time_passes(0.6 * TTL_S)
        self.lease("w1", n)
        self.heartbeat("w1", beats, strange=False)
        self.time_passes(0.6 * TTL_S)
        self.expire()

    @rule(n=st.integers(1, 9), count=st.integers(1, 9), tokens=st.integers(0, 3))
    def too_late(self, n: int, count: int, tokens: int) -> None:
        """A worker's leases run out, and nobody has them when it commits some of them."""
        self.lease("w2", n)
        self.heartbeat("w2", [(back, tokens, 0) for back in range(0, n, 2)], strange=False)
        self.time_passes(TTL_S + 1)
        self.expire()
        self.commit_side_by_side("w2", count, tokens, 0)

    @rule(worker=st.sampled_from(WORKERS), stays=st.booleans())
    def come_or_go(self, worker: str, stays: bool) -> None:
        if stays:
            self.both(lambda ledger, _: ledger.register(identity(worker)))
        else:
            self.both(lambda ledger, _: ledger.release_worker(worker, ReleaseReason.DRAIN))

    @rule()
    def expire(self) -> None:
        self.both(lambda ledger, _: ledger.expire())

    @rule()
    def take(self) -> None:
        replies = self.both(lambda ledger, _: ledger.take_batch(self.epoch, 1, self.step, 2))
        self.batch = replies[0]

    @rule(data=st.data())
    def take_more(self, data: st.DataObject) -> None:
        if self.batch is not None:
            number, names = self.batch.batch_id, [group.group_id for group in self.batch.groups]
            reject = sorted(data.draw(st.sets(st.sampled_from(names)))) if names else []
            replies = self.both(lambda ledger, _: ledger.take_more(self.epoch, number, reject))
            self.batch = replies[0] or self.batch

    @rule(publish=st.booleans())
    def acknowledge(self, publish: bool) -> None:
        if self.batch is not None:
            number, self.batch = self.batch.batch_id, None
            self.both(lambda ledger, _: ledger.ack_batch(self.epoch, [number]))
            if publish:
                self.step += 1
                self.both(lambda ledger, _: ledger.publish(self.epoch, version(self.step)))

    @invariant()
    def they_hold_the_same(self) -> None:
        if self.epoch:
            self.both(lambda ledger, _: ledger.stats())
            self.both(lambda ledger, _: {entry.unit_id: entry.state for entry in ledger.census()})
            self.both(lambda ledger, _: sorted((held.unit_id, held.fault) for held in ledger.samples()))
            self.both(lambda ledger, _: sorted(map(repr, ledger.workers())))
            self.both(lambda ledger, _: sorted(of_history(ledger.history())))


def as_put(pick: tuple[Lease, int, int]) -> tuple[int, int, int]:
    """The order that units were put in. In which order a call's failed groups are drawn again is each engine's own."""
    unit = pick[0].unit
    return int(unit.group_id[1:]), unit.group_epoch, unit.sample_index


def of_lease_reply(reply: LeaseReply) -> Any:
    return [dataclasses.replace(lease, fencing_token=NOBODYS) for lease in reply.leases], of_control(reply.control)


def of_control(control: Control) -> Any:
    """In which order units are named is each engine's own."""
    return dataclasses.replace(control, lost=tuple(sorted(control.lost)), abandon=tuple(sorted(control.abandon)))


def of_history(events: Iterable[HistoryEvent]) -> Iterable[Any]:
    """What was told, in no order: a call may tell it in one event or in several. A file has no epoch of its store."""
    for event in events:
        if event.kind is not EventKind.STORE_EPOCH:
            for entry in event.entries or (HistoryEntry(""),):
                data = {name: value for name, value in entry.data.items() if name != "fence"}
                yield repr((event.kind, event.worker, sorted(event.data.items()), entry.subject, sorted(data.items())))


def test_both_engines_say_the_same() -> None:
    run_state_machine_as_test(
        TwinMachine,
        settings=settings(max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
