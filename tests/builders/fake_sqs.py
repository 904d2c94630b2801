"""SQS in memory as an `Aws`, on a fake clock: visibility, receipts, batches with failures, and calls that fail on order.

A receipt is good until its message is received again. What a message's queue time and first receipt are is told in its
attributes, on the cloud's clock, which is `ahead` of ours.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from scaler.aws.contract import AwsError, AwsFault
from scaler.interruptions.base import Ownership
from scaler.interruptions.queue.wire import CLUSTER_TAG
from tests.builders.clock import FakeClock

CLUSTER = "6e0b7b0c-cluster"
URL = "https://sqs/notices"
GRAVEYARD = "https://sqs/dead"


@dataclass(slots=True, eq=False)
class Stored:
    message_id: str
    body: str
    sent_at_s: float
    visible_at_s: float
    received: int = 0
    first_received_at_s: float | None = None
    handle: str = ""


@dataclass
class Owner:
    """An `InstanceOwner` that knows what it is told."""

    ours: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)

    def knows(self, instance_id: str) -> Ownership:
        if instance_id in self.ours:
            return Ownership.OURS
        return Ownership.FOREIGN if instance_id in self.foreign else Ownership.UNKNOWN


class FakeSqs:
    """See the module's docstring."""

    def __init__(self, clock: FakeClock, *, ahead: float = 0.0) -> None:
        self.clock = clock
        self.ahead = ahead
        self.tags: dict[str, str] = {CLUSTER_TAG: CLUSTER}
        self.queues: dict[str, list[Stored]] = defaultdict(list)
        self.failing: dict[str, AwsError] = {}
        """Operation -> what every call of it raises while it is in here."""
        self.bad_entries: dict[str, str] = {}
        """Message id -> code with which its entries of batches fail."""
        self.members: dict[str, list[str]] = {}
        self.completed: list[Mapping[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self._numbers = count()

    def put(self, *bodies: str, url: str = URL, sent_ago_s: float = 0.0) -> None:
        """Messages arrive."""
        now_s = self.clock.now_s() + self.ahead
        for body in bodies:
            stored = Stored(f"m-{next(self._numbers)}", body, now_s - sent_ago_s, self.clock.monotonic_s())
            self.queues[url].append(stored)

    def bodies(self, url: str = URL) -> list[str]:
        """What is in a queue, hidden or not."""
        return [stored.body for stored in self.queues[url]]

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        self.calls[operation] += 1
        if operation in self.failing:
            raise self.failing[operation]
        if operation == "ReceiveMessage":
            return await self._receive(**parameters)
        handlers: dict[str, Callable[..., Mapping[str, Any]]] = {
            "ListQueueTags": lambda **_: {"Tags": self.tags},
            "DeleteMessageBatch": self._delete,
            "ChangeMessageVisibilityBatch": self._hide,
            "SendMessage": self._send,
            "CompleteLifecycleAction": self._complete,
        }
        return handlers[operation](**parameters)

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        self.calls[operation] += 1
        if operation in self.failing:
            raise self.failing[operation]
        (reservation,) = parameters["Filters"][0]["Values"]
        return ({"Instances": [{"InstanceId": each} for each in self.members.get(reservation, ())]},)

    def ahead_s(self) -> float | None:
        return self.ahead or None

    def counts(self) -> Mapping[tuple[str, str], int]:
        return {("sqs", operation): number for operation, number in self.calls.items()}

    async def close(self) -> None: ...

    async def _receive(self, **asked: Any) -> Mapping[str, Any]:
        queue, wait_s = asked["QueueUrl"], asked["WaitTimeSeconds"]
        for waited_s in range(wait_s + 1):
            found = [each for each in self.queues[queue] if each.visible_at_s <= self.clock.monotonic_s()]
            if found or waited_s == wait_s:
                break
            await self.clock.sleep(1.0)
        hidden_s = asked["VisibilityTimeout"]
        return {"Messages": [self._handed_out(each, hidden_s) for each in found[: asked["MaxNumberOfMessages"]]]}

    def _handed_out(self, stored: Stored, hidden_s: int) -> Mapping[str, Any]:
        stored.received += 1
        stored.handle = f"{stored.message_id}#{stored.received}"
        stored.visible_at_s = self.clock.monotonic_s() + hidden_s
        if stored.first_received_at_s is None:
            stored.first_received_at_s = self.clock.now_s() + self.ahead
        return {
            "MessageId": stored.message_id,
            "ReceiptHandle": stored.handle,
            "Body": stored.body,
            "Attributes": {
                "SentTimestamp": str(int(stored.sent_at_s * 1000)),
                "ApproximateFirstReceiveTimestamp": str(int(stored.first_received_at_s * 1000)),
            },
        }

    def _delete(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Mapping[str, Any]:  # noqa: N803
        stored, answer = self._entries(QueueUrl, Entries)
        self.queues[QueueUrl] = [each for each in self.queues[QueueUrl] if each not in stored.values()]
        return answer

    def _hide(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Mapping[str, Any]:  # noqa: N803
        found, answer = self._entries(QueueUrl, Entries)
        for entry in Entries:
            if entry["Id"] in found:
                found[entry["Id"]].visible_at_s = self.clock.monotonic_s() + entry["VisibilityTimeout"]
        return answer

    def _entries(
        self, url: str, entries: Iterable[dict[str, Any]]
    ) -> tuple[dict[str, Stored], Mapping[str, list[Mapping[str, Any]]]]:
        by_handle = {each.handle: each for each in self.queues[url]}
        entries = list(entries)
        assert 1 <= len(entries) <= 10
        found: dict[str, Stored] = {}
        failed: list[Mapping[str, Any]] = []
        for entry in entries:
            message = by_handle.get(entry["ReceiptHandle"])
            code = "ReceiptHandleIsInvalid" if message is None else self.bad_entries.get(message.message_id)
            if message is not None and code is None:
                found[entry["Id"]] = message
            else:
                failed.append({"Id": entry["Id"], "Code": code, "SenderFault": True, "Message": "no"})
        return found, {"Successful": [{"Id": each} for each in found], "Failed": failed}

    def _send(self, *, QueueUrl: str, MessageBody: str) -> Mapping[str, Any]:  # noqa: N803
        self.put(MessageBody, url=QueueUrl)
        return {"MessageId": "sent"}

    def _complete(self, **parameters: Any) -> Mapping[str, Any]:
        self.completed.append(parameters)
        return {}


def away(operation: str = "call") -> AwsError:
    """No answer."""
    return AwsError(f"{operation}: no answer", fault=AwsFault.UNREACHABLE, operation=operation)
