"""One self-contained HTML file that shows a person what a simulated fleet did, and what it cost.

`Report` says what is shown, `write_report` writes it. `facts_of` and `set_points` take what pictures refer to from a
scenario and a policy. SVG is drawn by hand rather than by a plotting library: text stays text in the reader's own font,
colours follow light and dark mode, every shape says its numbers on hover, and it needs nothing installed.
"""

from scaler.simulate.report.content import (
    Case,
    ComparisonRow,
    OfferingFacts,
    Optimum,
    PolicyRun,
    Report,
    ScenarioFacts,
    SetPoint,
    Spread,
    facts_of,
    set_points,
    shown_run,
)
from scaler.simulate.report.page import write_report

__all__ = [
    "Case", "ComparisonRow", "OfferingFacts", "Optimum", "PolicyRun", "Report", "ScenarioFacts", "SetPoint", "Spread", "facts_of",
    "set_points", "shown_run", "write_report",
]  # fmt: skip
