"""From a group's members to the instances of one fleet, by replica, and to the worker pods that run on them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from scaler.act._ec2.identity import Identity, Owners, token_of
from scaler.act._ec2.members import REPLICA_TAG, Member
from scaler.act.worker_sets.base import WorkerPod, WorkerSetView
from scaler.kube.facts import REPLICA_LABEL
from scaler.model.capacity import CapacityType
from scaler.model.pool import Instance, InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Who looks: a fleet, the pool of it, and how it tells its own."""

    fleet: str
    pool: str
    nodes_per_replica: int
    capacity_type: CapacityType
    """How its group buys."""
    owners: Owners


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One fleet's members of a group, at one moment."""

    who: Fleet
    members: Mapping[str, Member]
    launched: Mapping[str, Identity]
    unseen: frozenset[str]
    """Launched, and in no list yet."""
    doomed: frozenset[str]
    pods: WorkerSetView | None

    def instances(self) -> tuple[Instance, ...]:
        """As the rest of Headrace sees them, by id."""
        return tuple(self._instance(member) for _, member in sorted(self.members.items()))

    def replica_id(self, member: Member) -> str:
        """Of the launch that brought it, or of what binds adopted nodes together, or its own."""
        known = self.launched.get(member.instance_id)
        if known is not None:
            return known.replica_id
        tagged = member.tags.get(REPLICA_TAG, "")
        return tagged or (self._bound(member) if self.who.nodes_per_replica > 1 else "") or member.instance_id

    def replica_tag(self, member: Member) -> dict[str, str]:
        """The tag that keeps its replica's name."""
        return {REPLICA_TAG: self.replica_id(member)}

    def by_token(self, token: str) -> list[Member]:
        """What a launch brought and is listed."""
        return [member for member in self.members.values() if token_of(member, self.launched) == token]

    def served(self) -> set[str]:
        """Replicas that a worker pod has been scheduled to."""
        busy = {pod.node_name for pod in self._pods}
        return {
            self.replica_id(member)
            for member in self.members.values()
            if (node := self.who.owners.node(member)) is not None and node.name in busy
        }

    def unserved(self) -> set[str]:
        """Replicas that none has been scheduled to yet, launches that are not listed yet among them."""
        listed = {
            self.replica_id(member)
            for member in self.members.values()
            if member.attached and member.state is not InstanceState.SHUTTING_DOWN
        }
        unlisted = {
            known.replica_id
            for instance_id, known in self.launched.items()
            if known.fleet == self.who.fleet and instance_id in self.unseen
        }
        return (listed | unlisted) - self.served()

    def waiting(self) -> list[str]:
        """Replica keys of workers of which no pod has a node yet."""
        placed = {pod.replica_key for pod in self._pods if pod.node_name}
        return sorted({pod.replica_key for pod in self._pods if not pod.terminating} - placed)

    def workers_on(self, members: Iterable[Member]) -> list[str]:
        """Replica keys of the workers on these instances."""
        names = {node.name for member in members if (node := self.who.owners.node(member))}
        return sorted({pod.replica_key for pod in self._pods if pod.node_name in names})

    @property
    def _pods(self) -> tuple[WorkerPod, ...]:
        return self.pods.pods if self.pods else ()

    def _offering_id(self, member: Member) -> str:
        """Before EC2 shows it, nobody but its group says how it was bought."""
        shown = member if member.ec2_state else replace(member, capacity_type=self.who.capacity_type)
        return shown.offering_id

    def _bound(self, member: Member) -> str:
        """Adopted nodes of one replica share a label, or a worker's replica key."""
        node = self.who.owners.node(member)
        if node is None:
            return ""
        keys = self.workers_on([member])
        return node.labels.get(REPLICA_LABEL, "") or (keys[0] if keys else "")

    def _instance(self, member: Member) -> Instance:
        node = self.who.owners.node(member)
        doomed = member.instance_id in self.doomed
        return Instance(
            instance_id=member.instance_id,
            replica_id=self.replica_id(member),
            offering_id=self._offering_id(member),
            state=InstanceState.SHUTTING_DOWN if doomed else member.state,
            launched_at_s=member.launched_at_s,
            launch_token=token_of(member, self.launched),
            node_name=node.name if node else "",
            node_uid=node.uid if node else "",
            attached=member.attached,
            dying=member.going and not doomed,
        )
