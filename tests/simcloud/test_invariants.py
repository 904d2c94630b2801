"""Whatever is asked and whatever happens, in any order: what always holds of a SimCloud."""

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.simcloud.errors import CloudError
from tests.simcloud.groups import Group
from tests.simcloud.journal import AWS, BY_CALLERS, EndedBy
from tests.simcloud.market import SPOT, Offering
from tests.simcloud.worlds import World

_ZONES = ("us-east-1a", "us-east-1b")
_BOUNDS = (1, 12)


class AnyLife(RuleBasedStateMachine):
    """A group over two zones, and everything that can be done to it."""

    @initialize(protected=st.booleans(), balanced=st.booleans(), rebalance=st.booleans(), seed=st.integers(0, 99))
    def begin(self, protected: bool, balanced: bool, rebalance: bool, seed: int) -> None:
        low, high = _BOUNDS
        self.world = World(
            seed=seed, zones=_ZONES, low=low, high=high, desired=4, protected=protected, balanced=balanced,
            CapacityRebalance=rebalance,
        )  # fmt: skip
        self.tokens = 0

    @property
    def group(self) -> Group:
        return self.world.sim.groups.get("rollout")

    def some(self, index: int) -> str | None:
        ids = list(self.group.members)
        return ids[index % len(ids)] if ids else None

    def attempt(self, operation: str, **asked: object) -> None:
        with contextlib.suppress(CloudError):
            self.world.scaling(operation, **asked)

    @rule(number=st.integers(1, 4), zone=st.sampled_from(_ZONES))
    def launch(self, number: int, zone: str) -> None:
        self.tokens += 1
        asked = {"RequestedCapacity": number, "ClientToken": f"t-{self.tokens}", "AvailabilityZones": [zone]}
        self.attempt("LaunchInstances", **asked)
        before = (self.group.desired, len(self.group.members))
        self.attempt("LaunchInstances", **asked)
        if f"t-{self.tokens}" in self.group.launches:
            assert (self.group.desired, len(self.group.members)) == before

    @rule(index=st.integers(0, 20), decrement=st.booleans())
    def end(self, index: int, decrement: bool) -> None:
        if victim := self.some(index):
            asked = {"InstanceIds": [victim], "ShouldDecrementDesiredCapacity": decrement}
            self.attempt("TerminateInstanceInAutoScalingGroup", **asked)

    @rule(index=st.integers(0, 20), decrement=st.booleans())
    def detach(self, index: int, decrement: bool) -> None:
        if leaving := self.some(index):
            self.attempt("DetachInstances", InstanceIds=[leaving], ShouldDecrementDesiredCapacity=decrement)

    @rule(wanted=st.integers(0, 14))
    def resize(self, wanted: int) -> None:
        self.attempt("SetDesiredCapacity", DesiredCapacity=wanted)

    @rule(index=st.integers(0, 20), protected=st.booleans())
    def protect(self, index: int, protected: bool) -> None:
        if one := self.some(index):
            self.attempt("SetInstanceProtection", InstanceIds=[one], ProtectedFromScaleIn=protected)

    @rule(number=st.integers(1, 3), noticed=st.booleans())
    def reclaim(self, number: int, noticed: bool) -> None:
        self.world.sim.fate.reclaim(number, noticed=noticed)

    @rule(index=st.integers(0, 20))
    def recommend(self, index: int) -> None:
        if one := self.some(index):
            self.world.sim.fate.recommend([one])

    @rule(zone=st.sampled_from(_ZONES), instances=st.none() | st.integers(0, 6))
    def capacity(self, zone: str, instances: int | None) -> None:
        self.world.sim.market.set_capacity(Offering("p5.48xlarge", zone, SPOT), instances)

    @rule(seconds=st.integers(1, 200))
    def wait(self, seconds: int) -> None:
        self.world.wait(float(seconds))

    @rule()
    def come_to_rest(self) -> None:
        """With capacity for all, and unless members are protected, there are as many in service as are wanted."""
        for zone in _ZONES:
            self.world.sim.market.set_capacity(Offering("p5.48xlarge", zone, SPOT), None)
        self.world.wait(400.0)
        counted = self.group.counted()
        assert len(counted) >= self.group.desired
        surplus = len(counted) - self.group.desired
        assert surplus == 0 or sum(member.protected for member in counted) >= self.group.desired

    @invariant()
    def the_size_keeps_its_bounds(self) -> None:
        assert _BOUNDS[0] <= self.group.desired <= _BOUNDS[1]

    @invariant()
    def an_instance_ends_once_and_what_runs_has_not_ended(self) -> None:
        ended = [one.instance_id for one in self.world.sim.ended()]
        assert len(ended) == len(set(ended))
        assert not set(ended) & {one.instance_id for one in self.world.sim.running()}

    @invariant()
    def the_protected_are_never_chosen(self) -> None:
        chosen = {EndedBy.SCALE_IN, EndedBy.AZ_REBALANCE}
        assert not [one for one in self.world.sim.ended() if one.protected and one.by in chosen]

    @invariant()
    def who_ended_what_is_known(self) -> None:
        for one in self.world.sim.ended():
            assert (one.caller == AWS) is (one.by not in BY_CALLERS)

    @invariant()
    def capacity_held_is_what_runs(self) -> None:
        for zone in _ZONES:
            offering = Offering("p5.48xlarge", zone, SPOT)
            running = [one for one in self.world.sim.running() if one.offering == offering]
            assert self.world.sim.instances.held(offering) == len(running)


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=100, stateful_step_count=40)
