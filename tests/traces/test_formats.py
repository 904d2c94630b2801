"""Every format by a few lines of its own, and every fault by file, line and sentence."""

import os
from pathlib import Path

import pytest

from scaler.traces import registry
from scaler.traces.registry import load_trace
from scaler.traces.text import GapPolicy
from scaler.traces.trace import CapacityTrace, TraceError

OWN = "# ours\n\ntime_s,offering,available\n0,a,4\n0, b ,2\n12.5,a,1\n20,a,3\n20,b,2\n"
COUNTS = "time_utc,z1,z2\n2025-10-04T00:10:00Z,16,0\n2025-10-04T00:20:00Z,9,1\n2025-10-04T00:30:00Z,9,2\n"
PROBES = "time,z1,z2\n2023-02-15 22:08:16,0,1\n2023-02-15 22:11:31,1,1\n2023-02-15 22:14:46,0,1\n"
HELD = '{"metadata": {"gap_seconds": 300}, "data": [4, 4, 1, 0]}'
EVENTS = "0,add,n1\n0,add,n2\n60000,remove,n1\n120000,add,n3\n120000,add,n4\n"
LIVE = "2021-12-11, 11:11:30, 55\n2021-12-11, 11:13:10, 54\n2021-12-11, 11:14:50, 50\n"
SEGMENTS = (
    '[0, "add", {"nodes": ["n1", "n2"], "duration": 60000}]\n'
    '[60000, "no-op", {"nodes": []}]\n'
    '[120000, "migration", {"nodes": ["n9"]}]\n'
    '[180000, "remove", {"nodes": ["n1"]}]\n'
)
Steps = dict[str, list[tuple[float, int]]]
FORMATS: dict[str, tuple[str, Steps, float, float]] = {
    "offering events": (OWN, {"a": [(0, 4), (12.5, 1), (20, 3)], "b": [(0, 2)]}, 20.0, 7.5),
    "zone counts": (COUNTS, {"z1": [(0, 16), (600, 9)], "z2": [(0, 0), (600, 1), (1200, 2)]}, 1800.0, 600.0),
    "zone probes": (PROBES, {"z1": [(0, 0), (195, 1), (390, 0)], "z2": [(0, 1)]}, 585.0, 195.0),
    "held nodes": (HELD, {"file": [(0, 4), (600, 1), (900, 0)]}, 1200.0, 300.0),
    "node events": (EVENTS, {"file": [(0, 2), (60, 1), (120, 3)]}, 180.0, 60.0),
    "live counts": (LIVE, {"file": [(0, 55), (100, 54), (200, 50)]}, 300.0, 100.0),
    "replay segments": (SEGMENTS, {"file": [(0, 2), (180, 1)]}, 240.0, 60.0),
}


def load(folder: Path, text: str | bytes, gaps: GapPolicy = GapPolicy.HOLD) -> CapacityTrace:
    path = folder / "file.anything"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_trace(path, gaps)


def steps(trace: CapacityTrace) -> Steps:
    return {series.name: list(series.changes()) for series in trace.series}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_format_is_told_by_its_content_whatever_its_line_ends(tmp_path: Path, name: str, ends: str) -> None:
    text, expected, end_s, tick_s = FORMATS[name]
    trace = load(tmp_path, text.replace("\n", ends))
    assert (trace.format, steps(trace), trace.end_s, trace.tick_s) == (name, expected, end_s, tick_s)
    assert trace.gaps == ()


@pytest.mark.parametrize("name", FORMATS)
def test_a_byte_order_mark_and_a_missing_last_line_end_change_nothing(tmp_path: Path, name: str) -> None:
    text, expected, *_ = FORMATS[name]
    assert steps(load(tmp_path, b"\xef\xbb\xbf" + text.rstrip("\n").encode())) == expected


FAULTS: dict[str, tuple[str | bytes, str]] = {
    "nothing in it": ("", ": it is empty"),
    "only comments and blank lines": ("# a\n \r\n", ": it is empty"),
    "no text": (b"time_utc,z\n\xff\xfe\x00", ":2: it is not UTF-8 text"),
    "a zero byte": (b"time_s,offering,available\n0,a,1\n\x00", ":3: it is not text"),
    "an unknown header": ("when,where\n1,2\n", ":1: no known format starts with 'when,where'"),
    "our header with another column": ("time_s,offering,count\n0,a,1\n", ":1: the header is 'time_s,offering,count'"),
    "our header without rows": ("time_s,offering,available\n", ": no rows after time 0"),
    "ours at one time only": ("time_s,offering,available\n0,a,1\n", ": no rows after time 0"),
    "ours out of order": (OWN + "19,a,1\n", ":9: 19 s comes after 20 s"),
    "ours before 0": ("time_s,offering,available\n-1,a,1\n", ":2: -1 s comes after 0 s"),
    "ours twice at one time": (OWN + "20,a,1\n", ":9: a second value of a at 20 s"),
    "an offering without a start": (OWN + "21,c,1\n", ":9: c starts at 21 s; say what it has at 0"),
    "ours negative": (OWN + "21,a,-1\n", ":9: -1 for a is negative"),
    "ours without a value": (OWN + "21,a,\n", ":9: no value for a"),
    "ours with a broken count": (OWN + "21,a,1.5\n", ":9: '1.5' for a is no whole number"),
    "ours with an unusual digit": (OWN + "21,a,1_0\n", ":9: '1_0' for a is no whole number"),
    "ours with a time in other digits": (OWN + "2\u0661,a,1\n", ":9: '2\u0661' is no time"),
    "ours with a broken time": (OWN + "soon,a,1\n", ":9: 'soon' is no time"),
    "ours at no time": (OWN + "nan,a,1\n", ":9: 'nan' is no time"),
    "ours with a column too many": (OWN + "21,a,1,1\n", ":9: '21,a,1,1' is no row"),
    "counts without zones": ("time_utc\n2025-10-04T00:10:00Z\n", ":1: the header 'time_utc' must be"),
    "two zones of one name": ("time_utc,z,z\n", ":1: the header"),
    "counts of one row": ("\n".join(COUNTS.split("\n")[:2]), ": 1 rows of data; a trace needs at least two"),
    "counts out of order": (COUNTS + "2025-10-04T00:25:00Z,1,1\n", ":5: its time is not after that of line 4"),
    "a time twice": (COUNTS + "2025-10-04T00:30:00Z,1,1\n", ":5: its time is not after"),
    "a row too short": (COUNTS + "2025-10-04T00:40:00Z,1\n", ":5: 1 counts for 2 zones"),
    "an empty cell": (COUNTS + "2025-10-04T00:40:00Z,1,\n", ":5: no value for z2; write 0"),
    "a negative count": (COUNTS + "2025-10-04T00:40:00Z,-3,1\n", ":5: -3 for z1 is negative"),
    "a broken time": (COUNTS + "tomorrow,1,1\n", ":5: 'tomorrow' is no date and time"),
    "a probe of two": (PROBES + "2023-02-15 22:20:00,2,0\n", ":5: 2 in a table of probes"),
    "broken JSON": ('{"metadata":\n {"gap_seconds": ]', ":2: not JSON"),
    "JSON without its data": ('{"metadata": {"gap_seconds": 300}}', ":1: a JSON trace needs"),
    "JSON without its distance": ('{"data": [1, 2]}', ":1: a JSON trace needs"),
    "JSON of something else": ('{"zones": []}', ":1: no known format starts with '{\"zones\": []}'"),
    "JSON lines of something else": ('[0, "zone-a", 4]\n', ":1: no known format starts with '[0,"),
    "no distance": (HELD.replace("300", "0"), ":1: gap_seconds is 0"),
    "an endless distance": (HELD.replace("300", "1e999"), ":1: gap_seconds is inf"),
    "a negative held count": (HELD.replace("1,", "-1,"), ":1: -1 for data[2] is negative"),
    "a held count in halves": (HELD.replace("1,", "1.5,"), ":1: data[2] is '1.5', no whole number"),
    "a held count that is a word": (HELD.replace("1,", "true,"), ":1: data[2] is 'True', no whole number"),
    "a held count that is a list": (HELD.replace("1,", "[1],"), ":1: data[2] is no number"),
    "JSON without bottom": (HELD.replace("1,", "[" * 100_000), ":1: not JSON"),
    "a distance of many digits": (HELD.replace("300", "3" * 400), ":1: a JSON trace needs"),
    "a distance whose sum has no end": (HELD.replace("300", "1e308"), ":1: gap_seconds is 1e+308"),
    "an event that is none": (EVENTS + "9,stop,n1\n", ":6: '9,stop,n1' is no event"),
    "an event in other digits": (EVENTS + "18000\u0660,add,n9\n", ":6: '18000\u0660,add,n9' is no event"),
    "an event of many digits": (EVENTS + "9" * 5000 + ",add,n9\n", ":6: '999"),
    "events out of order": (EVENTS + "60000,add,n9\n", ":6: 60000 ms comes after 120000 ms"),
    "an event before 0": ("-5,add,n1\n", ":1: -5 ms comes after 0 ms"),
    "a node that came twice": (EVENTS + "180000,add,n3\n", ":6: add of n3, which is live"),
    "a node that went twice": (EVENTS + "180000,remove,n1\n", ":6: remove of n1, which is not live"),
    "a live count that is none": (LIVE + "2021-12-11, 11:20:00, many\n", ":4: 'many' for the count is no whole number"),
    "a live count of an impossible day": (LIVE + "2021-13-11, 11:20:00, 3\n", ":4: '2021-13-11T11:20:00' is no date"),
    "a live row in other digits": (
        LIVE + "2021-12-11, 11:2\u0660:00, 3\n",
        ":4: '2021-12-11, 11:2\u0660:00, 3' is no row",
    ),
    "a live row that is none": (LIVE + "11:20:00, 3\n", ":4: '11:20:00, 3' is no row"),
    "live counts out of order": (LIVE + "2021-12-11, 11:14:50, 3\n", ":4: its time is not after that of line 3"),
    "a segment that is none": (SEGMENTS + "[]\n", ":5: '[]' is no segment"),
    "a segment without bottom": ('[0, "add", {"nodes": ' + "[" * 100_000, ':1: \'[0, "add", {"nodes": [[['),
    "a segment of many digits": (SEGMENTS + "[" + "9" * 400 + ', "no-op", {"nodes": []}]', ":5: '[999"),
    "segments out of order": (SEGMENTS + '[180000, "no-op", {"nodes": []}]\n', ":5: 180000 ms is not after 180000 ms"),
    "a segment at no time": ('[NaN, "no-op", {"nodes": []}]\n', ":1: nan ms is not after"),
    "a segment at the end of time": ('[1e999, "no-op", {"nodes": []}]\n', ":1: inf ms is not after"),
    "a segment that adds what is there": (
        SEGMENTS + '[240000, "add", {"nodes": ["n2"]}]',
        ":5: add of n2, which is live",
    ),
    "a segment that takes what is not": (SEGMENTS + '[240000, "remove", {"nodes": ["n1"]}]', ":5: remove of n1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_file_line_and_reason(tmp_path: Path, fault: str) -> None:
    text, sentence = FAULTS[fault]
    with pytest.raises(TraceError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'file.anything'}{sentence}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_is_a_folder_is_a_trace_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        load_trace(tmp_path)


def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for endless in (Path("/dev/zero"), pipe):
        with pytest.raises(TraceError, match=rf"^{endless}: it cannot be read: it is no regular file$"):
            load_trace(endless)


def test_a_file_larger_than_any_trace_is_refused_and_the_largest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.csv"
    monkeypatch.setattr(registry, "MOST_BYTES", 1 << 20)
    path.write_text(COUNTS + "#" * ((1 << 20) - len(COUNTS)))
    assert load_trace(path).end_s > 0
    with path.open("a") as file:
        file.write("#")
    with pytest.raises(TraceError, match="larger than 1 MiB"):
        load_trace(path)


GAPPED = {
    "zone counts": COUNTS + "2025-10-04T01:10:00Z,4,4\n2025-10-04T01:20:00Z,5,5\n",
    "zone probes": PROBES + "2023-02-15 22:54:46,1,0\n2023-02-15 22:58:01,1,0\n",
    "live counts": LIVE + "2021-12-11, 11:54:50, 3\n2021-12-11, 11:56:30, 3\n",
}


@pytest.mark.parametrize("name", GAPPED)
def test_a_gap_is_held_through_and_listed_or_refused(tmp_path: Path, name: str) -> None:
    trace = load(tmp_path, GAPPED[name])
    (gap,) = trace.gaps
    assert gap.end_s - gap.start_s == 2400.0
    for series in trace.series:
        assert series.at(gap.end_s - 0.1) == series.at(gap.start_s) != series.at(gap.end_s)
    with pytest.raises(TraceError, match=rf":{gap.line}: no rows for 2400 s before it"):
        load(tmp_path, GAPPED[name], GapPolicy.REFUSE)


def test_without_a_gap_refusing_gaps_changes_nothing(tmp_path: Path) -> None:
    for text, expected, *_ in FORMATS.values():
        assert steps(load(tmp_path, text, GapPolicy.REFUSE)) == expected
