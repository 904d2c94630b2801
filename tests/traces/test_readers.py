"""What every reader in `READERS` keeps, a new one too: it recognises its own and nothing else, and fails in words of its own."""

import os
from pathlib import Path

import pytest

from scaler.simulate.scenario_parts import ReplicasPerCount
from scaler.traces.registry import READERS, Reader, load_trace
from scaler.traces.text import TraceText
from scaler.traces.trace import TraceError
from tests.builders.traces import BESIDE_THE_REPOSITORY
from tests.traces.test_formats import FORMATS
from tests.traces.test_measured import MEASURED

RUBBISH = {
    "words": "Permission is hereby granted, free of charge,",
    "another table": "region,instance_type,bucket_index\nus-east-1,g5,2\n",
    "a column like ours": "time_seconds,zone,count\n0,a,1\n",
    "columns like a table's": "time_of_day,zone-a\n0,1\n",
    "an object": '{"t": 0, "zone": "a", "available": 4}\n{"t": 1, "zone": "a", "available": 3}\n',
    "an object with metadata": '{"metadata": {"cloud": "x"}}\n[0, 1]\n',
    "an array": "[0, 1, 2]\n",
    "an array of a time, a word and a number": '[0, "add", 4]\n',
    "an array of a time, a word and an object": '[0, "zone-a", {"available": 4}]\n',
    "arrays in arrays": "[" * 100_000,
    "objects in objects": '{"a":' * 100_000,
    "a long number": "9" * 100_000,
    "a long line": "x" * 1_000_000,
    "quotes": '"' * 1001,
    "commas": "," * 1000,
    "nothing": "",
}
DEEP, LONG, HUGE = "[" * 100_000, "9" * 5000, "1e999"
STRANGE = {
    "depth": DEEP,
    "depth that ends": DEEP + "]" * 100_000,
    "depth just within": "[" * 900 + "]" * 900,
    "many digits": LONG,
    "more digits than a float": "9" * 400,
    "no end": HUGE,
    "nearly no end": "1e308",
    "below": "-" + LONG,
    "no number": "NaN",
    "a long word": '"' + "x" * 200_000 + '"',
}
TRACES = Path(os.environ.get("HEADRACE_TRACES") or BESIDE_THE_REPOSITORY)
FILES = sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*") if path.is_file())
MEASURED_TOO = "gcp-h100/h100_capacity_exhausted_count_10min.csv"
"""Refusals in the shape of a table of counts (see `zone_table`)."""


def text_of(text: str) -> TraceText:
    return TraceText(source="here", stem="here", text=text)


def who_recognises(text: str) -> list[Reader]:
    return [reader for reader in READERS if reader.recognises(text_of(text))]


@pytest.mark.parametrize("name", FORMATS)
def test_an_example_of_each_format_is_recognised_by_one(name: str) -> None:
    (reader,) = who_recognises(FORMATS[name][0])
    assert reader.read(text_of(FORMATS[name][0])).format == name


def test_every_reader_has_its_example() -> None:
    assert {id(reader) for text, *_ in FORMATS.values() for reader in who_recognises(text)} == {id(r) for r in READERS}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_its_scale(name: str) -> None:
    assert name.replace(" ", "_") in ReplicasPerCount.model_fields


@pytest.mark.parametrize("name", FILES)
def test_a_measured_trace_is_recognised_by_one_and_what_lies_beside_by_none(name: str) -> None:
    assert len(who_recognises((TRACES / name).read_text())) == (name in {*MEASURED, MEASURED_TOO})


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_is_recognised_by_none(name: str) -> None:
    assert who_recognises(RUBBISH[name]) == []


def variants(text: str, strange: str) -> set[str]:
    """The text with something strange in place of each of its first numbers and words, and of its last lines'."""
    lines = text.splitlines(keepends=True)
    found = set()
    for number, line in enumerate(lines):
        for piece in set(line.replace("[", " ").replace("]", " ").replace("}", " ").replace(",", " ").split()):
            changed = line.replace(piece, strange, 1)
            found.add("".join([*lines[:number], changed, *lines[number + 1 :]]))
    return found


def told(path: Path, text: str) -> str:
    """What is told of the text; nothing where it is a trace."""
    path.write_text(text)
    try:
        assert load_trace(path).end_s < float("inf")
    except TraceError as fault:
        return str(fault).removeprefix(str(path))
    return ""


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("name", FORMATS)
def test_depth_and_huge_numbers_are_read_or_told_in_a_short_line(tmp_path: Path, name: str, strange: str) -> None:
    faults = [told(tmp_path / "trace", text) for text in variants(FORMATS[name][0], STRANGE[strange])]
    assert any(faults)
    assert max(map(len, faults)) < 300, "nobody reads more"
    assert not any("\n" in fault for fault in faults)
