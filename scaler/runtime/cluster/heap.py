"""Keeps the garbage collector from looking at what stays for good.

Its full collections stop all threads for as long as it takes to look at every object: tenths of a second with thousands of nodes,
again and again. Modules, AWS's service models and the first lists stay for good, more or less, so they are taken out of its sight
once they are there. What is taken out is still freed as soon as nothing refers to it; only a cycle among it would stay.
"""

import gc

from scaler.kube.facts import NodeIndex, PodIndex
from scaler.model.clock import Clock

_LOOK_S = 0.2


async def settle_heap(nodes: NodeIndex, pods: PodIndex, clock: Clock) -> None:
    """Once both have been listed, take everything that is there out of the collector's sight."""
    while nodes.current_at_s is None or pods.current_at_s is None:
        await clock.sleep(_LOOK_S)
    gc.collect()
    gc.freeze()
