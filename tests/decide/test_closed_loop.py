"""The engine in a closed loop with a world that answers: it settles, does not swing, and follows its consumer."""

from typing import Any

import pytest

from tests.builders.fluid_world import FluidWorld
from tests.builders.snapshots import a_fleet_spec, banded, rate_matched

HOUR_S = 3600.0


def a_loop(sizing: Any, **facts: Any) -> FluidWorld:
    rails = {"max_replicas": 40, "min_replicas": 0, "cooldown_down_s": 300.0, "lower_after_fresh_s": 600.0}
    return FluidWorld(spec=a_fleet_spec(sizing, **rails), **({"demand_per_s": lambda _now_s: 1.1} | facts))


@pytest.mark.parametrize("launch_s", [10.0, 60.0, 100.0])
@pytest.mark.parametrize("demand_per_s", [0.2, 1.0, 1.1, 6.3])
def test_rate_match_settles_under_constant_load_and_feeds_its_consumer(launch_s: float, demand_per_s: float) -> None:
    world = a_loop(rate_matched(), launch_s=launch_s, demand_per_s=lambda _now_s: demand_per_s).run(2 * HOUR_S)
    starved_s = world.starved_s
    world.run(HOUR_S)

    assert set(world.sizes[-360:]) == {world.sizes[-1]}
    assert demand_per_s <= world.sizes[-1] * 0.25 <= demand_per_s * 1.21 + 0.25
    assert world.starved_s == starved_s


def test_rate_match_never_waits_at_zero() -> None:
    assert a_loop(rate_matched()).run(60).sizes[0] == 1


def test_a_declared_goodput_sizes_the_fleet_before_anything_was_measured() -> None:
    # (1.1 * 1.1 + 32 / 300) / 0.25 = 5.27
    assert a_loop(rate_matched(initial_goodput_per_replica_per_s=0.25)).run(10).sizes == [6]


def test_rate_match_follows_its_consumer_up_and_down() -> None:
    world = a_loop(rate_matched(), demand_per_s=lambda now_s: 4.0 if HOUR_S <= now_s < 2 * HOUR_S else 1.0)
    world.run(3.5 * HOUR_S)

    assert max(world.sizes) >= 16
    assert world.sizes[350] <= 6
    assert world.sizes[-1] <= 6


def test_without_admission_the_upper_set_point_bounds_the_buffer() -> None:
    world = a_loop(rate_matched(), max_staleness=10_000).run(4 * HOUR_S)

    assert max(world.depths) < 32 * 8
    assert max(world.sizes[-720:]) - min(world.sizes[-720:]) <= 1


def test_workers_that_idle_at_a_full_buffer_do_not_look_slow() -> None:
    world = a_loop(rate_matched(), max_staleness=1, demand_per_s=lambda _now_s: 0.3).run(3 * HOUR_S)

    assert world.sizes[-1] <= 3


@pytest.mark.parametrize("launch_s", [10.0, 50.0])
def test_buffer_band_swings_by_no_more_than_two_replicas_around_its_need(launch_s: float) -> None:
    world = a_loop(banded(low_mark=0.5, high_mark=3.0), launch_s=launch_s).run(6 * HOUR_S)

    need = 1.1 / 0.25
    assert all(abs(size - need) <= 2 for size in world.sizes[-720:])
