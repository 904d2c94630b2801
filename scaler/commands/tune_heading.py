"""What `headrace tune` writes above what it found, and takes away again where what was tuned is tuned anew."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from scaler.simulate.bootstrap import LEAST_WINDOWS
from scaler.simulate.gain import Verdict

START, FOUND = "start", "found"
"""Which numbers are written."""

_VERDICTS = {
    Verdict.GAIN: "A gain on windows that the search did not see: these numbers are better than those it started from.",
    Verdict.CHANCE: "No gain on windows that the search did not see (the interval holds 0): those it started from are as good.",
    Verdict.LOSS: "A loss on windows that the search did not see, beyond chance: keep the numbers it started from.",
    Verdict.TOO_FEW: (
        f"Fewer than {LEAST_WINDOWS} windows that the search did not see show no gain: those it started from may be as good. "
        "Take more windows (--windows), a longer trace, or several."
    ),
    Verdict.UNCHANGED: "No gain: the search found nothing better than the numbers it started from, and these are they.",
}
"""What a search came to, in a sentence."""


def heading(answer: Mapping[str, Any]) -> str:
    """What a reader of the file wants to know, as YAML comments. A further kind of line has its beginning in `_BEGINNINGS`."""
    done = "Found" if answer["written"] == FOUND else "Searched"
    lines = (
        f"{done} by `headrace tune`: {answer['policy']} on {', '.join(answer['scenarios'])}.",
        f"Capacity: {', '.join(answer['traces']) or 'generated'}.",
        f"{answer['trials']} trials of {answer['windows']} windows a trace, {answer['seeds']} seeds.",
        f"Cost over the clairvoyant bound, mean over training windows: {_shown(answer, 'train')}.",
        f"Over windows that the search did not see: {_shown(answer, 'test')}{_interval_shown(answer)}.",
        _VERDICTS[answer["verdict"]],
        *_left_out(answer),
        *_unsaid(answer),
    )
    return "".join(f"# {line}\n" for line in lines)


def _left_out(answer: Mapping[str, Any]) -> Iterator[str]:
    """What was found and is not written; nothing where it is, or is what the search started from."""
    changed = {key: each for key, each in answer["numbers"].items() if each["start"] != each["found"]}
    if answer["written"] == START and changed:
        yield "The numbers that it started from are written. Found, and left out:"
        for key, each in changed.items():
            yield f"  {key}: {value_text(each['found'])} (started from {value_text(each['start'])})"


def value_text(value: Any) -> str:
    """A value as the YAML has it."""
    return json.dumps(value) if isinstance(value, bool) else f"{value}"


def _unsaid(answer: Mapping[str, Any]) -> Iterator[str]:
    """A run would guess what the simulator knew."""
    if costs := answer["unsaid_trainer_usd_per_h"]:
        amounts = " and ".join(f"{usd:.2f}" for usd in costs)
        yield f"The simulated trainer costs {amounts} USD/h; name your trainers' cost as trainerUsdPerH, or a run guesses it."


def _shown(answer: Mapping[str, Any], split: str) -> str:
    before, after = answer[f"{split}_ratio_start"], answer[f"{split}_ratio_tuned"]
    return f"{before:.4f} before, {after:.4f} after, gain {answer[f'{split}_gain']:+.4f}"


def _interval_shown(answer: Mapping[str, Any]) -> str:
    low, high = answer["test_gain_low"], answer["test_gain_high"]
    return "" if low is None else f" (95 % interval {low:+.4f} to {high:+.4f})"


_FIRST = r"(?:Found|Searched) by `headrace tune`: "
_BEGINNINGS = (
    _FIRST,
    "Capacity: ",
    r"\d+ trials of ",
    "Cost over the clairvoyant bound, ",
    "Over windows that the search did not see: ",
    *(re.escape(sentence) for sentence in _VERDICTS.values()),
    r"The numbers that it started from are written\. Found, and left out:",
    r"  (?:policy|placement)\.\w+: .* \(started from ",
    r"The simulated trainer costs .* name your trainers' cost as trainerUsdPerH",
)
_BEGINS = re.compile(f"# {_FIRST}")
_OURS = re.compile(f"# (?:{'|'.join(_BEGINNINGS)})")


def without_heading(text: str) -> str:
    """The text without the headings of earlier searches at its top, nor the empty line below each; others' comments stay."""
    while _BEGINS.match(text):
        lines = text.splitlines(keepends=True)
        comments = list(takewhile(lambda line: line.startswith("#"), lines))
        others = [line for line in comments if not _OURS.match(line)]
        below = lines[len(comments) :]
        ends = below and not below[0].strip() and not others
        text = "".join((*others, *(below[1:] if ends else below)))
    return text
