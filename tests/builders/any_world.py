"""Hypothesis strategies for worlds that nobody would build on purpose: NaN, negative, empty, doubled, out of order."""

from typing import Any

from hypothesis import strategies as st

from policies import cheapest_available
from policies.buffer_band import MarkUnit
from scaler.model.capacity import CapacityType, Offering, ReplicaPhase
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import Memory, StageMemory
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.model.spec import DrainSpec, Duties, FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from tests.builders.snapshots import NOW_S, banded, rate_matched, static_of

POOLS, STAGES = ("one", "two", "three"), ("rollout", "reward")
OFFERINGS = tuple(
    Offering(instance_type="g", zone=zone, capacity_type=kind, price_usd_per_h=price)
    for zone, kind, price in (
        ("a", CapacityType.SPOT, 1.0),
        ("b", CapacityType.SPOT, 2.5),
        ("b", CapacityType.ON_DEMAND, 4.0),
    )
)

times = st.one_of(st.none(), st.floats(NOW_S - 2000, NOW_S + 500), st.just(NOW_S))
sane_readings = st.builds(Reading, st.one_of(st.floats(0, 1e4), st.integers(0, 500).map(float)), st.just(NOW_S))
any_float = st.floats(allow_nan=True, allow_infinity=True)
any_times = st.one_of(st.none(), times, any_float)
any_readings = st.one_of(sane_readings, st.builds(Reading, st.one_of(st.none(), any_float), any_times))


def notices(when: st.SearchStrategy[Any]) -> st.SearchStrategy[InterruptionNotice]:
    return st.builds(
        InterruptionNotice,
        instance_id=st.just("i"),
        kind=st.sampled_from(NoticeKind),
        noticed_at_s=when.map(lambda at_s: NOW_S if at_s is None else at_s),
        deadline_s=when,
    )


def replicas(when: st.SearchStrategy[Any], *, pools: tuple[str, ...] = POOLS) -> st.SearchStrategy[ReplicaView]:
    replacements = st.builds(
        ReplicaView,
        replica_id=st.integers(0, 40).map(lambda n: f"r{n}"),
        pool=st.sampled_from(pools),
        offering_id=st.sampled_from([offering.offering_id for offering in OFFERINGS]),
        phase=st.just(ReplicaPhase.REQUESTED),
        launched_at_s=when,
        comes_by_itself=st.just(True),
    )
    existing = st.builds(
        ReplicaView,
        replica_id=st.integers(0, 40).map(lambda n: f"r{n}"),
        pool=st.sampled_from(pools),
        offering_id=st.sampled_from([offering.offering_id for offering in OFFERINGS]),
        phase=st.sampled_from(ReplicaPhase),
        instance_ids=st.sampled_from([(), ("i",), ("i", "j")]),
        worker=st.one_of(st.none(), st.just("w")),
        launched_at_s=when,
        running_units=st.integers(-1, 9),
        unpublished_tokens=st.integers(-1, 999),
        notice=st.one_of(st.none(), notices(when)),
        drain_deadline_s=when,
        drain_reason=st.sampled_from([None, "size_down", "notice", "replace_failed_launch", "sigterm"]),
        launch_token=st.sampled_from([None, "fleet.rollout.7", "fleet.rollout.x", "fleet.rollout.²", "", "other.1"]),
        attached=st.booleans(),
    )
    return st.one_of(existing, existing, existing, replacements)


all_duties = st.one_of(
    st.just(Duties()), st.builds(Duties, **dict.fromkeys(("taints", "evicts", "replaces", "detaches"), st.booleans()))
)


def signals(readings: st.SearchStrategy[Reading]) -> st.SearchStrategy[Signals]:
    return st.builds(
        Signals,
        buffered_samples=readings,
        pending_units=readings,
        running_units=readings,
        unblocked_rate_per_s=readings,
        goodput_per_replica_per_s=readings,
        acceptance_ratio=readings,
        batch_samples=st.integers(-1, 64),
        batches_per_version=st.integers(-1, 4),
        max_staleness=st.integers(-1, 16),
    )


def offering_views(when: st.SearchStrategy[Any]) -> st.SearchStrategy[OfferingView]:
    return st.builds(
        OfferingView,
        offering=st.sampled_from(OFFERINGS),
        refused_at_s=when,
        refusals=st.integers(-1, 2000),
        reclaiming_at_s=when,
    )


def pool_views(name: str, when: st.SearchStrategy[Any]) -> st.SearchStrategy[PoolView]:
    return st.builds(
        PoolView,
        name=st.just(name),
        offerings=st.lists(offering_views(when), max_size=4).map(tuple),
        listed_at_s=st.one_of(st.just(NOW_S), when),
        refused_reason=st.sampled_from([None, None, None, "another owner"]),
    )


@st.composite
def stage_views(draw: st.DrawFn, name: str) -> StageView:
    """Anything at all."""
    pools = [draw(pool_views(pool, any_times)) for pool in draw(st.lists(st.sampled_from(POOLS), max_size=4))]
    there = draw(st.lists(replicas(any_times, pools=(*POOLS, "nowhere")), max_size=25))
    return StageView(name=name, signals=draw(signals(any_readings)), pools=tuple(pools), replicas=tuple(there))


@st.composite
def any_snapshots(draw: st.DrawFn) -> Snapshot:
    """Anything at all."""
    names = draw(st.lists(st.sampled_from((*STAGES, "other")), max_size=3))
    return Snapshot(
        now_s=draw(st.one_of(st.just(NOW_S), any_float)),
        fleet="fleet",
        stages=tuple(draw(stage_views(name)) for name in names),
        synced=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def sane_snapshots(draw: st.DrawFn) -> Snapshot:
    """Every stage in sight, lists complete, signals fresh, each replica once."""
    stages = []
    for name in STAGES:
        there = draw(st.lists(replicas(times), max_size=25, unique_by=lambda replica: replica.replica_id))
        pools = tuple(PoolView(name=pool, offerings=(), listed_at_s=NOW_S) for pool in POOLS)
        stages.append(StageView(name=name, signals=draw(signals(sane_readings)), pools=pools, replicas=tuple(there)))
    return Snapshot(now_s=NOW_S, fleet="fleet", stages=tuple(stages))


sizings = st.one_of(
    st.integers(0, 30).map(static_of),
    st.builds(rate_matched, initial_goodput_per_replica_per_s=st.one_of(st.none(), st.floats(0.01, 10))),
    st.builds(banded, marks_in=st.sampled_from(MarkUnit), step_up_replicas=st.integers(1, 4)),
)


def rails(**fixed: Any) -> st.SearchStrategy[GuardRails]:
    drawn: dict[str, Any] = {
        "min_replicas": st.integers(0, 6),
        "max_replicas": st.integers(0, 40),
        "max_spend_usd_per_h": st.floats(0, 60),
        "max_step_up": st.integers(1, 50),
        "max_step_down": st.integers(1, 50),
        "cooldown_up_s": st.sampled_from([0.0, 60.0]),
        "cooldown_down_s": st.sampled_from([0.0, 300.0]),
        "disruption_budget_ratio": st.floats(0, 1),
        "lower_after_fresh_s": st.sampled_from([0.0, 1800.0]),
    }
    return st.builds(GuardRails, **(drawn | {name: st.just(value) for name, value in fixed.items()}))


@st.composite
def fleet_specs(draw: st.DrawFn, /, **fixed: Any) -> FleetSpec:
    """Two stages of three pools; `fixed` sets rails or, by name, `paused` and `dry_run`."""
    paused, dry_run = fixed.pop("paused", None), fixed.pop("dry_run", None)
    stages = tuple(
        StageSpec(
            name=name,
            sizing=draw(sizings),
            placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
            guard_rails=draw(rails(**fixed)),
            pools=tuple(
                PoolSpec(
                    name=pool,
                    provider="local",
                    offerings=OFFERINGS,
                    max_replicas=draw(st.integers(0, 30)),
                    duties=draw(all_duties),
                )
                for pool in POOLS
            ),
            drain=DrainSpec(),
        )
        for name in STAGES
    )
    return FleetSpec(
        name="fleet",
        stages=stages,
        paused=draw(st.sampled_from([False, False, True])) if paused is None else paused,
        dry_run=draw(st.sampled_from([False, False, True])) if dry_run is None else dry_run,
        max_spend_usd_per_h=draw(st.one_of(st.none(), st.floats(0, 100))),
    )


stage_memories = st.builds(
    StageMemory,
    last_up_at_s=times,
    last_down_at_s=times,
    fresh_since_s=times,
    desired=st.one_of(st.none(), st.integers(0, 40)),
    observed=st.one_of(st.none(), st.integers(0, 40)),
    policy=st.dictionaries(
        st.sampled_from(["at_s", "rate_per_s", "goodput_per_s", "stepped_at_s"]), any_float, max_size=4
    ).map(lambda numbers: tuple(sorted(numbers.items()))),
)
memories = st.builds(
    Memory,
    stages=st.tuples(*(st.tuples(st.just(name), stage_memories) for name in STAGES)),
    next_intent=st.integers(0, 1000),
)
