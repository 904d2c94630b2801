"""What a simulated world is made of, as plain facts bound to one stretch of capacity.

Times are seconds from the start of the stretch. Money is USD. Everything that a trace leaves open is fixed here, the same for
every policy; the policy itself is in `fleet`. YAML and traces become this in `scaler.simulate.loading`.

The accounting that world and optimum share
* Charge of an instance: from the moment it is granted to the moment it is gone, at its offering's price times nodes per
  replica, at least `billing.minimum_s`; nothing where the cloud took it within `billing.refund_if_interrupted_within_s` of
  the grant. What runs at the end is charged to the end. Trainers are charged throughout.
* Capacity: an offering grants a request only while all that it holds there, noticed ones too, is below the count.
  When the count falls below what is held, the excess is reclaimed: each within `notices.spread_s`, after its notice.
  So what is held never exceeds the greatest count of the last `notices.outlive_s`.
* A replica is ready at the earliest `launch.least_ready_s` after its grant.
* Supply: a ready replica has `concurrent_units / group_size` lanes; every group occupies a lane for `mean_unit_s` in all,
  over all its holders, and one group in 1 / `acceptance_ratio` completed ones is accepted, by order of completion. So any
  fleet makes `goodput_per_replica_per_s` accepted samples a second of ready time at the most, apart from
  `draw_slack_samples` in a whole run. A group is complete when its longest unit is.
* `stock` (samples): consumable samples in the buffer plus work done on those in flight, in accepted samples. A run starts
  with `warm_depth_samples` in the buffer and its warm replicas at work; samples credited are
  trained + min(stock at the end, stock at the start) - stock at the start: eating the stock earns nothing, piling it up
  earns nothing. Policies and optimum alike.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from scaler.model.capacity import CapacityType, Offering
from scaler.model.job import JobSettings
from scaler.model.spec import FleetSpec
from scaler.simulate.delays import Delay
from scaler.traces.trace import Series

LENGTH_QUANTILES = 1024
"""Unit lengths are these many mid-quantiles of their distribution, in an order that the seed gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchModel:
    """From a request to a ready replica."""

    answer: Delay
    """Request to grant (the charge begins) or refusal."""
    boot: Delay
    """Grant to registered worker: instance, node, image."""
    load: Delay
    """Registered to ready: engine, model, newest weights."""
    failure_ratio: float = 0.0
    """Share of the grants that never become ready."""

    @property
    def least_ready_s(self) -> float:
        """The least time from grant to ready (d_min)."""
        return self.boot.least_s + self.load.least_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeModel:
    """How the cloud takes instances: each of a fall's victims at a moment of its own within `spread_s`.

    With notice: told then, gone `lead_s` later; late: gone at the same moment, told only `late_least_s` to `late_most_s`
    before; without: gone at the moment itself.
    """

    lead_s: float = 120.0
    spread_s: float = 180.0
    late_ratio: float = 0.02
    late_least_s: float = 20.0
    late_most_s: float = 110.0
    none_ratio: float = 0.01

    @property
    def outlive_s(self) -> float:
        """How long an instance may outlive the fall of its capacity."""
        return self.spread_s + self.lead_s


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeHazard:
    """Reclaims of capacity that is generated, not traced: lifetimes by age, and bursts that strike a whole zone.

    `steps`: (age from which it holds in s, interruptions an hour); the first starts at age 0.
    """

    steps: tuple[tuple[float, float], ...]
    bursts_per_h: float = 0.0
    burst_ratio: float = 0.0
    """Share of a zone's instances that a burst takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingModel:
    """An offering with its capacity over time: `capacity` counts whole replicas, all that may be held at once."""

    pool: str
    offering: Offering
    capacity: Series
    nodes_per_replica: int = 1
    reclaims: bool = True
    """Whether a fall of the count takes what is held above it: so on spot; a quota or a reservation only refuses."""
    hazard: AgeHazard | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(pool, offering id)."""
        return self.pool, self.offering.offering_id

    @property
    def usd_per_h(self) -> float:
        """Rent of a whole replica."""
        return self.offering.price_usd_per_h * self.nodes_per_replica


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthModel:
    """Generated tokens of a unit: lognormal, cut at the token bound (a cut is a finish reason, not a failure)."""

    median_tokens: float
    sigma: float
    most_tokens: int

    def table(self) -> tuple[int, ...]:
        """The mid-quantiles of which all lengths are drawn, ascending."""
        return _table(self)

    @property
    def mean_tokens(self) -> float:
        """Mean of the table."""
        return sum(self.table()) / LENGTH_QUANTILES


@lru_cache(maxsize=64)  # a scenario asks for it, and for its mean, a hundred times
def _table(lengths: LengthModel) -> tuple[int, ...]:
    tokens = Delay(median_s=lengths.median_tokens, sigma=lengths.sigma, most_s=float(lengths.most_tokens))
    return tuple([max(1, round(each)) for each in tokens.mid_quantiles(LENGTH_QUANTILES)])


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationModel:
    """What a ready rollout replica does."""

    concurrent_units: int
    """Units that it runs at once, a multiple of the group size."""
    tokens_per_s: float
    """Of one unit, from its first token on, with all of them running."""
    lengths: LengthModel
    first_token_s: float = 0.0
    """From the lease of a unit to its first token: the queue of an engine that is leased more than it runs, and the way there."""
    progress_s: float = 10.0
    """Interval of publication: what a kill without notice may lose at most, in seconds of generation."""
    resume_s: float = 2.0
    """Prefill of a unit that continues elsewhere."""
    swap_s: float = 1.0
    """Pause of generation at each new policy version."""
    lease_ttl_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerModel:
    """The consumer: never starved it takes batch after batch without a pause."""

    usd_per_h: float
    train_s: float
    """Of one batch."""
    publish_s: float = 0.0
    """Of one policy version, checkpoint included; the trainer waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStage:
    """A reward or environment stage between rollout and buffer: every sample passes it, one replica serves several."""

    name: str
    concurrent_samples: int
    service: Delay
    """Of one sample."""

    def lanes(self, group_size: int) -> int:
        """Groups that a replica serves at once."""
        return max(1, self.concurrent_samples // group_size)

    def rounds(self, group_size: int) -> int:
        """How often a group takes `service`: once for every `concurrent_samples` of its samples."""
        return -(-group_size // self.concurrent_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One world. `fleet.stages[0]` is the rollout stage; others carry the names of `services`."""

    name: str
    fleet: FleetSpec
    job: JobSettings
    trainer: TrainerModel
    generation: GenerationModel
    launch: LaunchModel
    notices: NoticeModel
    offerings: tuple[OfferingModel, ...]
    """Of all stages; each pool belongs to one stage."""
    end_s: float
    acceptance_ratio: float = 1.0
    """Share of the groups that are not filtered (all answers alike, or worthless)."""
    hard_failures_per_h: float = 0.0
    """Of any instance, without notice and without refund."""
    warm_replicas: int = 0
    warm_depth_samples: int = 0
    rates_known: bool = True
    """Whether the controller knows from the start what the trainer takes and what a replica makes; else once it has seen it."""
    services: tuple[ServiceStage, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    """Where it comes from, for reports: trace, zones, start."""

    @property
    def unblocked_samples_per_s(self) -> float:
        """What the trainer takes when it never waits, publishing included."""
        batches = self.job.batches_per_version
        return batches * self.job.batch_samples / (batches * self.trainer.train_s + self.trainer.publish_s)

    @property
    def goodput_per_replica_per_s(self) -> float:
        """Accepted samples a second of one ready replica that always has work (without weight swaps)."""
        return self.generation.concurrent_units / self.mean_unit_s * self.acceptance_ratio

    @property
    def lanes_per_replica(self) -> int:
        """Groups that a rollout replica runs at once."""
        return self.generation.concurrent_units // self.job.group_size

    @property
    def mean_unit_s(self) -> float:
        """Mean time of a unit, uninterrupted."""
        made = self.generation
        return made.first_token_s + made.lengths.mean_tokens / made.tokens_per_s

    @property
    def balance_replicas(self) -> float:
        """n*: the ready replicas that meet the unblocked demand."""
        return self.unblocked_samples_per_s / self.goodput_per_replica_per_s

    @property
    def stock_bound_samples(self) -> int:
        """The most that buffer and flight together may hold (admission)."""
        return self.job.admitted_samples

    @property
    def draw_slack_samples(self) -> float:
        """How many samples more than goodput times ready time a whole run may yield: the group that acceptance rounds up."""
        return float(self.job.group_size)


def warm_start(scenario: Scenario) -> dict[tuple[str, str], int]:
    """Replicas that exist and are ready at the start, by (pool, offering id): the cheapest reclaimable capacity first.

    They are older than any refund window. Fewer than `warm_replicas` where the offerings do not hold so many.
    """
    left = scenario.warm_replicas
    found: dict[tuple[str, str], int] = {}
    rollout = {pool.name for pool in scenario.fleet.stages[0].pools}
    spot = (m for m in scenario.offerings if m.offering.capacity_type is CapacityType.SPOT and m.pool in rollout)
    for model in sorted(spot, key=lambda m: (m.usd_per_h, m.key)):
        taken = min(left, model.capacity.at(0.0))
        if taken > 0:
            found[model.key] = taken
            left -= taken
    return found
