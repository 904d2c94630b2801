"""What a trainer may lack, as facts, and the check and severity that must be found; nothing else may be."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from scaler.decide.trainer_checks.disruption import DO_NOT_DISRUPT, SAFE_TO_EVICT
from scaler.decide.trainer_checks.health import HYPERPOD_HEALTH
from scaler.model.trainer_facts import (
    Budget,
    DisruptionAllowance,
    Group,
    Neighbour,
    NodeClaim,
    NodeTaint,
    PriorityClass,
    Requirement,
    Reservation,
    ScheduledEvent,
    Selector,
    Shape,
    Toleration,
    TrainerFacts,
    TrainerInstance,
)
from scaler.model.trainers import CheckCode, Severity
from tests.builders.trainers import (
    LABELS,
    NOW_S,
    TAINT,
    a_condition,
    a_node_pool,
    a_trainer_node,
    in_a_block,
    in_a_group,
    instance,
    on_karpenter,
    with_members,
    with_nodes,
    with_pods,
)

ALARM, WARN, UNKNOWN, REPAIRABLE = Severity.ALARM, Severity.WARN, Severity.UNKNOWN, Severity.REPAIRABLE
GROUP, KARPENTER = in_a_group(), on_karpenter()
SPOT = TrainerInstance(instance_id=instance(0), lifecycle="spot")


def a_budget(**over: Any) -> tuple[Budget, ...]:
    plain: dict[str, Any] = {
        "name": "trainer",
        "selector": Selector(match_labels=LABELS),
        "max_unavailable": "",
        "min_available": "",
    }
    return (Budget(**{**plain, **over}),)


def _pool(**over: Any) -> TrainerFacts:
    return replace(KARPENTER, node_pools={"trainers": a_node_pool(**over)})


def _claim(**over: Any) -> TrainerFacts:
    plain = {"name": "claim-0", "node_name": "node-0", "expire_after": "Never", "termination_grace": ""}
    return replace(KARPENTER, claims=(NodeClaim(**{**plain, **over}),))


def _neighbour(**over: Any) -> TrainerFacts:
    plain: dict[str, Any] = {"namespace": "rl", "name": "other", "belongs": False, "takes_devices": False}
    return replace(GROUP, neighbours={"node-0": (Neighbour(**{**plain, **over}),)})


def _rollouts(value: int, *, never: bool, used: str = "rollout") -> TrainerFacts:
    classes = {"rollout": PriorityClass(name="rollout", value=value, never_preempts=never)}
    return replace(GROUP, priority_classes=classes, rollout_classes=frozenset({used}))


def _event(in_s: float | None) -> TrainerFacts:
    not_before_s = None if in_s is None else NOW_S + in_s
    event = ScheduledEvent(instance_id=instance(0), code="instance-retirement", not_before_s=not_before_s)
    return replace(GROUP, events=(event,))


def _placed_by(*ways: Iterable[Requirement], **selector: str) -> TrainerFacts:
    fixed = {key.replace("__", "/").replace("_", "."): value for key, value in selector.items()}
    return with_pods(KARPENTER, node_terms=tuple(map(tuple, ways)), node_selector=fixed)


def _in(key: str, *values: str) -> Requirement:
    return Requirement(key=key, operator="In", values=values)


C = CheckCode
CASES: dict[str, tuple[TrainerFacts, set[tuple[CheckCode, Severity]]]] = {
    "in a group it lacks nothing": (GROUP, set()),
    "on Karpenter it lacks nothing": (KARPENTER, set()),
    "no pod is found": (replace(GROUP, pods=()), {(C.PODS, WARN)}),
    "EC2 says that an instance is spot": (
        replace(GROUP, instances={**GROUP.instances, instance(0): SPOT}),
        {(C.CAPACITY_TYPE, ALARM)},
    ),
    "a label says that a node is spot": (with_nodes(GROUP, capacity_type="spot"), {(C.CAPACITY_TYPE, ALARM)}),
    "a reservation can be interrupted": (
        replace(
            GROUP,
            instances={
                instance(0): TrainerInstance(instance_id=instance(0), lifecycle="interruptible-capacity-reservation")
            },
        ),
        {(C.CAPACITY_TYPE, ALARM)},
    ),
    "its on-demand instance fills an interruptible reservation": (
        replace(
            GROUP,
            instances={
                instance(0): TrainerInstance(instance_id=instance(0), lifecycle="on-demand", reservation_id="cr-1")
            },
            reservations={
                "cr-1": Reservation(reservation_id="cr-1", capacity_block=False, interruptible=True, ends_at_s=None)
            },
        ),
        {(C.CAPACITY_TYPE, ALARM)},
    ),
    "nobody tells how a node was bought": (
        with_nodes(replace(GROUP, instances={}), capacity_type=""),
        {(C.CAPACITY_TYPE, UNKNOWN)},
    ),
    "a reserved node of Karpenter": (with_nodes(replace(KARPENTER, instances={}), capacity_type="reserved"), set()),
    "nothing keeps its pods off spot": (_placed_by(), {(C.PLACEMENT, ALARM)}),
    "one of two ways leads to spot": (
        _placed_by([_in("karpenter.sh/capacity-type", "on-demand")], [_in("zone", "a")]),
        {(C.PLACEMENT, ALARM)},
    ),
    "its affinity lets spot in": (
        _placed_by([_in("karpenter.sh/capacity-type", "spot", "on-demand")]),
        {(C.PLACEMENT, ALARM)},
    ),
    "its affinity excludes spot by NotIn": (
        _placed_by([Requirement(key="karpenter.sh/capacity-type", operator="NotIn", values=("spot",))]),
        set(),
    ),
    "its affinity names EKS's SPOT in capitals": (
        _placed_by([_in("eks.amazonaws.com/capacityType", "SPOT")]),
        {(C.PLACEMENT, ALARM)},
    ),
    "a node selector holds for all ways": (
        _placed_by([_in("zone", "a")], [_in("zone", "b")], karpenter_sh__nodepool="trainers"),
        set(),
    ),
    "its NodePool may buy spot": (
        replace(
            _placed_by(karpenter_sh__nodepool="trainers"),
            node_pools={"trainers": a_node_pool(capacity_types=frozenset({"spot", "on-demand"}))},
        ),
        {(C.PLACEMENT, ALARM)},
    ),
    "a node has no taint of its own": (with_nodes(GROUP, taints=()), {(C.TAINT, ALARM)}),
    "only the GPU's taint, which rollouts tolerate": (
        with_nodes(GROUP, taints=(NodeTaint(key="nvidia.com/gpu", value="true", effect="NoSchedule"),)),
        {(C.TAINT, ALARM)},
    ),
    "its taint only prefers others to stay away": (
        with_nodes(GROUP, taints=(replace(TAINT, effect="PreferNoSchedule"),)),
        {(C.TAINT, ALARM)},
    ),
    "its pods do not tolerate the taint": (with_pods(GROUP, tolerations=()), {(C.TOLERATION, ALARM)}),
    "they tolerate another value": (
        with_pods(GROUP, tolerations=(Toleration(key=TAINT.key, value="other"),)),
        {(C.TOLERATION, ALARM)},
    ),
    "they tolerate everything": (with_pods(GROUP, tolerations=(Toleration(operator="Exists"),)), set()),
    "a pod may be drained by Karpenter": (
        with_pods(KARPENTER, annotations={SAFE_TO_EVICT: "false"}),
        {(C.POD_DO_NOT_DISRUPT, ALARM)},
    ),
    "a pod is protected for a while only": (
        with_pods(KARPENTER, annotations={DO_NOT_DISRUPT: "2h"}),
        {(C.POD_DO_NOT_DISRUPT, WARN)},
    ),
    "a pod says that it may be disrupted": (
        with_pods(KARPENTER, annotations={DO_NOT_DISRUPT: "false"}),
        {(C.POD_DO_NOT_DISRUPT, ALARM)},
    ),
    "a node may be disrupted by Karpenter": (
        with_nodes(KARPENTER, annotations={}),
        {(C.NODE_DO_NOT_DISRUPT, ALARM)},
    ),
    "a pod may be evicted by cluster-autoscaler": (with_pods(GROUP, annotations={}), {(C.SAFE_TO_EVICT, ALARM)}),
    "a pod says that it is safe to evict": (
        with_pods(GROUP, annotations={SAFE_TO_EVICT: "true"}),
        {(C.SAFE_TO_EVICT, ALARM)},
    ),
    "a node may be removed by cluster-autoscaler": (
        with_nodes(GROUP, annotations={}),
        {(C.SCALE_DOWN_DISABLED, ALARM)},
    ),
    "a NodePool has no budget": (_pool(allowances=()), {(C.NODE_POOL_BUDGETS, ALARM)}),
    "its budget lets a tenth go": (
        _pool(allowances=(DisruptionAllowance(nodes="10%"),)),
        {(C.NODE_POOL_BUDGETS, ALARM)},
    ),
    "its budget of 0 holds for drift only": (
        _pool(allowances=(DisruptionAllowance(nodes="0", reasons=frozenset({"Drifted"})),)),
        {(C.NODE_POOL_BUDGETS, ALARM)},
    ),
    "its budget of 0 holds by day only": (
        _pool(allowances=(DisruptionAllowance(nodes="0", scheduled=True),)),
        {(C.NODE_POOL_BUDGETS, ALARM)},
    ),
    "its budget of 0 names all reasons": (
        _pool(allowances=(DisruptionAllowance(nodes="0", reasons=frozenset({"Drifted", "Empty", "Underutilized"})),)),
        set(),
    ),
    "a NodePool ends nodes by age": (_pool(expire_after="720h"), {(C.NODE_POOL_EXPIRY, ALARM)}),
    "a NodeClaim still ends its node by age": (_claim(expire_after="720h"), {(C.NODE_POOL_EXPIRY, ALARM)}),
    "a NodePool consolidates": (_pool(consolidate_after="30s"), {(C.NODE_POOL_CONSOLIDATION, ALARM)}),
    "a NodePool ends drains by force": (_pool(termination_grace="1h"), {(C.NODE_POOL_GRACE, ALARM)}),
    "a NodeClaim still ends drains by force": (_claim(termination_grace="1h"), {(C.NODE_POOL_GRACE, ALARM)}),
    "no disruption budget": (replace(GROUP, budgets=()), {(C.DISRUPTION_BUDGET, ALARM)}),
    "a disruption budget that selects nothing": (
        replace(GROUP, budgets=a_budget(selector=None, max_unavailable="0")),
        {(C.DISRUPTION_BUDGET, ALARM)},
    ),
    "a disruption budget of other pods": (
        replace(GROUP, budgets=a_budget(selector=Selector(match_labels={"app": "other"}), max_unavailable="0")),
        {(C.DISRUPTION_BUDGET, ALARM)},
    ),
    "a disruption budget that lets one go": (
        replace(GROUP, budgets=a_budget(max_unavailable="1")),
        {(C.DISRUPTION_BUDGET, ALARM)},
    ),
    "a disruption budget that keeps all": (replace(GROUP, budgets=a_budget(min_available="100%")), set()),
    "an empty selector selects all": (
        replace(GROUP, budgets=a_budget(selector=Selector(), max_unavailable="0")),
        set(),
    ),
    "a budget by expressions": (
        replace(
            GROUP,
            budgets=a_budget(selector=Selector(requirements=(_in("app", "trainer", "critic"),)), max_unavailable="0%"),
        ),
        set(),
    ),
    "two disruption budgets": (
        replace(GROUP, budgets=a_budget(max_unavailable="0") + a_budget(name="b", max_unavailable="0")),
        {(C.DISRUPTION_BUDGET, WARN)},
    ),
    "rollouts are as important": (
        _rollouts(100_000, never=True),
        {(C.PRIORITY, ALARM)},
    ),
    "rollouts may preempt it": (
        _rollouts(200_000, never=False),
        {(C.PRIORITY, ALARM), (C.ROLLOUT_PREEMPTION, ALARM)},
    ),
    "rollouts may preempt others": (_rollouts(10, never=False), {(C.ROLLOUT_PREEMPTION, WARN)}),
    "rollouts without a priority class": (_rollouts(10, never=True, used=""), {(C.ROLLOUT_PREEMPTION, WARN)}),
    "it has no priority and rollouts neither": (
        with_pods(_rollouts(10, never=True, used=""), priority=0),
        {(C.PRIORITY, ALARM), (C.ROLLOUT_PREEMPTION, WARN)},
    ),
    "its pods are burstable": (with_pods(GROUP, qos_class="Burstable"), {(C.QOS, ALARM)}),
    "somebody else's pod on its node": (_neighbour(), {(C.CO_TENANCY, ALARM)}),
    "a daemon on its node": (_neighbour(belongs=True), set()),
    "a daemon that takes devices": (_neighbour(belongs=True, takes_devices=True), {(C.CO_TENANCY, ALARM)}),
    "a system pod on its node": (_neighbour(namespace="kube-system"), {(C.CO_TENANCY, WARN)}),
    "a fleet claims its node": (with_nodes(GROUP, fleet="rl.demo"), {(C.SHARED_POOL, ALARM)}),
    "its group may scale it in": (with_members(GROUP, protected=False), {(C.SCALE_IN_PROTECTION, ALARM)}),
    "it is in standby": (
        with_members(GROUP, protected=False, lifecycle_state="Standby"),
        {(C.SCALE_IN_PROTECTION, ALARM)},
    ),
    "its group ends it although protected": (
        with_members(GROUP, lifecycle_state="Terminating:Wait"),
        {(C.SCALE_IN_PROTECTION, ALARM)},
    ),
    "the API may terminate it": (
        replace(GROUP, termination_protected=dict.fromkeys(GROUP.instances, False)),
        {(C.TERMINATION_PROTECTION, WARN)},
    ),
    "CA#6787: its group mixes on-demand and spot by share": (
        replace(GROUP, groups={"trainers": Group(name="trainers", buys_spot=True)}),
        {(C.GROUP_POLICY, ALARM)},
    ),
    "its group replaces instances by age": (
        replace(GROUP, groups={"trainers": Group(name="trainers", buys_spot=False, max_lifetime_s=86400)}),
        {(C.GROUP_POLICY, ALARM)},
    ),
    "EC2 has an event for it tomorrow": (_event(86400.0), {(C.SCHEDULED_EVENT, ALARM)}),
    "EC2 has an event for it in ten minutes": (
        _event(600.0),
        {(C.SCHEDULED_EVENT, ALARM), (C.CHECKPOINT, ALARM)},
    ),
    "EC2 has an event without a time": (_event(None), {(C.SCHEDULED_EVENT, ALARM)}),
    "its block ends next week": (in_a_block(7 * 86400.0), set()),
    "its block ends within a day": (in_a_block(80000.0), {(C.CAPACITY_END, WARN)}),
    "its block ends in 20 minutes": (in_a_block(1200.0), {(C.CAPACITY_END, ALARM), (C.CHECKPOINT, ALARM)}),
    "its block ends in 20 minutes and a second": (in_a_block(1201.0), {(C.CAPACITY_END, WARN)}),
    "EKS drains its block ten minutes earlier": (
        in_a_block(1800.0, node_group="trainers"),
        {(C.CAPACITY_END, ALARM), (C.CHECKPOINT, ALARM)},
    ),
    "its block has begun to go": (in_a_block(-1.0), {(C.CAPACITY_END, ALARM)}),
    "nobody tells when its block ends": (
        replace(in_a_block(600.0), reservations={}),
        {(C.CAPACITY_END, UNKNOWN)},
    ),
    "its node is gone": (
        replace(GROUP, nodes=(a_trainer_node(0),)),
        {(C.NODE_CONDITION, ALARM)},
    ),
    "the agent saw a failed NVLink": (
        with_nodes(GROUP, conditions=a_condition("AcceleratedHardwareReady", "False", "NvidiaNVLinkError")),
        {(C.NODE_CONDITION, ALARM)},
    ),
    "an XID that is not fatal": (
        with_nodes(GROUP, conditions=a_condition("AcceleratedHardwareReady", "False", "NvidiaXID13Error")),
        {(C.NODE_CONDITION, ALARM)},
    ),
    "its kubelet is silent": (
        with_nodes(GROUP, conditions=a_condition("Ready", "Unknown", "NodeStatusUnknown")),
        {(C.NODE_CONDITION, ALARM)},
    ),
    "HyperPod will replace its node": (
        with_nodes(GROUP, labels={HYPERPOD_HEALTH: "UnschedulablePendingReplacement"}),
        {(C.HYPERPOD_HEALTH, ALARM)},
    ),
    "HyperPod is content": (with_nodes(GROUP, labels={HYPERPOD_HEALTH: "Schedulable"}), set()),
    "its node is being deleted": (with_nodes(GROUP, deleting=True), {(C.NODE_LEAVING, ALARM)}),
    "Karpenter disrupts its node": (
        with_nodes(KARPENTER, taints=(TAINT, NodeTaint(key="karpenter.sh/disrupted", value="", effect="NoSchedule"))),
        {(C.NODE_LEAVING, ALARM)},
    ),
    "we of all people drain its node": (
        with_nodes(GROUP, taints=(TAINT, NodeTaint(key="headrace.dev/draining", value="", effect="NoSchedule"))),
        {(C.NODE_LEAVING, ALARM)},
    ),
    "its node is cordoned": (with_nodes(GROUP, unschedulable=True), {(C.NODE_LEAVING, WARN)}),
    "an EFA device is missing": (
        with_nodes(GROUP, allocatable={"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "15"}),
        {(C.EFA_DEVICES, ALARM)},
    ),
    "a GPU is missing": (
        with_nodes(GROUP, allocatable={"nvidia.com/gpu": "7", "vpc.amazonaws.com/efa": "16"}),
        {(C.ACCELERATORS, ALARM)},
    ),
    "no device plug-in runs": (
        with_nodes(GROUP, allocatable={}),
        {(C.ACCELERATORS, ALARM), (C.EFA_DEVICES, ALARM)},
    ),
    "it never asked for EFA": (
        with_nodes(with_pods(GROUP, requests={"nvidia.com/gpu": 8}), allocatable={"nvidia.com/gpu": "8"}),
        set(),
    ),
    "EC2 itself tells of more devices than the table": (
        replace(GROUP, shapes={"p5en.48xlarge": Shape(efa=32, accelerators=8)}),
        {(C.EFA_DEVICES, ALARM)},
    ),
}
