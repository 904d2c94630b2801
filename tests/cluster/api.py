"""The least of a client that a control plane needs to set itself up: blocking, one request at a time.

Tests that talk to the API server use `tests.builders.kube`.
"""

import json
import ssl
import time
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tests.cluster.paths import JsonObject, path_of
from tests.cluster.pki import Identity

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.03


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

    def define(self, files: Iterable[bytes]) -> None:
        """Make the custom resources of definitions in YAML (sent as they are: they are large); wait until they are served.

        Raises:
            TimeoutError: they are not.
        """
        definitions = [self._send("POST", DEFINITIONS, file, "application/yaml")["spec"] for file in files]
        give_up_at_s = time.monotonic() + _TIMEOUT_S
        for collection in map(_defined_collection, definitions):
            while not self._serves(collection):
                if time.monotonic() > give_up_at_s:
                    raise TimeoutError(f"not served: {collection}")
                time.sleep(_LOOK_EVERY_S)

    def _serves(self, path: str) -> bool:
        try:
            self.get(path)
        except Refused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> JsonObject:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(
            self._url + path, content, {"Content-Type": kind, "Accept": "application/json"}, method=method
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as reply:
                return dict(json.load(reply))
        except HTTPError as refusal:
            raise Refused(refusal.code, refusal.read().decode(errors="replace")) from None


def _defined_collection(definition: JsonObject) -> str:
    version = next(each["name"] for each in definition["versions"] if each["served"])
    return f"/apis/{definition['group']}/{version}/{definition['names']['plural']}?limit=1"
