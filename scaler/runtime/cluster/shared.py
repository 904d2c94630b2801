"""What all fleets of a cluster share: connections, watched lists, notices, and the question whether this process leads."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scaler.act.sharing import Places
from scaler.aws.contract import Aws
from scaler.kube.contract import KubeApi
from scaler.kube.facts import NodeIndex, PodIndex
from scaler.kube.waiting import within
from scaler.model.clock import Clock
from scaler.runtime.cluster.notice_hub import NoticeHub
from scaler.runtime.cluster.owners import Owners

_MUSTER_S = 5.0
"""A fleet that cannot be begun holds the others up no longer."""


class Muster:
    """Fleets that begin together: none looks at its pools before all have repeated the launches that nobody answered.

    What an earlier controller launched and had no time to tag is known again by the replay of its token. Until then the fleet
    whose turn it is to adopt would take it for its own, and label its node.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._missing: set[str] = set()
        self._complete = asyncio.Event()

    def expect(self, fleet: str) -> None:
        """It is about to begin."""
        self._missing.add(fleet)
        self._complete.clear()

    def here(self, fleet: str) -> None:
        """It has repeated its launches, or does not begin."""
        self._missing.discard(fleet)
        if not self._missing:
            self._complete.set()

    async def complete(self) -> None:
        """Wait for the others, for a while."""
        with suppress(TimeoutError):
            await within(self._clock, _MUSTER_S, self._complete.wait())


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """See the module's docstring."""

    clock: Clock
    kube: KubeApi
    aws: Aws | None
    nodes: NodeIndex
    pods: PodIndex
    places: Places
    hub: NoticeHub
    owners: Owners
    muster: Muster
    leading: Callable[[], bool]
    state_dir: Path
