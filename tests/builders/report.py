"""Reports of made-up runs: a fleet that follows made-up capacity, of any number of offerings, hours and policies."""

import math
from itertools import accumulate

from scaler.model.capacity import CapacityType
from scaler.simulate.delays import draw
from scaler.simulate.report import (
    Case,
    ComparisonRow,
    OfferingFacts,
    Optimum,
    PolicyRun,
    Report,
    ScenarioFacts,
    SetPoint,
    Spread,
)
from scaler.simulate.result import Run, Summary, Timeline

STEP_S = 300.0
CEILING, BALANCE = 24, 14.3


def some_facts(spot: int = 3, hours: float = 12.0, name: str = "case-a") -> ScenarioFacts:
    zones = [f"p5.48xlarge/us-east-1{chr(ord('a') + i)}/spot" for i in range(spot)]
    offerings = [
        OfferingFacts(
            offering_id=zone,
            capacity_type=CapacityType.SPOT,
            usd_per_h=22.0 + i,
            refund_if_interrupted_within_s=3600.0,
        )
        for i, zone in enumerate(zones)
    ]
    on_demand = OfferingFacts(
        offering_id="p5.48xlarge/us-east-1a/on-demand",
        capacity_type=CapacityType.ON_DEMAND,
        usd_per_h=63.3,
        reclaims=False,
    )
    return ScenarioFacts(
        name=name,
        hours=hours,
        balance_replicas=BALANCE,
        floor=2,
        ceiling=CEILING,
        batch_samples=512,
        stock_bound_samples=2048,
        unblocked_samples_per_s=2.75,
        goodput_per_replica_per_s=2.75 / BALANCE,
        trainer_usd_per_h=506.4,
        warm_replicas=14,
        least_ready_s=240.0,
        offerings=(*offerings, on_demand),
        metadata={"trace": "a made-up one", "source": "tests"},
    )


def some_timeline(facts: ScenarioFacts, policy: str) -> Timeline:
    steps = round(facts.hours * 3600 / STEP_S)
    spot = [o.offering_id for o in facts.offerings if o.capacity_type is CapacityType.SPOT]
    on_demand = [o.offering_id for o in facts.offerings if o.capacity_type is CapacityType.ON_DEMAND]
    capacity = {name: _walk(name, steps, math.ceil(22 / len(spot))) for name in spot}
    held = _hold(capacity, steps)
    spot_held = [sum(values[t] for values in held.values()) for t in range(steps)]
    patience = 2 + 3 * draw(0, policy)
    extra = [max(0.0, min(4.0, BALANCE - patience - total)) for total in spot_held]
    held |= {name: tuple(extra) for name in on_demand}
    ready = [total + more for total, more in zip([14.0, *spot_held[:-1]], [0.0, *extra[:-1]], strict=True)]
    depth, waiting = _drain(ready, facts)
    falls = [max(0, round(before - now)) for before, now in zip([14.0, *spot_held], spot_held, strict=False)]
    return Timeline(
        step_s=STEP_S,
        held=held,
        ready=tuple(ready),
        capacity=capacity | dict.fromkeys(on_demand, (8.0,) * steps),
        buffered_samples=tuple(depth),
        waiting_ratio=tuple(waiting),
        rent_usd_per_h=tuple(22.0 * total for total in spot_held),
        wasted_tokens=tuple(1500.0 * fall * (fall > 2) for fall in falls),
        interruptions=tuple(falls),
        desired=(16.0,) * steps,
    )


def _walk(name: str, steps: int, most: int) -> tuple[float, ...]:
    moves = [round(3 * draw(7, name, t) ** 2 * (1 if draw(8, name, t) < 0.5 else -1)) for t in range(steps)]
    moves = [move if draw(9, name, t) < 0.25 else 0 for t, move in enumerate(moves)]
    return tuple(float(v) for v in accumulate(moves, lambda at, move: min(most, max(0, at + move)), initial=most))[
        :steps
    ]


def _hold(capacity: dict[str, tuple[float, ...]], steps: int) -> dict[str, tuple[float, ...]]:
    rows: list[list[float]] = [[] for _ in capacity]
    for t in range(steps):
        left = 16.0
        for row, values in zip(rows, capacity.values(), strict=True):
            row.append(min(left, values[t]))
            left -= row[-1]
    return {name: tuple(row) for name, row in zip(capacity, rows, strict=True)}


def _drain(ready: list[float], facts: ScenarioFacts) -> tuple[list[float], list[float]]:
    at, depths, waits = 700.0, [], []
    for replicas in ready:
        made = replicas * facts.goodput_per_replica_per_s * STEP_S
        taken = facts.unblocked_samples_per_s * STEP_S
        waits.append(min(1.0, max(0.0, 1.0 - (at + made) / taken)))
        at = min(1600.0, max(0.0, at + made - taken))
        depths.append(at)
    return depths, waits


def some_run(facts: ScenarioFacts, policy: str) -> Run:
    timeline = some_timeline(facts, policy)
    wait = sum(timeline.waiting_ratio) / len(timeline.waiting_ratio)
    samples = int(facts.unblocked_samples_per_s * facts.hours * 3600 * (1 - wait))
    spot = sum(timeline.rent_usd_per_h) * STEP_S / 3600
    on_demand = sum(sum(v) * 63.3 for k, v in timeline.held.items() if k.endswith("on-demand")) * STEP_S / 3600
    refunds = 0.03 * spot
    cost = facts.trainer_usd_per_h * facts.hours + spot + on_demand - refunds
    return Run(
        timeline=timeline,
        summary=Summary(
            scenario=facts.name,
            policy=policy,
            seed=0,
            hours=facts.hours,
            cost_usd=cost,
            samples_trained=samples,
            samples_credited=float(samples),
            cost_usd_per_1k_samples=1000 * cost / samples,
            trainer_wait_ratio=wait,
            interruptions=sum(timeline.interruptions),
            interruptions_unnoticed=3,
            kills_at_work=2,
            tokens_generated=samples * 9000,
            tokens_salvaged=sum(timeline.interruptions) * 120_000,
            tokens_wasted=int(sum(timeline.wasted_tokens)),
            tokens_lost=0,
            tokens_stale=0,
            replicas_mean=sum(timeline.ready) / len(timeline.ready),
            wall_s=1.2,
            policy_updates=samples // 512,
            cost_trainer_usd=facts.trainer_usd_per_h * facts.hours,
            cost_by_capacity_usd={"spot": spot - refunds, "on-demand": on_demand},
            refunds_usd=refunds,
            launches=150,
            refusals=40,
            samples_dropped=64,
            samples_filtered=1200,
            end_stock_samples=900.0,
            start_stock_samples=1000.0,
        ),
    )


def some_optimum(facts: ScenarioFacts) -> Optimum:
    run = some_run(facts, "optimum")
    figures = run.summary.to_json()
    for name in ("cost_usd", "cost_usd_per_1k_samples", "trainer_wait_ratio"):
        figures[name] *= 0.94
    timeline = Timeline(step_s=STEP_S, held=run.timeline.held, capacity=run.timeline.capacity, ready=run.timeline.ready)
    return Optimum(figures=figures, status="optimal, gap 0.1 %", timeline=timeline)


def some_case(policies: int = 1, *, spot: int = 3, hours: float = 12.0, name: str = "case-a") -> Case:
    facts = some_facts(spot, hours, name)
    names = [
        "marginal_value",
        "rate_match",
        "buffer_band",
        "spot_hedge",
        "rlboost",
        "uniform_progress",
        "static",
        "mine.yaml",
    ]
    points = (SetPoint(name="target", samples=512.0), SetPoint(name="max", samples=1024.0))
    runs = (PolicyRun(run=some_run(facts, each), set_points=points) for each in names[:policies])
    return Case(facts=facts, runs=tuple(runs), optimum=some_optimum(facts))


def some_rows(policies: tuple[str, ...] = ("marginal_value", "rate_match", "buffer_band")) -> tuple[ComparisonRow, ...]:
    places = [(scenario, scale, regime) for scenario, scale in SCALES for regime in ("plenty", "scarce", "mixed")]
    return tuple(some_row(i, name, *place) for place in places for i, name in enumerate(policies))


SCALES = (("case-a", 1.0), ("small", 0.01))


def some_row(i: int, policy: str, scenario: str, scale: float, regime: str) -> ComparisonRow:
    cost = 82.0 + 4.0 * i + 3 * draw(1, regime, policy)
    ratio = cost / 80.0
    return ComparisonRow(
        policy=policy,
        scenario=scenario,
        regime=regime,
        windows=12,
        cost_usd_per_1k_samples=Spread(value=cost * scale, low=cost * scale * 0.97, high=cost * scale * 1.04),
        bound_usd_per_1k_samples=80.0 * scale,
        ratio=Spread(value=ratio, low=ratio - 0.008, high=ratio + 0.01),
        trainer_wait_ratio=Spread(value=0.04 + 0.03 * i),
        bound_wait_ratio=0.02,
        gap_share=Spread(value=0.6 - 0.3 * i),
    )


def some_report(policies: int = 1, *, spot: int = 3, hours: float = 12.0, compared: bool = False) -> Report:
    return Report(
        title="A made-up world",
        cases=(some_case(policies, spot=spot, hours=hours),),
        comparison=some_rows() if compared else (),
        notes=("Made up for tests.",),
    )
