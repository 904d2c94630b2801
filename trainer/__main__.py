"""`python -m trainer`: the reference trainer as a process.

Exit codes: 0 done or asked to stop, 2 wrong input, 3 refused by the ledger, 4 succeeded by another trainer.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import torch

from scaler.ledger.contract import Ledger, LedgerRefused, StaleEpoch
from scaler.ledger.registry import open_ledger
from scaler.model.job import JobSettings, OnStale
from trainer.grpo import LossSettings
from trainer.intake import IntakeSettings
from trainer.ledger_calls import LedgerCalls, Stopped
from trainer.loop import Trainer, TrainerSettings
from trainer.record import UpdateRecord, append_line
from trainer.tasks import TASKS
from trainer.timing import PhaseListener, SystemClock
from trainer.update import UpdateSettings


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line; wrong input ends the process with code 2."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description="Reference GRPO trainer.")
    parser.add_argument("--ledger", required=True, help="ledger URL")
    parser.add_argument("--job", required=True)
    parser.add_argument("--weights", type=Path, required=True, help="folder that versions are published into")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of checkpoints")
    parser.add_argument("--task", choices=sorted(TASKS), default="repeat")
    parser.add_argument("--updates", type=positive, required=True, help="step to stop at, counted over restarts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--owner", default=f"{socket.gethostname()}/{os.getpid()}")
    parser.add_argument("--threads", type=positive, help="torch threads")
    _add_job_options(parser)
    _add_learning_options(parser)
    parser.add_argument("--metrics-file", type=Path, help="append one JSON line an update")
    parser.add_argument("--phase-log", type=Path, help="append one JSON line as each phase is entered")
    return parser.parse_args(argv)


def positive(text: str) -> int:
    """A whole number above 0, or argparse's complaint."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("job")
    group.add_argument("--configure", action="store_true", help="set the job's rules (else the controller does)")
    group.add_argument("--batch-groups", type=positive, default=8)
    group.add_argument("--group-size", type=positive, default=8)
    group.add_argument("--max-staleness", type=int, default=2)
    group.add_argument("--on-stale", choices=[value.value for value in OnStale], default=OnStale.DROP.value)
    group.add_argument("--time-bound-s", type=float, default=600.0, help="longest a unit may take")
    group.add_argument("--refill-rounds", type=int, default=2, help="times that groups without spread are replaced")
    group.add_argument("--refill-wait-s", type=float, default=2.0, help="longest wait of one such round")
    group.add_argument("--keep-versions", type=positive, default=4)
    group.add_argument("--keep-checkpoints", type=positive, default=3)


def _add_learning_options(parser: argparse.ArgumentParser) -> None:
    learning, loss = UpdateSettings(), LossSettings()
    group = parser.add_argument_group("learning")
    group.add_argument("--lr", type=float, default=learning.learning_rate)
    group.add_argument("--minibatches", type=positive, default=learning.minibatches)
    group.add_argument("--epochs", type=positive, default=learning.epochs)
    group.add_argument("--clip", type=float, default=loss.clip)
    group.add_argument("--weight-cap", type=float, default=loss.weight_cap)
    group.add_argument("--entropy-bonus", type=float, default=loss.entropy_bonus)


def settings_of(options: argparse.Namespace) -> TrainerSettings:
    """The run that the options describe."""
    return TrainerSettings(
        owner=options.owner,
        job=JobSettings(
            group_size=options.group_size,
            batch_groups=options.batch_groups,
            max_staleness=options.max_staleness,
            on_stale=OnStale(options.on_stale),
        ),
        updates=options.updates,
        weights=options.weights,
        checkpoints=options.checkpoints,
        seed=options.seed,
        time_bound_s=options.time_bound_s,
        keep_versions=options.keep_versions,
        keep_checkpoints=options.keep_checkpoints,
        update=UpdateSettings(
            learning_rate=options.lr,
            minibatches=options.minibatches,
            epochs=options.epochs,
            loss=LossSettings(clip=options.clip, weight_cap=options.weight_cap, entropy_bonus=options.entropy_bonus),
        ),
        intake=IntakeSettings(refill_rounds=options.refill_rounds, refill_wait_s=options.refill_wait_s),
    )


def phase_logger(path: Path | None) -> PhaseListener:
    """A listener that appends each phase to a file as it is entered, or does nothing without one."""

    def log(step: int, phase: str) -> None:
        if path is not None:
            append_line(path, json.dumps({"step": step, "phase": phase}))

    return log


def train(options: argparse.Namespace, stop: threading.Event) -> None:
    """Open the ledger, and train until done or asked to stop."""
    clock = SystemClock(stop)
    settings = settings_of(options)
    settings.weights.mkdir(parents=True, exist_ok=True)

    def on_update(record: UpdateRecord) -> None:
        if options.metrics_file is not None:
            append_line(options.metrics_file, record.line())

    ledger: Ledger = open_ledger(options.ledger, options.job)
    try:
        if options.configure:
            calls = LedgerCalls(ledger=ledger, clock=clock, stop=stop)
            calls.call(lambda opened: opened.configure(settings.job))
        Trainer(
            ledger,
            TASKS[options.task](),
            settings,
            clock,
            stop=stop,
            listener=phase_logger(options.phase_log),
            on_update=on_update,
        ).run()
    finally:
        ledger.close()


def main(argv: list[str]) -> int:
    """Entry point; returns the exit code."""
    options = parse_arguments(argv)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        train(options, stop)
    except Stopped:
        return 0
    except LedgerRefused as error:
        sys.stderr.write(f"the ledger refuses: {error}\n")
        return 3
    except StaleEpoch as error:
        sys.stderr.write(f"another trainer took over: {error}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
