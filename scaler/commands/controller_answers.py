"""What a running controller says over HTTP, told apart from what somebody else says at that address. Read-only."""

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

Status = dict[str, Any]

_TIME_OUT_S = 10.0
_MOST_BYTES = 64 * 1024 * 1024
"""Thousands of replicas take a few."""


_directly = build_opener(ProxyHandler({}))
"""A controller is on this machine, or in this cluster: no proxy of the environment knows the way."""
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - a name for it, nobody listens here


class Unanswered(Exception):
    """Nobody answers there; the text says how that showed."""


class Foreign(Exception):
    """Whoever answers there is no controller of Headrace."""


def is_address(url: str) -> bool:
    """Whether it is written like the address of a controller."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def url_of(host: str, port: int) -> str | None:
    """Where somebody on this machine finds it; None: any free port was asked for, and nobody knows which."""
    if not port:
        return None
    near = "127.0.0.1" if host in _EVERYWHERE else host
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def read(url: str, path: str) -> tuple[int, str]:
    """HTTP status and text of an answer, errors of HTTP too. `Unanswered` where there is none."""
    try:
        with _directly.open(url.rstrip("/") + path, timeout=_TIME_OUT_S) as answer:
            return int(answer.status), _text(answer)
    except HTTPError as error:
        with error:
            return error.code, _text(error)
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise Unanswered(f"nobody answers at {url}: {error}") from error


def read_status(url: str, last: int = 10) -> Status:
    """`/status` of the controller at `url`, with its last decisions: one fleet's, or `fleets` of a cluster's controller.

    Raises:
        Unanswered: nobody is there.
        Foreign: it is something else that answers.
    """
    code, text = read(url, f"/status?last={last}")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if code != 200 or not _is_ours(body):
        raise Foreign(f"what answers at {url} is no controller of Headrace (HTTP {code} for /status)")
    status: Status = body
    return status


def fleets_in(status: Status) -> dict[str, Status]:
    """By name; a controller of one fleet tells its name once it has looked at the world."""
    found: dict[str, Status] = status["fleets"] if "fleets" in status else {str(status.get("fleet", "")): status}
    return found


def _is_ours(body: object) -> bool:
    if not isinstance(body, dict) or not isinstance(body.get("leading"), bool) or "leader_epoch" not in body:
        return False
    fleets = body.get("fleets", {"": body})
    return isinstance(fleets, dict) and all(
        isinstance(fleet, dict) and isinstance(fleet.get("sources"), dict) for fleet in fleets.values()
    )


def _text(answer: Any) -> str:
    return bytes(answer.read(_MOST_BYTES)).decode(errors="replace")
