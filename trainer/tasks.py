"""Tasks: prompts from a seed and an index, rewards by program. A new task is one class and one line in `TASKS`.

Invariants: a prompt depends on (seed, index) alone, so a restarted trainer puts the same units; a reward is in 0..1
and depends on prompt, payload and tokens alone.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trainer.moe import MoEConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one group is asked."""

    tokens: tuple[int, ...]
    max_tokens: int
    """Bound on the answer, its end included."""
    payload: Mapping[str, str]
    """What the reward needs; travels with the work unit."""


class Task(Protocol):
    """See the module's docstring."""

    def model(self) -> MoEConfig:
        """An architecture that fits the task."""
        ...

    def prompt(self, seed: int, index: int) -> Prompt:
        """The `index`-th prompt of the stream `seed`."""
        ...

    def reward(self, payload: Mapping[str, str], tokens: tuple[int, ...]) -> float:
        """How right an answer is, 0 to 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Say the prompt's digit as often as the prompt asks, then end.

    Vocabulary: END = 0, then the digits, then one token for each count. Counts have a tail, so that answers do too. The
    reward is the share of places that are right, in an answer as long as the longer of the wanted and the given one.
    """

    digits: int = 6
    counts: tuple[int, ...] = (3, 5, 8, 12, 18, 27, 40)
    weights: tuple[int, ...] = (16, 16, 12, 8, 6, 4, 2)

    def model(self) -> MoEConfig:
        """Sees the digit, the count and the longest answer."""
        return MoEConfig(vocab=1 + self.digits + len(self.counts), max_len=2 + _bound(max(self.counts)))

    def prompt(self, seed: int, index: int) -> Prompt:
        """A digit and a count."""
        draw = random.Random(f"repeat/{seed}/{index}")
        digit = draw.randint(1, self.digits)
        place = draw.choices(range(len(self.counts)), self.weights)[0]
        return Prompt(
            tokens=(digit, 1 + self.digits + place),
            max_tokens=_bound(self.counts[place]),
            payload={"digit": str(digit), "count": str(self.counts[place])},
        )

    def reward(self, payload: Mapping[str, str], tokens: tuple[int, ...]) -> float:
        """Right places over places."""
        digit, count = int(payload["digit"]), int(payload["count"])
        wanted = (digit,) * count + (0,)
        right = sum(given == want for given, want in zip(tokens, wanted, strict=False))
        return right / max(len(tokens), len(wanted))


def _bound(count: int) -> int:
    """Room for half as many again: an answer that does not end loses a third of its reward."""
    return count + count // 2


TASKS: dict[str, Callable[[], Task]] = {
    "repeat": Repeat,
}
