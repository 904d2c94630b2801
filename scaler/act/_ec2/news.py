"""What AWS tells of a group's offerings beside its instances: failed activities, Spot prices, placement scores.

Policy: facts only, never needed for a decision to be right: what cannot be had is left out, said once, and tried again later.
Activities are read twice a minute, prices every five minutes (EC2 changes them slowly), scores once an hour (their quota is
small, and they are no guarantee). A Region or user without placement scores goes without.
"""

import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from scaler.act._ec2.members import seconds, zone_of_activity
from scaler.act.base import OfferingFacts
from scaler.aws.contract import Aws, AwsError, AwsFault
from scaler.aws.errors import classify_words
from scaler.model.capacity import CapacityType, Offering
from scaler.model.clock import Clock

log = structlog.get_logger()

_ACTIVITIES_S = 30.0
_PRICES_S = 300.0
_SCORES_S = 3600.0
_FAILED = frozenset({"Failed", "Cancelled"})
_ENDED = _FAILED | {"Successful"}
_SET_BY_USER = re.compile(r"At \S+ a user request explicitly set group desired capacity .*? to (?P<to>\d+)")
"""In an activity's cause: somebody wrote the size, by hand or by a program."""
_OF_CAPACITY = frozenset({AwsFault.INSUFFICIENT_CAPACITY, AwsFault.QUOTA})


class News:
    """See the module's docstring."""

    def __init__(self, aws: Aws, group: str, clock: Clock) -> None:
        self._aws = aws
        self._group = group
        self._clock = clock
        self._due_s: dict[str, float] = {}
        self._silent: set[str] = set()
        self._told: frozenset[str] = frozenset()
        self._zone_ids: dict[str, tuple[str, str]] = {}
        self._prices: dict[tuple[str, str], float] = {}
        self._scores: dict[tuple[str, str], int] = {}
        self.activities: tuple[Mapping[str, Any], ...] = ()
        """The group's newest, the newest first."""
        self.written: deque[int] = deque(maxlen=100)
        """Sizes that we wrote ourselves."""

    async def refresh(self, offerings: Iterable[Offering]) -> None:
        """Read what is due."""
        spot = [offering for offering in offerings if offering.capacity_type is CapacityType.SPOT]
        await self._when_due("activities", _ACTIVITIES_S, self.read_activities)
        if spot:
            await self._when_due("prices", _PRICES_S, lambda: self._read_prices(spot))
            await self._when_due("scores", _SCORES_S, lambda: self._read_scores(spot))

    async def read_activities(self) -> None:
        """Read the group's newest activities now.

        Raises:
            AwsError: they could not be had.
        """
        answer = await self._aws.call(
            "autoscaling", "DescribeScalingActivities", AutoScalingGroupName=self._group, MaxRecords=100
        )
        self.activities = tuple(answer.get("Activities", ()))
        self._tell_foreign_writes()

    def launching_by_itself(self, listed: Iterable[str]) -> int:
        """Launches of the group's own that are under way and not listed yet."""
        known = tuple(listed)
        under_way = (
            str(activity.get("Description", ""))
            for activity in self.activities
            if activity.get("StatusCode") not in _ENDED
        )
        return sum("Launching" in told and not any(i in told for i in known) for told in under_way)

    def failure(self, zone: str, since_s: float) -> tuple[AwsFault, str] | None:
        """The newest launch in that zone that failed after `since_s` (AWS's clock), and why."""
        for activity in self.activities:
            if activity.get("StatusCode") in _FAILED and zone_of_activity(activity) in (zone, ""):
                if seconds(activity.get("StartTime"), 0.0) < since_s:
                    continue
                words = str(activity.get("StatusMessage", ""))
                return classify_words(words), words
        return None

    def facts(self, offerings: Iterable[Offering]) -> Mapping[str, OfferingFacts]:
        """What is known of these offerings, by id."""
        return {offering.offering_id: self._facts(offering) for offering in offerings}

    def _facts(self, offering: Offering) -> OfferingFacts:
        key = offering.instance_type, offering.zone
        spot = offering.capacity_type is CapacityType.SPOT
        return OfferingFacts(
            price_usd_per_h=self._prices.get(key) if spot else None,
            placement_score=self._scores.get(key) if spot else None,
            refused_at_s=self._refused_at_s(offering.zone),
        )

    def _refused_at_s(self, zone: str) -> float | None:
        times = [
            seconds(activity.get("StartTime"), 0.0)
            for activity in self.activities
            if activity.get("StatusCode") in _FAILED
            and zone_of_activity(activity) == zone
            and classify_words(str(activity.get("StatusMessage", ""))) in _OF_CAPACITY
        ]
        return max(times) - (self._aws.ahead_s() or 0.0) if times else None

    def _tell_foreign_writes(self) -> None:
        """Each absolute write of the size by somebody else is told once; nothing else follows from it."""
        found = (_SET_BY_USER.search(str(item.get("Cause", ""))) for item in self.activities)
        writes = {match.group(): int(match.group("to")) for match in found if match}
        for cause, desired in writes.items():
            if cause not in self._told and desired not in self.written:
                log.warning("desired_capacity_was_set", group=self._group, cause=cause)
        self._told = frozenset(writes)

    async def _when_due(self, what: str, every_s: float, read: Callable[[], Awaitable[None]]) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s.get(what, float("-inf")):
            return
        self._due_s[what] = now_s + every_s
        try:
            await read()
        except AwsError as error:
            if what not in self._silent:
                log.warning("offering_facts_missing", what=what, group=self._group, error=str(error))
            self._silent.add(what)
        else:
            self._silent.discard(what)

    async def _read_prices(self, spot: Iterable[Offering]) -> None:
        """With a start of now EC2 tells the price in force of each type and zone; the newest counts where it tells more."""
        found = await self._aws.pages(
            "ec2",
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            InstanceTypes=sorted({offering.instance_type for offering in spot}),
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.fromtimestamp(self._clock.now_s() + (self._aws.ahead_s() or 0.0), UTC),
        )
        oldest_first = sorted(found, key=lambda item: seconds(item.get("Timestamp"), 0.0))
        self._prices |= {
            (str(item["InstanceType"]), str(item["AvailabilityZone"])): float(item["SpotPrice"])
            for item in oldest_first
        }

    async def _read_scores(self, spot: Iterable[Offering]) -> None:
        """Scores come by zone id, and zone ids differ from account to account."""
        if not self._zone_ids:
            zones = (await self._aws.call("ec2", "DescribeAvailabilityZones"))["AvailabilityZones"]
            self._zone_ids = {str(z["ZoneId"]): (str(z["ZoneName"]), str(z["RegionName"])) for z in zones}
        for instance_type in sorted({offering.instance_type for offering in spot}):
            found = await self._aws.pages(
                "ec2",
                "GetSpotPlacementScores",
                "SpotPlacementScores",
                InstanceTypes=[instance_type],
                TargetCapacity=1,
                SingleAvailabilityZone=True,
                RegionNames=sorted({region for _, region in self._zone_ids.values()}),
            )
            self._scores |= {
                (instance_type, self._zone_ids[item["AvailabilityZoneId"]][0]): int(item["Score"])
                for item in found
                if item.get("AvailabilityZoneId") in self._zone_ids
            }
