"""The least of a client that a control plane needs to set itself up: blocking, one request at a time.

Tests that talk to the API server use `tests.builders.kube`.
"""

import json
import ssl
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import yaml

from tests.cluster.paths import JsonObject, path_of
from tests.cluster.pki import Identity

_TIMEOUT_S = 30.0


class Refused(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests with a client certificate."""

    def __init__(self, url: str, ca_file: Path, identity: Identity) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        context.load_cert_chain(identity.cert_file, identity.key_file)
        self._url = url
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def get(self, path: str) -> JsonObject:
        """The object at `path`."""
        return self._send("GET", path)

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """What became of `body` at the collection `path`."""
        return self._send("POST", path, body)

    def apply(self, obj: JsonObject) -> JsonObject:
        """Make the object so, whether it is there or not (server-side apply)."""
        return self._send(
            "PATCH", f"{path_of(obj)}?fieldManager=testbed&force=true", obj, "application/apply-patch+yaml"
        )

    def _send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> JsonObject:
        content = None if body is None else json.dumps(body).encode()
        request = Request(
            self._url + path, content, {"Content-Type": kind, "Accept": "application/json"}, method=method
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as reply:
                return dict(json.load(reply))
        except HTTPError as refusal:
            raise Refused(refusal.code, refusal.read().decode(errors="replace")) from None


def objects_of(files: list[Path]) -> list[JsonObject]:
    """The objects in YAML files."""
    return [obj for file in files for obj in yaml.load_all(file.read_text(), Loader=_LOADER) if obj]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Definitions are large: the parser in C takes a tenth of the time, where there is one."""
