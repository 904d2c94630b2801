"""`python -m tests.e2e.cluster.bench {interruptions,loop} NODES`: a `headrace bench` on a bed of its own, gone afterwards.

Everything is on this machine: control plane, kwok, SimCloud, Valkey, controller and bench. Spot prices move all the time.
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scaler.runtime.clock import SystemClock
from tests.builders.valkey_server import valkey_server
from tests.cluster.control_plane import ControlPlane
from tests.e2e.cluster.bed import ZONES, quick_cloud
from tests.e2e.cluster.kubelet import calm_kubelet
from tests.e2e.cluster.turn import turn
from tests.simcloud.server import serve
from tests.simcloud.sim import SimCloud

_NODES = {"interruptions": 500, "loop": 5000}
_MANY = 1000
"""From so many nodes on their leases are renewed ten times less often, as kwok's manual has it."""
_PRICES_EVERY_S = 5.0
_TYPE = "p5.48xlarge"


def run(bench: str, nodes: int, more: Sequence[str] = (), *, quiet: bool = False) -> "subprocess.CompletedProcess[str]":
    """The command's end; its output is read where `quiet`, else shown."""
    sim = SimCloud(SystemClock(), 0, quick_cloud())
    leases = ["--node-lease-duration-seconds=400"] if nodes >= _MANY else []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-kubelet-") as folder,
        turn(),
        ControlPlane(("kwok",), flags={"kwok": [*leases, *calm_kubelet(Path(folder))]}) as plane,
        valkey_server() as store,
        serve(sim) as server,
        _prices(sim),
    ):
        env = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig),
            "AWS_ENDPOINT_URL": server.address,
            "AWS_ACCESS_KEY_ID": "BENCH",
            "AWS_SECRET_ACCESS_KEY": "none",
            "HEADRACE_LEDGER": store.url,
        }
        words = [sys.executable, "-m", "scaler.cli", "bench", bench, "--nodes", str(nodes), "--json", *more]
        return subprocess.run(words, env=env, text=True, capture_output=quiet, check=False)


@contextmanager
def _prices(sim: SimCloud) -> Iterator[None]:
    """Spot prices that go up and down by some percent while it lasts."""
    ended, rng = threading.Event(), random.Random(0)

    def move() -> None:
        while not ended.wait(_PRICES_EVERY_S):
            with sim.kernel.lock:
                for zone in ZONES:
                    sim.market.set_price(_TYPE, zone, round(10.0 * rng.uniform(0.97, 1.03), 4))

    thread = threading.Thread(target=move, name="prices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main(words: Sequence[str]) -> int:
    """The bench that is named, of so many nodes; what follows is the bench's own."""
    bench = words[0]
    return run(bench, int(words[1]) if len(words) > 1 else _NODES[bench], words[2:]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
