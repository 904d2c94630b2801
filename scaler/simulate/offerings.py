"""From counts over time and prices to offerings: spot from a trace, on-demand from a quota, blocks from a calendar."""

import math
import re
from collections.abc import Iterator, Sequence

from scaler.config.convert import billing_of
from scaler.model.capacity import CapacityType, Offering
from scaler.simulate.generated_yaml import Hazard
from scaler.simulate.scenario import AgeHazard, OfferingModel
from scaler.simulate.scenario_parts import CapacityBlock
from scaler.simulate.scenario_yaml import BLOCK_POOL, ON_DEMAND_POOL, SPOT_POOL, Spec
from scaler.traces.trace import CapacityTrace, Series

ANY_ZONE = "any"
_ROUNDING = 1e-9


def offering_models(spec: Spec, trace: CapacityTrace, hazard: AgeHazard | None) -> tuple[OfferingModel, ...]:
    """All offerings of the rollout stage. `trace` is in replicas, cut to the run."""
    return (*_spot(spec, trace, hazard), *_on_demand(spec), *_blocks(spec, trace.end_s))


def spot_price_usd_per_h(spec: Spec, zone: str) -> float:
    """Of one node: the price named for the longest start of the zone's name, else the default."""
    named = [start for start in spec.spot.zone_prices_usd_per_h if zone.startswith(start)]
    return spec.spot.zone_prices_usd_per_h[max(named, key=len)] if named else spec.spot.price_usd_per_h


def hazard_of(hazard: Hazard | None) -> AgeHazard | None:
    """As the world draws it."""
    if hazard is None:
        return None
    return AgeHazard(
        steps=tuple((step.from_s, step.per_h) for step in hazard.steps) or ((0.0, 0.0),),
        bursts_per_h=hazard.bursts_per_h,
        burst_ratio=hazard.burst_ratio,
    )


def zone_words(names: Sequence[str]) -> tuple[str, ...]:
    """Each name as it can stand in an offering's id: other characters become dashes, doubles get a number."""
    found: list[str] = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9._-]", "-", name)
        twins = sum(1 for other in found if other == word)
        found.append(word if not twins else next(w for w in _numbered(word) if w not in found and w not in names))
    return tuple(found)


def _numbered(word: str) -> Iterator[str]:
    number = 2
    while True:
        yield f"{word}-{number}"
        number += 1


def _spot(spec: Spec, trace: CapacityTrace, hazard: AgeHazard | None) -> Iterator[OfferingModel]:
    for zone, series in zip(zone_words(trace.names), trace.series, strict=True):
        price = spot_price_usd_per_h(spec, series.name)
        yield OfferingModel(
            pool=SPOT_POOL,
            offering=Offering(
                instance_type=spec.replica.instance_type,
                zone=zone,
                capacity_type=CapacityType.SPOT,
                price_usd_per_h=price,
                billing=billing_of(spec.spot.billing),
            ),
            capacity=series,
            nodes_per_replica=spec.replica.nodes,
            hazard=hazard,
        )


def _on_demand(spec: Spec) -> Iterator[OfferingModel]:
    if not spec.on_demand.quota_replicas:
        return
    yield OfferingModel(
        pool=ON_DEMAND_POOL,
        offering=Offering(
            instance_type=spec.replica.instance_type,
            zone=ANY_ZONE,
            capacity_type=CapacityType.ON_DEMAND,
            price_usd_per_h=spec.on_demand.price_usd_per_h,
            billing=billing_of(spec.on_demand.billing),
        ),
        capacity=constant(ON_DEMAND_POOL, spec.on_demand.quota_replicas),
        nodes_per_replica=spec.replica.nodes,
        reclaims=False,
    )


def _blocks(spec: Spec, end_s: float) -> Iterator[OfferingModel]:
    for block in spec.capacity_blocks:
        if block.start_s >= end_s:
            continue
        yield OfferingModel(
            pool=BLOCK_POOL,
            offering=Offering(
                instance_type=spec.replica.instance_type,
                zone=block.name,
                capacity_type=CapacityType.CAPACITY_BLOCK,
                price_usd_per_h=block.price_usd_per_h,
            ),
            capacity=_calendar(block),
            nodes_per_replica=spec.replica.nodes,
        )


def _calendar(block: CapacityBlock) -> Series:
    """Nothing, the block, nothing. Its end takes what runs there, so its fall reclaims."""
    steps = {0.0: 0, block.start_s: block.replicas, block.start_s + block.lasts_s: 0}
    return Series(name=block.name, times_s=tuple(steps), counts=tuple(steps.values()))


def constant(name: str, replicas: int) -> Series:
    """The same count for ever."""
    return Series(name=name, times_s=(0.0,), counts=(replicas,))


def most_usd_per_h(models: Sequence[OfferingModel], ceiling: int) -> float:
    """What a full fleet of the dearest replicas costs: a cap that caps nothing."""
    return math.ceil(ceiling * max((model.usd_per_h for model in models), default=0.0) + 1 + _ROUNDING)
