"""A source that is asked now and then: what is believed after it fails, and for how long."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scaler.aws.contract import AwsError, AwsFault
from scaler.kube.contract import Denied, KubeUnreachable, TooMany
from scaler.observe.kept import Kept, ask_each
from tests.builders.clock import FakeClock

EVERY_S, KEEP_S = 60.0, 300.0


class Source:
    """Counts its questions, and answers what the test says."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: str | Exception = "something"

    async def read(self) -> str:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_kept(clock: FakeClock) -> Kept[str]:
    return Kept("", clock, every_s=EVERY_S, keep_s=KEEP_S)


async def test_it_is_asked_no_more_often_than_it_may() -> None:
    clock, source = FakeClock(), Source()
    kept = a_kept(clock)
    for _ in range(12):
        await kept.ask(source.read)
        clock.pass_time(10.0)
    assert source.asked == 2
    assert (kept.value, kept.unread) == ("something", None)


async def test_another_question_is_asked_at_once_and_the_old_answer_is_none() -> None:
    clock, source = FakeClock(), Source()
    kept = a_kept(clock)
    await kept.ask(source.read, "node-0")
    source.answer = TooMany("slow down", status=429)
    await kept.ask(source.read, "node-1")
    assert source.asked == 2
    assert kept.value == ""
    assert kept.unread == "slow down"


async def test_an_answer_is_believed_for_a_while_after_its_source_went_away() -> None:
    clock, source = FakeClock(), Source()
    kept = a_kept(clock)
    await kept.ask(source.read)
    source.answer = KubeUnreachable("no answer in time")
    while clock.monotonic_s() <= KEEP_S:
        clock.pass_time(EVERY_S)
        await kept.ask(source.read)
        assert kept.value == "something"
    clock.pass_time(EVERY_S + 1.0)
    assert kept.value == ""
    assert kept.unread is not None
    assert "no answer in time" in kept.unread


@pytest.mark.parametrize(
    "refusal",
    [
        Denied("forbidden", status=403),
        AwsError("UnauthorizedOperation", fault=AwsFault.AUTHORISATION),
    ],
    ids=["by RBAC", "by IAM"],
)
async def test_a_refusal_is_unread_at_once_and_the_next_answer_mends_it(refusal: Exception) -> None:
    clock, source = FakeClock(), Source()
    kept = a_kept(clock)
    seen = []
    for answer in ("first", refusal, "again"):
        source.answer = answer
        await kept.ask(source.read)
        seen.append((kept.value, kept.unread))
        clock.pass_time(EVERY_S)
    assert seen == [("first", None), ("", str(refusal)), ("again", None)]


async def test_bug_099_a_source_that_hangs_is_given_up() -> None:
    """Karpenter #9318, #9320: a call without a time-out hangs for ever."""

    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    kept = Kept("", FakeClock(), every_s=EVERY_S, time_out_s=0.01)
    await kept.ask(hang)
    assert kept.unread == "TimeoutError"


async def test_a_broken_reader_is_a_source_that_failed() -> None:
    source = Source()
    source.answer = KeyError("InstanceId")
    kept = a_kept(FakeClock())
    await kept.ask(source.read)
    assert kept.unread is not None


async def test_hurried_it_is_asked_again_however_soon() -> None:
    source, kept = Source(), a_kept(FakeClock())
    await kept.ask(source.read)
    kept.hurry()
    await kept.ask(source.read)
    assert source.asked == 2


async def test_each_is_asked_but_only_some_at_once() -> None:
    running, most = 0, 0

    async def ask(name: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return name.upper()

    assert await ask_each("abcdefgh", ask, at_once=3) == {name: name.upper() for name in "abcdefgh"}
    assert most == 3


def failing(error: Exception) -> Callable[[str], Awaitable[str]]:
    async def ask(name: str) -> str:
        raise error

    return ask


async def test_the_first_error_of_many_is_raised_as_itself() -> None:
    with pytest.raises(KubeUnreachable):
        await ask_each("abc", failing(KubeUnreachable("gone")), at_once=2)
