"""Who leads: on a fake clock and a fake API server, whatever goes wrong."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.kube.contract import LEASES, Conflict, KubeUnreachable
from scaler.kube.lease import LeadershipLost
from scaler.kube.lease_record import EPOCH_ANNOTATION, record_of
from tests.builders.clock import FakeClock
from tests.builders.electors import NAME, NAMESPACE, Candidate, WitnessedClock, an_elector, leads
from tests.builders.fake_kube import FakeKube

LOST = KubeUnreachable("the answer is lost")


@dataclass
class Election:
    """Candidates, and two invariants: at no instant do two lead, and epochs rise with each acquisition."""

    clock: WitnessedClock = field(default_factory=WitnessedClock)
    candidates: list[Candidate] = field(default_factory=list)
    dead: list[Candidate] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = FakeKube(self.clock)
        self.clock.witness = self.witness

    def witness(self) -> None:
        leading = [each.elector.identity for each in (*self.candidates, *self.dead) if each.elector.leading]
        assert len(leading) <= 1, f"at {self.clock.monotonic_s()}: {leading}"

    def led(self, epoch: int) -> None:
        assert not self.epochs or epoch > self.epochs[-1]
        self.epochs.append(epoch)

    def join(self) -> Candidate:
        candidate = Candidate(f"c{len(self.candidates)}", self.server, self.clock, self.led)
        self.candidates.append(candidate)
        return candidate

    @property
    def leader(self) -> Candidate | None:
        return next((each for each in self.candidates if each.elector.leading), None)

    async def until_led(self, at_most_s: float = 60.0) -> tuple[Candidate, float]:
        """The next leader, and how long that took."""
        began_s = self.clock.monotonic_s()
        while self.leader is None:
            await self.clock.advance(0.25)
            assert self.clock.monotonic_s() - began_s <= at_most_s, "nobody leads"
        return self.leader, self.clock.monotonic_s() - began_s

    async def kill(self, candidate: Candidate) -> None:
        await candidate.die()
        self.candidates.remove(candidate)
        self.dead.append(candidate)

    async def over(self) -> None:
        for each in self.candidates:
            await each.die()


async def an_election(count: int) -> Election:
    election = Election()
    for _ in range(count):
        election.join()
    await election.until_led()
    return election


async def test_bug_104_one_of_many_leads_and_goes_on_leading() -> None:
    election = await an_election(3)
    first = election.leader
    await election.clock.advance(300.0)
    assert election.leader is first
    assert len(election.epochs) == 1
    await election.over()


async def test_an_epoch_is_at_least_the_second_of_the_wall_clock_so_that_a_lost_lease_object_does_not_lower_it() -> (
    None
):
    election = await an_election(2)
    assert election.epochs == [1_000_000]
    await election.clock.advance(60.0)
    await election.server.delete(LEASES, NAME, namespace=NAMESPACE)
    await election.clock.advance(60.0)
    assert election.leader
    assert len(election.epochs) == 2
    await election.over()


async def test_the_epoch_rises_even_where_the_wall_clock_went_back() -> None:
    election = await an_election(1)
    election.clock.step(-500_000.0)
    await election.candidates[0].retire()
    election.candidates.clear()
    election.join()
    await election.until_led()
    assert election.epochs == [1_000_000, 1_000_001]
    await election.over()


async def test_after_the_leader_was_killed_another_leads_within_20_s() -> None:
    election = await an_election(3)
    await election.clock.advance(61.0)
    leader = election.leader
    assert leader
    await election.kill(leader)
    _, took_s = await election.until_led()
    assert took_s < 20.0
    await election.over()


async def test_so_it_is_with_an_api_server_that_takes_1_5_s_for_each_request() -> None:
    election = await an_election(3)
    for each in election.candidates:
        each.api.slow("*", "leases", 1.5)
    await election.clock.advance(60.0)
    assert len(election.epochs) == 1
    leader = election.leader
    assert leader
    await election.kill(leader)
    _, took_s = await election.until_led()
    assert took_s < 20.0
    await election.over()


async def test_bug_101_a_leader_that_retires_is_followed_at_once() -> None:
    election = await an_election(2)
    leader = election.leader
    assert leader
    election.candidates.remove(leader)
    election.dead.append(leader)
    await leader.retire()
    assert not leads(leader.elector)
    _, took_s = await election.until_led()
    assert took_s <= 2.25
    await election.over()


async def test_a_process_that_was_stopped_past_its_deadline_does_not_lead_when_it_goes_on_before_any_await() -> None:
    election = await an_election(2)
    old = election.leader
    assert old
    old.stop()
    await election.clock.advance(60.0)
    assert not leads(old.elector)
    assert election.leader not in (None, old)
    old.go()
    assert not leads(old.elector)
    await election.clock.advance(60.0)
    assert election.leader is not old
    assert len(election.epochs) == 2
    await election.over()


async def test_a_renewal_under_way_when_its_process_is_stopped_counts_from_when_it_began() -> None:
    election = await an_election(1)
    leader = election.candidates[0]
    fault = leader.api.slow("update", "leases", 1.0, times=1)
    while not fault.hit:
        await election.clock.advance(0.25)
    leader.stop()
    await election.clock.advance(60.0)
    leader.go()
    await election.clock.settle()
    assert len(election.epochs) == 2, "it leads again, having acquired again"
    await election.over()


async def test_so_does_an_acquisition() -> None:
    election = Election()
    candidate = election.join()
    candidate.api.slow("create", "leases", 1.0, times=1)
    await election.clock.settle()
    candidate.stop()
    await election.clock.advance(60.0)
    missed = record_of(await election.server.get(LEASES, NAME, namespace=NAMESPACE)).epoch
    candidate.go()
    await election.clock.settle()
    assert [epoch > missed for epoch in election.epochs] == [True]
    await election.over()


async def test_a_leader_that_finds_another_in_its_lease_stops_and_leaves_it_there() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    elector = an_elector(api, clock, "a")
    await elector.acquire()
    await api.patch(LEASES, NAME, {"spec": {"holderIdentity": "somebody"}}, namespace=NAMESPACE)
    holding = asyncio.ensure_future(elector.hold())
    await clock.advance(2.1)
    with pytest.raises(LeadershipLost, match="somebody"):
        await holding
    assert not leads(elector)
    assert record_of(await api.get(LEASES, NAME, namespace=NAMESPACE)).holder == "somebody"


async def test_bug_102_a_leader_cut_off_stops_at_its_deadline_though_its_requests_hang() -> None:
    election = await an_election(1)
    election.candidates[0].api.hang("*", "leases")
    await election.clock.advance(7.5)
    assert election.leader is None
    await election.over()


async def test_hold_ends_by_its_deadline_and_says_so() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    elector = an_elector(api, clock, "a")
    assert await elector.acquire() == elector.epoch
    holding = asyncio.ensure_future(elector.hold())
    await clock.advance(3.0)
    api.hang("update", "leases")
    await clock.advance(6.05)
    assert holding.done()
    with pytest.raises(LeadershipLost):
        await holding
    assert not leads(elector)


async def test_a_renewal_that_landed_though_its_answer_was_lost_costs_no_leadership() -> None:
    election = await an_election(2)
    leader = election.leader
    assert leader
    for _ in range(5):
        leader.api.fail_next("update", "leases", LOST, landed=True)
        await election.clock.advance(10.0)
    assert election.leader is leader
    assert len(election.epochs) == 1
    await election.over()


async def test_an_acquisition_that_landed_though_its_answer_was_lost_is_taken_up_by_its_own_process() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    api.fail_next("create", "leases", LOST, landed=True)
    elector = an_elector(api, clock, "a")
    acquiring = asyncio.ensure_future(elector.acquire())
    await clock.advance(2.1)
    assert await acquiring > 1_000_000
    assert leads(elector)


async def test_another_process_of_the_same_name_is_another_process() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    first = an_elector(api, clock, "pod-0")
    await first.acquire()
    second = an_elector(api.client(), clock, "pod-0")
    acquiring = asyncio.ensure_future(second.acquire())
    await clock.advance(6.9)
    assert not leads(second)
    await clock.advance(10.0)
    assert leads(second)
    assert await acquiring > first.epoch


async def test_bug_103_what_counts_is_the_holders_own_duration() -> None:
    """fabric8#7258, kubernetes#23731."""
    clock = FakeClock()
    api = FakeKube(clock)
    slow = an_elector(api, clock, "a", lease_s=60.0, renew_deadline_s=40.0)
    await slow.acquire()
    quick = an_elector(api.client(), clock, "b")
    acquiring = asyncio.ensure_future(quick.acquire())
    await clock.advance(59.0)
    assert not leads(quick)
    await clock.advance(5.0)
    assert leads(quick)
    await acquiring


@pytest.mark.parametrize("stamp", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "yesterday", None])
async def test_bug_102_what_the_record_says_of_time_decides_nothing(stamp: str | None) -> None:
    """client-go#448."""
    clock = FakeClock()
    api = FakeKube(clock)
    spec: dict[str, Any] = {
        "holderIdentity": "other",
        "leaseDurationSeconds": 10,
        "renewTime": stamp,
        "acquireTime": stamp,
    }
    api.place(LEASES, {"metadata": {"name": NAME}, "spec": spec}, namespace=NAMESPACE)
    elector = an_elector(api, clock, "a")
    acquiring = asyncio.ensure_future(elector.acquire())
    await clock.advance(9.5)
    assert not leads(elector)
    await clock.advance(1.0)
    assert leads(elector)
    await acquiring


async def test_bug_106_every_renewal_is_seen_by_others_whatever_the_wall_clock_does() -> None:
    election = await an_election(2)
    for _ in range(30):
        election.clock.step(-2.0)
        await election.clock.advance(2.0)
    assert len(election.epochs) == 1
    await election.over()


async def test_a_lease_that_vanishes_under_its_leader_is_not_taken_by_a_standby_before_that_has_stopped() -> None:
    election = await an_election(2)
    leader = election.leader
    assert leader
    await election.clock.advance(4.0)
    leader.stop()
    await election.server.delete(LEASES, NAME, namespace=NAMESPACE)
    await election.clock.advance(4.5)
    assert leads(leader.elector)
    await election.clock.advance(13.0)
    assert election.leader not in (None, leader)
    leader.go()
    await election.over()


async def test_a_lease_full_of_nonsense_is_taken_over_after_a_leases_time_and_its_labels_stay() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    meta = {"name": NAME, "labels": {"a": "b"}, "annotations": {EPOCH_ANNOTATION: "-7x", "other": "kept"}}
    odd = {"holderIdentity": 5, "leaseDurationSeconds": "x", "leaseTransitions": None}
    api.place(LEASES, {"metadata": meta, "spec": odd}, namespace=NAMESPACE)
    elector = an_elector(api, clock, "a")
    acquiring = asyncio.ensure_future(elector.acquire())
    await clock.advance(12.0)
    assert leads(elector)
    lease = await api.get(LEASES, NAME, namespace=NAMESPACE)
    assert lease["metadata"]["labels"] == {"a": "b"}
    assert lease["metadata"]["annotations"]["other"] == "kept"
    assert record_of(lease).epoch == await acquiring
    assert lease["spec"]["leaseTransitions"] == 0


async def test_a_release_that_meets_a_late_renewal_is_tried_again() -> None:
    clock = FakeClock()
    api = FakeKube(clock)
    elector = an_elector(api, clock, "a")
    await elector.acquire()
    api.fail_next("update", "leases", Conflict("late", status=409))
    await elector.release()
    assert record_of(await api.get(LEASES, NAME, namespace=NAMESPACE)).holder == ""


@pytest.mark.parametrize("times", [(2.0, 7.0, 7.5), (7.0, 7.0, 10.0), (0.0, 7.0, 10.0), (2.0, 10.0, 10.0)])
def test_times_that_would_let_two_lead_are_refused(times: tuple[float, float, float]) -> None:
    retry_s, renew_deadline_s, lease_s = times
    clock = FakeClock()
    with pytest.raises(ValueError, match="shorter"):
        an_elector(
            FakeKube(clock),
            clock,
            retry_s=retry_s,
            renew_deadline_s=renew_deadline_s,
            lease_s=lease_s,
        )


# What goes wrong: (what, to whom, how much).

Trouble = tuple[str, int, float]
TROUBLES = st.lists(
    st.tuples(
        st.sampled_from(
            ["stop", "go", "go", "kill", "retire", "lose", "fail", "hang", "slow", "lag", "heal", "step", "conflict"]
        ),
        st.integers(0, 2),
        st.floats(0.1, 16.0),
    ),
    min_size=5,
    max_size=25,
)


async def befall(election: Election, what: str, who: int, amount: float) -> None:
    candidate = election.candidates[who % len(election.candidates)]
    api = candidate.api
    befalls: dict[str, Callable[[], object]] = {
        "stop": candidate.stop,
        "go": candidate.go,
        "lose": lambda: api.fail_next("*", "leases", LOST, times=int(amount), landed=True, delay_s=amount % 3),
        "fail": lambda: api.fail_next("*", "leases", LOST, times=int(amount)),
        "hang": lambda: api.hang("*", "leases", landed=amount > 8),
        "slow": lambda: api.slow("*", "leases", amount / 5),
        "lag": lambda: api.lag("*", "leases", amount, times=int(amount)),
        "conflict": lambda: api.fail_next("update", "leases", Conflict("x", status=409)),
        "heal": api.heal,
        "step": lambda: election.clock.step((amount - 8) * 1000),
    }
    if what in befalls:
        befalls[what]()
        return
    election.candidates.remove(candidate)
    election.dead.append(candidate)
    await (candidate.die() if what == "kill" else retired(election, candidate))
    election.join()


async def retired(election: Election, candidate: Candidate) -> None:
    candidate.api.heal()
    await candidate.retire()


async def play(troubles: list[Trouble]) -> None:
    election = await an_election(3)
    try:
        for what, who, amount in troubles:
            await befall(election, what, who, amount)
            await election.clock.advance(amount)
        for each in election.candidates:
            each.api.heal()
            each.go()
        _, took_s = await election.until_led()
        assert took_s < 20.0
    finally:
        await election.over()


@settings(max_examples=150)
@given(TROUBLES)
def test_bug_106_whatever_befalls_them_never_do_two_lead_and_epochs_rise_and_one_leads_again_within_20_s(
    troubles: list[Trouble],
) -> None:
    asyncio.run(play(troubles))
