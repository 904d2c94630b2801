"""What of a fleet's life is told: changes, once, in bounded words."""

from dataclasses import replace

import pytest

from scaler.model.snapshot import OfferingView
from scaler.runtime.fleet_events import fleet_of, of_conditions, of_node_drain, of_outcome, of_ticks
from scaler.runtime.outcomes import Outcome
from scaler.telemetry.events import EventType, Note
from tests.builders.fleet import a_launch, an_end
from tests.builders.fleet_status import CONFIG, a_readout, a_status
from tests.builders.snapshots import (
    NOW_S,
    OFFERING,
    a_fleet_spec,
    a_notice,
    a_pool_view,
    a_replica,
    a_world_of,
    some_replicas,
)


def briefly(notes: list[Note]) -> list[tuple[str, str]]:
    return [(note.reason, note.type.value) for note in notes]


def test_a_first_decision_and_every_new_size_are_told_and_a_steady_fleet_is_silent() -> None:
    first = a_readout(a_world_of(some_replicas(1)), a_fleet_spec(3))
    (note,) = of_ticks(None, first)
    assert (note.reason, note.type) == ("SizeUp", EventType.NORMAL)
    assert note.message.startswith("rollout: 3 replicas wanted, 1 there: ")
    assert list(of_ticks(first, first)) == []
    (note,) = of_ticks(first, a_readout(a_world_of(some_replicas(1)), a_fleet_spec(5)))
    assert note.message.startswith("rollout: 3 -> 5 replicas wanted")


def test_a_hold_is_a_warning() -> None:
    held = a_readout(a_world_of(some_replicas(3), pools=[a_pool_view(listed_at_s=None)]))
    assert ("HoldPartialList", "Warning") in briefly(list(of_ticks(a_readout(), held)))


def test_notices_are_told_once_by_kind_and_named_in_part() -> None:
    noticed = [a_replica(f"r{n}", notice=a_notice(f"i-{n}")) for n in range(8)]
    after = a_readout(a_world_of(noticed), a_fleet_spec(0))
    (note,) = (note for note in of_ticks(a_readout(), after) if note.reason.startswith("Notice"))
    assert note.reason == "NoticeSpotInterruption"
    assert note.message == "8 spot interruption: i-0, i-1, i-2, i-3, i-4 and 3 more"
    assert not [note for note in of_ticks(after, after) if note.reason.startswith("Notice")]


def test_refusals_of_pools_and_offerings_are_told_when_they_are_new() -> None:
    offering = OfferingView(offering=OFFERING, refused_at_s=NOW_S - 5, refusals=1)
    refused = a_readout(a_world_of(some_replicas(3), pools=[a_pool_view("pool", offering, refused="scaling policies")]))
    notes = {note.reason: note.message for note in of_ticks(a_readout(), refused)}
    assert notes["PoolRefused"] == "pool pool: scaling policies"
    assert notes["CapacityRefused"] == "pool pool: no capacity of g/a/spot"
    assert not {note.reason for note in of_ticks(refused, refused)} & {"PoolRefused", "CapacityRefused"}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.DONE, None),
        (Outcome.ALREADY, None),
        (Outcome.WAITING, None),
        (Outcome.PRECONDITION, None),
        (Outcome.REFUSED, "LaunchRefused"),
        (Outcome.UNAVAILABLE, "LaunchUnavailable"),
        (Outcome.BROKEN, "LaunchBroken"),
    ],
)
def test_commands_that_went_wrong_are_told(outcome: Outcome, reason: str | None) -> None:
    note = of_outcome(a_launch("t-1"), outcome, "no capacity")
    assert (note.reason if note else None) == reason
    if note:
        assert note.message == "launch of t-1 in pool pool: no capacity"


def test_a_command_without_words_is_told_by_its_outcome() -> None:
    note = of_outcome(an_end("i-1"), Outcome.BROKEN, "")
    assert note is not None
    assert note.message == "terminate of r-i-1 in pool pool: broken"


def test_conditions_that_turn_are_told_and_good_news_of_a_new_fleet_are_not() -> None:
    well, bad = a_status(), a_status(config=replace(CONFIG, faults=("x",), paused=True), foreign_writers=["hpa"])
    assert list(of_conditions({}, well)) == []
    told = briefly(list(of_conditions(well, bad)))
    assert told == [
        ("ReadyLost", "Warning"), ("AcceptedLost", "Warning"), ("SoleOwnerLost", "Warning"), ("Paused", "Warning"),
    ]  # fmt: skip
    again = briefly(list(of_conditions(bad, well)))
    assert again == [("Ready", "Normal"), ("Accepted", "Normal"), ("SoleOwner", "Normal"), ("Resumed", "Normal")]
    assert list(of_conditions(bad, bad)) == []
    unknown = a_status(foreign_writers=None)
    assert briefly(list(of_conditions(well, unknown))) == [("SoleOwnerUnknown", "Normal")]
    assert briefly(list(of_conditions({}, bad))) == told


def test_a_drained_node_is_told_at_the_node() -> None:
    note = of_node_drain("ip-10-0-0-1", why="spot_interruption", deadline="2026-11-29T23:00:00Z")
    assert note.about is not None
    assert (note.about.kind, note.about.name, note.about.uid) == ("Node", "ip-10-0-0-1", "ip-10-0-0-1")
    assert note.message == "drained by 2026-11-29T23:00:00Z: spot_interruption"
    assert fleet_of("rl", "demo", "u").namespace == "rl"
