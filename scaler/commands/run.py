"""`headrace run`: the controller as a process."""

import asyncio
import sys
from pathlib import Path

from scaler.config.faults import ConfigError
from scaler.config.last_good import load_at_start
from scaler.runtime.clock import SystemClock
from scaler.runtime.daemon import Daemon, exit_code, state_files
from scaler.telemetry.logs import configure_logs


def run_fleet(path: Path) -> int:
    """Run the controller of the fleet in `path` until SIGTERM or SIGINT.

    Returns 0 when it was told to stop, 1 when it died or a newer controller took over, 2 where the file, the address or
    the state folder cannot be used.
    """
    files = state_files(path)
    try:
        start = load_at_start(path, files.last_good)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logs()
    try:
        return asyncio.run(Daemon(path, start, files, SystemClock()).run())
    except* Exception as errors:  # noqa: BLE001 - told and turned into an exit code
        code = exit_code(errors)
    return code
