"""`headrace release` on a real API server and SimCloud: every mark of the fleet goes, all else stays, again is harmless."""

import asyncio
import copy
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaler.commands.release import ReleaseOptions, Releaser, run_release
from scaler.kube.api import open_api
from scaler.kube.contract import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NODE_CLAIMS,
    NODES,
    PODS,
    RAY_CLUSTERS,
    ROLLOUT_FLEETS,
    Resource,
)
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.notice_file import dump_notice
from scaler.runtime.clock import SystemClock
from tests.builders.definition import established
from tests.builders.kube import deployment, namespace, node, pod
from tests.cluster.api import Refused
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import require
from tests.e2e.cluster.bed import a_fleet
from tests.simcloud.helpers import in_service, make_group, quick
from tests.simcloud.server import serve
from tests.simcloud.sim import SimCloud

pytestmark = pytest.mark.cluster

NS, NAME = "rl", "fleet"
KEY = f"{NS}.{NAME}"
OURS = {"headrace.dev/fleet": KEY, "headrace.dev/pool": "spot-a"}
FAR, PAST = "2099-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
FOREIGN_TAINT = {"key": "example.com/other", "effect": "NoSchedule", "value": "x"}
DRAIN_TAINT = {"key": "headrace.dev/draining", "effect": "NoSchedule", "value": "size_down"}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
COST = "controller.kubernetes.io/pod-deletion-cost"
LOOSE = (NODE_CLAIMS, LEADER_WORKER_SETS, RAY_CLUSTERS)
SEEN = (NODES, PODS, DEPLOYMENTS, *LOOSE, ROLLOUT_FLEETS)


def marks(by: str, *, deadline: str = PAST, notice: bool = False) -> dict[str, str]:
    """Annotations of a mark."""
    found = {
        "headrace.dev/drain-deadline": deadline,
        "headrace.dev/marked-until": FAR,
        "headrace.dev/marked-by": by,
        "headrace.dev/epoch": "7",
        "headrace.dev/cordoned": "true",
        "headrace.dev/excluded": "true",
    }
    if notice:
        told = InterruptionNotice(
            instance_id="i-noticed", kind=NoticeKind.SPOT_INTERRUPTION, noticed_at_s=0.0, deadline_s=4e9
        )
        found["headrace.dev/notice"] = dump_notice(told)
    return found


class World:
    """A fleet's marks all over a cluster and a group, among others'."""

    def __init__(self, plane: ControlPlane, folder: Path, sim: SimCloud, address: str) -> None:
        self.plane, self.sim, self.folder = plane, sim, folder
        spec = {"aws": {"region": sim.settings.region, "endpointUrl": address}}
        settings = {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "Controller",
            "metadata": {"name": "c"},
            "spec": spec,
        }
        self.controller = folder / "controller.yaml"
        self.controller.write_text(yaml.safe_dump(settings))
        make_group(sim, "rollout", desired=5, protected=False)
        for _ in range(200):
            if len(in_service(sim)) == 5:
                break
            time.sleep(0.05)
        self.tagged, self.adopted, self.others, self.bare, self.disputed = sorted(in_service(sim))
        self._tag(self.tagged, fleet=KEY, pool="spot-a", group="rollout", protected="true", cluster="uid")
        self._tag(self.adopted, protected="true")
        self._tag(self.others, fleet="rl.other", protected="true")
        self._tag(self.disputed, fleet="rl.other", protected="true")
        self._protect(self.tagged, self.adopted, self.others, self.bare, self.disputed)
        self._nodes()
        self._workers()

    def _tag(self, instance_id: str, **tags: str) -> None:
        made = [{"Key": f"headrace.dev/{key}", "Value": value} for key, value in tags.items()]
        self.sim.call("ec2", "CreateTags", Resources=[instance_id], Tags=made)

    def _protect(self, *ids: str) -> None:
        self.sim.call(
            "autoscaling",
            "SetInstanceProtection",
            AutoScalingGroupName="rollout",
            InstanceIds=list(ids),
            ProtectedFromScaleIn=True,
        )

    def _nodes(self) -> None:
        mine = {**OURS, "headrace.dev/capacity-type": "spot", "role": "rollout"}
        tainted = [FOREIGN_TAINT, DRAIN_TAINT]
        self.node("marked", self.tagged, {**mine, EXCLUDE: "true"}, marks(KEY), tainted, cordoned=True)
        self.node("plain", self.adopted, mine, {"example.com/kept": "yes"}, cordoned=True)
        self.node("disputed", self.disputed, mine, {})
        self.node("noticed", "i-noticed", mine, marks(KEY, deadline=FAR, notice=True), [DRAIN_TAINT], cordoned=True)
        self.node("marked-only", "i-1", {EXCLUDE: "true"}, marks(KEY), [DRAIN_TAINT], cordoned=True)
        theirs = {"headrace.dev/fleet": "rl.other", "headrace.dev/pool": "spot-a"}
        self.node("theirs", self.others, theirs, marks("rl.other"), [DRAIN_TAINT], cordoned=True)
        self.node("nobodys", self.bare, {"headrace.dev/trainer": "policy"}, {})

    def node(
        self,
        name: str,
        instance_id: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        taints: list[Any] | None = None,
        *,
        cordoned: bool = False,
    ) -> None:
        body = node(name, instance_id=instance_id, labels=labels, annotations=annotations, taints=taints or [])
        body["spec"]["unschedulable"] = cordoned
        self.plane.api.create("/api/v1/nodes", body)

    def _workers(self) -> None:
        launches = [[f"{NAME}.rollout.3", "o", 1.0, "uid"]]
        ours = {
            "headrace.dev/launch-tokens": json.dumps({"": launches}),
            "headrace.dev/removals": json.dumps({"": [["u", "p", 1.0]]}),
        }
        theirs = {"headrace.dev/launch-tokens": json.dumps({"": [["other.rollout.3", "o", 1.0, "uid"]]})}
        both = json.dumps({"a": launches, "b": [["other.rollout.3", "o", 1.0, "uid"]]})
        self.apply(DEPLOYMENTS, deployment("w", 3, within=NS), ours)
        self.apply(DEPLOYMENTS, deployment("v", 3, within=NS), theirs)
        self.loose(RAY_CLUSTERS, "ray", {"headrace.dev/launch-tokens": both}, replicas=3)
        copied = {"headrace.dev/launch-token": f"{NAME}.rollout.4", "headrace.dev/offering": "o"}
        self.loose(LEADER_WORKER_SETS, "w-copy", copied, labels={"headrace.dev/template": "w"}, replicas=1)
        ends = {"headrace.dev/ends-with-replica": "r", "headrace.dev/marked-until": FAR}
        self.loose(NODE_CLAIMS, "claim", ends, status={"nodeName": "plain"})
        self.loose(NODE_CLAIMS, "other-claim", ends, status={"nodeName": "theirs"})
        cost = {COST: "-1000000001", "headrace.dev/marked-until": FAR}
        self.apply(PODS, pod("victim", within=NS, node_name="plain"), cost)
        self.apply(PODS, pod("worker", within=NS), {"headrace.dev/launch-token": f"{NAME}.rollout.3", "a": "b"})
        self.apply(PODS, pod("people", within=NS, node_name="plain"), {COST: "-5"})
        self.apply(PODS, pod("trainer", within=NS), {"headrace.dev/checkpoint-requested": FAR})
        self.apply(PODS, pod("elsewhere", within="default"), {"headrace.dev/launch-token": f"{NAME}.rollout.3"})

    def apply(self, resource: Resource, body: dict[str, Any], annotations: Mapping[str, str]) -> None:
        body["metadata"]["annotations"] = dict(annotations)
        self.plane.api.create(resource.path(namespace=body["metadata"]["namespace"]), body)

    def loose(self, resource: Resource, name: str, annotations: Mapping[str, str], **more: Any) -> None:
        """An object of a kind whose definition takes anything."""
        place = {"namespace": NS} if resource.namespaced else {}
        meta = {"name": name, "annotations": dict(annotations), "labels": more.pop("labels", {}), **place}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **more}
        self.plane.api.create(resource.path(namespace=NS if resource.namespaced else None), body)

    def fleet(self, *, paused: bool = False, dry_run: bool = False, status: Mapping[str, Any] | None = None) -> None:
        body = a_fleet("valkey://127.0.0.1:1", NAME, paused=paused, dryRun=dry_run)
        path = ROLLOUT_FLEETS.path(namespace=NS)
        self.plane.api.create(path, body)
        if status is not None:
            self.plane.api._send("PATCH", f"{path}/{NAME}/status", {"status": status}, "application/merge-patch+json")

    def clear(self) -> None:
        for resource in SEEN:
            for body in self.plane.api.get(resource.path())["items"]:
                path = resource.path(body["metadata"]["name"], body["metadata"].get("namespace"))
                self.plane.api._send("DELETE", path, {"gracePeriodSeconds": 0})

    def objects(self) -> dict[str, Any]:
        """Everything there is, without what the server counts."""
        found = {}
        for resource in SEEN:
            for body in self.plane.api.get(resource.path())["items"]:
                meta = body["metadata"]
                for key in ("managedFields", "generation"):
                    meta.pop(key, None)
                found[f"{resource.kind}/{meta['name']}"] = body
        return found

    def contents(self) -> dict[str, Any]:
        """The same without versions."""
        found = copy.deepcopy(self.objects())
        for body in found.values():
            del body["metadata"]["resourceVersion"]
        return found

    def tags(self) -> dict[str, dict[str, str]]:
        described = self.sim.call("ec2", "DescribeInstances")["Reservations"]
        return {
            each["InstanceId"]: {tag["Key"]: tag["Value"] for tag in each.get("Tags", ()) if "headrace" in tag["Key"]}
            for reservation in described
            for each in reservation["Instances"]
        }

    def protected(self) -> set[str]:
        found = self.sim.call("autoscaling", "DescribeAutoScalingInstances")["AutoScalingInstances"]
        return {each["InstanceId"] for each in found if each["ProtectedFromScaleIn"]}

    def options(self, *, dry_run: bool = False, aws: bool = True) -> ReleaseOptions:
        return ReleaseOptions(
            fleet=NAME,
            namespace=NS,
            kubeconfig=self.plane.kubeconfig,
            controller=self.controller if aws else None,
            dry_run=dry_run,
        )

    def release(self, **more: bool) -> int:
        return run_release(self.options(**more))


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    require()
    with ControlPlane() as made:
        established(made)
        made.api.define(yaml.safe_dump(_anything(each)).encode() for each in LOOSE)
        made.api.apply(namespace(NS))
        for place in (NS, "default"):
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": place},
            }
            made.api.apply(account)
        yield made


def _anything(resource: Resource) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, test"},
        },
        "spec": {"group": resource.group, "scope": scope, "names": names, "versions": [version]},
    }


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "HEADRACE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setattr("scaler.commands.release._BETWEEN_LOOKS_S", 0.0)
    with ExitStack() as held:
        sim = SimCloud(SystemClock(), 0, quick())
        server = held.enter_context(serve(sim))
        made = World(plane, tmp_path, sim, server.address)
        held.callback(made.clear)
        yield made


def test_every_mark_of_the_fleet_goes_and_nothing_else_changes(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, running = world.contents(), set(world.tags())
    for name in ("Node/marked", "Node/marked-only"):
        spec, meta = wanted[name]["spec"], wanted[name]["metadata"]
        spec["taints"].remove(DRAIN_TAINT)
        del spec["unschedulable"]
        del meta["labels"][EXCLUDE]
        del meta["annotations"]
    for name in ("Node/marked", "Node/plain", "Node/disputed"):
        for key in OURS:
            del wanted[name]["metadata"]["labels"][key]
    del wanted["Deployment/w"]["metadata"]["annotations"]
    kept = {"b": [["other.rollout.3", "o", 1.0, "uid"]]}
    wanted["RayCluster/ray"]["metadata"]["annotations"] = {
        "headrace.dev/launch-tokens": json.dumps(kept, separators=(",", ":"))
    }
    for name in ("LeaderWorkerSet/w-copy", "NodeClaim/claim", "Pod/victim"):
        wanted[name]["metadata"].pop("annotations")
    wanted["Pod/worker"]["metadata"]["annotations"] = {"a": "b"}

    assert world.release() == 0
    told = capsys.readouterr().out
    assert "Node noticed keeps its mark" in told
    assert world.contents() == wanted
    assert world.tags() == {
        world.tagged: {"headrace.dev/cluster": "uid"},
        world.adopted: {},
        world.others: {"headrace.dev/fleet": "rl.other", "headrace.dev/protected": "true"},
        world.bare: {},
        world.disputed: {"headrace.dev/fleet": "rl.other", "headrace.dev/protected": "true"},
    }
    assert world.protected() == {world.others, world.bare, world.disputed}
    assert set(world.tags()) == running, "capacity is as it was"

    before = world.objects()
    assert world.release() == 0
    assert world.objects() == before, "again writes nothing"
    assert "taken from" not in capsys.readouterr().out


def test_a_dry_run_tells_and_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before, tags = world.objects(), world.tags()
    assert world.release(dry_run=True) == 0
    told = capsys.readouterr().out
    assert "would take from Node marked: taint headrace.dev/draining, cordon" in told
    assert "would take from instances of rollout" in told
    assert (world.objects(), world.tags()) == (before, tags)


@pytest.mark.parametrize(
    ("fleet", "code"),
    [
        ({}, 2),
        ({"paused": True, "status": {"paused": False, "dryRun": False}}, 2),
        ({"paused": True, "status": {"paused": True, "dryRun": False}}, 0),
        ({"dry_run": True, "status": {"paused": False, "dryRun": True}}, 0),
        ({"paused": True}, 0),
    ],
    ids=["at work", "paused, and not taken up yet", "paused", "in dry run", "paused, and never seen by a controller"],
)
def test_a_fleet_must_rest_first(
    world: World, fleet: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    world.fleet(**fleet)
    before = world.objects()
    assert world.release() == code
    if code:
        assert "delete" in capsys.readouterr().err, "a way out is told"
        assert world.objects() == before
        assert world.protected() >= {world.tagged}
    else:
        assert DRAIN_TAINT not in world.objects()["Node/marked"]["spec"]["taints"]


def test_without_the_controllers_settings_instances_are_left_alone_and_that_is_told(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = world.tags()
    assert world.release(aws=False) == 0
    assert "instances were not looked at" in capsys.readouterr().out
    assert world.tags() == tags


def test_what_somebody_writes_in_between_is_never_lost(world: World) -> None:
    async def race() -> None:
        kube = open_api(world.plane.kubeconfig, clock=SystemClock())
        try:
            releaser = Releaser(kube=kube, aws=None, clock=SystemClock(), options=world.options())
            found = await releaser.look()
            await kube.patch(NODES, "marked", {"metadata": {"labels": {"example.com/new": "1"}}})
            await releaser.carry_out(found)
            left = await releaser.look()
            assert [step.subject for step in left.all] == ["Node marked"]
            await releaser.carry_out(left)
            assert (await releaser.look()).all == []
        finally:
            await kube.close()

    asyncio.run(race())
    labels = world.objects()["Node/marked"]["metadata"]["labels"]
    assert labels["example.com/new"] == "1"
    assert "headrace.dev/fleet" not in labels


def test_a_server_that_does_not_answer_is_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.sim.fail_next("DescribeInstances", "UnauthorizedOperation", times=50)
    assert world.release() == 3
    assert "UnauthorizedOperation" in capsys.readouterr().err


def test_kinds_that_one_may_not_read_are_told_and_the_rest_is_done(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "few"},
        "rules": [
            {"apiGroups": ["headrace.dev"], "resources": ["rolloutfleets"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "patch"]},
        ],
    }
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "few"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "few"}
    binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    del binding["rules"]
    for each in (role, binding):
        world.plane.api.apply(each)
    options = ReleaseOptions(
        fleet=NAME, namespace=NS, kubeconfig=world.plane.kubeconfig_for("few"), controller=None, dry_run=False
    )
    assert run_release(options) == 0
    assert "deployments were not looked at" in capsys.readouterr().out
    assert "headrace.dev/fleet" not in world.objects()["Node/plain"]["metadata"]["labels"]
    with pytest.raises(Refused):
        world.plane.api.get("/api/v1/nodes/none")
