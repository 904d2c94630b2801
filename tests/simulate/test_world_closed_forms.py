"""Where arithmetic knows the answer, the simulated world gives it."""

from dataclasses import replace
from itertools import pairwise

import pytest

from policies import rate_match
from scaler.model.job import JobSettings
from scaler.model.spec import PolicySpec
from scaler.simulate.delays import Delay
from scaler.simulate.scenario import GenerationModel, LengthModel, Scenario, TrainerModel
from scaler.simulate.world import World, simulate
from tests.builders.scenarios import a_capacity, a_scenario, with_lengths


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_fleet_that_is_never_enough_delivers_its_goodput(replicas: int) -> None:
    run = simulate(a_scenario(sizing=replicas, warm_replicas=replicas))
    assert run.summary.samples_trained / (12 * 3600) == pytest.approx(0.25 * replicas, rel=0.005)
    assert run.summary.trainer_wait_ratio == pytest.approx(1 - replicas / 4, abs=0.005)


@pytest.mark.parametrize("replicas", [4, 5, 8])
def test_a_trainer_that_is_never_starved_trains_at_its_own_rate(replicas: int) -> None:
    run = simulate(a_scenario(sizing=replicas, warm_replicas=replicas))
    assert run.summary.trainer_wait_ratio == pytest.approx(0, abs=0.002)
    assert run.summary.samples_trained == pytest.approx(12 * 3600, abs=64)


def test_the_balance_point_is_where_waiting_ends() -> None:
    scenario = a_scenario()
    assert scenario.balance_replicas == pytest.approx(4)
    waits = [simulate(a_scenario(sizing=n, warm_replicas=n)).summary.trainer_wait_ratio for n in (3, 4)]
    assert waits[0] > 0.2
    assert waits[1] < 0.002


@pytest.mark.parametrize("rates_known", [True, False])
def test_a_trainer_that_begins_tells_what_it_takes_with_its_first_batch(rates_known: bool) -> None:
    """Until then a fleet that is sized by it holds, as in life."""
    sizing = PolicySpec(name="rate_match", params=rate_match.Params())
    scenario = a_scenario(sizing=sizing, hours=1.0, interval_s=5.0, warm_replicas=1, warm_depth_samples=0)
    asked_s: list[float] = []
    acknowledged_s: list[float] = []

    def look(world: World) -> None:
        acknowledged_s.extend([world.kernel.now_s] * (world.ledger.trained > 0))
        asked_s.extend([world.kernel.now_s] * (len(world.cloud.replicas) > 1))

    World(replace(scenario, rates_known=rates_known), 0).run(look)

    assert acknowledged_s[0] > 120.0
    assert (asked_s[0] < acknowledged_s[0]) is rates_known
    assert asked_s[0] < acknowledged_s[0] + 30.0, "with its next turn"


@pytest.mark.parametrize("rates_known", [True, False])
def test_what_a_replica_makes_is_known_where_the_fleet_was_at_work_before(rates_known: bool) -> None:
    """As in life, although no replica is left; a fleet that begins learns it from its first replica."""
    sizing = PolicySpec(name="rate_match", params=rate_match.Params())
    scenario = a_scenario(sizing=sizing, hours=1.0, interval_s=5.0, warm_replicas=0)
    asked: list[tuple[float, int]] = []

    def look(world: World) -> None:
        asked.append((world.kernel.now_s, len(world.cloud.replicas)))

    World(replace(scenario, rates_known=rates_known), 0).run(look)

    at_once = max(count for now_s, count in asked if now_s < 60.0)
    assert (at_once >= scenario.balance_replicas) is rates_known


def test_littles_law_holds_for_units_in_flight() -> None:
    """Units in flight = rate of completion x mean time of a unit, tails included."""
    scenario = with_lengths(a_scenario(sizing=3, warm_replicas=3, hours=24), 2000, 0.8)
    scenario = replace(scenario, job=replace(scenario.job, max_staleness=100))
    in_flight: list[tuple[float, int]] = []
    world = World(scenario, 3)
    world.run(lambda w: in_flight.append((w.kernel.now_s, sum(len(r.leases) for r in w.cloud.replicas.values()))))
    pairs = pairwise(in_flight)
    mean = sum(n * (later - at_s) for (at_s, n), (later, _) in pairs) / world.kernel.now_s
    longest = sum(shape.longest for shape in world.ledger._shapes) / len(world.ledger._shapes)
    rate = world.ledger.completed_here / world.kernel.now_s
    assert mean == pytest.approx(rate * longest / scenario.generation.tokens_per_s, rel=0.03)


def case_a(**facts: object) -> Scenario:
    """Case A of the published workloads: 512 samples a batch, 24 engines that deliver 1.95 samples/s after discards."""
    lengths = LengthModel(median_tokens=8000, sigma=0.8, most_tokens=32768)
    usual: dict[str, object] = {
        "sizing": 24,
        "warm_replicas": 24,
        "warm_depth_samples": 512,
        "hours": 24,
        "job": JobSettings(group_size=16, batch_groups=32, max_staleness=16),
        "trainer": TrainerModel(usd_per_h=506, train_s=176, publish_s=512 / 2.75 - 176),
        "acceptance_ratio": 0.4,
        "generation": GenerationModel(
            concurrent_units=64, tokens_per_s=lengths.mean_tokens * 1.95 / 24 / 0.4 / 64, lengths=lengths
        ),
    }
    return a_scenario(a_capacity("a", (0, 40)), **(usual | facts))  # type: ignore[arg-type]


def test_the_published_case_a_waits_as_long_as_it_did() -> None:
    """29.1 % by arithmetic (1.95 delivered over 2.75 unblocked), 30 % as published."""
    assert case_a().goodput_per_replica_per_s * 24 == pytest.approx(1.95)
    assert simulate(case_a()).summary.trainer_wait_ratio == pytest.approx(0.291, abs=0.02)


def test_half_the_samples_filtered_halves_the_supply() -> None:
    run = simulate(a_scenario(sizing=4, acceptance_ratio=0.5)).summary
    assert run.trainer_wait_ratio == pytest.approx(0.5, abs=0.01)
    assert run.samples_filtered == pytest.approx(run.samples_trained, rel=0.02)


def test_swaps_of_weights_cost_their_share_of_generation() -> None:
    """A pause of 3.2 s in every 32 s step of a trainer that just keeps pace takes a tenth of the supply, or a little less:
    fewer samples are fewer steps."""
    scenario = a_scenario(sizing=4)
    paused = replace(scenario, generation=replace(scenario.generation, swap_s=3.2))
    supply = simulate(paused).summary.samples_trained / simulate(scenario).summary.samples_trained
    assert supply == pytest.approx(1 / 1.1, abs=0.02)


def test_a_long_tail_does_not_change_supply_where_staleness_allows_it() -> None:
    job = JobSettings(group_size=4, batch_groups=8, max_staleness=64)
    even = simulate(a_scenario(sizing=3, job=job)).summary
    tailed = simulate(with_lengths(a_scenario(sizing=3, job=job), 2000, 1.0)).summary
    assert tailed.samples_dropped == 0
    assert tailed.samples_trained == pytest.approx(even.samples_trained, rel=0.01)


def test_a_tail_longer_than_staleness_allows_is_dropped_and_counted() -> None:
    job = JobSettings(group_size=4, batch_groups=8, max_staleness=2)
    run = simulate(with_lengths(a_scenario(sizing=6, warm_replicas=6, job=job), 1500, 1.2)).summary
    assert run.samples_dropped > 0
    assert run.tokens_stale > 0


def test_synchronous_training_alternates_and_never_stalls() -> None:
    """With no staleness allowed a batch is generated, then trained on: the cycle is the sum of both."""
    job = JobSettings(group_size=4, batch_groups=8, max_staleness=0)
    run = simulate(a_scenario(sizing=2, warm_replicas=2, job=job, warm_depth_samples=0)).summary
    assert run.policy_updates == pytest.approx(12 * 3600 / (32 + 64), rel=0.05)


def test_the_trainer_is_charged_throughout_and_replicas_while_they_are_held() -> None:
    run = simulate(a_scenario(sizing=4, hours=12)).summary
    assert run.cost_trainer_usd == pytest.approx(1200)
    assert run.cost_by_capacity_usd["spot"] == pytest.approx(4 * 10 * 12)
    assert run.cost_usd == pytest.approx(1680)
    assert run.cost_usd_per_1k_samples == pytest.approx(1680 / run.samples_credited * 1000)


def test_a_replica_more_is_paid_from_its_grant_and_works_from_its_launch() -> None:
    launch = replace(a_scenario().launch, answer=Delay(least_s=100), boot=Delay(least_s=500), load=Delay(least_s=300))
    run = simulate(a_scenario(sizing=1, warm_replicas=0, launch=launch)).summary
    assert run.cost_by_capacity_usd["spot"] == pytest.approx((12 * 3600 - 100) / 360, rel=1e-3)
    assert run.replicas_mean == pytest.approx((12 * 3600 - 900) / (12 * 3600), rel=1e-3)
