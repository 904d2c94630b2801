"""The veto: whatever is known, half known or not known of trainers, nothing that names one of them passes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.guard.protect import FRESH_S, KEPT_S, Protector
from scaler.kube.facts import FLEET_LABEL
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    Reason,
    ReasonCode,
    ReleaseReplicaWork,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.trainer_facts import Source, TrainerFacts
from scaler.model.trainers import TrainerSpec
from tests.builders.clock import FakeClock
from tests.builders.trainers import LABELS, NOW_S, Nodes, Pods, a_trainer, in_a_group, instance, node_facts, pod_facts

REASON = Reason(code=ReasonCode.SIZE_DOWN, message="")
FLEET = "rl.demo"
OURS, STRANGER, UNJOINED = instance(100), instance(101), instance(102)


@dataclass
class World:
    """Trainers on two nodes, a rollout node of ours, one of nobody's, and the veto."""

    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW_S))
    nodes: Nodes = field(default_factory=Nodes)
    pods: Pods = field(default_factory=Pods)
    trainers: Sequence[TrainerSpec] = (a_trainer(),)
    places: dict[str, str] = field(default_factory=lambda: {"spot": "auto_scaling_group/rollouts"})
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes.held = [
            node_facts("ours", instance_id=OURS, labels={FLEET_LABEL: FLEET}),
            node_facts("stranger", instance_id=STRANGER),
        ]
        self.nodes.current = self.pods.current = self.clock.now_s
        self.veto = Protector(
            clock=self.clock,
            nodes=self.nodes,
            pods=self.pods,
            trainers=lambda: self.trainers,
            fleet=lambda: FLEET,
            places=lambda: self.places,
            count=self.refused.append,
        )

    def read(self, facts: TrainerFacts) -> None:
        """A reading at this moment."""
        self.veto.learn([replace(facts, read_at_s=self.clock.now_s())])


def commands(names: Sequence[str]) -> list[Command]:
    """Every kind of command that names something: with these as instances, and with each as replica or worker."""
    ids = tuple(names)
    found: list[Command] = [
        TerminateReplica(stage="rollout", pool="spot", replica_id="r", instance_ids=ids, reason=REASON),
        DetachReplica(stage="rollout", pool="spot", replica_id="r", instance_ids=ids, reason=REASON),
        DrainReplica(
            stage="rollout", pool="spot", replica_id="r", worker=None, instance_ids=ids, deadline_s=0.0, reason=REASON
        ),
    ]
    for name in names:
        found += [
            TerminateReplica(stage="rollout", pool="spot", replica_id=name, instance_ids=(OURS,), reason=REASON),
            UndrainReplica(stage="rollout", pool="spot", replica_id=name, worker="w", reason=REASON),
            ReleaseReplicaWork(stage="rollout", pool="spot", replica_id="r", worker=name, reason=REASON),
        ]
    return found


def named_by(command: Command) -> set[object]:
    return {*getattr(command, "instance_ids", ()), getattr(command, "replica_id", ""), getattr(command, "worker", "")}


TRAINER_NAMES = [instance(0), instance(1), "node-0", "node-uid-1", "pod-uid-0"]


@given(
    mixed=st.lists(st.sampled_from([OURS, STRANGER, UNJOINED]), max_size=3),
    trainer=st.sampled_from(TRAINER_NAMES),
    place=st.integers(0, 3),
    age_s=st.floats(0.0, 100 * 86400.0),
    lost=st.frozensets(st.sampled_from([Source.PODS, Source.NODES])),
    index_dead=st.booleans(),
    nodes_gone=st.booleans(),
)
def test_no_command_that_names_a_trainers_thing_passes_however_old_the_facts_are(
    mixed: list[str],
    trainer: str,
    place: int,
    age_s: float,
    lost: frozenset[Source],
    index_dead: bool,
    nodes_gone: bool,
) -> None:
    world = World()
    world.read(in_a_group())
    world.clock.pass_time(age_s)
    if lost:
        world.veto.learn([TrainerFacts(trainer="policy", read_at_s=None, unread=dict.fromkeys(lost, "gone"))])
    if index_dead:
        world.nodes.current = lambda: None
    if nodes_gone:
        world.nodes.held.clear()
    named = [*mixed[:place], trainer, *mixed[place:]]
    for command in commands(named):
        if trainer in named_by(command):
            assert world.veto.objection(command) is not None
    assert world.veto.against_instance(trainer) is not None or not trainer.startswith("i-")
    assert world.veto.against_node("node-0", "") is not None
    assert world.veto.against_node("renamed", "node-uid-0") is not None
    assert world.veto.against_pod("pod-uid-1") is not None
    assert world.veto.against_pod("pod-of-somebody-else", "node-1") is not None


@given(named=st.lists(st.sampled_from([OURS, STRANGER, UNJOINED, instance(0)]), min_size=1, max_size=4))
def test_before_trainers_were_read_only_nodes_known_to_be_ours_may_be_touched(named: list[str]) -> None:
    world = World()
    for command in commands(named)[:3]:
        assert (world.veto.objection(command) is None) is (set(named) == {OURS})


@pytest.mark.parametrize("blind", ["facts are old", "the last reading failed from the start", "nodes are not watched"])
def test_while_nothing_fresh_is_known_only_nodes_known_to_be_ours_may_be_touched(blind: str) -> None:
    world = World()
    if blind == "the last reading failed from the start":
        world.veto.learn([TrainerFacts(trainer="policy", read_at_s=None, unread={Source.PODS: "forbidden"})])
    else:
        world.read(in_a_group())
        assert world.veto.against_instance(UNJOINED) is None
        if blind == "facts are old":
            world.clock.pass_time(FRESH_S + 1.0)
        else:
            world.nodes.current = lambda: None
    assert world.veto.against_instance(OURS) is None
    assert world.veto.against_instance(STRANGER) is not None
    assert world.veto.against_instance(UNJOINED) is not None
    assert world.veto.against_node("unheard-of") is not None
    assert world.veto.against_pod("unheard-of") is not None


def test_a_trainer_pod_that_nobody_has_told_of_yet_protects_its_node_at_once() -> None:
    world = World()
    world.read(in_a_group())
    assert world.veto.against_instance(OURS) is None
    world.pods.held.append(pod_facts("moved", "ours", labels=LABELS))
    assert world.veto.against_instance(OURS) is not None
    assert world.veto.against_node("ours") is not None
    assert world.veto.against_pod("uid-of-moved") is not None


def test_nodes_set_aside_are_a_trainers_also_while_empty_and_before_anything_was_read() -> None:
    world = World(trainers=(a_trainer(node_labels={"role": "trainer"}),))
    world.nodes.held.append(node_facts("idle", instance_id=instance(7), labels={"role": "trainer", FLEET_LABEL: FLEET}))
    assert world.veto.against_instance(instance(7)) is not None


def test_a_trainer_that_restarts_keeps_its_nodes_and_one_that_has_left_gives_them_up() -> None:
    world = World()
    world.read(in_a_group())
    gone = replace(in_a_group(), pods=(), nodes=())
    for _ in range(int(KEPT_S / 60.0)):
        world.read(gone)
        assert world.veto.against_instance(instance(0)) is not None
        world.clock.pass_time(60.0)
    world.read(gone)
    assert world.veto.against_instance(instance(0)) is None


def test_a_failed_reading_takes_nothing_away_however_often_it_fails() -> None:
    world = World()
    world.read(in_a_group())
    for _ in range(100):
        world.clock.pass_time(KEPT_S)
        world.veto.learn([TrainerFacts(trainer="policy", read_at_s=NOW_S, unread={Source.NODES: "behind"})])
    assert world.veto.untouchable.instance_ids == {instance(0), instance(1)}


def test_no_launch_goes_where_a_trainer_lives() -> None:
    world = World(places={"spot": "auto_scaling_group/trainers", "other": "auto_scaling_group/rollouts"})
    world.read(in_a_group())

    def launch(pool: str) -> LaunchReplica:
        return LaunchReplica(token="t", stage="rollout", pool=pool, offering_id="o", reason=REASON)

    assert world.veto.objection(launch("spot")) == "a trainer lives in auto_scaling_group/trainers"
    assert world.veto.objection(launch("other")) is None


def test_bug_030_a_guard_never_keeps_a_noticed_rollout_node_from_being_drained() -> None:
    """A guard against choices that also blocked what the cloud had decided (Karpenter #3383, #3442)."""
    world = World()
    notice = InterruptionNotice(
        instance_id=OURS, kind=NoticeKind.SPOT_INTERRUPTION, noticed_at_s=NOW_S, deadline_s=NOW_S + 120.0
    )
    drain = DrainReplica(
        stage="rollout",
        pool="spot",
        replica_id="r",
        worker="w",
        instance_ids=(OURS,),
        deadline_s=NOW_S + 110.0,
        reason=REASON,
        notice=notice,
    )
    for learnt in ([], [in_a_group()]):
        world.veto.learn(learnt)
        assert world.veto.objection(drain) is None
        assert world.veto.against_node("ours") is None


def test_a_fleet_without_trainers_is_not_hindered() -> None:
    world = World(trainers=())
    assert all(world.veto.objection(command) is None for command in commands([OURS, STRANGER, UNJOINED]))
    assert world.veto.against_pod("any") is None
    assert world.refused == []


def test_what_was_refused_is_counted_by_kind() -> None:
    world = World()
    world.read(in_a_group())
    for command in commands([instance(0)])[:3]:
        world.veto.objection(command)
    world.veto.against_node("node-0")
    assert world.refused == ["TerminateReplica", "DetachReplica", "DrainReplica", "node"]


def test_bug_100_an_empty_name_finds_nothing() -> None:
    """Karpenter core #2507: an empty key that matches everything."""
    world = World()
    facts = in_a_group()
    nameless = replace(facts, pods=tuple(replace(pod, node_name="") for pod in facts.pods))
    world.read(replace(nameless, nodes=tuple(replace(node, instance_id="") for node in facts.nodes), members={}))
    assert "" not in world.veto.untouchable.names
    assert world.veto.against_instance(OURS) is None
