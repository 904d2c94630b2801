"""What a loss costs: what its holder had not published, of the units that were not at their end; the rest goes on at once."""

from dataclasses import replace

import pytest

from scaler.simulate.groups import Group, Shape
from scaler.simulate.scenario import NoticeModel, Scenario
from scaler.simulate.world import World, simulate
from tests.builders.scenarios import a_scenario

UNITS, TOKENS_PER_S, PROGRESS_S = 160, 5.0, 10.0


def killed_now_and_then(first_token_s: float = 0.0) -> Scenario:
    """Three replicas, always at work, with units of 3,200 tokens; each is killed every half an hour, without notice."""
    usual = a_scenario(sizing=3, warm_replicas=3, hours=24, notices=NoticeModel(none_ratio=1.0, late_ratio=0.0))
    made = replace(usual.generation, tokens_per_s=TOKENS_PER_S, concurrent_units=UNITS, first_token_s=first_token_s)
    return replace(usual, generation=made, job=replace(usual.job, max_staleness=200), hard_failures_per_h=2.0)


def test_a_kill_loses_half_an_interval_of_every_unit_on_average() -> None:
    runs = [simulate(killed_now_and_then(), seed).summary for seed in range(3)]
    kills, lost = sum(run.kills_at_work for run in runs), sum(run.tokens_lost for run in runs)
    assert kills > 200
    assert lost / kills == pytest.approx(UNITS * TOKENS_PER_S * PROGRESS_S / 2, rel=0.1)


def test_units_that_wait_for_their_first_token_lose_nothing() -> None:
    """A unit is silent as long as it generates: half of them have nothing to lose."""
    silent_s = 3200 / TOKENS_PER_S
    scenario = killed_now_and_then(silent_s)
    assert scenario.mean_unit_s == pytest.approx(2 * silent_s)
    runs = [simulate(scenario, seed).summary for seed in range(3)]
    kills, lost = sum(run.kills_at_work for run in runs), sum(run.tokens_lost for run in runs)
    # Kills come more often than units end, and who goes on with a unit is silent first: less than half.
    assert 0.25 < lost / kills / (UNITS * TOKENS_PER_S * PROGRESS_S / 2) < 0.5


def test_wasted_is_what_was_lost_and_what_was_given_up() -> None:
    scenario = killed_now_and_then()
    summary = simulate(scenario).summary
    assert summary.samples_dropped == 0
    assert summary.tokens_wasted == summary.tokens_lost
    hasty = replace(scenario, job=replace(scenario.job, max_staleness=16))
    given_up = simulate(hasty).summary
    assert given_up.samples_dropped > 0
    assert given_up.tokens_wasted > given_up.tokens_lost


def test_a_unit_at_its_end_is_committed_whatever_the_others_have_published() -> None:
    group = Group(0, Shape(lengths=(10, 20, 40), sums=(10, 30, 70)), 1.0, 0)
    group.tokens_each, group.ended_each = 15.0, 25.0
    assert group.done == 10 + 20 + 15
    assert group.shape.ended(group.ended_each) == 30


def test_what_a_lost_holder_had_goes_on_at_once_and_first() -> None:
    """As in the ledger: only failures of a unit or of an engine back off."""
    world = World(a_scenario(), 0)
    number, lease = next(iter(world.ledger.running.items()))
    del lease.holder.leases[number]
    world.ledger.give_back(lease, world.kernel.now_s, published=False)
    assert world.ledger.next() is lease.group
