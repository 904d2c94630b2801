"""Signal sources by name. A new source is one file in this folder and one line in `SOURCES`."""

from collections.abc import Callable

from scaler.observe.ledger_signals import LedgerSignals
from scaler.observe.signals import SignalSource, SourceContext

SOURCES: dict[str, Callable[[SourceContext], SignalSource]] = {"ledger": LedgerSignals}


def open_source(name: str, context: SourceContext) -> SignalSource:
    """Build a source; `KeyError` for a name that is not registered."""
    return SOURCES[name](context)
