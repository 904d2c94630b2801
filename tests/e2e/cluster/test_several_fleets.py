"""Two fleets on one Auto Scaling group, and others that are broken beside them: room by priority, never each other's nodes."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scaler.act.node_marks import MARKED_BY_ANNOTATION
from scaler.kube.contract import DAEMON_SETS, ROLLOUT_FLEETS
from scaler.kube.facts import FLEET_LABEL
from scaler.ledger.registry import open_ledger
from tests.builders.kube import daemon_set
from tests.cluster.fixtures import require
from tests.e2e.cluster.base import JOB, NAMESPACE
from tests.e2e.cluster.bed import Bed, a_bed, a_fleet
from tests.e2e.cluster.scene import NEEDS
from tests.simcloud.journal import BY_CALLERS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

_ZONE = "us-east-1a"
_GROUP = f"rollout-{_ZONE}"
_SECOND = "second"
_FLEET_TAG = "headrace.dev/fleet"


@dataclass
class Two:
    """A bed whose fleets have a worker set each, which follows the fleet's label on nodes."""

    bed: Bed

    async def fleet(self, name: str, *, ceiling: int, **spec: Any) -> None:
        """One that wants so many whatever its signals say."""
        made = a_fleet(
            self.bed.store.url,
            name,
            zones=(_ZONE,),
            guardRails={"floor": ceiling, "ceiling": ceiling},
            **spec,
        )
        pool = made["spec"]["stages"][0]["pools"][0]
        pool["provider"]["workerSet"]["name"] = f"workers-{name}"
        pool |= {"refusalBackoffInitial": "1s", "refusalBackoffMax": "2s"}
        await self.bed.kube.create(made)

    async def resize(self, name: str, ceiling: int) -> None:
        """It wants so many from now on."""
        found = await self.bed.api.get(ROLLOUT_FLEETS, name, namespace=NAMESPACE)
        stage = found["spec"]["stages"][0]
        stage["guardRails"] |= {"floor": ceiling, "ceiling": ceiling}
        await self.bed.api.patch(ROLLOUT_FLEETS, name, {"spec": {"stages": [stage]}}, namespace=NAMESPACE)

    def room(self, most: int) -> None:
        """The group's maximum."""
        self.bed.sim.call("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName=_GROUP, MaxSize=most)

    def of(self, name: str) -> set[str]:
        """Instances in the group that the cloud has tagged as a fleet's."""
        inside = self.bed.sim.running(_GROUP)
        return {one.instance_id for one in inside if one.tags.get(_FLEET_TAG) == f"{NAMESPACE}.{name}"}

    def labelled(self, name: str) -> set[str]:
        """Instances whose nodes carry a fleet's label."""
        label = f"{NAMESPACE}.{name}"
        return {node.instance_id for node in self.bed.nodes.all() if node.labels.get(FLEET_LABEL) == label}

    def shared(self, first: int, second: int) -> bool:
        """Whether the fleets have so many each, by tags and labels alike, and nothing is nobody's."""
        wanted = {JOB: first, _SECOND: second}
        each = all(len(self.of(name)) == many and self.labelled(name) >= self.of(name) for name, many in wanted.items())
        inside = self.bed.sim.running(_GROUP)
        return each and all(_FLEET_TAG in one.tags for one in inside)

    def workers_are_right(self) -> bool:
        """Whether each job's workers are on its fleet's nodes only."""
        told = {name: open_ledger(self.bed.store.url, name).workers() for name in (JOB, _SECOND)}
        lives = {name: {each.identity.instance_id for each in all_ if not each.gone} for name, all_ in told.items()}
        return all(lives[name] == self.of(name) for name in lives)

    def marks_are_their_own(self) -> bool:
        """Whether every mark on a node is of the fleet whose node it is."""
        marked = [node for node in self.bed.nodes.all() if MARKED_BY_ANNOTATION in node.annotations]
        return all(node.annotations[MARKED_BY_ANNOTATION] == node.labels.get(FLEET_LABEL) for node in marked)


@asynccontextmanager
async def two_fleets(folder: Path) -> AsyncIterator[Two]:
    """A bed for them; the one called as the bed's job is the more important."""
    async with a_bed(folder, zones=(_ZONE,)) as bed:
        await bed.api.delete(DAEMON_SETS, "rollout-worker", namespace=NAMESPACE)
        for name in (JOB, _SECOND):
            selector = {FLEET_LABEL: f"{NAMESPACE}.{name}"}
            made = daemon_set(f"workers-{name}", within=NAMESPACE, nodeSelector=selector, tolerations=[])
            await bed.kube.create(made)
            bed.crew(name, f"workers-{name}")
        yield Two(bed)


async def test_fleets_share_a_group_and_leave_each_other_alone(tmp_path: Path) -> None:
    require(*NEEDS)
    async with two_fleets(tmp_path) as two:
        two.room(4)
        await two.fleet(JOB, ceiling=6, priority=10)
        await two.fleet(_SECOND, ceiling=6)
        two.bed.start_controller("a")
        await _room_goes_to_the_more_important(two)
        await _neither_takes_the_others_after_a_crash(two)
        await _a_broken_fleet_disturbs_nobody(two)
        await _a_deleted_fleet_leaves_its_capacity(two)
        assert [one for one in two.bed.sim.log.ended if one.by in BY_CALLERS] == []


async def _room_goes_to_the_more_important(two: Two) -> None:
    bed = two.bed
    await bed.until("the room is used up", lambda: len(bed.launched()) == 4)
    first = len(two.of(JOB))
    for more in range(1, 7 - first):
        two.room(4 + more)
        await bed.until("what is free goes to the more important", lambda: two.shared(first + more, 4 - first))  # noqa: B023 - waited for here
    two.room(20)
    await bed.until("the other has its own then", lambda: two.shared(6, 6))
    await bed.until("each has its workers", two.workers_are_right)


async def _neither_takes_the_others_after_a_crash(two: Two) -> None:
    """Instances of the less important one are there, nothing of ours is on them yet, and the controller dies."""
    bed = two.bed
    bed.sim.slow_next("CreateTags", 3.0, 40)
    await two.resize(_SECOND, 9)
    await bed.until("its instances come", lambda: len(bed.launched()) == 15)
    bed.signal("a", signal.SIGKILL)
    bed.start_controller("b")
    await bed.until("each has its own", lambda: two.shared(6, 9))
    await bed.until("each has its workers", two.workers_are_right)


async def _a_broken_fleet_disturbs_nobody(two: Two) -> None:
    bed = two.bed
    await two.fleet("nowhere", ceiling=3, ledger={"type": "valkey", "url": "valkey://127.0.0.1:1/0"})
    await two.fleet("nonsense", ceiling=3, ledger={"type": "valkey", "urlFile": "relative/url"})
    noticed = set(bed.sim.fate.reclaim(ids=[min(two.of(JOB)), min(two.of(_SECOND))]))
    await bed.until("both are tainted", lambda: bed.tainted() >= noticed)
    assert two.marks_are_their_own()
    await bed.until("both are replaced", lambda: noticed.isdisjoint(bed.launched()) and two.shared(6, 9))
    assert bed.controllers["b"].poll() is None


async def _a_deleted_fleet_leaves_its_capacity(two: Two) -> None:
    bed, left = two.bed, two.of(_SECOND)
    await bed.api.delete(ROLLOUT_FLEETS, _SECOND, namespace=NAMESPACE)
    await bed.until("it is let go", lambda: "fleet_gone" in bed.log_of("b"))
    noticed = set(bed.sim.fate.reclaim(ids=[min(two.of(JOB))]))
    await bed.until("the other goes on", lambda: noticed.isdisjoint(bed.launched()) and len(two.of(JOB)) == 6)
    assert two.of(_SECOND) == left
    await two.fleet(_SECOND, ceiling=9)
    await bed.until("one of its name takes it up again", lambda: two.shared(6, 9))
    assert two.of(_SECOND) == left
