"""A worker that registers, says that it is ready, obeys its drain mark, and does nothing else."""

import signal
import sys
import time

from scaler.ledger.contract import LedgerUnavailable
from scaler.ledger.registry import open_ledger
from scaler.model.job import WorkerIdentity, WorkerStatus
from scaler.model.work import ReleaseReason


def main() -> None:
    url, job, worker, replica_id, instance_id = sys.argv[1:]
    told_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_stop.append(number))
    ledger = open_ledger(url, job)
    ledger.register(WorkerIdentity(worker=worker, replica_id=replica_id, instance_id=instance_id))
    status = WorkerStatus(ready=True, version=0, capacity_units=4)
    while not told_to_stop:
        try:
            ledger.heartbeat(worker, [], status, 10.0)
        except LedgerUnavailable:
            continue
        finally:
            time.sleep(0.1)
    ledger.release_worker(worker, ReleaseReason.DRAIN)


if __name__ == "__main__":
    main()
