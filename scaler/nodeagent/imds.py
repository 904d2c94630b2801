"""Instance metadata, version 2 only: a session token for every read, and the cloud's clock from its Date headers.

Policy: the token is renewed before it runs out and dropped on 401, then fetched anew once (NTH#229, #668). 404 means that there
is no such data now. Everything else that is not an answer is `MetadataAway`: the caller keeps what it knew, and comes again
later (NTH#916). A token that never comes is what a hop limit of 1 looks like from a container, and is said so (NTH#399).
Source: EC2 user guide, "Use the Instance Metadata Service".
"""

from email.utils import parsedate_to_datetime

import aiohttp

from scaler.model.clock import Clock

TOKEN_PATH = "/latest/api/token"
TOKEN_TTL_S = 3600
_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "X-aws-ec2-metadata-token"
_RENEW_SHARE = 0.1
"""The last part of a token's life in which it is not used any more."""
_SAME_CLOCK_S = 1.5
"""A Date header is cut to whole seconds and takes a moment to arrive: less than this is no difference."""


class MetadataAway(Exception):
    """No answer of use."""


class Imds:
    """See the module's docstring. `session` must not use a proxy: instance metadata refuses forwarded requests."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, clock: Clock, time_out_s: float = 2.0) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._clock = clock
        self._time_out = aiohttp.ClientTimeout(total=time_out_s)
        self._token = ""
        self._token_until_s = 0.0
        self._ahead_s = 0.0

    @property
    def ahead_s(self) -> float:
        """The cloud's clock minus ours by the last Date header; 0 where they agree as far as that can be seen."""
        return self._ahead_s

    async def get(self, path: str) -> str | None:
        """The text at a path; None where there is none now. `MetadataAway` where nobody can tell."""
        for _ in range(2):
            status, text = await self._request("GET", path, {_TOKEN_HEADER: await self._valid_token()})
            if status == 200:
                return text
            if status == 404:
                return None
            if status != 401:
                break
            self._token = ""
        raise MetadataAway(f"{path}: HTTP {status}")

    async def _valid_token(self) -> str:
        if not self._token or self._clock.monotonic_s() >= self._token_until_s:
            asked_at_s = self._clock.monotonic_s()
            self._token = await self._new_token()
            self._token_until_s = asked_at_s + TOKEN_TTL_S * (1.0 - _RENEW_SHARE)
        return self._token

    async def _new_token(self) -> str:
        try:
            status, text = await self._request("PUT", TOKEN_PATH, {_TTL_HEADER: str(TOKEN_TTL_S)})
        except TimeoutError:
            raise MetadataAway(
                "the request for a token got no answer: where other requests do, the answer's hop limit is too low;"
                " run the agent on the host network, or set the instance's HttpPutResponseHopLimit to 2"
            ) from None
        if status == 403:
            raise MetadataAway("the request for a token got HTTP 403: instance metadata is switched off, or forbidden")
        if status != 200 or not text:
            raise MetadataAway(f"the request for a token got HTTP {status}")
        return text.strip()

    async def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Status and text. `TimeoutError` of a PUT is the caller's to explain."""
        asked_at_s = self._clock.now_s()
        try:
            async with self._session.request(
                method, self._url + path, headers=headers, timeout=self._time_out, allow_redirects=False
            ) as response:
                text = await response.text(errors="replace")
        except TimeoutError:
            if method == "PUT":
                raise
            raise MetadataAway(f"{path}: no answer in {self._time_out.total} s") from None
        except aiohttp.ClientError as error:
            raise MetadataAway(f"{path}: {error}") from error
        self._read_date(response.headers.get("Date"), (asked_at_s + self._clock.now_s()) / 2)
        return response.status, text

    def _read_date(self, date: str | None, asked_at_s: float) -> None:
        if date is None:
            return
        try:
            cloud_s = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError, IndexError, OverflowError):
            return
        ahead_s = cloud_s + 0.5 - asked_at_s
        self._ahead_s = ahead_s if abs(ahead_s) > _SAME_CLOCK_S else 0.0
