"""The ledger's arithmetic."""

import pytest

from scaler.ledger import rules
from scaler.model.job import JobSettings
from scaler.model.work import Progress, ProgressDelta, Resume, VersionSpan

SETTINGS = JobSettings(group_size=4, batch_groups=2, max_staleness=1, max_concurrent=10)


@pytest.mark.parametrize(
    ("running", "buffered", "expected"),
    [
        pytest.param(0, 0, 10, id="nothing in flight: concurrency bounds"),
        pytest.param(4, 8, 4, id="staleness bounds: (1 + 1) * 8 - 8 - 4"),
        pytest.param(0, 16, 0, id="a full buffer admits nothing"),
        pytest.param(12, 16, 0, id="past the bound is zero, not negative"),
    ],
)
def test_admission(running: int, buffered: int, expected: int) -> None:
    assert rules.admissible(SETTINGS, running, buffered) == expected


@pytest.mark.parametrize(("returns", "expected"), [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (5000, 30.0)])
def test_backoff_doubles_up_to_its_bound(returns: int, expected: float) -> None:
    assert rules.backoff_s(SETTINGS, returns) == expected


@pytest.mark.parametrize(("tokens", "bucket"), [(0, "1"), (1, "1"), (2, "2"), (3, "4"), (64, "64"), (65, "128")])
def test_lengths_fall_into_powers_of_two(tokens: int, bucket: str) -> None:
    assert rules.length_bucket(tokens) == bucket


def test_a_restart_keeps_no_tokens() -> None:
    assert [rules.kept_tokens(mode, 9) for mode in (Resume.TOKEN, Resume.TURN, Resume.RESTART)] == [9, 9, 0]


@pytest.mark.parametrize(("age", "stale"), [(0, False), (1, False), (2, True)])
def test_staleness_counts_versions_at_consumption(age: int, stale: bool) -> None:
    assert rules.too_stale(5, 5 + age, SETTINGS.max_staleness) is stale


def delta(start: int, *tokens: int, version: int = 1) -> ProgressDelta:
    span = VersionSpan(start, start + len(tokens), version)
    return ProgressDelta(start=start, tokens=tokens, logprobs=tuple(-float(t) for t in tokens), spans=(span,))


def test_deltas_append_and_neighbouring_spans_of_one_version_join() -> None:
    progress = rules.merge_delta(rules.merge_delta(Progress(), delta(0, 1, 2)), delta(2, 3))
    assert progress == Progress(tokens=(1, 2, 3), logprobs=(-1.0, -2.0, -3.0), spans=(VersionSpan(0, 3, 1),))


def test_a_repeated_delta_changes_nothing_and_an_overlap_adds_only_what_is_new() -> None:
    once = rules.merge_delta(Progress(), delta(0, 1, 2))
    assert rules.merge_delta(once, delta(0, 1, 2)) == once
    grown = rules.merge_delta(once, delta(1, 9, 3, version=2))
    assert grown.tokens == (1, 2, 3)
    assert grown.spans == (VersionSpan(0, 2, 1), VersionSpan(2, 3, 2))


def test_a_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="starts at 3"):
        rules.merge_delta(Progress(), delta(3, 1))
