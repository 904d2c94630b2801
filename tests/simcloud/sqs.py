"""SQS's calls. Shapes and limits: SQS API reference. Waiting is the front end's: an empty answer may be asked for again."""

from collections.abc import Callable
from typing import Any

from tests.simcloud.asked import Asked, Json
from tests.simcloud.errors import CloudError
from tests.simcloud.queues import Message, Queue, Queues, md5

_BATCH_LIMIT = 10
_LONGEST_VISIBILITY_S = 43_200


class Sqs:
    """See the module's docstring."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.base_url = "http://sqs.invalid"

    def create_queue(self, asked: Asked) -> Json:
        made = self._queues.create(
            asked.p["QueueName"], asked.p.get("Attributes", {}), asked.p.get("tags", {}), self.base_url
        )
        return {"QueueUrl": made.url}

    def delete_queue(self, asked: Asked) -> Json:
        self._queues.by_name.pop(self._queue(asked).name)
        return {}

    def list_queues(self, asked: Asked) -> Json:
        prefix = asked.p.get("QueueNamePrefix", "")
        return {"QueueUrls": [one.url for name, one in self._queues.by_name.items() if name.startswith(prefix)]}

    def get_queue_url(self, asked: Asked) -> Json:
        return {"QueueUrl": self._queues.at(asked.p["QueueName"]).url}

    def get_queue_attributes(self, asked: Asked) -> Json:
        queue = self._queue(asked)
        visible, flying, delayed = self._queues.depth(queue)
        everything = queue.attributes | {
            "QueueArn": queue.arn,
            "CreatedTimestamp": str(int(queue.created_at_s)),
            "ApproximateNumberOfMessages": str(visible),
            "ApproximateNumberOfMessagesNotVisible": str(flying),
            "ApproximateNumberOfMessagesDelayed": str(delayed),
        }
        names = asked.p.get("AttributeNames") or []
        return {"Attributes": {k: v for k, v in everything.items() if "All" in names or k in names}}

    def set_queue_attributes(self, asked: Asked) -> Json:
        self._queue(asked).attributes.update(asked.p["Attributes"])
        return {}

    def list_queue_tags(self, asked: Asked) -> Json:
        return {"Tags": dict(self._queue(asked).tags)}

    def tag_queue(self, asked: Asked) -> Json:
        self._queue(asked).tags.update(asked.p["Tags"])
        return {}

    def untag_queue(self, asked: Asked) -> Json:
        for key in asked.p["TagKeys"]:
            self._queue(asked).tags.pop(key, None)
        return {}

    def purge_queue(self, asked: Asked) -> Json:
        queue = self._queue(asked)
        queue.messages.clear()
        queue.by_receipt.clear()
        return {}

    def send_message(self, asked: Asked) -> Json:
        return self._send(self._queue(asked), asked.p, asked.caller)

    def send_message_batch(self, asked: Asked) -> Json:
        queue = self._queue(asked)
        return self._batch("SendMessageBatch", asked, lambda entry: self._send(queue, entry, asked.caller))

    def _send(self, queue: Queue, entry: Any, caller: str) -> Json:
        if len(entry["MessageBody"].encode()) > int(queue.attributes["MaximumMessageSize"]):
            raise CloudError("InvalidParameterValue", "One or more parameters are invalid. Reason: Message too long.")
        one = self._queues.put(queue, entry["MessageBody"], attributes=entry.get("MessageAttributes"), sender=caller)
        return {"MessageId": one.message_id, "MD5OfMessageBody": md5(one.body)}

    def receive_message(self, asked: Asked) -> Json:
        most = asked.p.get("MaxNumberOfMessages", 1)
        if not 1 <= most <= _BATCH_LIMIT:
            message = f"Value {most} for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided."
            raise CloudError("InvalidParameterValue", message)
        queue = self._queue(asked)
        taken = self._queues.receive(queue, most, asked.p.get("VisibilityTimeout"))
        names = set(asked.p.get("MessageSystemAttributeNames") or []) | set(asked.p.get("AttributeNames") or [])
        shown = [_message_view(one, receipt, names) for one, receipt in taken]
        return {"Messages": shown} if shown else {}

    def wait_s(self, asked: Asked) -> float:
        """How long a receive may wait: its own word, else the queue's."""
        waits = asked.p.get("WaitTimeSeconds")
        return float(self._queue(asked).attributes["ReceiveMessageWaitTimeSeconds"] if waits is None else waits)

    def has_message(self, asked: Asked) -> bool:
        """Whether a receive would bring one now."""
        return self._queues.depth(self._queue(asked))[0] > 0

    def delete_message(self, asked: Asked) -> Json:
        self._queues.delete(self._queue(asked), asked.p["ReceiptHandle"])
        return {}

    def delete_message_batch(self, asked: Asked) -> Json:
        queue = self._queue(asked)

        def delete(entry: Json) -> Json:
            self._queues.delete(queue, entry["ReceiptHandle"])
            return {}

        return self._batch("DeleteMessageBatch", asked, delete)

    def change_message_visibility(self, asked: Asked) -> Json:
        self._change(self._queue(asked), asked.p)
        return {}

    def change_message_visibility_batch(self, asked: Asked) -> Json:
        queue = self._queue(asked)

        def change(entry: Json) -> Json:
            self._change(queue, entry)
            return {}

        return self._batch("ChangeMessageVisibilityBatch", asked, change)

    def _change(self, queue: Queue, entry: Any) -> None:
        seconds = entry.get("VisibilityTimeout", int(queue.attributes["VisibilityTimeout"]))
        if not 0 <= seconds <= _LONGEST_VISIBILITY_S:
            raise CloudError("InvalidParameterValue", f"Value {seconds} for parameter VisibilityTimeout is invalid.")
        self._queues.change_visibility(queue, entry["ReceiptHandle"], float(seconds))

    def _queue(self, asked: Asked) -> Queue:
        return self._queues.at(asked.p["QueueUrl"])

    def _batch(self, operation: str, asked: Asked, act: Callable[[Json], Json]) -> Json:
        entries = asked.p["Entries"]
        _check_batch(entries)
        answer: Json = {"Successful": [], "Failed": []}
        for entry in entries:
            try:
                self._fail_if_told(operation)
                answer["Successful"].append({"Id": entry["Id"], **act(entry)})
            except CloudError as error:
                failed = {"Id": entry["Id"], "SenderFault": error.code != "InternalError"}
                answer["Failed"].append(failed | {"Code": error.code, "Message": error.message})
        return answer

    def _fail_if_told(self, operation: str) -> None:
        if self._queues.entry_failures[operation] > 0:
            self._queues.entry_failures[operation] -= 1
            raise CloudError("InternalError", "We encountered an internal error. Please try again.")


def _check_batch(entries: list[Json]) -> None:
    if not entries:
        raise CloudError("EmptyBatchRequest", "There should be at least one entry in the request.")
    if len(entries) > _BATCH_LIMIT:
        raise CloudError("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10.")
    if len({entry["Id"] for entry in entries}) < len(entries):
        raise CloudError("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")


def _message_view(one: Message, receipt: str, names: set[str]) -> Json:
    system = {
        "SenderId": one.sender,
        "SentTimestamp": str(int(one.sent_at_s * 1000)),
        "ApproximateReceiveCount": str(len(one.receipts)),
        "ApproximateFirstReceiveTimestamp": str(int((one.first_received_at_s or one.sent_at_s) * 1000)),
    }
    view: Json = {"MessageId": one.message_id, "ReceiptHandle": receipt, "MD5OfBody": md5(one.body), "Body": one.body}
    shown = {name: value for name, value in system.items() if "All" in names or name in names}
    if shown:
        view["Attributes"] = shown
    if one.attributes:
        view["MessageAttributes"] = one.attributes
    return view
