"""A chart: a drawing area with axes, lines that step, areas, levels with a label at the right, and titles on hover.

Policy: lines are labelled where they end, not in a legend; labels at the right never overlap. A stretch of time shows its
values when the pointer rests on it.
Non-goals: knowing what is drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

from scaler.simulate.report.amounts import number
from scaler.simulate.report.axes import Scale, hour_ticks, time_unit
from scaler.simulate.report.nodes import node, px
from scaler.simulate.report.style import INK

WIDTH = 960.0
_LABEL_GAP = 15.0
_BASELINE = 4.0
"""From the middle of a line of text down to its baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Room around the drawing area, in pixels."""

    left: float = 64.0
    right: float = 170.0
    top: float = 12.0
    bottom: float = 36.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Label:
    at: float
    text: str
    colour: str
    title: str | None


class Chart:
    """Draws; `finish` gives the picture. `x` and `y` are [low, high] of the values; an upward axis where `y` is given."""

    def __init__(
        self, name: str, x: tuple[float, float], y: tuple[float, float], height: float, margins: Margins | None = None
    ) -> None:
        """`height` is that of the drawing area."""
        room = margins or Margins()
        self.left, self.right = room.left, WIDTH - room.right
        self.top, self.bottom = room.top, room.top + height
        self.x = Scale(low=x[0], high=x[1], start_px=self.left, end_px=self.right)
        self.y = Scale(low=y[0], high=y[1], start_px=self.bottom, end_px=self.top)
        self._labels: list[_Label] = []
        self.svg = node(
            "svg", node("title", name), viewBox=f"0 0 {px(WIDTH)} {px(self.bottom + room.bottom)}", role="img"
        )

    def add(self, element: Element) -> None:
        """Put it on top of what is there."""
        self.svg.append(element)

    def y_axis(self, values: Sequence[float], text: Callable[[float], str], label: str) -> None:
        """Grid lines with their values, and what they count."""
        lines = "".join(f"M{px(self.left)} {px(self.y(value))}H{px(self.right)}" for value in values)
        self.add(node("path", class_="grid", d=lines))
        for value in values:
            self.text(self.left - 7, self.y(value) + _BASELINE, text(value), anchor="end", class_="tick")
        middle = (self.top + self.bottom) / 2
        turned = f"translate(14 {px(middle)}) rotate(-90)"
        self.add(node("text", label, class_="tick", transform=turned, text_anchor="middle"))

    def x_axis(self, values: Sequence[float], text: Callable[[float], str], label: str, grid: bool = False) -> None:
        """Marks below, with their values, and what they count."""
        if grid:
            lines = "".join(f"M{px(self.x(value))} {px(self.top)}V{px(self.bottom)}" for value in values)
            self.add(node("path", class_="grid", d=lines))
        marks = "".join(f"M{px(self.x(value))} {px(self.bottom)}v4" for value in values)
        self.add(node("path", class_="axis", d=f"M{px(self.left)} {px(self.bottom)}H{px(self.right)}{marks}"))
        for value in values:
            self.text(self.x(value), self.bottom + 16, text(value), anchor="middle", class_="tick")
        self.text((self.left + self.right) / 2, self.bottom + 31, label, anchor="middle", class_="tick")

    def hours_axis(self) -> None:
        """The time since the start, in days, hours, minutes or seconds."""
        hours = self.x.high
        unit_h, word = time_unit(hours)
        self.x_axis(hour_ticks(hours), lambda value: number(value / unit_h, 4), f"{word} since the start")

    def text(self, x: float, y: float, text: str, anchor: str = "start", class_: str = "", fill: str = "") -> None:
        """A line of text; y is its baseline."""
        style = {"style": f"fill:{fill}"} if fill else {}
        self.add(node("text", text, x=x, y=y, text_anchor=anchor, class_=class_, **style))

    def area(
        self, hours: Sequence[float], values: Sequence[float], colour: str, title: str, opacity: float = 1.0
    ) -> None:
        """From the bottom of the axis up to a line that steps."""
        base = px(self.y(self.y.low))
        d = f"M{px(self.x(hours[0]))} {base}L{self._steps(hours, values)}V{base}Z"
        self.add(node("path", node("title", title), d=d, style=f"fill:{colour}", fill_opacity=f"{opacity:g}"))

    def band(
        self, hours: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, opacity: float
    ) -> None:
        """Between two lines that step."""
        back = self._steps(tuple(reversed(hours)), tuple(reversed(low)))
        d = f"M{self._steps(hours, high)}L{back}Z"
        self.add(node("path", d=d, style=f"fill:{colour}", fill_opacity=f"{opacity:g}"))

    def line(
        self, hours: Sequence[float], values: Sequence[float], colour: str, dash: str = "", width: float = 1.8
    ) -> None:
        """A line that steps: `hours` are the edges, one more than the values."""
        self.add(node("path", d=f"M{self._steps(hours, values)}", style=_pen(colour, dash, width)))

    def curve(self, points: Sequence[tuple[float, float]], colour: str, dash: str = "", width: float = 2.0) -> None:
        """A line through points."""
        d = "L".join(f"{px(self.x(x))} {px(self.y(y))}" for x, y in points)
        self.add(node("path", d=f"M{d}", style=_pen(colour, dash, width)))

    def level(self, value: float, label: str, colour: str, dash: str = "6 4") -> None:
        """A horizontal reference with its label at the right."""
        d = f"M{px(self.left)} {px(self.y(value))}H{px(self.right)}"
        self.add(node("path", d=d, class_="under"))
        self.add(node("path", d=d, style=_pen(colour, dash, 1.6)))
        self.label(value, label, colour)

    def label(self, value: float, text: str, colour: str, title: str | None = None) -> None:
        """Words at the right, at that height, moved where they would cover others."""
        self._labels.append(_Label(at=self.y(value), text=text, colour=colour, title=title))

    def box(
        self, x: float, y: float, width: float, height: float, colour: str, title: str, class_: str = "", **more: str
    ) -> None:
        """A filled rectangle, in pixels."""
        style = {"style": f"fill:{colour}"} if colour else {}
        box = node(
            "rect", node("title", title), x=x, y=y, width=max(0.0, width), height=max(0.0, height), **style, **more
        )
        if class_:
            box.set("class", class_)
        self.add(box)

    def dot(self, x: float, y: float, colour: str, title: str, radius: float = 4.5) -> None:
        """A round mark, in pixels."""
        self.add(node("circle", node("title", title), cx=x, cy=y, r=radius, style=f"fill:{colour}"))

    def hanging_marks(self, marks: Sequence[tuple[float, float]], colour: str) -> None:
        """Short lines down from the top edge, at an hour each and of a length from 0 to 1."""
        d = "".join(f"M{px(self.x(hour))} {px(self.top)}v{px(4.0 + 8.0 * length)}" for hour, length in marks)
        self.add(node("path", d=d, style=_pen(colour, "", 2.0)))

    def hover(self, hours: Sequence[float], titles: Sequence[str]) -> None:
        """What each stretch of time says when the pointer rests on it."""
        for (start, end), title in zip(pairwise(hours), titles, strict=True):
            left, right = self.x(start), self.x(end)
            self.box(left, self.top, right - left, self.bottom - self.top, "", title, class_="hover")

    def finish(self) -> Element:
        """The picture."""
        for label, at in _spread(self._labels, self.top, self.bottom):
            title = node("title", label.title) if label.title else None
            text = node("text", label.text, title, x=self.right + 8, y=at + _BASELINE, class_="halo")
            text.set("style", f"fill:{label.colour if label.colour.startswith('var') else INK}")
            self._swatch(label, at)
            self.add(text)
        return self.svg

    def _swatch(self, label: _Label, at: float) -> None:
        """A tick in the line's own colour leads from the line to its words, which are in ink to be legible."""
        d = f"M{px(self.right)} {px(label.at)}L{px(self.right + 6)} {px(at)}"
        self.add(node("path", d=d, style=_pen(label.colour, "", 2.0)))

    def _steps(self, hours: Sequence[float], values: Sequence[float]) -> str:
        """Path data of a line that steps, after its first command; nothing is written where nothing changes."""
        heights = [px(self.y(value)) for value in values]
        turns = (
            f"H{px(self.x(hour))}V{after}"
            for hour, (before, after) in zip(hours[1:], pairwise(heights), strict=False)
            if before != after
        )
        return f"{px(self.x(hours[0]))} {heights[0]}{''.join(turns)}H{px(self.x(hours[-1]))}"


def _pen(colour: str, dash: str, width: float) -> str:
    pen = f"fill:none;stroke:{colour};stroke-width:{width:g}"
    return f"{pen};stroke-dasharray:{dash}" if dash else pen


def _spread(labels: Sequence[_Label], top: float, bottom: float) -> list[tuple[_Label, float]]:
    """Each label with a height, inside and at least a line from the next; those that touch are centred together."""
    groups: list[list[_Label]] = []
    for label in sorted(labels, key=lambda each: each.at):
        groups.append([label])
        while len(groups) > 1 and _first(groups[-1], top, bottom) - _last(groups[-2], top, bottom) < _LABEL_GAP:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [(label, _first(group, top, bottom) + i * _LABEL_GAP) for group in groups for i, label in enumerate(group)]


def _first(group: Sequence[_Label], top: float, bottom: float) -> float:
    height = (len(group) - 1) * _LABEL_GAP
    centred = sum(label.at for label in group) / len(group) - height / 2
    return max(top, min(bottom - height, centred))


def _last(group: Sequence[_Label], top: float, bottom: float) -> float:
    return _first(group, top, bottom) + (len(group) - 1) * _LABEL_GAP
