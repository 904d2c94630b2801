"""The demo's terminal view: a live panel on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scaler.demo.moments import Moment

PLAIN_EVERY_S = 5.0
_SPARKS = "▁▂▃▄▅▆▇█"


class View(Protocol):
    """Shows moments as they come."""

    def show(self, moment: Moment) -> None:
        """Show one."""
        ...


@contextmanager
def open_view(console: Console, updates: int, max_replicas: int) -> Iterator[View]:
    """The view that fits the console."""
    if not console.is_terminal:
        yield PlainView(console, updates)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        yield LiveView(live, updates, max_replicas)


class PlainView:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, console: Console, updates: int) -> None:
        self._console, self._updates, self._last_s = console, updates, -PLAIN_EVERY_S

    def show(self, moment: Moment) -> None:
        """Print, at most every `PLAIN_EVERY_S`."""
        if moment.at_s - self._last_s < PLAIN_EVERY_S:
            return
        self._last_s = moment.at_s
        self._console.print(
            f"{moment.at_s:6.1f} s  update {moment.updates}/{self._updates}  reward {_number(moment.reward)}"
            f"  replicas {moment.ready} ready + {moment.starting} starting (wanted {_number(moment.desired)})"
            f"  buffer {_number(moment.buffered_samples)}"
            f"  interrupted {moment.noticed}+{moment.unnoticed}  salvaged {moment.salvaged_tokens} tokens",
            highlight=False,
            soft_wrap=True,
        )


class LiveView:
    """A panel that is drawn anew."""

    def __init__(self, live: Live, updates: int, max_replicas: int) -> None:
        self._live, self._updates, self._max_replicas = live, updates, max_replicas
        self._rewards: list[float] = []
        self._buffer: list[float] = []

    def show(self, moment: Moment) -> None:
        """Draw the panel."""
        if moment.reward is not None and (not self._rewards or self._rewards[-1] != moment.reward):
            self._rewards.append(moment.reward)
        if moment.buffered_samples is not None:
            self._buffer.append(float(moment.buffered_samples))
        self._live.update(self._panel(moment))

    def _panel(self, moment: Moment) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column()
        table.add_row("updates", f"{moment.updates} of {self._updates}")
        table.add_row("fleet", self._fleet(moment))
        table.add_row("buffer", f"{_number(moment.buffered_samples):>5} samples  {spark(self._buffer)}")
        table.add_row("reward", f"{_number(moment.reward):>5}          {spark(self._rewards)}")
        table.add_row("trainer waited", "-" if moment.wait_ratio is None else f"{moment.wait_ratio:.0%}")
        table.add_row("interrupted", f"{moment.noticed} with notice, {moment.unnoticed} without")
        table.add_row("salvaged", f"{moment.salvaged_tokens} tokens")
        return Panel(
            Group(table, Text(moment.decision, style="dim", overflow="ellipsis", no_wrap=True)),
            title=f"headrace demo  {moment.at_s:.0f} s",
            title_align="left",
        )

    def _fleet(self, moment: Moment) -> Text:
        bar = Text()
        bar.append("█" * moment.ready, style="green")
        bar.append("▒" * moment.starting, style="green")
        bar.append("░" * moment.draining, style="yellow")
        bar.append("·" * max(0, self._max_replicas - moment.held - moment.draining), style="dim")
        bar.append(
            f"  {moment.ready} ready, {moment.starting} starting, {moment.draining} draining;"
            f" wanted {_number(moment.desired)}, offered {_number(moment.capacity)}"
        )
        return bar


def spark(values: list[float], width: int = 40) -> str:
    """The last `width` values as a line of blocks, scaled from 0 to their maximum."""
    recent = values[-width:]
    top = max(recent, default=0.0)
    if top <= 0:
        return _SPARKS[0] * len(recent)
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * (len(_SPARKS) - 1) + 0.5))] for value in recent)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
