"""`python -m tests.simcloud --port N`: a SimCloud as a process, until SIGTERM; with `--kubeconfig`, its instances join.

Its first line of output is JSON: `{"address": ...}`, the `endpoint_url` of clients and the root of `/_sim` (see control).
`--settings` takes fields of `Settings` as JSON; ranges are lists of two.
"""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from scaler.kube.api import open_api
from scaler.runtime.clock import SystemClock
from tests.simcloud.joiner import Joiner
from tests.simcloud.server import serve
from tests.simcloud.settings import Settings
from tests.simcloud.sim import SimCloud


def settings_of(text: str) -> Settings:
    """Settings out of JSON; what is not a field is refused."""
    given: dict[str, Any] = json.loads(text)
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Settings(**fields)


async def _until_told(joiner: Joiner | None) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    joining = asyncio.create_task(joiner.run()) if joiner is not None else None
    waiting = asyncio.create_task(told.wait())
    done, _ = await asyncio.wait([waiting, *([joining] if joining else [])], return_when=asyncio.FIRST_COMPLETED)
    for task in (waiting, joining):
        if task is not None and task not in done:
            task.cancel()
    if joining in done:
        joining.result()


async def _run(wanted: argparse.Namespace) -> None:
    clock = SystemClock()
    sim = SimCloud(clock, wanted.seed, settings_of(wanted.settings))
    with serve(sim, port=wanted.port) as server:
        sys.stdout.write(json.dumps({"address": server.address}) + "\n")
        sys.stdout.flush()
        if wanted.kubeconfig is None:
            await _until_told(None)
            return
        api = open_api(wanted.kubeconfig, clock=clock, qps=1000.0, burst=2000)
        try:
            await _until_told(Joiner(sim, api, clock, boot_delay_s=(0.0, wanted.boot_delay_s)))
        finally:
            await api.close()


def main() -> None:
    """See the module's docstring."""
    words = argparse.ArgumentParser(prog="python -m tests.simcloud", description=__doc__)
    words.add_argument("--port", type=int, default=0)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--settings", default="{}")
    words.add_argument("--kubeconfig", type=Path)
    words.add_argument("--boot-delay-s", type=float, default=0.0)
    asyncio.run(_run(words.parse_args()))


if __name__ == "__main__":
    main()
