"""Rows about the capacity under a trainer: how it was bought, what its group or its cloud will do to it, and when it ends.

A capacity block goes by the calendar: EC2 begins to end instances 30 min before its end, EKS managed node groups drain 40 min
before. A trainer is asked for a checkpoint its lead time before that, and before a scheduled EC2 event likewise: on all of its
pods, since a job that loses a node loses its step. Sources: design section 5b, research "deepep-efa" sections 4.2 and 4.3,
research "autoscalers" 45.
"""

from collections.abc import Iterator

from scaler.decide.trainer_checks.case import Case, Found, Row, node_found, row
from scaler.model.trainer_facts import ScheduledEvent, Source, TrainerNode
from scaler.model.trainers import (
    CHECKPOINT_ANNOTATION,
    AnnotatePod,
    CheckCode,
    ProtectFromScaleIn,
    RepairKind,
    Severity,
    SubjectKind,
)
from scaler.model.units import utc_text

BLOCK_ENDS_BEFORE_S = 1800.0
MANAGED_BLOCK_ENDS_BEFORE_S = 2400.0
_TELL_BEFORE_S = 86400.0
"""A person hears of the end of a block a day before."""
_STEADY = frozenset({"on-demand", "reserved", "capacity-block", "scheduled"})
_IN_SERVICE = "InService"


def _capacity_type(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        instance = case.facts.instances.get(node.instance_id)
        bought = instance.lifecycle if instance else node.capacity_type
        if bought in _STEADY and "spot" not in (bought, node.capacity_type):
            if instance and _interruptible(case, instance.reservation_id):
                yield node_found(node, "its reservation can be interrupted: move the trainer to one that cannot")
        elif bought:
            yield node_found(
                node,
                f"it is {_worst(bought, node.capacity_type)} capacity: move the trainer to on-demand, reserved or "
                "capacity-block nodes",
            )
        else:
            yield node_found(
                node,
                "how it was bought cannot be told, neither by label nor by EC2: label it, or allow "
                "ec2:DescribeInstances",
                Severity.UNKNOWN,
            )


def _worst(bought: str, label: str) -> str:
    return "spot" if label == "spot" else bought


def _interruptible(case: Case, reservation_id: str) -> bool:
    reservation = case.facts.reservations.get(reservation_id)
    return reservation is not None and reservation.interruptible


def _scale_in_protection(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        member = case.facts.members.get(node.instance_id)
        if member is None or (member.protected and not member.lifecycle_state.startswith("Terminating")):
            continue
        if member.lifecycle_state == _IN_SERVICE:
            yield Found(
                kind=SubjectKind.INSTANCE,
                subject=node.instance_id,
                message=f"group {member.group} may take it when it scales in: set scale-in protection",
                repair=ProtectFromScaleIn(group=member.group, instance_id=node.instance_id),
                repair_kind=RepairKind.SCALE_IN_PROTECTION,
            )
        else:
            yield _instance_found(
                node.instance_id,
                f"it is {member.lifecycle_state} in group {member.group}, where protection does not hold: bring it back "
                "into service",
            )


def _termination_protection(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        if case.facts.termination_protected.get(node.instance_id) is False:
            yield _instance_found(
                node.instance_id,
                "an API call can terminate it: set disableApiTermination, where its owner does not end instances by "
                "that call itself",
                Severity.WARN,
            )


def _group_policy(case: Case) -> Iterator[Found]:
    for group in sorted(case.facts.groups.values(), key=lambda each: each.name):
        if group.buys_spot:
            yield _group_found(
                group.name,
                "its mixed instances policy buys spot too, and ends one kind to keep the shares: split the "
                "trainer's capacity from spot",
            )
        if group.max_lifetime_s:
            yield _group_found(
                group.name,
                f"it replaces instances after {group.max_lifetime_s} s, protected or not: remove the maximum "
                "instance lifetime",
            )


def _scheduled_event(case: Case) -> Iterator[Found]:
    for event in _events(case):
        at = utc_text(event.not_before_s) if event.not_before_s is not None else "a time not told"
        yield _instance_found(
            event.instance_id, f"EC2 has scheduled {event.code} for {at}: take a checkpoint and replace the node before"
        )


def _events(case: Case) -> Iterator[ScheduledEvent]:
    ours = {node.instance_id for node in case.facts.nodes if node.instance_id}
    return (event for event in case.facts.events if event.instance_id in ours)


def _block_deadline_s(case: Case, node: TrainerNode) -> float | None:
    """When the node's capacity block begins to be taken away; None where it is in none, or EC2 did not tell."""
    instance = case.facts.instances.get(node.instance_id)
    reservation = case.facts.reservations.get(instance.reservation_id) if instance else None
    if reservation is None or not reservation.capacity_block or reservation.ends_at_s is None:
        return None
    return reservation.ends_at_s - (MANAGED_BLOCK_ENDS_BEFORE_S if node.node_group else BLOCK_ENDS_BEFORE_S)


def _in_block(case: Case, node: TrainerNode) -> bool:
    instance = case.facts.instances.get(node.instance_id)
    return instance is not None and instance.lifecycle == "capacity-block"


def _capacity_end(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        deadline_s = _block_deadline_s(case, node)
        if deadline_s is None and _in_block(case, node):
            yield _instance_found(
                node.instance_id,
                "it is in a capacity block whose end EC2 does not tell: note the end yourself, or let the reservation "
                "be read",
                Severity.UNKNOWN,
            )
        if deadline_s is None or case.now_s < deadline_s - _TELL_BEFORE_S:
            continue
        soon = case.now_s >= deadline_s - case.settings.trainer.checkpoint_lead_s
        yield _instance_found(
            node.instance_id,
            f"its capacity block is taken away from {utc_text(deadline_s)} on: extend it, or have a checkpoint and other "
            "capacity by then",
            Severity.ALARM if soon else Severity.WARN,
        )


def _checkpoint(case: Case) -> Iterator[Found]:
    """Asked for on every pod once the first deadline is near; a pod that carries that time has been asked."""
    deadlines_s = [_block_deadline_s(case, node) for node in case.facts.nodes]
    deadlines_s += [event.not_before_s for event in _events(case)]
    ahead = [at_s for at_s in deadlines_s if at_s is not None and at_s > case.now_s]
    if not ahead or case.now_s < min(ahead) - case.settings.trainer.checkpoint_lead_s:
        return
    by = utc_text(min(ahead))
    for pod in case.facts.pods:
        if pod.annotations.get(CHECKPOINT_ANNOTATION) != by:
            yield Found(
                kind=SubjectKind.POD,
                subject=f"{pod.namespace}/{pod.name}",
                message=f"capacity of the trainer goes at {by}: let it take a checkpoint now",
                repair=AnnotatePod(
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=pod.uid,
                    resource_version=pod.resource_version,
                    annotations=((CHECKPOINT_ANNOTATION, by),),
                ),
                repair_kind=RepairKind.CHECKPOINT,
            )


def _instance_found(instance_id: str, message: str, severity: Severity = Severity.ALARM) -> Found:
    return Found(kind=SubjectKind.INSTANCE, subject=instance_id, message=message, severity=severity)


def _group_found(name: str, message: str) -> Found:
    return Found(kind=SubjectKind.GROUP, subject=name, message=message)


ROWS: tuple[Row, ...] = (
    row(CheckCode.CAPACITY_TYPE, _capacity_type, Source.NODES),
    row(CheckCode.SCALE_IN_PROTECTION, _scale_in_protection, Source.NODES, Source.MEMBERS),
    row(CheckCode.TERMINATION_PROTECTION, _termination_protection, Source.NODES, Source.TERMINATION_PROTECTION),
    row(CheckCode.GROUP_POLICY, _group_policy, Source.NODES, Source.MEMBERS, Source.GROUPS),
    row(CheckCode.SCHEDULED_EVENT, _scheduled_event, Source.NODES, Source.INSTANCE_STATUS),
    row(CheckCode.CAPACITY_END, _capacity_end, Source.NODES, Source.INSTANCES, Source.RESERVATIONS),
    row(CheckCode.CHECKPOINT, _checkpoint, Source.PODS, Source.NODES),
)
