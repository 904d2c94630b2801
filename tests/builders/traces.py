"""Small traces, and the measured ones where this machine has them."""

import os
from pathlib import Path

import pytest

from scaler.traces.trace import CapacityTrace, Series

BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[3] / "shared" / "traces"


def a_trace(end_s: float = 100.0, tick_s: float = 1.0, **series: dict[float, int]) -> CapacityTrace:
    """A trace of {time: count} a series."""
    return CapacityTrace(
        source="here",
        format="made up",
        series=tuple(
            Series(name=name, times_s=tuple(steps), counts=tuple(steps.values())) for name, steps in series.items()
        ),
        end_s=end_s,
        tick_s=tick_s,
    )


def measured(name: str) -> Path:
    """The measured trace of that name; without it the test is skipped."""
    folder = Path(os.environ.get("HEADRACE_TRACES") or BESIDE_THE_REPOSITORY)
    if not (folder / name).is_file():
        pytest.skip(f"no measured trace {folder / name}: set HEADRACE_TRACES to the folder that holds them")
    return folder / name
