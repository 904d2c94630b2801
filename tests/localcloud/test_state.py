from dataclasses import replace
from pathlib import Path

import pytest

from scaler.localcloud.state import InstanceRecord, Interruption, StateDir

RECORD = InstanceRecord(
    instance_id="i-1",
    replica_id="r-1",
    worker="w-1",
    pool="spot",
    offering_id="zone-a",
    launch_token="t-1",
    launched_at_s=12.5,
    pid=4_194_305,
    start_ticks=99,
)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path)
    state.create()
    return state


def test_a_record_comes_back_as_it_was_written(state: StateDir) -> None:
    records = (RECORD, replace(RECORD, instance_id="i-2", terminating_at_s=3.0))
    for record in records:
        state.write_record(record)
    assert state.list_instances().records == records
    assert state.list_instances().skipped == 0
    assert state.live_instances() == (), "no process has such a pid"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"instance_id": "i-9"}', "\0\0", "[" * 100_000, '{"instance_id": "i-1", "pid": "x"}'],
)
def test_a_file_that_is_no_record_is_skipped_and_counted(state: StateDir, text: str) -> None:
    state.write_record(RECORD)
    (state.instances / "i-9.json").write_text(text)
    listing = state.list_instances()
    assert (listing.records, listing.skipped) == ((RECORD,), 1)


def test_a_record_under_another_instances_name_is_not_believed(state: StateDir) -> None:
    state.write_record(RECORD)
    (state.instances / "i-1.json").rename(state.instances / "i-7.json")
    assert state.list_instances().records == ()


def test_a_half_written_file_of_a_killed_writer_is_not_listed(state: StateDir) -> None:
    state.write_record(RECORD)
    (state.instances / ".i-2.json.77.tmp").write_text('{"instance_id": "i-2"')
    assert state.list_instances().skipped == 0


def test_capacity_is_unbounded_until_somebody_bounds_it(state: StateDir) -> None:
    assert state.read_capacity() == {}
    state.write_capacity({"zone-a": 3})
    assert state.read_capacity() == {"zone-a": 3}


@pytest.mark.parametrize("text", ["", "[1]", '{"zone-a": "many"}', '{"zone-a": null}'])
def test_capacity_that_does_not_say_it_is_an_error_not_a_guess(state: StateDir, text: str) -> None:
    state.capacity_file.write_text(text)
    with pytest.raises(ValueError, match=r"capacity\.json"):
        state.read_capacity()


def test_the_log_of_interruptions_survives_a_torn_line(state: StateDir) -> None:
    first = Interruption(
        at_s=1.0, instance_id="i-1", replica_id="r-1", offering_id="zone-a", noticed=True, deadline_s=3.0
    )
    second = replace(first, instance_id="i-2", noticed=False, deadline_s=None)
    assert state.read_interruptions() == ()
    state.log_interruption(first)
    state.log_interruption(second)
    with state.interruptions_file.open("a") as log:
        log.write('{"at_s": 4.0, "instan')
    assert state.read_interruptions() == (first, second)


@pytest.mark.parametrize(
    ("written", "tokens"), [(None, 0), (b"", 0), ((77).to_bytes(8, "little"), 77), (b"\xff" * 16, 2**64 - 1)]
)
def test_a_counter_begins_with_the_tokens_in_eight_bytes_little_endian(
    state: StateDir, written: bytes | None, tokens: int
) -> None:
    if written is not None:
        state.counter_file("i-1").write_bytes(written)
    assert state.read_counter("i-1") == tokens


@pytest.mark.parametrize(
    ("written", "looks"), [(None, (0, 0)), ((77).to_bytes(8, "little"), (0, 0)), (b"\1\0\0\0\0\0\0\0" * 3, (1, 1))]
)
def test_looks_at_what_is_at_risk_follow(state: StateDir, written: bytes | None, looks: tuple[int, int]) -> None:
    if written is not None:
        state.counter_file("i-1").write_bytes(written)
    assert state.read_at_risk("i-1") == looks
