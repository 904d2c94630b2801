"""Scripted trouble: errors, slow answers, lost answers, throttling. Source: EC2 API reference, "Request throttling"."""

from dataclasses import dataclass

from tests.simcloud.errors import CloudError
from tests.simcloud.kernel import Kernel

_THROTTLED = {
    "ec2": ("RequestLimitExceeded", "Request limit exceeded.", 503),
    "autoscaling": ("Throttling", "Rate exceeded", 400),
    "eks": ("ThrottlingException", "Rate exceeded", 429),
    "sqs": ("RequestThrottled", "The request was denied due to request throttling.", 403),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What happens to one call beside what it asks for."""

    delay_s: float = 0.0
    drop_before: bool = False
    """The connection breaks and nothing is done."""
    drop_after: bool = False
    """It is done, and the connection breaks: the caller cannot know."""
    error: CloudError | None = None


QUIET = Trouble()


@dataclass(slots=True)
class _Bucket:
    burst: float
    per_s: float
    tokens: float
    at_s: float

    def take(self, now_s: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class _Scripted:
    trouble: Trouble
    left: int


class Faults:
    """By operation name; `*` stands for every one of them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._scripts: dict[str, list[_Scripted]] = {}
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def script(self, operation: str, trouble: Trouble, times: int) -> None:
        """The next so many calls of it have this trouble, after what was scripted before."""
        self._scripts.setdefault(operation, []).append(_Scripted(trouble, times))

    def throttle(self, service: str, operation: str, *, burst: float, per_s: float) -> None:
        """A token bucket for one operation of a service, or for `*`: all of it."""
        self._buckets[service, operation] = _Bucket(burst, per_s, burst, self._kernel.now_s())

    def unthrottle(self) -> None:
        """No buckets any more."""
        self._buckets.clear()

    def of(self, service: str, operation: str) -> Trouble:
        """The trouble of one call, which uses it up."""
        for name in ((service, operation), (service, "*")):
            bucket = self._buckets.get(name)
            if bucket is not None and not bucket.take(self._kernel.now_s()):
                code, message, status = _THROTTLED[service]
                return Trouble(error=CloudError(code, message, status=status))
        return self._next(operation) or self._next("*") or QUIET

    def _next(self, operation: str) -> Trouble | None:
        scripts = self._scripts.get(operation, [])
        while scripts and scripts[0].left <= 0:
            scripts.pop(0)
        if not scripts:
            return None
        scripts[0].left -= 1
        return scripts[0].trouble
