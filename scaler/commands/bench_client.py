"""One client process of the ledger bench: obeys lines on standard input, answers each with one line.

`run <what> <n> <start> <end>` does pairs of lease and commit (what=ours) or of a floor's statements (what=its name), `n` at
a time, between two moments of the monotonic clock that all processes of a machine share, and answers with the units
that it finished in time. Imports only the engine it measures.
"""

import sys
import time
from collections.abc import Callable

from scaler.commands.bench_store import Floor, floors_of
from scaler.ledger.bodies import encode_sample, pack
from scaler.ledger.contract import Commit
from scaler.ledger.registry import open_ledger
from scaler.model.job import WorkerIdentity
from scaler.model.work import FinishReason, Sample, VersionSpan

TTL_S = 600.0
_TOKEN_BYTES = 8


def sample_of(unit_id: str, tokens: tuple[int, ...], logprobs: tuple[float, ...]) -> Sample:
    """A sample with these tokens."""
    return Sample(
        unit_id=unit_id,
        tokens=tokens,
        logprobs=logprobs,
        spans=(VersionSpan(0, len(tokens), 0),),
        finish_reason=FinishReason.STOP,
        reward=1.0,
    )


def tokens_for(body_bytes: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Tokens and log-probabilities that make a body of about this size."""
    header = len(encode_sample(sample_of("", (), ())))
    count = max(1, (body_bytes - header) // _TOKEN_BYTES)
    return tuple(range(count)), tuple(-i / count for i in range(count))


def our_pair(url: str, worker: str, body_bytes: int) -> Callable[[int], int]:
    """A function that leases and commits `n` units and returns how many it got."""
    ledger = open_ledger(url, "bench")
    ledger.register(WorkerIdentity(worker=worker, replica_id=worker))
    tokens, logprobs = tokens_for(body_bytes)

    def pair(n: int) -> int:
        leases = ledger.lease(worker, n, TTL_S).leases
        commits = []
        for lease in leases:
            unit_id = lease.unit.unit_id
            sample = sample_of(unit_id, tokens, logprobs)
            commits.append(Commit(unit_id=unit_id, fencing_token=lease.fencing_token, sample=sample))
        ledger.commit(worker, commits)
        return len(commits)

    return pair


def floor_pair(floor: Floor, body_bytes: int) -> Callable[[int], int]:
    """The same on a floor."""
    body = pack(None, encode_sample(sample_of("", *tokens_for(body_bytes))))

    def pair(n: int) -> int:
        rows = floor.take(n)
        if rows:
            floor.finish(rows, body)
        return len(rows)

    return pair


def run(pair: Callable[[int], int], n: int, start_s: float, end_s: float) -> int:
    """Pairs until the end; those that were begun in time and finished late do not count."""
    time.sleep(max(0.0, start_s - time.perf_counter()))
    units = 0
    while True:
        done = pair(n)
        if time.perf_counter() > end_s:
            return units
        if not done:
            raise RuntimeError("the bench ran out of units")
        units += done


def main() -> None:
    """Serve until standard input ends."""
    url, worker, body_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pairs = {name: floor_pair(floor, body_bytes) for name, floor in floors_of(url).items()}
    pairs["ours"] = our_pair(url, worker, body_bytes)
    print("ready", flush=True)
    for line in sys.stdin:
        _, what, n, start_s, end_s = line.split()
        print(run(pairs[what], int(n), float(start_s), float(end_s)), flush=True)


if __name__ == "__main__":
    main()
