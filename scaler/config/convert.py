"""From a validated fleet to the plain facts that the rest of the controller uses."""

from pathlib import Path

from scaler.config import stage as yaml_stage
from scaler.config.faults import ConfigError, Fault
from scaler.config.providers import LocalProvider, Provider
from scaler.config.scalars import split_address
from scaler.config.schema import Job, RolloutFleet, SqliteLedger
from scaler.config.stage import Billing, Drain, Offering, Pool, Stage
from scaler.config.trainers import Trainer
from scaler.config.yaml_text import MAX_BYTES
from scaler.files import read_regular
from scaler.model import capacity
from scaler.model.job import JobSettings
from scaler.model.spec import DrainSpec, FleetSpec, GuardRails, PoolSpec, StageSpec
from scaler.model.trainers import TrainerSpec


def to_spec(fleet: RolloutFleet) -> FleetSpec:
    """What the engine decides by."""
    spec = fleet.spec
    return FleetSpec(
        name=fleet.metadata.name,
        stages=tuple(_stage(stage, spec.spend_cap_usd_per_h) for stage in spec.stages),
        interval_s=spec.interval_s,
        paused=spec.paused,
        dry_run=spec.dry_run,
        max_spend_usd_per_h=spec.spend_cap_usd_per_h,
        labels=dict(fleet.metadata.labels),
        trainers=tuple(map(_trainer, spec.trainers)),
        namespace=fleet.metadata.namespace or "",
        priority=spec.priority,
    )


def _trainer(trainer: Trainer) -> TrainerSpec:
    return TrainerSpec(
        name=trainer.name,
        namespace=trainer.namespace or "",
        match_labels=dict(trainer.selector.match_labels),
        node_labels=dict(trainer.nodes.match_labels) if trainer.nodes else {},
        repair=frozenset(trainer.repair),
        ignore=frozenset(trainer.ignore),
        efa_devices=trainer.efa_devices,
        accelerators=trainer.accelerators,
        hot_spares=trainer.hot_spares,
        checkpoint_lead_s=trainer.checkpoint_lead_s,
    )


def _stage(stage: Stage, fleet_cap_usd_per_h: float) -> StageSpec:
    return StageSpec(
        name=stage.name.value,
        sizing=stage.policy.to_spec(),
        placement=stage.placement.to_spec(),
        guard_rails=rails_of(stage.guard_rails, fleet_cap_usd_per_h, stage.signals.max_age_s),
        pools=tuple(_pool(pool) for pool in stage.pools),
        drain=drain_of(stage.drain),
    )


def drain_of(drain: Drain) -> DrainSpec:
    """How workers hand over."""
    return DrainSpec(
        voluntary_deadline_s=drain.voluntary_deadline_s,
        margin_s=drain.margin_s,
        reap_after_s=drain.reap_after_s,
    )


def rails_of(rails: yaml_stage.GuardRails, fleet_cap_usd_per_h: float, signal_max_age_s: float) -> GuardRails:
    """The guard rails of a stage; the fleet's cap where they have none."""
    cap = rails.spend_cap_usd_per_h
    return GuardRails(
        min_replicas=rails.floor,
        max_replicas=rails.ceiling,
        max_spend_usd_per_h=fleet_cap_usd_per_h if cap is None else cap,
        max_step_up=rails.max_step_up,
        max_step_down=rails.max_step_down,
        cooldown_up_s=rails.cooldown_up_s,
        cooldown_down_s=rails.cooldown_down_s,
        disruption_budget_ratio=rails.disruption_budget_ratio,
        lower_after_fresh_s=rails.lower_after_fresh_s,
        signal_max_age_s=signal_max_age_s,
    )


def _pool(pool: Pool) -> PoolSpec:
    return PoolSpec(
        name=pool.name,
        provider=pool.provider.type,
        offerings=tuple(_offering(offering) for offering in pool.offerings),
        max_replicas=pool.max_replicas,
        nodes_per_replica=pool.nodes_per_replica,
        launch_timeout_s=pool.launch_timeout_s,
        refusal_backoff_initial_s=pool.refusal_backoff_initial_s,
        refusal_backoff_max_s=pool.refusal_backoff_max_s,
        duties=pool.provider.duties,
    )


def _offering(offering: Offering) -> capacity.Offering:
    return capacity.Offering(
        instance_type=offering.instance_type,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price_usd_per_h=offering.price_usd_per_h,
        billing=billing_of(offering.billing),
    )


def billing_of(billing: Billing) -> capacity.Billing:
    """How an offering charges."""
    return capacity.Billing(
        minimum_s=billing.minimum_s,
        refund_if_interrupted_within_s=billing.refund_if_interrupted_within_s,
    )


def job_settings(fleet: RolloutFleet) -> JobSettings:
    """What the ledger of the job is configured with."""
    return settings_of(fleet.spec.job)


def settings_of(job: Job) -> JobSettings:
    """A job's rules as its ledger takes them."""
    return JobSettings(
        group_size=job.group_size,
        batch_groups=job.batch_groups,
        batches_per_version=job.batches_per_version,
        max_staleness=job.max_staleness,
        on_stale=job.on_stale,
        max_concurrent=job.max_concurrent,
        unit_failure_limit=job.unit_failure_limit,
        group_redraw_limit=job.group_redraw_limit,
        backoff_initial_s=job.backoff_initial_s,
        backoff_max_s=job.backoff_max_s,
        history_events=job.history_events,
    )


def ledger_url(fleet: RolloutFleet) -> str:
    """The URL that `scaler.ledger.registry.open_ledger` takes. `ConfigError` where the file that holds it cannot be read."""
    ledger = fleet.spec.ledger
    if isinstance(ledger, SqliteLedger):
        return f"sqlite://{ledger.path}"
    return ledger.url or _url_in(Path(ledger.url_file or ""))


def _url_in(path: Path) -> str:
    try:
        return read_regular(path, MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        fault = Fault(file=str(path), message="holds no ledger URL that can be read", remedy="mount the secret there")
        raise ConfigError([fault]) from None


def placeholder_values(fleet: RolloutFleet) -> dict[str, str]:
    """What the fleet knows of a worker command's placeholders; the pool's actor adds what belongs to the instance."""
    values = {"ledger": ledger_url(fleet), "job": fleet.job_name}
    return values if fleet.spec.weights_dir is None else {**values, "weights": fleet.spec.weights_dir}


def http_address(fleet: RolloutFleet) -> tuple[str, int]:
    """Host and port of the controller's HTTP server; port 0 is any free one."""
    return split_address(fleet.spec.http.listen)


def local_providers(fleet: RolloutFleet) -> dict[str, LocalProvider]:
    """Those of `providers` that are processes on this machine."""
    return {name: each for name, each in providers(fleet).items() if isinstance(each, LocalProvider)}


def providers(fleet: RolloutFleet) -> dict[str, Provider]:
    """Pool name -> its provider's settings; names of pools are unique in a fleet."""
    return {pool.name: pool.provider for stage in fleet.spec.stages for pool in stage.pools}
