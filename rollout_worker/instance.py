"""Which instance this worker runs on, where only the node agent knows: waited for, since the two start in any order."""

from pathlib import Path

from scaler.files import FEW_BYTES, read_regular
from scaler.model.clock import Clock
from scaler.model.instance_file import parse_instance

WAIT_S = 60.0
_POLL_S = 0.2


async def named_instance(path: Path, clock: Clock) -> str:
    """The id in the instance file; `ValueError` where there is none after a minute."""
    until_s = clock.monotonic_s() + WAIT_S
    while True:
        try:
            return _read(path)
        except (OSError, ValueError) as error:
            if clock.monotonic_s() >= until_s:
                raise ValueError(f"instance file: {error}") from error
        await clock.sleep(_POLL_S)


def _read(path: Path) -> str:
    return parse_instance(read_regular(path, FEW_BYTES).decode()).instance_id
