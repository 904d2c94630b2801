"""The messages in our hands, and what is to become of each. No I/O: `sqs` carries it out and tells the outcome.

    asks for nothing, or says nothing new        REMOVE at once: whoever told it first is kept, or has been recorded
    cannot be read                               BURY in the dead-letter queue, then REMOVE; without one it is left to
                                                   the queue's own redrive policy
    about an instance of ours                    kept hidden until `recorded`, or until void; a lifecycle hook moreover
                                                   until it has been completed: after the drain, or at the deadline
    about nobody we know                         kept for a minute from its first receipt, for instances that have only
                                                   just been launched; then REMOVE, and counted

Invariants
* Each message is judged on its own, and removed only by its own latest receipt.
* Memory is bounded: by our fleet's size for what is ours, by `MAX_STRANGERS` for what is not; what does not fit is left in the
  queue and comes again.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from scaler.interruptions.counts import Counts
from scaler.interruptions.messages.parsed import BlockEnding, LifecycleHook, Malformed, Parsed, Told
from scaler.interruptions.queue.standing import Key, Standing
from scaler.interruptions.queue.wire import Message
from scaler.model.interruption import InterruptionNotice, NoticeKind

MAX_STRANGERS = 10_000
_MAX_LEFT = 1_000
"""Message ids remembered, so that one that is left to be redriven is counted once."""
_RESOLVE_AGAIN_S = 5.0


class Stage(StrEnum):
    """What a message in our hands waits for."""

    WAITING = "waiting"
    BURY = "bury"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Now, on the cloud's clock and on one that never goes back."""

    cloud_s: float
    monotonic_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRules:
    """Times in seconds."""

    hidden_s: int = 20
    """A message is hidden so long at a time: after a crash it comes again no later than that."""
    grace_s: float = 60.0
    """Kept so long, from its first receipt, for somebody to know its instance."""
    dead_letters: bool = False
    """Whether there is a queue for what cannot be read."""


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A message in our hands."""

    message: Message
    stage: Stage
    hidden_until_s: float
    """Monotonic."""
    grace_until_s: float
    """Monotonic."""
    keys: tuple[Key, ...] = ()
    hook: LifecycleHook | None = None
    hook_due_at_s: float = 0.0
    """Cloud's clock."""
    drained: bool = False
    hook_done: bool = False
    block: BlockEnding | None = None
    """A block whose instances have not been asked for yet."""
    ask_again_at_s: float = 0.0
    """Monotonic."""


@dataclass(slots=True)
class Work:
    """What is due now."""

    hide: list[tuple[Held, int]] = field(default_factory=list)
    remove: list[Held] = field(default_factory=list)
    bury: list[Held] = field(default_factory=list)
    resolve: list[Held] = field(default_factory=list)
    complete: list[Held] = field(default_factory=list)


class Inbox:
    """See the module's docstring."""

    def __init__(self, rules: InboxRules, standing: Standing, counts: Counts) -> None:
        self._rules = rules
        self._standing = standing
        self._counts = counts
        self._held: dict[str, Held] = {}
        self._left: OrderedDict[str, None] = OrderedDict()
        self._hooks: set[tuple[str, str, str]] = set()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, message: Message, parsed: Parsed, now: Moment) -> bool:
        """Take a received message in; True where it tells something new."""
        again = self._held.get(message.message_id)
        if again is not None:
            again.message, again.hidden_until_s = message, now.monotonic_s + self._rules.hidden_s
            self._counts.duplicates += 1
            return False
        if isinstance(parsed, Told):
            return self._take_told(message, parsed, now)
        if isinstance(parsed, Malformed):
            self._take_malformed(message, now)
        elif isinstance(parsed, BlockEnding):
            self._hold(message, Stage.WAITING, now).block = parsed
        else:
            self._counts.ignored += 1
            self._hold(message, Stage.REMOVE, now)
        return False

    def resolved(self, held: Held, instance_ids: frozenset[str]) -> None:
        """The instances of the capacity block that `held` is about."""
        if held.block is not None:
            end, held.block = held.block, None
            self._claim(held, tuple(_block_notice(end, instance_id) for instance_id in sorted(instance_ids)))

    def unresolved(self, held: Held, now: Moment) -> None:
        """Nobody could say which instances they are; ask again in a while."""
        held.ask_again_at_s = now.monotonic_s + _RESOLVE_AGAIN_S

    def buried(self, held: Held) -> None:
        """It is in the dead-letter queue."""
        self._counts.dead_lettered += 1
        held.stage = Stage.REMOVE

    def hidden(self, held: Held, seconds: int, now: Moment) -> None:
        """It stays hidden for so long from now."""
        held.hidden_until_s = now.monotonic_s + seconds

    def gone(self, held: Held) -> None:
        """It has left the queue, or its receipt is void and it comes again."""
        if self._held.pop(held.message.message_id, None) is not None:
            for key in held.keys:
                self._standing.let_go(key)
            if held.hook is not None:
                self._hooks.discard(_hook_key(held.hook))

    def drained(self, instance_ids: frozenset[str]) -> None:
        """See `NoticeSource.drained`."""
        for held in self._held.values():
            if held.hook is not None and held.hook.instance_id in instance_ids:
                held.drained = True

    def oldest_age_s(self, now: Moment) -> float:
        """Age of the oldest message that waits for its action to be recorded; 0 where none does."""
        waiting = (
            now.cloud_s - held.message.sent_at_s
            for held in self._held.values()
            if held.stage is Stage.WAITING and any(self._pending(key, now) for key in held.keys)
        )
        return max(waiting, default=0.0)

    def due(self, now: Moment) -> Work:
        """Judge every message anew."""
        work = Work()
        for held in self._held.values():
            if held.stage is Stage.WAITING:
                self._judge(held, work, now)
            if held.stage is Stage.REMOVE:
                work.remove.append(held)
                continue
            if held.stage is Stage.BURY:
                work.bury.append(held)
            if held.hidden_until_s - now.monotonic_s <= self._rules.hidden_s / 2:
                work.hide.append((held, self._hide_s(held, now)))
        self._standing.prune(now.cloud_s)
        return work

    def _take_told(self, message: Message, told: Told, now: Moment) -> bool:
        new_hook = told.hook is not None and _hook_key(told.hook) not in self._hooks
        if not new_hook and not any(self._standing.is_news(notice) for notice in told.notices):
            self._counts.duplicates += 1
            for notice in told.notices:
                self._standing.note(notice)
            self._hold(message, Stage.REMOVE, now)
            return False
        if len(self._held) >= MAX_STRANGERS and not any(self._standing.ours(_key(each)) for each in told.notices):
            return False
        held = self._hold(message, Stage.WAITING, now)
        self._claim(held, told.notices)
        if told.hook is not None:
            held.hook = told.hook
            held.hook_due_at_s = min((n.deadline_s for n in told.notices if n.deadline_s is not None), default=0.0)
            self._hooks.add(_hook_key(told.hook))
        return True

    def _take_malformed(self, message: Message, now: Moment) -> None:
        if message.message_id not in self._left:
            self._counts.malformed += 1
        if self._rules.dead_letters:
            self._hold(message, Stage.BURY, now)
            return
        self._left[message.message_id] = None
        while len(self._left) > _MAX_LEFT:
            self._left.popitem(last=False)

    def _hold(self, message: Message, stage: Stage, now: Moment) -> Held:
        waited_s = min(max(0.0, now.cloud_s - message.first_received_at_s), self._rules.grace_s)
        held = Held(
            message=message,
            stage=stage,
            hidden_until_s=now.monotonic_s + self._rules.hidden_s,
            grace_until_s=now.monotonic_s + self._rules.grace_s - waited_s,
        )
        self._held[message.message_id] = held
        return held

    def _claim(self, held: Held, notices: tuple[InterruptionNotice, ...]) -> None:
        self._counts.received += sum(not self._standing.known(notice) for notice in notices)
        held.keys = tuple(self._standing.note(notice) for notice in notices)
        for key in held.keys:
            self._standing.hold(key)

    def _judge(self, held: Held, work: Work, now: Moment) -> None:
        if held.block is not None:
            if now.monotonic_s >= held.ask_again_at_s:
                work.resolve.append(held)
            return
        ours = [key for key in held.keys if self._standing.ours(key)]
        if ours and held.hook is not None and not held.hook_done:
            if held.drained or now.cloud_s >= held.hook_due_at_s:
                work.complete.append(held)
            return
        strangers = [key for key in held.keys if key not in ours]
        in_grace = (strangers or not ours) and now.monotonic_s < held.grace_until_s
        if not in_grace and not any(self._pending(key, now) for key in ours):
            self._count_end(ours, strangers)
            held.stage = Stage.REMOVE

    def _pending(self, key: Key, now: Moment) -> bool:
        """Whether its action is still to be recorded."""
        recorded_or_void = self._standing.is_recorded(key) or self._standing.is_void(key, now.cloud_s)
        return not recorded_or_void and self._standing.ours(key)

    def _count_end(self, ours: list[Key], strangers: list[Key]) -> None:
        self._counts.expired += sum(not self._standing.is_recorded(key) for key in ours)
        foreign = sum(self._standing.foreign(key) for key in strangers)
        self._counts.foreign += foreign
        self._counts.unknown += len(strangers) - foreign + (not ours and not strangers)

    def _hide_s(self, held: Held, now: Moment) -> int:
        """A stranger's message is hidden once for all of its grace; ours no longer than a crash may delay them."""
        if any(self._standing.ours(key) for key in held.keys) or held.stage is Stage.BURY:
            return self._rules.hidden_s
        return self._rules.hidden_s + ceil(max(0.0, held.grace_until_s - now.monotonic_s))


def _key(notice: InterruptionNotice) -> Key:
    return notice.instance_id, notice.kind


def _hook_key(hook: LifecycleHook) -> tuple[str, str, str]:
    return hook.instance_id, hook.group, hook.hook


def _block_notice(end: BlockEnding, instance_id: str) -> InterruptionNotice:
    return InterruptionNotice(
        instance_id=instance_id,
        kind=NoticeKind.CAPACITY_RESERVATION_END,
        noticed_at_s=end.noticed_at_s,
        deadline_s=end.deadline_s,
    )
