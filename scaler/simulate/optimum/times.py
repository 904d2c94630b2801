"""The steps of a problem by number: how long they last, which lie within a launch or a minimum, what a stretch fills."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from scaler.simulate.optimum.outlive import Stays
from scaler.simulate.optimum.problem import Problem
from scaler.simulate.optimum.steps import Floats

Columns = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Spans: TypeAlias = tuple[Columns, Columns, Floats]
Stretch: TypeAlias = tuple[float, float, float | None]
"""(from, to, the fall after which it fades if it does), in seconds."""
_ROUNDING_S = 1e-9


class Times:
    """See the module's docstring. Steps are numbered from 0; times are in seconds."""

    def __init__(self, problem: Problem) -> None:
        self.edges_s: Floats = np.array(problem.edges_s)
        self.begins_s, self.ends_s = self.edges_s[:-1], self.edges_s[1:]
        self.lasts_s: Floats = np.diff(self.edges_s)
        self._launch_s = problem.launch_s + _ROUNDING_S
        draws = problem.draws
        self._stays = Stays(ages_s=draws.stays_from_s, shares=draws.stays) if draws else None

    @property
    def lags(self) -> tuple[Columns, Columns]:
        """All (later, earlier) steps, the same one too, of which the earlier begins and ends at most a launch before."""
        later: list[int] = []
        earlier: list[int] = []
        for step in range(len(self.lasts_s)):
            for before in range(step, -1, -1):
                if (
                    max(self.begins_s[step] - self.begins_s[before], self.ends_s[step] - self.ends_s[before])
                    > self._launch_s
                ):
                    break
                later.append(step)
                earlier.append(before)
        return np.array(later), np.array(earlier)

    def within_minimum(self, minimum_s: float) -> tuple[Columns, Columns]:
        """All (step, edge) of which a grant at the edge, or a little before, is still charged through the step."""
        steps: list[int] = []
        edges: list[int] = []
        minimum_s += _ROUNDING_S
        for step in range(len(self.lasts_s)):
            for edge in range(step, -1, -1):
                a_step_before = self.begins_s[edge - 1] if edge else self.begins_s[0]
                whole = self.begins_s[edge] + minimum_s >= self.ends_s[step]
                if not whole or (edge and a_step_before + minimum_s < self.begins_s[step]):
                    break
                steps.append(step)
                edges.append(edge)
        return np.array(steps, dtype=np.int64), np.array(edges, dtype=np.int64)

    def shares(self, from_s: float, to_s: float, fades_s: float | None = None) -> tuple[Columns, Floats]:
        """The steps that a stretch of time fills, and the share of each; of one that fades, as far as it is still there."""
        first = max(0, int(np.searchsorted(self.edges_s, from_s, "right")) - 1)
        last = min(len(self.lasts_s), int(np.searchsorted(self.edges_s, to_s, "left")))
        steps = np.arange(first, last)
        since_s, until_s = np.maximum(from_s, self.begins_s[steps]), np.minimum(to_s, self.ends_s[steps])
        if fades_s is not None and self._stays is not None:
            since_s, until_s = (self._stays.passed_s(times_s, fades_s) for times_s in (since_s, until_s))
        filled_s = until_s - since_s
        return steps, np.clip(filled_s / self.lasts_s[steps], 0.0, 1.0)

    def spans(self, stretches: Sequence[Stretch], columns: Columns) -> Spans:
        """(step, column, share of the step) of all stretches, one a column."""
        rows: list[Columns] = [np.zeros(0, dtype=np.int64)]
        shares: list[Floats] = [np.zeros(0)]
        for stretch in stretches:
            steps, share = self.shares(*stretch)
            rows.append(steps)
            shares.append(share)
        lengths = [len(steps) for steps in rows[1:]]
        return np.concatenate(rows), np.repeat(columns, lengths), np.concatenate(shares)

    def soon_after(self, at_s: float, within_s: float) -> list[int]:
        """Steps that lie wholly between a moment and so long after it."""
        inside = (self.begins_s >= at_s) & (self.ends_s <= at_s + within_s + _ROUNDING_S)
        return [int(step) for step in np.flatnonzero(inside)]
