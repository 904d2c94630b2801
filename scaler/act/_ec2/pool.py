"""The actor of a pool on one Auto Scaling group, whoever owns the group: listing, and the ways to launching and ending."""

from collections.abc import Mapping

from scaler.act._ec2.ending import Ending
from scaler.act._ec2.launching import Launching
from scaler.act._ec2.site import Site
from scaler.act.base import LaunchOutcome, OfferingFacts, PoolObservation
from scaler.model.plan import DetachReplica, LaunchReplica, TerminateReplica


class GroupPool:
    """A `PoolActor` on the group of `site`."""

    def __init__(self, site: Site, *, falls_back: bool, completes_hooks: bool = True) -> None:
        """As `Launching` and `Ending` have them."""
        self._site = site
        self._launching = Launching(site=site, falls_back=falls_back)
        self._ending = Ending(site=site, completes_hooks=completes_hooks)

    async def observe(self) -> PoolObservation:
        """List everything of this fleet's in the group, and what has left it.

        Raises:
            PoolUnavailable: AWS does not tell all of it.
        """
        sight = await self._site.look()
        if sight.reading.group is not None:
            await self._site.place.news.refresh(self._site.offerings)
        instances = sight.view.instances()
        self._site.place.launches.adopted |= {one.instance_id for one in instances if not one.launch_token}
        return PoolObservation(
            listed_at_s=sight.reading.listed_at_s,
            instances=instances,
            refused_reason=sight.refused_reason,
        )

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """As `PoolActor.launch`.

        Raises:
            PoolUnavailable: it may have been carried out, or is not finished: the same token has to come again.
        """
        return await self._launching.launch(command)

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """As `PoolActor.terminate`.

        Raises:
            NotYet: a pod has to be gone first, or the group may not shrink now.
            PoolUnavailable: AWS does not answer.
        """
        return await self._ending.terminate(command)

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """As `PoolActor.detach`; raises as `terminate`."""
        return await self._ending.detach(command)

    def facts(self) -> Mapping[str, OfferingFacts]:
        """As `PoolActor.facts`."""
        return self._site.place.news.facts(self._site.offerings)

    async def close(self) -> None:
        """Leave the group to the other fleets; instances stay."""
        self._site.place.sharing.leave(self._site.who.fleet)
        if self._site.worker_set is not None:
            await self._site.worker_set.close()
