"""A fleet on one machine, as `headrace run -f` would have it, and what its controller says, if one runs."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from scaler.commands.controller_answers import Foreign, Status, Unanswered, read, read_status, url_of
from scaler.config.convert import http_address
from scaler.config.last_good import Start
from scaler.config.schema import RolloutFleet
from scaler.model.clock import Clock
from scaler.runtime.daemon import StateFiles
from scaler.runtime.leadership import holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came from an address. With `status` None nothing did, or nothing of ours; `why` says which."""

    url: str
    status: Status | None = None
    why: str = ""
    foreign: bool = False
    probes: tuple[tuple[str, int, str], ...] = ()
    """Path, HTTP status and text of the two probes."""


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


async def hear(url: str | None) -> Heard:
    """What the address says."""
    if url is None:
        return Heard(url="", why="it listens on any free port (spec.http.listen), which its log tells")
    try:
        status = await asyncio.to_thread(read_status, url)
        probes = [(path, *await asyncio.to_thread(read, url, path)) for path in ("/healthz", "/readyz")]
    except Unanswered as error:
        return Heard(url=url, why=str(error))
    except Foreign as error:
        return Heard(url=url, why=str(error), foreign=True)
    return Heard(url=url, status=status, probes=tuple(probes))
