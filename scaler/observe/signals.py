"""What a source of signals is. One file in this folder per source, and one line in `scaler.observe.registry`.

A source keeps its readings with the time they were true. Where its server does not answer they grow old; a source
never fills in zero, and never raises.
"""

from dataclasses import dataclass
from typing import Protocol

from scaler.model.clock import Clock
from scaler.model.snapshot import Signals
from scaler.observe.ledger_watch import LedgerWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What a source may be built from."""

    ledger: LedgerWatch
    clock: Clock
    averaged_over_s: float
    """Time constant of averages."""


class SignalSource(Protocol):
    """See the module's docstring."""

    async def poll(self) -> None:
        """Look for something newer."""
        ...

    def signals(self, stage: str) -> Signals:
        """What is known of a stage now, fresh or old; all missing where the source does not know the stage."""
        ...
