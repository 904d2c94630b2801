"""What an engine is: token ids in, a stream of token ids with log-probabilities and policy version out.

Shaped for remote engines too: every call is asynchronous, several generations run at a time, weights are named by
version and folder, and nothing of a tensor library shows. An engine is one file in this folder and one line in
`rollout_worker.engines.registry`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scaler.model.weights import WeightManifest
from scaler.model.work import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One unit to generate. `prefix` was generated before, perhaps elsewhere: continue after it."""

    request_id: str
    prompt: tuple[int, ...]
    prefix: tuple[int, ...]
    max_tokens: int
    """Bound on prefix and new tokens together."""
    seed: int
    """Sampling of the token at position p is keyed by (seed, p) where the engine allows it."""
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChunk:
    """New tokens, in order. The last chunk carries the finish reason; tokens of one chunk share one version.

    A prefix that ends its generation already (end token, or token bound) gets one last chunk without tokens: its last
    holder published all of it and went before it could commit.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy an engine is."""

    running: int
    capacity: int


class EngineError(Exception):
    """The engine failed, not the unit: infrastructure."""


class UnitError(Exception):
    """This unit cannot be generated here or anywhere: its own failure."""


class Engine(Protocol):
    """See the module's docstring. A generation that is aborted ends without a finish reason."""

    keyed_sampling: bool
    """Tokens depend on (weights, prompt, seed, position) alone, so that an interruption changes none."""

    async def start(self) -> None:
        """Bring the engine up; returns when it can take weights."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """Stream one generation.

        Raises:
            EngineError: the engine broke.
            UnitError: the request can never be served.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Stop a generation; unknown ids are ignored."""
        ...

    async def load_weights(self, manifest: WeightManifest, folder: Path) -> None:
        """Take new weights at a token boundary: generations in flight continue under the new version."""
        ...

    def version(self) -> int | None:
        """The policy version in use, None before the first weights."""
        ...

    def load(self) -> EngineLoad:
        """Busy and total slots."""
        ...

    async def healthy(self) -> bool:
        """Whether it can generate."""
        ...

    async def close(self) -> None:
        """Stop all and free it."""
        ...
