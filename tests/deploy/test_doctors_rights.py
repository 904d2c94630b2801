"""What the doctor asks for is what the chart grants, for every kind of pool and worker set: neither list goes its own way."""

from collections.abc import Mapping
from typing import Any

import pytest

from scaler.commands.doctor_checks.rights import Right, needed
from scaler.config.controller import Controller, Election
from scaler.model.trainers import RepairKind
from tests.builders.fleet_yaml import (
    a_cluster_fleet,
    a_karpenter_pool,
    a_worker_set,
    an_asg,
    the_fleet,
)
from tests.deploy.chart import NAMESPACE, RELEASE, Json, rendered, require_helm
from tests.deploy.rights import granted

TRAINER = {
    "name": "policy",
    "selector": {"matchLabels": {"app": "trainer"}},
    "repair": [kind.value for kind in RepairKind],
}
AWS = {"region": "us-west-2"}
OFF: Mapping[str, Any] = {"deployment": {"enabled": False}, "trainers": {"watch": False, "repair": []}}
CASES: Mapping[str, tuple[Mapping[str, Any], list[Json], dict[str, Any]]] = {
    "a group with a DaemonSet": ({"aws": AWS}, [an_asg()], {}),
    "a group with a Deployment": (
        {"aws": AWS, "deployment": {"enabled": True}},
        [an_asg(workerSet=a_worker_set("deployment"))],
        {},
    ),
    "Karpenter with LeaderWorkerSets": (
        {"karpenter": {"enabled": True}, "leaderWorkerSet": {"enabled": True}},
        [a_karpenter_pool()],
        {},
    ),
    "Karpenter with a RayCluster and a trainer": (
        {"karpenter": {"enabled": True}, "ray": {"enabled": True}, "trainers": {"watch": True, "repair": ["rl"]}},
        [a_karpenter_pool(workerSet=a_worker_set("ray_cluster"))],
        {"trainers": [TRAINER]},
    ),
}


def rights_of(values: Mapping[str, Any]) -> set[Right]:
    return {
        Right(
            group=each.group,
            resource=each.resource,
            verb=each.verb,
            namespace=each.namespace,
            name=each.names[0] if each.names else "",
        )
        for each in granted(rendered(values), RELEASE)
    }


@pytest.mark.parametrize("namespaces", [["rl"], []], ids=["one namespace", "all namespaces"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_asked_for_is_what_the_chart_grants(case: str, namespaces: list[str]) -> None:
    require_helm()
    values, pools, spec = CASES[case]
    head = {"apiVersion": "headrace.dev/v1alpha1", "kind": "Controller", "metadata": {"name": "headrace"}}
    settings = Controller.model_validate({**head, "spec": {"namespaces": namespaces}})
    wanted = needed(the_fleet(a_cluster_fleet(*pools, **spec)), settings, Election(namespace=NAMESPACE))
    assert set(wanted) == rights_of({**OFF, **values, "namespaces": namespaces})
