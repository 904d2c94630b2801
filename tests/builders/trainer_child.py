"""A trainer in a process of its own that can be made to die by SIGKILL at an exact moment."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.timing import PhaseListener

Moment = tuple[int, str, int]
"""(step, phase, changes to the file system to let through after the phase is entered; -1: die on entering)."""


def start(argv: list[str], die_at: Moment | None) -> multiprocessing.process.BaseProcess:
    """Start `python -m trainer` with these arguments; the fork server has imported torch already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "tests.builders.training"])
    process = context.Process(target=_run, args=(argv, die_at), daemon=True)
    process.start()
    return process


def _run(argv: list[str], die_at: Moment | None) -> None:
    from tests.builders.training import ShortRepeat
    from trainer import __main__ as command
    from trainer.tasks import TASKS

    TASKS["short"] = ShortRepeat
    if die_at is not None:
        setattr(command, "phase_logger", _deadly(command.phase_logger, die_at))  # noqa: B010 -- mypy: a function of a module is final
    raise SystemExit(command.main(argv))


def _deadly(
    make_logger: Callable[[Path | None], PhaseListener], die_at: Moment
) -> Callable[[Path | None], PhaseListener]:
    step, phase, changes = die_at

    def make(path: Path | None) -> PhaseListener:
        log = make_logger(path)

        def listen(at_step: int, at_phase: str) -> None:
            log(at_step, at_phase)
            if (at_step, at_phase) == (step, phase):
                _die_after(changes)

        return listen

    return make


def _die_after(changes: int) -> None:
    if changes < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left = iter(range(changes))

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    os.fsync = deadly(os.fsync)
    Path.replace = deadly(Path.replace)  # type: ignore[method-assign]
