"""Publishing weights into a folder, as `scaler.model.weights` lays it down; removing versions nobody needs.

Invariants: the marker is written after everything else is durable, and removed before anything else is; publishing the
same weights of the same step again changes nothing, and completes what a crash left half done.
"""

import hashlib
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from scaler.model.weights import MANIFEST_FILE, MARKER_FILE, WEIGHTS_FILE, WeightManifest, version_folder
from scaler.model.work import PolicyVersion
from trainer.files import sync_folder, write_durably


def publish_weights(
    root: Path, data: bytes, architecture: Mapping[str, int | float | str], step: int, parent_step: int | None
) -> PolicyVersion:
    """Make weights (a safetensors file's bytes) readable as version `step`; durable when this returns."""
    version = PolicyVersion(step, hashlib.sha256(data).hexdigest())
    folder = root / version_folder(version)
    if (folder / MARKER_FILE).exists():
        return version
    folder.mkdir(parents=True, exist_ok=True)
    manifest = WeightManifest(version=version, size_bytes=len(data), parent_step=parent_step, model=dict(architecture))
    write_durably(folder / WEIGHTS_FILE, data)
    write_durably(folder / MANIFEST_FILE, manifest.dump().encode())
    sync_folder(root)
    write_durably(folder / MARKER_FILE, b"")
    return version


def prune_weights(root: Path, *, keep: int, in_use: Collection[int]) -> None:
    """Remove versions but the newest `keep` and the steps `in_use`."""
    folders = sorted(root.glob("v*-*"))
    for folder in folders[:-keep]:
        if int(folder.name[1:].partition("-")[0]) not in in_use:
            (folder / MARKER_FILE).unlink(missing_ok=True)
            sync_folder(folder)
            shutil.rmtree(folder)
