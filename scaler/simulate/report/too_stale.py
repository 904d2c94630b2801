"""What a person should know where many samples are dropped as too stale: n* counts every sample as used, so it is too low.

Policy: said from `MANY` on; a few are dropped in any run with long units.
"""

from scaler.simulate.report.amounts import number, percent
from scaler.simulate.result import Summary

MANY = 0.03
"""Share of the samples that were trained on or dropped."""


def say_too_stale(summary: Summary, balance_replicas: float) -> str | None:
    """What share is dropped and what helps, as a sentence; None where it is not many. `balance_replicas` is n*."""
    finished = summary.samples_trained + summary.samples_dropped
    share = summary.samples_dropped / max(1, finished)
    if share <= MANY:
        return None
    return (
        f"With {summary.policy}, {percent(share)} of the samples were too stale to train on, so that the n* of "
        f"{number(balance_replicas)}, for which every sample is used, does not hold: raise job.maxStaleness, shorten the "
        "units (generation.lengths), or hold fewer samples in the buffer (the policy's depth)."
    )
