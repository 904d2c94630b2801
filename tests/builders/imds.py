"""A fake of instance metadata over HTTP: version 2 only, sessions that run out, failures on order, its own Date."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import count

import aiohttp
from aiohttp import web

from scaler.model.clock import Clock
from scaler.nodeagent.imds import TOKEN_PATH

INSTANCE = "i-0b662ef9931388ba0"
SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
LIFECYCLE = "/latest/meta-data/autoscaling/target-lifecycle-state"


@dataclass
class FakeImds:
    """See the module's docstring."""

    clock: Clock
    ahead_s: float = 0.0
    documents: dict[str, str] = field(
        default_factory=lambda: {
            "/latest/meta-data/instance-id": INSTANCE,
            "/latest/meta-data/instance-type": "g5.xlarge",
            "/latest/meta-data/placement/availability-zone": "us-east-1b",
            "/latest/meta-data/instance-life-cycle": "spot",
            SCHEDULED: "[]",
            LIFECYCLE: "InService",
        }
    )
    refusals: dict[str, list[int]] = field(default_factory=dict)
    """Path -> statuses that its next requests get."""
    hung: set[str] = field(default_factory=set)
    """Paths that do not answer."""
    tokens: dict[str, float] = field(default_factory=dict)
    """Valid until, monotonic."""
    seen: Counter[str] = field(default_factory=Counter)
    date: str | None = None
    url: str = ""
    _numbers: Iterator[int] = field(default_factory=count)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        self.seen[f"{request.method} {request.path}"] += 1
        if request.path in self.hung:
            await self._released.wait()
        status, text = self._answer(request)
        date = formatdate(self.clock.now_s() + self.ahead_s, usegmt=True) if self.date is None else self.date
        return web.Response(status=status, text=text, headers={"Date": date})

    def _answer(self, request: web.Request) -> tuple[int, str]:
        refusals = self.refusals.get(request.path)
        if refusals:
            return refusals.pop(0), "refused"
        if request.path == TOKEN_PATH:
            return self._token(request)
        token = request.headers.get("X-aws-ec2-metadata-token", "")
        if self.clock.monotonic_s() >= self.tokens.get(token, 0.0):
            return 401, "no valid token"
        text = self.documents.get(request.path)
        return (404, "none") if text is None else (200, text)

    def _token(self, request: web.Request) -> tuple[int, str]:
        ttl_s = int(request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0"))
        if request.method != "PUT" or not 1 <= ttl_s <= 21_600 or "X-Forwarded-For" in request.headers:
            return 400, "bad request"
        token = f"token-{next(self._numbers)}"
        self.tokens[token] = self.clock.monotonic_s() + ttl_s
        return 200, token

    def release(self) -> None:
        """Let everybody who waits go."""
        self._released.set()


@asynccontextmanager
async def served(clock: Clock) -> AsyncIterator[FakeImds]:
    """On loopback."""
    imds = FakeImds(clock)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", imds.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    host, port = site._server.sockets[0].getsockname()  # type: ignore[attr-defined]
    imds.url = f"http://{host}:{port}"
    try:
        yield imds
    finally:
        imds.release()
        await runner.cleanup()


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened
