"""A fleet of 48 nodes, 16 of them a trainer's: from its floor to its ceiling, through the loss of a third, back to its floor.

What is believed is what the servers say: SimCloud's record of every instance's end, the API server's objects, the ledger's
history.
"""

import json
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from scaler.model.trainers import TrainerSpec
from tests.builders.trainer_recorder import TrainerRecorder
from tests.cluster.fixtures import require
from tests.e2e.cluster.base import CALLER, JOB, NAMESPACE, SYSTEM
from tests.e2e.cluster.bed import Bed, a_bed
from tests.e2e.cluster.trainers import TRAINER_LABELS, TRAINERS, add_trainers
from tests.simcloud.journal import BY_CALLERS, EndedBy

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

_THIRD = 10
_CEILING, _FLOOR = 32, 2
_LOOKS = 10


async def test_floor_ceiling_loss_and_floor_again(tmp_path: Path) -> None:
    require("controllers", "scheduler", "kwok")
    async with a_bed(tmp_path) as bed:
        await add_trainers(bed)
        spec = TrainerSpec(name="trainer", namespace=NAMESPACE, match_labels=TRAINER_LABELS)
        recorder = TrainerRecorder(bed.api, [spec])
        await recorder.snapshot()
        bed.eat(80.0)
        bed.start_controller()
        await bed.fleet(trainers=[{"name": "trainer", "selector": {"matchLabels": TRAINER_LABELS}}])
        await bed.until("the floor", lambda: len(bed.workers.names) >= _FLOOR)
        await bed.until("the ceiling", lambda: len(bed.workers.names) == _CEILING, 120)
        assert len(bed.nodes.all()) == _CEILING + TRAINERS
        await _the_doctor_finds_trainers_unprotected_and_nothing_else(bed)

        gone = set(bed.sim.fate.reclaim(_THIRD))
        await bed.until("every noticed node is tainted", lambda: bed.tainted() >= gone)
        await bed.until("as many as before, without them", lambda: bed.serving(gone) == _CEILING, 120)
        await bed.until("noticed instances have left their groups", lambda: gone.isdisjoint(bed.launched()))
        assert len(bed.launched()) == _CEILING, "each was replaced once"

        # How long a policy ponders before it lowers is not what this is about: the operator says so.
        await bed.change(policy={"type": "static", "replicas": _FLOOR})
        await bed.until("the floor again", lambda: len(bed.launched()) == _FLOOR, 120)
        _instances_ended_as_they_should(bed, gone)
        assert await recorder.changes() == []
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


async def _the_doctor_finds_trainers_unprotected_and_nothing_else(bed: Bed) -> None:
    """On a real API server: objects, conditions, lease and rights are its own."""
    words = ("doctor", JOB, "--namespace", NAMESPACE, "--file", str(bed.settings_file()), "--json")
    for _ in range(_LOOKS):  # conditions and workers' words of themselves come a turn and a heartbeat later
        code, said = await bed.headrace(*words)
        lines = json.loads(said)["lines"]
        found = {line["about"]: line["found"] for line in lines}
        failing = {line["about"] for line in lines if line["level"] == "fail"}
        trainers = {about for about in failing if about.startswith("trainer trainer, ")}
        if failing - trainers == {"condition TrainerProtected"} and f"{_CEILING} ready" in found["workers"]:
            break
    assert (code, failing - trainers) == (1, {"condition TrainerProtected"}), said
    assert f" and {TRAINERS - 3} more: " in found["trainer trainer, priority"]
    assert found["workers"] == f"{_CEILING} at work, {_CEILING} ready, 0 draining"
    assert found[f"lease {SYSTEM}/headrace"].startswith("held by ")
    assert "may do 24 of 24 things" in found["rights"]


def _instances_ended_as_they_should(bed: Bed, noticed: set[str]) -> None:
    """Everything we ended was named by us, ours, and had handed over; nothing that was noticed was ended by us."""
    ended = [each for each in bed.sim.log.ended if each.by in BY_CALLERS]
    assert ended
    assert {each.by for each in ended} == {EndedBy.TERMINATE_NAMED}
    assert {each.caller for each in ended} == {CALLER}
    assert all(each.group.startswith("rollout-") for each in ended)
    assert not noticed & {each.instance_id for each in ended}
    late = [each.instance_id for each in ended if not bed.handed_over(each.instance_id, each.at_s)]
    assert late == []
    assert bed.sim.log.of("SetDesiredCapacity") == []
