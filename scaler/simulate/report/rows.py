"""Charts with a row a policy: names at the left, a scale below, words at the right."""

from collections.abc import Sequence

from scaler.simulate.report.amounts import marks
from scaler.simulate.report.axes import ticks
from scaler.simulate.report.chart import Chart, Margins
from scaler.simulate.report.style import INK

ROW = 28.0
"""Height of a row, in pixels."""
OPTIMUM = "optimum (bound)"
_LONGEST_NAME = 30


class Rows:
    """A chart whose vertical axis is a list of names, the first at the top."""

    def __init__(self, name: str, names: Sequence[str], x: tuple[float, float], unit: str, each: float = 1.0) -> None:
        """`x` is [low, high] of the values; `unit` is what the marks below count, `each` how many of them a value of 1 is."""
        margins = Margins(left=210.0, right=255.0, top=22.0, bottom=38.0)
        self.chart = Chart(name, x, (0.0, 1.0), ROW * len(names), margins)
        places = ticks(x[0], x[1], 8)
        words = dict(zip(places, marks([each * place for place in places]), strict=True))
        self.chart.x_axis(places, words.__getitem__, unit, grid=True)
        for i, row in enumerate(names):
            self.chart.text(self.chart.left - 10, self.middle(i) + 4, short(row), anchor="end")

    def middle(self, row: int) -> float:
        """Where a row's middle is, in pixels."""
        return self.chart.top + ROW * (row + 0.5)

    def bar(self, row: int, start: float, end: float, colour: str, title: str) -> None:
        """A bar from one value to another."""
        left, right = sorted((self.chart.x(start), self.chart.x(end)))
        self.chart.box(left, self.middle(row) - 9, right - left, 18, colour, title)

    def words(self, row: int, text: str) -> None:
        """What stands at the right of a row."""
        self.chart.text(self.chart.right + 10, self.middle(row) + 4, text, fill=INK)


def short(name: str, longest: int = _LONGEST_NAME) -> str:
    """A name that fits beside its row."""
    return name if len(name) <= longest else f"{name[: longest - 1]}\u2026"
