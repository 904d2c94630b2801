"""Each term of the bound's proof, asked of the world itself at every event of random runs."""

from collections.abc import Callable, Iterator

import pytest

from scaler.model.capacity import ReplicaPhase
from scaler.simulate.optimum.rails import Held, rails_of
from scaler.simulate.optimum.relaxation import finished_batches, held_most, held_of, ready_most, stock_of
from scaler.simulate.optimum.steps import StepFunction
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import World
from tests.builders.optimum import a_random_world, a_restless_world, whimsical

SEEDS = range(8)


def run(scenario: Scenario, seed: int, watch: Callable[[World], None]) -> World:
    world = World(scenario, seed)
    with whimsical():
        world.run(watch)
    return world


def about(function: StepFunction, time_s: float) -> float:
    """The greatest of its values right before, at and right after a moment: equal times come in some order."""
    return max(function.before(time_s), function.at(time_s), function.at(time_s + 1e-6))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_held_and_ready_is_never_more_than_the_problem_says(seed: int) -> None:
    scenario = a_random_world(seed)
    capacity = {one.model.key: (held_most(scenario, one), ready_most(scenario, one)) for one in held_of(scenario)}
    above: list[str] = []

    def watch(world: World) -> None:
        now_s = world.kernel.now_s
        for key, (most, ready) in capacity.items():
            held = world.cloud.offerings[key].held.values()
            if len(held) > about(most, now_s) or _ready(held) > about(ready, now_s):
                above.append(f"{key} at {now_s}: {len(held)} held, {_ready(held)} ready")

    run(scenario, seed, watch)
    assert not above


def _ready(held: object) -> int:
    return sum(replica.phase is ReplicaPhase.READY for replica in held)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("world_of", [a_random_world, a_restless_world])
def test_guard_rails_keep_what_is_held_below_what_the_problem_says(
    world_of: Callable[[int], Scenario], seed: int
) -> None:
    scenario = world_of(seed)
    held = held_of(scenario)
    rails = rails_of(scenario, held)
    above: list[str] = []

    def watch(world: World) -> None:
        now_s = world.kernel.now_s
        for rail in rails:
            found = sum(w * len(world.cloud.offerings[one.model.key].held) for w, one in _weighed(rail.weights, held))
            if found > rail.most + about(rail.over, now_s) + 1e-6:
                above.append(f"{rail.name} at {now_s}: {found} held")

    run(scenario, seed, watch)
    assert not above


def test_a_restless_world_does_hold_more_than_its_ceiling() -> None:
    """Else the test before it would ask for nothing."""
    most = 0

    def watch(world: World) -> None:
        nonlocal most
        most = max(most, sum(len(state.held) for state in world.cloud.offerings.values()))

    for seed in SEEDS:
        run(a_restless_world(seed), seed, watch)
    assert most > 3 + 1


def _weighed(weights: tuple[float, ...], held: list[Held]) -> Iterator[tuple[float, Held]]:
    return zip(weights, held, strict=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_stock_and_batches_are_never_more_than_the_problem_says(seed: int) -> None:
    scenario = a_random_world(seed)
    stock = stock_of(scenario)
    most = 0.0

    def watch(world: World) -> None:
        nonlocal most
        most = max(most, world.ledger.stock_samples())

    world = run(scenario, seed, watch)
    assert stock.start_least - 1e-6 <= world.start_stock_samples <= stock.start_most + 1e-6
    assert most <= scenario.stock_bound_samples + 1e-6
    assert world.trainer.updates <= finished_batches(scenario)
