"""SQS's standard queues: at least once, visibility, dead letters. Source: SQS developer guide and API reference.

A stale receipt handle deletes nothing and says it did, as the guide warns. Entries of a batch fail one by one.
"""

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.kernel import Kernel
from tests.simcloud.settings import Settings

DEFAULTS: Mapping[str, str] = {
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "262144",
}
_IN_FLIGHT_LIMIT = 120_000


@dataclass(slots=True, kw_only=True)
class Message:
    """One message."""

    message_id: str
    body: str
    sent_at_s: float
    visible_at_s: float
    sender: str
    attributes: Json = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    first_received_at_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Queue:
    """One queue. Invariant: `by_receipt` has every handle of every message in it."""

    name: str
    url: str
    arn: str
    created_at_s: float
    attributes: dict[str, str]
    tags: dict[str, str]
    messages: dict[str, Message] = field(default_factory=dict)
    ready: dict[str, Message] = field(default_factory=dict)
    """Those visible, oldest first."""
    hidden: list[tuple[float, str]] = field(default_factory=list)
    """A heap of (visible again at, message id); entries of messages that have moved since are passed over."""
    by_receipt: dict[str, str] = field(default_factory=dict)
    deleted: int = 0

    def hide(self, one: Message, until_s: float) -> None:
        """Not visible before then."""
        one.visible_at_s = until_s
        self.ready.pop(one.message_id, None)
        heapq.heappush(self.hidden, (until_s, one.message_id))

    def surface(self, now_s: float) -> None:
        """Make visible what is due."""
        while self.hidden and self.hidden[0][0] <= now_s:
            _, message_id = heapq.heappop(self.hidden)
            one = self.messages.get(message_id)
            if one is not None and one.visible_at_s <= now_s:
                self.ready[message_id] = one

    def drop(self, one: Message) -> None:
        """Out of the queue."""
        for receipt in one.receipts:
            self.by_receipt.pop(receipt, None)
        self.messages.pop(one.message_id, None)
        self.ready.pop(one.message_id, None)


def md5(text: str) -> str:
    """As SQS answers it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


class Queues:
    """All queues, by name."""

    def __init__(self, kernel: Kernel, settings: Settings) -> None:
        self._kernel = kernel
        self._settings = settings
        self.by_name: dict[str, Queue] = {}
        self.entry_failures: Counter[str] = Counter()
        """How many entries of coming batches fail, by operation."""

    def create(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], base_url: str) -> Queue:
        """A queue; the same again is the same one.

        Raises:
            CloudError: QueueAlreadyExists, where the attributes differ.
        """
        known = self.by_name.get(name)
        if known is not None:
            if any(known.attributes.get(key) != value for key, value in attributes.items()):
                raise CloudError("QueueAlreadyExists", f"A queue already exists with the same name: {name}")
            return known
        arn = f"arn:aws:sqs:{self._settings.region}:{self._settings.account}:{name}"
        made = Queue(
            name=name,
            url=f"{base_url}/{self._settings.account}/{name}",
            arn=arn,
            created_at_s=self._kernel.now_s(),
            attributes={**DEFAULTS, **attributes},
            tags=dict(tags),
        )
        self.by_name[name] = made
        return made

    def at(self, url: str) -> Queue:
        """The queue of an address, whatever its host.

        Raises:
            CloudError: QueueDoesNotExist.
        """
        found = self.by_name.get(url.rstrip("/").rsplit("/", 1)[-1])
        if found is None:
            raise CloudError("QueueDoesNotExist", "The specified queue does not exist.")
        return found

    def of_arn(self, arn: str) -> Queue | None:
        """The queue of an ARN."""
        return self.by_name.get(arn.rsplit(":", 1)[-1])

    def put(self, queue: Queue, body: str, *, attributes: Json | None = None, sender: str = "AIDAEVENTS") -> Message:
        """A message into it, visible after the queue's delay."""
        now_s = self._kernel.now_s()
        made = Message(
            message_id=self._kernel.uuid(),
            body=body,
            sent_at_s=now_s,
            visible_at_s=now_s + float(queue.attributes["DelaySeconds"]),
            sender=sender,
            attributes=attributes or {},
        )
        queue.messages[made.message_id] = made
        queue.hide(made, made.visible_at_s)
        return made

    def receive(self, queue: Queue, most: int, visibility_s: float | None) -> list[tuple[Message, str]]:
        """Up to `most` visible messages, each with a new receipt handle; those received too often go to the dead letters."""
        now_s = self._kernel.now_s()
        queue.surface(now_s)
        self._expire(queue)
        if len(queue.messages) - len(queue.ready) >= _IN_FLIGHT_LIMIT:
            raise CloudError("OverLimit", "Too many messages are in flight.", status=403)
        taken: list[tuple[Message, str]] = []
        while queue.ready and len(taken) < most:
            one = next(iter(queue.ready.values()))
            if not self._dead(queue, one):
                taken.append((one, self._take(queue, one, visibility_s)))
        return taken

    def _take(self, queue: Queue, one: Message, visibility_s: float | None) -> str:
        now_s = self._kernel.now_s()
        lasts_s = float(queue.attributes["VisibilityTimeout"]) if visibility_s is None else visibility_s
        queue.hide(one, now_s + lasts_s)
        one.first_received_at_s = now_s if one.first_received_at_s is None else one.first_received_at_s
        receipt = self._kernel.hex_id("AQEB", 40)
        one.receipts.append(receipt)
        queue.by_receipt[receipt] = one.message_id
        return receipt

    def _dead(self, queue: Queue, one: Message) -> bool:
        policy = json.loads(queue.attributes.get("RedrivePolicy") or "{}")
        if not policy or len(one.receipts) < int(policy["maxReceiveCount"]):
            return False
        letters = self.of_arn(policy["deadLetterTargetArn"])
        queue.drop(one)
        if letters is not None:
            one.receipts.clear()
            letters.messages[one.message_id] = one
            letters.hide(one, self._kernel.now_s())
        return True

    def _expire(self, queue: Queue) -> None:
        oldest_s = self._kernel.now_s() - float(queue.attributes["MessageRetentionPeriod"])
        while queue.messages:
            oldest = next(iter(queue.messages.values()))
            if oldest.sent_at_s >= oldest_s:
                break
            queue.drop(oldest)

    def delete(self, queue: Queue, receipt: str) -> None:
        """Delete by the newest handle; by an older one, nothing. Deleted already is well.

        Raises:
            CloudError: ReceiptHandleIsInvalid.
        """
        if not receipt.startswith("AQEB"):
            raise CloudError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.", status=404)
        one = queue.messages.get(queue.by_receipt.get(receipt, ""))
        if one is not None and one.receipts[-1] == receipt:
            queue.drop(one)
            queue.deleted += 1

    def change_visibility(self, queue: Queue, receipt: str, seconds: float) -> None:
        """Hide it for so long from now; 0: visible at once.

        Raises:
            CloudError: MessageNotInflight; InvalidParameterValue where the handle is of no message any more.
        """
        one = queue.messages.get(queue.by_receipt.get(receipt, ""))
        if one is None:
            message = (
                f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not "
                "available for visibility timeout change."
            )
            raise CloudError("InvalidParameterValue", message)
        queue.surface(self._kernel.now_s())
        if one.message_id in queue.ready:
            raise CloudError("MessageNotInflight", "The message referred to isn't in flight.")
        queue.hide(one, self._kernel.now_s() + seconds)

    def depth(self, queue: Queue) -> tuple[int, int, int]:
        """(visible, in flight, delayed)."""
        now_s = self._kernel.now_s()
        queue.surface(now_s)
        away = [one for one in queue.messages.values() if one.message_id not in queue.ready]
        delayed = sum(not one.receipts for one in away)
        return len(queue.ready), len(away) - delayed, delayed
