"""`headrace bench simulate`: how long a simulated week of case A takes, and how that grows with time and fleet.

Each case runs in a process of its own, so that its peak memory is its own. Fleets are case A with trainer, quota and warm
start multiplied. The floor of a case is its events alone: as many entries through a heap, with nothing done.
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from heapq import heappop, heappush

from scaler.simulate.loading import load_scenario
from scaler.simulate.policy_file import load_policy
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import World

SCENARIO = "case-a"
DAYS = (1, 2, 4, 7)
FLEETS = (25, 100, 400, 1000)
FLEET_HOURS = 6.0


def run_bench(policy: str, *, as_json: bool) -> int:
    """Measure and print; 0 when done."""
    lengths = [_in_process(policy, 24.0 * days, None) for days in DAYS]
    fleets = [_in_process(policy, FLEET_HOURS, size) for size in FLEETS]
    figures = {
        "policy": policy,
        "case_a_week_wall_s": lengths[-1]["wall_s"],
        "case_a_week_peak_mib": lengths[-1]["peak_mib"],
        "by_length": lengths,
        "by_fleet": fleets,
    }
    print(json.dumps(figures, indent=1) if as_json else _table(lengths + fleets))
    return 0


def _in_process(policy: str, hours: float, replicas: int | None) -> dict[str, float]:
    command = [sys.executable, "-m", "scaler.commands.bench_simulate", policy, str(hours), str(replicas or 0)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure(policy: str, hours: float, replicas: int) -> dict[str, float]:
    """One case: seconds of wall and CPU time, peak memory, events, and the floor of their number. `replicas` 0: as published."""
    scenario = load_scenario(SCENARIO).bind(load_policy(policy), hours=hours)
    if replicas:
        scenario = scaled(scenario, replicas / scenario.balance_replicas)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    world = World(scenario, 0)
    world.run()
    summary = world.result().summary
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    floor_s = _floor_s(world.kernel.events)
    return {
        "hours": hours,
        "replicas_mean": round(summary.replicas_mean, 1),
        "wall_s": round(wall_s, 3),
        "cpu_s": round(cpu_s, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "events": world.kernel.events,
        "us_per_event": round(cpu_s / world.kernel.events * 1e6, 2),
        "ms_per_replica_hour": round(cpu_s / max(1.0, summary.replicas_mean) / hours * 1e3, 3),
        "ratio_to_bare_heap": round(cpu_s / floor_s, 1),
    }


def scaled(scenario: Scenario, ratio: float) -> Scenario:
    """The same job with a trainer, a batch and capacity `ratio` times as big, so a fleet `ratio` times as big."""
    first, *others = scenario.fleet.stages
    rails = first.guard_rails
    bigger = replace(
        rails,
        max_replicas=round(rails.max_replicas * ratio),
        max_spend_usd_per_h=rails.max_spend_usd_per_h * ratio,
    )
    return replace(
        scenario,
        fleet=replace(
            scenario.fleet,
            max_spend_usd_per_h=None,
            stages=(
                replace(first, guard_rails=bigger, pools=tuple(replace(p, max_replicas=10**6) for p in first.pools)),
                *others,
            ),
        ),
        job=replace(
            scenario.job,
            batch_groups=round(scenario.job.batch_groups * ratio),
            max_concurrent=round(scenario.job.max_concurrent * ratio),
        ),
        offerings=tuple(
            replace(
                model,
                capacity=replace(model.capacity, counts=tuple(round(count * ratio) for count in model.capacity.counts)),
            )
            for model in scenario.offerings
        ),
        warm_replicas=round(scenario.warm_replicas * ratio),
        warm_depth_samples=round(scenario.warm_depth_samples * ratio),
    )


def _floor_s(events: int) -> float:
    heap: list[tuple[float, int]] = []
    start_s = time.process_time()
    for i in range(events):
        heappush(heap, ((i * 7919) % 1000, i))
        if len(heap) > 1000:
            heappop(heap)
    return time.process_time() - start_s


def _table(cases: list[dict[str, float]]) -> str:
    names = list(cases[0])
    rows = [names, *([f"{case[name]:g}" for name in names] for case in cases)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(names))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))))
