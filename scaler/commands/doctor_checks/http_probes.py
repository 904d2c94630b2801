"""The controller's address: whether it is the controller that answers there, whether it lives, and whether it leads."""

from collections.abc import Sequence

from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok
from scaler.commands.doctor_checks.local_world import Heard

ABOUT = "HTTP of the controller"


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
