"""A fleet of 48 nodes that Karpenter supplies, its own consolidation on; 16 are a trainer's: from its floor to its ceiling,
through the loss of a third of its claims at once, back to its floor.

What is believed is what the servers say: the API server's objects and its audit log, the ledger's history.
"""

from collections.abc import Collection
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from scaler.model.trainers import TrainerSpec
from tests.builders.trainer_recorder import TrainerRecorder
from tests.cluster.fixtures import require
from tests.e2e.cluster.base import NAMESPACE, Life
from tests.e2e.cluster.karpenter import CHEAPER, ROLLOUT, TYPE, WITH, KarpenterBed, a_karpenter_bed, add_trainers

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

_TRAINERS, _LABELS = 16, {"app": "trainer"}
_THIRD = 10
_CEILING, _FLOOR, _SMALL, _PAIRS = 32, 2, 4, 6


async def test_floor_ceiling_loss_and_floor_again(tmp_path: Path) -> None:
    require(*WITH)
    async with a_karpenter_bed(tmp_path) as bed:
        await add_trainers(bed, _TRAINERS, _LABELS)
        recorder = TrainerRecorder(bed.api, [TrainerSpec(name="trainer", namespace=NAMESPACE, match_labels=_LABELS)])
        await recorder.snapshot()
        bed.eat(80.0)
        bed.start()
        await bed.fleet(trainers=[{"name": "trainer", "selector": {"matchLabels": _LABELS}}])
        await bed.until("the floor", lambda: bed.serving() >= _FLOOR)
        await bed.until("the ceiling", lambda: bed.serving() == _CEILING, 120)

        gone = set(sorted(bed.working())[:_THIRD])
        theirs = [life for life in bed.lives.values() if life.node_name in gone]
        await bed.take(gone)
        await bed.until("every worker on them hands over", lambda: all(_hands_over(bed, life) for life in theirs), 20)
        assert 2 * len(bed.marked(gone)) >= _THIRD, "the ledger told those that did not leave before it could"
        await bed.until("as many as before, without them", lambda: bed.serving(gone) == _CEILING, 120)
        await bed.until("their nodes are gone", lambda: gone.isdisjoint(bed.nodes_of(ROLLOUT)))
        assert bed.most_replicas == _CEILING, "each was replaced once"
        before = bed.working()

        bed.eat(2.0)
        await bed.until("the floor again", lambda: len(bed.replicas()) == _FLOOR, 180)
        await bed.until("its nodes", lambda: len(bed.nodes_of(ROLLOUT)) == _FLOOR)
        _ended_as_they_should(bed, gone, before)
        assert await recorder.changes() == []
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


async def test_nodes_that_work_and_that_consolidation_replaces_are_noticed_and_hand_over_first(tmp_path: Path) -> None:
    require(*WITH)
    async with a_karpenter_bed(tmp_path, bought="on-demand", types=(TYPE, CHEAPER)) as bed:
        bed.eat(20.0)
        bed.start()
        await bed.fleet(policy={"type": "static", "replicas": _SMALL}, guardRails={"floor": _SMALL, "ceiling": _SMALL})
        await bed.until("the fleet", lambda: bed.serving() == _SMALL)
        before = bed.working()
        launches = bed.log_of().count('"launch"')

        await bed.allow_cheaper("on-demand")
        await bed.until("two replaced", lambda: len(before - bed.working()) >= 2 and bed.serving() == _SMALL, 150)
        went = before - bed.working()
        assert went <= bed.disrupted_s.keys()
        assert bed.marked(went) == went
        lives = [life for life in bed.lives.values() if life.node_name in went]
        assert [life for life in lives if not _handed_over(bed, life, life.told_s or 0.0)] == []
        assert bed.most_replicas == _SMALL
        assert bed.log_of().count('"launch"') == launches, "replacements come by themselves"
        assert bed.claims_ended() == set()
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


async def test_replicas_of_two_nodes_live_and_go_together(tmp_path: Path) -> None:
    require(*WITH, "lws")
    async with a_karpenter_bed(tmp_path, nodes_per_replica=2) as bed:

        def whole(without: Collection[str] = ()) -> bool:
            pairs = [pair for pair in bed.pairs() if len(pair) == 2 and pair.isdisjoint(without)]
            return bed.serving() == len(pairs) == _PAIRS

        bed.eat(80.0)
        bed.start()
        await bed.fleet(guardRails={"floor": _FLOOR, "ceiling": _PAIRS})
        await bed.until("the ceiling", whole, 120)

        hit = sorted(bed.pairs(), key=sorted)[:2]
        gone = {min(pair) for pair in hit[:1]} | {max(pair) for pair in hit[1:]}
        theirs = [life for life in bed.lives.values() if life.node_name in set().union(*hit)]
        assert len(theirs) == len(hit)
        await bed.take(gone)
        await bed.until("their workers hand over", lambda: all(_hands_over(bed, life) for life in theirs), 20)
        await bed.until("as many as before, without them", lambda: whole(gone), 120)
        await bed.until("their nodes are gone", lambda: gone.isdisjoint(bed.nodes_of(ROLLOUT)))
        assert bed.most_replicas == _PAIRS
        before = bed.pairs()

        await bed.change(policy={"type": "static", "replicas": _FLOOR})
        await bed.until("the floor", lambda: len(bed.pairs()) == _FLOOR, 120)
        await bed.until("its nodes", lambda: len(bed.nodes_of(ROLLOUT)) == 2 * _FLOOR)
        assert before > bed.pairs(), "whole replicas went"
        went = set().union(*(before - bed.pairs()))
        assert {bed.node_of[claim] for claim in bed.claims_ended()} <= went
        assert len(bed.marked(went)) == _PAIRS - _FLOOR
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


def _ended_as_they_should(bed: KarpenterBed, taken: set[str], before: set[str]) -> None:
    """Everything that went had handed over first because we said so, and nothing went that we had not named."""
    went = [life for life in bed.lives.values() if life.told_s is not None and life.node_name not in taken]
    nodes = {life.node_name for life in went}
    assert len(went) == _CEILING - _FLOOR
    assert nodes == before - bed.working()
    late = [life for life in went if not _handed_over(bed, life, life.told_s or 0.0)]
    assert late == []
    assert {bed.node_of[claim] for claim in bed.claims_ended()} <= nodes
    for node, seen_s in bed.disrupted_s.items():
        unnoticed = [
            life for life in bed.lives.values() if life.node_name == node and not _handed_over(bed, life, seen_s)
        ]
        assert node in taken or unnoticed == [], "consolidation took a node that worked"


def _hands_over(bed: KarpenterBed, life: Life) -> bool:
    """Told by the ledger, or by its pod's end: Karpenter evicts at once, and the set makes a group anew that lost a pod."""
    return life.worker in bed.workers.drained_at_s or life.left_s is not None


def _handed_over(bed: KarpenterBed, life: Life, by_s: float) -> bool:
    """Whether its worker had handed over by then because the ledger told it to."""
    return bed.workers.drained_at_s.get(life.worker, float("inf")) <= by_s
