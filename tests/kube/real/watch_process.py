"""A process that watches all nodes and says what that costs: a JSON line for each line on its standard input.

Argument: kubeconfig. `rss_before_bytes`: with everything imported; `peak_bytes`: the most it ever held; `listed_s`: from the
beginning to the first whole list.
"""

import asyncio
import json
import sys
from pathlib import Path

import psutil

from scaler.kube.api import open_api
from scaler.kube.indexes import WatchedNodes
from scaler.runtime.clock import SystemClock


def _peak_bytes() -> int:
    """Of this program: `ru_maxrss` would also tell what the process held that started it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) * 1024


async def main(kubeconfig: str) -> None:
    clock, process = SystemClock(), psutil.Process()
    api = open_api(Path(kubeconfig), clock=clock)
    nodes = WatchedNodes(api, clock)
    before, began_s = process.memory_info().rss, clock.monotonic_s()
    watching = asyncio.ensure_future(nodes.run())
    await nodes.changed()
    listed_s = clock.monotonic_s() - began_s
    while await asyncio.to_thread(sys.stdin.readline):
        told = {
            "nodes": len(nodes.all()),
            "versions": sum(int(node.annotations.get("version", "0")) for node in nodes.all()),
            "rss_before_bytes": before,
            "rss_bytes": process.memory_info().rss,
            "peak_bytes": _peak_bytes(),
            "listed_s": listed_s,
            "cpu_s": sum(process.cpu_times()[:2]),
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await api.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
