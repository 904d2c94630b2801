"""The parts of a Scenario in the YAML: trainer, replicas, prices, launches, notices, and what a trace's counts stand for."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from scaler.config.scalars import (
    Count,
    Duration,
    Flag,
    Name,
    OfferingWord,
    PositiveCount,
    PositiveDuration,
    Ratio,
    Usd,
)
from scaler.config.stage import Billing
from scaler.config.yaml_model import Problem, YamlModel
from scaler.simulate.generated_yaml import Spread
from scaler.simulate.scenario import ServiceStage

Positive = Annotated[float, Strict(), Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Strict(), Field(ge=0, le=1e9)]


def _spread(**written: str | float) -> Any:
    """A default, as it would be written."""
    return Field(default=written, validate_default=True)


class Trainer(YamlModel):
    """The consumer, rented throughout."""

    nodes: PositiveCount
    """Nodes that it runs on."""
    node_usd_per_h: Usd
    """Price of one of them."""
    unblocked_samples_per_s: Positive
    """Samples a second that it takes when it never waits, publishing included."""
    publish_s: Duration = 0.0
    """Checkpoint and publication of one policy version; the trainer waits for it. Default 0s: part of the rate already."""

    @property
    def usd_per_h(self) -> float:
        """Rent of all its nodes."""
        return self.nodes * self.node_usd_per_h


class Lengths(YamlModel):
    """How long units are: lognormal tokens around the mean that the goodput gives, cut at the bound."""

    sigma: Annotated[float, Strict(), Field(ge=0, le=4)]
    """Of the logarithm: 0 is one length for all; at 1 the longest percent are six times the mean."""
    most_tokens: PositiveCount
    """Token bound of a unit."""


class Generation(YamlModel):
    """What one ready replica does."""

    goodput_per_replica_per_s: Positive
    """Accepted samples a second, always at work."""
    concurrent_units: PositiveCount
    """Units that it runs at once: a multiple of the group size."""
    tokens_per_s: Positive
    """Of one unit, from its first token on, with all of them running."""
    lengths: Lengths
    """How long units are."""
    first_token_s: Duration = 0.0
    """From the lease of a unit to its first token. Default 0s: an engine that runs all that is leased."""
    progress_s: PositiveDuration = 10.0
    """Interval of publication. Default 10s: what a kill without notice loses at most."""
    resume_s: Duration = 2.0
    """Prefill of a unit that continues elsewhere. Default 2s: some ten thousand tokens at some thousand a second."""
    swap_s: Duration = 1.0
    """Pause at each new version. Default 1s: research/rl-systems.md 2.4, weights in memory (0.75 to 3.8 s)."""
    lease_ttl_s: PositiveDuration = 60.0
    """Until a silent holder loses its units. Default 60s: the worker's own default."""


class Replica(YamlModel):
    """What one replica is made of."""

    instance_type: OfferingWord
    """For example p5en.48xlarge."""
    nodes: PositiveCount = 1
    """Nodes that live and die together. Default 1: one engine a node."""


class Spot(YamlModel):
    """What spot capacity costs, wherever the trace finds it."""

    price_usd_per_h: Usd
    """Price of one node in a zone that is not named below."""
    zone_prices_usd_per_h: dict[str, Usd] = Field(default_factory=dict)
    """Price of one node by zone, or by what the zone's name starts with; the longest that fits counts. Default: none."""
    billing: Billing = Field(default={"refundIfInterruptedWithin": "1h"}, validate_default=True)
    """Default: a minute at least, and nothing for an instance that EC2 takes within its first hour."""


class OnDemand(YamlModel):
    """Capacity that is there up to a quota and is not taken back."""

    price_usd_per_h: Usd
    """Price of one node."""
    quota_replicas: Count
    """Most replicas of it; 0: none."""
    billing: Billing = Billing()
    """Default: a minute at least."""


class CapacityBlock(YamlModel):
    """Reserved capacity between two times. Charged while it is used, though a real block is paid in advance."""

    name: Name
    """Stands where a zone would."""
    price_usd_per_h: Usd
    """Price of one node."""
    replicas: PositiveCount
    """Replicas that it holds."""
    start_s: Duration = 0.0
    """From the start of the window. Default 0s."""
    lasts_s: PositiveDuration
    """How long; what still runs at its end is taken, after a notice."""


class Launch(YamlModel):
    """From a request to a ready replica. Defaults: research/spot-policies.md 3.5, its suggested (assumed) distributions."""

    answer: Spread = _spread(least="5s", median="10s", sigma=0.5, most="30s")
    """Request to grant or refusal. Default 5 to 30 s."""
    boot: Spread = _spread(least="100s", median="90s", sigma=0.8, most="12m")
    """Grant to registered worker: instance, node, image. Default: median 190 s, one in twenty over 430 s."""
    load: Spread = _spread(least="1m", median="90s", sigma=0.6, most="6m")
    """Registered to ready: engine, model, newest weights. Default: median 150 s, one in twenty over 300 s."""
    failure_ratio: Ratio = 0.005
    """Share of the grants that never become ready. Default 0.5%: assumed, within the hard failures of 3.3."""
    timeout_s: PositiveDuration = 1200.0
    """A launch that is not ready by then is replaced. Default 20m: more than the longest boot and load."""
    refusal_backoff_initial_s: PositiveDuration = 30.0
    """Wait after the first refusal for capacity. Default 30s: as a fleet's."""
    refusal_backoff_max_s: PositiveDuration = 120.0
    """Longest wait after refusals in a row. Default 2m: as a fleet's."""

    def problems(self) -> Iterator[Problem]:
        """A timeout that kills slow launches; a back-off upside down."""
        if self.timeout_s < self.boot.longest_s + self.load.longest_s:
            yield Problem(("timeout",), "shorter than the longest boot and load", "raise it, or lower their most")
        if self.refusal_backoff_initial_s > self.refusal_backoff_max_s:
            yield Problem(("refusalBackoffInitial",), "longer than refusalBackoffMax", "lower it, or raise the other")


class Notices(YamlModel):
    """How the cloud takes instances. Defaults: research/spot-policies.md 3.3 and 3.4, shares assumed within its ranges."""

    lead_s: PositiveDuration = 120.0
    """Notice to end. Default 2m: EC2 Spot."""
    spread_s: Duration = 180.0
    """Within which the victims of one fall go. Default 3m: 92 % of joint interruptions."""
    late_ratio: Ratio = 0.02
    """Share with a late notice. Default 2%."""
    late_least_s: Duration = 20.0
    """Shortest late notice. Default 20s."""
    late_most_s: Duration = 110.0
    """Longest late notice. Default 110s."""
    none_ratio: Ratio = 0.01
    """Share without notice. Default 1%."""

    def problems(self) -> Iterator[Problem]:
        """Shares and times that contradict each other."""
        if self.late_ratio + self.none_ratio > 1:
            yield Problem(("late",), "late and none together are over 100%", "lower one of them")
        if not self.late_least_s <= self.late_most_s <= self.lead_s:
            yield Problem(
                ("lateLeast",), "late notices must lie between lateLeast, lateMost and lead", "put them in order"
            )


class Warm(YamlModel):
    """What is there at the start. The same for all policies."""

    replicas: Count
    """Ready replicas, on the cheapest spot capacity that there is."""
    depth_samples: Count = 0
    """Samples in the buffer. Default 0."""
    rates_known: Flag = True
    """Whether the controller has measured before what the trainer takes and what a replica makes; else it learns them from the
    first batch and the first samples, as where a job begins. Default true."""


class ReplicasPerCount(YamlModel):
    """How many replicas one count of a trace stands for, by the format of the trace; products are rounded down.

    Formats count different things (of 16 requested, yes or no, of 32 nodes), so the right scale is the scenario's to say.
    """

    zone_counts: Positive = 1.0
    """Tables of counts, as GCP's H100: 0 to 16 a zone. Default 1."""
    zone_probes: Positive = 1.0
    """Tables of 0 and 1, as AWS' V100. Default 1."""
    held_nodes: Positive = 1.0
    """Instances held of 4. Default 1."""
    node_events: Positive = 1.0
    """Logs of nodes that came and went, as Bamboo's P3: up to 32. Default 1."""
    live_counts: Positive = 1.0
    """Live instances, as Bamboo's A100: up to 64. Default 1."""
    replay_segments: Positive = 1.0
    """Parcae's segments: up to 32. Default 1."""
    offering_events: Positive = 1.0
    """Our own format, which counts replicas. Default 1."""

    def of(self, trace_format: str) -> float:
        """The scale of a trace's format; 1 for one that is not known here."""
        return float(getattr(self, trace_format.replace(" ", "_"), 1.0))


class Service(YamlModel):
    """A reward or environment stage behind rollout: replicas on demand, always there, each serving several samples."""

    name: Literal["reward", "environment"]
    """Which step."""
    concurrent_samples: PositiveCount
    """Samples that a replica serves at once."""
    service: Spread
    """Time of one sample."""
    instance_type: OfferingWord
    """What a replica runs on."""
    price_usd_per_h: Usd
    """Price of one."""
    replicas: PositiveCount
    """How many there are throughout: the policy under test sizes rollout only."""

    def to_stage(self) -> ServiceStage:
        """What one of them does."""
        return ServiceStage(name=self.name, concurrent_samples=self.concurrent_samples, service=self.service.to_delay())
