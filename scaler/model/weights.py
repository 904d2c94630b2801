"""How published weights lie in a folder (or under a prefix): the contract between trainer and workers.

`<root>/v<step, 8 digits>-<first 12 hex of the digest>/` holds `model.safetensors` and `manifest.json`; the marker
`STABLE` is written last, after everything else is durable. A version without its marker does not exist. The digest is
the sha256 of `model.safetensors`; who loads it recomputes it. Source: prime-rl's filesystem weight broadcast.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from scaler.model.work import PolicyVersion

WEIGHTS_FILE = "model.safetensors"
MANIFEST_FILE = "manifest.json"
MARKER_FILE = "STABLE"


def version_folder(version: PolicyVersion) -> str:
    """The folder's name; sorts by step."""
    return f"v{version.step:08d}-{version.digest[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightManifest:
    """What a published version is."""

    version: PolicyVersion
    size_bytes: int
    parent_step: int | None
    model: Mapping[str, int | float | str] = field(default_factory=dict)
    """The architecture, enough to build the module that the weights fit."""

    def dump(self) -> str:
        """The manifest's JSON."""
        return json.dumps(
            {
                "step": self.version.step,
                "digest": self.version.digest,
                "size_bytes": self.size_bytes,
                "parent_step": self.parent_step,
                "model": dict(self.model),
            },
            indent=1,
        )

    @staticmethod
    def parse(text: str) -> "WeightManifest":
        """The manifest in its JSON; `ValueError` where it is none."""
        try:
            raw = json.loads(text)
            return WeightManifest(
                version=PolicyVersion(int(raw["step"]), str(raw["digest"])),
                size_bytes=int(raw["size_bytes"]),
                parent_step=None if raw["parent_step"] is None else int(raw["parent_step"]),
                model=dict(raw["model"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no weight manifest: {error!r}") from error
