"""`headrace audit`: the verdict on a ledger, for people or as JSON."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.config.faults import one_line
from scaler.ledger.audit import audit
from scaler.ledger.audit_report import LOST, AuditReport, Fault
from scaler.ledger.contract import LedgerRefused, LedgerUnavailable
from scaler.ledger.registry import open_for_reading

SHOWN = 50
"""Findings that a person is shown; JSON has them all."""


def audit_ledger(ledger: str, job: str, *, as_json: bool) -> int:
    """Audit and print. 0: clean; 1: something is wrong; 2: no such ledger, or it cannot be read; 3: it does not answer."""
    url = ledger if "://" in ledger else f"sqlite://{Path(ledger).resolve()}"
    if url.startswith("sqlite://") and not Path(url.removeprefix("sqlite://")).is_file():
        print(f"{ledger}: no such ledger", file=sys.stderr)
        return 2
    try:
        report = audit(open_for_reading(url, job))
    except LedgerRefused as error:
        print(one_line(f"{ledger}: {error}"), file=sys.stderr)
        return 2
    except LedgerUnavailable as error:
        print(one_line(f"{ledger}: {error}"), file=sys.stderr)
        return 3
    if as_json:
        print(json.dumps(as_dict(report), indent=1))
    else:
        _print(report)
    return 0 if report.ok else 1


def as_dict(report: AuditReport) -> dict[str, Any]:
    """The verdict as plain values; the counts are of distinct units or groups."""
    return {
        "ok": report.ok,
        "events": report.events,
        "units": dict(report.units),
        "units_lost": report.count(*LOST),
        "samples_doubled": report.count(Fault.SAMPLE_DOUBLED, Fault.UNIT_PUT_TWICE),
        "fences_broken": report.count(Fault.FENCE_BROKEN, Fault.EPOCH_BROKEN),
        "groups_trained_twice": report.count(Fault.GROUP_TRAINED_TWICE),
        "unprovable_units": report.unprovable_units,
        "compacted_through_seq": report.compacted_through_seq,
        "skipped_live_units": report.skipped_live_units,
        "findings": [asdict(finding) for finding in report.findings],
    }


def _print(report: AuditReport) -> None:
    console = Console()
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.units.items())) or "no units"
    console.print(f"{report.events} events; {states}", highlight=False)
    if report.compacted_through_seq:
        console.print(
            f"events up to {report.compacted_through_seq} are compacted: "
            f"nothing is proved of {report.unprovable_units} units before them",
            highlight=False,
        )
    if report.skipped_live_units:
        console.print(f"{report.skipped_live_units} units changed meanwhile and were not compared", highlight=False)
    if report.ok:
        console.print("clean: nothing lost, nothing doubled, no fence broken, nothing trained twice", style="green")
        return
    table = Table("fault", "unit or group", "event", "what")
    for finding in report.findings[:SHOWN]:
        seq = "" if finding.seq is None else str(finding.seq)
        # As text, not markup: what is in a damaged store may be anything.
        table.add_row(finding.fault, Text(one_line(finding.subject)), seq, Text(one_line(finding.message)))
    console.print(table)
    if len(report.findings) > SHOWN:
        console.print(f"... and {len(report.findings) - SHOWN} more; --json shows all")
