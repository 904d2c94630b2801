"""`python -m tests.e2e.cluster.bench NODES`: `headrace bench interruptions` on a bed of its own, gone afterwards.

Everything is on this machine: control plane, kwok, SimCloud, Valkey, controller and bench. So is the floor that it prints.
"""

import os
import subprocess
import sys

from scaler.runtime.clock import SystemClock
from tests.builders.valkey_server import valkey_server
from tests.cluster.control_plane import ControlPlane
from tests.e2e.cluster.bed import quick_cloud
from tests.e2e.cluster.turn import turn
from tests.simcloud.server import serve
from tests.simcloud.sim import SimCloud


def run(nodes: int, *, quiet: bool = False) -> "subprocess.CompletedProcess[str]":
    """The command's end; its output is read where `quiet`, else shown."""
    with turn(), ControlPlane(("kwok",)) as plane, valkey_server() as store, serve(_cloud()) as server:
        env = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig),
            "AWS_ENDPOINT_URL": server.address,
            "AWS_ACCESS_KEY_ID": "BENCH",
            "AWS_SECRET_ACCESS_KEY": "none",
            "HEADRACE_LEDGER": store.url,
        }
        words = [sys.executable, "-m", "scaler.cli", "bench", "interruptions", "--nodes", str(nodes), "--json"]
        return subprocess.run(words, env=env, text=True, capture_output=quiet, check=False)


def _cloud() -> SimCloud:
    return SimCloud(SystemClock(), 0, quick_cloud())


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]) if len(sys.argv) > 1 else 500).returncode)
