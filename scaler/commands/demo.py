"""`headrace demo`: the whole loop on this machine, with its view, its sums and its picture."""

import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from scaler.commands.outputs import OutputError, check_writable, write_text, writing
from scaler.demo.moments import Moment, Run
from scaler.demo.play_plan import DemoError, PlayPlan, play_plan
from scaler.demo.summary import Labels, Summary, summarise, tokens_in_progress
from scaler.demo.view import View, open_view
from scaler.demo.watch import Watch
from scaler.demo.world import World
from scaler.ledger.audit import audit, events_of
from scaler.ledger.contract import Ledger, LedgerError
from scaler.model.work import ReleaseReason

LOOK_EVERY_S = 0.5
PLOT_SUFFIXES = (".png", ".svg")
LIMIT_S = 175.0
"""A demo that has not finished its updates by then is ended, and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What a person asked for."""

    trace: Path | None
    seed: int
    summary: Path | None
    plot: Path | None
    updates: int
    progress: bool
    keep: Path | None


def run_demo(options: DemoOptions) -> int:
    """0: nothing lost, nothing doubled; 1: something was, or it did not finish; 2: wrong input; 130: Ctrl-C."""
    console = Console()
    try:
        _check(options)
        plan = play_plan(options.trace)
    except (DemoError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        return _run_in_folder(options, plan, console)
    except KeyboardInterrupt:
        console.print("stopping", style="dim")
        return 130


def _check(options: DemoOptions) -> None:
    """Refuse before the run what would spoil it, or its end. `DemoError` or `OutputError`."""
    if options.updates < 1:
        raise DemoError(f"--updates {options.updates}: at least 1")
    if options.plot is not None and options.plot.suffix.lower() not in PLOT_SUFFIXES:
        raise DemoError(f"--plot {options.plot}: its name must end in {' or '.join(PLOT_SUFFIXES)}")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise DemoError("--plot needs matplotlib: pip install 'headrace[plot]'")
    if options.keep is not None:
        _check_folder(options.keep)
    check_writable(options.summary, options.plot)


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as error:
        raise DemoError(f"--keep {folder}: it cannot be used: {error.strerror}") from error
    if not empty:
        raise DemoError(f"--keep {folder}: it is not empty, and two runs in one folder would be summed up as one")
    if not os.access(folder, os.W_OK):
        raise DemoError(f"--keep {folder}: it cannot be written")


def _run_in_folder(options: DemoOptions, plan: PlayPlan, console: Console) -> int:
    with _stopped_by(signal.default_int_handler), _folder(options.keep) as folder:
        world = World(
            folder=folder,
            seed=options.seed,
            updates=options.updates,
            progress=options.progress,
            trace=plan.trace,
        )
        return _play(world, options, console)


def _play(world: World, options: DemoOptions, console: Console) -> int:
    started_at_s = world.clock.now_s()
    problem: str | None = None
    try:
        moments, problem = _live(world, started_at_s, options, console)
        return _conclude(world, Watch(world, world.open_ledger(), started_at_s), moments, problem, options, console)
    except (LedgerError, OutputError, OSError) as error:  # a full disk, most of all
        print(_failure(world, error, problem), file=sys.stderr)
        return 1


def _live(world: World, started_at_s: float, options: DemoOptions, console: Console) -> tuple[list[Moment], str | None]:
    """From the start to the end of everything: what was seen meanwhile, and what went wrong."""
    try:
        world.start()
        watch = Watch(world, world.open_ledger(), started_at_s)
        with open_view(console, options.updates, world.scale.ceiling) as view:
            problem = _watch(watch, view)
        return watch.moments, problem
    finally:
        # A second signal would leave processes behind; the stop is bounded, so it is not needed either.
        with _stopped_by(signal.SIG_IGN):
            world.stop()


def _failure(world: World, error: Exception, problem: str | None) -> str:
    """What ended the demo without its sums, where, and what had gone wrong before; one line."""
    before = "" if problem is None else f" (before that: {problem.splitlines()[0].rstrip(':')})"
    return f"{world.folder}: the demo failed: {error}{before}"


def _watch(watch: Watch, view: View) -> str | None:
    """Look until the trainer is done; says what went wrong, if something did."""
    while True:
        moment = watch.look(watch.world.clock.now_s())
        view.show(moment)
        if not watch.world.children["trainer"].running:
            return None if watch.world.dead() is None else _obituary(watch.world)
        if watch.world.dead() is not None:
            return _obituary(watch.world)
        if moment.at_s > LIMIT_S:
            return f"not finished after {LIMIT_S:.0f} s: {moment.updates} of {watch.world.updates} updates"
        time.sleep(LOOK_EVERY_S)


def _obituary(world: World) -> str:
    child = world.dead()
    if child is None:
        return "a process died"
    return f"{child.name} ended with exit code {child.process.poll()}:\n{child.last_words()}"


def _conclude(
    world: World, watch: Watch, moments: list[Moment], problem: str | None, options: DemoOptions, console: Console
) -> int:
    run = Run(
        moments=tuple(moments),
        updates=tuple(watch.updates()),
        interruptions=tuple(watch.interruptions()),
        min_replicas=world.scale.floor,
        max_replicas=world.scale.ceiling,
        title=f"headrace demo: task {world.scale.task}, seed {world.seed}, trace {Path(world.trace.source).name}",
    )
    summary = _sum_up(run, watch.ledger, world)
    _print(summary, console)
    if options.summary is not None:
        write_text(options.summary, json.dumps(summary.as_dict(), indent=1) + "\n")
    if options.plot is not None:
        from scaler.demo.plot import draw

        with writing(options.plot):
            draw(run, options.plot)
    if problem is not None:
        print(problem, file=sys.stderr)
    return 0 if summary.ok and problem is None else 1


def _sum_up(run: Run, ledger: Ledger, world: World) -> Summary:
    ledger.expire()
    for worker in ledger.workers():
        ledger.release_worker(worker.identity.worker, ReleaseReason.WORKER_LOST)
    labels = Labels(task=world.scale.task, seed=world.seed, progress_published=world.progress)
    held = tokens_in_progress(list(events_of(ledger)))
    return summarise(run, ledger.stats(), audit(ledger), world.generated_tokens(), held, labels)


def _print(summary: Summary, console: Console) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in summary.as_dict().items():
        table.add_row(name, str(value))
    console.print(table)
    verdict = "nothing lost, nothing doubled" if summary.ok else "SOMETHING WAS LOST OR DOUBLED"
    console.print(verdict, style="green" if summary.ok else "bold red")


@contextmanager
def _stopped_by(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo like Ctrl-C: workers outlive a demo that does not end them."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
