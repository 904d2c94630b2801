"""Logs: a constant event name and keys, JSON where nobody reads along.

Policy: `info` for what changed, `warning` where a person should look, `error` where a promise is at risk; `debug`, which
`HEADRACE_LOG=debug` shows, for what repeats with every turn. No message is formatted, so that every event can be searched for
by its name.
"""

import os
import sys
from typing import TextIO

import structlog

LEVEL_VARIABLE = "HEADRACE_LOG"
_LEVELS = ("debug", "info", "warning", "error")


def configure_logs(stream: TextIO | None = None) -> None:
    """Log to `stream` (standard error by default): lines for people on a terminal, JSON elsewhere."""
    out = sys.stderr if stream is None else stream
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if out.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_level()),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _level() -> str:
    """As the environment says; what is no level is `info`."""
    asked = os.environ.get(LEVEL_VARIABLE, "").lower()
    return asked if asked in _LEVELS else "info"
