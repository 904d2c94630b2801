"""Colours and the page's style sheet.

Policy: the hue says the capacity type (cool: spot, purple: capacity block, warm: on-demand), the shade the offering; all
from palettes that colour-blind people tell apart (Okabe and Ito 2008; Tol 2021). Ink, grid and paper follow the reader's
light or dark mode; data colours are of middle lightness and serve both.
"""

from scaler.model.capacity import CapacityType

SHADES: dict[CapacityType, tuple[str, ...]] = {
    CapacityType.SPOT: (
        "#0072b2", "#56b4e9", "#009e73", "#5b5fc7", "#44aa99", "#8fc7e8", "#2b7f4f", "#7aa6c2", "#94b447",
    ),
    CapacityType.CAPACITY_BLOCK: ("#cc79a7", "#8f4d8b"),
    CapacityType.ON_DEMAND: ("#e69f00", "#d55e00", "#b8860b"),
}  # fmt: skip
BY_TYPE = {kind: shades[0] for kind, shades in SHADES.items()}
OTHERS = "#9aa5b1"
"""Offerings that are too many to be told apart."""
POLICIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a00", "#6b6ecf")
DASHES = ("", "7 3", "2 2.5", "9 3 2 3")
"""Beside the colour, so that lines are told apart without it."""

INK, MUTED = "var(--ink)", "var(--muted)"
READY, SHORT = "#0072b2", "#d55e00"
BUFFER, WAITING, WASTED, SALVAGED, STALE = "#7b5ea7", "#d55e00", "#d55e00", "#009e73", "#0072b2"
TRAINER, REFUNDS = "#8a94a0", "#009e73"


def policy_colour(index: int) -> str:
    """The colour of the policy at this place; it repeats after eight."""
    return POLICIES[index % len(POLICIES)]


def policy_dash(index: int) -> str:
    """The dash pattern that goes with it."""
    return DASHES[index % len(DASHES)]
