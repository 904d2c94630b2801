"""Notice sources by name. A new source is one file in this folder and one line in `SOURCES`."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from scaler.interruptions.base import NoticeSource
from scaler.model.clock import Clock

SOURCES = {
    "local": "scaler.interruptions.local",
    "nodes": "scaler.interruptions.nodes",
    "instance_status": "scaler.interruptions.instance_status",
    "sqs": "scaler.interruptions.sqs",
}
"""Source -> module with `make(settings, *, clock) -> NoticeSource`. Imported on use: notice files need no cloud client."""


def make_source(source: str, settings: object, *, clock: Clock) -> NoticeSource:
    """The source of that name. `settings` is the source's own settings object.

    Raises:
        ValueError: no such source.
        TypeError: the settings are another source's.
    """
    if source not in SOURCES:
        raise ValueError(f"no notice source {source!r}; known are {', '.join(sorted(SOURCES))}")
    make = cast("Callable[..., NoticeSource]", import_module(SOURCES[source]).make)
    return make(settings, clock=clock)
