"""Loopback ports that no other test process of this machine gives out.

A port is held by the name of an abstract socket, which the system forgets with the process: so a server that is killed
finds its port again when it is started again, and nothing has to be tidied up. Ports are taken below the range that the
system hands to clients, and apart from those of the Valkey servers of other tests.
"""

import secrets
import socket
from contextlib import suppress

FIRST, COUNT = 10_000, 6_000


class PortHold:
    """One port, ours until `release` or the end of this process."""

    def __init__(self) -> None:
        start = secrets.randbelow(COUNT)
        for i in range(COUNT):
            self.port = FIRST + (start + i) % COUNT
            if self._take():
                return
        raise RuntimeError("no port is free")

    def _take(self) -> bool:
        self._name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(OSError), socket.socket() as probe:
            self._name.bind(f"\0headrace-port-{self.port}")
            probe.bind(("127.0.0.1", self.port))
            return True
        self._name.close()
        return False

    def release(self) -> None:
        """Let others have it."""
        self._name.close()
