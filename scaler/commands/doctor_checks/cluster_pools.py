"""Pools, each listed by the very actor that the controller would use, and its workers.

What an actor would change while it lists (a claim whose replica is gone) is held back by the clients; such a pool is said not to
have been looked at. Where its provider cannot be asked from here, the controller's word in the fleet's status stands in.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scaler.act.base import OfferingFacts, PoolActor, PoolObservation, PoolUnavailable
from scaler.act.sharing import Places
from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok, warn
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.config.convert import to_spec
from scaler.config.providers import LocalProvider
from scaler.config.schema import RolloutFleet
from scaler.guard.protect import Protector
from scaler.guard.watch import trainers_of
from scaler.kube.facts import FLEET_LABEL, PodFacts
from scaler.runtime.cluster.notice_hub import NoticeHub
from scaler.runtime.cluster.owners import Owners
from scaler.runtime.cluster.pools import CannotAct, ClusterActors, fleet_key, places_of
from scaler.runtime.cluster.shared import Muster, Shared
from scaler.runtime.cluster.worker_pods import is_worker
from scaler.runtime.leadership import never
from scaler.runtime.notice_watch import NoticeWatch

_LISTS_TAKE_S = 10.0
_AGAIN_S = 0.5
_HELD_BACK = "held back"
"""How clients say that they did not send what would change something."""


async def pools(world: ClusterWorld) -> Sequence[Line]:
    """Of each pool whether it can be listed and may be acted on, what it offers, and its workers."""
    fleet = world.fleet
    if fleet is None:
        return [not_looked("pools", "the fleet is not known", "see the line on the fleet")]
    trouble = await world.listed()
    if trouble:
        return [not_looked("pools", f"nodes and pods cannot be listed: {trouble}", "look with more rights")]
    shared, protector = _shared(world), _protector(world, fleet)
    looks = await asyncio.gather(*(_pool(world, shared, protector, alone) for alone in _alone(fleet)))
    return [*(line for look in looks for line in look), *_nodes(world, fleet)]


def _alone(fleet: RolloutFleet) -> Iterator[RolloutFleet]:
    """The fleet with each of its pools alone: one that cannot be acted on hinders no other."""
    for stage in fleet.spec.stages:
        for pool in stage.pools:
            stages = (stage.model_copy(update={"pools": (pool,)}),)
            yield fleet.model_copy(update={"spec": fleet.spec.model_copy(update={"stages": stages})})


def _shared(world: ClusterWorld) -> Shared:
    clock = world.clock
    return Shared(
        clock=clock,
        kube=world.kube,
        aws=world.access.aws,
        nodes=world.nodes,
        pods=world.pods,
        places=Places(),
        hub=NoticeHub(NoticeWatch({}, clock), clock),
        owners=Owners(world.nodes, clock),
        muster=Muster(clock),
        leading=never,
        state_dir=Path(),
    )


def _protector(world: ClusterWorld, fleet: RolloutFleet) -> Protector:
    return Protector(
        clock=world.clock,
        nodes=world.nodes,
        pods=world.pods,
        trainers=lambda: trainers_of(to_spec(fleet)),
        fleet=lambda: fleet_key(fleet),
        places=lambda: places_of(fleet),
        count=lambda _: None,
    )


async def _pool(world: ClusterWorld, shared: Shared, protector: Protector, alone: RolloutFleet) -> Sequence[Line]:
    (pool,) = to_spec(alone).stages[0].pools
    about = f"pool {pool.name}"
    actors = ClusterActors(shared, lambda: alone, protector.guards, lambda: None, world.group)
    try:
        (actor,) = (await actors.current()).values()
        listed = await _observed(world, actor)
    except CannotAct as error:
        return [*_as_told(world, about, pool.name), not_looked(about, str(error), "-f controller.yaml, or --region")]
    except PoolUnavailable as error:
        return [*_as_told(world, about, pool.name), _unlisted(about, str(error))]
    finally:
        await actors.close()
    offered = [each.offering_id for each in pool.offerings]
    return [
        *_listed(about, listed, offered),
        *_offerings(about, listed, actor.facts(), offered),
        *_workers(world, about, alone),
    ]


async def _observed(world: ClusterWorld, actor: PoolActor) -> PoolObservation:
    """Lists that an actor watches take a moment to come."""
    give_up_at_s = world.clock.monotonic_s() + _LISTS_TAKE_S
    while True:
        try:
            async with asyncio.timeout(_LISTS_TAKE_S):
                return await actor.observe()
        except TimeoutError as error:
            raise PoolUnavailable(f"not listed within {_LISTS_TAKE_S:.0f} s") from error
        except PoolUnavailable as error:
            if _HELD_BACK in str(error) or world.clock.monotonic_s() >= give_up_at_s:
                raise
        await world.clock.sleep(_AGAIN_S)


def _unlisted(about: str, why: str) -> Line:
    if _HELD_BACK in why:
        return not_looked(about, "something of it is ending just now, which is not ours to move on", "look again soon")
    return fail(
        about, f"cannot be listed: {why}", "see that the provider answers, and that the role may ask: deploy/iam"
    )


def _listed(about: str, listed: PoolObservation, offered: Sequence[str]) -> Iterator[Line]:
    if listed.refused_reason:
        yield fail(about, f"refused: {listed.refused_reason}", "as it says; deploy/runbooks/two-owners.md")
    else:
        count = len(listed.instances)
        yield ok(about, f"can be listed and acted on: {count} instances; offers {', '.join(offered)}")
    strange = sorted({each.offering_id for each in listed.instances} - set(offered) - {""})
    if strange:
        remedy = "add them to the pool's offerings: what is not there has no price"
        yield warn(about, f"holds instances of offerings that the fleet does not name: {', '.join(strange)}", remedy)


def _offerings(
    about: str, listed: PoolObservation, facts: Mapping[str, OfferingFacts], offered: Sequence[str]
) -> Iterator[Line]:
    for offering in offered:
        known = facts.get(offering)
        if listed.available.get(offering) == 0:
            yield warn(
                about, f"gives no {offering} now: it is full, or not ready", "raise its limit, or see its conditions"
            )
        elif known is not None and known.refused_at_s is not None:
            yield warn(about, f"{offering} was refused for lack of capacity", "nothing: it is tried again by itself")


def _as_told(world: ClusterWorld, about: str, pool: str) -> Iterator[Line]:
    """The controller's word in the status."""
    if not world.lease.leads:
        return
    told = [each for stage in world.status.get("stages") or () for each in stage.get("pools") or ()]
    for each in told:
        if each.get("name") == pool and each.get("refused"):
            yield fail(about, f"the controller refuses it: {each['refused']}", "as it says")
        if each.get("name") == pool and each.get("failedLists"):
            found = f"the controller has failed to list it {each['failedLists']} times in a row"
            yield fail(about, found, "see pool_away in its log")


def _workers(world: ClusterWorld, about: str, alone: RolloutFleet) -> Iterator[Line]:
    provider = alone.spec.stages[0].pools[0].provider
    if isinstance(provider, LocalProvider):
        return
    model = provider.worker_set
    named = f"{model.type} {model.namespace or alone.metadata.namespace}/{model.name}"
    pods = [pod for pod in world.pods.all() if is_worker(alone, pod)]
    if pods:
        yield ok(f"workers of {about}", f"{named}: {len(pods)} pods, {sum(pod.ready for pod in pods)} ready")
    else:
        remedy = "see that the object is there under this name; nothing to do where the pool is empty"
        yield warn(f"workers of {about}", f"{named} has no pods", remedy)


def _nodes(world: ClusterWorld, fleet: RolloutFleet) -> Iterator[Line]:
    """Whose nodes workers run on: a node belongs to one fleet."""
    key = fleet_key(fleet)
    workers = [pod for pod in world.pods.all() if is_worker(fleet, pod)]
    taken = sorted({owner for pod in workers if (owner := _owner(world, pod)) not in ("", key)})
    if taken:
        found = f"workers run on nodes that belong to {', '.join(taken)}"
        yield fail(
            "nodes", found, "give each fleet nodes of its own; headrace release frees those of a fleet that is gone"
        )
    else:
        yield ok("nodes", f"{sum(node.labels.get(FLEET_LABEL) == key for node in world.nodes.all())} carry {key}")


def _owner(world: ClusterWorld, pod: PodFacts) -> str:
    node = world.nodes.by_name(pod.node_name)
    return node.labels.get(FLEET_LABEL, "") if node is not None else ""
