"""What the engines of this world generate: tokens keyed by (unit seed, position), so that a hand-over changes none."""

from functools import lru_cache

from scaler.model.work import WorkUnit

_VOCABULARY = 97


def token_at(seed: int, position: int) -> int:
    """The token at a position."""
    return (seed * 7919 + position * 104729 + (seed >> 7) * (position + 3)) % _VOCABULARY


@lru_cache(maxsize=4096)
def expected_tokens(seed: int, count: int) -> tuple[int, ...]:
    """The first `count` tokens of a unit."""
    return tuple(token_at(seed, position) for position in range(count))


def full_length(unit: WorkUnit) -> int:
    """Tokens until the unit ends by itself: a long tail, and now and then its bound."""
    share = (token_at(unit.seed, 1_000_003) + 1) / _VOCABULARY
    return max(1, min(unit.max_tokens, round(unit.max_tokens * share**2 * 1.2)))
