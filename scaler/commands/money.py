"""Money in the tables of a terminal: never `inf`, `-0`, or a list that ends in a comma."""

import math
from collections.abc import Mapping

_WHOLE_FROM_USD = 10.0
_LEAST_USD = 0.005
"""What a part shows as 0.00 is left out: a solver's rounding, or nothing."""


def dollars(usd: float) -> str:
    """Such as 1,234.50 USD; `infinite` where a cost per sample has no samples to be shared by."""
    return f"{round(usd, 2) + 0.0:,.2f} USD" if math.isfinite(usd) else "infinite, as no sample is credited"


def cost_in_parts(usd: float, trainer_usd: float, by_capacity_usd: Mapping[str, float]) -> str:
    """A cost and what it is made of: the trainer's part always, rents where there are any."""
    rents = (f"{name} {_part(rent)}" for name, rent in by_capacity_usd.items() if abs(rent) >= _LEAST_USD)
    return f"{dollars(usd)}: {', '.join((f'trainer {_part(trainer_usd)}', *rents))}"


def _part(usd: float) -> str:
    return f"{usd:,.2f}" if _LEAST_USD <= abs(usd) < _WHOLE_FROM_USD else f"{round(usd):,}"
