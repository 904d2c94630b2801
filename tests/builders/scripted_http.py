"""An HTTP server that answers as it is told, in order: refusals, silence, broken connections, watches in any chunks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `silent`: none until `speak`. `drop`: the connection is cut instead, or after `chunks`."""

    status: int = 200
    body: Any = None
    """JSON, or bytes as they are."""
    headers: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    drop: bool = False
    chunks: Sequence[bytes] | None = None
    """A body sent so; with `silent` the connection then stays open and mute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    body: bytes
    content_type: str


OK = Answer(body={"kind": "ConfigMap", "metadata": {"name": "m", "resourceVersion": "1"}})


class ScriptedHttp:
    """Answers in order; the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[Seen] = []
        self.open_now = 0
        self.open_most = 0
        self.url = ""
        self._over = asyncio.Event()
        self._news = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield
        finally:
            self._over.set()
            await runner.cleanup()

    async def until_open(self, count: int) -> None:
        """Return once so many requests wait for an answer."""
        while self.open_now < count:
            self._news.clear()
            await self._news.wait()

    def speak(self) -> None:
        """The silent answer after all."""
        self._over.set()

    def kubeconfig(self, folder: Path, **user: Any) -> Path:
        """A file that leads here, as a user with these credentials."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        self._news.set()
        try:
            self.seen.append(
                Seen(
                    method=request.method,
                    path=request.path,
                    query=dict(request.query),
                    token=request.headers.get("Authorization", ""),
                    body=await request.read(),
                    content_type=request.headers.get("Content-Type", ""),
                )
            )
            return await self._answer(request, answer)
        finally:
            self.open_now -= 1

    async def _answer(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        if answer.chunks is not None:
            return await self._stream(request, answer, answer.chunks)
        if answer.silent:
            await self._over.wait()
        if answer.drop and request.transport:
            request.transport.abort()
        if isinstance(answer.body, bytes):
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)

    async def _stream(self, request: web.Request, answer: Answer, chunks: Sequence[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if answer.silent:
            await self._over.wait()
        if answer.drop and request.transport:
            request.transport.close()
        return response
