"""`headrace run` as a process: puts the parts together, waits to lead, runs until told to stop.

One task group owns every task; one that dies takes the process down with exit code 1, and whoever supervises it starts
the next one. SIGTERM and SIGINT stop it in order; workers stay and the next controller adopts them.
A standby (another controller of this fleet on this machine holds the lock) serves its health and takes over on the
leader's death.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from scaler.config.convert import http_address, job_settings
from scaler.config.last_good import Start
from scaler.decide import decide
from scaler.ledger.contract import StaleEpoch
from scaler.model.clock import Clock
from scaler.model.job import JobSettings
from scaler.observe.ledger_watch import LedgerCalls, LedgerWatch
from scaler.observe.offerings import OfferingMemory
from scaler.runtime.adapters import Actors, notice_sources
from scaler.runtime.config_watch import ConfigWatch
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.executor import Executor
from scaler.runtime.health import alive, ready
from scaler.runtime.housekeeping import keep_house
from scaler.runtime.http import AddressInUse, HttpServer
from scaler.runtime.job_rules import JobRules
from scaler.runtime.journal import Journal, JournalError
from scaler.runtime.launcher import Launcher
from scaler.runtime.leadership import LeaderLock
from scaler.runtime.ledger_thread import LedgerThread
from scaler.runtime.loop import Controller, Parts
from scaler.runtime.notice_watch import NoticeWatch
from scaler.runtime.outcomes import Outcomes
from scaler.runtime.pool_watch import PoolWatch
from scaler.runtime.sources import ledger_opener, signal_sources
from scaler.runtime.status import status_json
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout

log = structlog.get_logger()

_BIND_RETRY_S = 0.5
_BIND_TRIES = 20
"""A leader that dies leaves its port a moment later than its lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFiles:
    """Where the controller keeps what is its own."""

    folder: Path

    @property
    def journal(self) -> Path:
        """The journal."""
        return self.folder / "journal.sqlite"

    @property
    def last_good(self) -> Path:
        """The last accepted configuration."""
        return self.folder / "last-good.yaml"

    @property
    def lock(self) -> Path:
        """Who holds it leads."""
        return self.folder / "leader.lock"


def state_files(fleet_file: Path) -> StateFiles:
    """`$HEADRACE_STATE_DIR`, or `.headrace/<name of the file>` beside the fleet's file.

    It follows from the file's name alone, since the last good configuration must be found when the file is bad.
    """
    given = os.environ.get("HEADRACE_STATE_DIR")
    folder = Path(given) if given else fleet_file.absolute().parent / ".headrace" / fleet_file.stem
    return StateFiles(folder=folder)


class Daemon:
    """One run of the controller."""

    def __init__(self, path: Path, start: Start, files: StateFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._controller: Controller | None = None
        self._journal: Journal | None = None
        self._metrics = Metrics(clock, self._readout)
        self._config = ConfigWatch(path, start, files.last_good, clock=clock, metrics=self._metrics)
        self._lock = LeaderLock(files.lock, clock)
        self._http = HttpServer(
            registry=self._metrics.registry,
            alive=lambda: alive(self._readout(), self._started_s, clock),
            ready=lambda: ready(self._readout()),
            status=self._status,
        )

    async def run(self) -> int:
        """Until a signal; returns the exit code."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stopped.set)
        self._files.folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            try:
                async with asyncio.TaskGroup() as group:
                    work = group.create_task(self._serve())
                    stop = group.create_task(stopped.wait())
                    await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
                    stop.cancel()
                    work.cancel()
            finally:
                await self._http.stop()
        log.info("controller_stopped")
        return 0

    async def _serve(self) -> None:
        leading = self._lock.try_acquire()
        bound = await self._bind(must=leading)
        if not leading:
            log.info("standby", lock=str(self._files.lock), address=self._http.address or None)
            await self._lock.acquire()
            log.info("taking_over")
        self._started_s = self._clock.monotonic_s()
        for attempt in range(_BIND_TRIES):
            if bound:
                break
            await self._clock.sleep(_BIND_RETRY_S)
            bound = await self._bind(must=attempt + 1 == _BIND_TRIES)
        await self._lead()

    async def _bind(self, *, must: bool) -> bool:
        try:
            await self._http.start(*http_address(self._config.fleet))
        except AddressInUse:
            if must:
                raise
            return False
        log.info("listening", address=self._http.address)
        return True

    async def _lead(self) -> None:
        fleet, clock = self._config.fleet, self._clock
        self._journal = journal = Journal(self._files.journal)
        actors = Actors(self._config, clock)
        calls, slow_calls = (LedgerThread(ledger_opener(fleet)) for _ in range(2))
        notices = NoticeWatch(notice_sources(fleet, clock), clock)
        try:
            self._controller = controller = self._build(calls, actors, notices, journal)
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.run(group))
                group.create_task(notices.watch(controller.wake))
                group.create_task(self._config.watch(controller.wake))
                group.create_task(keep_house(slow_calls, clock, lambda: not self._config.spec.dry_run))
        finally:
            if self._controller is not None:
                await self._controller.flush()
            for each in (calls, slow_calls):
                each.close()
            await actors.close()
            journal.close()
            self._journal = None

    def _build(self, calls: LedgerCalls, actors: Actors, notices: NoticeWatch, journal: Journal) -> Controller:
        clock, metrics, offerings = self._clock, self._metrics, OfferingMemory()
        epoch = journal.raise_epoch(clock.now_s())
        outcomes = Outcomes(clock, metrics)
        watch = LedgerWatch(calls, clock)
        executor = Executor(
            launcher=Launcher(clock=clock, offerings=offerings, outcomes=outcomes, metrics=metrics),
            drainer=Drainer(clock=clock, calls=calls, outcomes=outcomes, metrics=metrics, epoch=epoch),
            ender=Ender(clock=clock, calls=calls, outcomes=outcomes),
            outcomes=outcomes,
        )
        return Controller(
            Parts(
                clock=clock,
                config=self._config,
                actors=actors,
                rules=JobRules(calls, self._rules),
                ledger=watch,
                signals=signal_sources(self._config.fleet, watch, clock),
                pools=PoolWatch(clock),
                notices=notices,
                offerings=offerings,
                executor=executor,
                journal=journal,
                metrics=metrics,
                leader_epoch=epoch,
                decide=decide,
            )
        )

    def _rules(self) -> JobSettings | None:
        return None if self._config.spec.dry_run else job_settings(self._config.fleet)

    def _readout(self) -> Readout:
        return self._controller.readout if self._controller else Readout(leading=self._lock.leading)

    def _status(self, last: int) -> dict[str, Any]:
        return status_json(
            self._readout(),
            now_s=self._clock.now_s(),
            address=self._http.address,
            config={"digest": self._config.digest, "ok": not self._config.faults, "faults": list(self._config.faults)},
            decisions=self._journal.decisions(last) if self._journal else [],
        )


def exit_code(errors: BaseExceptionGroup[BaseException]) -> int:
    """Say what took the daemon down, and the exit code for it: 2 where its input or surroundings are wrong, else 1."""
    code = 2
    for error in _leaves(errors):
        match error:
            case AddressInUse() | JournalError():
                log.error("cannot_start", error=str(error))
            case StaleEpoch():
                log.error("superseded", error=str(error))
                code = 1
            case _:
                log.error("task_died", exc_info=error)
                code = 1
    return code


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
