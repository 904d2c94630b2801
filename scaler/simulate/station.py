"""Where replicas work: each ready one has lanes, each lane holds one lease at a time, and work waits for a lane.

A lease ends its lane's time first and completes later: the slots of its early finishers serve the next group while its long
tail still runs. Draining: no new leases; what cannot end in time is given back at the drain's moment with all its progress.
Killed: it is given back with its last published progress.

Invariants: a replica never holds more leases in lanes than it has lanes; a lease ends once, by completing or by being
given back; no lane is free while there is work for it (whatever else makes work, dispatches).
"""

from typing import Protocol

from scaler.simulate.groups import Group
from scaler.simulate.kernel import Kernel
from scaler.simulate.replica import Lanes, Lease, Replica


class Work(Protocol):
    """What a station works on."""

    def next(self) -> Group | None:
        """Take the next group that may be leased now."""
        ...

    def begin(self, group: Group) -> tuple[float, float]:
        """(lane time, time to completion) of this lease, in seconds."""
        ...

    def leased(self, lease: Lease) -> None:
        """The lease has begun."""
        ...

    def complete(self, lease: Lease) -> None:
        """The group is done here."""
        ...

    def give_back(self, lease: Lease, at_s: float, *, published: bool) -> None:
        """The holder had it until `at_s`. `published`: all that it did is kept; else what it had published is."""
        ...


class Station:
    """See the module's docstring. `lanes`: of each replica."""

    def __init__(self, kernel: Kernel, lanes: int, work: Work) -> None:
        self.lanes = lanes
        self._kernel = kernel
        self._work = work
        self._lane_end, self._completion = self._lane_ends, self._completes  # bound once: they are planned all the time
        self._idle: dict[str, Replica] = {}
        self.taken = Lanes()

    @property
    def idles(self) -> bool:
        """Whether a lane is free that would take a lease."""
        return bool(self._idle)

    def open(self, replica: Replica) -> None:
        """A replica has become ready, or its drain was taken back."""
        if replica.free_lanes > 0:
            self._idle[replica.replica_id] = replica
            self.dispatch()

    def dispatch(self) -> None:
        """Give work to lanes until one of them runs out."""
        while self._idle:
            group = self._work.next()
            if group is None:
                return
            replica = next(iter(self._idle.values()))
            self.start(replica, group)

    def start(self, replica: Replica, group: Group, ago_s: float = 0.0) -> None:
        """Lease a group to a free lane; `ago_s`: begun so long ago."""
        lane_s, run_s = self._work.begin(group)
        if replica.pause_debt_s:
            lane_s += replica.pause_debt_s
            replica.pause_debt_s = 0.0
        # No group is complete before its lane has ended: a lane is charged its share of every group's work.
        begun_s, run_s = self._kernel.now_s - ago_s, max(lane_s, run_s)
        lease = replica.leases[group.number] = Lease(group, replica, begun_s, lane_s, run_s)
        self._work.leased(lease)
        replica.free_lanes -= 1
        self.taken.busy += 1
        if replica.free_lanes <= 0:
            self._idle.pop(replica.replica_id, None)
        self._kernel.at(lease.lane_ends_s, self._lane_end, lease)
        self._kernel.at(lease.ends_s, self._completion, lease)

    def _lane_ends(self, lease: Lease) -> None:
        if lease.in_lane:
            self._free_lane(lease)
            self.dispatch()

    def _completes(self, lease: Lease) -> None:
        if not lease.live:
            return
        frees_lane = lease.in_lane
        self._end(lease)
        del lease.holder.leases[lease.group.number]
        self._work.complete(lease)
        if frees_lane:
            self.dispatch()

    def _end(self, lease: Lease) -> None:
        lease.live = False
        if lease.in_lane:
            self._free_lane(lease)

    def _free_lane(self, lease: Lease) -> None:
        lease.in_lane = False
        self.taken.busy -= 1
        replica = lease.holder
        replica.free_lanes += 1
        if replica.free_lanes > 0 and replica.leases_now:
            self._idle[replica.replica_id] = replica

    def drop(self, lease: Lease) -> None:
        """Its group is of no use any more: the holder leaves it."""
        self._end(lease)
        del lease.holder.leases[lease.group.number]

    def close(self, replica: Replica) -> None:
        """No new leases."""
        self._idle.pop(replica.replica_id, None)

    def stop(self, replica: Replica) -> None:
        """A replica is lost with what it holds: its leases end by themselves no more."""
        self._idle.pop(replica.replica_id, None)
        for lease in replica.leases.values():
            self._end(lease)
            lease.stopped_s = self._kernel.now_s
        if replica.leases:
            self.dispatch()

    def give_back(self, replica: Replica, at_s: float, *, published: bool) -> None:
        """All that a replica holds goes back; it did its work until `at_s`."""
        leases = list(replica.leases.values())
        replica.leases.clear()
        for lease in leases:
            self._end(lease)
            self._work.give_back(lease, at_s, published=published)
        self._idle.pop(replica.replica_id, None)
        if leases:
            self.dispatch()
