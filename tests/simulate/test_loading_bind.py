"""A scenario bound to a policy and to capacity: any trace with any zones, and every number where the world looks for it."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import cheapest_available
from scaler.model.capacity import CapacityType
from scaler.model.spec import PolicySpec
from scaler.simulate.loading import load_scenario, open_trace
from scaler.simulate.policy_file import PolicyChoice
from scaler.simulate.world import simulate
from scaler.traces.offering_events import dump
from scaler.traces.trace import CapacityTrace, Series, TraceError
from tests.builders.fleet_yaml import changed
from tests.builders.scenario_yaml import a_document, a_reward_stage, fixed, plenty, the_scenario
from tests.builders.scenarios import ceiling_fits
from tests.builders.traces import a_trace

DAY_S = 86400.0
ZONES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=6, unique=True)


@settings(max_examples=60)
@given(names=ZONES, format_name=st.sampled_from(["zone counts", "zone probes", "node events", "never heard of"]))
def test_any_trace_binds_whatever_its_zones_are_called(names: list[str], format_name: str) -> None:
    series = tuple(Series(name=name, times_s=(0.0,), counts=(16,)) for name in names)
    trace = CapacityTrace(source="x", format=format_name, series=series, end_s=DAY_S, tick_s=60.0)
    bound = the_scenario().bind(fixed(6), trace=trace)

    spot = [model for model in bound.offerings if model.pool == "spot"]
    ids = {model.offering.offering_id for model in spot}
    assert len(ids) == len(names)
    assert all(offering_id.count("/") == 2 for offering_id in ids)
    assert {offering.offering_id for offering in bound.fleet.stages[0].pools[0].offerings} == ids


def test_zones_cost_what_is_named_for_the_longest_start_of_their_name_or_the_default() -> None:
    prices = {"us": "5", "us-east-1": "6", "us-east-1c": "7"}
    document = changed(a_document(), "spec", "spot", "zonePricesUsdPerH", to=prices)
    trace = a_trace(DAY_S, 1.0, **{zone: {0.0: 4} for zone in ("us-west-2a", "us-east-1a", "us-east-1c", "moon")})
    bound = the_scenario(document).bind(fixed(6), trace=trace)
    assert {m.offering.zone: m.usd_per_h for m in bound.offerings if m.pool == "spot"} == {
        "us-west-2a": 5.0,
        "us-east-1a": 6.0,
        "us-east-1c": 7.0,
        "moon": 10.0,
    }


@pytest.mark.parametrize(
    ("format_name", "replicas"),
    [("zone counts", 3), ("zone probes", 28), ("node events", 3), ("held nodes", 28), ("another", 14)],
)
def test_counts_are_scaled_by_what_the_format_counts_and_rounded_down(format_name: str, replicas: int) -> None:
    trace = replace(a_trace(DAY_S, a={0.0: 14}), format=format_name)
    assert the_scenario().bind(fixed(6), trace=trace).offerings[0].capacity.counts == (replicas,)


def test_a_stretch_starts_at_its_hour_and_ends_with_the_trace() -> None:
    trace = a_trace(DAY_S, a={0.0: 1, 36000.0: 2, 72000.0: 3})
    bound = the_scenario().bind(fixed(6), trace=trace, start_h=10.0, hours=20.0)
    assert bound.end_s == 14 * 3600
    assert bound.offerings[0].capacity.times_s == (0.0, 36000.0)
    assert bound.metadata == {"trace": "here", "format": "made up", "zones": "a", "start_h": "10"}


@pytest.mark.parametrize(
    ("start_h", "hours"), [(24.0, 12.0), (-1.0, 12.0), (0.0, 0.0), (0.0, float("nan")), (float("inf"), 1.0)]
)
@pytest.mark.parametrize("traced", [True, False], ids=["traced", "generated"])
def test_a_stretch_that_is_none_is_a_line(start_h: float, hours: float, *, traced: bool) -> None:
    if not traced and start_h == 24.0:
        pytest.skip("what is generated has no end")
    with pytest.raises(TraceError, match="no stretch of"):
        the_scenario().bind(
            fixed(6), trace=a_trace(DAY_S, a={0.0: 1}) if traced else None, start_h=start_h, hours=hours
        )


def test_on_demand_is_a_quota_that_is_never_taken_back_and_spot_refunds_its_first_hour() -> None:
    spot, on_demand = the_scenario().bind(fixed(6), trace=plenty()).offerings
    assert (on_demand.pool, on_demand.offering.capacity_type) == ("on-demand", CapacityType.ON_DEMAND)
    assert (on_demand.capacity.counts, on_demand.reclaims, on_demand.usd_per_h) == ((4,), False, 30.0)
    assert (spot.reclaims, spot.offering.billing.refund_if_interrupted_within_s) == (True, 3600.0)
    assert on_demand.offering.billing.refund_if_interrupted_within_s == 0.0


def test_no_quota_is_no_offering() -> None:
    document = changed(a_document(), "spec", "onDemand", "quotaReplicas", to=0)
    assert {m.pool for m in the_scenario(document).bind(fixed(6), trace=plenty()).offerings} == {"spot"}


def test_a_block_is_there_between_its_times_and_is_taken_at_its_end() -> None:
    block = {"name": "b", "priceUsdPerH": "20", "replicas": 3, "start": "2h", "lasts": "4h"}
    document = changed(a_document(), "spec", "capacityBlocks", to=[block])
    (found,) = (m for m in the_scenario(document).bind(fixed(6)).offerings if m.pool == "capacity-block")
    assert [found.capacity.at(hour * 3600.0) for hour in (1, 2, 5, 6)] == [0, 3, 3, 0]
    assert found.reclaims


def test_a_replica_of_eight_nodes_costs_eight() -> None:
    document = changed(a_document(), "spec", "replica", "nodes", to=8)
    bound = the_scenario(document).bind(fixed(6), trace=plenty())
    assert bound.offerings[0].usd_per_h == 80.0
    assert bound.fleet.stages[0].pools[0].nodes_per_replica == 8
    assert bound.trainer.usd_per_h == 60.0


def test_published_rates_come_out_as_written_though_tokens_are_whole() -> None:
    bound = load_scenario("case-a").bind(fixed(24))
    assert bound.unblocked_samples_per_s == pytest.approx(2.75, rel=1e-12)
    assert bound.goodput_per_replica_per_s * 24 == pytest.approx(1.95, rel=1e-12)
    assert bound.balance_replicas == pytest.approx(33.846, abs=1e-3)
    assert bound.generation.tokens_per_s == pytest.approx(40.0, rel=1e-4)


def test_the_fleet_is_guarded_as_written_and_its_cap_caps_nothing_unless_it_is_written() -> None:
    bound = the_scenario().bind(fixed(6), trace=plenty())
    rails = bound.fleet.stages[0].guard_rails
    assert ceiling_fits(bound)
    assert (rails.min_replicas, rails.max_replicas) == (0, 8)
    assert rails.max_spend_usd_per_h >= 8 * 30.0
    assert rails.signal_max_age_s == 3 * bound.fleet.interval_s
    capped = changed(a_document(), "spec", "guardRails", "spendCapUsdPerH", to="70")
    assert the_scenario(capped).bind(fixed(6)).fleet.stages[0].guard_rails.max_spend_usd_per_h == 70.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingParams:
    trainer_usd_per_h: float | None = None


@pytest.mark.parametrize(("named", "weighed"), [(None, 60.0), (1.0, 1.0)], ids=["left open", "named"])
def test_a_policy_that_weighs_the_trainer_gets_its_cost_unless_it_names_one(
    named: float | None, weighed: float
) -> None:
    policy = PolicyChoice(
        name="p",
        sizing=PolicySpec(name="weighs", params=WeighingParams(trainer_usd_per_h=named)),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
    )
    params = the_scenario().bind(policy).fleet.stages[0].sizing.params
    assert params == WeighingParams(trainer_usd_per_h=weighed)


def test_a_reward_stage_gets_its_own_pool_and_serves_every_sample() -> None:
    document = changed(a_document(), "spec", "services", to=[a_reward_stage()])
    bound = the_scenario(document).bind(fixed(6), trace=plenty(), hours=4.0)
    assert [stage.name for stage in bound.fleet.stages] == ["rollout", "reward"]
    summary = simulate(bound).summary
    assert summary.samples_trained > 0.9 * 4 * 3600
    assert summary.trainer_wait_ratio < 0.1


# traces by name


def test_a_trace_is_named_with_the_zones_that_count(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(dump(a_trace(100.0, a={0.0: 1}, b={0.0: 2}, c={0.0: 3})))
    assert open_trace(str(file)).names == ("a", "b", "c")
    assert open_trace(f"{file}#c,a").names == ("c", "a")
    with pytest.raises(TraceError, match=r"t\.csv: has no series 'z'; it has a, b, c"):
        open_trace(f"{file}#a,z")


def test_a_file_with_a_hash_in_its_name_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "t#1.csv"
    file.write_text(dump(a_trace(100.0, a={0.0: 1}, b={0.0: 2})))
    assert open_trace(str(file)).names == ("a", "b")
    assert open_trace(f"{file}#b").names == ("b",)


def test_dips_of_a_tick_can_be_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(dump(a_trace(400.0, 100.0, a={0.0: 3, 100.0: 0, 200.0: 4})))
    assert min(open_trace(str(file)).series[0].counts) == 0
    assert min(open_trace(str(file), ignore_dips=True).series[0].counts) == 3
