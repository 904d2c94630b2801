"""What is kept of a kind of objects, and since when it is known to be whole; on a fake API server and a fake clock."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.kube.contract import (
    CONFIG_MAPS,
    Denied,
    Gone,
    Json,
    KubeUnreachable,
    Listing,
    NotFound,
    Resource,
    TooMany,
)
from scaler.kube.reflector import Reflector
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import PAGE, FakeKube

DOWN = KubeUnreachable("connection refused")


def value_of(body: Json) -> str | None:
    """What a test keeps of a config map; none of those that say "no"."""
    value = (body.get("data") or {}).get("v", "")
    return None if value == "no" else f"{body['metadata']['name']}={value}"


class Bed:
    """A server with config maps, and a reflector of them."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.api = FakeKube(self.clock)
        self.watcher = self.api.client()
        """The reflector's: what is ordered to fail here spares the test's own calls."""
        self.moves: list[tuple[str | None, str | None]] = []
        self.reflector = Reflector[str](
            self.watcher,
            CONFIG_MAPS,
            clock=self.clock,
            keep=value_of,
            moved=lambda uid, old, new: self.moves.append((old, new)),
            rng=random.Random(1),
            **options,
        )

    async def put(self, name: str, value: str, namespace: str = "ns") -> None:
        body = {"metadata": {"name": name}, "data": {"v": value}}
        try:
            await self.api.patch(CONFIG_MAPS, name, body, namespace=namespace)
        except NotFound:
            await self.api.create(CONFIG_MAPS, body, namespace=namespace)

    @property
    def kept(self) -> list[str]:
        return sorted(self.reflector.items.values())

    @property
    def truth(self) -> list[str]:
        return sorted(filter(None, (value_of(body) for body in self.api.store.every(CONFIG_MAPS, None))))

    def age_s(self) -> float:
        assert self.reflector.current_at_s is not None
        return self.clock.now_s() - self.reflector.current_at_s

    def unknown(self) -> bool:
        return self.reflector.current_at_s is None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.reflector.run())
        await self.clock.settle()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_is_there_and_what_comes_is_kept_and_what_goes_is_not() -> None:
    bed = Bed()
    await bed.put("a", "1")
    await bed.put("b", "no")
    async with bed.running():
        assert bed.kept == ["a=1"]
        await bed.put("c", "1")
        await bed.put("a", "2")
        await bed.clock.settle()
        assert bed.kept == ["a=2", "c=1"]
        await bed.put("c", "no")
        await bed.put("b", "1")
        await bed.api.delete(CONFIG_MAPS, "a", namespace="ns")
        await bed.clock.settle()
        assert bed.kept == ["b=1"]
    assert bed.moves == [
        (None, "a=1"),
        (None, "c=1"),
        ("a=1", "a=2"),
        ("c=1", None),
        (None, "b=1"),
        ("a=2", None),
    ]


async def test_before_the_first_list_nothing_is_known() -> None:
    bed = Bed()
    bed.watcher.fail_next("list", "configmaps", DOWN, times=3)
    async with bed.running():
        assert bed.unknown()
        assert "connection refused" in bed.reflector.trouble
        await bed.clock.advance(5.0)
        assert bed.reflector.current_at_s is not None
        assert bed.reflector.trouble == ""


async def test_bug_090_an_object_made_anew_under_its_name_is_another() -> None:
    """KEDA#8124."""
    bed = Bed()
    await bed.put("a", "1")
    async with bed.running():
        (uid,) = bed.reflector.items
        await bed.api.delete(CONFIG_MAPS, "a", namespace="ns")
        await bed.put("a", "1")
        await bed.clock.settle()
        assert bed.kept == ["a=1"]
        assert uid not in bed.reflector.items


async def test_a_watch_that_ends_goes_on_from_the_last_version_without_a_new_list() -> None:
    bed = Bed()
    async with bed.running():
        for i in range(5):
            await bed.put(f"m{i}", "1")
            bed.api.end_watches(DOWN if i % 2 else None)
            await bed.clock.advance(5.0)
        assert len(bed.kept) == 5
        assert bed.reflector.lists == 1


async def test_what_was_missed_while_a_watch_was_broken_is_caught_up_with() -> None:
    bed = Bed()
    await bed.put("a", "1")
    async with bed.running():
        bed.watcher.fail_next("watch", "configmaps", DOWN, times=3)
        bed.api.end_watches(DOWN)
        await bed.clock.settle()
        await bed.api.delete(CONFIG_MAPS, "a", namespace="ns")
        await bed.put("b", "1")
        await bed.clock.advance(10.0)
        assert bed.kept == ["b=1"]
        assert bed.reflector.lists == 1


async def test_bug_105_a_version_that_is_too_old_is_listed_anew() -> None:
    """kubernetes-client/python#728."""
    bed = Bed()
    await bed.put("a", "1")
    async with bed.running():
        bed.watcher.fail_next("watch", "configmaps", DOWN)
        bed.api.end_watches(DOWN)
        await bed.clock.settle()
        await bed.api.delete(CONFIG_MAPS, "a", namespace="ns")
        await bed.put("b", "1")
        bed.api.expire_watches()
        await bed.clock.advance(5.0)
        assert bed.kept == ["b=1"]
        assert bed.reflector.lists == 2


async def test_a_server_that_says_gone_again_and_again_is_not_stormed_with_lists() -> None:
    bed = Bed()
    bed.watcher.fail_next("watch", "configmaps", Gone("too old", status=410), times=1000)
    async with bed.running():
        await bed.clock.advance(60.0)
    assert bed.reflector.lists <= 15


@pytest.mark.parametrize("error", [DOWN, None], ids=["by an error", "in good order"])
async def test_bug_092_watches_that_end_at_once_are_begun_with_back_off(error: Exception | None) -> None:
    """KEDA#7756."""
    bed = Bed()
    async with bed.running():
        for _ in range(240):
            bed.api.end_watches(error)
            await bed.clock.advance(0.25)
    assert bed.watcher.counts()["watch", "configmaps"] <= 20


@pytest.mark.parametrize(
    "error", [DOWN, Denied("no", status=403), TooMany("slow", status=429), NotFound("?", status=404)]
)
async def test_errors_are_waited_out_however_long_they_last(error: Exception) -> None:
    bed = Bed()
    await bed.put("a", "1")
    bed.watcher.fail_next("*", "configmaps", error, times=10)
    async with bed.running():
        await bed.clock.advance(120.0)
        assert bed.kept == ["a=1"]
        assert bed.age_s() < 30.0


async def test_an_idle_kind_stays_current_without_events_or_bookmarks() -> None:
    bed = Bed()
    await bed.put("a", "1")
    async with bed.running():
        for _ in range(100):
            await bed.clock.advance(3.0)
            assert bed.age_s() <= 21.0
        assert bed.reflector.lists == 1


async def test_bug_105_a_silent_watch_is_given_up_and_begun_again() -> None:
    bed = Bed()
    await bed.put("a", "1")
    bed.watcher.hang("watch", "configmaps", times=1)
    async with bed.running():
        await bed.put("b", "1")
        await bed.clock.advance(35.0)
        assert bed.kept == ["a=1", "b=1"]


async def test_what_hangs_is_not_taken_for_quiet() -> None:
    """A watch that ends in time, of a server that answers nothing else: etcd hangs behind it."""
    bed = Bed()
    async with bed.running():
        known_at_s = bed.reflector.current_at_s
        bed.watcher.hang("list", "configmaps")
        await bed.clock.advance(100.0)
        assert bed.reflector.current_at_s == known_at_s
        assert bed.reflector.trouble
        bed.watcher.heal()
        await bed.clock.advance(60.0)
        assert bed.age_s() < 30.0


async def test_a_watch_that_is_broken_off_in_good_order_proves_nothing() -> None:
    """So ends an API server its watches when it has lost etcd."""
    bed = Bed()
    async with bed.running():
        known_at_s = bed.reflector.current_at_s
        for _ in range(20):
            await bed.clock.advance(5.0)
            bed.api.end_watches()
        assert bed.reflector.current_at_s == known_at_s


async def test_events_and_bookmarks_move_what_is_known() -> None:
    bed = Bed()
    async with bed.running():
        await bed.clock.advance(7.0)
        bed.api.bookmark()
        await bed.clock.settle()
        assert bed.age_s() == 0.0
        await bed.clock.advance(5.0)
        assert bed.age_s() == 5.0
        await bed.put("a", "1")
        await bed.clock.settle()
        assert bed.age_s() == 0.0


async def test_all_is_listed_anew_now_and_then_so_that_what_was_missed_does_not_stay_missed() -> None:
    bed = Bed(relist_s=100.0)
    await bed.put("a", "1")
    async with bed.running():
        bed.reflector._items.clear()
        await bed.clock.advance(200.0)
        assert bed.kept == ["a=1"]


async def test_a_list_that_is_due_and_fails_does_not_stop_the_watching() -> None:
    bed = Bed(relist_s=50.0)
    async with bed.running():
        bed.watcher.fail_next("list", "configmaps", DOWN, times=1000)
        await bed.clock.advance(100.0)
        await bed.put("a", "1")
        await bed.clock.advance(15.0)
        assert bed.kept == ["a=1"]


class _Torn(FakeKube):
    """Its lists break after the first page."""

    torn = 0

    async def pages(self, resource: Resource, **where: Any) -> AsyncIterator[Listing]:
        async for page in super().pages(resource, **where):
            yield page
            if self.torn:
                self.torn -= 1
                raise Gone("expired between pages", status=410)


async def test_nothing_is_concluded_from_a_list_that_broke_between_pages() -> None:
    bed = Bed()
    api = _Torn(bed.clock, store=bed.api.store)
    bed.reflector._api = api
    for i in range(PAGE + 10):
        await bed.put(f"m{i}", "1")
    async with bed.running():
        assert len(bed.kept) == PAGE + 10
        bed.moves.clear()
        api.torn = 3
        bed.api.expire_watches()
        await bed.clock.advance(0.35)
        assert api.torn < 3
        assert len(bed.kept) == PAGE + 10
        await bed.clock.advance(10.0)
        assert api.torn == 0
        assert all(new is not None for _, new in bed.moves)


@pytest.mark.parametrize(
    "body", [{}, {"metadata": None}, {"metadata": {"uid": 5}}, {"metadata": {"uid": ""}}, {"metadata": []}]
)
def test_an_object_without_a_uid_is_left_out_and_counted(body: Json) -> None:
    bed = Bed()
    assert bed.reflector._cut(body) == ("", None)
    assert bed.reflector.odd == 1


async def test_every_task_is_told_of_what_changed_since_it_was_told_last() -> None:
    bed = Bed()
    told: dict[str, list[list[str]]] = {"quick": [], "slow": []}

    async def follow(name: str, rest_s: float) -> None:
        while True:
            await bed.reflector.changed()
            told[name].append(bed.kept)
            await bed.clock.sleep(rest_s)

    async with bed.running():
        tasks = [asyncio.ensure_future(follow("quick", 0.0)), asyncio.ensure_future(follow("slow", 5.0))]
        await bed.clock.settle()
        for i in range(3):
            await bed.put(f"m{i}", "1")
            await bed.clock.advance(1.0)
        await bed.clock.advance(20.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    everything = ["m0=1", "m1=1", "m2=1"]
    assert told["quick"][-1] == told["slow"][-1] == everything
    assert told["quick"][-3:] == [everything[:1], everything[:2], everything]
    assert len(told["slow"]) <= 3


async def test_a_task_that_is_new_each_time_does_not_spin() -> None:
    bed = Bed()
    returns = 0
    async with bed.running():
        for _ in range(10):
            waiting = asyncio.ensure_future(bed.reflector.changed())
            await bed.clock.settle()
            returns += waiting.done()
            waiting.cancel()
    assert returns == 1


Deed = tuple[str, int, float]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "put", "put", "hide", "delete", "end", "break", "expire", "fail", "hang", "heal", "mark"]
        ),
        st.integers(0, 4),
        st.floats(0.0, 25.0),
    ),
    max_size=40,
)


async def do(bed: Bed, what: str, which: int, amount: float) -> None:
    name = f"m{which}"
    if what in ("put", "hide"):
        await bed.put(name, "no" if what == "hide" else str(amount))
    elif what == "delete":
        await asyncio.gather(bed.api.delete(CONFIG_MAPS, name, namespace="ns"), return_exceptions=True)
    elif what in ("end", "break"):
        bed.api.end_watches(DOWN if what == "break" else None)
    elif what in ("fail", "hang"):
        verb = "watch" if which % 2 else "list"
        if what == "fail":
            bed.watcher.fail_next(verb, "configmaps", Gone("x", status=410) if which > 2 else DOWN, times=1 + which)
        else:
            bed.watcher.hang(verb, "configmaps", times=1)
    else:
        {"expire": bed.api.expire_watches, "heal": bed.watcher.heal, "mark": bed.api.bookmark}[what]()


async def live(deeds: list[Deed]) -> None:
    bed = Bed()
    async with bed.running():
        for what, which, amount in deeds:
            await do(bed, what, which, amount)
            await bed.clock.advance(amount)
            if bed.reflector.current_at_s is not None and bed.age_s() == 0.0 and not bed.reflector.trouble:
                assert bed.kept == bed.truth
        bed.watcher.heal()
        await bed.clock.advance(60.0)
        assert bed.kept == bed.truth
        assert bed.age_s() < 30.0


@settings(max_examples=60)
@given(DEEDS)
def test_whatever_the_server_does_what_is_kept_becomes_what_is_there(deeds: list[Deed]) -> None:
    asyncio.run(live(deeds))
