"""The job and the fleet of a schedule: small, with all times scaled down so that minutes hold what otherwise takes hours."""

from dataclasses import dataclass, replace
from random import Random

from policies import buffer_band, cheapest_available, rate_match, static
from scaler.model.capacity import CapacityType, Offering
from scaler.model.job import JobSettings, OnStale
from scaler.model.spec import DrainSpec, FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec

STAGE = "rollout"
INTERVAL_S = 10.0
WARNING_S = 30.0
"""From a notice that comes in time until the cloud takes the instance."""
SPOT = (
    Offering(instance_type="g", zone="z1", capacity_type=CapacityType.SPOT, price_usd_per_h=1.0),
    Offering(instance_type="g", zone="z2", capacity_type=CapacityType.SPOT, price_usd_per_h=1.2),
)
RESERVE = (Offering(instance_type="g", zone="z1", capacity_type=CapacityType.ON_DEMAND, price_usd_per_h=3.0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What does not change while faults come down on it."""

    job: JobSettings
    fleet: FleetSpec


def draw_setup(random: Random) -> Setup:
    """A job and a fleet."""
    job = JobSettings(
        group_size=2,
        batch_groups=2,
        max_staleness=random.choice((1, 2)),
        on_stale=random.choice(tuple(OnStale)),
        unit_failure_limit=2,
        backoff_initial_s=1.0,
        backoff_max_s=8.0,
    )
    return Setup(job=job, fleet=_fleet(random))


def static_size(fleet: FleetSpec, replicas: int) -> FleetSpec:
    """The fleet with a size that follows no signal."""
    return with_stage(fleet, sizing=PolicySpec(name="static", params=static.Params(replicas=replicas)))


def with_stage(fleet: FleetSpec, **changes: object) -> FleetSpec:
    """The fleet with another stage."""
    return replace(fleet, stages=(replace(fleet.stages[0], **changes),))  # type: ignore[arg-type]  # by name, as given


def _fleet(random: Random) -> FleetSpec:
    rails = GuardRails(
        min_replicas=1,
        max_replicas=random.choice((4, 6)),
        max_spend_usd_per_h=random.choice((6.0, 50.0)),
        max_step_up=random.choice((2, 6)),
        max_step_down=random.choice((1, 2)),
        cooldown_up_s=random.choice((0.0, 15.0)),
        cooldown_down_s=random.choice((15.0, 40.0)),
        disruption_budget_ratio=random.choice((0.2, 0.5)),
        lower_after_fresh_s=random.choice((20.0, 40.0)),
        signal_max_age_s=15.0,
    )
    stage = StageSpec(
        name=STAGE,
        sizing=_sizing(random),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params(reclaiming_s=60.0)),
        guard_rails=rails,
        pools=(_pool("spot", SPOT, 6), _pool("reserve", RESERVE, 2)),
        drain=DrainSpec(voluntary_deadline_s=25.0, margin_s=5.0, reap_after_s=30.0),
    )
    return FleetSpec(name="fleet", stages=(stage,), interval_s=INTERVAL_S)


def _pool(name: str, offerings: tuple[Offering, ...], max_replicas: int) -> PoolSpec:
    return PoolSpec(
        name=name,
        provider="cloud",
        offerings=offerings,
        max_replicas=max_replicas,
        launch_timeout_s=40.0,
        refusal_backoff_initial_s=5.0,
        refusal_backoff_max_s=20.0,
    )


def _sizing(random: Random) -> PolicySpec:
    return random.choice(
        (
            PolicySpec(name="static", params=static.Params(replicas=3)),
            PolicySpec(name="buffer_band", params=buffer_band.Params(low_mark=0.4, high_mark=0.9, settle_s=15.0)),
            PolicySpec(
                name="rate_match",
                params=rate_match.Params(
                    fill_horizon_s=30.0,
                    rate_time_constant_s=10.0,
                    goodput_time_constant_s=10.0,
                    max_depth_steps=1.2,
                    initial_goodput_per_replica_per_s=0.3,
                ),
            ),
        )
    )
