"""The configuration in use, and what became of the last change to its file.

Policy: an accepted change applies at the next tick and is kept as the last good one; a refused one is logged once,
counted, and shown in the status until the file is good again. What runs never depends on a file that is bad.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import structlog

from scaler.config.convert import to_spec
from scaler.config.faults import Fault
from scaler.config.last_good import Start, save_last_good
from scaler.config.reload import ConfigWatcher, Outcome, ReloadResult
from scaler.config.schema import RolloutFleet
from scaler.model.clock import Clock
from scaler.model.spec import FleetSpec
from scaler.telemetry.metrics import Metrics

log = structlog.get_logger()

_LOOK_EVERY_S = 1.0
"""One stat call; a person who saved a file looks at the log within about that time."""


class ConfigWatch:
    """See the module's docstring."""

    def __init__(self, path: Path, start: Start, last_good: Path, *, clock: Clock, metrics: Metrics) -> None:
        self._watcher = ConfigWatcher(path, [start.fleet], start.text.encode(), clock=clock)
        self._last_good = last_good
        self._clock = clock
        self._metrics = metrics
        self._faults: tuple[str, ...] = ()
        self._use(start.fleet, start.text)
        self._refuse(start.faults)

    @property
    def fleet(self) -> RolloutFleet:
        """The fleet as configured."""
        return self._fleet

    @property
    def spec(self) -> FleetSpec:
        """What the engine decides by."""
        return self._spec

    @property
    def digest(self) -> str:
        """Tells one configuration from another."""
        return self._digest

    @property
    def faults(self) -> Sequence[str]:
        """Why the file as it is now is not used; empty: it is used."""
        return self._faults

    async def watch(self, wake: asyncio.Event) -> None:
        """Look at the file from time to time, and set `wake` when something else is to be used; never returns."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            if self.look() is Outcome.CHANGED:
                wake.set()

    def look(self) -> Outcome:
        """Look at the file once."""
        result = self._watcher.check()
        if result.outcome is Outcome.REJECTED:
            self._refuse(result.faults)
        else:
            self._faults = ()
        if result.outcome is Outcome.CHANGED:
            self._accept(result)
        return result.outcome

    def _accept(self, result: ReloadResult) -> None:
        self._use(result.fleet, result.text)
        self._metrics.reloads.labels("accepted").inc()
        log.info("config_accepted", digest=self._digest, changes=[change.path for change in result.changes])

    def _refuse(self, faults: Sequence[Fault]) -> None:
        lines = tuple(str(fault) for fault in faults)
        if lines and lines != self._faults:
            self._metrics.reloads.labels("rejected").inc()
            log.warning("config_rejected", faults=lines)
        self._faults = lines

    def _use(self, fleet: RolloutFleet, text: str) -> None:
        self._fleet = fleet
        self._spec = to_spec(fleet)
        self._digest = hashlib.sha256(fleet.model_dump_json().encode()).hexdigest()[:12]
        try:
            save_last_good(self._last_good, text)
        except OSError as error:
            log.warning("last_good_config_not_saved", path=str(self._last_good), error=str(error))
