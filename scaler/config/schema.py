"""A RolloutFleet in the YAML: one RL job's fleet. `scaler.config.convert` makes the plain facts of it that the engine sees.

Invariants: what passes here can be run; a fault names the field and what to do. Several fleets are several documents.
Non-goals: whether files, stores and programs named here exist; who opens them says so.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from scaler.config.faults import shown
from scaler.config.scalars import (
    Count,
    FilePath,
    Flag,
    ListenAddress,
    Name,
    PlainText,
    PositiveCount,
    PositiveDuration,
    Usd,
)
from scaler.config.stage import Stage, StageName, exceeds
from scaler.config.trainers import Trainer
from scaler.config.yaml_model import RESTART, Problem, YamlModel, duplicates, refusal
from scaler.model.job import OnStale
from scaler.model.units import format_duration

API_VERSION = "headrace.dev/v1alpha1"
KIND = "RolloutFleet"


def _store_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        password, host, _ = parts.password, parts.hostname, parts.port
    except ValueError as error:
        raise refusal(f"{shown(url)} is no address: {error}", "write it like valkey://host:6379/0") from None
    if parts.scheme not in ("valkey", "valkeys") or not host or not re.fullmatch(r"(/[0-9]*)?", parts.path):
        raise refusal(f"{shown(url)} is no address of a Valkey store", "write it like valkey://host:6379/0")
    if password:
        raise refusal(
            "a password does not belong into this file", "put the whole URL into a file and name it in urlFile"
        )
    return url


class SqliteLedger(YamlModel):
    """A file on this machine."""

    type: Literal["sqlite"]
    """Which engine."""
    path: FilePath
    """The file; made where it is missing."""

    def problems(self) -> Iterator[Problem]:
        """Characters that a ledger URL cannot carry."""
        odd = sorted(set(self.path) & set("?#%"))
        if odd:
            yield Problem(("path",), f"the path holds {' and '.join(odd)}", "choose a path without ?, # and %")


class ValkeyLedger(YamlModel):
    """A Valkey (Redis protocol) store, 7.2 or newer, with an append-only file and `noeviction`."""

    type: Literal["valkey"]
    """Which engine."""
    url: Annotated[PlainText, AfterValidator(_store_url)] | None = None
    """`valkey://host:port/db`, or `valkeys://` for TLS; without a password. Default: `urlFile` has it."""
    url_file: FilePath | None = None
    """File that holds the URL, password included, as a mounted secret does. Default: `url` has it."""

    def problems(self) -> Iterator[Problem]:
        """Exactly one of the two."""
        if (self.url is None) == (self.url_file is None):
            yield Problem((), "exactly one of url and urlFile is needed", "set one of them")


LedgerStore: TypeAlias = Annotated[SqliteLedger | ValkeyLedger, Field(discriminator="type")]


class Job(YamlModel):
    """The rules of the job's ledger."""

    name: Annotated[Name | None, Field(json_schema_extra=RESTART)] = None
    """The job's name in the ledger. Default: the fleet's name, since a fleet serves one job."""
    group_size: Annotated[PositiveCount, Field(json_schema_extra=RESTART)]
    """Samples of one prompt (GRPO's G). No default: the trainer decides it."""
    batch_groups: PositiveCount
    """Groups in one training batch. No default: the trainer decides it."""
    batches_per_version: PositiveCount = 1
    """Batches trained on before weights are published. Default 1: on-policy as far as it goes."""
    max_staleness: Count = 1
    """Policy versions that a sample may be behind at consumption. Default 1: generation overlaps training, and hardly more."""
    on_stale: OnStale = OnStale.DROP
    """What happens to a group that is too stale. Default drop: the simplest that cannot loop."""
    max_concurrent: PositiveCount = 4096
    """Most units leased at once. Default 4096: some tens of engines at full batch."""
    unit_failure_limit: PositiveCount = 3
    """A unit's own failures until it is dead-lettered. Default 3: passing trouble seldom strikes the same unit three times."""
    group_redraw_limit: Count = 1
    """How often a group with a dead-lettered unit is drawn again. Default 1: a prompt that fails twice is to blame itself."""
    backoff_initial_s: PositiveDuration = 1.0
    """Wait before a unit that came back for trouble is leased again. Default 1s: doubled each time, it soon is long enough."""
    backoff_max_s: PositiveDuration = 30.0
    """Longest such wait. Default 30s: a store or engine that is back is in use again within it."""
    history_events: PositiveCount = 1_000_000
    """Events kept for `headrace audit`. Default 1000000: some hours of a large job, some hundred MB."""

    def problems(self) -> Iterator[Problem]:
        """A back-off upside down."""
        if self.backoff_initial_s > self.backoff_max_s:
            yield Problem(
                ("backoffInitial",),
                "the first wait is longer than the longest",
                f"raise backoffMax to {format_duration(self.backoff_initial_s)} at least, or lower this one",
            )


class Http(YamlModel):
    """The controller's own HTTP server: metrics, health, status; read-only."""

    listen: ListenAddress = "127.0.0.1:9090"
    """Host and port. Default 127.0.0.1:9090: nobody outside this machine reads it unless told to; port 0 takes any free one."""


class Spec(YamlModel):
    """What the fleet is to be."""

    spend_cap_usd_per_h: Usd
    """Most that all stages together may cost an hour. No default: what may be spent is the operator's to say."""
    interval_s: PositiveDuration = 10.0
    """Time between decisions; events only wake the loop early. Default 10s: launches take minutes, so less gains
    nothing."""
    paused: Flag = False
    """No scaling, no repairs; noticed drains go on. Default false. In a cluster one command, which RBAC allows or not:
    `kubectl patch rfleet NAME --type merge -p '{"spec":{"paused":true}}'`."""
    dry_run: Flag = True
    """Decide and explain, but change nothing. Default true: a new fleet shows what it would do before it may do it."""
    priority: Count = 0
    """Between fleets that share a pool: while room is short the higher one is served first. Default 0: they are served as they
    come."""
    job: Job
    """The rules of the job's ledger."""
    ledger: Annotated[LedgerStore, Field(json_schema_extra=RESTART)]
    """Where work units live. No default: it must be the one that trainer and workers use."""
    weights_dir: Annotated[FilePath | None, Field(json_schema_extra=RESTART)] = None
    """Folder where the trainer publishes policy versions; what {weights} in a worker's command stands for. Default: none, for
    workers that are told otherwise."""
    http: Annotated[Http, Field(json_schema_extra=RESTART)] = Http()
    """Metrics, health and status. Default: on this machine only."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=len(StageName))]
    """The stages that have workers: rollout, and perhaps reward and environment."""
    trainers: Annotated[tuple[Trainer, ...], Field(max_length=16)] = ()
    """Trainers in the cluster that are guarded, never scaled. Default none: nothing is known of any, so nothing is refused for
    their sake."""

    def problems(self) -> Iterator[Problem]:
        """What stages, ledger and caps say to each other."""
        yield from self._stage_problems()
        yield from self._signal_problems()
        yield from self._spend_problems()
        yield from self._pool_problems()
        for index, name in duplicates([trainer.name for trainer in self.trainers]):
            yield Problem(("trainers", index, "name"), f"trainer {name} is there twice", "give each a name of its own")

    def _stage_problems(self) -> Iterator[Problem]:
        names = [stage.name for stage in self.stages]
        for index, name in duplicates([str(name) for name in names]):
            yield Problem(("stages", index, "name"), f"stage {name} is there twice", "give both pools to one stage")
        if StageName.ROLLOUT not in names:
            yield Problem(("stages",), "there is no stage rollout", "add it: a fleet always has that one")

    def _signal_problems(self) -> Iterator[Problem]:
        for index, stage in enumerate(self.stages):
            if stage.signals.max_age_s < self.interval_s:
                age = format_duration(stage.signals.max_age_s)
                yield Problem(
                    ("stages", index, "signals", "maxAge"),
                    f"{age} is shorter than the loop's interval, so every signal would be stale",
                    f"raise it to {format_duration(self.interval_s)} at least, or lower spec.interval",
                )
            if stage.name is not StageName.ROLLOUT and stage.signals.type == "ledger":
                yield Problem(
                    ("stages", index, "signals"),
                    f"the job's ledger holds the queue of stage rollout only, not that of {stage.name}",
                    "leave this stage out until there is another source of signals",
                )

    def _spend_problems(self) -> Iterator[Problem]:
        cost = sum(stage.floor_usd_per_h for stage in self.stages)
        if exceeds(cost, self.spend_cap_usd_per_h):
            yield Problem(
                ("spendCapUsdPerH",),
                f"{self.spend_cap_usd_per_h:.2f} USD/h do not pay for the floor, which costs {cost:.2f}",
                "raise it or lower a stage's guardRails.floor",
            )
        for index, stage in enumerate(self.stages):
            cap = stage.guard_rails.spend_cap_usd_per_h
            if cap is not None and cap > self.spend_cap_usd_per_h:
                yield Problem(
                    ("stages", index, "guardRails", "spendCapUsdPerH"),
                    f"the stage's cap {cap:.2f} is over the fleet's {self.spend_cap_usd_per_h:.2f} USD/h",
                    "lower it, leave it out, or raise spec.spendCapUsdPerH",
                )

    def _pool_problems(self) -> Iterator[Problem]:
        seen: set[str] = set()
        for stage_index, stage in enumerate(self.stages):
            for index, pool in enumerate(stage.pools):
                here: tuple[str | int, ...] = ("stages", stage_index, "pools", index)
                if pool.name in seen:
                    yield Problem(
                        (*here, "name"), f"pool {pool.name} is there twice", "give each pool a name of its own"
                    )
                seen.add(pool.name)
                if pool.launch_timeout_s < self.interval_s:
                    yield Problem(
                        (*here, "launchTimeout"),
                        "it is shorter than the loop's interval, so no launch would live to be seen",
                        f"raise it to {format_duration(self.interval_s)} at least, or lower spec.interval",
                    )
                if not pool.provider.one_machine and isinstance(self.ledger, SqliteLedger):
                    yield Problem(
                        ("ledger", "type"),
                        f"SQLite is refused in a cluster, and pool {pool.name} is not on this machine",
                        "use a ledger of type valkey",
                    )
                if "weights" in pool.provider.asks_for and self.weights_dir is None:
                    yield Problem((*here, "provider", "command"), "{weights} stands for nothing", "set spec.weightsDir")


class Metadata(YamlModel):
    """Who the fleet is."""

    name: Annotated[Name, Field(json_schema_extra=RESTART)]
    """The fleet's name: its capacity carries it."""
    namespace: Annotated[Name | None, Field(json_schema_extra=RESTART)] = None
    """Where it lives in a cluster. Default: none, as on one machine; in a cluster kubectl's own."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Carried along for people and tools. Default: none; nothing depends on them."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Left to tools. Default: none; nothing depends on them."""


class RolloutFleet(YamlModel):
    """One RL job's rollout fleet: how many workers, from where, at what cost."""

    api_version: Literal["headrace.dev/v1alpha1"]
    """Version of this form."""
    kind: Literal["RolloutFleet"]
    """What the document describes."""
    metadata: Metadata
    """Who the fleet is."""
    spec: Spec
    """What the fleet is to be."""

    @property
    def job_name(self) -> str:
        """The job's name in the ledger."""
        return self.spec.job.name or self.metadata.name
