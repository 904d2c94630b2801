"""All that is shared by the fleets that work on one Auto Scaling group: readings, what was asked for, who goes first."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from scaler.act._ec2.asked import REPEATED_S, SLACK_S, Asked, Launches
from scaler.act._ec2.checks import Surroundings, Surveyor
from scaler.act._ec2.identity import Identity
from scaler.act._ec2.news import News
from scaler.act._ec2.reading import GroupReader, Reading
from scaler.act.sharing import SharedPlace
from scaler.aws.contract import Aws
from scaler.model.clock import Clock

_SHOWS_S = 60.0
"""An instance that still shows as running this long after it was told to go was not: it may be told again."""
_REMEMBERED = 1000
"""More than can leave between two readings."""
_WRITTEN_S = 60.0
"""So long what was last written to the desired capacity counts beside what Describe says."""


@dataclass(slots=True, eq=False)
class _Leaving:
    count: int
    mark: int | None = None
    """Of the first reading that counts without them; None while they are being told."""


@dataclass(slots=True)
class GroupPlace:
    """State of one group; made once and shared."""

    aws: Aws
    group: str
    clock: Clock
    reader: GroupReader
    surveyor: Surveyor
    news: News
    launches: Launches
    sharing: SharedPlace
    writing: asyncio.Lock
    sync: bool
    """It is raised by LaunchInstances; False: by the desired capacity."""
    told: dict[str, float] = field(default_factory=dict)
    """Instances that were told to go, and when: lists may show them as before for a moment."""
    _written: tuple[float, int] = float("-inf"), 0
    _leaving: list[_Leaving] = field(default_factory=list)

    def asked(self, identity: Identity, offering_id: str, nodes: int, *, own: bool = False) -> Asked:
        """The launch of that identity, remembered."""
        return self.launches.ask(
            Asked(
                identity=identity,
                client_token=identity.client_token(self.group),
                offering_id=offering_id,
                nodes=nodes,
                asked_at_s=self.aws_now_s(),
                begun_s=self.clock.monotonic_s(),
                reach_s=SLACK_S if self.sync else REPEATED_S,
                own=own,
            )
        )

    async def around(self, reading: Reading) -> Surroundings:
        """What is set up around the group, where there is one.

        Raises:
            AwsError: as `Surveyor.look`.
        """
        return Surroundings() if reading.group is None else await self.surveyor.look()

    def aws_now_s(self) -> float:
        """Now, on AWS's clock."""
        return self.clock.now_s() + (self.aws.ahead_s() or 0.0)

    def room(self, reading: Reading) -> int:
        """Instances that the group's maximum leaves room for."""
        held = max(self.desired(reading), reading.live)
        return reading.size("MaxSize") - held - self.launches.on_its_way(reading.mark)

    def desired(self, reading: Reading) -> int:
        """What the group is told to hold: never below what was last written, which Describe may not show yet."""
        at_s, written = self._written
        recent = self.clock.monotonic_s() - at_s < _WRITTEN_S
        return max(reading.desired, written) if recent else reading.desired

    def wrote_desired(self, desired: int) -> None:
        """The desired capacity was written."""
        self._written = self.clock.monotonic_s(), desired
        self.news.written.append(desired)
        self.reader.wrote()

    def may_leave(self, reading: Reading, count: int) -> str | None:
        """Why so many instances cannot leave with decrement now; None: they may.

        Checked here because AWS refuses below the minimum size only after the work is handed over (nomad-autoscaler#1290).
        """
        unread = (one for one in self._leaving if one.mark is None or one.mark > reading.mark)
        desired = reading.desired - sum(one.count for one in unread)
        minimum = reading.size("MinSize")
        if desired - count < minimum:
            return f"the group is told to hold {desired} and must hold {minimum}: lower its minimum size"
        return None

    @contextmanager
    def leaving(self, instance_ids: Collection[str]) -> Iterator[None]:
        """While these are told to go with decrement; a failure means that they stay, as far as anybody knows."""
        one = _Leaving(count=len(instance_ids))
        self._leaving.append(one)
        try:
            yield
        except BaseException:
            self._leaving.remove(one)
            raise
        finally:
            self.reader.wrote()
        one.mark = self.reader.mark
        self._left(instance_ids)

    def _left(self, instance_ids: Collection[str]) -> None:
        now_s = self.clock.monotonic_s()
        self.told = {i: at_s for i, at_s in self.told.items() if now_s - at_s < _SHOWS_S}
        self.told |= dict.fromkeys(instance_ids, now_s)
        at_s, written = self._written
        self._written = at_s, written - len(instance_ids)
        del self._leaving[:-_REMEMBERED]

    def told_just_now(self, instance_id: str) -> bool:
        """Told to go so recently that a list may not show it: a second telling might decrement a second time."""
        at_s = self.told.get(instance_id)
        return at_s is not None and self.clock.monotonic_s() - at_s < _SHOWS_S


def open_place(aws: Aws, group: str, *, clock: Clock, sync: bool) -> GroupPlace:
    """The state of a group that nobody in this process works on yet."""
    return GroupPlace(
        aws=aws,
        group=group,
        clock=clock,
        reader=GroupReader(aws, group, clock),
        surveyor=Surveyor(aws, group, clock),
        news=News(aws, group, clock),
        launches=Launches(clock),
        sharing=SharedPlace(clock),
        writing=asyncio.Lock(),
        sync=sync,
    )
