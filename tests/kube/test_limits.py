"""The token bucket and the small waits, on a fake clock."""

import asyncio
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.kube.credentials import REFRESH_S, Credentials, FromPod, authorization
from scaler.kube.limits import TokenBucket
from scaler.kube.waiting import within
from tests.builders.clock import FakeClock


async def taken_at(clock: FakeClock, bucket: TokenBucket, count: int) -> list[tuple[int, float]]:
    """Who got a token when, of so many who asked in order."""
    got: list[tuple[int, float]] = []

    async def ask(who: int) -> None:
        await bucket.take()
        got.append((who, clock.monotonic_s()))

    tasks = [asyncio.ensure_future(ask(who)) for who in range(count)]
    await clock.advance(1000.0)
    await asyncio.gather(*tasks)
    return got


async def test_a_burst_goes_at_once_and_the_rest_at_the_rate_in_the_order_of_asking() -> None:
    clock = FakeClock()
    got = await taken_at(clock, TokenBucket(clock, per_s=10.0, burst=5), 8)
    assert [who for who, _ in got] == list(range(8))
    assert [at_s for _, at_s in got] == pytest.approx([0.0] * 5 + [0.1, 0.2, 0.3])


async def test_rest_earns_a_burst_and_no_more() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, per_s=10.0, burst=5)
    await taken_at(clock, bucket, 5)
    began_s = clock.monotonic_s()
    got = await taken_at(clock, bucket, 6)
    assert [at_s - began_s for _, at_s in got] == pytest.approx([0.0] * 5 + [0.1])


@given(st.lists(st.floats(0.0, 3.0), max_size=40), st.integers(1, 8))
def test_in_no_span_of_time_are_there_more_than_burst_and_rate_allow(pauses_s: list[float], burst: int) -> None:
    async def run() -> None:
        clock = FakeClock()
        bucket = TokenBucket(clock, per_s=4.0, burst=burst)
        times_s = []

        async def ask() -> None:
            await bucket.take()
            times_s.append(clock.monotonic_s())

        tasks = []
        for pause_s in pauses_s:
            await clock.advance(pause_s / 4)
            tasks.append(asyncio.ensure_future(ask()))
            await asyncio.sleep(0)
        await clock.advance(100.0)
        await asyncio.gather(*tasks)
        for i, first_s in enumerate(times_s):
            for j, last_s in enumerate(times_s[i:], start=1):
                assert j <= burst + math.floor((last_s - first_s) * 4.0 + 1e-6)

    asyncio.run(run())


async def test_a_call_that_takes_too_long_is_given_up_and_ended() -> None:
    clock = FakeClock()
    ended = asyncio.Event()

    async def call() -> None:
        try:
            await clock.sleep(100.0)
        finally:
            ended.set()

    waiting = asyncio.ensure_future(within(clock, 2.0, call()))
    await clock.advance(2.0)
    with pytest.raises(TimeoutError):
        await waiting
    assert ended.is_set()


async def test_a_call_that_fails_in_time_fails_as_it_does() -> None:
    async def call() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        await within(FakeClock(), 2.0, call())


async def test_who_is_cancelled_while_waiting_ends_its_call() -> None:
    clock = FakeClock()
    ended = asyncio.Event()

    async def call() -> None:
        try:
            await clock.sleep(100.0)
        finally:
            ended.set()

    waiting = asyncio.ensure_future(within(clock, 50.0, call()))
    await clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_bug_107_a_pods_token_is_read_again_every_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path
    for name, text in (("token", "first"), ("ca.crt", "x")):
        (folder / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    clock = FakeClock()
    credentials = Credentials(FromPod(str(folder / "token"), str(folder / "ca.crt")), clock)
    first = await credentials.fresh()
    assert first.host == "https://[fd00::1]:443"
    (folder / "token").write_text("second\n")
    assert authorization(await credentials.fresh()) == {"Authorization": "bearer first"}
    clock.pass_time(REFRESH_S)
    assert authorization(await credentials.fresh()) == {"Authorization": "bearer second"}
