"""One SQS queue through `Aws`: whole batches out, an outcome for each entry back.

Invariant: an entry that an answer does not name as successful was not carried out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from scaler.aws.contract import Aws

CLUSTER_TAG = "headrace.dev/cluster"
"""On the queue: UID of the cluster that it belongs to."""
_BATCH = 10
_GONE_CODES = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as received. Times are the queue's, in seconds: the cloud's clock."""

    message_id: str
    handle: str
    body: str
    sent_at_s: float
    first_received_at_s: float


class EntryOutcome(StrEnum):
    """What became of one entry of a batch."""

    DONE = "done"
    GONE = "gone"
    """The receipt is void: the message is gone, or comes again with another receipt."""
    FAILED = "failed"
    """Again later."""


class SqsQueue:
    """See the module's docstring. Every method raises `AwsError` where the whole call failed."""

    def __init__(self, aws: Aws, url: str) -> None:
        self._aws = aws
        self._url = url

    async def cluster(self) -> str:
        """UID of the cluster that the queue is tagged with; empty where it is not."""
        answer = await self._aws.call("sqs", "ListQueueTags", QueueUrl=self._url)
        return str(answer.get("Tags", {}).get(CLUSTER_TAG, ""))

    async def receive(self, *, wait_s: int, hidden_s: int, now_s: float) -> tuple[Message, ...]:
        """At most ten messages, hidden from others for `hidden_s`; `now_s` (cloud's clock) where a message has no times."""
        answer = await self._aws.call(
            "sqs",
            "ReceiveMessage",
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=hidden_s,
            MessageSystemAttributeNames=["SentTimestamp", "ApproximateFirstReceiveTimestamp"],
        )
        return tuple(_message(raw, now_s) for raw in answer.get("Messages", ()))

    async def remove(self, handles: Sequence[str]) -> tuple[EntryOutcome, ...]:
        """Delete the messages of ten receipts at most."""
        entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
        answer = await self._aws.call("sqs", "DeleteMessageBatch", QueueUrl=self._url, Entries=entries)
        return _outcomes(answer, len(entries))

    async def hide(self, handles: Sequence[tuple[str, int]]) -> tuple[EntryOutcome, ...]:
        """Hide ten messages at most for so many seconds from now."""
        entries = [
            {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for n, (handle, seconds) in enumerate(handles)
        ]
        answer = await self._aws.call("sqs", "ChangeMessageVisibilityBatch", QueueUrl=self._url, Entries=entries)
        return _outcomes(answer, len(entries))

    async def send(self, body: str) -> None:
        """Put a message in."""
        await self._aws.call("sqs", "SendMessage", QueueUrl=self._url, MessageBody=body)


def batches(items: Iterable[T]) -> tuple[tuple[T, ...], ...]:
    """In batches as large as SQS takes them."""
    whole = tuple(items)
    return tuple(whole[n : n + _BATCH] for n in range(0, len(whole), _BATCH))


def _message(raw: Mapping[str, Any], now_s: float) -> Message:
    attributes = raw.get("Attributes", {})
    return Message(
        message_id=raw["MessageId"],
        handle=raw["ReceiptHandle"],
        body=raw.get("Body", ""),
        sent_at_s=_seconds(attributes.get("SentTimestamp"), now_s),
        first_received_at_s=_seconds(attributes.get("ApproximateFirstReceiveTimestamp"), now_s),
    )


def _seconds(milliseconds: str | None, now_s: float) -> float:
    return int(milliseconds) / 1000.0 if milliseconds else now_s


def _outcomes(answer: Mapping[str, Any], count: int) -> tuple[EntryOutcome, ...]:
    done = {entry["Id"] for entry in answer.get("Successful", ())}
    gone = {entry["Id"] for entry in answer.get("Failed", ()) if str(entry.get("Code", "")).endswith(_GONE_CODES)}
    return tuple(_outcome(str(n), done, gone) for n in range(count))


def _outcome(entry_id: str, done: set[str], gone: set[str]) -> EntryOutcome:
    if entry_id in done:
        return EntryOutcome.DONE
    return EntryOutcome.GONE if entry_id in gone else EntryOutcome.FAILED
