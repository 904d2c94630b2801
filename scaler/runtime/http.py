"""The controller's HTTP server: `/metrics`, `/healthz`, `/readyz`, `/status`. GET and HEAD only; nothing changes by it."""

from collections.abc import Callable
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from scaler.runtime.health import Verdict

_MOST_DECISIONS = 1000
_DEFAULT_DECISIONS = 10


class AddressInUse(Exception):
    """Somebody else listens there."""


class HttpServer:
    """Serves what it is given; `address` is where, once started."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        alive: Callable[[], Verdict],
        ready: Callable[[], Verdict],
        status: Callable[[int], dict[str, Any]],
    ) -> None:
        self._registry = registry
        self._alive = alive
        self._ready = ready
        self._status = status
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        """Listen. `AddressInUse` where that cannot be."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/status", self._answer_status)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, shutdown_timeout=1.0).start()
        except OSError as error:
            await runner.cleanup()
            raise AddressInUse(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self._runner = runner
        self.address = "http://{}:{}".format(*runner.addresses[0][:2])

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _healthz(self, _: web.Request) -> web.Response:
        return _probe(self._alive())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _probe(self._ready())

    async def _answer_status(self, request: web.Request) -> web.Response:
        last = request.query.get("last", str(_DEFAULT_DECISIONS))
        if not (last.isascii() and last.isdigit()) or int(last) > _MOST_DECISIONS:
            return web.Response(status=400, text=f"last must be a number from 0 to {_MOST_DECISIONS}\n")
        return web.json_response(self._status(int(last)))


def _probe(verdict: Verdict) -> web.Response:
    return web.Response(status=200 if verdict.ok else 503, text=verdict.message + "\n")
