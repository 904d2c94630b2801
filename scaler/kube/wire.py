"""One lane of requests to an API server: a turnstile, a connection pool, attempts and repeats within a time-out.

What is repeated when, and why, is in `scaler.kube.api`.
"""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar
from weakref import WeakSet

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from yarl import URL

from scaler.kube.answers import date_s, error_of
from scaler.kube.contract import Denied, KubeError, KubeUnreachable, TooMany
from scaler.kube.credentials import Credentials, authorization, tls
from scaler.kube.limits import Turnstile
from scaler.model.clock import Clock

T = TypeVar("T")

_CONNECT_S = 5.0
_SILENCE_RATIO = 0.4
"""Of a read's time-out: after silence for that long another connection is tried."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_CLOSE_ROUNDS, _CLOSE_ROUND_S = 50, 0.01
_SOCKET_OPTIONS = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_NODELAY", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 15_000),
)
"""A peer that is gone is noticed in half a minute; options that a system lacks are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked. `reads`: it changes nothing. `repeatable`: carried out twice is as good as once."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    reads: bool = False
    repeatable: bool = False
    budgeted: bool = False
    """429 is an answer, not a wish to wait."""


class Wire:
    """A lane. `sent` is called before each request that goes out, `ahead` with what a Date header says."""

    def __init__(
        self,
        credentials: Credentials,
        clock: Clock,
        turnstile: Turnstile,
        time_out_s: float,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        """`may_write`: whether this process may change anything, asked right before each request; default: always."""
        self._may_write = may_write
        self._credentials = credentials
        self._clock = clock
        self._turnstile = turnstile
        self._time_out_s = time_out_s
        self._session: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.ahead_s: float | None = None
        """Server's clock minus ours."""

    async def call(self, request: Request, sent: Callable[[], None]) -> bytes:
        """The body of the answer."""
        silent_s = self._time_out_s * (_SILENCE_RATIO if request.reads else 1.0)
        async with self._turnstile.turn():
            return await self._repeat(request, sent, _patience(silent_s), aiohttp.ClientResponse.read)

    async def stream(
        self, request: Request, sent: Callable[[], None], *, time_out_s: float, silent_s: float
    ) -> aiohttp.ClientResponse:
        """The answer once it has begun; the caller closes it. Its whole may take `time_out_s`."""
        await self._turnstile.token()
        return await self._repeat(request, sent, _patience(silent_s, time_out_s), _as_it_is)

    async def _repeat(
        self,
        request: Request,
        sent: Callable[[], None],
        patience: aiohttp.ClientTimeout,
        finish: Callable[[aiohttp.ClientResponse], Awaitable[T]],
    ) -> T:
        failure: KubeError = KubeUnreachable(f"no answer within {self._time_out_s:g} s")
        anew = False
        try:
            async with asyncio.timeout(self._time_out_s) as limit:
                for tries in count():
                    try:
                        return await self._attempt(request, sent, patience, finish, anew=anew)
                    except KubeError as error:
                        failure, anew = error, error.status == 401
                        pause_s = _pause_s(request, error, tries)
                        ends_at_s = limit.when() or 0.0
                        if pause_s is None or asyncio.get_running_loop().time() + pause_s >= ends_at_s:
                            raise
                    await self._clock.sleep(pause_s)
                    await self._turnstile.token()
        except TimeoutError as error:
            raise failure from error
        raise failure

    async def _attempt(
        self,
        request: Request,
        sent: Callable[[], None],
        patience: aiohttp.ClientTimeout,
        finish: Callable[[aiohttp.ClientResponse], Awaitable[T]],
        *,
        anew: bool,
    ) -> T:
        configuration = await self._credentials.fresh(anew=anew)
        if self._may_write is not None and not request.reads and not self._may_write():
            raise KubeUnreachable(f"{request.method} {request.path} is held back: this process does not lead")
        sent()
        began_s = self._clock.now_s()
        try:
            reply = await self._open(configuration, request, patience)
            try:
                self._note_date(reply.headers, began_s)
                if reply.status >= 300:
                    raise error_of(reply.status, await reply.read(), reply.headers)
                return await finish(reply)
            except BaseException:
                reply.close()
                raise
        except (aiohttp.ClientError, OSError) as error:
            raise KubeUnreachable(f"{request.method} {request.path}: {error!r}") from error

    async def _open(
        self, configuration: Configuration, request: Request, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=tls(configuration), limit=0, socket_factory=self._socket)
            self._session = aiohttp.ClientSession(connector=connector)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "headrace"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return await self._session.request(
            request.method,
            URL(configuration.host.rstrip("/") + request.path, encoded=True).with_query(request.query),
            data=request.body,
            headers=headers | authorization(configuration),
            timeout=patience,
            allow_redirects=False,
            proxy=configuration.proxy,
            server_hostname=configuration.tls_server_name,
        )

    def _note_date(self, headers: Mapping[str, str], began_s: float) -> None:
        told_s = date_s(headers)
        if told_s is not None:
            # Cut to the second: on average half of one is missing.
            self.ahead_s = told_s + 0.5 - (began_s + self._clock.now_s()) / 2

    async def close(self) -> None:
        """Give connections up, those too that were given up before and wait for a peer to say farewell (TLS)."""
        if self._session is not None:
            await self._session.close()
        for _ in range(_CLOSE_ROUNDS):
            waiting = [made for made in self._sockets if made.fileno() >= 0]
            if not waiting:
                return
            for made in waiting:
                with suppress(OSError):
                    made.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(_CLOSE_ROUND_S)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        made = socket.socket(*address[:3])
        for level, name, value in _SOCKET_OPTIONS:
            if hasattr(socket, name):
                made.setsockopt(getattr(socket, level), getattr(socket, name), value)
        self._sockets.add(made)
        return made


async def _as_it_is(reply: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    return reply


def _patience(silent_s: float, total_s: float | None = None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=_CONNECT_S, sock_read=silent_s)


def _pause_s(request: Request, error: KubeError, tries: int) -> float | None:
    """How long to wait before asking again; None: do not."""
    back_off_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**tries) * random.uniform(0.5, 1.5)
    asked_s = error.retry_after_s
    if isinstance(error, Denied):
        return 0.0 if error.status == 401 and tries == 0 else None
    if isinstance(error, TooMany):
        waits = not request.budgeted and (request.reads or asked_s is not None)
    else:
        waits = isinstance(error, KubeUnreachable) and (request.reads or (error.status == 503 and request.repeatable))
    return max(asked_s or 0.0, back_off_s) if waits else None
