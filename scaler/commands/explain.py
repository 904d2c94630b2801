"""`headrace explain`: asks a running controller why it did what it did, and prints it newest last."""

import json
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

_TIME_OUT_S = 10.0


def explain_decisions(url: str, last: int, *, as_json: bool, fleet: str | None = None) -> int:
    """Print the last decisions of the controller at `url`.

    `fleet`: of a cluster's controller, whose decisions, as `<namespace>.<name>`; not needed where it has only one.
    Returns 0, 2 for a bad address or no such fleet, 3 where nobody answers.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        _complain(f"{url!r} is no address of a controller; write it like http://127.0.0.1:9090")
        return 2
    try:
        with urlopen(f"{url.rstrip('/')}/status?last={last}", timeout=_TIME_OUT_S) as answer:  # noqa: S310 - checked above
            status = json.load(answer)
        decisions = _of_fleet(status, fleet)["decisions"]
    except NoSuchFleet as error:
        _complain(str(error))
        return 2
    except (URLError, OSError, ValueError, KeyError, TypeError) as error:
        _complain(f"no status from {url}: {error}")
        return 3
    if as_json:
        _say(json.dumps(decisions, indent=1))
    else:
        _say("\n\n".join(explained(decision) for decision in reversed(decisions)) or "no decision yet")
    return 0


class NoSuchFleet(Exception):
    """The controller has several fleets and none was named, or another one."""


def _of_fleet(status: dict[str, Any], fleet: str | None) -> dict[str, Any]:
    """The status of one fleet: all of it, where the controller is of one fleet only."""
    if "fleets" not in status:
        return status
    fleets: dict[str, dict[str, Any]] = status["fleets"]
    name = next(iter(fleets)) if fleet is None and len(fleets) == 1 else fleet or ""
    if name not in fleets:
        raise NoSuchFleet(f"name a fleet with --fleet; the controller has {', '.join(sorted(fleets)) or 'none'}")
    return fleets[name]


def explained(decision: dict[str, Any]) -> str:
    """One decision for people: sizes and why, guard rails that had a word, commands and what became of them."""
    outcomes = {(each["kind"], each["subject"]): each for each in decision["outcomes"]}
    lines = [f"#{decision['seq']} {_when(decision)}"]
    for stage in decision["stages"]:
        lines += _stage_lines(stage)
    for command in decision["commands"]:
        lines.append(_command_line(command, outcomes.get((command["kind"], command["subject"]))))
    return "\n".join(lines)


def _stage_lines(stage: dict[str, Any]) -> list[str]:
    sizes = ", ".join(f"{name} {stage[name]}" for name in ("desired", "requested", "observed", "ready"))
    reason = stage["reason"]
    lines = [f"  {stage['stage']}: {sizes}; {reason['code']}: {reason['message']} [{stage['policy']}]"]
    lines += [
        f"    guard rail {clamp['code']}: {clamp['wanted']:g} -> {clamp['allowed']:g}" for clamp in reason["clamps"]
    ]
    return lines


def _command_line(command: dict[str, Any], outcome: dict[str, Any] | None) -> str:
    reason, where = command["reason"], command.get("offering") or command["pool"]
    result = f" -> {outcome['outcome']} {outcome['message']}".rstrip() if outcome else ""
    return f"  {command['kind']} {command['subject']} ({where}): {reason['code']}: {reason['message']}{result}"


def _when(decision: dict[str, Any]) -> str:
    began = datetime.fromtimestamp(decision["at_s"], UTC)
    text = began.strftime("%Y-%m-%d %H:%M:%S UTC")
    lasted_s = decision["until_s"] - decision["at_s"]
    return f"{text}, and {decision['ticks'] - 1} times more for {lasted_s:.0f} s" if decision["ticks"] > 1 else text


def _say(text: str) -> None:
    print(text)


def _complain(text: str) -> None:
    print(text, file=sys.stderr)
