"""Instance metadata over a real socket: tokens, refusals, time-outs, and whose clock it is."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from scaler.nodeagent.imds import TOKEN_PATH, TOKEN_TTL_S, Imds, MetadataAway
from tests.builders.clock import FakeClock
from tests.builders.imds import INSTANCE, SPOT, FakeImds, served, session

ID = "/latest/meta-data/instance-id"
NOW_S = 1_700_000_000.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S)


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[FakeImds]:
    async with served(clock) as server:
        yield server


@pytest.fixture
async def imds(server: FakeImds, clock: FakeClock) -> AsyncIterator[Imds]:
    async with session() as opened:
        yield Imds(opened, server.url, clock=clock)


async def quick(server: FakeImds, clock: FakeClock, opened: aiohttp.ClientSession) -> Imds:
    return Imds(opened, server.url, clock=clock, time_out_s=0.05)


async def test_one_token_serves_many_reads_and_404_is_nothing_now(server: FakeImds, imds: Imds) -> None:
    assert await imds.get(ID) == INSTANCE
    assert await imds.get(SPOT) is None
    assert server.seen[f"PUT {TOKEN_PATH}"] == 1


async def test_bug_024_a_token_is_renewed_before_it_runs_out(server: FakeImds, imds: Imds, clock: FakeClock) -> None:
    for _ in range(20):
        assert await imds.get(ID) == INSTANCE
        clock.pass_time(TOKEN_TTL_S * 0.95)
    assert server.seen[f"PUT {TOKEN_PATH}"] == 20
    assert server.seen[f"GET {ID}"] == 20, "no read was refused"


async def test_bug_024_a_token_that_is_refused_is_dropped_and_fetched_anew(server: FakeImds, imds: Imds) -> None:
    await imds.get(ID)
    server.tokens.clear()
    assert await imds.get(ID) == INSTANCE
    assert server.seen[f"PUT {TOKEN_PATH}"] == 2


async def test_bug_024_a_server_that_refuses_every_token_is_away_and_not_asked_for_ever(
    server: FakeImds, imds: Imds
) -> None:
    server.refusals[ID] = [401] * 10
    with pytest.raises(MetadataAway, match="HTTP 401"):
        await imds.get(ID)
    assert server.seen[f"GET {ID}"] == 2


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
async def test_bug_026_a_refusal_is_no_answer(server: FakeImds, imds: Imds, status: int) -> None:
    server.refusals[SPOT] = [status]
    with pytest.raises(MetadataAway, match=f"HTTP {status}"):
        await imds.get(SPOT)
    assert await imds.get(SPOT) is None


@pytest.mark.parametrize(
    ("status", "why"), [(403, "switched off"), (503, "HTTP 503"), (400, "HTTP 400"), (404, "HTTP 404")]
)
async def test_a_token_that_is_refused_says_why(server: FakeImds, imds: Imds, status: int, why: str) -> None:
    server.refusals[TOKEN_PATH] = [status]
    with pytest.raises(MetadataAway, match=why):
        await imds.get(ID)


async def test_bug_025_a_token_that_never_comes_names_the_hop_limit(server: FakeImds, clock: FakeClock) -> None:
    server.hung.add(TOKEN_PATH)
    async with session() as opened:
        with pytest.raises(MetadataAway, match=r"hop limit.*HttpPutResponseHopLimit to 2"):
            await (await quick(server, clock, opened)).get(ID)


async def test_a_read_that_never_comes_is_no_answer(server: FakeImds, clock: FakeClock) -> None:
    server.hung.add(ID)
    async with session() as opened:
        with pytest.raises(MetadataAway, match="no answer"):
            await (await quick(server, clock, opened)).get(ID)


async def test_bug_028_nobody_there_is_no_answer(server: FakeImds, clock: FakeClock) -> None:
    async with session() as opened:
        with pytest.raises(MetadataAway):
            await Imds(opened, "http://127.0.0.1:1", clock=clock).get(ID)


@pytest.mark.parametrize("ahead_s", [-300.0, -5.0, 5.0, 86_400.0])
async def test_the_clouds_clock_is_read_from_its_date(server: FakeImds, imds: Imds, ahead_s: float) -> None:
    server.ahead_s = ahead_s
    await imds.get(ID)
    assert imds.ahead_s == pytest.approx(ahead_s, abs=1.0)


@pytest.mark.parametrize("ahead_s", [-0.9, 0.0, 0.9])
async def test_less_than_a_date_can_say_is_no_difference(server: FakeImds, imds: Imds, ahead_s: float) -> None:
    server.ahead_s = ahead_s
    await imds.get(ID)
    assert imds.ahead_s == 0.0


@pytest.mark.parametrize("date", ["", "soon", "99"])
async def test_a_date_that_is_none_moves_nothing(server: FakeImds, imds: Imds, date: str) -> None:
    server.ahead_s = 100.0
    await imds.get(ID)
    server.date = date
    await imds.get(ID)
    assert imds.ahead_s == pytest.approx(100.0, abs=1.0)
