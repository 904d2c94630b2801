"""The guard's judgement: a trainer that lacks nothing is clean, and each thing that it may lack is found, alone and by name."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from scaler.decide.devices import SHAPES
from scaler.decide.trainer_checks.disruption import DO_NOT_DISRUPT, SAFE_TO_EVICT, SCALE_DOWN_DISABLED
from scaler.decide.trainer_checks.health import FATAL_XIDS, MUST_BE_FALSE, MUST_BE_TRUE
from scaler.decide.trainers import TABLE, protected
from scaler.model.trainer_facts import (
    ScheduledEvent,
    Selector,
    Source,
    TrainerFacts,
)
from scaler.model.trainers import (
    CHECKPOINT_ANNOTATION,
    AnnotateNode,
    AnnotatePod,
    CheckCode,
    CreateBudget,
    Finding,
    ProtectFromScaleIn,
    RepairKind,
    Severity,
)
from tests.builders.trainer_cases import CASES, GROUP, KARPENTER, a_budget
from tests.builders.trainers import (
    LABELS,
    NOW_S,
    a_condition,
    a_trainer,
    a_trainer_node,
    codes,
    in_a_block,
    instance,
    judged,
    with_members,
    with_nodes,
    with_pods,
)

ALARM, UNKNOWN, REPAIRABLE = Severity.ALARM, Severity.UNKNOWN, Severity.REPAIRABLE


@pytest.mark.parametrize(("facts", "expected"), CASES.values(), ids=CASES.keys())
def test_each_lack_is_found_and_nothing_else(facts: TrainerFacts, expected: set[tuple[CheckCode, Severity]]) -> None:
    findings = judged(facts)
    assert codes(findings) == expected
    assert protected(findings) is (
        False
        if any(severity in (ALARM, REPAIRABLE) for _, severity in expected)
        else None
        if (UNKNOWN in {severity for _, severity in expected})
        else True
    )
    for finding in findings:
        assert ": " in finding.message, "a finding says what to do"
        assert finding.repair is None, "nothing is repaired that was not allowed"


def test_every_row_of_the_table_can_be_found() -> None:
    found = {check for _, expected in CASES.values() for check, _ in expected}
    elsewhere = {CheckCode.FATAL_XID, CheckCode.HOT_SPARES}
    assert found | elsewhere == {row.code for row in TABLE} == set(CheckCode)


@pytest.mark.parametrize("xid", sorted(FATAL_XIDS))
def test_a_fatal_xid_is_told_as_such(xid: int) -> None:
    conditions = a_condition("AcceleratedHardwareReady", "False", f"NvidiaXID{xid}Error")
    findings = judged(with_nodes(GROUP, conditions=conditions))
    assert codes(findings) == {(CheckCode.FATAL_XID, ALARM)}
    assert all(f"XID {xid} " in finding.message for finding in findings)


@pytest.mark.parametrize(
    ("type_", "status"),
    [(each, status) for each in MUST_BE_TRUE for status in ("False", "Unknown")]
    + [(each, "True") for each in MUST_BE_FALSE],
)
def test_every_bad_condition_of_kubelet_and_monitoring_agent_is_an_alarm(type_: str, status: str) -> None:
    findings = judged(with_nodes(GROUP, conditions=a_condition(type_, status)))
    assert codes(findings) == {(CheckCode.NODE_CONDITION, ALARM)}


def test_declared_devices_win_over_the_usual_ones() -> None:
    few = with_nodes(GROUP, allocatable={"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "4"})
    assert judged(few, a_trainer(efa_devices=4, accelerators=4)) == ()
    assert codes(judged(GROUP, a_trainer(efa_devices=17))) == {(CheckCode.EFA_DEVICES, ALARM)}
    assert judged(with_nodes(GROUP, allocatable={}), a_trainer(efa_devices=0, accelerators=0)) == ()


def test_hot_spares_are_nodes_of_its_own_that_are_healthy_and_free() -> None:
    trainer = a_trainer(node_labels={"role": "trainer"}, hot_spares=1)
    spare = a_trainer_node(2, instance_id="")
    assert judged(replace(GROUP, nodes=(*GROUP.nodes, spare)), trainer) == ()
    for broken in (None, replace(spare, unschedulable=True), replace(spare, ready=False)):
        nodes = GROUP.nodes if broken is None else (*GROUP.nodes, broken)
        assert (CheckCode.HOT_SPARES, ALARM) in codes(judged(replace(GROUP, nodes=nodes), trainer))


@pytest.mark.parametrize(
    "place",
    ["auto_scaling_group/trainers", "karpenter/trainers", "eks_node_group/some-cluster/trainers"],
)
def test_a_rollout_pool_where_the_trainer_lives_is_an_alarm(place: str) -> None:
    facts = {
        "auto_scaling_group": GROUP,
        "karpenter": KARPENTER,
        "eks_node_group": with_nodes(GROUP, node_group="trainers"),
    }[place.partition("/")[0]]
    found = judged(facts, rollout_places={"spot": place, "other": place + "-of-rollouts"})
    assert codes(found) == {(CheckCode.SHARED_POOL, ALARM)}
    assert "rollout pool spot" in found[0].message


@pytest.mark.parametrize("source", Source)
def test_what_could_not_be_read_is_unknown_and_never_clean(source: Source) -> None:
    blind = replace(GROUP, unread={source: "forbidden"})
    findings = judged(blind)
    unknown = {finding.check for finding in findings if finding.severity is UNKNOWN}
    assert unknown == {row.code for row in TABLE if source in row.needs}
    assert unknown, f"some check needs {source}"
    assert all("forbidden" in finding.message for finding in findings)
    assert protected(findings) is None


def test_a_missing_source_hides_no_alarm_of_another() -> None:
    findings = judged(with_pods(replace(GROUP, unread={Source.MEMBERS: "forbidden"}), qos_class="BestEffort"))
    assert (CheckCode.QOS, ALARM) in codes(findings)
    assert protected(findings) is False


def test_what_the_operator_answers_for_is_not_looked_at() -> None:
    trainer = a_trainer(ignore=frozenset({CheckCode.QOS, CheckCode.SCALE_IN_PROTECTION}))
    bad = with_pods(replace(GROUP, unread={Source.MEMBERS: "forbidden"}), qos_class="BestEffort")
    assert {finding.check for finding in judged(bad, trainer)} == {CheckCode.SHARED_POOL, CheckCode.GROUP_POLICY}


REPAIRS: dict[str, tuple[TrainerFacts, RepairKind, type, int]] = {
    "pods on Karpenter": (with_pods(KARPENTER, annotations={}), RepairKind.ANNOTATIONS, AnnotatePod, 2),
    "nodes of Karpenter": (with_nodes(KARPENTER, annotations={}), RepairKind.ANNOTATIONS, AnnotateNode, 2),
    "pods in a group": (with_pods(GROUP, annotations={}), RepairKind.ANNOTATIONS, AnnotatePod, 2),
    "nodes in a group": (with_nodes(GROUP, annotations={}), RepairKind.ANNOTATIONS, AnnotateNode, 2),
    "no budget": (replace(GROUP, budgets=()), RepairKind.DISRUPTION_BUDGET, CreateBudget, 1),
    "no protection": (with_members(GROUP, protected=False), RepairKind.SCALE_IN_PROTECTION, ProtectFromScaleIn, 2),
}


@pytest.mark.parametrize(("facts", "kind", "command", "count"), REPAIRS.values(), ids=REPAIRS.keys())
def test_a_repair_comes_only_where_it_is_allowed(
    facts: TrainerFacts, kind: RepairKind, command: type, count: int
) -> None:
    allowed = judged(facts, a_trainer(repair=frozenset({kind})))
    assert {finding.severity for finding in allowed} == {REPAIRABLE}
    assert [type(finding.repair) for finding in allowed] == [command] * count
    others = frozenset(RepairKind) - {kind}
    assert all(
        finding.repair is None and finding.severity is ALARM for finding in judged(facts, a_trainer(repair=others))
    )


ALL = a_trainer(repair=frozenset(RepairKind))
SOMEBODY_SET_IT: dict[str, TrainerFacts] = {
    "another value on a pod": with_pods(GROUP, annotations={SAFE_TO_EVICT: "true"}),
    "a duration on a pod": with_pods(KARPENTER, annotations={DO_NOT_DISRUPT: "4h"}),
    "another value on a node": with_nodes(GROUP, annotations={SCALE_DOWN_DISABLED: "false"}),
    "a weak budget": replace(GROUP, budgets=a_budget(max_unavailable="1")),
    "an instance in standby": with_members(GROUP, protected=False, lifecycle_state="Standby"),
}


@pytest.mark.parametrize("facts", SOMEBODY_SET_IT.values(), ids=SOMEBODY_SET_IT.keys())
def test_a_repair_adds_what_is_missing_and_overwrites_nothing(facts: TrainerFacts) -> None:
    findings = judged(facts, ALL)
    assert findings
    assert all(finding.repair is None for finding in findings)


def test_no_second_budget_over_pods_that_have_one() -> None:
    first, second = GROUP.pods
    only_one = replace(
        GROUP,
        pods=(replace(first, labels={**LABELS, "rank": "0"}), second),
        budgets=a_budget(selector=Selector(match_labels={"rank": "0"}), max_unavailable="0"),
    )
    assert [(each.severity, each.repair) for each in judged(only_one, ALL)] == [(ALARM, None)]


def _deadline(finding: Finding) -> float:
    assert isinstance(finding.repair, AnnotatePod)
    ((key, value),) = finding.repair.annotations
    assert key == CHECKPOINT_ANNOTATION
    return datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def test_a_checkpoint_is_asked_of_every_pod_once_and_by_the_first_deadline() -> None:
    event = ScheduledEvent(instance_id=instance(1), code="system-reboot", not_before_s=NOW_S + 300.0)
    facts = replace(in_a_block(900.0), events=(event,))
    asked = [each for each in judged(facts, ALL) if each.check is CheckCode.CHECKPOINT]
    assert [_deadline(finding) for finding in asked] == [NOW_S + 300.0] * 2
    done = replace(
        facts,
        pods=tuple(
            replace(pod, annotations={**pod.annotations, **dict(each.repair.annotations)})
            for pod, each in zip(facts.pods, asked, strict=True)
            if isinstance(each.repair, AnnotatePod)
        ),
    )
    assert CheckCode.CHECKPOINT not in {finding.check for finding in judged(done, ALL)}


def test_the_lead_of_a_checkpoint_is_the_operators() -> None:
    facts = in_a_block(3600.0)
    assert CheckCode.CHECKPOINT not in {each.check for each in judged(facts)}
    assert CheckCode.CHECKPOINT in {each.check for each in judged(facts, a_trainer(checkpoint_lead_s=3600.0))}


def test_findings_come_worst_first_and_the_same_each_time() -> None:
    facts = with_pods(replace(GROUP, unread={Source.MEMBERS: "no"}, budgets=()), qos_class="Burstable", annotations={})
    findings = judged(facts, ALL)
    ranks = [list(Severity).index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert findings == judged(replace(facts, pods=facts.pods[::-1]), ALL)


def test_messages_name_no_secret_place_and_fit_a_line() -> None:
    for facts, _ in CASES.values():
        for finding in judged(facts):
            assert len(finding.message) < 400
            assert re.fullmatch(r"[^\n]+", finding.message)


def test_the_table_of_devices_is_what_ec2_says() -> None:
    """moto carries a record of DescribeInstanceTypes."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    for name, shape in SHAPES.items():
        raw = INSTANCE_TYPES[name]
        devices = (*raw.get("GpuInfo", {}).get("Gpus", ()), *raw.get("NeuronInfo", {}).get("NeuronDevices", ()))
        assert shape.efa == raw["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"], name
        assert shape.accelerators == sum(device["Count"] for device in devices), name
