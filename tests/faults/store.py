"""The one store of a world and what stands between it and its clients: absence, lost answers, restarts, a clock of its own.

The ledger is the production SQLite engine on a file; two connections, as two machines would have, so that what one of
them caches can be wrong. A call that is refused or lost here is what `LedgerUnavailable` says: nothing is known of it.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

from scaler.ledger.contract import Control, Ledger, LedgerError, LedgerRefused, LedgerUnavailable
from scaler.ledger.sqlite import SqliteLedger, open_path
from scaler.model.work import Batch
from tests.faults.ledger_rules import READS, LedgerRules
from tests.faults.virtual_loop import HostClock
from tests.faults.watch import Watch

JOB = "job"
_REPEATABLE = frozenset(
    {"lease", "heartbeat", "commit", "release", "register", "put_units", "ack_batch", "publish", "drain", "expire"}
)
"""What a network that delivers twice may deliver once more, late."""


class Store:
    """See the module's docstring."""

    def __init__(
        self,
        folder: Path,
        clock: HostClock,
        random: Random,
        watch: Watch,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._path = folder / "ledger.db"
        self._clock = clock
        self._random = random
        self._watch = watch
        self._later = later
        self.away_until_s: dict[str, float] = {}
        """Client, or "all" -> true time until which it cannot reach the store."""
        self.loss = 0.0
        """Share of the calls whose answer, or which themselves, get lost."""
        self.doubles_until_s = 0.0
        """Until when calls are delivered once more, late."""
        self.full = False
        """Takes no more units."""
        self._answered_s: dict[tuple[str, str], float] = {}
        self.reported_s = float("-inf")
        """When the trainer last reported, by the store's clock, which dates it."""
        self.registered_s: dict[str, float] = {}
        """Worker -> true time of its last registration."""
        self.dead: set[str] = set()
        """Clients that were killed or superseded and may not call any more."""
        self._connect()

    def watched_by(self, rules: LedgerRules, drain_told: Callable[[str, float], None]) -> None:
        """From now on every call is checked; `drain_told` hears of every worker told to drain, and by when."""
        self._rules = rules
        self._drain_told = drain_told

    def client(self, name: str) -> Ledger:
        """The ledger as one client reaches it."""
        return cast("Ledger", _Client(self, name))

    @property
    def direct(self) -> SqliteLedger:
        """Reached whatever goes wrong: for the world's own looks."""
        return self._connections[0]

    def speak_as_newer_leader(self) -> None:
        """A controller elsewhere, of a higher epoch, talks of a worker that nobody knows."""
        self.call("elsewhere", "drain", ("nobody", 0.0, "test", self._rules.leader_epoch + 1))

    def _is_doubled(self, method: str) -> bool:
        return method == "drain" or (method in _REPEATABLE and self._random.random() < 0.15)

    def _deliver_again(self, method: str, args: tuple[Any, ...]) -> None:
        with suppress(LedgerError):
            self._perform("copy", method, args)

    def restart(self) -> None:
        """The store's process ends and comes back with what is on its disk."""
        self.close()
        self._connect()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def call(self, client: str, method: str, args: tuple[Any, ...]) -> Any:
        """One call of one client."""
        now_s = self._clock.monotonic_s()
        if client in self.dead:
            self._watch.broke("dead client", f"{client} called {method} after it had lost its place")
        if max(self.away_until_s.get("all", 0.0), self.away_until_s.get(client.partition("#")[0], 0.0)) > now_s:
            raise LedgerUnavailable("out of reach")
        lost = self.loss > 0 and self._random.random() < self.loss
        if lost and self._random.random() < 0.5:
            raise LedgerUnavailable("the question got lost")
        if method == "put_units" and self.full:
            raise LedgerRefused("nearly full")
        if self.doubles_until_s > now_s and self._is_doubled(method):
            self._later(self._random.uniform(0.5, 20.0), lambda: self._deliver_again(method, args))
        reply = self._perform(client, method, args)
        if lost:
            raise LedgerUnavailable("the answer got lost")
        self._answered_s[client, method] = now_s
        return reply

    def answered_s(self, client: str, method: str) -> float:
        """True time at which a client's call was last answered."""
        return self._answered_s.get((client, method), float("-inf"))

    def _perform(self, client: str, method: str, args: tuple[Any, ...]) -> Any:
        ledger = self._connections[0 if client.startswith("w") else 1]
        try:
            reply = getattr(ledger, method)(*args)
        except LedgerError as error:
            self._watch.event(f"{client} {method} refused", error)
            self._rules.refused(method, args, error)
            raise
        if method == "register":
            self.registered_s[args[0].worker] = self._clock.monotonic_s()
        if method == "report":
            self.reported_s = self._clock.now_s()
        if method == "drain" and reply and client.startswith("controller"):
            self._drain_told(args[0], args[1])
        if method not in READS:
            self._watch.event(f"{client} {method}", _Gist(method, args, reply))
            self._rules.called(self._connections[1], method, args, reply)
        return reply

    def _connect(self) -> None:
        self._connections = [open_path(self._path, JOB, now_s=self._clock.now_s) for _ in range(2)]


class _Client:
    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            return self._store.call(self._name, method, args)

        # The next look-up finds it without coming here.
        setattr(self, method, call)
        return call


class _Gist:
    """Words about a call, only put together where somebody reads them."""

    def __init__(self, method: str, args: tuple[Any, ...], reply: Any) -> None:
        self._parts = method, args, reply

    def __str__(self) -> str:
        method, args, reply = self._parts
        words = _WORDS.get(method)
        return f"{args} -> {reply}" if words is None else words(args, reply)


def _beaten(args: tuple[Any, ...], control: Control) -> str:
    lost = f" lost {','.join(control.lost)}" if control.lost else ""
    drain = "" if control.drain_deadline_s is None else f" drain by {control.drain_deadline_s:.1f}"
    return f"{len(args[1])} units{lost}{drain}"


def _batch(_: tuple[Any, ...], batch: Batch | None) -> str:
    return "nothing" if batch is None else f"batch {batch.batch_id} of {len(batch.groups)} groups"


_WORDS: dict[str, Callable[[tuple[Any, ...], Any], str]] = {
    "lease": lambda _, reply: " ".join(f"{each.unit.unit_id}@{each.fencing_token.counter}" for each in reply.leases),
    "heartbeat": _beaten,
    "commit": lambda args, reply: " ".join(f"{a.unit_id}:{b}" for a, b in zip(args[1], reply, strict=True)),
    "release": lambda args, _: " ".join(f"{each.unit_id}:{each.reason}" for each in args[1]),
    "take_batch": _batch,
    "take_more": _batch,
    "put_units": lambda args, _: f"{len(args[0])} units",
    "report": lambda args, _: f"step {args[1].step}",
    "configure": lambda *_: "",
}
