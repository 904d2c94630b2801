"""What a fleet reads from, as its YAML names it: its job's ledger, and the source of signals of each stage."""

from collections.abc import Callable

from scaler.config.convert import ledger_url
from scaler.config.schema import RolloutFleet
from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from scaler.model.clock import Clock
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.registry import open_source
from scaler.observe.signals import SignalSource, SourceContext

_AVERAGED_OVER_INTERVALS = 10
"""Goodput is averaged over some turns: one turn sees too few samples."""
_SHORTEST_AVERAGE_S = 10.0


def ledger_opener(fleet: RolloutFleet) -> Callable[[], Ledger]:
    """The URL is read anew each time: a mounted secret changes."""
    return lambda: open_ledger(ledger_url(fleet), fleet.job_name)


def signal_sources(fleet: RolloutFleet, watch: LedgerWatch, clock: Clock) -> dict[str, SignalSource]:
    """By stage; stages that name the same kind of source share one."""
    averaged_over_s = max(_SHORTEST_AVERAGE_S, _AVERAGED_OVER_INTERVALS * fleet.spec.interval_s)
    context = SourceContext(ledger=watch, clock=clock, averaged_over_s=averaged_over_s)
    names = {stage.name.value: stage.signals.type for stage in fleet.spec.stages}
    sources = {name: open_source(name, context) for name in set(names.values())}
    return {stage: sources[name] for stage, name in names.items()}
