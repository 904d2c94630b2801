"""`headrace top`: a controller's status on the terminal, drawn anew every second or two; one frame where nobody sits at it."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from scaler.commands.controller_answers import (
    Foreign,
    Unanswered,
    fleets_in,
    is_address,
    read_status,
    url_of,
)
from scaler.commands.top_frame import of_fleet, of_fleets
from scaler.config.convert import http_address
from scaler.config.faults import ConfigError
from scaler.config.last_good import load_at_start
from scaler.runtime.daemon import state_files

WRONG_INPUT, NO_ANSWER = 2, 3
_DECISIONS = 50
"""Enough to find the last that did something."""
_PIPE_WIDTH = 120
"""A frame is a hundred columns wide; a pipe has no width of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """What the command line says. `fleet` None: all fleets of the controller, or the only one."""

    url: str | None = None
    file: Path | None = None
    fleet: str | None = None
    every_s: float = 1.0
    once: bool = False


class NoSuchFleet(Exception):
    """The controller has no fleet of that name."""


def run_top(options: TopOptions) -> int:
    """0: shown until told to stop; 2: no address, or no such fleet; 3: nobody answers, or somebody else."""
    try:
        url = _address(options)
        console = Console()
        if options.once or not console.is_terminal:
            out = console if console.is_terminal else Console(width=_width(), highlight=False)
            out.print(_look(url, options.fleet))
        else:
            _live(console, url, options)
    except (ConfigError, ValueError, NoSuchFleet) as error:
        print(error, file=sys.stderr)
        return WRONG_INPUT
    except (Unanswered, Foreign) as error:
        print(error, file=sys.stderr)
        return NO_ANSWER
    return 0


def _width() -> int:
    """As `COLUMNS` says, else wide enough."""
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isascii() and asked.isdigit() and int(asked) > 0 else _PIPE_WIDTH


def _address(options: TopOptions) -> str:
    """`ValueError` where there is none."""
    if options.url is not None:
        if not is_address(options.url):
            raise ValueError(f"{options.url!r} is no address of a controller; write it like http://127.0.0.1:9090")
        return options.url
    if options.file is None:
        return "http://127.0.0.1:9090"
    start = load_at_start(options.file, state_files(options.file).last_good)
    url = url_of(*http_address(start.fleet))
    if url is None:
        raise ValueError(f"{options.file}: spec.http.listen asks for any free port: name the address (--url)")
    return url


def _look(url: str, fleet: str | None) -> RenderableType:
    """A frame of what the controller says now."""
    status = read_status(url, _DECISIONS)
    fleets = fleets_in(status)
    if fleet is not None and fleet not in fleets:
        raise NoSuchFleet(f"there is no fleet {fleet}; the controller has {', '.join(sorted(fleets)) or 'none'}")
    try:
        if fleet is None and "fleets" in status and len(fleets) != 1:
            return of_fleets(status, fleets)
        name = next(iter(fleets)) if fleet is None else fleet
        return of_fleet(name, fleets[name])
    except (KeyError, TypeError) as error:
        raise Foreign(f"the status at {url} is another version's: {error!r}") from error


def _live(console: Console, url: str, options: TopOptions) -> None:
    """Until `q` or Ctrl-C. While nobody answers, the last frame stays, under a line that says so."""
    last: RenderableType = _look(url, options.fleet)
    with suppress(KeyboardInterrupt), _keys() as quits, Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(last, refresh=True)
        while not quits(options.every_s):
            try:
                last = _look(url, options.fleet)
                live.update(last, refresh=True)
            except (Unanswered, Foreign, NoSuchFleet) as error:
                live.update(Group(Text(f"{error}; what follows is old", style="bold red"), last), refresh=True)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A wait of so many seconds, which `q` ends and answers with True. The terminal is as before afterwards."""
    if not sys.stdin.isatty():
        yield lambda seconds: _pressed([], seconds)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: _pressed([descriptor], seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _pressed(descriptors: list[int], seconds: float) -> bool:
    ready, _, _ = select.select(descriptors, [], [], seconds)
    return bool(ready) and os.read(ready[0], 1) in (b"q", b"Q", b"")
