"""Launch where it is cheapest, and not where capacity is being taken away while there is anywhere else.

Policy: offerings in order of price (USD/h), then pool and name, so that equal prices always give the same answer. An
offering with an interruption within the last `reclaiming_s` is used only when every offering is like that.
All replicas go to the first offering of that order; the engine asks again without an offering that has no room left.

Invariant: the answer does not depend on the order of the offerings.
Non-goals: refusal back-off, room and spend (the engine hands over only offerings that may be used), spreading over zones.
"""

from dataclasses import dataclass, field

from scaler.model.snapshot import OfferingView


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """How long an interruption is held against its offering."""

    reclaiming_s: float = field(default=600.0, metadata={"ge": 0.0, "tune": (0.0, 7200.0)})
    """How long an offering with an interruption is used only when every offering is like that."""


def place(
    wanted: int, offerings: tuple[tuple[str, OfferingView], ...], now_s: float, params: Params
) -> tuple[tuple[str, str], ...]:
    """`wanted` times the cheapest (pool, offering_id), or nothing where there is no offering."""
    calm = [entry for entry in offerings if not _reclaiming(entry[1], now_s, params.reclaiming_s)]
    usable = calm or offerings
    if not usable:
        return ()
    pool, view = min(
        usable, key=lambda entry: (entry[1].offering.price_usd_per_h, entry[0], entry[1].offering.offering_id)
    )
    return ((pool, view.offering.offering_id),) * wanted


def _reclaiming(view: OfferingView, now_s: float, window_s: float) -> bool:
    return view.reclaiming_at_s is not None and now_s - view.reclaiming_at_s < window_s
