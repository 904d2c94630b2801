"""A fleet on one machine, as `headrace run -f` would have it, and what its controller says, if one runs."""

import os
from dataclasses import dataclass
from pathlib import Path

from scaler.commands.controller_answers import Status, url_of
from scaler.commands.doctor_checks.http_probes import Heard, hear
from scaler.config.convert import http_address
from scaler.config.last_good import Start
from scaler.config.schema import RolloutFleet
from scaler.model.clock import Clock
from scaler.runtime.daemon import StateFiles
from scaler.runtime.leadership import holder


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWorld:
    """See the module's docstring."""

    path: Path
    start: Start
    files: StateFiles
    leader: str | None
    """Process id of the controller that leads; None: nobody does."""
    heard: Heard
    clock: Clock

    @property
    def fleet(self) -> RolloutFleet:
        """What a controller would start with."""
        return self.start.fleet

    @property
    def status(self) -> Status | None:
        """The leading controller's, once it has one."""
        return self.heard.status


async def open_local(path: Path, start: Start, files: StateFiles, clock: Clock) -> LocalWorld:
    """Look who is there. `OSError` where the state folder may not be looked into."""
    return LocalWorld(
        path=path,
        start=start,
        files=files,
        leader=holder(files.lock),
        heard=await hear(url_of(*http_address(start.fleet))),
        clock=clock,
    )


def nearest(folder: Path) -> Path:
    """The folder, or what there is of the way to it."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def may_create_in(there: Path) -> bool:
    """Whether we may make files in what there is."""
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
