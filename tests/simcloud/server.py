"""SimCloud over HTTP, for unmodified boto3 clients with an `endpoint_url`, and its control endpoint under `/_sim`.

Policy: one thread with one event loop for all connections, so that slow answers and long polls hold nobody up. Signatures
are not checked; their access key is who asked. The Date header is the region's clock. Waits are of real time.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from email.utils import formatdate
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.simcloud.asked import Asked
from tests.simcloud.control import control_routes
from tests.simcloud.errors import CloudError
from tests.simcloud.faults import Trouble
from tests.simcloud.protocol import Answer, Parsed, answer, parse, refusal
from tests.simcloud.sim import SimCloud

_LOOK_EVERY_S = 0.02
"""How late what is due may happen while nobody calls, and a message be seen by who waits for it."""


def application(sim: SimCloud) -> web.Application:
    """For any aiohttp runner."""
    front = _Front(sim)
    made = web.Application(client_max_size=16 * 2**20)
    made.add_routes(control_routes(sim))
    made.router.add_route("*", "/{tail:.*}", front.handle)
    made.cleanup_ctx.append(front.clockwork)
    return made


class _Front:
    def __init__(self, sim: SimCloud) -> None:
        self._sim = sim
        self._looked = asyncio.Condition()

    async def clockwork(self, _: web.Application) -> AsyncIterator[None]:
        """Look at the agenda while the server lives."""
        looking = asyncio.create_task(self._look())
        yield
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    async def _look(self) -> None:
        while True:
            self._sim.advance()
            async with self._looked:
                self._looked.notify_all()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def handle(self, request: web.Request) -> web.Response:
        try:
            parsed = parse(request.method, str(request.url), request.headers, await request.read())
        except LookupError as error:
            return web.Response(status=404, text=str(error))
        trouble = self._sim.trouble(parsed.service, parsed.operation)
        await asyncio.sleep(trouble.delay_s)
        if trouble.drop_before:
            return _broken(request)
        made = await self._answer(parsed, trouble)
        return _broken(request) if trouble.drop_after else self._response(made)

    async def _answer(self, parsed: Parsed, trouble: Trouble) -> Answer:
        request_id = self._sim.request_id()
        try:
            if parsed.operation == "ReceiveMessage" and trouble.error is None:
                await self._message(Asked(parsed.parameters, parsed.caller))
            done = self._sim.perform(parsed.service, parsed.operation, parsed.parameters, parsed.caller, trouble)
        except CloudError as error:
            return refusal(parsed, error, request_id)
        return answer(parsed, done, request_id)

    async def _message(self, asked: Asked) -> None:
        """Until there is a message, or the receive has waited long enough."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._sim.sqs.wait_s(asked)), self._looked:
                await self._looked.wait_for(lambda: self._sim.sqs.has_message(asked))

    def _response(self, made: Answer) -> web.Response:
        headers = made.headers | {"Date": formatdate(self._sim.kernel.now_s(), usegmt=True)}
        return web.Response(status=made.status, headers=headers, body=made.body)


def _broken(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class Server:
    """A SimCloud served from a thread of its own, until closed."""

    def __init__(self, sim: SimCloud, port: int) -> None:
        self.sim = sim
        self.address = ""
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simcloud", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        runner = web.AppRunner(application(self.sim), access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(self._start(runner))
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self, runner: web.AppRunner) -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        host, port = runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"
        self.sim.sqs.base_url = self.address

    def close(self) -> None:
        """Stop serving; the SimCloud stays as it is."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(sim: SimCloud, *, port: int = 0) -> Server:
    """Serve it on loopback; `port` 0: any free one. A context manager; `address` is what `endpoint_url` wants."""
    return Server(sim, port)
