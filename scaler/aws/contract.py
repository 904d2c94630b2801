"""What the rest of Headrace asks of AWS: calls by service and operation, and what a failure means.

Policy: clients are made once and shared (sessions are not safe between threads, clients are); every call has connect and
read time-outs; SDK retries are short and only for throttling and lost connections, since callers are level-based and come
again. Throttling never counts as lack of capacity; an unknown launch error backs its offering off, and no other.
Sources: research "autoscalers" section 3.5, botocore's retry and error documentation.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol


class AwsFault(StrEnum):
    """What an error means to us; bounded, so that it may label a metric."""

    THROTTLED = "throttled"
    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    QUOTA = "quota"
    CONFIGURATION = "configuration"
    """The request can never succeed as it is: launch template, subnet, parameters, a price too low."""
    AUTHORISATION = "authorisation"
    NOT_FOUND = "not_found"
    """The named thing is gone: success to who ends it."""
    CONTENTION = "contention"
    """Something else is being done to it now: try again."""
    UNREACHABLE = "unreachable"
    """No answer, or a server error: it may have been carried out."""
    UNKNOWN = "unknown"


class AwsError(Exception):
    """A call failed. `code` is AWS's own, `fault` ours."""

    def __init__(self, message: str, *, fault: AwsFault, code: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.fault = fault
        self.code = code
        self.operation = operation


class Aws(Protocol):
    """One region of one account."""

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        """One call, `call("autoscaling", "LaunchInstances", AutoScalingGroupName=...)`; names as the API spells them.

        Raises:
            AwsError: it failed, after the SDK's own short retries.
        """
        ...

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        """All items under `key` of every page; whole, or `AwsError`."""
        ...

    def ahead_s(self) -> float | None:
        """AWS's clock minus ours by the last answers' Date headers, good to a second; None before the first."""
        ...

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Calls made since start by (service, operation): what IAM has to allow."""
        ...

    async def close(self) -> None:
        """Let running calls end, and give the threads up."""
        ...
