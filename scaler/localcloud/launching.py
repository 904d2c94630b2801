"""How an instance is started so that its launch token starts it once, whoever is killed when.

Launches on one state folder take turns by a lock on a file. Whoever holds it

1. writes the launch (`launches/<id>.json`), the id being a digest of pool and token;
2. starts a shell in a session of its own that inherits the lock, writes its own line of /proc/<pid>/stat to
   `launches/<id>.stat`, and only then becomes the worker, by exec, which lets go of the lock;
3. writes the record (`instances/<id>.json`).

So who gets the lock knows that nobody is between these steps, and the files tell how far a killed launcher came: no
`.stat` means that no worker ever ran and the launch is void; a `.stat` without record is adopted, under the pid and start
time that the process wrote of itself. An instance that is gone leaves its record in `ended/`, kept for a day.
"""

import fcntl
import hashlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaler.localcloud.processes import ProcessStat, kill_leftovers, parse_stat, stat_of
from scaler.localcloud.state import InstanceRecord, StateDir, read_json, write_json

ENDED_KEPT_S = 86400.0
"""How long a token is remembered after its instance is gone; an intent does not live that long."""

_ANNOUNCE_THEN_EXEC = 'read -r line <"/proc/$$/stat" && printf "%s\\n" "$line" >"$1" && shift && exec "$@" </dev/null'
# A daemon may ignore or have blocked these; its workers start with a clean slate.
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch under way: everything of the record but the process."""

    instance_id: str
    replica_id: str
    worker: str
    pool: str
    offering_id: str
    launch_token: str
    launched_at_s: float

    def record(self, process: ProcessStat) -> InstanceRecord:
        """The record of the instance that this launch became."""
        return InstanceRecord(**asdict(self), pid=process.pid, start_ticks=process.start_ticks)

    @staticmethod
    def of_json(raw: Mapping[str, Any]) -> "Launch":
        """The launch in its JSON; `KeyError`, `TypeError` or `ValueError` where it is none."""
        return Launch(
            instance_id=str(raw["instance_id"]),
            replica_id=str(raw["replica_id"]),
            worker=str(raw["worker"]),
            pool=str(raw["pool"]),
            offering_id=str(raw["offering_id"]),
            launch_token=str(raw["launch_token"]),
            launched_at_s=float(raw["launched_at_s"]),
        )


def new_launch(pool: str, token: str, offering_id: str, at_s: float) -> Launch:
    """The launch of a token: the same pool and token always make the same ids."""
    digest = hashlib.sha256(f"{pool}\0{token}".encode()).hexdigest()
    replica_id = f"{pool}-{digest[:12]}"
    return Launch(
        instance_id=f"i-{digest[:16]}",
        replica_id=replica_id,
        worker=replica_id,
        pool=pool,
        offering_id=offering_id,
        launch_token=token,
        launched_at_s=at_s,
    )


def try_lock(state: StateDir) -> int | None:
    """The descriptor that holds the launch lock, or None while another launches. Closing it lets go.

    It must be closed, not unlocked: a shell that was just started holds the same lock through its copy.
    """
    descriptor = os.open(state.root / "launch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def open_launches(state: StateDir) -> tuple[Launch, ...]:
    """Launches that have no record yet, dead or alive."""
    launches = (read_json(path, Launch.of_json) for path in sorted(state.launches.glob("*.json")))
    return tuple(
        launch
        for launch in launches
        if launch is not None and not _recorded(state.instances, launch) and not _recorded(state.ended, launch)
    )


def _recorded(folder: Path, launch: Launch) -> bool:
    record = read_json(folder / f"{launch.instance_id}.json", InstanceRecord.of_json)
    return record is not None and record.instance_id == launch.instance_id


def adopt(state: StateDir) -> None:
    """Under the lock: give every instance that was started its record, and void the launches that started none."""
    for launch in open_launches(state):
        process = _announced(state, launch.instance_id)
        if process is None:
            _forget_launch(state, launch.instance_id)
        else:
            state.write_record(launch.record(process))


def _announced(state: StateDir, instance_id: str) -> ProcessStat | None:
    try:
        return parse_stat(_stat_file(state, instance_id).read_text(errors="replace"))
    except FileNotFoundError:
        return None


def _stat_file(state: StateDir, instance_id: str) -> Path:
    return state.launches / f"{instance_id}.stat"


def _forget_launch(state: StateDir, instance_id: str) -> None:
    # The launch goes last: a process written down without its launch could not be adopted.
    _stat_file(state, instance_id).unlink(missing_ok=True)
    (state.launches / f"{instance_id}.json").unlink(missing_ok=True)


def start(state: StateDir, launch: Launch, argv: Sequence[str], env: Mapping[str, str], lock: int) -> InstanceRecord:
    """Under the lock: start the instance as our child and record it. `OSError` where no process can be had."""
    write_json(state.launches / f"{launch.instance_id}.json", asdict(launch))
    pid = _spawn(state, launch.instance_id, argv, env, lock)
    process = stat_of(pid)
    if process is None:  # a child that nobody has waited for keeps its entry, unless SIGCHLD is ignored
        raise OSError(f"process {pid} went before it could be seen: is SIGCHLD ignored?")
    record = launch.record(process)
    state.write_record(record)
    return record


def _spawn(state: StateDir, instance_id: str, argv: Sequence[str], env: Mapping[str, str], lock: int) -> int:
    log = str(state.log_file(instance_id))
    stat_file = str(_stat_file(state, instance_id))
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _ANNOUNCE_THEN_EXEC, "sh", stat_file, *argv],
        env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, lock, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def end(state: StateDir, record: InstanceRecord, now_s: float) -> None:
    """Put a dead instance away: what is left of its group is killed, its token stays remembered."""
    kill_leftovers(record.pid, record.launch_token)
    tombstone = state.ended / f"{record.instance_id}.json"
    write_json(tombstone, asdict(record))
    os.utime(tombstone, (now_s, now_s))
    state.notice_file(record.instance_id).unlink(missing_ok=True)
    _forget_launch(state, record.instance_id)
    (state.instances / f"{record.instance_id}.json").unlink(missing_ok=True)


def forget_ended(state: StateDir, now_s: float) -> None:
    """Drop what was remembered of instances that ended long ago."""
    for tombstone in state.ended.glob("*.json"):
        if now_s - tombstone.stat().st_mtime > ENDED_KEPT_S:
            tombstone.unlink(missing_ok=True)
