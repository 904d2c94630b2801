"""Whatever happens to the group: only what was named ends, a token brings one instance, and nothing comes unasked."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scaler.act._ec2.members import TOKEN_TAG
from scaler.act.base import LaunchResult, NotYet, PoolUnavailable
from scaler.model.pool import Instance
from tests.builders.ec2_pools import TYPE, ZONE_A, Bed, a_detach, a_launch, an_end, listed
from tests.simcloud.journal import EndedBy
from tests.simcloud.market import SPOT, Offering

HERE = Offering(TYPE, ZONE_A, SPOT)
TROUBLE = st.sampled_from(
    ["LaunchInstances", "CreateTags", "TerminateInstanceInAutoScalingGroup", "DetachInstances", "DescribeInstances"]
)


class _AnyWorld(RuleBasedStateMachine):
    up: ClassVar[Literal["launch_instances", "set_desired_capacity"]]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.bed = Bed()
        self.bed.group()
        self.pool = self.bed.pool(up=self.up)
        self.tokens: list[str] = []
        self.open: list[str] = []
        self.named: set[str] = set()
        self.raised_by_others = 0

    def teardown(self) -> None:
        self.loop.close()

    def run(self, act: Callable[[], Awaitable[object]]) -> object:
        async def tried() -> object:
            try:
                return await act()
            except (NotYet, PoolUnavailable):
                return None

        return self.loop.run_until_complete(tried())

    def listed(self) -> tuple[Instance, ...]:
        found = self.run(lambda: listed(self.pool))
        return found if isinstance(found, tuple) else ()

    def ask(self, token: str) -> None:
        outcome = self.run(lambda: self.pool.launch(a_launch(token)))
        if outcome is not None and token in self.open:
            self.open.remove(token)

    @rule()
    def launch(self) -> None:
        token = f"t-{len(self.tokens)}"
        self.tokens.append(token)
        self.open.append(token)
        self.ask(token)

    @precondition(lambda self: self.open)
    @rule()
    def ask_again(self) -> None:
        for token in list(self.open):
            self.ask(token)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def repeat_an_old_launch(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        held = {instance.launch_token for instance in self.listed()}
        if token in held:
            outcome = self.run(lambda: self.pool.launch(a_launch(token)))
            assert getattr(outcome, "result", LaunchResult.ALREADY) is LaunchResult.ALREADY

    @rule(data=st.data(), noticed=st.booleans())
    def end_one(self, data: st.DataObject, *, noticed: bool) -> None:
        there = self.listed()
        if not there:
            return
        one = data.draw(st.sampled_from(there))
        self.named.add(one.instance_id)
        if noticed:
            self.run(lambda: self.pool.detach(a_detach(one)))
        else:
            self.run(lambda: self.pool.terminate(an_end(one)))

    @rule(by=st.integers(-3, 3))
    def somebody_writes_the_size(self, by: int) -> None:
        before = self.bed.desired()
        after = max(0, before + by)
        self.raised_by_others += max(0, after - before)
        self.bed.sim.call(
            "autoscaling",
            "SetDesiredCapacity",
            caller="OPERATOR",
            AutoScalingGroupName="rollout",
            DesiredCapacity=after,
        )

    @rule(noticed=st.booleans())
    def capacity_is_taken(self, *, noticed: bool) -> None:
        self.bed.sim.fate.reclaim(1, noticed=noticed)

    @rule(room=st.sampled_from([0, 2, 5, None]))
    def capacity_changes(self, room: int | None) -> None:
        self.bed.sim.market.set_capacity(HERE, room)

    @rule(operation=TROUBLE, carried_out=st.booleans())
    def an_answer_will_be_lost(self, operation: str, *, carried_out: bool) -> None:
        self.bed.sim.drop_next(operation, carried_out=carried_out)

    @rule(operation=TROUBLE)
    def a_call_will_be_throttled(self, operation: str) -> None:
        self.bed.sim.fail_next(operation, "Throttling")

    @rule(lag_s=st.sampled_from([0.0, 2.0]))
    def lists_lag(self, lag_s: float) -> None:
        self.bed.sim.set_describe_lag(lag_s)

    @rule(seconds=st.sampled_from([1.0, 10.0, 70.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.bed.pass_time(seconds)

    @rule()
    def the_controller_dies(self) -> None:
        self.pool = self.bed.restarted(up=self.up)
        for token in list(self.open):
            self.ask(token)

    @invariant()
    def only_what_was_named_ends(self) -> None:
        for ended in self.bed.sim.ended():
            assert ended.by is not EndedBy.SCALE_IN, ended
            if ended.caller == self.bed.aws.caller:
                assert ended.instance_id in self.named, ended

    @invariant()
    def a_token_is_on_one_instance(self) -> None:
        tags = [one.tags.get(TOKEN_TAG, "") for one in self.bed.sim.instances.by_id.values()]
        tokens = Counter(token for token in tags if token)
        assert all(number == 1 for number in tokens.values()), tokens

    @invariant()
    def a_launch_raises_the_size_by_one_at_most(self) -> None:
        assert self.bed.desired() <= len(self.tokens) + self.raised_by_others

    @invariant()
    def the_size_is_written_only_where_it_has_to_be(self) -> None:
        assert self.up == "set_desired_capacity" or self.bed.calls("SetDesiredCapacity") == 0


class ByLaunches(_AnyWorld):
    up = "launch_instances"


class BySize(_AnyWorld):
    up = "set_desired_capacity"


_RUNS = settings(max_examples=25, stateful_step_count=30)
TestByLaunches = ByLaunches.TestCase
TestByLaunches.settings = _RUNS
TestBySize = BySize.TestCase
TestBySize.settings = _RUNS
