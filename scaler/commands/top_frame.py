"""One frame of `headrace top`: a controller's `/status` as tables. Pure: the same status, the same frame.

Times are the controller's own (`now_s` of its status), so that a clock of ours that is off changes nothing. A number that is not
known is a dash, and one that is too old to be acted on says so: missing, stale and zero are three things here too.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from scaler.commands.explain import explained
from scaler.model.capacity import ReplicaPhase
from scaler.model.reading import Freshness

Json = Mapping[str, Any]

_DASH = "-"
_OUT = (ReplicaPhase.DRAINING, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING)
_WORDS = frozenset({"stage", "pool", "offering", "replica", "fleet", "policy", "phase", "mode", "why", "trouble"})
"""Columns that hold words; the others are numbers."""
_MOST_LINES = 8
"""Of a decision."""
_MOST_LEAVING = 20
"""Lines: five hundred notices at once are told as a number."""


def of_fleet(name: str, status: Json) -> RenderableType:
    """Everything of one fleet."""
    parts: list[RenderableType] = [_title(name, status)]
    stages: Sequence[Json] = status.get("stages", ())
    if stages:
        parts += [_sizes(status, stages), _capacity(stages)]
        # The ledger is the first stage's queue.
        parts += [_grid(_flow(stage, _stats(status) if stage is stages[0] else {})) for stage in stages]
        parts.append(_leaving(status, stages))
    parts.append(_grid([*_decision(status), *_sources(status)]))
    return Group(*(line for part in parts for line in (part, Text())))


def _stats(status: Json) -> Json:
    found: Json = status.get("stats") or {}
    return found


def _grid(rows: Iterable[tuple[str, Text]]) -> Table:
    """A name and what there is to say, a line or several."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, said in rows:
        table.add_row(name, said)
    return table


def _decision(status: Json) -> Iterator[tuple[str, Text]]:
    """The last one, and the last that did something, where that is another."""
    decisions: Sequence[Json] = status.get("decisions", ())
    acted = next((each for each in decisions if each["commands"]), None)
    if decisions:
        yield "decision", _explained(decisions[0])
    if acted is not None and acted is not decisions[0]:
        yield "acted", _explained(acted)


def _explained(decision: Json) -> Text:
    lines = explained(dict(decision)).splitlines()
    left = len(lines) - _MOST_LINES
    return Text("\n".join(lines if left <= 0 else [*lines[:_MOST_LINES], f"  ... and {left} more: headrace explain"]))


def of_fleets(status: Json, fleets: Mapping[str, Json]) -> RenderableType:
    """A line a fleet of a cluster's controller."""
    table = _table("fleet", "desired", "requested", "observed", "ready", "USD/h", "buffer", "leaving", "mode")
    table.expand = True
    table.add_column("why", ratio=1, no_wrap=True, overflow="ellipsis")
    for name, fleet in sorted(fleets.items()):
        stages: Sequence[Json] = fleet.get("stages", ())
        sums = [str(sum(stage.get(word, 0) for stage in stages)) if stages else _DASH for word in _SIZES]
        spend = sum(stage.get("spend_usd_per_h", 0.0) for stage in stages)
        table.add_row(
            escape(name),
            *sums,
            f"{spend:.2f}" if stages else _DASH,
            _reading(stages[0]["signals"]["buffered_samples"], ".0f") if stages else _DASH,
            str(sum(_is_leaving(each) for stage in stages for each in stage["replicas"])),
            _mode(fleet),
            escape("; ".join(_why(stage) for stage in stages) or "no decision yet"),
        )
    head = Text(f"headrace top  {status.get('identity', '')} {_role(status)}", style="bold")
    return Group(head, table if fleets else Text("no fleet"))


_SIZES = ("desired", "requested", "observed", "ready")


def _why(stage: Json) -> str:
    reason = stage.get("reason")
    return f"{reason['code']}: {reason['message']}" if reason else "no decision yet"


def _title(name: str, status: Json) -> Text:
    decided_at_s = status.get("decided_at_s")
    decided = "no decision yet" if decided_at_s is None else f"decided {status['now_s'] - decided_at_s:.1f} s ago"
    text = Text(f"headrace top  {name or '(no fleet yet)'}  {_role(status)}, {decided}")
    text.stylize("bold")
    mode = _mode(status)
    if mode:
        text.append(f"  {mode}", style="bold yellow")
    for fault in status.get("config", {}).get("faults", ()):
        text.append(f"\nconfiguration refused: {fault}", style="red")
    return text


def _role(status: Json) -> str:
    leads = "leads" if status.get("leading") else "stands by: another controller leads"
    return f"{leads}, epoch {status.get('leader_epoch')}"


def _mode(status: Json) -> str:
    words = {"dry_run": "DRY RUN", "paused": "PAUSED"}
    found = [word for key, word in words.items() if status.get(key)]
    return ", ".join(found if status.get("synced", True) else [*found, "NOT SYNCED"])


def _sizes(status: Json, stages: Sequence[Json]) -> Table:
    table = _table(
        "stage", "desired", "requested", "observed", "ready", "floor to ceiling", "USD/h", "at most", "policy"
    )
    for stage in stages:
        limits = stage.get("limits", {})
        cap = limits.get("max_spend_usd_per_h", status.get("max_spend_usd_per_h"))
        table.add_row(
            stage["stage"],
            *(_number(stage.get(word)) for word in _SIZES),
            f"{_number(limits.get('floor'))} to {_number(limits.get('ceiling'))}",
            _number(stage.get("spend_usd_per_h"), ".2f"),
            _number(cap, ".2f"),
            stage.get("policy", _DASH),
        )
    return table


def _capacity(stages: Sequence[Json]) -> Table:
    table = _table("pool", "offering", "USD/h", "asked for", "launching", "loading", "ready", "leaving", "trouble")
    for stage in stages:
        for pool in stage["pools"]:
            for line in _pool_lines(pool, stage["replicas"]):
                table.add_row(*line)
    return table


def _pool_lines(pool: Json, replicas: Sequence[Json]) -> Iterator[tuple[str, ...]]:
    mine = [replica for replica in replicas if replica["pool"] == pool["pool"]]
    phases = Counter((replica["offering_id"], str(replica["phase"])) for replica in mine)
    if pool["refused_reason"]:
        yield (escape(pool["pool"]), "", "", "", "", "", "", "", escape(f"refused: {pool['refused_reason']}"))
    for offering in pool["offerings"]:
        name = offering["offering"]
        counts = [phases[name, phase] for phase in ("requested", "launching", "loading", "ready")]
        out = sum(phases[name, phase] for phase in _OUT)
        shown = [str(count) if count else "" for count in (*counts, out)]
        yield (escape(pool["pool"]), escape(name), f"{offering['price_usd_per_h']:.2f}", *shown, _refusals(offering))


def _refusals(offering: Json) -> str:
    if not offering["refusals"]:
        return ""
    because = offering.get("refused_because")
    return escape(f"refused {offering['refusals']} times in a row" + (f": {because}" if because else ""))


def _flow(stage: Json, stats: Json) -> Iterator[tuple[str, Text]]:
    """Buffer, trainer, work and versions of a stage."""
    signals = stage["signals"]
    yield "buffer", Text(_buffer(stage, stats))
    yield "trainer", Text(_trainer(signals, stats))
    rate, accepted = _reading(signals["goodput_per_replica_per_s"], ".3f"), _reading(signals["acceptance_ratio"], ".0%")
    yield "goodput", Text(f"{rate} samples/s a ready replica, {accepted} of samples accepted")
    if stats:
        ends = f"{stats['accepted']} trained on, {stats['dead_lettered']} failed for good"
        yield "units", Text(f"{stats['pending']} pending, {stats['running']} running, {ends}")
    yield "version", Text(_versions(stage, signals))


def _buffer(stage: Json, stats: Json) -> str:
    signals = stage["signals"]
    parts = [f"{_reading(signals['buffered_samples'], '.0f')} samples", *_aim(stage)]
    if "admitted_samples" in stats:
        parts.append(f"at most {stats['admitted_samples']} with what is in flight")
    groups = f"{_reading(signals['ready_groups'], '.0f')} whole groups"
    return ", ".join([*parts, f"{groups}, the oldest {_reading(signals['queue_age_s'], '.0f')} s old"])


def _aim(stage: Json) -> Iterator[str]:
    """What the policy wants it to be, where its reason says so."""
    inputs = (stage.get("reason") or {}).get("inputs", {})
    if "target_samples" in inputs:
        yield f"aim {_number(inputs['target_samples'], '.0f')}"
    if "low_mark" in inputs:
        yield f"band {_number(inputs['low_mark'], '.0f')} to {_number(inputs['high_mark'], '.0f')}"


def _trainer(signals: Json, stats: Json) -> str:
    told = stats.get("trainer") or {}
    parts = [f"takes {_reading(signals['unblocked_rate_per_s'], '.2f')} samples/s if it never waits"]
    if told.get("wait_ratio") is not None:
        parts.append(f"waited {told['wait_ratio']:.0%} of its time")
    if told:
        parts.append(f"step {told['step']}, {told['phase']}")
    return ", ".join(parts)


def _versions(stage: Json, signals: Json) -> str:
    held = Counter(each["version"] for each in stage["replicas"] if each["phase"] == ReplicaPhase.READY)
    by_version = ", ".join(f"{count} at {version}" for version, count in sorted(held.items(), key=str))
    allowed = f"samples may be {signals['max_staleness']} versions old"
    return f"{_reading(signals['policy_version'], '.0f')}; {allowed}; workers: {by_version or 'none ready'}"


def _is_leaving(replica: Json) -> bool:
    return replica["phase"] in _OUT or replica["notice"] is not None


def _leaving(status: Json, stages: Sequence[Json]) -> RenderableType:
    """Interruptions and drains under way, the nearest deadline first, and what may be drained besides."""
    found = [each for stage in stages for each in stage["replicas"] if _is_leaving(each)]
    budgets = [
        f"{limits['drains_under_way']} of {limits['drains_allowed']} drains of our own choice in {stage['stage']}"
        for stage in stages
        if (limits := stage.get("limits"))
    ]
    head = _grid([("leaving", Text(f"{len(found)} replicas; {'; '.join(budgets)}"))])
    if not found:
        return head
    table = _table("replica", "pool", "offering", "phase", "why", "deadline", "units", "tokens unpublished")
    for replica in sorted(found, key=_due_s)[:_MOST_LEAVING]:
        table.add_row(*_leaver(replica, status["now_s"]))
    left = len(found) - _MOST_LEAVING
    return Group(head, table, Text(f"... and {left} more")) if left > 0 else Group(head, table)


def _leaver(replica: Json, now_s: float) -> tuple[str, ...]:
    due_s = _due_s(replica)
    return (
        escape(replica["replica_id"]),
        escape(replica["pool"]),
        escape(replica["offering_id"]),
        replica["phase"],
        escape((replica["notice"] or {}).get("kind") or replica["drain_reason"] or _DASH),
        f"{due_s - now_s:+.0f} s" if math.isfinite(due_s) else _DASH,
        str(replica["running_units"]),
        str(replica["unpublished_tokens"]),
    )


def _due_s(replica: Json) -> float:
    named = ((replica["notice"] or {}).get("deadline_s"), replica["drain_deadline_s"])
    return min([float(each) for each in named if isinstance(each, int | float)], default=math.inf)


def _sources(status: Json) -> Iterator[tuple[str, Text]]:
    sources = status["sources"]
    yield "ledger", _state(_ledger(sources["ledger"]), ok=sources["ledger"]["ok"])
    for pool, failed in sorted(sources["pools_away"].items()):
        yield f"pool {pool}", _state(f"not listed {failed} times in a row", ok=False)
    for name, health in sorted(sources["notices"].items()):
        yield f"notices {name}", _state(_health(health, status["now_s"]), ok=not health["error"])


def _ledger(ledger: Json) -> str:
    if ledger["ok"]:
        return "answers"
    # A controller of an earlier version does not tell the two apart.
    return f"{'refuses' if ledger.get('refuses') else 'away'}: {ledger['error'] or 'not asked yet'}"


def _state(said: str, *, ok: bool) -> Text:
    return Text(said, style="green" if ok else "red")


def _health(health: Json, now_s: float) -> str:
    if health["error"]:
        return str(health["error"])
    at_s, age_s = health["answered_at_s"], health["queue_age_s"]
    answered = "has not answered yet" if at_s is None else f"answered {max(0.0, now_s - at_s):.0f} s ago"
    queue = "" if age_s is None else f", oldest message {age_s:.0f} s"
    return f"{answered}, {health['received']} received{queue}"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    for name in columns:
        words = name in _WORDS
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _reading(reading: Json, form: str) -> str:
    """A signal: its value, with how old it is where that is too old."""
    value, freshness = reading["value"], reading["freshness"]
    if freshness == Freshness.MISSING or value is None:
        return _DASH
    shown = f"{value:{form}}" if isinstance(value, int | float) else str(value)
    return shown if freshness == Freshness.FRESH else f"{shown} ({freshness}, {reading['age_s']:.0f} s)"


def _number(value: Any, form: str = "") -> str:
    return f"{value:{form}}" if isinstance(value, int | float) else _DASH
