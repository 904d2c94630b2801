"""Waits until a process says that it is ready, or has ended."""

import http.client
import ssl
import time
from contextlib import closing, suppress

from tests.cluster.process import Child, Ended

_READY_WITHIN_S = 90.0
_LOOK_EVERY_S = 0.03
_REPLY_WITHIN_S = 2.0


def wait_until_ready(child: Child, address: str, path: str, *, https: bool) -> None:
    """Back once `address` answers 200 on `path`.

    Raises:
        Ended: the process ended before, or was not ready in time; its last words are in the message.
    """
    give_up_at_s = time.monotonic() + _READY_WITHIN_S
    while not _is_ready(address, path, https=https):
        _must_run(child)
        if time.monotonic() > give_up_at_s:
            raise Ended(f"{child.name} was not ready within {_READY_WITHIN_S:.0f} s: {child.last_words()}")
        time.sleep(_LOOK_EVERY_S)
    _must_run(child)  # or somebody else answered on its port


def _must_run(child: Child) -> None:
    if not child.running:
        raise Ended(f"{child.name} ended: {child.last_words()}")


def _is_ready(address: str, path: str, *, https: bool) -> bool:
    with suppress(OSError, http.client.HTTPException), closing(_connection(address, https=https)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    return False


def _connection(address: str, *, https: bool) -> http.client.HTTPConnection:
    if https:
        return http.client.HTTPSConnection(address, timeout=_REPLY_WITHIN_S, context=_any_certificate())
    return http.client.HTTPConnection(address, timeout=_REPLY_WITHIN_S)


def _any_certificate() -> ssl.SSLContext:
    # Programs other than the API server make one of their own for this port.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
