"""A cluster to run Headrace in whose nodes are instances of SimCloud's Auto Scaling groups, over HTTP; see `base`.

What is asked of the bed besides is SimCloud's log.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaler.commands.bench_workers import WorkerSettings
from scaler.runtime.clock import SystemClock
from scaler.runtime.cluster.daemon import cluster_uid
from tests.builders.kube import daemon_set
from tests.cluster.control_plane import ControlPlane
from tests.e2e.cluster.base import CALLER, JOB, NAMESPACE, SETTINGS, SYSTEM, ClusterBed, a_fleet_of, at_work, ground
from tests.simcloud.helpers import make_group
from tests.simcloud.joiner import Joiner
from tests.simcloud.server import serve
from tests.simcloud.settings import Settings
from tests.simcloud.sim import SimCloud

__all__ = ["CALLER", "JOB", "NAMESPACE", "SETTINGS", "SYSTEM", "Bed", "a_bed", "a_fleet", "node_tags", "quick_cloud"]

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


def quick_cloud() -> Settings:
    """A cloud whose machines come within a second and whose groups notice within a few."""
    return Settings(
        launch_delay_s=(0.2, 0.6),
        in_service_delay_s=(0.1, 0.2),
        shutdown_delay_s=(0.2, 0.5),
        reconcile_delay_s=(0.2, 0.5),
        health_check_delay_s=(2.0, 4.0),
        retry_delay_s=(3.0, 5.0),
        notice_s=120.0,
    )


@dataclass(kw_only=True)
class Bed(ClusterBed):
    """See the module's docstring."""

    sim: SimCloud
    endpoint: str
    queue_url: str = ""

    def settings(self, name: str, port: int) -> dict[str, Any]:
        """A controller's settings."""
        made = super().settings(name, port)
        made["spec"] |= {
            "aws": {"region": self.sim.settings.region, "endpointUrl": self.endpoint},
            "notices": {"queue": {"url": self.queue_url}},
        }
        return made

    async def fleet(self, name: str = JOB, **changes: Any) -> None:
        """Make a fleet."""
        await self.kube.create(a_fleet(self.store.url, name, **changes))

    def launched(self) -> list[str]:
        """Ids of all instances that run now in the rollout groups."""
        found = self.sim.call("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
        return [
            one["InstanceId"]
            for group in found
            if group["AutoScalingGroupName"].startswith("rollout")
            for one in group["Instances"]
        ]

    def serving(self, without: set[str]) -> int:
        """Instances in rollout groups that run a worker, those of `without` left out."""
        working = set(self.instances.values()) - without
        return len(working & set(self.launched()))


@asynccontextmanager
async def a_bed(
    folder: Path,
    *,
    zones: tuple[str, ...] = ZONES,
    with_: tuple[str, ...] = ("controllers", "scheduler", "kwok"),
    audit: bool = False,
    flags: Mapping[str, Sequence[str]] | None = None,
    work: WorkerSettings | None = None,
) -> AsyncIterator[Bed]:
    """Everything but the controller, ready; nothing is left afterwards."""
    clock = SystemClock()
    sim = SimCloud(clock, 0, quick_cloud())
    async with ground(ControlPlane(with_, audit=audit, flags=flags), folder, work) as made:
        with serve(sim) as server:
            bed = Bed(**made.parts(), sim=sim, endpoint=server.address)
            await _set_up(bed, zones)
            async with at_work(bed, Joiner(sim, bed.api, clock).run()):
                yield bed


async def _set_up(bed: Bed, zones: tuple[str, ...]) -> None:
    await bed.kube.create(
        daemon_set("rollout-worker", within=NAMESPACE, nodeSelector={"role": "rollout"}, tolerations=[])
    )
    for zone in zones:
        make_group(bed.sim, f"rollout-{zone}", zones=(zone,), high=600, **node_tags("role", "rollout"))
    await hear(bed)


async def hear(bed: Bed) -> None:
    """Make the cluster's queue of notices, and have every event put into it."""
    tags = {"headrace.dev/cluster": await cluster_uid(bed.api)}
    made = bed.sim.call("sqs", "CreateQueue", QueueName="notices", tags=tags)
    bed.queue_url = made["QueueUrl"]
    bed.sim.bus.subscribe("notices")


def node_tags(label: str, value: str) -> dict[str, Any]:
    """Tags of a group whose nodes carry a label."""
    key = f"k8s.io/cluster-autoscaler/node-template/label/{label}"
    return {"Tags": [{"Key": key, "Value": value, "PropagateAtLaunch": True}]}


def a_fleet(
    store_url: str, name: str = JOB, *, zones: tuple[str, ...] = ZONES, launch_timeout: str = "60s", **spec: Any
) -> dict[str, Any]:
    """A RolloutFleet of Auto Scaling groups, one a zone."""
    pools = [
        {
            "name": f"spot-{zone[-1]}",
            "launchTimeout": launch_timeout,
            "provider": {
                "type": "auto_scaling_group",
                "group": f"rollout-{zone}",
                "workerSet": {"type": "daemon_set", "name": "rollout-worker"},
            },
            "offerings": [
                {"instanceType": "p5.48xlarge", "zone": zone, "capacityType": "spot", "priceUsdPerH": "10.00"}
            ],
        }
        for zone in zones
    ]
    return a_fleet_of(pools, store_url, name, **spec)
