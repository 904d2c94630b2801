"""`headrace doctor NAME`: a fleet that lacks nothing, and worlds that are broken in one place, each found with its remedy."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaler.commands.doctor_checks.base import Level, Line
from scaler.commands.doctor_checks.http_probes import Heard
from scaler.commands.doctor_checks.lease import look_at_lease
from scaler.commands.doctor_checks.rights import Right, missing, who_asks
from scaler.commands.doctor_checks.trainers import lines_of
from scaler.config.controller import Election
from scaler.config.convert import job_settings
from scaler.config.crd import HASH_ANNOTATION, NAME, definition
from scaler.kube.api import open_api
from scaler.kube.contract import DEFINITIONS, LEASES, ROLLOUT_FLEETS, Denied, KubeUnreachable
from scaler.kube.lease_record import written
from scaler.ledger.registry import open_ledger
from scaler.model.job import Phase, TrainerReport
from scaler.model.trainers import CheckCode, Finding, RepairKind, Severity, SubjectKind
from scaler.runtime.clock import SystemClock
from tests.builders.fleet_status import CONFIG, a_readout, a_status
from tests.builders.fleet_yaml import a_cluster_fleet, a_karpenter_pool, a_stage, the_fleet
from tests.builders.ledger import identity
from tests.builders.scripted_http import Answer, ScriptedHttp
from tests.builders.valkey_server import valkey_server
from tests.builders.ward import GROUP, SYSTEM, Ward, a_spot_pool, about, troubles

WRITES = {"create", "update", "patch", "delete"}
DEAD_STORE = ("fail", "ledger's store valkey://127.0.0.1:1/0")
NOT_ITS_POD = ("not looked", "HTTP of the controller")
NO_TRAINERS = ("not looked", "condition TrainerProtected")
USUAL = [NOT_ITS_POD, NO_TRAINERS, DEAD_STORE]
"""What every world here lacks unless it says otherwise."""


async def a_ward(*, on_aws: bool = True, group: dict[str, Any] | None = None, **spec: Any) -> Ward:
    ward = Ward(spec=spec, on_aws=on_aws)
    await ward.begin(**(group or {}))
    return ward


def failing(lines: list[Line]) -> list[str]:
    return [line.about for line in lines if line.level is Level.FAIL]


async def test_a_fleet_that_lacks_nothing_is_well_and_nothing_was_changed() -> None:
    with valkey_server() as server:
        ward = Ward(ledger=server.url)
        await ward.begin()
        ledger = open_ledger(server.url, "demo")
        ledger.configure(job_settings(the_fleet(a_cluster_fleet())))
        ledger.register(identity("w1"))
        report = TrainerReport(step=3, unblocked_samples_per_s=2.5, phase=Phase.GENERATION)
        ledger.report(ledger.attach_trainer("trainer"), report)
        before = ward.kube.counts(), ledger.stats().store_epoch
        lines = await ward.look()
        after = ward.kube.counts(), ledger.stats().store_epoch
        ledger.close()
    assert failing(lines) == []
    assert "Valkey" in about(lines, "ledger's store").found or "valkey" in about(lines, "ledger's store").found
    assert "noeviction" in about(lines, "ledger's store").found
    assert about(lines, "trainer's rate").found.startswith("2.5 samples/s")
    assert about(lines, "rights").found == "all 22 that this fleet needs are granted to " + ward.kube.user
    assert about(lines, "node agents").level is Level.OK
    assert {key: n for key, n in after[0].items() if key[0] in WRITES} == {
        key: n for key, n in before[0].items() if key[0] in WRITES
    }
    assert all(call.operation.startswith(("Describe", "List", "Get")) for call in _calls(ward))
    assert after[1] == before[1], "no epoch was raised"


def _calls(ward: Ward) -> list[Any]:
    made = [call for call in ward.sim.log.calls if call.caller == ward.aws.caller]
    assert made
    return made


async def test_a_definition_of_another_schema_holds_everything() -> None:
    ward = await a_ward()
    old = {"metadata": {"annotations": {HASH_ANNOTATION: "0123456789abcdef"}}}
    await ward.kube.patch(DEFINITIONS, NAME, old)
    line = about(await ward.look(), "definition")
    assert line.level is Level.FAIL
    assert "has schema 0123456789abcdef" in line.found
    assert "deploy/crd" in line.remedy


async def test_a_missing_definition_is_said_to_be_missing() -> None:
    ward = await a_ward()
    await ward.kube.delete(DEFINITIONS, definition()["metadata"]["name"])
    assert "there is no definition" in about(await ward.look(), "definition").found


async def test_a_missing_right_is_named_where_the_controllers_account_asks() -> None:
    ward = await a_ward()
    ward.kube.denied = {("create", "pods/eviction"), ("watch", "nodes")}
    found = [line.found for line in await ward.look() if line.about == "rights"]
    assert set(found) == {
        f"{ward.kube.user} may not create pods/eviction in rl",
        f"{ward.kube.user} may not watch nodes",
    }


async def test_reviews_are_asked_as_the_api_server_takes_them(tmp_path: Path) -> None:
    user, granted = {"userInfo": {"username": "me"}}, {"allowed": True}
    server = ScriptedHttp(Answer(status=201, body={"status": user}), Answer(status=201, body={"status": granted}))
    right = Right(group="apps", resource="deployments/scale", verb="patch", namespace="rl")
    async with server.serving():
        api = open_api(server.kubeconfig(tmp_path), clock=SystemClock())
        assert await who_asks(api) == "me"
        assert await missing(api, [right]) == []
        await api.close()
    assert [(seen.method, seen.path) for seen in server.seen] == [
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ]
    asked = {"group": "apps", "resource": "deployments", "subresource": "scale", "verb": "patch", "namespace": "rl"}
    assert json.loads(server.seen[1].body)["spec"] == {"resourceAttributes": asked}


async def test_a_persons_rights_say_nothing_of_the_controllers() -> None:
    ward = await a_ward()
    ward.kube.user, ward.kube.denied = "alice", {("watch", "nodes")}
    line = about(await ward.look(), "rights")
    assert line.level is Level.NOT_LOOKED
    assert line.found.startswith("alice may do 21 of 22 things")


async def test_a_group_that_another_owner_scales_is_refused_with_the_adapters_own_words() -> None:
    ward = await a_ward()
    ward.sim.call(
        "autoscaling",
        "PutScalingPolicy",
        AutoScalingGroupName=GROUP,
        PolicyType="TargetTrackingScaling",
        PolicyName="cpu",
        TargetTrackingConfiguration={"TargetValue": 50.0},
    )
    lines = await ward.look()
    line = about([each for each in lines if each.about == "pool spot"], "pool")
    assert line.level is Level.FAIL
    assert line.found.startswith("refused: another owner:")
    assert "cpu" in line.found


async def test_a_group_that_is_not_there_is_found() -> None:
    ward = await a_ward(stages=[a_stage(pools=[a_spot_pool(group="no-such-group")])])
    line = about([each for each in await ward.look() if each.about == "pool spot"], "pool")
    assert line.level is Level.FAIL
    assert "no Auto Scaling group of this name" in line.found


async def test_a_queue_of_another_cluster_and_one_that_is_gone() -> None:
    ward = await a_ward()
    foreign = ward.queue("others", "another-cluster")
    line = about(await ward.look(ward.settings(notices={"queue": {"url": foreign}})), "queue")
    assert line.level is Level.FAIL
    assert "names cluster 'another-cluster'" in line.found
    gone = ward.queue_url.replace("notices", "gone")
    line = about(await ward.look(ward.settings(notices={"queue": {"url": gone}})), "queue")
    assert line.level is Level.FAIL
    assert "deploy/iam" in line.remedy


async def test_a_clock_that_aws_would_not_take_is_told() -> None:
    ward = await a_ward()
    ward.aws.ahead = -240.0
    line = about(await ward.look(), "clock of AWS")
    assert (line.level, line.found) == (Level.WARN, "-240.0 s from ours")


async def test_without_a_region_pools_on_ec2_are_not_looked_at_and_the_controllers_word_stands_in() -> None:
    ward = await a_ward(on_aws=False)
    stage = {"name": "rollout", "pools": [{"name": "spot", "replicas": 0, "refused": "another owner: HPA"}]}
    await ward.judge({**a_status(), "stages": [stage]})
    lines = await ward.look()
    assert about(lines, "AWS").level is Level.NOT_LOOKED
    assert [(line.level, line.found) for line in lines if line.about == "pool spot"] == [
        (Level.FAIL, "the controller refuses it: another owner: HPA"),
        (
            Level.NOT_LOOKED,
            "pool spot is on EC2, and the controller has no AWS: set spec.aws.region of its settings",
        ),
    ]


async def test_an_old_lease_leads_no_more_and_nothing_that_was_told_is_believed() -> None:
    ward = await a_ward()
    ward.renew(before_s=3600.0)
    lines = await ward.look()
    line = about(lines, "lease")
    assert line.level is Level.FAIL
    assert "renewed last 36" in line.found
    assert f"kubectl -n {SYSTEM} get pods" in line.remedy
    assert about(lines, "conditions").level is Level.NOT_LOOKED


async def test_a_holder_whose_clock_is_wrong_leads_all_the_same() -> None:
    ward = Ward()
    ward.renew(before_s=3600.0)
    looking = asyncio.ensure_future(look_at_lease(ward.kube, ward.clock, Election()))
    await ward.clock.settle()
    lease = await ward.kube.get(LEASES, "headrace", namespace=SYSTEM)
    again = written(lease, name="headrace", holder="headrace-0_x", epoch=7, duration_s=10, now_s=0.0)
    await ward.kube.replace(LEASES, "headrace", again, namespace=SYSTEM)
    await ward.clock.advance(10.0)
    seen = await looking
    assert (seen.leads, seen.line.level) == (True, Level.WARN)


@pytest.mark.parametrize(
    ("holder", "words"), [(None, "no controller has ever led"), ("", "nobody holds it")], ids=["missing", "released"]
)
async def test_nobody_leads(holder: str | None, words: str) -> None:
    ward = Ward()
    if holder is not None:
        ward.renew(holder=holder)
    seen = await look_at_lease(ward.kube, ward.clock, Election())
    assert (seen.leads, seen.line.level) == (False, Level.FAIL)
    assert words in seen.line.found


async def test_a_lease_that_may_not_be_read_is_nobodys_fault() -> None:
    ward = Ward()
    ward.kube.fail_next("get", "leases", Denied("forbidden", status=403))
    seen = await look_at_lease(ward.kube, ward.clock, Election())
    assert (seen.leads, seen.line.level) == (None, Level.NOT_LOOKED)


async def test_a_node_of_another_fleet_under_our_workers_is_found() -> None:
    ward = await a_ward()
    ward.node("node-b", fleet="rl.other")
    ward.pod("stray", "node-b", "rl", {"headrace.dev/fleet": "rl.demo"})
    line = about([each for each in await ward.look() if each.about == "nodes"], "nodes")
    assert line.level is Level.FAIL
    assert "rl.other" in line.found


async def test_nodes_without_an_agent_are_counted() -> None:
    ward = await a_ward()
    ward.node("node-b")
    line = about(await ward.look(), "node agents")
    assert (line.level, line.found) == (Level.WARN, "none is ready on 1 of 2 nodes, as node-b")


async def test_conditions_that_do_not_hold_are_told_in_the_controllers_words() -> None:
    ward = await a_ward()
    await ward.judge(a_status(a_readout(), replace(CONFIG, paused=True), foreign_writers=["pool spot: HPA x"]))
    lines = await ward.look()
    assert about(lines, "condition SoleOwner").found == "OtherWriter: pool spot: HPA x"
    assert about(lines, "condition SoleOwner").level is Level.FAIL
    assert about(lines, "condition Paused").level is Level.WARN
    assert not [line for line in lines if line.about == "condition Ready"], "it only repeats SoleOwner"


async def test_what_an_earlier_leader_told_is_not_believed() -> None:
    ward = await a_ward()
    status = a_status()
    await ward.judge({**status, "leader": {**status["leader"], "epoch": 6}})
    line = about(await ward.look(), "conditions")
    assert (line.level, line.found) == (Level.NOT_LOOKED, "told by the leader of epoch 6, and 7 leads now")


async def test_a_spec_that_was_not_taken_up_yet_is_told() -> None:
    ward = await a_ward()
    await ward.kube.patch(ROLLOUT_FLEETS, "demo", {"spec": {"interval": "7s"}}, namespace="rl")
    assert about(await ward.look(), "conditions").level is Level.WARN


async def test_a_spec_that_cannot_be_used_is_faulted_by_path() -> None:
    ward = await a_ward()
    await ward.kube.patch(ROLLOUT_FLEETS, "demo", {"spec": {"interval": "7 parsecs"}}, namespace="rl")
    lines = await ward.look()
    line = about(lines, "fleet rl/demo")
    assert line.level is Level.FAIL
    assert "spec.interval" in line.found
    assert ward.refused, "which is exit code 2"
    assert about(lines, "workers of pool").level is Level.OK, "the rest is that of the spec accepted before"


async def test_a_bad_spec_where_none_was_accepted_before_leaves_the_rest_unknown() -> None:
    ward = await a_ward()
    change = {"spec": {"interval": "7 parsecs"}}
    await ward.kube.patch(ROLLOUT_FLEETS, "demo", change, namespace="rl")
    await ward.kube.patch(ROLLOUT_FLEETS, "demo", {"status": None}, namespace="rl", subresource="status")
    lines = await ward.look()
    assert about(lines, "pools").level is Level.NOT_LOOKED
    assert about(lines, "conditions").level is Level.FAIL, "a leader leads, and has not judged it"


async def test_a_fleet_that_is_not_there() -> None:
    ward = await a_ward()
    lines = await ward.look(fleet="nobody")
    assert about(lines, "fleet rl/nobody").found == "there is none"
    assert about(lines, "definition").level is Level.OK, "the rest is looked at"


async def test_settings_that_do_not_look_where_the_fleet_is() -> None:
    ward = await a_ward()
    found = [line for line in await ward.look(ward.settings(namespaces=["ml"])) if "settings" in line.about]
    assert [line.level for line in found] == [Level.OK, Level.FAIL]
    assert "namespace rl" in found[1].found


async def test_an_api_server_that_does_not_answer_is_one_line() -> None:
    ward = await a_ward()
    ward.kube.away = KubeUnreachable("no answer within 10 s")
    assert failing(await ward.look()) == ["API server"]


async def test_nodes_that_may_not_be_listed_leave_pools_unknown() -> None:
    ward = await a_ward()
    ward.kube.fail_next("list", "nodes", Denied("nodes is forbidden", status=403), times=1000)
    lines = await ward.look()
    assert about(lines, "pools").level is Level.NOT_LOOKED
    assert "forbidden" in about(lines, "pools").found


async def test_a_karpenter_pool_without_its_node_pool_or_its_worker_set_is_refused() -> None:
    ward = await a_ward(stages=[a_stage(pools=[a_karpenter_pool()])])
    line = about([each for each in await ward.look() if each.about == "pool spot"], "pool")
    assert line.level is Level.FAIL
    assert line.found.startswith("refused: ")


def test_what_is_wrong_with_many_nodes_is_one_line() -> None:
    def wrong(node: str, message: str) -> Finding:
        kind, severity = SubjectKind.NODE, Severity.ALARM
        return Finding(
            check=CheckCode.TAINT, trainer="t", subject_kind=kind, subject=node, severity=severity, message=message
        )

    found = lines_of([wrong("a", "bare"), wrong("x", "odd"), *(wrong(node, "bare") for node in "bcde")])
    assert [line.found for line in found] == ["node a, b, c and 2 more: bare", "node x: odd"]
    assert {line.about for line in found} == {"trainer t, taint"}


async def test_a_trainer_that_nobody_finds_is_the_guards_finding() -> None:
    trainer = {"name": "policy", "selector": {"matchLabels": {"app": "trainer"}}}
    ward = await a_ward(trainers=[{**trainer, "repair": [RepairKind.ANNOTATIONS.value]}])
    assert about(await ward.look(), "trainer policy, pods").level is not Level.OK


async def test_the_controller_of_this_pod_tells_how_its_sources_do() -> None:
    ward = await a_ward()
    health = {
        "answered_at_s": 1.0,
        "received": 3,
        "malformed": 0,
        "queue_age_s": 95.0,
        "error": "receive: AccessDenied",
    }
    status = {"leading": True, "fleets": {"rl.demo": {"sources": {"notices": {"sqs": health}}}}}
    ward.heard = Heard(url="http://127.0.0.1:9090", status=status, probes=(("/readyz", 200, "leading"),))
    lines = await ward.look()
    assert about(lines, "notices sqs").level is Level.FAIL
    assert "95 s old" in about(lines, "notices sqs").found
    assert about(lines, "/readyz").level is Level.OK


async def test_a_dead_store_is_the_one_thing_wrong() -> None:
    ward = await a_ward()
    assert troubles(await ward.look()) == USUAL
