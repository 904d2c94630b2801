"""`headrace bench interruptions`: how soon after its message a noticed node is tainted and its worker told to drain.

All notices are put into the queue within a second, for as many nodes, with the controller, the API server and everything else
on this machine; replacements are asked for meanwhile. The floor in the same run: bare patches that taint and cordon
as many other nodes. Times run from when a message's send was begun. Taints are seen by a watch, drain marks in the ledger's
history.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from scaler.commands.bench_bed import BedAddress, BenchBed, added, bench_bed, each, told
from scaler.commands.bench_decide import percentile
from scaler.commands.bench_objects import NAME, BenchPlan, BenchPool, node_of, notice_of
from scaler.commands.bench_workers import WorkerSettings
from scaler.kube.contract import NODES, KubeApi
from scaler.kube.facts import DRAIN_TAINT, NodeFacts
from scaler.kube.indexes import WatchedNodes
from scaler.ledger.audit import events_of
from scaler.ledger.contract import Ledger
from scaler.ledger.history import EventKind
from scaler.model.units import utc_text
from scaler.runtime.clock import SystemClock

_BATCH = 10
"""Messages a call: SQS takes no more."""
_GIVE_UP_S = 100.0
"""Nearly the two minutes that a notice leaves: later is too late anyway."""
_LOOK_S = 0.02
_REREAD_S = 0.5
"""Between two readings of the whole history, which tells by itself when each mark was made."""


def run_bench(address: BedAddress, nodes: int, *, as_json: bool) -> int:
    """Measure and print. 0: every node tainted and every worker told; 1: not all; 2: no bed to run on."""
    figures = told(_measured(address, nodes), as_json=as_json)
    if figures is None:
        return 2
    return 0 if figures["tainted"] == figures["drained"] == figures["notices"] else 1


async def _measured(address: BedAddress, nodes: int) -> dict[str, Any]:
    clock = SystemClock()
    async with bench_bed(address, _plan(nodes), clock) as bed:
        await bed.set_up()
        return await _figures(bed, clock)


def _plan(nodes: int) -> BenchPlan:
    """A fleet that wants exactly what is there, and replaces what goes; what comes joins nothing: launches are asked for."""
    return BenchPlan(
        pools=(BenchPool(name=NAME, nodes=nodes),),
        policy={"type": "static", "replicas": nodes},
        floor=nodes,
        ceiling=nodes,
        workers=WorkerSettings(units_at_once=1, unit_s=30.0, beat_s=max(2.0, nodes / 100)),
        batches_per_s=1.0,
    )


async def _figures(bed: BenchBed, clock: SystemClock) -> dict[str, Any]:
    floor_s = await _floor(bed, clock)
    before = await bed.requests("api")
    nodes = WatchedNodes(bed.kube, clock)
    watching = asyncio.ensure_future(nodes.run())
    try:
        await nodes.changed()
        sent_s = await _send(bed, clock)
        tainted_s = await _tainted(nodes, sent_s, clock)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    drained_s = await _drained(bed, sent_s, clock)
    requests = added(before, await bed.requests("api"))
    taints = [tainted_s[each] - sent_s[each] for each in tainted_s]
    drains = [drained_s[each] - sent_s[each] for each in drained_s]
    return {
        "notices": len(sent_s),
        "sent_within_s": round(max(sent_s.values()) - min(sent_s.values()), 3),
        "tainted": len(taints),
        "drained": len(drains),
        "p50_taint_s": _rounded(taints, 0.5),
        "p99_taint_s": _rounded(taints, 0.99),
        "p99_drain_s": _rounded(drains, 0.99),
        "api_requests": int(sum(requests.values())),
        "patches": int(
            sum(count for key, count in requests.items() if 'verb="patch"' in key and 'resource="nodes"' in key)
        ),
        "floor_p50_taint_s": _rounded(floor_s, 0.5),
        "floor_p99_taint_s": _rounded(floor_s, 0.99),
    }


def _rounded(values: Sequence[float], ratio: float) -> float | None:
    return round(percentile(values, ratio), 3) if values else None


async def _floor(bed: BenchBed, clock: SystemClock) -> list[float]:
    """Bare patches on nodes that nobody else knows: each one's time from the beginning of all."""
    names = [f"i-{number:017x}" for number in range(bed.plan.nodes)]
    await each(bed.kube.create(NODES, node_of(name, "floor")) for name in names)
    began_s, took = clock.monotonic_s(), list[float]()

    async def patch(name: str) -> None:
        await _bare_patch(bed.kube, f"bench-{name}")
        took.append(clock.monotonic_s() - began_s)

    await each(patch(name) for name in names)
    await each(bed.kube.delete(NODES, f"bench-{name}") for name in names)
    return took


async def _bare_patch(kube: KubeApi, name: str) -> None:
    taint = {"key": "headrace.dev/floor", "value": "bench", "effect": "NoSchedule"}
    await kube.patch(NODES, name, {"spec": {"unschedulable": True, "taints": [taint]}})


async def _send(bed: BenchBed, clock: SystemClock) -> dict[str, float]:
    """Instance -> when its message was sent, UTC seconds."""
    sent_s: dict[str, float] = {}

    async def batch(instances: Sequence[str]) -> None:
        now_s = clock.now_s()
        at = utc_text(now_s)
        entries = [{"Id": str(i), "MessageBody": notice_of(name, at)} for i, name in enumerate(instances)]
        sent_s.update(dict.fromkeys(instances, now_s))
        await bed.aws.call("sqs", "SendMessageBatch", QueueUrl=bed.queue_url, Entries=entries)

    names = tuple(bed.instances)
    await each(batch(names[start : start + _BATCH]) for start in range(0, len(names), _BATCH))
    return sent_s


async def _tainted(nodes: WatchedNodes, sent_s: Mapping[str, float], clock: SystemClock) -> dict[str, float]:
    """Instance -> when its taint was first seen."""
    seen: dict[str, float] = {}
    give_up_s = clock.monotonic_s() + _GIVE_UP_S
    while len(seen) < len(sent_s) and clock.monotonic_s() < give_up_s:
        now_s = clock.now_s()
        for node in nodes.all():
            if node.instance_id in sent_s and node.instance_id not in seen and _is_tainted(node):
                seen[node.instance_id] = now_s
        await clock.sleep(_LOOK_S)
    return seen


def _is_tainted(node: NodeFacts) -> bool:
    return any(taint.key == DRAIN_TAINT for taint in node.taints)


async def _drained(bed: BenchBed, sent_s: Mapping[str, float], clock: SystemClock) -> dict[str, float]:
    """Instance -> when the ledger took its worker's drain mark, by the store's clock: this machine's."""
    ledger, give_up_s = bed.open_ledger(), clock.monotonic_s() + _GIVE_UP_S
    # A node's taint comes before its worker's mark.
    while len(found := _marks(ledger, sent_s)) < len(sent_s) and clock.monotonic_s() < give_up_s:
        await clock.sleep(_REREAD_S)
    return found


def _marks(ledger: Ledger, sent_s: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for event in events_of(ledger):
        instance = (event.worker or "").removeprefix("w-")
        if event.kind is EventKind.WORKER_DRAINED and event.data.get("deadline_s") is not None and instance in sent_s:
            found.setdefault(instance, event.at_s)
    return found
