"""The status as JSON: what is wanted, asked for and there, on what signals, and what was decided and why.

For people and for `headrace explain`; read-only. Numbers that are no numbers (NaN, infinite) are shown as text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from scaler.decide.victims import disruption_budget
from scaler.decide.world import StageWorld
from scaler.model.interruption import InterruptionNotice
from scaler.model.job import LedgerStats
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.model.spec import FleetSpec
from scaler.runtime.decisions import stage_json
from scaler.telemetry.readout import Readout


def status_json(
    readout: Readout,
    *,
    now_s: float,
    address: str,
    config: Mapping[str, Any],
    decisions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The whole status at `now_s`."""
    body: dict[str, Any] = {
        "now_s": now_s,
        "address": address,
        "leading": readout.leading,
        "synced": readout.synced,
        "leader_epoch": readout.leader_epoch,
        "decided_at_s": readout.decided_at_s,
        "config": dict(config),
        "sources": _sources(readout),
        "decisions": list(decisions),
    }
    if readout.snapshot is not None and readout.spec is not None:
        body |= _fleet(readout, readout.snapshot, readout.spec, now_s)
    plain: dict[str, Any] = _plain(body)
    return plain


def _sources(readout: Readout) -> dict[str, Any]:
    return {
        "journal": {"ok": readout.journal_ok},
        "ledger": {
            "ok": readout.ledger_ok,
            "refuses": readout.ledger_refuses,
            "errors": readout.ledger_errors,
            "error": readout.ledger_error,
        },
        "pools_away": dict(readout.pools_away),
        "notices": {name: asdict(health) for name, health in readout.notices.items()},
    }


def _fleet(readout: Readout, snapshot: Snapshot, spec: FleetSpec, now_s: float) -> dict[str, Any]:
    plans = {stage.stage: stage_json(stage) for stage in readout.plan.stages} if readout.plan else {}
    return {
        "fleet": snapshot.fleet,
        "dry_run": spec.dry_run,
        "paused": spec.paused,
        "interval_s": spec.interval_s,
        "max_spend_usd_per_h": spec.max_spend_usd_per_h,
        "stages": [
            _stage(stage, now_s, _max_age_s(spec, stage.name)) | _limits(spec, stage, now_s) | plans.get(stage.name, {})
            for stage in snapshot.stages
        ],
        "stats": _stats(readout.stats) if readout.stats else None,
    }


def _max_age_s(spec: FleetSpec, stage: str) -> float:
    return next((each.guard_rails.signal_max_age_s for each in spec.stages if each.name == stage), 0.0)


def _stats(stats: LedgerStats) -> dict[str, Any]:
    """As read, and what the job's rules admit to buffer and flight together."""
    return asdict(stats) | {"admitted_samples": stats.settings.admitted_samples}


def _limits(spec: FleetSpec, view: StageView, now_s: float) -> dict[str, Any]:
    """The guard rails that sizes are compared with; drains of our own choice, allowed at once and under way."""
    named = next((each for each in spec.stages if each.name == view.name), None)
    if named is None:
        return {}
    world, rails = StageWorld(spec=named, view=view, now_s=now_s, paused=spec.paused), named.guard_rails
    limits = {
        "floor": rails.min_replicas,
        "ceiling": rails.max_replicas,
        "max_spend_usd_per_h": rails.max_spend_usd_per_h,
        "drains_allowed": disruption_budget(world),
        "drains_under_way": len(world.leaving),
    }
    return {"limits": limits}


def _stage(stage: StageView, now_s: float, max_age_s: float) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "signals": _signals(stage.signals, now_s, max_age_s),
        "pools": [_pool(pool) for pool in stage.pools],
        "replicas": [_replica(replica) for replica in stage.replicas],
    }


def _signals(signals: Signals, now_s: float, max_age_s: float) -> dict[str, Any]:
    fields = {name: getattr(signals, name) for name in Signals.__dataclass_fields__}
    return {
        name: _reading(value, now_s, max_age_s) if isinstance(value, Reading) else value
        for name, value in fields.items()
    }


def _reading(reading: Reading, now_s: float, max_age_s: float) -> dict[str, Any]:
    return {
        "value": reading.value,
        "age_s": None if reading.at_s is None else now_s - reading.at_s,
        "freshness": reading.freshness(now_s, max_age_s).value,
    }


def _pool(pool: PoolView) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "listed_at_s": pool.listed_at_s,
        "refused_reason": pool.refused_reason,
        "offerings": [_offering(view) for view in pool.offerings],
    }


def _offering(view: OfferingView) -> dict[str, Any]:
    return {
        "offering": view.offering.offering_id,
        "price_usd_per_h": view.offering.price_usd_per_h,
        "refusals": view.refusals,
        "refused_at_s": view.refused_at_s,
        "refused_because": view.refused_because,
        "reclaiming_at_s": view.reclaiming_at_s,
    }


def _replica(view: ReplicaView) -> dict[str, Any]:
    body = {name: getattr(view, name) for name in ReplicaView.__dataclass_fields__ if name != "notice"}
    return body | {"notice": _notice(view.notice) if view.notice else None}


def _notice(notice: InterruptionNotice) -> dict[str, Any]:
    return {"kind": notice.kind.value, "noticed_at_s": notice.noticed_at_s, "deadline_s": notice.deadline_s}


def _plain(value: Any) -> Any:
    """The value with everything in it that JSON cannot say turned into text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
