"""Whatever a queue holds, a parser says what it is and raises nothing."""

import copy
import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.interruptions.messages.parsed import BlockEnding, Malformed, Told
from scaler.interruptions.messages.table import parse
from scaler.interruptions.messages.times import time_s
from tests.builders.messages import SAMPLES, SENT_AT_S

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def check(body: bytes | str) -> None:
    """Never raises, and what it tells is usable."""
    result = parse(body, sent_at_s=SENT_AT_S)
    if isinstance(result, Malformed):
        assert result.reason
        assert result.reason.isprintable()
    if isinstance(result, Told):
        assert result.notices
        for notice in result.notices:
            assert notice.instance_id.startswith("i-")
            assert math.isfinite(notice.noticed_at_s)
            assert notice.deadline_s is None or math.isfinite(notice.deadline_s)
    if isinstance(result, BlockEnding):
        assert result.reservation_id.startswith("cr-")


@given(st.binary(max_size=300))
def test_any_bytes(body: bytes) -> None:
    check(body)


@given(JUNK)
def test_any_json(value: Any) -> None:
    check(json.dumps(value))


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in paths(child, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


@settings(max_examples=400)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_real_messages_with_anything_in_any_place(name: str, data: st.DataObject) -> None:
    fields = SAMPLES[name]()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(paths(fields)[1:]))
        fields = put(copy.deepcopy(fields), place, data.draw(JUNK))
    check(json.dumps(fields))


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_real_messages_cut_off_or_with_a_byte_changed(name: str, data: st.DataObject) -> None:
    body = bytearray(json.dumps(SAMPLES[name]()).encode())
    place = data.draw(st.integers(0, len(body) - 1))
    check(bytes(body[:place]))
    body[place] = data.draw(st.integers(0, 255))
    check(bytes(body))


@given(st.text(max_size=70) | JUNK)
def test_any_time(value: Any) -> None:
    seconds = time_s(value)
    assert seconds is None or 9e8 < seconds < 5e9
