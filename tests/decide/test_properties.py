"""What holds of every decision, in any world at all."""

from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaler.decide import decide
from scaler.decide.invariants import check_plan
from scaler.decide.timing import SOONEST_S
from scaler.model.plan import Memory
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec, PolicySpec
from tests.builders.any_world import any_snapshots, fleet_specs, memories, sane_snapshots
from tests.builders.quiet_world import after
from tests.builders.snapshots import (
    a_fleet_spec,
    a_world_of,
    banded,
    fresh,
    rate_matched,
    remembering,
    some_replicas,
    some_signals,
    static_of,
)

T = TypeVar("T")
PATIENCE_ROUNDS = 4
"""Release, end, use what that frees; then nothing may be left to do."""


@given(snapshot=any_snapshots(), spec=fleet_specs(), memory=memories)
def test_any_world_gets_a_plan_that_keeps_every_promise(snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> None:
    assert check_plan(snapshot, spec, decide(snapshot, spec, memory)) == []


@given(snapshot=sane_snapshots(), spec=fleet_specs(), memory=memories)
def test_a_sane_world_gets_a_plan_that_keeps_every_promise(snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> None:
    assert check_plan(snapshot, spec, decide(snapshot, spec, memory)) == []


@given(snapshot=any_snapshots(), spec=fleet_specs(), memory=memories, seed=st.integers(0, 999))
def test_the_order_of_what_is_seen_never_matters(
    snapshot: Snapshot, spec: FleetSpec, memory: Memory, seed: int
) -> None:
    assert repr(decide(_shuffled(snapshot, Random(seed)), spec, memory)) == repr(decide(snapshot, spec, memory))


def _shuffled(snapshot: Snapshot, random: Random) -> Snapshot:
    def mixed(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(random.sample(items, len(items)))

    stages = [
        replace(
            stage,
            replicas=mixed(stage.replicas),
            pools=mixed(tuple(replace(pool, offerings=mixed(pool.offerings)) for pool in stage.pools)),
        )
        for stage in snapshot.stages
    ]
    return replace(snapshot, stages=mixed(tuple(stages)))


@given(
    snapshot=sane_snapshots(),
    spec=fleet_specs(max_step_up=1000, max_step_down=1000, cooldown_up_s=0.0, cooldown_down_s=0.0),
    memory=memories,
)
def test_deciding_again_on_the_world_that_the_plan_makes_gives_nothing_more(
    snapshot: Snapshot, spec: FleetSpec, memory: Memory
) -> None:
    for _ in range(PATIENCE_ROUNDS):
        plan = decide(snapshot, spec, memory)
        snapshot, memory = after(snapshot, plan), plan.memory

    assert decide(snapshot, spec, memory).commands == ()


@given(
    snapshot=sane_snapshots(),
    spec=fleet_specs(max_step_up=2, max_step_down=2, cooldown_up_s=4.0, cooldown_down_s=7.0),
    sizes=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    memory=memories,
)
def test_time_alone_changes_nothing_until_the_next_look(
    snapshot: Snapshot, spec: FleetSpec, sizes: tuple[int, int], memory: Memory
) -> None:
    stages = [replace(stage, sizing=static_of(size)) for stage, size in zip(spec.stages, sizes, strict=True)]
    spec = replace(spec, stages=tuple(stages))
    plan = decide(snapshot, spec, memory)
    shown = after(snapshot, plan)
    assume(plan.look_again_in_s > SOONEST_S and decide(shown, spec, plan.memory).commands == ())

    last = replace(shown, now_s=snapshot.now_s + plan.look_again_in_s - 0.01)

    assert decide(last, spec, plan.memory).commands == ()


@given(
    depths=st.lists(st.floats(0, 500), min_size=2, max_size=2).map(sorted),
    count=st.integers(0, 12),
    rate=st.floats(0, 5),
    goodput=st.floats(0, 2),
    running=st.integers(0, 200),
    remembered=st.fixed_dictionaries({}, optional={"goodput_per_s": st.floats(0.01, 2), "rate_per_s": st.floats(0, 5)}),
)
@pytest.mark.parametrize("sizing", [rate_matched(), banded()], ids=["rate_match", "buffer_band"])
def test_less_buffer_never_means_fewer_replicas(
    sizing: PolicySpec,
    depths: list[float],
    count: int,
    rate: float,
    goodput: float,
    running: int,
    remembered: dict[str, float],
) -> None:
    def desired(depth: float) -> int:
        seen = some_signals(
            buffered_samples=fresh(depth),
            unblocked_rate_per_s=fresh(rate),
            goodput_per_replica_per_s=fresh(goodput),
            running_units=fresh(running),
        )
        memory = remembering(policy=tuple(sorted({"at_s": 9_900.0, **remembered}.items())))
        return decide(a_world_of(some_replicas(count), signals=seen), a_fleet_spec(sizing), memory).stages[0].desired

    less, more = depths
    assert desired(less) >= desired(more)
