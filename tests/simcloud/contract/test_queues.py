import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.simcloud.contract.conftest import Cloud


@pytest.fixture
def queue(cloud: Cloud) -> tuple[Any, str]:
    sqs = cloud("sqs")
    made = sqs.create_queue(QueueName="notices", Attributes={"VisibilityTimeout": "60"}, tags={"cluster": "uid-1"})
    return sqs, made["QueueUrl"]


def receive(sqs: Any, url: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **more).get("Messages", [])
    return found


def test_a_message_is_received_once_while_it_is_hidden(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    sent = sqs.send_message(QueueUrl=url, MessageBody='{"a": 1}')
    [message] = receive(sqs, url, MessageSystemAttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], '{"a": 1}')
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert len(message["Attributes"]["SentTimestamp"]) == 13
    assert receive(sqs, url) == []


def test_a_deleted_message_does_not_come_again(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = receive(sqs, url, VisibilityTimeout=0)
    [message] = receive(sqs, url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert (
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]["ApproximateNumberOfMessages"]
        == "0"
    )


def test_a_message_made_visible_comes_again_and_counts(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = receive(sqs, url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    [again] = receive(sqs, url, MessageSystemAttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_batches_tell_of_each_entry(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(10)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == [str(n) for n in range(10)]
    handles = [message["ReceiptHandle"] for message in receive(sqs, url)]
    gone = sqs.delete_message_batch(
        QueueUrl=url, Entries=[{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
    )
    assert (len(gone["Successful"]), gone.get("Failed", [])) == (10, [])


def test_a_batch_of_eleven_is_refused(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    with pytest.raises(ClientError, match="TooManyEntriesInBatchRequest"):
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "m"} for n in range(11)])


def test_what_is_received_too_often_goes_to_the_dead_letters(cloud: Cloud, queue: tuple[Any, str]) -> None:
    sqs, url = queue
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(2):
        assert len(receive(sqs, url, VisibilityTimeout=0)) == 1
    assert receive(sqs, url, VisibilityTimeout=0) == []
    [letter] = receive(sqs, dead)
    assert (letter["MessageId"], letter["Body"]) == (sent["MessageId"], "poison")


def test_a_queue_tells_its_tags_and_attributes(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    sqs.tag_queue(QueueUrl=url, Tags={"more": "1"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"cluster": "uid-1", "more": "1"}
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert shown["VisibilityTimeout"] == "60"
    assert shown["QueueArn"].endswith(":notices")
    assert sqs.get_queue_url(QueueName="notices")["QueueUrl"] == url


def test_an_unknown_queue_is_an_error_of_its_own(cloud: Cloud) -> None:
    sqs = cloud("sqs")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.receive_message(QueueUrl=f"{cloud.address}/123456789012/none")


def test_an_empty_long_poll_ends(queue: tuple[Any, str]) -> None:
    sqs, url = queue
    assert receive(sqs, url, WaitTimeSeconds=1) == []
