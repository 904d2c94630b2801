"""A way to the API server that can be cut: a TCP proxy on loopback, and a kubeconfig that goes through it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import yaml

_CHUNK_BYTES = 65536


class Proxy:
    """Passes bytes on, until it is frozen (half-open: connections stand, nothing comes through) or closed."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        """Listen on a port of its own."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self._target._replace(netloc=f"127.0.0.1:{port}"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def freeze(self) -> None:
        """Nothing comes through from now on, in neither direction, on old connections and new ones."""
        self._open.clear()

    async def close(self) -> None:
        """Break all connections and take no new ones."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._open.wait()
            there = await asyncio.open_connection(self._target.hostname, self._target.port)
            try:
                await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))
            finally:
                there[1].transport.abort()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof() if writer.can_write_eof() else writer.close()


def through(proxy: Proxy, kubeconfig: Path) -> Path:
    """The same kubeconfig, by way of a proxy."""
    content = yaml.safe_load(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = proxy.url
    made = kubeconfig.with_name(f"{kubeconfig.name}-proxied")
    made.touch(mode=0o600)
    made.write_text(yaml.safe_dump(content))
    return made
