"""A fleet of one worker inside the test: it works whenever the trainer pauses, on the newest published weights."""

from collections.abc import Callable
from pathlib import Path

import torch

from scaler.ledger.contract import Commit, Ledger
from scaler.model.job import WorkerIdentity
from scaler.model.weights import MANIFEST_FILE, MARKER_FILE, WEIGHTS_FILE, WeightManifest
from tests.builders.rollouts import generate
from trainer.moe import MoEConfig, TinyMoE, model_from


class InProcessWorker:
    """Leases units, samples each by its own seed, commits: the same weights and units give the same samples."""

    def __init__(self, ledger: Ledger, weights: Path, *, name: str = "w") -> None:
        self._ledger = ledger
        self._weights = weights
        self._name = name
        self._registered = False
        self._loaded: tuple[int, TinyMoE] | None = None

    def work(self, units: int) -> None:
        """Do at most this many units."""
        if not self._registered:
            self._ledger.register(WorkerIdentity(worker=self._name, replica_id=self._name))
            self._registered = True
        leases = self._ledger.lease(self._name, units, ttl_s=60.0).leases
        if not leases:
            return
        version, model = self._newest()
        commits = [
            Commit(
                unit_id=lease.unit.unit_id,
                fencing_token=lease.fencing_token,
                sample=generate(model, [lease.unit], torch.Generator().manual_seed(lease.unit.seed), version=version)[
                    0
                ],
            )
            for lease in leases
        ]
        self._ledger.commit(self._name, commits)

    def _newest(self) -> tuple[int, TinyMoE]:
        folder = max(path.parent for path in self._weights.glob(f"*/{MARKER_FILE}"))
        manifest = WeightManifest.parse((folder / MANIFEST_FILE).read_text())
        if self._loaded is None or self._loaded[0] != manifest.version.step:
            config = MoEConfig.from_mapping(manifest.model)
            self._loaded = manifest.version.step, model_from(config, folder / WEIGHTS_FILE)
        return self._loaded


class PausingClock:
    """A clock that only pauses move; `during` is what the world does meanwhile."""

    def __init__(self, during: Callable[[], None] = lambda: None) -> None:
        self.during = during
        self.time_s = 1000.0
        self.pauses = 0

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    def pause(self, seconds: float) -> None:
        self.time_s += seconds
        self.pauses += 1
        if self.pauses > 5000:
            raise AssertionError("the trainer waits for ever")
        self.during()
