"""The measured traces, where this machine has them; the numbers are those that their README states."""

import pytest

from scaler.traces.registry import load_trace
from tests.builders.traces import measured

MEASURED = {
    "gcp-h100/h100_available_count_10min.csv": ("zone counts", 13, 16, 600.0, 212.0),
    "aws-v100/v100_available_195s.csv": ("zone probes", 9, 1, 195.0, 655.5),
    "aws-v100/held-4-nodes/us-east-1f_v100_1.json": ("held nodes", 1, 4, 300.0, 305.3),
    "aws-v100/held-4-nodes/us-west-2c_v100_1.json": ("held nodes", 1, 4, 300.0, 427.6),
    "bamboo/p3-trace.csv": ("node events", 1, 32, 60.0, 11.4),
    "bamboo/a100x1-east1b.txt": ("live counts", 1, 64, 100.0, 27.0),
    "parcae/trace_hh_55_65.jsonl": ("replay segments", 1, 32, 60.0, 1.0),
    "parcae/trace_hl_15_25.jsonl": ("replay segments", 1, 32, 60.0, 1.0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_trace_reads_as_its_readme_says(name: str) -> None:
    trace = load_trace(measured(name))
    form, series, most, tick_s, hours = MEASURED[name]
    assert (trace.format, len(trace.series), trace.tick_s) == (form, series, tick_s)
    assert max(count for one in trace.series for count in one.counts) == most
    assert trace.end_s / 3600 == pytest.approx(hours, abs=0.06)


def test_the_p3_log_has_as_many_losses_as_removals() -> None:
    assert load_trace(measured("bamboo/p3-trace.csv")).series[0].losses() == 167


def test_the_hole_in_the_h100_counts_is_found() -> None:
    (gap,) = load_trace(measured("gcp-h100/h100_available_count_10min.csv")).gaps
    assert gap.end_s - gap.start_s == 6600.0


def test_ignoring_dips_takes_losses_out_and_adds_none() -> None:
    trace = load_trace(measured("gcp-h100/h100_available_count_10min.csv"))
    before = [series.losses() for series in trace.series]
    after = [series.losses() for series in trace.without_dips().series]
    assert sum(after) < sum(before)
    assert all(less <= more for less, more in zip(after, before, strict=True))
