"""What somebody has to ask the ledger for from time to time: run-out leases go back, old history is compacted.

Done on a connection of its own, so that no drain ever waits for a compaction. Skipped turns change nothing.
"""

from collections.abc import Callable

import structlog

from scaler.ledger.contract import Ledger, LedgerError
from scaler.model.clock import Clock
from scaler.observe.ledger_watch import LedgerCalls

log = structlog.get_logger()

_EXPIRE_EVERY_S = 5.0
"""Leases are also run out by whoever leases next; this only matters while nobody does."""
_COMPACT_EVERY_TURNS = 12
_TIME_OUT_S = 60.0


async def keep_house(calls: LedgerCalls, clock: Clock, enabled: Callable[[], bool]) -> None:
    """Expire and compact while `enabled`; never returns."""
    turn = 0
    while True:
        await clock.sleep(_EXPIRE_EVERY_S)
        if not enabled():
            continue
        turn += 1
        try:
            expired = await calls.call(_expire, _TIME_OUT_S)
            compacted = await calls.call(_compact, _TIME_OUT_S) if turn % _COMPACT_EVERY_TURNS == 0 else 0
        except LedgerError:
            continue  # the loop says how the ledger does
        if expired or compacted:
            log.info("ledger_kept", leases_expired=expired, compacted=compacted)


def _expire(ledger: Ledger) -> int:
    return ledger.expire()


def _compact(ledger: Ledger) -> int:
    return ledger.compact()
