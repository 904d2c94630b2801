"""The controller's address: whether it is the controller that answers there, whether it lives, and whether it leads."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from scaler.commands.controller_answers import Foreign, Status, Unanswered, read, read_status
from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok

ABOUT = "HTTP of the controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came from an address. With `status` None nothing did, or nothing of ours; `why` says which."""

    url: str
    status: Status | None = None
    why: str = ""
    foreign: bool = False
    probes: tuple[tuple[str, int, str], ...] = ()
    """Path, HTTP status and text of the two probes."""


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


def lines_of(heard: Heard, runs: bool) -> Sequence[Line]:
    """`runs`: it is known that a controller is there."""
    if heard.foreign:
        return [fail(ABOUT, heard.why, "end that program, or give the controller another address to listen on")]
    if heard.status is None:
        remedy = "see its log" if runs else "start the controller"
        return [not_looked(ABOUT, heard.why, remedy)]
    leads = heard.status["leading"]
    return [_probe(heard.url + path, code, text.strip(), leads=leads) for path, code, text in heard.probes]


def _probe(about: str, code: int, text: str, *, leads: bool) -> Line:
    if code == 200 or (not leads and about.endswith("/readyz")):
        return ok(about, text)
    return fail(about, f"{text} (HTTP {code})", "see its log, and the lines below for what it waits for")
