"""Where the API server is and who we are to it: a kubeconfig, or the pod's service account. Read by `kubernetes.aio`.

Policy: what can change while we run (a projected token, a token file, what an exec plugin hands out) is read again every
minute and after each 401. Plugins keep their token until it ends.
Non-goals: certificates that change need a restart; proxies from the environment are not looked at, one in the kubeconfig is.
"""

import asyncio
import math
import ssl
from pathlib import Path
from typing import Protocol

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from scaler.files import check_regular
from scaler.kube.contract import Denied
from scaler.model.clock import Clock

REFRESH_S = 60.0
_ANEW_S = 1.0
"""Many calls that are refused at once read the credentials anew once."""


class Loader(Protocol):
    """A source of configuration."""

    async def load(self, configuration: Configuration, *, anew: bool) -> None:
        """Fill a configuration in; `anew`: trust nothing that was read before."""
        ...


class FromKubeconfig:
    """The current context of a file. `anew` forgets what a plugin said."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: object = None

    async def load(self, configuration: Configuration, *, anew: bool) -> None:
        """Fill a configuration in."""
        if self._kept is None or anew:
            if self._path.exists():  # what is not there the library tells in its own words
                check_regular(self._path)
            self._kept = await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(self._path), client_configuration=configuration, persist_config=False
            )
        else:
            await self._kept.load_and_set(configuration)  # type: ignore[attr-defined]


class FromPod:
    """The service account that Kubernetes puts into every pod."""

    def __init__(self, token_file: str = SERVICE_TOKEN_FILENAME, ca_file: str = SERVICE_CERT_FILENAME) -> None:
        self._files = (token_file, ca_file)

    async def load(self, configuration: Configuration, *, anew: bool) -> None:
        """Fill a configuration in; the files are read each time."""
        del anew
        loader = InClusterConfigLoader(*self._files, try_refresh_token=False)  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


class Credentials:
    """The configuration, as fresh as it has to be."""

    def __init__(self, loader: Loader, clock: Clock) -> None:
        self._loader = loader
        self._clock = clock
        self._configuration = Configuration()
        self._read_at_s: float | None = None
        self._reading = asyncio.Lock()

    async def fresh(self, *, anew: bool = False) -> Configuration:
        """What to connect with now.

        Raises:
            Denied: there is no usable configuration.
        """
        async with self._reading:
            age_s = math.inf if self._read_at_s is None else self._clock.monotonic_s() - self._read_at_s
            if age_s >= (_ANEW_S if anew else REFRESH_S):
                await self._read(anew=anew)
        return self._configuration

    async def _read(self, *, anew: bool) -> None:
        try:
            await self._loader.load(self._configuration, anew=anew)
        except (ConfigException, OSError, ValueError) as error:
            raise Denied(f"no usable Kubernetes configuration: {error}") from error
        self._read_at_s = self._clock.monotonic_s()


def authorization(configuration: Configuration) -> dict[str, str]:
    """The header that says who we are; none with a client certificate."""
    token = configuration.api_key.get("BearerToken")
    return {"Authorization": token.strip()} if token else {}


def tls(configuration: Configuration) -> ssl.SSLContext:
    """The server checked, and our certificate shown, as the configuration says."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
