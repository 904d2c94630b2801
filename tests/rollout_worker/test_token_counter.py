"""The count that outlives the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from rollout_worker.token_counter import TokenCounter, read_token_counter

COUNT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from rollout_worker.token_counter import TokenCounter
counter = TokenCounter(Path(sys.argv[1]))
for _ in range(1000):
    counter.add(3)
counter.look(40)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_counted_outlives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([sys.executable, "-c", COUNT_AND_DIE, path], check=False, env=env)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"".join(number.to_bytes(8, "little") for number in (3000, 1, 40))


def test_the_next_worker_counts_on(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    assert read_token_counter(path) == 0
    for _ in range(2):
        with TokenCounter(path) as counter:
            counter.add(5)
            counter.look(7)
    assert read_token_counter(path) == 10
    assert path.read_bytes()[8:] == b"".join(number.to_bytes(8, "little") for number in (2, 14))


def test_a_counter_of_tokens_alone_is_counted_on(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_bytes((5).to_bytes(8, "little"))
    with TokenCounter(path) as counter:
        counter.add(1)
    assert read_token_counter(path) == 6
