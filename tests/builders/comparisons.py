"""Made-up results of comparisons: an optimum's figures, a policy's figures, and rows of them."""

from pathlib import Path
from typing import Any

from scaler.simulate.compare import Row, rows_of
from scaler.simulate.jobs import Place


def a_place(window: int = 0, *, trace: str | None = "t.csv", start_h: float | None = None, **facts: Any) -> Place:
    """Windows of 12 hours side by side."""
    start = 12.0 * window if start_h is None else start_h
    return Place(scenario="small", trace=trace, window=window, start_h=start, **({"hours": 12.0} | facts))


def some_figures(cost: float, *, wait: float = 0.0, **facts: Any) -> dict[str, Any]:
    """A run's summary."""
    return {
        "scenario": "small",
        "policy": "any",
        "seed": 0,
        "cost_usd": 1000.0,
        "cost_usd_per_1k_samples": cost,
        "trainer_wait_ratio": wait,
        "least_trainer_wait_ratio": wait / 2,
        "refunds_usd": 0.0,
        "interruptions": 3,
        **facts,
    }


def an_optimum(cost: float, *, before_refunds: float | None = None, **facts: Any) -> dict[str, Any]:
    """An optimum's figures, in plenty."""
    before = cost if before_refunds is None else before_refunds
    own: dict[str, Any] = {"regime": "plenty", "status": "optimal", "before_refunds_usd_per_1k_samples": before}
    return some_figures(cost, **(own | facts))


def some_rows(bounds: list[float], trace: str | None = "t.csv", **costs: list[float]) -> list[Row]:
    """A window for every bound; the costs of each policy by its name. All are plenty."""
    return [
        row
        for window, bound in enumerate(bounds)
        for row in rows_of(
            a_place(window, trace=trace),
            an_optimum(bound),
            {name: [some_figures(values[window])] for name, values in costs.items()},
        )
    ]


def a_trace_file(folder: Path, hours: int = 10, zones: tuple[str, ...] = ("a", "b")) -> Path:
    """Two zones of 16 that are gone for an hour in five, one after the other, probed every 10 minutes."""
    rows = [f"time_utc,{','.join(zones)}"]
    for tick in range(hours * 6 + 1):
        counts = [0 if (tick // 6 + 2 * zone) % 5 == 4 else 16 for zone in range(len(zones))]
        rows.append(f"2025-10-04T{tick // 6:02}:{tick % 6}0:00Z,{','.join(map(str, counts))}")
    file = folder / "trace.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file
