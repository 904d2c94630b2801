"""What a fleet tells of its nodes: a resting one takes none into possession, so that what was released stays released."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from scaler.act.node_marks import NodeMark, Owned
from scaler.act.nodes import NodeKeeper
from scaler.kube.facts import FLEET_LABEL
from scaler.runtime.marks import NodeMarks
from tests.builders.node_bed import FLEET, a_bed, a_mark, instance_of
from tests.builders.snapshots import a_fleet_spec, a_world_of, planned, some_replicas


class Told:
    """A keeper that only listens."""

    def __init__(self) -> None:
        self.owned: Mapping[str, Owned] = {}
        self.taking: bool | None = None

    def want(self, marks: Mapping[str, NodeMark], owned: Mapping[str, Owned], *, taking: bool = True) -> None:
        del marks
        self.owned, self.taking = owned, taking


@pytest.mark.parametrize("paused", [False, True], ids=["at work", "paused"])
def test_a_paused_fleet_takes_no_node_into_possession(paused: bool) -> None:
    told: Any = Told()
    spec = a_fleet_spec(2, paused=paused)
    world = a_world_of(some_replicas(2))
    NodeMarks(cast(NodeKeeper, told)).want(spec, world, planned(world, spec))
    assert told.taking is not paused
    assert len(told.owned) == 2, "they are the fleet's all the same: their marks are its to take away"


async def test_a_keeper_that_takes_nothing_marks_what_is_noticed_and_labels_nothing_else() -> None:
    async with a_bed() as bed:
        bed.node("idle")
        bed.node("noticed")
        keeping = bed.keep()
        marks = {instance_of("noticed"): a_mark("noticed")}
        owned = {instance_of(name): Owned("spot") for name in ("idle", "noticed")}
        keeping.keeper.want(marks, owned, taking=False)
        await bed.settle()
        assert bed.taints("noticed")
        assert FLEET_LABEL not in bed.labels("idle")

        keeping.keeper.want(marks, owned)
        await bed.clock.advance(10.0)
        await bed.settle()
        assert bed.labels("idle")[FLEET_LABEL] == FLEET
