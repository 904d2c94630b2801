"""A fleet that ran on this machine, as its files say it, written without running it.

Two zones; the trainer came at 100 s and took a batch of 2 groups of 2 every 10 s, 4 s of them training. Worker `w0` was there
before it; `w1` came at 110 s (granted), registered at 113 s, had its first lease at 115 s and was taken at 131 s, with 3 s
of notice; a launch in its zone was refused at 132 s.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml

from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent, Scalar
from scaler.localcloud.state import InstanceRecord, Interruption, StateDir
from scaler.model.plan import Memory
from scaler.runtime.daemon import state_files
from scaler.runtime.journal import Journal, Turn
from tests.builders.fleet_yaml import a_fleet, a_local_provider, a_pool, a_stage, an_offering

SPOT_A, SPOT_B = "process/zone-a/spot", "process/zone-b/spot"
BATCHES = 4


def a_record(name: str, at_s: float, offering_id: str = SPOT_A) -> InstanceRecord:
    return InstanceRecord(
        instance_id=f"i-{name}",
        replica_id=name,
        worker=name,
        pool="spot",
        offering_id=offering_id,
        launch_token=f"t.{name}",
        launched_at_s=at_s,
        pid=1,
        start_ticks=1,
    )


RECORDS = (a_record("w0", 90.0), a_record("w1", 110.0, SPOT_B))
LOSS = Interruption(at_s=131.0, instance_id="i-w1", replica_id="w1", offering_id=SPOT_B, noticed=True, deadline_s=134.0)


def history() -> Iterator[HistoryEvent]:
    """The ledger's events, in order."""
    events: list[tuple[float, EventKind, str | None, dict[str, Scalar], tuple[HistoryEntry, ...]]] = [
        (95.0, EventKind.WORKER_REGISTERED, "w0", {}, ()),
        (100.0, EventKind.TRAINER_ATTACHED, None, {}, ()),
        (113.0, EventKind.WORKER_REGISTERED, "w1", {}, ()),
        (129.0, EventKind.GROUP_DROPPED, None, {}, (HistoryEntry("g9.0", {"reason": "filtered"}),)),
    ]
    for batch in range(BATCHES):
        start_s, groups = 100.0 + 10 * batch, (f"g{batch}a", f"g{batch}b")
        units = [
            HistoryEntry(f"{group}.0/{index}", {"attempt": 1, "tokens": 20}) for group in groups for index in (0, 1)
        ]
        taken = tuple(HistoryEntry(f"{group}.0") for group in groups)
        worker = "w1" if batch == 2 else "w0"
        at_s = 115.0 if batch == 2 else start_s
        events += [
            (at_s, EventKind.LEASED, worker, {}, tuple(units)),
            (at_s + 4.0, EventKind.COMMITTED, worker, {}, tuple(units)),
            (start_s + 5.0, EventKind.BATCH_TAKEN, None, {"batch": batch}, taken),
            (start_s + 6.0, EventKind.BATCH_TAKEN, None, {"batch": batch}, taken),
            (start_s + 10.0, EventKind.BATCH_ACKED, None, {"batch": batch}, taken),
        ]
    ordered = sorted(events, key=lambda event: event[0])
    for seq, (at_s, kind, who, data, entries) in enumerate(ordered, 1):
        yield HistoryEvent(seq=seq, at_s=at_s, kind=kind, worker=who, data=data, entries=entries)


def a_decision() -> dict[str, object]:
    """One launch, refused."""
    command = {"kind": "launch", "stage": "rollout", "pool": "spot", "subject": "t.w2", "offering": SPOT_B}
    return {"stages": [], "commands": [command]}


REFUSED = {
    "kind": "launch",
    "subject": "t.w2",
    "outcome": "refused",
    "message": "insufficient_capacity: full",
    "at_s": 132.0,
}


def write_recording(folder: Path) -> None:
    """Everything but the ledger."""
    command = ["worker", "--publish-interval-s", "0.5", "--lease-ttl", "4"]
    offerings = [an_offering(zone="zone-a"), an_offering(zone="zone-b", priceUsdPerH="2.00")]
    pool = a_pool(provider=a_local_provider(command=command), offerings=offerings)
    fleet = a_fleet(stages=[a_stage(pools=[pool])], job={"groupSize": 2, "batchGroups": 2})
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    state = StateDir(folder / "cloud")
    state.create()
    for record in RECORDS:
        state.write_record(record)
        state.counter_file(record.instance_id).write_bytes((170).to_bytes(8, "little"))
    state.log_interruption(LOSS)
    journal = Journal(state_files(folder / "fleet.yaml").journal)
    journal.write(Turn(at_s=131.5, memory=Memory(), decision=a_decision()))
    journal.write(Turn(at_s=132.5, memory=Memory(), outcomes=((1, REFUSED),)))
    journal.close()
