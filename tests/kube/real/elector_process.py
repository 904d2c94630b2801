"""A process that stands for election and, while it leads, writes acts into a journal: `EPOCH IDENTITY MONOTONIC_S`.

Arguments: kubeconfig, lease name, identity, journal, and lease, deadline and retry in seconds. SIGTERM releases the lease
and ends it. Appends of a line are atomic, so the journal is in true order.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from scaler.kube.api import open_api
from scaler.kube.lease import LeaderElector, LeadershipLost
from scaler.runtime.clock import SystemClock

_ACT_EVERY_S = 0.01


async def act(elector: LeaderElector, identity: str, journal: int) -> None:
    """As a controller does: it asks whether it leads right before each act."""
    clock = SystemClock()
    while True:
        if elector.leading:
            os.write(journal, f"{elector.epoch} {identity} {clock.monotonic_s()}\n".encode())
        await asyncio.sleep(_ACT_EVERY_S)


async def lead(elector: LeaderElector) -> None:
    while True:
        await elector.acquire()
        with suppress(LeadershipLost):
            await elector.hold()


async def main(kubeconfig: str, name: str, identity: str, journal: str, *times_s: str) -> None:
    clock = SystemClock()
    api = open_api(Path(kubeconfig), clock=clock)
    lease_s, deadline_s, retry_s = map(float, times_s)
    elector = LeaderElector(
        api,
        namespace="default",
        name=name,
        identity=identity,
        clock=clock,
        lease_s=lease_s,
        renew_deadline_s=deadline_s,
        retry_s=retry_s,
    )
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    tasks = [asyncio.ensure_future(act(elector, identity, fd)), asyncio.ensure_future(lead(elector))]
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await elector.release()
    await api.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
