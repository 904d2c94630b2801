"""From a Scenario's YAML, a policy and a stretch of capacity to a `Scenario`.

* A name without a folder is a shipped scenario (`scaler/simulate/scenarios`), anything else a file.
* With a trace, each of its series becomes one spot offering in pool `spot`, whatever its zone is called: the zone's price is
  the one named for it, or for what its name starts with, or the default. Counts are scaled by the trace's format and rounded
  down. Without one, `generated` gives the zones by seed; its counts are replicas.
* On-demand is one offering with constant capacity, its quota, in pool `on-demand`; blocks are in pool `capacity-block`.
* A run ends with its stretch: a trace that has less left than the hours asked for makes a shorter run, and says so.

Errors: `ConfigError` for YAML, `TraceError` for traces and stretches that they do not have; each line says what to do.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from scaler.config.convert import drain_of, rails_of, settings_of
from scaler.config.documents import SCENARIO, refuse_other_kind, validated
from scaler.config.faults import ConfigError, Fault
from scaler.config.json_schema import json_schema_of
from scaler.config.yaml_text import read_bytes, read_documents
from scaler.model.spec import FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from scaler.simulate.generate import generate
from scaler.simulate.lengths import lengths_with_mean
from scaler.simulate.offerings import hazard_of, most_usd_per_h, offering_models
from scaler.simulate.policy_file import PolicyChoice, is_path
from scaler.simulate.scenario import (
    GenerationModel,
    LaunchModel,
    NoticeModel,
    OfferingModel,
    Scenario,
    TrainerModel,
)
from scaler.simulate.scenario_parts import Service
from scaler.simulate.scenario_yaml import ScenarioDocument, Spec
from scaler.simulate.services import service_offering, service_spec
from scaler.traces.registry import load_trace
from scaler.traces.trace import CapacityTrace, TraceError

SHIPPED = resources.files("scaler.simulate") / "scenarios"
PROVIDER = "simulated"
ROLLOUT = "rollout"
_SIGNAL_AGE_INTERVALS = 3
"""As the default of a fleet: one reading in three may fail."""
LEAST_H = 1 / 3600
"""A second: less has no step that a bound could be told for."""
LATEST_H = 10 * 8766.0
"""Ten years: a longer run is a slip of the finger."""
_SHORT_S, _SHORT_RATIO = 3600.0, 0.01
"""A trace that lasts less than both, of a run, is in another unit."""
_EXAMPLE = "a Scenario; `headrace scenarios` lists shipped ones to start from"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """A scenario that can be bound to a policy and to capacity."""

    document: ScenarioDocument

    @property
    def name(self) -> str:
        """As reports show it."""
        return self.document.metadata.name

    @property
    def hours(self) -> float:
        """Length of a run where none is asked for."""
        return self.document.spec.hours

    @property
    def spec(self) -> Spec:
        """What the world is."""
        return self.document.spec

    def bind(
        self,
        policy: PolicyChoice,
        *,
        trace: CapacityTrace | None = None,
        start_h: float = 0.0,
        hours: float | None = None,
        seed: int = 0,
    ) -> Scenario:
        """The world of this scenario under that policy, on a stretch of the trace, or of what `seed` generates.

        Raises:
            TraceError: the trace has no such stretch.
        """
        wanted_h = self.hours if hours is None else hours
        capacity = self._capacity(trace, start_h, wanted_h, seed)
        generated = self.spec.generated
        hazard = hazard_of(generated.hazard) if trace is None and generated else None
        rollout = offering_models(self.spec, capacity, hazard)
        services = tuple(service_offering(service) for service in self.spec.services)
        metadata = {
            "trace": capacity.source,
            "format": capacity.format,
            "zones": ", ".join(capacity.names),
            "start_h": f"{start_h:g}",
        }
        return _scenario(self.document, policy, rollout, services, capacity.end_s, metadata)

    def _capacity(self, trace: CapacityTrace | None, start_h: float, hours: float, seed: int) -> CapacityTrace:
        asked = f"no stretch of {hours:g} h at hour {start_h:g}"
        if not (0 <= start_h <= LATEST_H and LEAST_H <= hours <= LATEST_H):
            raise TraceError(self.name if trace is None else trace.source, None, asked)
        if trace is None:
            trace = self._generated(seed, (start_h + hours) * 3600)
        if (start_h + LEAST_H) * 3600 > trace.end_s:
            raise TraceError(trace.source, None, f"{asked}; it lasts {trace.end_s / 3600:.2f} h")
        return trace.window(start_h, hours).scaled(self.spec.replicas_per_count.of(trace.format))

    def _generated(self, seed: int, end_s: float) -> CapacityTrace:
        if self.spec.generated is None:
            raise TraceError(self.name, None, "it generates no capacity; name a trace")
        return generate(self.spec.generated, seed, end_s)


def load_scenario(name_or_path: str) -> ScenarioFile:
    """The shipped scenario of that name, or the one in that file. `ConfigError` tells every fault."""
    if is_path(name_or_path):
        path = Path(name_or_path)
        return parse_scenario(read_bytes(path), path)
    shipped = shipped_scenarios()
    if name_or_path not in shipped:
        remedy = f"shipped: {', '.join(sorted(shipped))}; or name a YAML file"
        raise ConfigError([Fault(file=name_or_path, message="no scenario or file of that name", remedy=remedy)])
    found = shipped[name_or_path]
    return parse_scenario(found.read_bytes(), Path(str(found)))


def parse_scenario(data: bytes, source: Path) -> ScenarioFile:
    """The scenario in a file's bytes. `source` names the file in faults."""
    documents = read_documents(data, source, _EXAMPLE)
    if len(documents) != 1:
        words = f"holds {len(documents)} documents, and one is wanted"
        raise ConfigError([Fault(file=str(source), message=words, remedy="give each scenario a file of its own")])
    refuse_other_kind(documents[0], source, SCENARIO)
    return ScenarioFile(document=validated(documents[0], source, ScenarioDocument, scenario_schema))


def shipped_scenarios() -> dict[str, Traversable]:
    """Shipped files by name."""
    return {entry.name.removesuffix(".yaml"): entry for entry in SHIPPED.iterdir() if entry.name.endswith(".yaml")}


@cache
def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario's YAML."""
    return json_schema_of(ScenarioDocument)


def open_trace(text: str, *, ignore_dips: bool = False) -> CapacityTrace:
    """The trace of `FILE`, or of `FILE#zone1,zone2` only these zones. `ignore_dips` takes one-tick falls to 0 out.

    Raises:
        TraceError: the file is no trace, or has no such zone.
    """
    file, _, zones = (text, "", "") if Path(text).exists() else text.rpartition("#") if "#" in text else (text, "", "")
    trace = load_trace(Path(file))
    if zones:
        try:
            trace = trace.select(list(dict.fromkeys(zones.split(","))))
        except KeyError as error:
            raise TraceError(file, None, str(error.args[0]).removeprefix(f"{trace.source} ")) from None
    return trace.without_dips() if ignore_dips else trace


def check_length(trace: CapacityTrace, hours: float) -> None:
    """`TraceError` for a trace that lasts next to nothing beside a run: its times are hours, or minutes, written as seconds."""
    if trace.end_s < min(_SHORT_S, hours * 3600 * _SHORT_RATIO):
        words = f"it lasts {trace.end_s:g} s in all, and a run {hours:g} h; times in a trace are seconds"
        raise TraceError(trace.source, None, f"{words}: multiply hours by 3600")


def lost_prices(spec: Spec, zones: Sequence[str]) -> tuple[str, ...]:
    """Keys of `zonePricesUsdPerH` that fit none of these zones, where a zone has no price of its own; else none.

    Prices of zones elsewhere are no fault: a scenario serves many traces.
    """
    keys = spec.spot.zone_prices_usd_per_h
    if all(any(zone.startswith(key) for key in keys) for zone in zones):
        return ()
    return tuple(key for key in keys if not any(zone.startswith(key) for zone in zones))


def _scenario(
    document: ScenarioDocument,
    policy: PolicyChoice,
    rollout: tuple[OfferingModel, ...],
    services: tuple[OfferingModel, ...],
    end_s: float,
    metadata: dict[str, str],
) -> Scenario:
    spec = document.spec
    return Scenario(
        name=document.metadata.name,
        fleet=_fleet(document, policy, rollout, services),
        job=settings_of(spec.job),
        trainer=TrainerModel(usd_per_h=spec.trainer.usd_per_h, train_s=spec.train_s, publish_s=spec.trainer.publish_s),
        generation=_generation(spec),
        launch=_launch(spec),
        notices=NoticeModel(**dict(spec.notices)),
        offerings=(*rollout, *services),
        end_s=end_s,
        acceptance_ratio=spec.acceptance_ratio,
        hard_failures_per_h=spec.hard_failures_per_h,
        warm_replicas=spec.warm.replicas,
        warm_depth_samples=spec.warm.depth_samples,
        rates_known=spec.warm.rates_known,
        services=tuple(service.to_stage() for service in spec.services),
        metadata=metadata,
    )


def _generation(spec: Spec) -> GenerationModel:
    """With the token rate that makes the goodput exact: lengths are whole tokens, so their mean is only near."""
    made = spec.generation
    lengths = lengths_with_mean(spec.mean_tokens, made.lengths.sigma, made.lengths.most_tokens)
    return GenerationModel(
        concurrent_units=made.concurrent_units,
        tokens_per_s=lengths.mean_tokens / (spec.mean_unit_s - made.first_token_s),
        lengths=lengths,
        first_token_s=made.first_token_s,
        progress_s=made.progress_s,
        resume_s=made.resume_s,
        swap_s=made.swap_s,
        lease_ttl_s=made.lease_ttl_s,
    )


def _launch(spec: Spec) -> LaunchModel:
    launch = spec.launch
    return LaunchModel(
        answer=launch.answer.to_delay(),
        boot=launch.boot.to_delay(),
        load=launch.load.to_delay(),
        failure_ratio=launch.failure_ratio,
    )


def _fleet(
    document: ScenarioDocument,
    policy: PolicyChoice,
    rollout: tuple[OfferingModel, ...],
    services: tuple[OfferingModel, ...],
) -> FleetSpec:
    spec = document.spec
    rails = _rails(spec, rollout)
    first = StageSpec(
        name=ROLLOUT,
        sizing=_with_trainer_cost(policy.sizing, spec.trainer.usd_per_h),
        placement=policy.placement,
        guard_rails=rails,
        pools=_pools(spec, rollout),
        drain=drain_of(spec.drain),
    )
    others = (
        service_spec(service, pool, _service_rails(rails, service))
        for service, pool in zip(spec.services, _pools(spec, services), strict=True)
    )
    return FleetSpec(name=document.metadata.name, stages=(first, *others), interval_s=spec.interval_s)


def _pools(spec: Spec, models: tuple[OfferingModel, ...]) -> tuple[PoolSpec, ...]:
    """One pool for each name, in order of appearance."""
    return tuple(
        PoolSpec(
            name=name,
            provider=PROVIDER,
            offerings=tuple(model.offering for model in models if model.pool == name),
            nodes_per_replica=next(model.nodes_per_replica for model in models if model.pool == name),
            launch_timeout_s=spec.launch.timeout_s,
            refusal_backoff_initial_s=spec.launch.refusal_backoff_initial_s,
            refusal_backoff_max_s=spec.launch.refusal_backoff_max_s,
        )
        for name in dict.fromkeys(model.pool for model in models)
    )


def _rails(spec: Spec, models: tuple[OfferingModel, ...]) -> GuardRails:
    cap = most_usd_per_h(models, spec.guard_rails.ceiling)
    return rails_of(spec.guard_rails, cap, _SIGNAL_AGE_INTERVALS * spec.interval_s)


def _service_rails(rails: GuardRails, service: Service) -> GuardRails:
    cap = (service.replicas + 1) * service.price_usd_per_h
    return dataclasses.replace(rails, min_replicas=0, max_replicas=service.replicas, max_spend_usd_per_h=cap)


def _with_trainer_cost(sizing: PolicySpec, usd_per_h: float) -> PolicySpec:
    """A policy that weighs the trainer's cost gets the scenario's, unless it names one itself."""
    if getattr(sizing.params, "trainer_usd_per_h", usd_per_h) is not None:
        return sizing
    params: Any = sizing.params
    return PolicySpec(name=sizing.name, params=dataclasses.replace(params, trainer_usd_per_h=usd_per_h))
