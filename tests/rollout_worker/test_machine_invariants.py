"""Whatever happens in whatever order: no leased unit is forgotten, doubled or invented."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rollout_worker import events as ev
from rollout_worker.held import UnitPhase
from scaler.ledger.contract import Beat, CommitOutcome, Control, LeaseReply
from scaler.model.work import FinishReason, Lease, ReleaseReason
from tests.builders.worker import Driven, a_chunk, a_control, a_lease, a_machine, a_unit

PLACES = 4


class AnyOrder(RuleBasedStateMachine):
    """A ledger that answers, fails or loses the answer, and an engine that does as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.driven: Driven = a_machine(concurrency=PLACES, publish_tokens=2, heartbeat_s=0.5)
        self.fence = 1
        self.next_unit = 0
        self.leased: dict[str, Lease] = {}
        self.stored: dict[str, int] = {}
        """Tokens of each leased unit that the ledger has."""
        self.for_good = False

    def control(self, *, marked: bool, abandon: bool = False, lose: bool = False) -> Control:
        one = tuple(sorted(self.leased)[:1])
        for unit_id in one if lose else ():
            del self.leased[unit_id]
        drain_in_s = 3.0 if marked else None
        return a_control(drain_in_s=drain_in_s, abandon=one if abandon else (), lost=one if lose else ())

    def commit(self, call: ev.SendCommits) -> tuple[CommitOutcome, ...]:
        return tuple(self.commit_one(commit.unit_id) for commit in call.commits)

    def commit_one(self, unit_id: str) -> CommitOutcome:
        return CommitOutcome.REFUSED if self.leased.pop(unit_id, None) is None else CommitOutcome.COMMITTED

    @rule(answered=st.booleans(), arrived=st.booleans(), marked=st.booleans(), granted=st.integers(0, PLACES))
    def the_ledger_is_called(self, answered: bool, arrived: bool, marked: bool, granted: int) -> None:
        call = self.driven.idle()
        if call is None or not (arrived or answered):
            return
        event = self.answer_to(call, marked=marked, granted=granted)
        if answered:
            self.driven.hear(event)
        elif isinstance(event, ev.LeasesGranted):
            for lease in event.reply.leases:  # granted, and the answer lost: they run out
                del self.leased[lease.unit.unit_id]

    def answer_to(self, call: ev.LedgerCall, *, marked: bool, granted: int) -> ev.Event:
        """What the ledger does, and what it says if the answer gets through."""
        now_s = self.driven.now_s
        match call:
            case ev.SendBeats(beats):
                self.store(beats)
                return ev.BeatsAnswered(at_s=0, sent_at_s=now_s, call=call, control=self.control(marked=marked))
            case ev.SendCommits():
                return ev.CommitsAnswered(at_s=0, call=call, outcomes=self.commit(call))
            case ev.SendReleases(releases):
                for release in releases:
                    self.leased.pop(release.unit_id, None)
                return ev.ReleasesAnswered(at_s=0, call=call)
            case ev.AskLeases(n):
                assert not self.driven.machine.drains.active
                return self.lease(min(n, granted), marked=False)
            case ev.SayGoodbye():
                assert not self.driven.machine.units
                return ev.GoodbyeAnswered(at_s=0)
            case ev.Register():
                raise AssertionError("it is registered")

    def store(self, beats: tuple[Beat, ...]) -> None:
        for beat in beats:
            if beat.progress and beat.unit_id in self.leased:
                assert beat.progress.start <= self.stored[beat.unit_id], "a gap"
                end = beat.progress.start + len(beat.progress.tokens)
                self.stored[beat.unit_id] = max(self.stored[beat.unit_id], end)

    def lease(self, n: int, *, marked: bool) -> ev.LeasesGranted:
        leases = []
        for _ in range(n):
            self.fence += 1
            self.next_unit += 1
            unit = a_unit(f"g{self.next_unit}", max_tokens=6, time_bound_s=4.0)
            lease = a_lease(unit, fence=self.fence, done=self.next_unit % 3)
            self.leased[unit.unit_id] = lease
            self.stored[unit.unit_id] = len(lease.progress.tokens)
            leases.append(lease)
        reply = LeaseReply(leases=tuple(leases), control=self.control(marked=marked))
        return ev.LeasesGranted(at_s=0, sent_at_s=self.driven.now_s, reply=reply)

    @rule(abandon=st.booleans(), lose=st.booleans(), marked=st.booleans())
    def the_ledger_gives_orders(self, abandon: bool, lose: bool, marked: bool) -> None:
        self.store(self.driven.beats())
        self.driven.beat(self.control(marked=marked, abandon=abandon, lose=lose))

    @precondition(lambda self: self.driven.running)
    @rule(which=st.integers(0, PLACES - 1), tokens=st.integers(1, 3), stop=st.booleans(), version=st.integers(1, 3))
    def the_engine_generates(self, which: int, tokens: int, stop: bool, version: int) -> None:
        request_id = sorted(self.driven.running)[which % len(self.driven.running)]
        finish = FinishReason.STOP if stop else None
        self.driven.chunk(request_id, a_chunk(tokens, version=version, finish=finish))

    @precondition(lambda self: self.driven.running)
    @rule(reason=st.sampled_from([ReleaseReason.INFRASTRUCTURE, ReleaseReason.UNIT_FAILURE]))
    def a_generation_fails(self, reason: ReleaseReason) -> None:
        request_id = min(self.driven.running)
        self.driven.fail(request_id, ev.GenerationFailed(at_s=0, request_id=request_id, reason=reason, error="e"))

    @rule(healthy=st.booleans())
    def the_engine_is_looked_at(self, healthy: bool) -> None:
        self.driven.hear(ev.EngineSeen(at_s=0, healthy=healthy, version=1))

    @rule(seconds=st.floats(0.01, 2.0))
    def time_passes(self, seconds: float) -> None:
        self.driven.later(seconds)

    @rule(source=st.sampled_from([ev.DrainSource.SIGNAL, ev.DrainSource.NOTICE]), in_s=st.floats(-1.0, 5.0))
    def it_is_told_to_leave(self, source: ev.DrainSource, in_s: float) -> None:
        self.driven.order(source, in_s)
        self.for_good = True

    @invariant()
    def every_leased_unit_is_held_in_one_place(self) -> None:
        assert set(self.leased) <= set(self.driven.machine.units)

    @invariant()
    def no_more_is_generated_than_there_are_places(self) -> None:
        assert len(self.driven.machine.in_phase(UnitPhase.GENERATING)) <= PLACES

    @invariant()
    def it_ends_once_and_only_when_told_to(self) -> None:
        exits = [said for said in self.driven.said if isinstance(said, ev.Exit)]
        assert len(exits) <= self.for_good

    def teardown(self) -> None:
        """From wherever it is, an answering ledger and a signal lead to the end with nothing held."""
        self.driven.order(ev.DrainSource.SIGNAL, -1.0)
        while (call := self.driven.idle()) is not None:
            self.driven.answer(call)
        assert not self.driven.machine.units
        assert any(isinstance(said, ev.Exit) for said in self.driven.said)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)
