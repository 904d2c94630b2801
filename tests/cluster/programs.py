"""What each program of the control plane is started with, and where it says that it is ready.

One entry a program. Flags depart from the programs' own defaults only for these reasons: loopback and free ports; no
leader election (there is one of each); client limits wide enough that the test bed is never what is measured.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.pki import Identity

ALIASES = {
    "api": "kube-apiserver",
    "controllers": "kube-controller-manager",
    "scheduler": "kube-scheduler",
}
KARPENTER_NAMESPACE = "karpenter"
LWS_NAMESPACE = "lws-system"
_WIDE_LIMITS = ("--kube-api-qps=500", "--kube-api-burst=1000")
_NO_ELECTION = "--leader-elect=false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the arguments are made of: the folder, the ports by `program/purpose`, the keys, who else runs."""

    folder: Path
    ports: Mapping[str, int]
    ca_file: Path
    server: Identity
    token_key: Path
    parts: frozenset[str]

    def at(self, port: str) -> str:
        """The address of a port."""
        return f"127.0.0.1:{self.ports[port]}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def url(self) -> str:
        """The API server's."""
        return f"https://{self.at('kube-apiserver/secure')}"


Words = Callable[[Site], Sequence[str]]
Variables = Callable[[Site], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How one program runs.

    `ready` is a path on the port `health`; `https` where that port speaks TLS.
    """

    ports: tuple[str, ...]
    args: Words
    health: str
    ready: str
    https: bool = False
    env: Variables = lambda _: {}


def _etcd(site: Site) -> Sequence[str]:
    client, peer = f"http://{site.at('etcd/client')}", f"http://{site.at('etcd/peer')}"
    return (
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # Processes are killed here, machines are not.
        "--unsafe-no-fsync",
    )


def _apiserver(site: Site) -> Sequence[str]:
    # Without kube-controller-manager nobody makes the service accounts that this would wait for.
    alone = () if "kube-controller-manager" in site.parts else ("--disable-admission-plugins=ServiceAccount",)
    return (
        f"--etcd-servers=http://{site.at('etcd/client')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports['kube-apiserver/secure']}",
        # A loopback address is refused as an endpoint otherwise.
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={site.server.cert_file}",
        f"--tls-private-key-file={site.server.key_file}",
        f"--client-ca-file={site.ca_file}",
        f"--service-account-key-file={site.token_key}",
        f"--service-account-signing-key-file={site.token_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        *alone,
    )


def _controller_manager(site: Site) -> Sequence[str]:
    return (
        f"--kubeconfig={site.kubeconfig}",
        f"--service-account-private-key-file={site.token_key}",
        f"--root-ca-file={site.ca_file}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports['kube-controller-manager/secure']}",
        _NO_ELECTION,
        *_WIDE_LIMITS,
    )


def _scheduler(site: Site) -> Sequence[str]:
    return (
        f"--kubeconfig={site.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports['kube-scheduler/secure']}",
        _NO_ELECTION,
        *_WIDE_LIMITS,
    )


def _kwok(site: Site) -> Sequence[str]:
    return (
        f"--kubeconfig={site.kubeconfig}",
        "--manage-all-nodes=true",
        f"--server-address={site.at('kwok/server')}",
        f"--config={site.folder / 'kwok.yaml'}",
        # Alive by its lease, as a kubelet; its status comes more often than a kubelet's: see tests/e2e/cluster/kubelet.py.
        "--node-lease-duration-seconds=40",
    )


def _karpenter_env(site: Site) -> Mapping[str, str]:
    return {
        "DISABLE_LEADER_ELECTION": "true",
        "KUBERNETES_MIN_VERSION": "1.25.0-0",
        "SYSTEM_NAMESPACE": KARPENTER_NAMESPACE,
        "METRICS_PORT": str(site.ports["karpenter/metrics"]),
        "HEALTH_PROBE_PORT": str(site.ports["karpenter/health"]),
        "INSTANCE_TYPES_FILE_PATH": str(site.folder / "instance_types.json"),
    }


def _kuberay(site: Site) -> Sequence[str]:
    return (
        f"--metrics-addr={site.at('kuberay/metrics')}",
        f"--health-probe-bind-address={site.at('kuberay/health')}",
        "--enable-leader-election=false",
    )


PARTS: Mapping[str, Part] = {
    "etcd": Part(ports=("client", "peer"), args=_etcd, health="client", ready="/readyz"),
    "kube-apiserver": Part(ports=("secure",), args=_apiserver, health="secure", ready="/readyz", https=True),
    "kube-controller-manager": Part(
        ports=("secure",), args=_controller_manager, health="secure", ready="/healthz", https=True
    ),
    "kube-scheduler": Part(ports=("secure",), args=_scheduler, health="secure", ready="/readyz", https=True),
    "kwok": Part(ports=("server",), args=_kwok, health="server", ready="/readyz"),
    "karpenter": Part(
        ports=("metrics", "health"), args=lambda _: (), env=_karpenter_env, health="health", ready="/readyz"
    ),
    "kuberay": Part(ports=("metrics", "health"), args=_kuberay, health="health", ready="/readyz"),
    "lws": Part(
        ports=("health", "webhook"),
        args=lambda site: (f"--config={site.folder / 'lws.yaml'}",),
        # Its own /readyz does not wait for its webhook, without which nothing can be created.
        health="webhook",
        ready="/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset",
        https=True,
    ),
}
ALWAYS = ("etcd", "kube-apiserver")


def named(name: str) -> str:
    """The program that a short name stands for.

    Raises:
        ValueError: there is none.
    """
    program = ALIASES.get(name, name)
    if program not in PARTS:
        raise ValueError(f"{name}: not one of {', '.join([*PARTS, *ALIASES])}")
    return program


def environment(name: str, site: Site) -> dict[str, str]:
    """The variables of a process: its own, and nothing that a person has configured for themselves."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(site.folder),
        "KUBECONFIG": str(site.kubeconfig),
        **PARTS[name].env(site),
    }
