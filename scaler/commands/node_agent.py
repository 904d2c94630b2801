"""`headrace node-agent`: instance metadata into files for the workers on this node."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp

from scaler.model.units import parse_duration_s
from scaler.nodeagent.agent import NodeAgent, NodeAgentSettings
from scaler.nodeagent.imds import Imds
from scaler.runtime.clock import SystemClock
from scaler.telemetry.logs import configure_logs

_LONGEST_S = 60.0


def run_node_agent(folder: Path, metadata_url: str, interval: str) -> int:
    """Read and write until SIGTERM or SIGINT, then 0; 2 where the interval or the address cannot be used."""
    try:
        interval_s = parse_duration_s(interval)
        if not 0 < interval_s <= _LONGEST_S:
            raise ValueError(f'{interval!r} is no interval: above 0 and at most "60s"')
        if not metadata_url.startswith(("http://", "https://")):
            raise ValueError(f"{metadata_url!r} is no address: http://...")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logs()
    asyncio.run(_run(NodeAgentSettings(folder=folder, interval_s=interval_s), metadata_url))
    return 0


async def _run(settings: NodeAgentSettings, url: str) -> None:
    clock, stop = SystemClock(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with aiohttp.ClientSession(trust_env=False) as session, asyncio.TaskGroup() as group:
        task = group.create_task(NodeAgent(settings, Imds(session, url, clock=clock), clock=clock).run())
        await stop.wait()
        task.cancel()
