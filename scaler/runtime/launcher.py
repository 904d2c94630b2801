"""Carries launches out, each by its persisted intent.

Invariants: an intent is written before its first call and is repeated with the same token until it is answered, refused
or settled by a list, so that a crash or a time-out in between launches nothing twice. Calls run beside the loop; what
they answer is written with the next tick, and losing that costs one harmless repeat.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from scaler.act.base import LaunchOutcome, LaunchResult, PoolActor, PoolObservation, PoolUnavailable
from scaler.model.clock import Clock
from scaler.model.plan import LaunchReplica
from scaler.model.spec import PoolSpec
from scaler.observe.intents import Intent, came_and_went, is_over
from scaler.observe.offerings import OfferingMemory
from scaler.runtime.leadership import always, never
from scaler.runtime.outcomes import Outcome, Outcomes
from scaler.telemetry.metrics import Metrics

log = structlog.get_logger()

_AT_ONCE = 32
"""Launch calls in flight; providers throttle beyond some tens a second."""
_GIVES_WAY_S = 3.0
"""A replacement takes minutes to come: seconds of them are better spent on the nodes that go."""
_GIVES_WAY_LOOK_S = 0.1
THROTTLE_WAIT_S = 2.0
_THROTTLE_MAX_S = 60.0
_VISIBLE_WITHIN_S = 5.0
"""A launched instance shows in lists that are made this much later; providers' lists lag their answers by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentChanges:
    """What the journal has to be told."""

    put: tuple[Intent, ...]
    over: tuple[str, ...]


class Launcher:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        clock: Clock,
        offerings: OfferingMemory,
        outcomes: Outcomes,
        metrics: Metrics,
        time_out_s: float = 30.0,
        may_act: Callable[[], bool] = always,
        urgent: Callable[[], bool] = never,
    ) -> None:
        """`urgent`: whether noticed nodes are being marked, which launches give way to for a few seconds."""
        self._clock = clock
        self._offerings = offerings
        self._outcomes = outcomes
        self._metrics = metrics
        self._time_out_s = time_out_s
        self._may_act = may_act
        self._urgent = urgent
        self._giving_way = False
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._intents: dict[str, Intent] = {}
        self._decisions: dict[str, int] = {}
        self._in_flight: set[str] = set()
        self._left: set[str] = set()
        """Tokens of launches that an earlier controller left: what it saw of them, and ended, is not known."""
        self._to_be_seen: set[str] = set()
        """Tokens of our launches of which an answer named an instance, and whose pool has been listed ever since."""
        self._held: dict[str, tuple[float, float]] = {}
        """Pool -> until when its provider is left alone (monotonic), and for how long that was."""
        self.refused: Callable[[], None] = lambda: None
        """Called at every refusal."""
        self._put: dict[str, Intent] = {}
        self._over: list[str] = []

    @property
    def intents(self) -> tuple[Intent, ...]:
        """Launches that nothing has settled yet."""
        return tuple(self._intents.values())

    @property
    def unanswered(self) -> tuple[Intent, ...]:
        """Those that nobody has answered, and that no call is under way for."""
        return tuple(each for each in self.intents if each.answered_at_s is None and each.token not in self._in_flight)

    def adopt(self, intents: Iterable[Intent]) -> None:
        """Take over what an earlier controller left."""
        left = {intent.token: intent for intent in intents}
        self._intents |= left
        self._left |= left.keys()

    def intend(self, commands: Iterable[LaunchReplica]) -> None:
        """Remember new launches; they are called for once the journal has them."""
        for command in commands:
            self._keep(Intent(command=command, decided_at_s=self._clock.now_s()))

    def forget(self, token: str) -> bool:
        """Give a request up that no instance ever answered; False where there is none."""
        if self._intents.pop(token, None) is None:
            return False
        self._decisions.pop(token, None)
        self._put.pop(token, None)
        self._left.discard(token)
        self._to_be_seen.discard(token)
        self._over.append(token)
        return True

    def settle(
        self,
        pools: Mapping[str, PoolObservation],
        specs: Mapping[str, PoolSpec],
        *,
        away: frozenset[str] = frozenset(),
        lists_apart_s: float = 0.0,
    ) -> None:
        """Drop what complete lists have settled, and what belongs to pools that are no more.

        `away`: pools that could not be listed of late. `lists_apart_s`: how far apart lists of one that can be may lie.
        """
        for intent in self.intents:
            pool = intent.command.pool
            spec, listed = specs.get(pool), pools.get(pool)
            if pool in away:
                self._to_be_seen.discard(intent.token)
            if spec is None or (listed and is_over(intent, listed, _VISIBLE_WITHIN_S, spec.launch_timeout_s)):
                if spec and listed and came_and_went(intent, listed, _VISIBLE_WITHIN_S, lists_apart_s):
                    self._went(intent)
                self.forget(intent.token)

    def _went(self, intent: Intent) -> None:
        if intent.token not in self._to_be_seen:
            return
        command, now_s, asked_at_s = intent.command, self._clock.now_s(), intent.decided_at_s
        self._offerings.lost(command.pool, command.offering_id, now_s, was_ready=False, asked_at_s=asked_at_s)
        seq = self._decisions.get(intent.token, 0)
        self._outcomes.record(command, seq, Outcome.LOST, "it was launched, and went before any list showed it")

    def changes(self) -> IntentChanges:
        """Changes since the last call."""
        changes = IntentChanges(put=tuple(self._put.values()), over=tuple(self._over))
        self._put, self._over = {}, []
        return changes

    def start(self, group: asyncio.TaskGroup, actors: Mapping[str, PoolActor], seq: int) -> None:
        """Call for every launch that is neither answered nor being called for; returns at once."""
        if not self._urgent():
            self._start(group, actors, seq, self.intents)
        elif not self._giving_way:
            self._giving_way = True
            group.create_task(self._start_later(group, actors, seq, self.intents))

    async def _start_later(
        self, group: asyncio.TaskGroup, actors: Mapping[str, PoolActor], seq: int, intents: Sequence[Intent]
    ) -> None:
        """These only: what was intended since may not be in the journal, or be wanted of a paused fleet."""
        until_s = self._clock.monotonic_s() + _GIVES_WAY_S
        while self._urgent() and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(_GIVES_WAY_LOOK_S)
        self._giving_way = False
        # As they are by now: a turn that did not give way may have had some of them launched meanwhile.
        self._start(group, actors, seq, [self._intents[each.token] for each in intents if each.token in self._intents])

    def _start(
        self, group: asyncio.TaskGroup, actors: Mapping[str, PoolActor], seq: int, intents: Sequence[Intent]
    ) -> None:
        for intent in intents:
            if self._is_due(intent) and intent.command.pool in actors:
                decision = self._decisions.setdefault(intent.token, seq)
                self._in_flight.add(intent.token)
                group.create_task(self._launch(intent, actors[intent.command.pool], decision))

    async def replay(self, actors: Mapping[str, PoolActor], seq: int) -> None:
        """Repeat what was never answered, and wait for it."""
        async with asyncio.TaskGroup() as group:
            self._start(group, actors, seq, self.intents)

    async def _launch(self, intent: Intent, actor: PoolActor, seq: int) -> None:
        command = intent.command
        try:
            async with self._slots, asyncio.timeout(self._time_out_s):
                if intent.token not in self._intents or self._waits(intent) or not self._may_act():
                    return  # given up meanwhile, or to be left alone, or somebody else leads
                answer = await actor.launch(command)
        except (PoolUnavailable, TimeoutError, OSError) as error:
            self._outcomes.record(command, seq, Outcome.UNAVAILABLE, repr(error))
        except Exception as error:
            log.exception("pool_adapter_broken", pool=command.pool)
            self._outcomes.record(command, seq, Outcome.BROKEN, repr(error))
        else:
            self._answered(intent, answer, seq)
        finally:
            self._in_flight.discard(intent.token)

    def _answered(self, intent: Intent, answer: LaunchOutcome, seq: int) -> None:
        command, now_s = intent.command, self._clock.now_s()
        if answer.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY):
            if intent.token in self._intents:
                self._keep(replace(intent, answered_at_s=now_s))
                if answer.instance_id and intent.token not in self._left:
                    self._to_be_seen.add(intent.token)
            self._held.pop(command.pool, None)
            self._offerings.launched(command.pool, command.offering_id)
            outcome = Outcome.DONE if answer.result is LaunchResult.LAUNCHED else Outcome.ALREADY
            self._outcomes.record(command, seq, outcome, answer.instance_id or "")
            return
        if answer.result is LaunchResult.THROTTLED:
            # Says nothing about the offering: the intent stays, and is called for again a little later.
            self._throttled(command.pool)
            self._outcomes.record(command, seq, Outcome.UNAVAILABLE, f"{answer.result}: {answer.message}")
            return
        self.forget(intent.token)
        why = f"{answer.result}: {answer.message}"
        self._offerings.refused(command.pool, command.offering_id, now_s, intent.decided_at_s, why)
        if answer.result is LaunchResult.QUOTA:
            self._offerings.out_of_quota(command.offering_id, now_s, intent.decided_at_s, why)
        self._metrics.refusals.labels(command.pool, answer.result.value).inc()
        self._outcomes.record(command, seq, Outcome.REFUSED, why)
        self.refused()

    def _is_due(self, intent: Intent) -> bool:
        return intent.answered_at_s is None and intent.token not in self._in_flight and not self._waits(intent)

    def _waits(self, intent: Intent) -> bool:
        held_until_s, _ = self._held.get(intent.command.pool, (0.0, 0.0))
        return self._clock.monotonic_s() < held_until_s

    def _throttled(self, pool: str) -> None:
        """Leave a pool's provider alone for a while, longer each time in a row; many answers of one burst are one time."""
        now_s = self._clock.monotonic_s()
        held_until_s, wait_s = self._held.get(pool, (0.0, 0.0))
        if now_s >= held_until_s:
            wait_s = min(_THROTTLE_MAX_S, max(THROTTLE_WAIT_S, 2.0 * wait_s))
            self._held[pool] = now_s + wait_s, wait_s

    def _keep(self, intent: Intent) -> None:
        self._intents[intent.token] = intent
        self._put[intent.token] = intent
