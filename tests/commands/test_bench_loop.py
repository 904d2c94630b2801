"""What the bench of the loop reads out of the controller's log, and what it asks of its bed."""

import json

import pytest

from scaler.commands.bench_loop import plan_of, turns_of
from scaler.commands.bench_objects import fleet_of
from scaler.config.schema import RolloutFleet


def test_turns_are_found_among_other_lines_and_a_cut_one_is_none() -> None:
    turn = json.dumps({"event": "turn", "turn_s": 0.25})
    lines = [json.dumps({"event": "decision"}), turn, "Traceback", "7", turn[:-5]]
    assert [found["turn_s"] for found in turns_of(lines)] == [0.25]


@pytest.mark.parametrize("nodes", [3, 50, 5000])
def test_the_fleet_is_one_that_the_schema_takes_with_as_many_nodes_as_asked(nodes: int) -> None:
    plan = plan_of(nodes, "2s")
    fleet = RolloutFleet.model_validate(fleet_of(plan, job="j", ledger_url="valkey://127.0.0.1:1/0", region="r-1"))
    assert plan.nodes == nodes
    assert len(fleet.spec.stages[0].pools) == 6
    assert plan.floor == nodes < plan.ceiling


def test_a_lease_outlives_the_wait_for_its_heartbeat() -> None:
    workers = plan_of(5000, "2s").workers
    assert workers.ttl_s > 2 * workers.beat_s
