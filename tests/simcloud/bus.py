"""Events as EventBridge puts them into queues: late, twice and out of order where the settings say so.

Shapes: EC2 user guide ("Spot Instance interruption notices", "Instance rebalance recommendations", "State change events"),
Auto Scaling user guide ("EventBridge event reference"), AWS Health user guide. A subscription with kinds takes those
`detail-type`s only, as a rule's pattern does.
"""

import json
from dataclasses import dataclass

from tests.simcloud.asked import Json
from tests.simcloud.kernel import Kernel, as_date, iso
from tests.simcloud.queues import Queues
from tests.simcloud.settings import Settings, draw

SPOT_INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
RESERVATION_INTERRUPTION = "EC2 Capacity Reservation Instance Interruption Warning"
HEALTH = "AWS Health Event"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A rule with a queue as its target."""

    queue: str
    kinds: frozenset[str] | None


class Bus:
    """See the module's docstring."""

    def __init__(self, kernel: Kernel, settings: Settings, queues: Queues) -> None:
        self._kernel = kernel
        self._settings = settings
        self._queues = queues
        self._subscriptions: list[Subscription] = []

    def subscribe(self, queue: str, kinds: frozenset[str] | None = None) -> None:
        """Put events into the queue of that name; `kinds` None: all."""
        self._subscriptions.append(Subscription(queue, kinds))

    def emit(self, kind: str, source: str, resources: list[str], detail: Json) -> Json:
        """An event of now, to every queue that wants it; returns it."""
        event: Json = {
            "version": "0",
            "id": self._kernel.uuid(),
            "detail-type": kind,
            "source": source,
            "account": self._settings.account,
            "time": iso(self._kernel.now_s()),
            "region": self._settings.region,
            "resources": resources,
            "detail": detail,
        }
        for one in self._subscriptions:
            if one.kinds is None or kind in one.kinds:
                self.deliver(one.queue, json.dumps(event))
        return event

    def deliver(self, queue: str, body: str) -> None:
        """A body into a queue, at the service's leisure."""
        copies = 2 if self._kernel.rng.random() < self._settings.event_copies_ratio else 1
        for _ in range(copies):
            delay_s = draw(self._kernel, self._settings.event_delay_s)
            if delay_s <= 0:
                self._put(queue, body)
            else:
                self._kernel.after(delay_s, lambda: self._put(queue, body))

    def _put(self, queue: str, body: str) -> None:
        target = self._queues.by_name.get(queue)
        if target is not None:
            self._queues.put(target, body)

    def about_instance(self, kind: str, instance_id: str, **detail: str) -> Json:
        """An EC2 event about one instance."""
        arn = f"arn:aws:ec2:{self._settings.region}:{self._settings.account}:instance/{instance_id}"
        return self.emit(kind, "aws.ec2", [arn], {"instance-id": instance_id, **detail})

    def health(self, code: str, instance_ids: list[str], *, start_s: float, end_s: float, text: str) -> Json:
        """A scheduled change of AWS Health, about one or more instances."""
        communication = self._kernel.uuid()
        region = self._settings.region
        detail: Json = {
            "eventArn": f"arn:aws:health:{region}::event/EC2/{code}/{code}_{communication}",
            "service": "EC2",
            "eventTypeCode": code,
            "eventTypeCategory": "scheduledChange",
            "eventScopeCode": "ACCOUNT_SPECIFIC",
            "communicationId": communication,
            "startTime": _health_time(start_s),
            "endTime": _health_time(end_s),
            "lastUpdatedTime": _health_time(self._kernel.now_s()),
            "statusCode": "upcoming",
            "eventRegion": region,
            "eventDescription": [{"language": "en_US", "latestDescription": text}],
            "affectedEntities": [{"entityValue": instance_id, "tags": {}} for instance_id in instance_ids],
            "page": "1",
            "totalPages": "1",
            "affectedAccount": self._settings.account,
        }
        return self.emit(HEALTH, "aws.health", list(instance_ids), detail)


def _health_time(at_s: float) -> str:
    return as_date(at_s).strftime("%a, %d %b %Y %H:%M:%S GMT")
