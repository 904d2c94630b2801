"""Reads `DescribeInstances` in the SDK's place: of each instance only what is asked for anywhere in Headrace.

The SDK makes a value of everything that EC2 tells, in Python, which takes some tenths of a millisecond an instance: seconds of
processor time for one list of thousands, in threads that hold the decision loop up meanwhile. Here the fields in `_TEXTS` and
those with a structure are read, by the SDK's names and in its types, several times faster; all others are left out.
Answers come in many threads at once, and the decision loop has to share the interpreter with whoever reads one: so one is read
at a time, and XML in pieces, since the interpreter changes hands between calls and not within.
Invariants: what is no whole answer (an error, XML that is none) is left to the SDK, and so is the rest of every answer.
Source: the XML of the EC2 API reference, DescribeInstances.
"""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

EVENT = "before-parse.ec2.DescribeInstances"
"""Emitted by the SDK before it reads an answer."""
_TEXTS = {
    "instanceId": "InstanceId",
    "instanceType": "InstanceType",
    "instanceLifecycle": "InstanceLifecycle",
    "clientToken": "ClientToken",
    "capacityReservationId": "CapacityReservationId",
}
_ANSWER = '<DescribeInstancesResponse xmlns="{}"><requestId>{}</requestId></DescribeInstancesResponse>'
_GOOD = range(200, 300)
_PIECE = 1 << 15
"""Bytes of XML that are read at a go: below a millisecond."""
_one_at_a_time = threading.Lock()


def read_instances(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """A handler of `EVENT`: puts what it reads into the answer, and leaves the SDK an empty one."""
    if response_dict["status_code"] not in _GOOD:
        return
    try:
        with _one_at_a_time:
            root = _root_of(response_dict["body"])
            found = _Reader(root).answer()
    except (ET.ParseError, ValueError, KeyError):
        return
    customized_response_dict.update(found)
    space = root.tag.rpartition("}")[0].removeprefix("{")
    request_id = root.findtext(f"{{{space}}}requestId", "")
    response_dict["body"] = _ANSWER.format(escape(space), escape(request_id)).encode()


def _root_of(body: bytes) -> Element:
    parser = ET.XMLParser()  # noqa: S314 - the SDK reads the same body by the same parser
    for start in range(0, len(body), _PIECE):
        parser.feed(body[start : start + _PIECE])
    root: Element = parser.close()
    return root


class _Reader:
    """Of one answer; every tag of it is in the namespace of its root."""

    def __init__(self, root: Element) -> None:
        self._root = root
        space = root.tag.rpartition("DescribeInstancesResponse")[0]
        self._texts = {space + name: told for name, told in _TEXTS.items()}
        self._reservations = f"{space}reservationSet/{space}item"
        self._instances = f"{space}instancesSet/{space}item"
        self._next = space + "nextToken"
        self._launched, self._state, self._name = space + "launchTime", space + "instanceState", space + "name"
        self._placement, self._zone = space + "placement", space + "availabilityZone"
        self._tags, self._key, self._value = space + "tagSet", space + "key", space + "value"

    def answer(self) -> Mapping[str, Any]:
        """What the SDK's answer has."""
        reservations = [
            {"Instances": [self._instance(each) for each in reservation.iterfind(self._instances)]}
            for reservation in self._root.iterfind(self._reservations)
        ]
        following = self._root.findtext(self._next)
        return {"Reservations": reservations, **({"NextToken": following} if following else {})}

    def _instance(self, body: Element) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in body:
            tag = part.tag
            if tag in self._texts:
                found[self._texts[tag]] = part.text or ""
            elif tag == self._tags:
                found["Tags"] = self._pairs(part)
            elif tag == self._launched:
                found["LaunchTime"] = datetime.fromisoformat(part.text or "")
            elif tag == self._state:
                found["State"] = {"Name": part.findtext(self._name, "")}
            elif tag == self._placement:
                found["Placement"] = {"AvailabilityZone": part.findtext(self._zone, "")}
        return found

    def _pairs(self, tags: Iterable[Element]) -> list[dict[str, str]]:
        return [{"Key": tag.findtext(self._key, ""), "Value": tag.findtext(self._value, "")} for tag in tags]
