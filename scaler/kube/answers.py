"""What an answer of the API server means: which error, how long to wait, what its clock says, which event.

Source: Kubernetes API conventions (Status objects, `Retry-After`), API concepts (watch: a JSON object a line; `ERROR`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from scaler.kube.contract import (
    Change,
    Conflict,
    Denied,
    Gone,
    Invalid,
    Json,
    KubeError,
    KubeUnreachable,
    NotFound,
    TooMany,
    WatchEvent,
)

MAX_EVENT_BYTES = 16 << 20
"""An object is at most 1.5 MiB in etcd, somewhat more as JSON: a longer line is no event."""
_TEXT_CHARS = 500
_CLASSES: Mapping[int, type[KubeError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooMany,
}
_OTHER_UID = re.compile(r"UID in (the )?precondition|metadata\.uid: Invalid value")
"""As kube-apiserver 1.37 words it of deletions and replacements (409), of evictions (409) and of patches (422)."""


def error_of(status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    """The error that an answer of 300 and above stands for."""
    told = _status_object(body)
    message = str(told.get("message") or body[:_TEXT_CHARS].decode(errors="replace") or f"status {status}")
    kind = _CLASSES.get(status, KubeUnreachable if status >= 500 else Invalid)
    if status in (409, 422) and _OTHER_UID.search(message):
        kind = NotFound
    return kind(
        message, status=status, reason=str(told.get("reason") or ""), retry_after_s=_retry_after_s(headers, told)
    )


def _status_object(body: bytes) -> Json:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) and told.get("kind") == "Status" else {}


def _retry_after_s(headers: Mapping[str, str], told: Json) -> float | None:
    details = told.get("details")
    for text in (headers.get("Retry-After"), details.get("retryAfterSeconds") if isinstance(details, dict) else None):
        try:
            seconds = float(text)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if 0 <= seconds < 3600:
            return seconds
    return None


def date_s(headers: Mapping[str, str]) -> float | None:
    """The server's clock by the Date header, cut down to the second; None where there is no readable one."""
    try:
        return parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (TypeError, ValueError):
        return None


def json_object(body: bytes) -> Json:
    """The object in a body.

    Raises:
        KubeUnreachable: it is none: whoever answered is no API server.
    """
    try:
        told = json.loads(body)
    except ValueError as error:
        raise KubeUnreachable(f"the answer is no JSON: {body[:_TEXT_CHARS]!r}") from error
    if not isinstance(told, dict):
        raise KubeUnreachable(f"the answer is no object: {body[:_TEXT_CHARS]!r}")
    return told


class EventLines:
    """Cuts a watch's bytes into events, wherever they are chunked."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[WatchEvent]:
        """The events that are whole now; the error that an `ERROR` event stands for is raised."""
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in lines:
            if line.strip():
                yield _event(bytes(line))
        if len(rest) > MAX_EVENT_BYTES:
            raise KubeUnreachable("the watch sends no lines")


def _event(line: bytes) -> WatchEvent:
    told = json_object(line)
    body: Any = told.get("object")
    if not isinstance(body, dict):
        raise KubeUnreachable(f"the watch sent no event: {line[:_TEXT_CHARS]!r}")
    if told.get("type") == "ERROR":
        code = body.get("code")
        raise error_of(code if isinstance(code, int) and code >= 300 else 500, json.dumps(body).encode(), {})
    try:
        return WatchEvent(change=Change(str(told.get("type"))), body=body)
    except ValueError as error:
        raise KubeUnreachable(f"the watch sent no event: {line[:_TEXT_CHARS]!r}") from error
