"""Logs: one JSON object a line on standard error, a constant event name and keys. Standard library only, to start fast."""

import json
import logging
from collections.abc import Mapping

_LOGGER = logging.getLogger("rollout_worker")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at_s": round(record.created, 3), "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "keys", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logs() -> None:
    """Send this package's logs to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False


def info(event: str, /, **keys: object) -> None:
    """Something that happened."""
    info_from(event, keys)


def info_from(event: str, keys: Mapping[str, object]) -> None:
    """Something that happened, with its keys in a mapping."""
    _LOGGER.info(event, extra={"keys": dict(keys)})


def warning(event: str, /, **keys: object) -> None:
    """Something that a person should look at."""
    _LOGGER.warning(event, extra={"keys": keys})
