"""A fleet of a cluster as whoever asks may see it: its object, the lease, watched lists; and nothing that could be changed.

Invariants: both clients hold back whatever would write, whichever adapter asks for it; the reviews of rights are the one thing
that is created, and they leave nothing behind.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from scaler.aws.contract import Aws
from scaler.commands.doctor_checks.http_probes import Heard
from scaler.commands.doctor_checks.lease import LeaseView, look_at_lease
from scaler.config.controller import Controller, Election
from scaler.config.custom_object import last_accepted, read_fleet
from scaler.config.faults import ConfigError
from scaler.config.providers import LocalProvider
from scaler.config.schema import RolloutFleet
from scaler.kube.contract import ROLLOUT_FLEETS, Json, KubeApi, KubeError
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.model.clock import Clock

_LISTS_TAKE_S = 20.0
_TROUBLE_TAKES_S = 3.0
"""What was refused once will be refused again."""
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the command line gives."""

    clock: Clock
    kube: KubeApi
    """Changes nothing."""
    reviews: KubeApi
    """For reviews of rights only."""
    aws: Aws | None
    """Changes nothing; None: no region is known."""
    settings: Controller | None
    """The controller's; None: nobody said where they are."""
    namespace: str
    name: str
    heard: Heard | None = None
    """What the controller of this pod says; None: this is no pod of a controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorld:
    """See the module's docstring."""

    access: Access
    user: str
    """Who asks, as the API server knows it; empty where it does not say."""
    body: Json | None
    """The fleet's object; None: `body_line` says why not."""
    fleet: RolloutFleet | None
    """The spec as it is, or the one accepted last; None: nothing of it can be used."""
    faults: tuple[str, ...]
    """Why the spec as it is cannot be used."""
    trouble: KubeError | None
    """Why there is no object."""
    lease: LeaseView
    nodes: WatchedNodes
    pods: WatchedPods
    group: asyncio.TaskGroup
    """Of watches, for as long as the world is looked at."""

    @property
    def clock(self) -> Clock:
        """Ours."""
        return self.access.clock

    @property
    def kube(self) -> KubeApi:
        """Changes nothing."""
        return self.access.kube

    @property
    def status(self) -> dict[str, Any]:
        """Of the object; empty where nobody has written one."""
        return dict((self.body or {}).get("status") or {})

    @property
    def election(self) -> Election:
        """Which lease it is."""
        return election_of(self.access.settings)

    @property
    def in_its_pod(self) -> str:
        """How to look with the controller's own eyes."""
        access = self.access
        return (
            f"kubectl -n {self.election.namespace} exec deploy/headrace -- "
            f"headrace doctor {access.name} -n {access.namespace}"
        )

    async def listed(self) -> str:
        """Wait until nodes and pods have been listed; what keeps them from it, or nothing."""
        began_s = self.clock.monotonic_s()
        while self.nodes.current_at_s is None or self.pods.current_at_s is None:
            trouble, took_s = self.nodes.trouble or self.pods.trouble, self.clock.monotonic_s() - began_s
            if took_s >= (_TROUBLE_TAKES_S if trouble else _LISTS_TAKE_S):
                return trouble or f"nodes and pods are not listed within {_LISTS_TAKE_S:.0f} s"
            await self.clock.sleep(_LOOK_S)
        return ""


class _Over(Exception):
    """Enough was seen."""


@asynccontextmanager
async def open_cluster(access: Access, user: str) -> AsyncIterator[ClusterWorld]:
    """Read the object and the lease, and begin to watch."""
    body, trouble = await _object(access)
    fleet, faults = _spec(body)
    lease = await look_at_lease(access.kube, access.clock, election_of(access.settings))
    nodes = WatchedNodes(access.kube, access.clock)
    pods = WatchedPods(access.kube, access.clock, _places(access, fleet))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(pods.run())
            yield ClusterWorld(
                access=access,
                user=user,
                body=body,
                fleet=fleet,
                faults=faults,
                trouble=trouble,
                lease=lease,
                nodes=nodes,
                pods=pods,
                group=group,
            )
            raise _Over
    except* _Over:
        pass


def election_of(settings: Controller | None) -> Election:
    """Of the settings, or the one that they would have by default."""
    return settings.spec.election if settings is not None else Election()


async def _object(access: Access) -> tuple[Json | None, KubeError | None]:
    try:
        return await access.kube.get(ROLLOUT_FLEETS, access.name, namespace=access.namespace), None
    except KubeError as error:
        return None, error


def _spec(body: Json | None) -> tuple[RolloutFleet | None, tuple[str, ...]]:
    """As a controller takes it up."""
    if body is None:
        return None, ()
    try:
        return read_fleet(body), ()
    except ConfigError as error:
        faults = tuple(map(str, error.faults))
    try:
        kept = last_accepted(body)
    except ConfigError as error:
        return None, (*faults, *map(str, error.faults))
    return (kept[0] if kept else None), faults


def worker_namespaces(fleet: RolloutFleet) -> tuple[str, ...]:
    """Where the fleet's worker sets are."""
    own = fleet.metadata.namespace or "default"
    providers = [pool.provider for stage in fleet.spec.stages for pool in stage.pools]
    sets = [each.worker_set for each in providers if not isinstance(each, LocalProvider)]
    return tuple(sorted({each.namespace or own for each in sets}))


def _places(access: Access, fleet: RolloutFleet | None) -> set[str]:
    """Only where this fleet's pods are: workers and trainers."""
    if fleet is None:
        return {access.namespace}
    trainers = {trainer.namespace or access.namespace for trainer in fleet.spec.trainers}
    return {access.namespace, *worker_namespaces(fleet), *trainers}
