"""boto3 as `Aws`: clients made once, calls in a bounded pool of threads, errors told apart.

Policy: boto3 is imported when a client is opened and not before, so that a fleet on one machine never loads it. All clients are
made by `open_aws`, in one thread: a session is not safe between threads, a client is (boto3#1592). Every call has connect and
read time-outs (KP#9318: without them a call hangs for ever). Long polls of SQS hold a thread for as long as they wait, so they
have threads of their own. Retries are the SDK's "standard" ones, short: callers are level-based and come again. One call is
never repeated by the SDK: the end of an instance with decrement, of which AWS does not say that a repeat decrements once.
Invariants: an answer's Date header moves `ahead_s`, that of a refusal too, so that a wrong clock shows where it hurts. Whether
something may be changed is asked for each attempt right before it is sent, in its thread: calls wait for threads, and for the
SDK's retries, and a process that was stopped meanwhile may have been succeeded.
Non-goals: what an answer means to a fleet.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scaler.aws.contract import AwsError, AwsFault
from scaler.aws.errors import classify, is_clock_skew
from scaler.aws.instances import EVENT, read_instances
from scaler.model.clock import Clock

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.config import Config

SERVICES = ("autoscaling", "ec2", "eks", "sqs")
"""Services that have a client."""

ONCE = frozenset({("autoscaling", "TerminateInstanceInAutoScalingGroup")})
"""Calls that the SDK must not repeat by itself; see the module's docstring."""

_READING = ("Describe", "List", "Get", "Receive")
"""Beginnings of operations that change nothing."""
_POLLS = frozenset({("sqs", "ReceiveMessage")})
_POLL_THREADS = 4
_CONNECT_S = 3.0
_READ_S = 10.0
_POLL_READ_S = 30.0
"""Longer than the 20 s that SQS may wait."""
_ATTEMPTS = 3
_ROUND_TRIP_S = 5.0
"""Of a slower answer nobody knows when its Date was written: it says nothing of the clock."""


class HeldBack(Exception):
    """Not sent: this process may not change anything now."""


class BotoAws:
    """`scaler.aws.contract.Aws`; see the module's docstring. `clients` by service; `once` for the calls in `ONCE`."""

    def __init__(
        self, clients: Mapping[str, "BaseClient"], once: Mapping[str, "BaseClient"], *, clock: Clock, threads: int = 16
    ) -> None:
        self._clients = clients
        self._once = once
        self._clock = clock
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="aws")
        self._poll_threads = ThreadPoolExecutor(_POLL_THREADS, thread_name_prefix="aws-poll")
        self._counts: Counter[tuple[str, str]] = Counter()
        self._ahead_s: float | None = None

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        """See `Aws.call`."""
        client = (self._once if (service, operation) in ONCE else self._clients).get(service)
        if client is None:
            raise AwsError(f"no client for service {service!r}", fault=AwsFault.CONFIGURATION, operation=operation)
        self._counts[service, operation] += 1
        threads = self._poll_threads if (service, operation) in _POLLS else self._threads
        asked_at_s = self._clock.monotonic_s()
        try:
            answer = await asyncio.get_running_loop().run_in_executor(threads, _invoke, client, operation, parameters)
        except _failures() as error:
            self._read_date(getattr(error, "response", None) or {}, asked_at_s)
            raise self._told(error, operation) from error
        self._read_date(answer, asked_at_s)
        return answer

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        """See `Aws.pages`. Follows `NextToken` or `nextToken`, whichever the service has."""
        items: list[Any] = []
        answer = await self.call(service, operation, **parameters)
        items += answer.get(key, ())
        followed: dict[str, str] = {}
        while (following := _following(answer)) and following != followed:
            answer = await self.call(service, operation, **parameters, **following)
            items += answer.get(key, ())
            followed = following
        if following:
            raise AwsError(
                f"{operation}: the same page again and again", fault=AwsFault.UNREACHABLE, operation=operation
            )
        return tuple(items)

    def ahead_s(self) -> float | None:
        """See `Aws.ahead_s`."""
        return self._ahead_s

    def counts(self) -> Mapping[tuple[str, str], int]:
        """See `Aws.counts`."""
        return MappingProxyType(dict(self._counts))

    async def close(self) -> None:
        """See `Aws.close`."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._poll_threads.shutdown)
        for client in (*self._clients.values(), *self._once.values()):
            client.close()

    def _read_date(self, answer: Mapping[str, Any], asked_at_s: float) -> None:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        took_s = self._clock.monotonic_s() - asked_at_s
        if date is None or took_s > _ROUND_TRIP_S:
            return
        try:
            written_at_s = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            return
        # Half a second: the header is cut to whole seconds.
        self._ahead_s = written_at_s + 0.5 - (self._clock.now_s() - took_s / 2)

    def _told(self, error: Exception, operation: str) -> AwsError:
        from botocore.exceptions import ClientError

        if not isinstance(error, ClientError):
            return AwsError(f"{operation}: {error}", fault=_fault_without_answer(error), operation=operation)
        told = error.response.get("Error", {})
        code, message = str(told.get("Code", "")), str(told.get("Message", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        fault = classify(code, status, message)
        if fault is AwsFault.AUTHORISATION and is_clock_skew(code, message):
            message += f" (AWS's clock is {self._ahead_s or 0.0:+.0f} s from ours: set this machine's clock)"
        return AwsError(f"{operation}: {code}: {message}", fault=fault, code=code, operation=operation)


def open_aws(
    region: str,
    *,
    clock: Clock,
    endpoint_url: str | None = None,
    threads: int = 16,
    may_write: Callable[[], bool] | None = None,
) -> BotoAws:
    """One region of the account that the environment's credentials belong to; `endpoint_url` for another server than AWS.

    `may_write`: whether this process may change anything, asked in the calling threads; default: always.
    Blocks for the second or two that boto3 takes to load.
    """
    import boto3

    session: Any = boto3.session.Session(region_name=region)  # its overloads want a service's name written out
    clients = {
        name: session.client(name, endpoint_url=endpoint_url, config=_config(name, threads)) for name in SERVICES
    }
    once = {
        name: session.client(name, endpoint_url=endpoint_url, config=_config(name, threads, attempts=1))
        for name in sorted({service for service, _ in ONCE})
    }
    clients["ec2"].meta.events.register(EVENT, read_instances)
    if may_write is not None:
        for client in (*clients.values(), *once.values()):
            _guard(client, may_write)
    return BotoAws(clients, once, clock=clock, threads=threads)


def _guard(client: "BaseClient", may_write: Callable[[], bool]) -> None:
    """The SDK emits `before-send.<service>.<operation>` for each attempt; what a handler raises ends the call."""

    def before_send(event_name: str, **_: object) -> None:
        operation = event_name.rpartition(".")[2]
        if not operation.startswith(_READING) and not may_write():
            raise HeldBack(f"{operation} is held back: this process does not lead")

    client.meta.events.register("before-send", before_send)


def _config(service: str, threads: int, attempts: int = _ATTEMPTS) -> "Config":
    from botocore.config import Config

    return Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=_CONNECT_S,
        read_timeout=_POLL_READ_S if service == "sqs" else _READ_S,
        max_pool_connections=threads,
    )


def _invoke(client: "BaseClient", operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    from botocore import xform_name

    answer: Mapping[str, Any] = getattr(client, xform_name(operation))(**parameters)
    return answer


def _following(answer: Mapping[str, Any]) -> dict[str, str]:
    return {name: answer[name] for name in ("NextToken", "nextToken") if answer.get(name)}


def _failures() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError, HeldBack


def _fault_without_answer(error: Exception) -> AwsFault:
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    by_kind: dict[tuple[type[Exception], ...], AwsFault] = {
        (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
            exceptions.TokenRetrievalError,
        ): AwsFault.AUTHORISATION,
        (exceptions.ParamValidationError, exceptions.InvalidRegionError): AwsFault.CONFIGURATION,
        (exceptions.ConnectionError, exceptions.HTTPClientError, ResponseParserError, HeldBack): AwsFault.UNREACHABLE,
    }
    return next((fault for kinds, fault in by_kind.items() if isinstance(error, kinds)), AwsFault.UNKNOWN)
