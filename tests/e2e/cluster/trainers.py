"""Trainers in the bed: nodes and pods that are not the controller's to scale, kept from Karpenter and from nobody else."""

from typing import Any

from tests.builders.kube import deployment, is_running
from tests.e2e.cluster.base import NAMESPACE
from tests.e2e.cluster.bed import Bed, node_tags
from tests.simcloud.helpers import make_group

TRAINERS = 16
TRAINER_LABELS = {"app": "trainer"}


async def add_trainers(bed: Bed, count: int = TRAINERS) -> None:
    """So many on-demand nodes of a group of their own, each with a trainer's pod."""
    make_group(
        bed.sim, "trainers", desired=count, zones=("us-east-1a",), market="on-demand", **node_tags("role", "trainer")
    )
    await bed.kube.create(_pods(count))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dtrainer"
    await bed.kube.until(path, lambda pods: sum(map(is_running, pods)) == count)


def _pods(count: int) -> dict[str, Any]:
    made = deployment("trainer", count, within=NAMESPACE, nodeSelector={"role": "trainer"})
    made["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    return made
