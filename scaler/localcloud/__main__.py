"""`python -m scaler.localcloud`: plays a capacity trace on a state folder until SIGTERM or SIGINT.

Exit codes: 0 told to stop, 2 wrong input.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

from scaler.localcloud.player import Player, PlayerSettings
from scaler.localcloud.state import StateDir
from scaler.runtime.clock import SystemClock
from scaler.traces.registry import load_trace
from scaler.traces.text import GapPolicy
from scaler.traces.trace import CapacityTrace


def _mapping(text: str) -> tuple[str, str]:
    offering, equals, series = text.rpartition("=")
    if not (offering and equals and series):
        raise argparse.ArgumentTypeError(f"{text!r} is not OFFERING=SERIES")
    return offering, series


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scaler.localcloud", description="Play the cloud on this machine.")
    parser.add_argument("--state-dir", type=Path, required=True, help="shared with the local pools")
    parser.add_argument("--trace", type=Path, required=True, help="capacity trace, in any format of scaler.traces")
    parser.add_argument("--series", default="", help="only these, by comma")
    parser.add_argument("--merge", metavar="NAME", help="sum of the series, as one of this name")
    parser.add_argument(
        "--window", nargs=2, type=float, metavar=("START_H", "HOURS"), help="part of the trace's own time"
    )
    parser.add_argument("--ignore-dips", action="store_true", help="take out one-tick falls to 0 that refill")
    parser.add_argument("--gaps", type=GapPolicy, choices=list(GapPolicy), default=GapPolicy.HOLD)
    parser.add_argument("--count-scale", type=float, default=1.0, help="multiply counts, rounded down")
    parser.add_argument("--cap", type=int, help="no count above this")
    parser.add_argument("--time-scale", type=float, default=1.0, help="60: an hour passes in a minute")
    parser.add_argument("--repeat", action="store_true", help="from the start again at the end")
    parser.add_argument("--offering", action="append", type=_mapping, default=[], metavar="OFFERING=SERIES")
    parser.add_argument("--notice-ratio", type=float, default=0.5, help="share of interruptions with notice")
    parser.add_argument("--notice-s", type=float, default=2.0, help="from notice to SIGKILL")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of victims")
    return parser


def _trace(options: argparse.Namespace) -> CapacityTrace:
    trace = load_trace(options.trace, options.gaps)
    if options.series:
        trace = trace.select([name.strip() for name in options.series.split(",")])
    if options.ignore_dips:
        trace = trace.without_dips()
    if options.window:
        trace = trace.window(*options.window)
    if options.merge:
        trace = trace.merged(options.merge)
    trace = trace.scaled(options.count_scale).faster(options.time_scale)
    return trace if options.cap is None else trace.capped(options.cap)


def _player(options: argparse.Namespace, state: StateDir) -> Player:
    settings = PlayerSettings(
        trace=_trace(options),
        offerings=dict(options.offering),
        notice_ratio=options.notice_ratio,
        notice_s=options.notice_s,
        seed=options.seed,
        repeat=options.repeat,
    )
    _be_alone(state)
    return Player(state, settings, SystemClock())


def _be_alone(state: StateDir) -> None:
    """Held until we end: two players would each take what the other left."""
    state.create()
    lock = os.open(state.root / "player.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{state.root}: another player is at work there") from None


async def _play(player: Player) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    await player.play(stop)


def main(argv: list[str] | None = None) -> int:
    """Play; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        player = _player(options, StateDir(options.state_dir.absolute()))
    except (ValueError, KeyError) as error:
        sys.stderr.write(f"{error.args[0] if error.args else error}\n")
        return 2
    asyncio.run(_play(player))
    return 0


if __name__ == "__main__":
    sys.exit(main())
