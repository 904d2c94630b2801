"""Units, samples and groups for the trainer's tests."""

from collections.abc import Sequence

from scaler.model.work import FinishReason, GroupSamples, Sample, VersionSpan, WorkUnit


def unit(
    index: int = 0, *, group: str = "g", size: int = 2, prompt: tuple[int, ...] = (1, 2), **more: object
) -> WorkUnit:
    payload = more.get("payload", {})
    assert isinstance(payload, dict)
    return WorkUnit(
        group_id=group,
        sample_index=index,
        group_size=size,
        prompt=prompt,
        seed=index,
        max_tokens=8,
        time_bound_s=60.0,
        payload=payload,
    )


def sample(
    tokens: Sequence[int], *, logprobs: Sequence[float] | None = None, version: int = 0, reward: float | None = None
) -> Sample:
    return Sample(
        unit_id="",
        tokens=tuple(tokens),
        logprobs=tuple(logprobs or [-1.0] * len(tokens)),
        spans=(VersionSpan(0, len(tokens), version),),
        finish_reason=FinishReason.STOP,
        reward=reward,
    )


def group(name: str, samples: Sequence[Sample]) -> GroupSamples:
    return GroupSamples(
        group_id=name,
        group_epoch=0,
        units=tuple(unit(i, group=name, size=len(samples)) for i in range(len(samples))),
        samples=tuple(samples),
        attempts=(1,) * len(samples),
    )
