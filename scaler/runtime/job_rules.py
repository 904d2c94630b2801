"""Tells the ledger the job's rules as configured: at the start, and again when they change.

A dry run tells nothing, not even where nobody has: between its look and its word a trainer may come with rules of its own,
whose work would then change. A ledger that refuses them (its units bind the group size) goes on by its own; that is said
once for each refusal, since sizes are then decided for another job than the one configured.
"""

from collections.abc import Callable

import structlog

from scaler.ledger.contract import Ledger, LedgerError, LedgerUnavailable
from scaler.model.job import JobSettings
from scaler.observe.ledger_watch import LedgerCalls

log = structlog.get_logger()


class JobRules:
    """Keeps the ledger's rules those of the configuration. `wanted` gives None while nothing may be told."""

    def __init__(self, calls: LedgerCalls, wanted: Callable[[], JobSettings | None]) -> None:
        self._calls = calls
        self._wanted = wanted
        self._told: JobSettings | None = None

    async def apply(self) -> None:
        """Tell the ledger, unless it has been told. A store that is away is tried again with the next call."""
        rules = self._wanted()
        if rules is None or rules == self._told:
            return
        try:
            await self._calls.call(lambda ledger: _configure(ledger, rules))
        except LedgerUnavailable:
            return
        except (LedgerError, ValueError) as error:
            log.warning("job_rules_refused", error=str(error))
        self._told = rules


def _configure(ledger: Ledger, rules: JobSettings) -> None:
    ledger.configure(rules)
