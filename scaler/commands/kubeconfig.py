"""Which cluster a command is about."""

import os
from pathlib import Path


def usual_kubeconfig(given: Path | None) -> Path | None:
    """What is named, or where kubectl looks; None: the pod's own account."""
    if given is not None:
        return given
    usual = Path(os.path.expanduser(os.environ.get("KUBECONFIG") or "~/.kube/config"))  # noqa: PTH111 - no home, no error
    return usual if usual.exists() else None
