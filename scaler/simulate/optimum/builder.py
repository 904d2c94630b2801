"""Collects a linear program by columns and rows; where an offering's columns are."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from scaler.simulate.optimum.steps import Floats
from scaler.simulate.optimum.times import Columns, Spans


@dataclass(frozen=True, slots=True)
class Program:
    """min cost @ x - lambda * x[credited] + fixed_usd, with lower <= x <= upper and A x <= row_upper.

    A is in rows: `starts`, `index`, `value`. Cost is in USD.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    row_upper: Floats
    starts: np.ndarray[tuple[int], np.dtype[np.int32]]
    index: np.ndarray[tuple[int], np.dtype[np.int32]]
    value: Floats
    credited: int
    fixed_usd: float


@dataclass(frozen=True, slots=True)
class OfferingColumns:
    """Where an offering's columns are. `lives`: one array a fall; `charged` is `held` where no minimum binds.

    `lives_held`, `lives_ready`: (step, column, share of the step) of every life, held until its fall, and ready.
    """

    held: Columns
    charged: Columns
    ready: Columns
    lives: tuple[Columns, ...]
    lives_held: Spans
    lives_ready: Spans
    taken_ready: Columns | None
    free_held: Columns | None
    free_ready: Columns | None


class Builder:
    """Collects columns and rows."""

    def __init__(self) -> None:
        self.columns = 0
        self.rows = 0
        self._cost: list[Floats] = []
        self._upper: list[Floats] = []
        self._row_upper: list[Floats] = []
        self._entries: list[tuple[Columns, Columns, Floats]] = []

    def add(self, upper: Floats, cost: Floats | float = 0.0) -> Columns:
        """Columns from 0 to `upper` at a cost each."""
        found = np.arange(self.columns, self.columns + len(upper))
        self.columns += len(upper)
        self._upper.append(np.asarray(upper, float))
        self._cost.append(np.broadcast_to(np.asarray(cost, float), len(upper)))
        return found

    def at_most(self, upper: Floats, *terms: "Term") -> None:
        """Rows sum(terms) <= upper."""
        for rows, columns, values in terms:
            row = np.atleast_1d(rows)
            value = np.broadcast_to(np.asarray(values, float), row.shape)
            self._entries.append((row + self.rows, np.atleast_1d(columns), value))
        self._row_upper.append(np.asarray(upper, float))
        self.rows += len(upper)

    def program(self, lower: dict[int, float], credited: int, fixed_usd: float) -> Program:
        """All of it, by rows."""
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        # The solver takes a row's column only once: equal places are summed.
        place, inverse = np.unique(row * self.columns + column, return_inverse=True)
        summed: Floats = np.bincount(inverse, weights=value, minlength=len(place)).astype(float)
        row, column = place // self.columns, place % self.columns
        starts = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=self.rows))))
        bottom = np.zeros(self.columns)
        for one, least in lower.items():
            bottom[one] = least
        return Program(
            cost=np.concatenate(self._cost),
            lower=bottom,
            upper=np.concatenate(self._upper),
            row_upper=np.concatenate(self._row_upper),
            starts=starts.astype(np.int32),
            index=column.astype(np.int32),
            value=summed,
            credited=credited,
            fixed_usd=fixed_usd,
        )


Term: TypeAlias = "tuple[Columns, Columns | int, Floats | float]"
"""(row of these, column, coefficient), arrays of one length or single numbers."""
