"""The rules of the ledger that are plain arithmetic, shared by the engines that decide in Python.

Pure. `audit` must not import this: a mistake here has to be seen by somebody who did not make it.
"""

from collections.abc import Sequence

from scaler.model.job import JobSettings
from scaler.model.work import Progress, ProgressDelta, Resume, VersionSpan, WorkUnit

_MOST_DIGITS = 7
"""Of a place in a group; groups are far smaller."""


def admissible(settings: JobSettings, running: int, buffered: int) -> int:
    """Units that may be leased now; see `JobSettings` for the formula. Never negative."""
    return max(0, min(settings.max_concurrent - running, settings.admitted_samples - buffered - running))


def too_stale(oldest_version: int, trainer_version: int, max_staleness: int) -> bool:
    """Whether a sample can no longer be trained on; queue time is in it, since both versions are those at consumption."""
    return trainer_version - oldest_version > max_staleness


def place_in_group(index: str) -> int:
    """The place of a unit in its group, from the end of its id; -1 where that is none."""
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= _MOST_DIGITS else -1


def backoff_s(settings: JobSettings, returns: int) -> float:
    """Wait before a unit that came back `returns` >= 1 times in a row is leased again: doubles up to the bound."""
    return min(settings.backoff_max_s, settings.backoff_initial_s * 2.0 ** min(returns - 1, 60))


def kept_tokens(resume: Resume, published: int) -> int:
    """Of `published` tokens, how many the next holder continues from.

    A turn boundary is not known to the ledger: a TURN unit's worker publishes whole turns only, so all of it is kept.
    """
    return 0 if resume is Resume.RESTART else published


def length_bucket(tokens: int) -> str:
    """The smallest power of two that is at least `tokens`, as a label: drops are reported by length."""
    return str(1 << max(0, tokens - 1).bit_length())


def merge_delta(progress: Progress, delta: ProgressDelta) -> Progress:
    """Progress with the delta appended; tokens already there are left as they are.

    Raises:
        ValueError: the delta starts beyond what is stored, or its parts differ in length.
    """
    have = len(progress.tokens)
    if delta.start > have:
        raise ValueError(f"progress ends at {have}, delta starts at {delta.start}")
    if len(delta.tokens) != len(delta.logprobs):
        raise ValueError("a delta has as many log-probabilities as tokens")
    skip = have - delta.start
    if skip >= len(delta.tokens):
        return progress
    return Progress(
        tokens=progress.tokens + delta.tokens[skip:],
        logprobs=progress.logprobs + delta.logprobs[skip:],
        spans=join_spans(progress.spans, delta.spans, have),
    )


def join_spans(kept: tuple[VersionSpan, ...], new: tuple[VersionSpan, ...], at: int) -> tuple[VersionSpan, ...]:
    """Spans of `kept` followed by the part of `new` from position `at` on; neighbours of one version become one span."""
    joined = list(kept)
    for span in new:
        start = max(span.start, at)
        if start >= span.end:
            continue
        if joined and joined[-1].version == span.version and joined[-1].end == start:
            joined[-1] = VersionSpan(joined[-1].start, span.end, span.version)
        else:
            joined.append(VersionSpan(start, span.end, span.version))
    return tuple(joined)


def group_up(units: Sequence[WorkUnit], max_group_size: int) -> dict[str, list[WorkUnit]]:
    """Units by the name of their group ("group.epoch"), in order of their index.

    Raises:
        ValueError: a group is not whole, is larger than the engine takes, or its units disagree.
    """
    groups: dict[str, list[WorkUnit]] = {}
    for unit in units:
        groups.setdefault(f"{unit.group_id}.{unit.group_epoch}", []).append(unit)
    for name, members in groups.items():
        members.sort(key=lambda unit: unit.sample_index)
        _check_group(name, members, max_group_size)
    return groups


def _check_group(name: str, members: Sequence[WorkUnit], max_group_size: int) -> None:
    size = members[0].group_size
    if not 1 <= size <= max_group_size:
        raise ValueError(f"group {name}: its size is {size}")
    if any(unit.group_size != size for unit in members):
        raise ValueError(f"group {name}: its units do not agree on its size")
    if [unit.sample_index for unit in members] != list(range(size)):
        raise ValueError(f"group {name}: all {size} units of a group come in one call, each once")
