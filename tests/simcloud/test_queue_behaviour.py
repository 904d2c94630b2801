"""SQS beyond what moto shows. Source: SQS developer guide ("at-least-once delivery", "visibility timeout") and API reference."""

from typing import Any

import pytest

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.worlds import World


class Box:
    def __init__(self, **attributes: str) -> None:
        self.world = World()
        self.url = self.world.sim.queues.create("q", attributes, {}, "http://sqs").url

    def __call__(self, operation: str, **more: Any) -> Json:
        return self.world.sim.call("sqs", operation, QueueUrl=self.url, **more)

    def receive(self, **more: Any) -> list[Json]:
        found: list[Json] = self("ReceiveMessage", MaxNumberOfMessages=10, **more).get("Messages", [])
        return found


def test_a_message_comes_again_when_its_time_is_over() -> None:
    box = Box(VisibilityTimeout="30")
    box("SendMessage", MessageBody="x")
    box.receive()
    box.world.wait(29.0)
    assert box.receive() == []
    box.world.wait(2.0)
    assert len(box.receive()) == 1


def test_a_handle_of_an_earlier_receipt_deletes_nothing_and_says_it_did() -> None:
    """Developer guide: "the request succeeds, but the message might not be deleted"."""
    box = Box()
    box("SendMessage", MessageBody="x")
    [first] = box.receive(VisibilityTimeout=0)
    [second] = box.receive(VisibilityTimeout=0)
    assert box("DeleteMessage", ReceiptHandle=first["ReceiptHandle"]) == {}
    [third] = box.receive(VisibilityTimeout=0)
    assert second["MessageId"] == third["MessageId"]
    box("DeleteMessage", ReceiptHandle=third["ReceiptHandle"])
    assert box.receive() == []


def test_a_message_that_is_visible_again_can_still_be_deleted_by_its_newest_handle() -> None:
    box = Box(VisibilityTimeout="1")
    box("SendMessage", MessageBody="x")
    [message] = box.receive()
    box.world.wait(5.0)
    box("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
    assert box.receive() == []


def test_a_deletion_twice_is_well() -> None:
    box = Box()
    box("SendMessage", MessageBody="x")
    [message] = box.receive()
    for _ in range(2):
        assert box("DeleteMessage", ReceiptHandle=message["ReceiptHandle"]) == {}


def test_what_is_no_handle_is_invalid() -> None:
    with pytest.raises(CloudError) as refused:
        Box()("DeleteMessage", ReceiptHandle="nonsense")
    assert refused.value.code == "ReceiptHandleIsInvalid"


def test_visibility_cannot_be_changed_of_what_is_not_in_flight() -> None:
    box = Box(VisibilityTimeout="1")
    box("SendMessage", MessageBody="x")
    [message] = box.receive()
    box.world.wait(5.0)
    with pytest.raises(CloudError) as refused:
        box("ChangeMessageVisibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=10)
    assert refused.value.code == "MessageNotInflight"


def test_a_message_can_be_kept_hidden_for_longer() -> None:
    box = Box(VisibilityTimeout="10")
    box("SendMessage", MessageBody="x")
    [message] = box.receive()
    box("ChangeMessageVisibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=60)
    box.world.wait(50.0)
    assert box.receive() == []
    box.world.wait(15.0)
    assert len(box.receive()) == 1


def test_entries_of_a_batch_fail_one_by_one() -> None:
    box = Box()
    box("SendMessageBatch", Entries=[{"Id": str(n), "MessageBody": "m"} for n in range(3)])
    entries = [
        {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(box.receive(VisibilityTimeout=0))
    ]
    box.world.sim.queues.entry_failures["DeleteMessageBatch"] = 1
    answer = box("DeleteMessageBatch", Entries=entries)
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]] == [("0", "InternalError", False)]
    assert [one["Id"] for one in answer["Successful"]] == ["1", "2"]
    assert len(box.receive()) == 1


@pytest.mark.parametrize(
    ("entries", "code"),
    [([], "EmptyBatchRequest"), ([{"Id": "1", "MessageBody": "a"}] * 2, "BatchEntryIdsNotDistinct")],
)
def test_bad_batches_are_refused_whole(entries: list[Json], code: str) -> None:
    with pytest.raises(CloudError) as refused:
        Box()("SendMessageBatch", Entries=entries)
    assert refused.value.code == code


def test_old_messages_are_gone() -> None:
    box = Box(MessageRetentionPeriod="300")
    box("SendMessage", MessageBody="old")
    box.world.wait(200.0)
    box("SendMessage", MessageBody="new")
    box.world.wait(101.0)
    assert [message["Body"] for message in box.receive()] == ["new"]


def test_the_counts_tell_visible_hidden_and_delayed_apart() -> None:
    box = Box(DelaySeconds="10")
    box("SendMessage", MessageBody="a")
    box.world.wait(11.0)
    box("SendMessage", MessageBody="b")
    box.receive()
    box("SetQueueAttributes", Attributes={"DelaySeconds": "0"})
    box("SendMessage", MessageBody="c")
    shown = box("GetQueueAttributes", AttributeNames=["All"])["Attributes"]
    names = ("", "NotVisible", "Delayed")
    assert [shown[f"ApproximateNumberOfMessages{name}"] for name in names] == ["1", "1", "1"]


def test_ten_thousand_messages_are_received_once_each() -> None:
    box = Box(VisibilityTimeout="600")
    for n in range(10_000):
        box.world.sim.queues.put(box.world.sim.queues.by_name["q"], str(n))
    seen: list[str] = []
    while some := box.receive():
        seen += [message["Body"] for message in some]
    assert sorted(map(int, seen)) == list(range(10_000))
