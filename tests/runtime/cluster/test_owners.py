"""Whose an instance is: of a fleet's pool, or of a node with a fleet's label; a while longer than it lives."""

from dataclasses import replace

import pytest

from scaler.interruptions.base import Ownership
from scaler.kube.facts import FLEET_LABEL
from scaler.runtime.cluster.owners import Owners
from tests.builders.clock import FakeClock
from tests.builders.nodes import Nodes, a_node

OURS, FOREIGN, UNKNOWN = Ownership.OURS, Ownership.FOREIGN, Ownership.UNKNOWN


def owners(*nodes: object) -> tuple[Owners, FakeClock]:
    clock = FakeClock()
    return Owners(Nodes(*nodes), clock), clock  # type: ignore[arg-type]


def labelled(instance_id: str, **labels: str) -> object:
    return replace(a_node(instance_id), labels=labels)


@pytest.mark.parametrize(
    ("instance_id", "whose"),
    [
        pytest.param("i-listed", OURS, id="a pool lists it, and it has not joined"),
        pytest.param("i-labelled", OURS, id="its node carries a fleet's label"),
        pytest.param("i-trainer", FOREIGN, id="a node of the cluster without any of that"),
        pytest.param("i-nobody", UNKNOWN, id="nobody has seen it"),
        pytest.param("", UNKNOWN, id="no id at all"),
        pytest.param("i-list", UNKNOWN, id="bug 019: a part of an id is another id"),
    ],
)
def test_whose_an_instance_is(instance_id: str, whose: Ownership) -> None:
    found, _ = owners(labelled("i-labelled", **{FLEET_LABEL: "rl.mill"}), labelled("i-trainer", role="trainer"))
    found.listed("rl.mill", ["i-listed"])
    assert found.knows(instance_id) is whose


def test_what_was_listed_stays_ours_for_an_hour_and_no_longer() -> None:
    found, clock = owners()
    found.listed("rl.mill", ["i-1", "i-2"])
    clock.pass_time(3000.0)
    found.listed("rl.mill", ["i-2"])
    assert found.ours() == {"i-1", "i-2"}
    clock.pass_time(601.0)
    found.listed("rl.mill", ["i-2"])
    assert found.ours() == {"i-2"}
    assert found.knows("i-1") is UNKNOWN


def test_a_fleet_that_is_no_more_owns_nothing_and_others_keep_theirs() -> None:
    found, _ = owners()
    found.listed("rl.mill", ["i-1", "i-shared"])
    found.listed("rl.weir", ["i-2", "i-shared"])
    found.forget("rl.mill")
    found.forget("rl.never")
    assert found.ours() == {"i-2", "i-shared"}
