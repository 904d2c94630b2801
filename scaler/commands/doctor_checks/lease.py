"""Who leads: the lease, and whether it is renewed.

Policy: as for those who wait for it, a renewal is a change of the record. The times in it are the holder's clock and only save
the wait: where they look old, the lease is looked at once more, when a holder that lives has renewed it.
"""

from dataclasses import dataclass
from datetime import datetime

from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok, warn
from scaler.config.controller import Election
from scaler.kube.contract import LEASES, KubeApi, KubeError, NotFound
from scaler.kube.lease_record import Record, record_of
from scaler.model.clock import Clock

_AGAIN_S = 4.0
"""Twice the pause between renewals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """What was seen. `leads` None: nobody can say."""

    leads: bool | None
    epoch: int
    """Of who leads; 0: nobody, or nobody can say."""
    line: Line


async def look_at_lease(kube: KubeApi, clock: Clock, election: Election) -> LeaseView:
    """Looks once, or twice."""
    about = f"lease {election.namespace}/{election.name}"
    start = f"see that the controller runs: kubectl -n {election.namespace} get pods"
    try:
        record = await _read(kube, election)
        if not record.holder:
            return _seen(None, fail(about, "nobody holds it", start))
        age_s = _age_s(record, clock.now_s() + (kube.ahead_s() or 0.0))
        held = f"held by {record.holder}, epoch {record.epoch}"
        if age_s is not None and 0.0 <= age_s <= (record.duration_s or 0.0):
            return _seen(record, ok(about, f"{held}, renewed {age_s:.0f} s ago"))
        await clock.sleep(_AGAIN_S)
        if await _read(kube, election) != record:
            clocks = "set the clocks of the nodes (chrony)"
            return _seen(record, warn(about, f"{held}, and renewed, by a clock that is not ours", clocks))
    except NotFound:
        return _seen(None, fail(about, "is not there: no controller has ever led", start))
    except KubeError as error:
        return LeaseView(leads=None, epoch=0, line=not_looked(about, str(error), "look with more rights"))
    old = "at a time that cannot be read" if age_s is None else f"{age_s:.0f} s ago"
    return _seen(None, fail(about, f"{held}, and renewed last {old}: it leads no more", start))


async def _read(kube: KubeApi, election: Election) -> Record:
    return record_of(await kube.get(LEASES, election.name, namespace=election.namespace))


def _seen(record: Record | None, line: Line) -> LeaseView:
    return LeaseView(leads=record is not None, epoch=record.epoch if record else 0, line=line)


def _age_s(record: Record, now_s: float) -> float | None:
    try:
        return now_s - datetime.fromisoformat(record.renewed_at).timestamp()
    except ValueError:
        return None
