"""`headrace bench ledger`: lease and commit pairs a second, beside the floor of the same store in the same run.

Measurements one at a time and 16 at a time, of ours and of each floor; they take turns in short slots, so that what else
the machine does falls on all alike. Between the slots, untimed, the store is topped up and finished work is cleared away.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from scaler.commands.bench_store import Store, floors_of, new_store
from scaler.ledger.contract import Ledger, LedgerRefused, LedgerUnavailable
from scaler.ledger.registry import open_ledger
from scaler.model.job import JobSettings
from scaler.model.work import WorkUnit

GROUP_SIZE = 8
BATCH = 16
SLOT_S = 0.5
_SIZES = {1: "single", BATCH: "batch16"}
_GROUPS_A_PUT = 1250
_PROMPT = tuple(range(64))
_SPARE_UNITS = 4 * BATCH
"""A client, so that none runs dry at the end of a slot."""
_FIRST_RATE_PER_S = 120_000
_UNBOUNDED = 1_000_000
"""Admission and staleness are not what is measured."""


class Bench:
    """A store with its clients; keeps units ahead of them."""

    def __init__(self, store: Store, clients: "Sequence[Client]") -> None:
        self._ledger: Ledger = open_ledger(store.url, "bench")
        self._floors = floors_of(store.url)
        self.measurements = tuple((what, n) for n in _SIZES for what in ("ours", *self._floors))
        self._clients = clients
        self._groups = 0
        self._left = Counter[str]()
        self._ledger.configure(
            JobSettings(
                group_size=GROUP_SIZE,
                batch_groups=_UNBOUNDED,
                max_staleness=_UNBOUNDED,
                max_concurrent=_UNBOUNDED,
            )
        )
        self._trainer_epoch = self._ledger.attach_trainer("bench")

    def fill(self, units: int) -> None:
        """Have at least this many units that can be leased, and as many rows on the floor."""
        missing = -(-(units - self._left["ours"]) // GROUP_SIZE)
        for first in range(0, max(0, missing), _GROUPS_A_PUT):
            self._put(min(_GROUPS_A_PUT, missing - first))
        for name, floor in self._floors.items():
            if units > self._left[name]:
                floor.fill(units - self._left[name])
                self._left[name] = units

    def slot(self, what: str, n: int, seconds: float) -> int:
        """All clients at once for a while; returns the units they finished."""
        start_s = time.perf_counter() + 0.05
        for client in self._clients:
            client.tell(f"run {what} {n} {start_s} {start_s + seconds}")
        done = sum(int(client.answer()) for client in self._clients)
        self._left[what] -= done + n * len(self._clients)
        return done

    def clear(self) -> None:
        """Let go of what is finished: samples by calling them stale, rows by deleting them."""
        self._ledger.take_batch(self._trainer_epoch, 1, 3 * _UNBOUNDED, 0)
        for floor in self._floors.values():
            floor.clear()

    def _put(self, groups: int) -> None:
        units = [unit for number in range(self._groups, self._groups + groups) for unit in _group(number)]
        self._ledger.put_units(units)
        self._groups += groups
        self._left["ours"] += len(units)


class Client:
    """A client process."""

    def __init__(self, url: str, name: str, body_bytes: int) -> None:
        words = [sys.executable, "-m", "scaler.commands.bench_client", url, name, str(body_bytes)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._orders, self._answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)

    def tell(self, line: str) -> None:
        """Send an order."""
        self._orders.write(line + "\n")
        self._orders.flush()

    def answer(self) -> str:
        """The next line; `LedgerUnavailable` where the process is gone, which has said why on standard error."""
        line = self._answers.readline()
        if not line:
            raise LedgerUnavailable("a client of the bench failed")
        return line.strip()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def run_bench(engine: str, clients: int, body_bytes: int, seconds: float, units: int, *, as_json: bool) -> int:
    """Measure and print. 0: done; 2: no such engine or no server; 3: the store does not answer."""
    if engine not in ("sqlite", "valkey"):
        print(f"no engine {engine!r}: sqlite or valkey", file=sys.stderr)
        return 2
    try:
        figures = measure(engine, clients, body_bytes, seconds, units)
    except (FileNotFoundError, LedgerRefused) as error:
        print(error, file=sys.stderr)
        return 2
    except LedgerUnavailable as error:
        print(error, file=sys.stderr)
        return 3
    if as_json:
        print(json.dumps(figures, indent=1))
    else:
        print("\n".join(f"{name:20} {value}" for name, value in figures.items()))
    return 0


def measure(engine: str, clients: int, body_bytes: int, seconds: float, units: int) -> dict[str, str | float]:
    """The figures by name; rates are units a second over all clients, ratios ours to a floor's."""
    with _bench(engine, clients, body_bytes) as bench:
        rates = _rates(bench, clients, seconds, units)
    figures: dict[str, str | float] = {"engine": engine, "clients": clients, "body_bytes": body_bytes, "units": units}
    for what in dict.fromkeys(what for what, _ in rates):
        prefix = "" if what == "ours" else f"{what}_"
        figures |= {f"{prefix}{size}_per_s": round(rates[what, n], 1) for n, size in _SIZES.items()}
    for what in dict.fromkeys(what for what, _ in rates if what != "ours"):
        prefix = "" if what == "raw" else f"{what}_"
        figures |= {f"{prefix}{size}_ratio": round(rates["ours", n] / rates[what, n], 3) for n, size in _SIZES.items()}
    return figures


def _rates(bench: Bench, clients: int, seconds: float, units: int) -> dict[tuple[str, int], float]:
    rounds = max(1, round(seconds / SLOT_S))
    slot_s, spare = seconds / rounds, clients * _SPARE_UNITS
    done: Counter[tuple[str, int]] = Counter()
    fastest = _FIRST_RATE_PER_S * slot_s
    bench.fill(units)
    for turn in range(rounds):
        # Each round starts with another one, so that none is always first after the clearing.
        first = turn % len(bench.measurements)
        for what, n in bench.measurements[first:] + bench.measurements[:first]:
            bench.fill(units + spare + int(fastest))
            count = bench.slot(what, n, slot_s)
            done[what, n] += count
            fastest = max(fastest, 1.5 * count)
            bench.clear()
    return {key: done[key] / seconds for key in bench.measurements}


@contextmanager
def _bench(engine: str, clients: int, body_bytes: int) -> Iterator[Bench]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        store = new_store(engine, folder)
        stack.callback(store.close)
        processes = []
        for number in range(clients):
            processes.append(Client(store.url, f"client-{number}", body_bytes))
            stack.callback(processes[-1].close)
        for process in processes:
            process.answer()
        yield Bench(store, processes)


def _group(number: int) -> list[WorkUnit]:
    return [
        WorkUnit(
            group_id=f"group-{number}",
            sample_index=index,
            group_size=GROUP_SIZE,
            prompt=_PROMPT,
            seed=number,
            max_tokens=512,
            time_bound_s=60.0,
        )
        for index in range(GROUP_SIZE)
    ]
