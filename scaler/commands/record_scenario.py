"""A Scenario's YAML of a recorded run: its fleet's own rules, and the rates that were measured."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import yaml

from scaler.commands.record_folder import Kept
from scaler.commands.record_rates import Rates, Times
from scaler.config.providers import LocalProvider
from scaler.config.scalars import DURATION, RATIO, USD
from scaler.config.stage import Pool, Stage, StageName
from scaler.config.yaml_model import YamlModel
from scaler.localcloud.state import Interruption
from scaler.model.capacity import CapacityType

HEAD = """\
# Measured by `headrace record` from {source}:
# {updates} policy updates in {seconds:.1f} s, the trainer waiting {wait:.1%} of it. Replay it with
#   headrace simulate --scenario THIS --policy {policy} --trace RECORDED.csv
# Every rate is measured; rules, prices and limits are the fleet's own. Not recorded: what the trainer costs, unless it was told.
"""
_INTERVAL_FLAG, _TOKENS_FLAG, _SILENT_FLAG = "--publish-interval-s", "--publish-tokens", "--no-progress"
_TTL_FLAG = "--lease-ttl"
_NEVER_S = 86400.0


def scenario_text(kept: Kept, rates: Rates, series: dict[str, str], trainer_usd_per_h: float) -> str:
    """The YAML. `series` names the recorded series of each offering id."""
    head = HEAD.format(
        source=kept.file,
        updates=rates.updates,
        seconds=rates.end_s - rates.start_s,
        wait=rates.wait_ratio,
        policy=kept.file,
    )
    document = {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {
            "name": kept.fleet.metadata.name,
            "description": f"recorded: {rates.updates} policy updates of fleet {kept.fleet.metadata.name}",
        },
        "spec": _spec(kept, rates, series, trainer_usd_per_h),
    }
    return head + yaml.safe_dump(document, sort_keys=False)


def _spec(kept: Kept, rates: Rates, series: dict[str, str], trainer_usd_per_h: float) -> dict[str, Any]:
    spec = kept.fleet.spec
    stage = next(stage for stage in spec.stages if stage.name is StageName.ROLLOUT)
    return {
        "hours": (rates.end_s - rates.start_s) / 3600,
        "replay": True,
        "interval": DURATION.write(spec.interval_s),
        "job": _plain(spec.job, "name"),
        "trainer": {
            "nodes": 1,
            "nodeUsdPerH": USD.write(trainer_usd_per_h),
            "unblockedSamplesPerS": rates.unblocked_samples_per_s,
        },
        "generation": _generation(rates, stage.pools),
        "acceptance": RATIO.write(rates.acceptance_ratio),
        "replica": {
            "instanceType": stage.pools[0].offerings[0].instance_type,
            "nodes": stage.pools[0].nodes_per_replica,
        },
        "guardRails": _plain(stage.guard_rails),
        "drain": _plain(stage.drain),
        "spot": _spot(stage, series),
        "onDemand": {"priceUsdPerH": "0", "quotaReplicas": 0},
        "launch": _launch(rates, stage.pools[0]),
        "notices": _notices(kept.interruptions),
        "warm": {"replicas": rates.warm_replicas, "ratesKnown": rates.rates_known},
    }


def _plain(model: YamlModel, *without: str) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(without))


def _generation(rates: Rates, pools: Sequence[Pool]) -> dict[str, Any]:
    provider = pools[0].provider
    words = provider.command if isinstance(provider, LocalProvider) else ()
    return {
        "goodputPerReplicaPerS": rates.goodput_per_replica_per_s,
        "concurrentUnits": rates.concurrent_units,
        "tokensPerS": rates.tokens_per_s,
        "lengths": {"sigma": round(rates.sigma, 3), "mostTokens": rates.most_tokens},
        "firstToken": DURATION.write(rates.first_token_s),
        "progress": DURATION.write(publication_s(words, rates.tokens_per_s)),
        "resume": "0s",
        "swap": "0s",
        "leaseTtl": DURATION.write(_flag(words, _TTL_FLAG, 10.0)),
    }


def publication_s(words: Sequence[str], tokens_per_s: float) -> float:
    """From one publication to the next: a worker's bound in time, or in tokens of a unit, whichever is reached first."""
    if _SILENT_FLAG in words:
        return _NEVER_S
    return min(_flag(words, _INTERVAL_FLAG, 0.5), _flag(words, _TOKENS_FLAG, 8.0) / tokens_per_s)


def _flag(words: Sequence[str], flag: str, default: float) -> float:
    """A number that a worker's command sets, or the worker's own default."""
    given = [after for word, after in pairwise(words) if word == flag]
    return float(given[-1]) if given else default


def _spot(stage: Stage, series: dict[str, str]) -> dict[str, Any]:
    offerings = [o for p in stage.pools for o in p.offerings if o.capacity_type is CapacityType.SPOT]
    prices = {series[o.offering_id]: USD.write(o.price_usd_per_h) for o in offerings if o.offering_id in series}
    return {
        "priceUsdPerH": USD.write(max(offering.price_usd_per_h for offering in offerings)),
        "zonePricesUsdPerH": prices,
        "billing": _plain(offerings[0].billing),
    }


def _launch(rates: Rates, pool: Pool) -> dict[str, Any]:
    longest_s = rates.boot.most_s + rates.load.most_s
    return {
        "answer": {"least": "100ms"},
        "boot": _spread(rates.boot),
        "load": _spread(rates.load),
        "failure": "0%",
        "timeout": DURATION.write(max(pool.launch_timeout_s, math.ceil(longest_s))),
        "refusalBackoffInitial": DURATION.write(pool.refusal_backoff_initial_s),
        "refusalBackoffMax": DURATION.write(pool.refusal_backoff_max_s),
    }


def _spread(times: Times) -> dict[str, Any]:
    return {
        "least": DURATION.write(times.least_s),
        "median": DURATION.write(times.median_s),
        "sigma": round(times.sigma, 3),
        "most": DURATION.write(times.most_s),
    }


def _notices(interruptions: Sequence[Interruption]) -> dict[str, Any]:
    leads_s = [loss.deadline_s - loss.at_s for loss in interruptions if loss.deadline_s is not None]
    if not interruptions:
        return {}
    lead_s = median(leads_s) if leads_s else 1.0
    return {
        "lead": DURATION.write(max(1e-3, lead_s)),
        "spread": "0s",
        "late": "0%",
        "lateLeast": "0s",
        "lateMost": "0s",
        "none": RATIO.write(1 - len(leads_s) / len(interruptions)),
    }
