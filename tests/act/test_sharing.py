import pytest

from scaler.act.sharing import Places, SharedPlace
from tests.builders.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def place(clock: FakeClock) -> SharedPlace:
    made = SharedPlace(clock)
    made.join("ml.low", 0)
    made.join("ml.high", 10)
    return made


def test_while_there_is_room_everybody_is_let_in(place: SharedPlace) -> None:
    assert place.admit("ml.low", "t-1", needs=2, room=2) is None
    assert place.admit("ml.high", "t-2", needs=2, room=2) is None


def test_room_that_a_higher_priority_waits_for_is_kept_for_it(place: SharedPlace) -> None:
    assert "room for 0" in (place.admit("ml.high", "t-1", needs=1, room=0) or "")
    assert "kept for ml.high" in (place.admit("ml.low", "t-2", needs=1, room=1) or "")
    assert place.admit("ml.low", "t-2", needs=1, room=2) is None
    assert place.admit("ml.high", "t-1", needs=1, room=1) is None
    assert place.admit("ml.low", "t-3", needs=1, room=1) is None


def test_a_lower_priority_that_waits_keeps_nobody_out(place: SharedPlace) -> None:
    assert place.admit("ml.low", "t-1", needs=1, room=0) is not None
    assert place.admit("ml.high", "t-2", needs=1, room=1) is None


def test_one_who_waits_and_asks_no_more_holds_nobody_up_for_long(place: SharedPlace, clock: FakeClock) -> None:
    assert place.admit("ml.high", "t-1", needs=1, room=0) is not None
    clock.pass_time(100)
    assert place.admit("ml.low", "t-2", needs=1, room=1) is not None
    clock.pass_time(100)
    assert place.admit("ml.low", "t-2", needs=1, room=1) is None


def test_what_was_refused_and_is_asked_for_anew_is_waited_for_once(place: SharedPlace, clock: FakeClock) -> None:
    """Each decision asks with tokens of its own."""
    for turn in range(5):
        for each in range(3):
            assert place.admit("ml.high", f"t-{turn}-{each}", needs=1, room=0) is not None
        clock.pass_time(10)
    assert "kept for" in (place.admit("ml.low", "l-1", needs=1, room=3) or "")
    assert [place.admit("ml.high", f"last-{each}", needs=1, room=3 - each) for each in range(3)] == [None] * 3
    assert place.admit("ml.low", "l-2", needs=1, room=1) is None, "the other has what it wants"


def test_one_who_leaves_waits_no_more(place: SharedPlace) -> None:
    assert place.admit("ml.high", "t-1", needs=1, room=0) is not None
    place.leave("ml.high")
    assert place.admit("ml.low", "t-2", needs=1, room=1) is None


def test_equal_priorities_are_served_as_they_come(place: SharedPlace) -> None:
    place.join("ml.other", 0)
    assert place.admit("ml.low", "t-1", needs=1, room=0) is not None
    assert place.admit("ml.other", "t-2", needs=1, room=1) is None


def test_what_is_nobodys_is_adopted_by_exactly_one(place: SharedPlace) -> None:
    place.join("ml.also-high", 10)
    assert [name for name in ("ml.low", "ml.high", "ml.also-high") if place.adopts(name)] == ["ml.also-high"]
    place.leave("ml.also-high")
    assert place.adopts("ml.high")
    assert not place.adopts("ml.stranger")


def test_a_place_is_made_once_and_shared(clock: FakeClock) -> None:
    places = Places()
    first = places.at("group/a", lambda: SharedPlace(clock))
    assert places.at("group/a", lambda: SharedPlace(clock)) is first
    assert places.at("group/b", lambda: SharedPlace(clock)) is not first
