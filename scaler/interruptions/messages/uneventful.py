"""Kinds that are well known and ask for nothing: results of scaling, capacity that came, reclamations that are over.

What a group launched or failed to launch is read from its activities, which miss nothing.
"""

from scaler.interruptions.messages.event import Event
from scaler.interruptions.messages.parsed import Ignored, IgnoredReason


def scaling_result(event: Event) -> Ignored:
    """A launch or a termination of a group's ended, well or not."""
    del event
    return Ignored(reason=IgnoredReason.SCALING_RESULT)


def delivered(event: Event) -> Ignored:
    """Capacity came, or was given back."""
    del event
    return Ignored(reason=IgnoredReason.DELIVERED)
