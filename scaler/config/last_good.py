"""The last accepted configuration, kept on disk: what a controller starts with when the file has gone bad meanwhile.

The file is the YAML as it was accepted, under one comment line with its sha256; it is replaced atomically and durable when
`save_last_good` returns. It is read as if it stood where the fleet's file stands, so relative paths mean the same.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scaler.config.faults import ConfigError, Fault
from scaler.config.loader import only_fleet, parse_fleets
from scaler.config.schema import RolloutFleet
from scaler.config.yaml_text import MAX_BYTES, read_bytes

_HEADER = "# headrace: last accepted configuration, sha256 "


def save_last_good(path: Path, text: str) -> None:
    """Keep an accepted YAML. `OSError` where the folder cannot be written."""
    body = text.encode()
    header = f"{_HEADER}{hashlib.sha256(body).hexdigest()}\n".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(header + body)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_last_good(path: Path) -> str | None:
    """The YAML kept there, or None where there is none. `ConfigError` where it is damaged."""
    if not path.exists():
        return None
    header, _, body = read_bytes(path, MAX_BYTES + len(_HEADER) + 65).partition(b"\n")
    if header != f"{_HEADER}{hashlib.sha256(body).hexdigest()}".encode():
        remedy = "remove it, and mend the fleet's own file"
        raise ConfigError([Fault(file=str(path), line=1, message="does not match its digest", remedy=remedy)])
    return body.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What to start with. `faults` says why it is not what the file says now; empty: it is."""

    fleet: RolloutFleet
    text: str
    faults: tuple[Fault, ...] = ()


def load_at_start(path: Path, last_good: Path) -> Start:
    """The fleet in `path`, or the one last accepted where that file is bad. `ConfigError` where there is neither."""
    try:
        data = read_bytes(path)
        return Start(fleet=only_fleet(parse_fleets(data, path), path), text=data.decode("utf-8-sig"))
    except ConfigError as error:
        text = load_last_good(last_good)
        if text is None:
            raise
        fleet = only_fleet(parse_fleets(text.encode(), path), path)
        return Start(fleet=fleet, text=text, faults=error.faults)
