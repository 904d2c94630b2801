"""`headrace bench decide`: how long one decision takes, beside the least that any decision must do in the same run.

The floor of a fleet is to make its replicas' views anew and to sort them by id: nothing that looks at every replica in a
fixed order can do with less. Decision and floor take turns over the same fleets in the same situations. Processor time
stands beside wall time, so that a busy machine does not pass for a slow decision.
"""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from policies.registry import SIZING
from scaler.commands.bench_fleets import Question, questions
from scaler.commands.tables import table_of
from scaler.decide import decide
from scaler.model.snapshot import ReplicaView

LEAST_CALLS = 100
"""So that a 99th percentile is one."""
Taken: TypeAlias = tuple[float, float]
"""Seconds of a call: on the wall, of the processor."""
_FACTS = tuple(field.name for field in dataclasses.fields(ReplicaView))


def run_bench(policy: str, sizes: str, seconds: float, *, as_json: bool) -> int:
    """Measure and print. 0: done; 2: no such policy, or sizes that are none."""
    try:
        policies = _policies(policy)
        fleets = [_fleet(size) for size in sizes.split(",")]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    cases = [measure(name, *fleet, seconds) for fleet in fleets for name in policies]
    print(json.dumps({"cases": cases}, indent=1) if as_json else table_of(cases))
    return 0


def _policies(policy: str) -> list[str]:
    if policy != "all" and policy not in SIZING:
        raise ValueError(f"no policy {policy!r}: all, {', '.join(SIZING)}")
    return sorted(SIZING) if policy == "all" else [policy]


def _fleet(size: str) -> tuple[int, int]:
    replicas, _, offerings = size.partition("x")
    if not (size.isascii() and replicas.isdecimal() and offerings.isdecimal() and int(replicas) and int(offerings)):
        raise ValueError(f"{size!r} is no size; write it like 1000x40, replicas by offerings")
    return int(replicas), int(offerings)


def measure(policy: str, replicas: int, offerings: int, seconds: float) -> dict[str, str | float]:
    """The figures of one policy at one size, by name."""
    asked = questions(policy, replicas, offerings)
    facts = [[_facts(replica) for replica in question.snapshot.stages[0].replicas] for question in asked]
    decide_s, floor_s = _take_turns(
        [partial(_decide, question) for question in asked],
        [partial(_floor, rows) for rows in facts],
        seconds,
    )
    wall_s, cpu_s = zip(*decide_s, strict=True)
    floor_wall_s, floor_cpu_s = zip(*floor_s, strict=True)
    p50, floor_p50 = percentile(wall_s, 0.5), percentile(floor_wall_s, 0.5)
    return {
        "policy": policy,
        "replicas": replicas,
        "offerings": offerings,
        "calls": len(decide_s),
        "p50_ms": round(p50 * 1e3, 4),
        "p99_ms": round(percentile(wall_s, 0.99) * 1e3, 4),
        "cpu_p50_ms": round(percentile(cpu_s, 0.5) * 1e3, 4),
        "cpu_p99_ms": round(percentile(cpu_s, 0.99) * 1e3, 4),
        "floor_p50_ms": round(floor_p50 * 1e3, 4),
        "floor_p99_ms": round(percentile(floor_wall_s, 0.99) * 1e3, 4),
        "floor_cpu_p50_ms": round(percentile(floor_cpu_s, 0.5) * 1e3, 4),
        "with_snapshot_p50_us": round((p50 + floor_p50) * 1e6, 1),
        "ratio_p50": round(p50 / floor_p50, 2),
    }


def _decide(question: Question) -> None:
    decide(question.snapshot, question.spec, question.memory)


def _facts(replica: ReplicaView) -> dict[str, Any]:
    return {name: getattr(replica, name) for name in _FACTS}


def _floor(rows: Sequence[dict[str, Any]]) -> None:
    views = [ReplicaView(**row) for row in rows]
    views.sort(key=attrgetter("replica_id"))


def _take_turns(
    ours: Sequence[Callable[[], None]], floor: Sequence[Callable[[], None]], seconds: float
) -> tuple[list[Taken], list[Taken]]:
    """What each call took, in whole rounds over all situations: the first round, untimed, warms up."""
    taken: tuple[list[Taken], list[Taken]] = ([], [])
    _one_round(ours, floor)
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s or len(taken[0]) < LEAST_CALLS:
        ours_s, floor_s = _one_round(ours, floor)
        taken[0].extend(ours_s)
        taken[1].extend(floor_s)
    return taken


def _one_round(
    ours: Sequence[Callable[[], None]], floor: Sequence[Callable[[], None]]
) -> tuple[list[Taken], list[Taken]]:
    pairs = [(_timed(decision), _timed(least)) for decision, least in zip(ours, floor, strict=True)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _timed(call: Callable[[], None]) -> Taken:
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start_s, time.process_time() - start_cpu_s


def percentile(values: Sequence[float], ratio: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(ratio * len(values)) - 1)]
