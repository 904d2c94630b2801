"""`python -m trainer`: the reference trainer as a process.

One process, or several ranks of one trainer under torchrun:

    torchrun --nproc-per-node 8 -m trainer --expert-parallel nccl --transport p2p ...

Exit codes: 0 done or asked to stop, 2 wrong input, 3 refused by the ledger, or not answered, 4 succeeded by another trainer,
5 the ranks may not start together (the line says why), 6 a rank failed or was lost: all end, to be started again together.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

import torch

from scaler.ledger.contract import Ledger, LedgerRefused, LedgerUnavailable, StaleEpoch
from scaler.ledger.registry import open_ledger
from scaler.model.job import JobSettings, OnStale
from trainer.expert_parallel.mesh import CrewLost, CrewRefused, place_of
from trainer.expert_parallel.modes import MODES
from trainer.expert_parallel.start import BeatingClock, Declared, crew
from trainer.expert_parallel.transport import WAYS
from trainer.grpo import LossSettings
from trainer.intake import IntakeSettings
from trainer.learner import LearnerFactory, LocalLearner
from trainer.ledger_calls import LedgerCalls, Stopped
from trainer.loop import Trainer, TrainerSettings
from trainer.record import UpdateRecord, append_line
from trainer.tasks import TASKS
from trainer.timing import PhaseListener, SystemClock, TrainerClock
from trainer.update import UpdateSettings

NEED_TRANSPORT = frozenset(name for name, mode in MODES.items() if mode.backend == "nccl")


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
    _add_crew_options(parser)
    parser.add_argument("--metrics-file", type=Path, help="append one JSON line an update")
    parser.add_argument("--phase-log", type=Path, help="append one JSON line as each phase is entered")
    options = parser.parse_args(argv)
    if options.expert_parallel in NEED_TRANSPORT and not options.transport:
        parser.error(
            f"--expert-parallel {options.expert_parallel} needs --transport: declare what tokens may travel over"
        )
    return options


def positive(text: str) -> int:
    """A whole number above 0, or argparse's complaint."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("job")
    group.add_argument(
        "--configure", action="store_true", help="set the job's rules (else the controller does, no dry run)"
    )
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
    group.add_argument(
        "--min-train-s", type=float, default=0.0, help="least time of an update: a device of given speed"
    )
    group.add_argument("--lr", type=float, default=learning.learning_rate)
    group.add_argument("--minibatches", type=positive, default=learning.minibatches)
    group.add_argument("--epochs", type=positive, default=learning.epochs)
    group.add_argument("--clip", type=float, default=loss.clip)
    group.add_argument("--weight-cap", type=float, default=loss.weight_cap)
    group.add_argument("--entropy-bonus", type=float, default=loss.entropy_bonus)


def _add_crew_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("expert parallelism (ranks started by torchrun)")
    group.add_argument("--expert-parallel", choices=sorted(MODES), help="default: one process holds every expert")
    group.add_argument(
        "--transport", type=ways, default=frozenset(), help=f"ways that tokens may take, of {', '.join(WAYS)}: p2p,efa"
    )
    group.add_argument("--efa-nics", type=positive, help="EFA devices that each node has to have")


def ways(text: str) -> frozenset[str]:
    """Names of transports, or argparse's complaint."""
    names = frozenset(text.split(","))
    if unknown := names - set(WAYS):
        raise argparse.ArgumentTypeError(f"no transport {', '.join(sorted(unknown))}: {', '.join(WAYS)}")
    return names


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
        min_train_s=options.min_train_s,
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


class FolderRefused(Exception):
    """A folder that cannot be made."""


def phase_logger(path: Path | None) -> PhaseListener:
    """A listener that appends each phase to a file as it is entered, or does nothing without one."""

    def log(step: int, phase: str) -> None:
        if path is not None:
            append_line(path, json.dumps({"step": step, "phase": phase}))

    return log


def train(
    options: argparse.Namespace, stop: threading.Event, clock: TrainerClock, learner: LearnerFactory = LocalLearner
) -> None:
    """Open the ledger, and train until done or asked to stop."""
    settings = settings_of(options)
    try:
        settings.weights.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderRefused(f"--weights {settings.weights}: {error.strerror}") from error

    def on_update(record: UpdateRecord) -> None:
        sys.stdout.write(
            f"update {record.step} of {settings.updates}: mean reward {record.reward_mean:.3f}, {record.groups} groups, "
            f"waited {record.wait_ratio:.0%}\n"
        )
        sys.stdout.flush()
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
            learner=learner,
        ).run()
    finally:
        ledger.close()


def train_in_crew(options: argparse.Namespace, stop: threading.Event, clock: TrainerClock) -> None:
    """Be one of several ranks: the lead trains, the others follow it, also to its end."""
    place = place_of(os.environ)
    if place.rank:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    declared = Declared(mode=options.expert_parallel, transports=options.transport, efa_nics=options.efa_nics)
    answer: Exception | None = None
    try:
        with crew(declared, place) as members:
            if place.rank:
                members.follow()
            else:
                answer = _lead(options, stop, BeatingClock(clock, members.channel), members.learner)
    except RuntimeError as error:  # what torch raises for a peer that is gone, and for a failure of this rank's own
        raise CrewLost(f"rank {place.rank}: {error}") from error
    if answer is not None:
        raise answer


def _lead(
    options: argparse.Namespace, stop: threading.Event, clock: TrainerClock, learner: LearnerFactory
) -> Exception | None:
    """Train; an end in good order is an answer, so that the others are let go before it is raised."""
    try:
        train(options, stop, clock, learner)
    except (Stopped, FolderRefused, LedgerRefused, LedgerUnavailable, StaleEpoch) as error:
        return error
    return None


_ENDS: dict[type[BaseException], tuple[int, str]] = {
    FolderRefused: (2, ""),
    LedgerRefused: (3, "the ledger refuses: "),
    LedgerUnavailable: (3, "the ledger does not answer: "),
    StaleEpoch: (4, "another trainer took over: "),
    CrewRefused: (5, "the ranks may not start: "),
}
"""What ends the process in one line: its exit code, and how the line begins."""


def main(argv: list[str]) -> int:
    """Entry point; returns the exit code."""
    options = parse_arguments(argv)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    begin = train if options.expert_parallel is None else train_in_crew
    try:
        begin(options, stop, SystemClock(stop))
    except Stopped:
        return 0
    except CrewLost:
        traceback.print_exc()
        return 6
    except tuple(_ENDS) as error:
        code, says = next(_ENDS[kind] for kind in type(error).__mro__ if kind in _ENDS)
        sys.stderr.write(f"{says}{error}\n")
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
