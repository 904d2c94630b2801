"""Notices from the cluster's SQS queue: EventBridge's events, Auto Scaling's lifecycle hooks, AWS Health.

Several receivers poll at once, one tender carries out what the inbox decides (`queue.inbox` has the rules): a message is
deleted only once its action is recorded, stays hidden meanwhile, and comes again after a crash. Notices are on the cloud's
clock. Foreign and malformed messages are counted and never stop anything; the same holds for a queue that is away, which
makes the source unhealthy and is asked again with back-off.
Invariant: nothing is received from a queue that does not carry our cluster's tag: its messages are other people's.
Non-goals: draining, and who owns an instance.

Calls: sqs ListQueueTags, ReceiveMessage, DeleteMessageBatch, ChangeMessageVisibilityBatch; SendMessage to the dead-letter
queue; ec2 DescribeInstances for capacity blocks; autoscaling CompleteLifecycleAction for hooks. Each receiver's long poll holds
one of the threads that `Aws` has for them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from scaler.aws.contract import Aws, AwsError, AwsFault
from scaler.interruptions.base import InstanceOwner, SourceHealth
from scaler.interruptions.counts import Counts
from scaler.interruptions.messages.parsed import Ignored, IgnoredReason, LifecycleHook, Malformed, Parsed
from scaler.interruptions.messages.table import parse
from scaler.interruptions.queue.inbox import Held, Inbox, InboxRules, Moment, Work
from scaler.interruptions.queue.standing import Standing
from scaler.interruptions.queue.wire import CLUSTER_TAG, EntryOutcome, Message, SqsQueue, batches
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice

log = structlog.get_logger()

_LOOK_S = 1.0
"""How often messages in our hands are judged anew, whether anything happened or not."""
_LONGEST_RETRY_S = 30.0
_CALLS_AT_ONCE = 8
"""Hundreds of messages have to stay hidden where a call takes a fifth of a second, too."""
_HOOK_GONE = "no active lifecycle action"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsSettings:
    """The queue, and whose instances it may speak of."""

    aws: Aws
    queue_url: str
    cluster_uid: str
    """UID of the `kube-system` namespace, which the queue's tag `headrace.dev/cluster` must name."""
    owner: InstanceOwner
    dead_letter_url: str | None = None
    receivers: int = 3
    wait_s: int = 10
    rules: InboxRules = field(default_factory=InboxRules)
    """`dead_letters` in it follows from `dead_letter_url`."""


class QueueRefused(Exception):
    """The queue is not this cluster's."""


class SqsNotices:
    """A `NoticeSource`; see the module's docstring."""

    def __init__(self, settings: SqsSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._queue = SqsQueue(settings.aws, settings.queue_url)
        self._graveyard = SqsQueue(settings.aws, settings.dead_letter_url) if settings.dead_letter_url else None
        self._counts = Counts()
        self._standing = Standing(settings.owner)
        self._rules = replace(settings.rules, dead_letters=self._graveyard is not None)
        self._inbox = Inbox(self._rules, self._standing, self._counts)
        self._news = asyncio.Event()
        self._due = asyncio.Event()
        self._answered_at_s: float | None = None
        self._wrong: dict[str, str] = {}

    async def current(self) -> tuple[InterruptionNotice, ...]:
        """All standing notices about instances of ours, by deadline, on the cloud's clock."""
        self._news.clear()
        return self._standing.tell(self._now().cloud_s)

    async def changed(self) -> None:
        """Return when there may be something new."""
        await self._news.wait()
        self._news.clear()

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """What `current` told of these instances is recorded: its messages may leave the queue."""
        self._standing.recorded(instance_ids)
        self._due.set()

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """Nothing is left to hand over on these instances: their lifecycle hooks may go on."""
        self._inbox.drained(instance_ids)
        self._due.set()

    def health(self) -> SourceHealth:
        """Counters since start, the queue's age and what is wrong."""
        away = self._answered_at_s is None or "receive" in self._wrong
        age_s = None if away else self._inbox.oldest_age_s(self._now())
        error = "; ".join(self._wrong[each] for each in sorted(self._wrong))
        return self._counts.health(self._answered_at_s, error=error, queue_age_s=age_s)

    async def run(self) -> None:
        """Receive and tend until cancelled; begins once the queue has shown that it is ours."""
        async for attempt in self._again((AwsError, QueueRefused), "admit"):
            with attempt:
                await self._admit()
        self._wrong.pop("admit", None)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.receivers):
                group.create_task(self._receive())
            group.create_task(self._tick())
            group.create_task(self._tend())

    async def _admit(self) -> None:
        await check_owner(self._queue, self._settings.queue_url, self._settings.cluster_uid)

    async def _receive(self) -> None:
        while True:
            async for attempt in self._again((AwsError,), "receive"):
                with attempt:
                    messages = await self._queue.receive(
                        wait_s=self._settings.wait_s, hidden_s=self._rules.hidden_s, now_s=self._now().cloud_s
                    )
            self._wrong.pop("receive", None)
            self._answered_at_s = self._clock.now_s()
            self._take(messages)

    def _take(self, messages: Sequence[Message]) -> None:
        now = self._now()
        for message in messages:
            parsed = parse(message.body, sent_at_s=message.sent_at_s)
            _tell(message, parsed)
            if self._inbox.take(message, parsed, now):
                self._news.set()
        if messages:
            self._due.set()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            self._due.set()

    async def _tend(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await self._carry_out(self._inbox.due(self._now()))
            if self._standing.untold(self._now().cloud_s):
                self._news.set()

    async def _carry_out(self, work: Work) -> None:
        """What keeps messages comes first: a late receipt costs a second delivery."""
        calls = [("hide", partial(self._hide, batch)) for batch in batches(work.hide)]
        calls += [("delete", partial(self._remove, batch)) for batch in batches(work.remove)]
        calls += [("dead-letter", partial(self._bury, held)) for held in work.bury]
        calls += [("capacity block", partial(self._resolve, held)) for held in work.resolve]
        calls += [("lifecycle hook", partial(self._complete, held)) for held in work.complete]
        free = asyncio.Semaphore(_CALLS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for activity, call in calls:
                group.create_task(self._tried(activity, call, free))

    async def _tried(self, activity: str, call: Callable[[], Awaitable[None]], free: asyncio.Semaphore) -> None:
        """A failure is shown and tried again at the next look; it stops nothing else."""
        try:
            async with free:
                await call()
        except AwsError as error:
            self._note(activity, error)
        else:
            self._wrong.pop(activity, None)

    async def _hide(self, batch: Sequence[tuple[Held, int]]) -> None:
        outcomes = await self._queue.hide([(held.message.handle, seconds) for held, seconds in batch])
        for (held, seconds), outcome in zip(batch, outcomes, strict=True):
            if outcome is EntryOutcome.DONE:
                self._inbox.hidden(held, seconds, self._now())
            elif outcome is EntryOutcome.GONE:
                self._inbox.gone(held)

    async def _remove(self, batch: Sequence[Held]) -> None:
        outcomes = await self._queue.remove([held.message.handle for held in batch])
        for held, outcome in zip(batch, outcomes, strict=True):
            if outcome is not EntryOutcome.FAILED:
                self._inbox.gone(held)

    async def _bury(self, held: Held) -> None:
        if self._graveyard is not None:
            await self._graveyard.send(held.message.body)
            self._inbox.buried(held)
            self._due.set()

    async def _resolve(self, held: Held) -> None:
        if held.block is None:
            return
        try:
            self._inbox.resolved(held, await _members(self._settings.aws, held.block.reservation_id))
        except AwsError:
            self._inbox.unresolved(held, self._now())
            raise
        self._due.set()

    async def _complete(self, held: Held) -> None:
        if held.hook is not None:
            await _complete(self._settings.aws, held.hook)
            held.hook_done = True
            log.info("lifecycle_hook_completed", instance=held.hook.instance_id, group=held.hook.group)
            self._due.set()

    def _again(self, kinds: tuple[type[Exception], ...], activity: str) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(kinds),
            wait=wait_random_exponential(multiplier=0.5, max=_LONGEST_RETRY_S),
            sleep=self._clock.sleep,
            before_sleep=lambda state: self._note(activity, _error(state)),
        )

    def _note(self, activity: str, error: BaseException | None) -> None:
        text = f"{activity}: {error}"
        if activity not in self._wrong:
            log.warning("notice_queue_trouble", activity=activity, error=str(error))
        self._wrong[activity] = text

    def _now(self) -> Moment:
        ahead_s = self._settings.aws.ahead_s() or 0.0
        return Moment(cloud_s=self._clock.now_s() + ahead_s, monotonic_s=self._clock.monotonic_s())


async def check_owner(queue: SqsQueue, url: str, cluster_uid: str) -> None:
    """`QueueRefused` where the queue does not carry this cluster's tag; `AwsError` where it does not answer."""
    cluster = await queue.cluster()
    if cluster != cluster_uid:
        named = f"names cluster {cluster!r}" if cluster else "is missing"
        raise QueueRefused(f"queue {url} is refused: its tag {CLUSTER_TAG} {named}, ours is {cluster_uid!r}")


def make(settings: object, *, clock: Clock) -> SqsNotices:
    """The source of a queue; `TypeError` where the settings are another source's."""
    if not isinstance(settings, SqsSettings):
        raise TypeError(f"a queue takes SqsSettings, not {type(settings).__name__}")
    return SqsNotices(settings, clock=clock)


async def _members(aws: Aws, reservation_id: str) -> frozenset[str]:
    """The instances that run in a capacity reservation."""
    filters = [{"Name": "capacity-reservation-id", "Values": [reservation_id]}]
    reservations = await aws.pages("ec2", "DescribeInstances", "Reservations", Filters=filters)
    return frozenset(_ids(reservations))


def _ids(reservations: Iterable[dict[str, list[dict[str, str]]]]) -> Iterable[str]:
    return (instance["InstanceId"] for each in reservations for instance in each.get("Instances", ()))


async def _complete(aws: Aws, hook: LifecycleHook) -> None:
    """Let the instance go on; one that has gone on already is success."""
    named = {"LifecycleActionToken": hook.token} if hook.token else {"InstanceId": hook.instance_id}
    try:
        await aws.call(
            "autoscaling",
            "CompleteLifecycleAction",
            AutoScalingGroupName=hook.group,
            LifecycleHookName=hook.hook,
            LifecycleActionResult="CONTINUE",
            **named,
        )
    except AwsError as error:
        if error.fault is not AwsFault.NOT_FOUND and _HOOK_GONE not in str(error).lower():
            raise


def _tell(message: Message, parsed: Parsed) -> None:
    if isinstance(parsed, Malformed):
        log.warning("notice_malformed", message=message.message_id, reason=parsed.reason)
    elif isinstance(parsed, Ignored) and parsed.reason is IgnoredReason.UNKNOWN_KIND:
        log.warning("notice_ignored", message=message.message_id, reason=parsed.reason.value)


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
