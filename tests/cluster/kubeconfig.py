"""Kubeconfig files."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.cluster.pki import Identity


def by_certificate(identity: Identity) -> Mapping[str, str]:
    """The user part for a client certificate."""
    return {"client-certificate": str(identity.cert_file), "client-key": str(identity.key_file)}


def write_kubeconfig(path: Path, url: str, ca_file: Path, user: Mapping[str, str]) -> Path:
    """Write one with a single context, readable by its owner only."""
    cluster = {"server": url, "certificate-authority": str(ca_file)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
        "current-context": "testbed",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content))
    return path
