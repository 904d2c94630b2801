"""A Scenario in the YAML: everything about a world but the policy and the capacity over time.

Published rates are what is written (`unblockedSamplesPerS`, `goodputPerReplicaPerS`); what follows from them (time of a batch,
tokens of a unit) is computed in `scaler.simulate.loading`. Invariant: a document that passes can be balanced: some fleet
below 0.9 of the ceiling meets the unblocked demand, within admission and staleness.
Non-goals: traces, which are named where a world is made.
"""

import math
from collections.abc import Iterator
from typing import Literal

from scaler.config.convert import settings_of
from scaler.config.scalars import Flag, Name, PlainText, PositiveDuration, Ratio
from scaler.config.schema import Job
from scaler.config.stage import Drain, GuardRails
from scaler.config.yaml_model import Problem, YamlModel, duplicates
from scaler.simulate.generated_yaml import Generated
from scaler.simulate.lengths import lengths_with_mean, longest_tokens
from scaler.simulate.scenario_parts import (
    CapacityBlock,
    Generation,
    Launch,
    Notices,
    NotNegative,
    OnDemand,
    Positive,
    Replica,
    ReplicasPerCount,
    Service,
    Spot,
    Trainer,
    Warm,
)

LEAST_HOURS = 12.0
"""A shorter run says more of its first and last hours than of its policy."""
MOST_OF_CEILING = 0.9
"""The share of the ceiling that the balance point may take."""
LEAST_BALANCE = 0.5
"""Replicas: with less, a rate is in another unit than the one meant. Recordings may be of anything."""
LEAST_TOKENS = 10
"""Of a mean unit; likewise."""
LEAST_DECISIONS = 10
"""Of a run; of a recording one."""
_GOODPUT = ("generation", "goodputPerReplicaPerS")
SPOT_POOL, ON_DEMAND_POOL, BLOCK_POOL = "spot", "on-demand", "capacity-block"


class Spec(YamlModel):
    """What the world is."""

    hours: Positive
    """Length of a run; at least 12, unless it replays a recording."""
    replay: Flag = False
    """Made from a recording: as long as that, and in balance or not, as that was. Default false."""
    interval_s: PositiveDuration = 60.0
    """Time between decisions. Default 60s: events wake the loop as well."""
    job: Job
    """The rules of the job's ledger, as in a fleet."""
    trainer: Trainer
    """The consumer."""
    generation: Generation
    """The rollout replicas' work."""
    acceptance_ratio: Ratio = 1.0
    """Share of the groups that are not filtered. Default 100%."""
    replica: Replica
    """Of rollout."""
    guard_rails: GuardRails
    """The last word over every policy, as in a fleet. Without a spend cap: what the ceiling costs at the highest price."""
    drain: Drain = Drain()
    """As in a fleet."""
    spot: Spot
    """Spot prices and billing."""
    on_demand: OnDemand
    """On-demand price and quota."""
    capacity_blocks: tuple[CapacityBlock, ...] = ()
    """Reserved capacity. Default: none."""
    launch: Launch = Launch()
    """From a request to a ready replica."""
    notices: Notices = Notices()
    """How the cloud takes instances."""
    hard_failures_per_h: NotNegative = 0.0
    """Of any instance, without notice and without refund. Default 0."""
    warm: Warm
    """What is there at the start."""
    services: tuple[Service, ...] = ()
    """Stages between rollout and buffer. Default: none."""
    replicas_per_count: ReplicasPerCount = ReplicasPerCount()
    """How a trace's counts become replicas. Default: one each."""
    generated: Generated | None = None
    """Spot capacity where no trace is named. Default: a trace must be named."""

    @property
    def batch_samples(self) -> int:
        """Samples in one batch."""
        return self.job.batch_groups * self.job.group_size

    @property
    def stock_bound_samples(self) -> int:
        """Most that buffer and flight together may hold."""
        return settings_of(self.job).admitted_samples

    @property
    def balance_replicas(self) -> float:
        """n*: ready replicas that meet the unblocked demand."""
        return self.trainer.unblocked_samples_per_s / self.generation.goodput_per_replica_per_s

    @property
    def mean_unit_s(self) -> float:
        """Time of a unit, from Little's law: units at once times acceptance over goodput."""
        made = self.generation
        return made.concurrent_units * self.acceptance_ratio / made.goodput_per_replica_per_s

    @property
    def mean_tokens(self) -> float:
        """Tokens of a unit."""
        return (self.mean_unit_s - self.generation.first_token_s) * self.generation.tokens_per_s

    @property
    def group_tail(self) -> float:
        """Time of the longest unit of a group over that of a mean unit."""
        made = self.generation
        lengths = lengths_with_mean(self.mean_tokens, made.lengths.sigma, made.lengths.most_tokens)
        generating_s = longest_tokens(lengths, self.job.group_size) / made.tokens_per_s
        return (made.first_token_s + generating_s) / self.mean_unit_s

    @property
    def flight_samples(self) -> int:
        """Units in flight in balance, and at least a batch: a group is until its longest unit is done (Little's law)."""
        running = self.balance_replicas * self.generation.concurrent_units * self.group_tail
        served = self.served_samples_per_s * sum(self.service_group_s(service) for service in self.services)
        return max(self.batch_samples, math.ceil(running + served))

    @property
    def served_samples_per_s(self) -> float:
        """What every stage behind rollout must serve in balance: all that is made, as it is filtered afterwards."""
        return self.trainer.unblocked_samples_per_s / self.acceptance_ratio

    def service_group_s(self, service: Service) -> float:
        """Mean time of a group in a stage, once it is served."""
        stage = service.to_stage()
        return stage.service.mean_s * stage.rounds(self.job.group_size)

    @property
    def version_s(self) -> float:
        """Between two policy versions, never starved."""
        return self.job.batches_per_version * self.batch_samples / self.trainer.unblocked_samples_per_s

    @property
    def train_s(self) -> float:
        """Of one batch: what the unblocked rate leaves beside publishing."""
        return (self.version_s - self.trainer.publish_s) / self.job.batches_per_version

    def problems(self) -> Iterator[Problem]:
        """Why it could never be balanced, or says nothing."""
        wrong_rates = list(self._rate_problems())
        yield from wrong_rates
        if not wrong_rates and not self.replay:
            yield from self._room_problems()
            yield from self._service_problems()
        yield from self._shape_problems()

    def _rate_problems(self) -> Iterator[Problem]:
        if self.train_s <= 0:
            words = f"publishing takes {self.trainer.publish_s:g} s, all the time that the unblocked rate leaves"
            yield Problem(("trainer", "publish"), words, "lower it, or lower unblockedSamplesPerS")
        if self.acceptance_ratio <= 0:
            yield Problem(("acceptance",), "nothing would be accepted", "write more than 0%")
        elif self.balance_replicas < LEAST_BALANCE and not self.replay:
            yield self._balance_problem()
        else:
            yield from self._token_problems()

    def _balance_problem(self) -> Problem:
        demand, goodput = self.trainer.unblocked_samples_per_s, self.generation.goodput_per_replica_per_s
        words = (
            f"a trainer of {demand:g} samples/s over a replica of {goodput:g}/s is {self.balance_replicas:.2g} replicas"
        )
        remedy = f"both are per second, not per hour; write {demand / LEAST_BALANCE:g} at most"
        return Problem(_GOODPUT, f"{words} in balance, less than half of one", remedy)

    def _token_problems(self) -> Iterator[Problem]:
        made, least = self.generation, 1 if self.replay else LEAST_TOKENS
        most = made.lengths.most_tokens
        if least <= self.mean_tokens < most:
            return
        time = f"{made.concurrent_units} units * {self.acceptance_ratio:.4g} accepted / {made.goodput_per_replica_per_s:g}/s"
        first = f" - {made.first_token_s:g} s" if made.first_token_s else ""
        yield Problem(
            _GOODPUT,
            f"it makes a unit of {self.mean_tokens:.3g} tokens on average, and units have {least} to {most}: "
            f"({time}{first}) * {made.tokens_per_s:g} tokens/s",
            "change goodput, concurrentUnits, tokensPerS, firstToken or mostTokens",
        )

    def _room_problems(self) -> Iterator[Problem]:
        needed, ceiling = math.ceil(self.balance_replicas), self.guard_rails.ceiling
        if needed > MOST_OF_CEILING * ceiling:
            yield Problem(
                ("guardRails", "ceiling"),
                f"balance needs {self.balance_replicas:.1f} replicas, more than 0.9 of the ceiling {ceiling}",
                f"raise it to {math.ceil(needed / MOST_OF_CEILING)} at least",
            )
        running = max(self.batch_samples, needed * self.generation.concurrent_units)
        if self.job.max_concurrent < running:
            yield Problem(
                ("job", "maxConcurrent"),
                f"{self.job.max_concurrent} units at once are less than a batch or what a fleet in balance runs",
                f"raise it to {running} at least",
            )
        flight = self.flight_samples
        if self.stock_bound_samples < self.batch_samples + flight:
            yield Problem(
                ("job", "maxStaleness"),
                f"staleness admits {self.stock_bound_samples} samples in buffer and flight; a batch and what a fleet in "
                f"balance has in flight are {self.batch_samples + flight}",
                "raise it, or lower concurrentUnits or sigma",
            )
        group_s = self.group_tail * self.mean_unit_s + sum(self.service_group_s(service) for service in self.services)
        if group_s > (self.job.max_staleness + 1) * self.version_s:
            yield Problem(
                ("job", "maxStaleness"),
                f"a usual group takes {group_s:.0f} s, {group_s / self.version_s:.1f} versions, and would be too stale",
                "raise it, or make units shorter",
            )

    def _service_problems(self) -> Iterator[Problem]:
        size, wanted = self.job.group_size, self.served_samples_per_s
        for index, service in enumerate(self.services):
            lanes = service.to_stage().lanes(size)
            one_s = self.service_group_s(service) / (lanes * size)
            if service.replicas < wanted * one_s:
                yield Problem(
                    ("services", index, "replicas"),
                    f"{service.replicas} serve {service.replicas / one_s:.3g} samples/s, and balance makes {wanted:.3g}/s",
                    f"raise it to {math.ceil(wanted * one_s)} at least",
                )

    def _shape_problems(self) -> Iterator[Problem]:
        if self.generation.concurrent_units % self.job.group_size:
            yield Problem(
                ("generation", "concurrentUnits"),
                f"{self.generation.concurrent_units} is no multiple of the group size {self.job.group_size}",
                "a replica runs whole groups",
            )
        if self.hours < LEAST_HOURS and not self.replay:
            yield Problem(("hours",), f"{self.hours:g} hours say little of a policy", "write 12 at least")
        least_h = self.interval_s / 3600 * (1 if self.replay else LEAST_DECISIONS)
        if self.hours < least_h:
            words = f"a run of {self.hours:g} h has {self.hours * 3600 / self.interval_s:.2g} decisions"
            yield Problem(("interval",), f"{words}, too few to judge any policy", "a usual interval is 10s to 60s")
        if self.guard_rails.floor > self.balance_replicas and not self.replay:
            yield Problem(("guardRails", "floor"), "the floor alone is more than balance needs", "lower it")
        if self.warm.replicas > self.guard_rails.ceiling:
            yield Problem(("warm", "replicas"), "more than the ceiling", "lower it, or raise the ceiling")
        if self.warm.depth_samples > self.stock_bound_samples:
            yield Problem(("warm", "depthSamples"), "more than staleness admits", f"at most {self.stock_bound_samples}")
        for index, name in duplicates([block.name for block in self.capacity_blocks]):
            yield Problem(("capacityBlocks", index, "name"), f"block {name} is there twice", "give each its own name")
        for index, service in duplicates([service.name for service in self.services]):
            yield Problem(("services", index, "name"), f"stage {service} is there twice", "keep one of them")


class ScenarioMetadata(YamlModel):
    """What the scenario is."""

    name: Name
    """Its name in reports."""
    description: PlainText
    """One line for a list: what is modelled, and after whom."""


class ScenarioDocument(YamlModel):
    """One simulated world, but for the policy and the capacity over time.

    `research/*.md`, which descriptions cite, are the project's notes of papers, code and price lists; they are not in the
    repository. The first lines of a shipped scenario name the article whose figures it has.
    """

    api_version: Literal["headrace.dev/v1alpha1"]
    """Version of this form."""
    kind: Literal["Scenario"]
    """What the document describes."""
    metadata: ScenarioMetadata
    """What the scenario is."""
    spec: Spec
    """What the world is."""
