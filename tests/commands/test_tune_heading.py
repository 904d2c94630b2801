"""The heading of a tuned file: the newest one alone, and nobody else's words are lost with an older one."""

from itertools import product
from typing import Any

import pytest

from scaler.commands.tune_heading import FOUND, START, heading, without_heading
from scaler.simulate.gain import Verdict

FLEET = "# ours\n# Capacity: what we can get\n\nkind: RolloutFleet\n"


def an_answer(verdict: Verdict, written: str, **facts: Any) -> dict[str, Any]:
    ratios = {f"{split}_ratio_{who}": 1.2 for split in ("train", "test") for who in ("start", "tuned")}
    interval = None if verdict is Verdict.TOO_FEW else 0.01
    return {
        "policy": "buffer_band",
        "scenarios": ["small", "case-a"],
        "traces": [],
        "windows": 5,
        "seeds": 1,
        "trials": 40,
        **ratios,
        "train_gain": 0.01,
        "test_gain": 0.02,
        "test_gain_low": interval,
        "test_gain_high": interval,
        "verdict": verdict,
        "written": written,
        "numbers": {
            "policy.lowMark": {"start": "10%", "found": "20%"},
            "placement.gang": {"start": True, "found": False},
        },
        "unsaid_trainer_usd_per_h": [63.3, 20.0],
        **facts,
    }


EVERY = [an_answer(verdict, written) for verdict, written in product(Verdict, (FOUND, START))]


@pytest.mark.parametrize("answer", EVERY, ids=lambda answer: f"{answer['verdict']}-{answer['written']}")
def test_every_heading_is_taken_away_whole_and_nothing_below_it(answer: dict[str, Any]) -> None:
    assert without_heading(heading(answer) + "\n" + FLEET) == FLEET


def test_all_that_earlier_searches_stacked_are_taken_away() -> None:
    assert without_heading("".join(heading(answer) + "\n" for answer in EVERY) + FLEET) == FLEET


def test_what_somebody_wrote_into_a_heading_stays() -> None:
    first, *others = heading(EVERY[0]).splitlines(keepends=True)
    assert without_heading("".join([first, "# Asked for by Ann.\n", *others, "\n"]) + FLEET) == (
        "# Asked for by Ann.\n\n" + FLEET
    )


def test_a_fleet_that_was_never_tuned_keeps_its_comments() -> None:
    for text in (FLEET, "# Capacity: all that there is\n" + FLEET, "\n" + heading(EVERY[0]), ""):
        assert without_heading(text) == text
