"""Jobs of the simulator over several processes.

Invariants: what is given depends on the jobs alone, not on how many processes or in which order they end; an error or an
interrupt ends the processes, and what was finished is in the store.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scaler.commands.progress import progress
from scaler.simulate.jobs import Job, run_job


def default_store() -> Path:
    """Where results are kept for the next run: the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "runs"


class Workers:
    """This process, or several others; made by `workers`."""

    def __init__(self, pool: ProcessPoolExecutor | None, processes: int) -> None:
        self.pool, self.processes = pool, processes

    def run(self, jobs: Sequence[Job], store: Path | None, label: str) -> dict[Job, dict[str, Any]]:
        """The figures of every job, each done once. `store` None keeps nothing."""
        once = tuple(dict.fromkeys(jobs))
        with progress(label, len(once)) as tell:
            ended = _here(once, store) if self.pool is None else _spread(self.pool, once, store)
            found = {}
            for job, figures in ended:
                found[job] = figures
                tell(len(found))
        return {job: found[job] for job in once}


@contextmanager
def workers(processes: int) -> Iterator[Workers]:
    """So many processes at work. `ValueError` for fewer than one."""
    if processes < 1:
        raise ValueError(f"--jobs {processes}: at least 1 process does the work")
    if processes == 1:
        yield Workers(None, 1)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            yield Workers(pool, processes)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _here(jobs: Sequence[Job], store: Path | None) -> Iterator[tuple[Job, dict[str, Any]]]:
    for job in jobs:
        yield job, run_job(job, store)


def _spread(pool: ProcessPoolExecutor, jobs: Sequence[Job], store: Path | None) -> Iterator[tuple[Job, dict[str, Any]]]:
    running = {pool.submit(run_job, job, store): job for job in jobs}
    for future in as_completed(running):
        yield running[future], future.result()
