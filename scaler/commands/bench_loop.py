"""`headrace bench loop`: how long a pass of the decision loop takes, observe to act, over so many nodes, on a test bed.

One fleet under `marginal_value` in six pools, three of them Spot, and a trainer that the guard looks after; a node, a pod and
a worker in the ledger for each instance. While it is measured Spot instances get notices, and what replaces them joins.
Times are the controller's own, of its log (`turn`), and so is `cpu_s`: the processor time of its event loop during a pass.
That of the whole process, and its memory, are the kernel's. On two cores nearly all else is the bed's: SimCloud makes lists of
thousands of instances, and every node has its lease.
"""

import asyncio
import json
import os
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaler.commands.bench_bed import BedAddress, BenchBed, NotABed, added, bench_bed, each, told
from scaler.commands.bench_decide import percentile
from scaler.commands.bench_objects import NAME, TRAINERS, BenchPlan, BenchPool, notice_of
from scaler.commands.bench_workers import WorkerSettings
from scaler.model.units import utc_text
from scaler.runtime.clock import SystemClock
from scaler.telemetry.logs import LEVEL_VARIABLE

LEAST_TURNS = 100
"""So that a 99th percentile is one."""
_PARTS = ("observe_s", "assemble_s", "decide_s", "persist_s", "act_s", "tell_s")
_ZONES = "abc"
_SETTLE_S = 15.0
"""Between the first whole fleet and the first pass that counts: what a start brings is over."""
_FOLLOW_S = 10.0
"""Between two looks at the groups."""
_NOTICES_A_MINUTE = 6
_LONGEST_S = 900.0
_UNIT_S = 60.0
_BEATS_PER_S = 200
"""Of all workers together: they are in one thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """How large, and for how long."""

    nodes: int
    turns: int
    interval: str


def run_bench(address: BedAddress, options: LoopOptions, *, as_json: bool) -> int:
    """Measure and print. 0: done; 1: the fleet was not whole in the end; 2: no bed to run on."""
    figures = told(_measured(address, options), as_json=as_json)
    if figures is None:
        return 2
    return 0 if figures["decisions"] >= options.turns and figures["ready"] >= 0.95 * options.nodes else 1


async def _measured(address: BedAddress, options: LoopOptions) -> dict[str, Any]:
    clock = SystemClock()
    async with bench_bed(address, plan_of(options.nodes, options.interval), clock) as bed:
        began_s = clock.monotonic_s()
        await bed.set_up()
        set_up_s = clock.monotonic_s() - began_s
        return {**await _figures(bed, clock, options.turns), "set_up_s": round(set_up_s, 1)}


def plan_of(nodes: int, interval: str) -> BenchPlan:
    """Nodes in three zones, Spot and on-demand, under the default policy; demand as large as what they make."""
    share, rest = divmod(nodes, len(_ZONES))
    spot = [BenchPool(name=f"{NAME}-spot-{z}", nodes=share + (i < rest), zone_letter=z) for i, z in enumerate(_ZONES)]
    dear = [
        BenchPool(name=f"{NAME}-on-demand-{z}", nodes=0, zone_letter=z, market="on-demand", usd_per_h="55.00")
        for z in _ZONES
    ]
    beat_s = max(2.0, nodes / _BEATS_PER_S)
    return BenchPlan(
        pools=(*spot, *dear),
        policy={"type": "marginal_value"},
        floor=nodes,
        ceiling=nodes + max(1, nodes // 50),
        workers=WorkerSettings(units_at_once=1, unit_s=_UNIT_S, beat_s=beat_s, ttl_s=3 * beat_s + 30.0),
        batches_per_s=max(0.5, nodes / _UNIT_S / 32),
        interval=interval,
        pods=True,
        settled=True,
        trainers=BenchPool(name=TRAINERS, nodes=min(16, nodes), market="on-demand"),
        variables={LEVEL_VARIABLE: "debug"},
    )


async def _figures(bed: BenchBed, clock: SystemClock, turns: int) -> dict[str, Any]:
    churn = Churn(bed, clock)
    at_work = [asyncio.ensure_future(work) for work in (churn.notice(), churn.follow())]
    try:
        await clock.sleep(_SETTLE_S)
        process = _Process(bed)
        began_s, cpu_s, read = clock.monotonic_s(), process.cpu_s(), bed.log.stat().st_size
        api, aws = await bed.requests("api"), await bed.requests("aws")
        found = await _turns(bed, clock, read, turns)
        seconds, cpu_s = clock.monotonic_s() - began_s, process.cpu_s() - cpu_s
        api, aws = added(api, await bed.requests("api")), added(aws, await bed.requests("aws"))
        ready = await bed.ready()
    finally:
        for each_ in at_work:
            each_.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)
    return {
        "nodes": bed.plan.nodes,
        "ready": ready or 0,
        "decisions": len(found),
        "seconds": round(seconds, 1),
        **_times(found),
        "process_cpu_s_per_decision": round(cpu_s / max(1, len(found)), 3),
        "process_cpu_ratio": round(cpu_s / seconds, 3),
        "peak_rss_mib": round(process.peak_mib(), 1),
        "api_requests": int(sum(api.values())),
        "aws_requests": int(sum(aws.values())),
        "notices": churn.notices,
        "joined": churn.joined,
        "left": churn.left,
        "load_1min": round(os.getloadavg()[0], 1),
    }


async def _turns(bed: BenchBed, clock: SystemClock, read: int, turns: int) -> list[Mapping[str, Any]]:
    """What the controller's log tells of its passes from a place in it on, once there are enough."""
    until_s = clock.monotonic_s() + _LONGEST_S
    while True:
        found = turns_of(bed.log.read_bytes()[read:].decode(errors="replace").splitlines())
        if len(found) >= turns or clock.monotonic_s() > until_s:
            return found
        if bed.controller is not None and bed.controller.poll() is not None:
            raise NotABed(f"the controller has ended; {bed.last_words()}")
        await clock.sleep(1.0)


def turns_of(lines: Sequence[str]) -> list[Mapping[str, Any]]:
    """The passes that these lines of a log tell of; a line that is cut tells nothing."""
    found: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and told.get("event") == "turn":
            found.append(told)
    return found


def _times(turns: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians and 99th percentiles of the pass and of its parts, seconds."""
    if not turns:
        return {}
    found: dict[str, float] = {}
    for part in ("turn_s", "cpu_s", *_PARTS):
        values = [float(turn[part]) for turn in turns]
        name = part.removesuffix("_s")
        found[f"p50_{name}_s"] = round(percentile(values, 0.5), 4)
        found[f"p99_{name}_s"] = round(percentile(values, 0.99), 4)
    return found


class Churn:
    """What goes on in an ordinary fleet."""

    def __init__(self, bed: BenchBed, clock: SystemClock) -> None:
        self._bed = bed
        self._clock = clock
        self._rng = random.Random(0)
        self._noticed: set[str] = set()
        self.notices = 0
        self.joined = 0
        self.left = 0

    async def notice(self) -> None:
        """A Spot notice now and then, for ever."""
        while True:
            await self._clock.sleep(60.0 / _NOTICES_A_MINUTE)
            spot = [name for name, pool in self._bed.instances.items() if pool.market == "spot"]
            standing = sorted(set(spot) - self._noticed)
            if not standing:
                continue
            name = self._rng.choice(standing)
            self._noticed.add(name)
            message = notice_of(name, utc_text(self._clock.now_s()))
            await self._bed.aws.call("sqs", "SendMessage", QueueUrl=self._bed.queue_url, MessageBody=message)
            self.notices += 1

    async def follow(self) -> None:
        """Instances that come get a node, a pod and a worker; those that go lose them."""
        while True:
            await self._clock.sleep(_FOLLOW_S)
            there = {name: pool for pool in self._bed.plan.pools for name in await self._bed.in_service(pool)}
            come = {name: pool for name, pool in there.items() if name not in self._bed.instances}
            await each(self._bed.join(name, pool) for name, pool in come.items())
            gone = await self._gone(self._bed.instances.keys() - there.keys())
            await each(self._bed.leave(name) for name in gone)
            self.joined += len(come)
            self.left += len(gone)

    async def _gone(self, missing: Collection[str]) -> list[str]:
        """Of those that are in no group, the ones that have ended: a noticed one leaves its group first."""
        if not missing:
            return []
        filters = [{"Name": "instance-id", "Values": sorted(missing)}]
        found = await self._bed.aws.pages("ec2", "DescribeInstances", "Reservations", Filters=filters)
        living = {
            one["InstanceId"]
            for reservation in found
            for one in reservation["Instances"]
            if one["State"]["Name"] in ("pending", "running")
        }
        return sorted(set(missing) - living)


class _Process:
    """The controller's, as the kernel tells."""

    def __init__(self, bed: BenchBed) -> None:
        if bed.controller is None:
            raise NotABed("no controller has been started")
        self._folder = Path("/proc") / str(bed.controller.pid)

    def cpu_s(self) -> float:
        """Of all its threads, user and system."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        """The most it ever held."""
        lines = (self._folder / "status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024
