"""What is remembered of offerings: refusals in a row, and where capacity is being taken back.

Policy: every launch that brought no instance counts as a refusal, whatever the provider called it, so that a call that
keeps failing backs off like one without capacity; a launch that brought one ends the row. Replicas that keep dying
before they were ever ready, listed or not, are refusals too, from the third in a row on: an offering on which nothing
starts is not available. An interruption notice, or an instance that went without our doing, marks its offering as reclaiming.
Non-goals: how long to wait after a refusal is the engine's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scaler.model.capacity import Offering
from scaler.model.snapshot import OfferingView

_STILLBORN_IN_A_ROW = 3
"""One or two replicas lost before they were ready are ordinary interruptions; more in a row are a pattern."""


_ANYWHERE = ""
"""Stands for every pool: a quota is the account's."""


def _way_of_buying(offering_id: str) -> str:
    return offering_id.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    refused_at_s: float | None = None
    refusals: int = 0
    why: str = ""
    stillborn: int = 0
    reclaiming_at_s: float | None = None


def _both(one: _Record, other: _Record) -> _Record:
    """Of two rows of refusals the latest and the longest: an old, long one must not hide a new one."""
    refused = [each for each in (one, other) if each.refused_at_s is not None]
    latest = max(refused, key=lambda each: each.refused_at_s or 0.0, default=_Record())
    return replace(latest, refusals=max(one.refusals, other.refusals))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a provider tells of an offering, each None where it does not."""

    price_usd_per_h: float | None = None
    """Now."""
    refused_at_s: float | None = None
    """When it last refused anybody capacity there."""
    refusals: int | None = None
    """How many of ours in a row it refused; those that it does not count may be somebody else's."""


def _worse(own: _Record, told: Told) -> _Record:
    """A row of ours that the provider counts is one with our own; what it may have refused to others counts for less."""
    if told.refused_at_s is None:
        return own
    seen = _Record(refused_at_s=told.refused_at_s, refusals=told.refusals or 1)
    if told.refusals is not None:
        return _both(own, seen)
    return max(own, seen, key=lambda each: (each.refusals, each.refused_at_s or 0.0))


class OfferingMemory:
    """Refusals and reclaims by (pool, offering id); lost with the process, and that is harmless."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], _Record] = {}
        self._told: dict[str, Mapping[str, Told]] = {}
        self._shown: dict[str, tuple[tuple[Offering, ...], tuple[OfferingView, ...]]] = {}
        """By pool: what was last shown of which offerings. Nothing is made anew, here or by who reads it, until it changes."""
        self._views: dict[tuple[str, str], tuple[Offering, OfferingView]] = {}
        """The same of each offering: where one of a pool has changed, the others are shown as they were."""

    def refused(self, pool: str, offering_id: str, at_s: float, asked_at_s: float | None = None, why: str = "") -> None:
        """A launch that was asked for at `asked_at_s` (now, where not told) brought nothing.

        Launches asked for before the last refusal was known are refused with it: they are one refusal, however many.
        """
        record = self._get(pool, offering_id)
        known = record.refused_at_s is not None and asked_at_s is not None and asked_at_s <= record.refused_at_s
        self._put(
            pool, offering_id, replace(record, refused_at_s=at_s, refusals=record.refusals + (not known), why=why)
        )

    def out_of_quota(self, offering_id: str, at_s: float, asked_at_s: float | None = None, why: str = "") -> None:
        """The account may not have more of this way of buying, wherever: a refusal of every offering that is bought so."""
        self.refused(_ANYWHERE, _way_of_buying(offering_id), at_s, asked_at_s, why)

    def launched(self, pool: str, offering_id: str) -> None:
        """A launch brought an instance: the row of refusals ends, unless nothing that starts there lives."""
        way = _way_of_buying(offering_id)
        if self._records.pop((_ANYWHERE, way), None):
            self._changed(_ANYWHERE, way)
        record = self._get(pool, offering_id)
        if record.stillborn < _STILLBORN_IN_A_ROW:
            self._put(pool, offering_id, replace(record, refused_at_s=None, refusals=0, why=""))

    def became_ready(self, pool: str, offering_id: str) -> None:
        """A replica there reached READY."""
        record = self._get(pool, offering_id)
        if record.stillborn:
            self._put(pool, offering_id, replace(record, refused_at_s=None, refusals=0, why="", stillborn=0))

    def reclaiming(self, pool: str, offering_id: str, at_s: float) -> None:
        """A notice named an instance there."""
        record = self._get(pool, offering_id)
        self._put(pool, offering_id, replace(record, reclaiming_at_s=max(at_s, record.reclaiming_at_s or at_s)))

    def lost(
        self, pool: str, offering_id: str, at_s: float, *, was_ready: bool, asked_at_s: float | None = None
    ) -> None:
        """An instance there went, and neither we nor a notice said so. `asked_at_s`: when its launch was, as in `refused`."""
        self.reclaiming(pool, offering_id, at_s)
        if was_ready:
            return
        record = self._get(pool, offering_id)
        stillborn = record.stillborn + 1
        self._put(pool, offering_id, replace(record, stillborn=stillborn))
        if stillborn >= _STILLBORN_IN_A_ROW:
            why = f"{stillborn} replicas in a row went before they were ready"
            self.refused(pool, offering_id, at_s, asked_at_s, why)

    def told(self, pool: str, facts: Mapping[str, Told]) -> None:
        """What the provider tells, by offering id."""
        if self._told.get(pool) != facts:
            self._told[pool] = dict(facts)
            self._views.clear()
            self._shown.pop(pool, None)

    def views(self, pool: str, offerings: tuple[Offering, ...]) -> tuple[OfferingView, ...]:
        """The pool's offerings with what is remembered of them; the same tuple until that changes."""
        shown = self._shown.get(pool)
        if shown is None or shown[0] is not offerings:
            shown = self._shown[pool] = offerings, tuple(self._view(pool, offering) for offering in offerings)
        return shown[1]

    def _view(self, pool: str, offering: Offering) -> OfferingView:
        key = pool, offering.offering_id
        known = self._views.get(key)
        if known is None or known[0] is not offering:
            known = self._views[key] = offering, self._new_view(pool, offering)
        return known[1]

    def _new_view(self, pool: str, offering: Offering) -> OfferingView:
        record = self._get(pool, offering.offering_id)
        quota = self._get(_ANYWHERE, _way_of_buying(offering.offering_id))
        told = self._told.get(pool, {}).get(offering.offering_id, Told())
        price, worse = told.price_usd_per_h, _worse(_both(record, quota), told)
        return OfferingView(
            offering=offering if price is None else replace(offering, price_usd_per_h=price),
            refused_at_s=worse.refused_at_s,
            refusals=worse.refusals,
            refused_because=worse.why,
            reclaiming_at_s=record.reclaiming_at_s,
        )

    def _get(self, pool: str, offering_id: str) -> _Record:
        return self._records.get((pool, offering_id), _Record())

    def _put(self, pool: str, offering_id: str, record: _Record) -> None:
        if self._get(pool, offering_id) != record:
            self._records[pool, offering_id] = record
            self._changed(pool, offering_id)

    def _changed(self, pool: str, offering_id: str) -> None:
        if pool == _ANYWHERE:
            self._shown.clear()
            self._views.clear()
        else:
            self._shown.pop(pool, None)
            self._views.pop((pool, offering_id), None)
