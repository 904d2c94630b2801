"""A unit that this worker holds: what was generated for it, what of that the ledger has, and what comes next for it."""

from dataclasses import dataclass, field
from enum import StrEnum

from rollout_worker.engines.base import GenerateRequest, TokenChunk
from scaler.ledger.contract import Beat, Commit, Release
from scaler.model.work import FinishReason, Lease, ProgressDelta, ReleaseReason, Resume, Sample, VersionSpan


class UnitPhase(StrEnum):
    """Where a held unit is; always in exactly one."""

    GENERATING = "generating"
    TO_COMMIT = "to_commit"
    TO_RELEASE = "to_release"


@dataclass(slots=True, kw_only=True)
class HeldUnit:
    """One lease and its journal. Positions count generated tokens, those of earlier holders included."""

    lease: Lease
    leased_at_s: float
    phase: UnitPhase = UnitPhase.GENERATING
    finish_reason: FinishReason | None = None
    release_reason: ReleaseReason = ReleaseReason.DRAIN
    error: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)
    published: int = 0
    """Tokens that the ledger has."""
    unpublished_since_s: float | None = None
    last_chunk_at_s: float | None = None

    @classmethod
    def of(cls, lease: Lease, at_s: float) -> "HeldUnit":
        """A unit just leased, with what earlier holders published."""
        done = lease.progress
        return cls(
            lease=lease,
            leased_at_s=at_s,
            tokens=list(done.tokens),
            logprobs=list(done.logprobs),
            spans=list(done.spans),
            published=len(done.tokens),
        )

    @property
    def request_id(self) -> str:
        """Names unit and fence: two holds of one unit are two generations."""
        fence = self.lease.fencing_token
        return f"{self.lease.unit.unit_id}@{fence.store_epoch}.{fence.counter}"

    @property
    def unpublished(self) -> int:
        """Tokens that the ledger has not: what a kill would lose."""
        return len(self.tokens) - self.published

    @property
    def tokens_left(self) -> int:
        """Upper bound of what is still to be generated."""
        return max(0, self.lease.unit.max_tokens - len(self.tokens))

    def request(self) -> GenerateRequest:
        """What the engine is asked for."""
        unit = self.lease.unit
        return GenerateRequest(
            request_id=self.request_id,
            prompt=unit.prompt,
            prefix=tuple(self.tokens),
            max_tokens=unit.max_tokens,
            seed=unit.seed,
        )

    def append(self, chunk: TokenChunk, at_s: float) -> None:
        """Write new tokens down, never more than the unit's bound."""
        count = min(len(chunk.tokens), self.tokens_left)
        start = len(self.tokens)
        self.tokens.extend(chunk.tokens[:count])
        self.logprobs.extend(chunk.logprobs[:count])
        if count:
            self._extend_spans(start, start + count, chunk.version)
            self.last_chunk_at_s = at_s
            if self.unpublished_since_s is None:
                self.unpublished_since_s = at_s

    def _extend_spans(self, start: int, end: int, version: int) -> None:
        if self.spans and self.spans[-1].version == version:
            start = self.spans.pop().start
        self.spans.append(VersionSpan(start, end, version))

    def acknowledge(self, published: int, at_s: float) -> None:
        """The ledger has the first `published` tokens."""
        self.published = max(self.published, published)
        self.unpublished_since_s = at_s if self.unpublished else None

    @property
    def publishable(self) -> int:
        """Unpublished tokens that another holder could continue from.

        None of a `RESTART` unit, and none of a `TURN` unit: an engine generates one turn, and only whole turns count.
        """
        return self.unpublished if self.lease.unit.resume is Resume.TOKEN else 0

    def delta(self) -> ProgressDelta | None:
        """What the ledger has not yet and could hand on, or None."""
        start = self.published
        if not self.publishable:
            return None
        spans = (VersionSpan(max(start, s.start), s.end, s.version) for s in self.spans if s.end > start)
        return ProgressDelta(
            start=start, tokens=tuple(self.tokens[start:]), logprobs=tuple(self.logprobs[start:]), spans=tuple(spans)
        )

    def beat(self, *, with_progress: bool) -> Beat:
        """Keeps the lease."""
        return Beat(
            unit_id=self.lease.unit.unit_id,
            fencing_token=self.lease.fencing_token,
            progress=self.delta() if with_progress else None,
        )

    def commit(self) -> Commit:
        """Ends the lease with its sample."""
        if self.finish_reason is None:
            raise AssertionError(f"{self.request_id} is not finished")
        sample = Sample(
            unit_id=self.lease.unit.unit_id,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            spans=tuple(self.spans),
            finish_reason=self.finish_reason,
            generation_s=None if self.last_chunk_at_s is None else self.last_chunk_at_s - self.leased_at_s,
        )
        return Commit(unit_id=sample.unit_id, fencing_token=self.lease.fencing_token, sample=sample)

    def release(self, *, with_progress: bool) -> Release:
        """Ends the lease without a sample."""
        return Release(
            unit_id=self.lease.unit.unit_id,
            fencing_token=self.lease.fencing_token,
            reason=self.release_reason,
            progress=self.delta() if with_progress else None,
            error=self.error,
        )
