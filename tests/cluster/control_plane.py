"""`ControlPlane`: the processes of `programs` in a folder of their own, ready when `start` returns.

Policy: readiness is what a program says of itself (`/readyz`); a program that ends while it starts fails the start with
its last words, and a port that somebody else took meanwhile costs another try with other ports. Blocking by design: from
a coroutine, call `asyncio.to_thread(plane.restart, "etcd")`.

Invariants: after `stop`, and after an error in `start`, neither process nor folder is left. What a killed test run leaves
of its folder is swept by the next start.

Non-goals: an upgrade, several API servers, data that survives `stop`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tests.cluster.addons import SET_UP
from tests.cluster.api import Api
from tests.cluster.build import binaries
from tests.cluster.folder import own_folder, sweep
from tests.cluster.kubeconfig import by_certificate, write_kubeconfig
from tests.cluster.paths import JsonObject
from tests.cluster.pki import Authority
from tests.cluster.ports import PortHold
from tests.cluster.process import Child, Ended, Spawner
from tests.cluster.programs import ALWAYS, PARTS, Site, environment, named
from tests.cluster.readiness import wait_until_ready

_TRIES = 3
_ONE_DAY = {"expirationSeconds": 24 * 3600}
_AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


class ControlPlane:
    """etcd and kube-apiserver, and what `with_` names besides.

    Args:
        with_: any of controllers, scheduler, kwok, karpenter, kuberay, lws (or the names of the binaries).
        flags: further arguments by program; the last of two contrary ones counts.
        audit: keep the API server's audit log (who, what, which verb) in `audit_log`.
        folder: where to keep everything; must not exist, and is removed afterwards. By default a temporary one.
    """

    def __init__(
        self,
        with_: Iterable[str] = (),
        *,
        flags: Mapping[str, Sequence[str]] | None = None,
        audit: bool = False,
        folder: Path | None = None,
    ) -> None:
        chosen = {*ALWAYS, *map(named, with_)}
        self.parts = tuple(name for name in PARTS if name in chosen)
        self._flags = {named(name): tuple(words) for name, words in (flags or {}).items()}
        self._audit = audit
        self._wanted_folder = folder
        self._held = ExitStack()
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it is ready.

        Raises:
            Unavailable: a program is not built.
            Ended: a program ended, or was not ready in time; its last words are in the message.
        """
        self._binaries = binaries(self.parts)
        for left in reversed(range(_TRIES)):
            try:
                self._start()
                return
            except Ended as reason:
                self.stop()
                if left == 0 or "address already in use" not in str(reason):
                    raise
            except BaseException:
                self.stop()
                raise

    def _start(self) -> None:
        sweep()
        self.folder = self._held.enter_context(own_folder(self._wanted_folder))
        self._authority = Authority(self.folder / "pki")
        self._admin = self._authority.client("admin", "admin", ["system:masters"])
        self._site = self._make_site()
        self._spawner = Spawner()
        self._held.callback(self._spawner.close)
        self._children = {name: self._child(name) for name in self.parts}
        write_kubeconfig(self.kubeconfig, self.url, self.ca_file, by_certificate(self._admin))
        self._bring_up(ALWAYS)
        self.api = Api(self.url, self.ca_file, self._admin)
        self._bring_up_others([name for name in self.parts if name not in ALWAYS])

    def _make_site(self) -> Site:
        holds = {f"{name}/{port}": PortHold() for name in self.parts for port in PARTS[name].ports}
        for hold in holds.values():
            self._held.callback(hold.release)
        return Site(
            folder=self.folder,
            ports={name: hold.port for name, hold in holds.items()},
            ca_file=self._authority.ca_file,
            server=self._authority.server("server", ["localhost", "kubernetes.default.svc"]),
            token_key=self._authority.signing_key("tokens"),
            parts=frozenset(self.parts),
        )

    def _child(self, name: str) -> Child:
        words = [str(self._binaries[name]), *PARTS[name].args(self._site), *self._flags.get(name, ())]
        if self._audit and name == "kube-apiserver":
            words += self._auditing()
        env = environment(name, self._site)
        return Child(name=name, args=words, env=env, log=self.log(name), spawner=self._spawner)

    def _auditing(self) -> list[str]:
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _bring_up_others(self, names: Sequence[str]) -> None:
        # Those that need nothing first: they start while the definitions of the others are read.
        for name in sorted(names, key=SET_UP.__contains__):
            if name in SET_UP:
                SET_UP[name](self._site, self._authority, self.api)
            self._children[name].start()
        for name in names:
            self._wait(name)

    def _bring_up(self, names: Iterable[str]) -> None:
        names = list(names)
        for name in names:
            self._children[name].start()
        for name in names:
            self._wait(name)

    def stop(self) -> None:
        """End every process and remove the folder. Again is harmless."""
        for child in reversed(self._children.values()):
            child.kill()
        self._children = {}
        self._held.close()

    # What a client needs.

    @property
    def url(self) -> str:
        """The API server's."""
        return self._site.url

    @property
    def ca_file(self) -> Path:
        """What the API server's certificate is checked against."""
        return self._authority.ca_file

    @property
    def cert_file(self) -> Path:
        """The administrator's certificate."""
        return self._admin.cert_file

    @property
    def key_file(self) -> Path:
        """The administrator's key."""
        return self._admin.key_file

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self._site.kubeconfig

    @property
    def audit_log(self) -> Path:
        """One JSON event a line, where `audit` was asked for."""
        return self.folder / "audit.log"

    def audited(self) -> Iterator[JsonObject]:
        """The events of the audit log so far; a line that is being written is left out."""
        for line in self.audit_log.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of somebody who may do what RBAC allows that user and those groups."""
        file_name = f"client-{len(list(self.folder.glob('client-*')))}"
        identity = self._authority.client(file_name, user, groups)
        return write_kubeconfig(self.folder / file_name, self.url, self.ca_file, by_certificate(identity))

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig of a service account, made together with its namespace where they are missing; good for a day."""
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        self.api.apply(account)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": _ONE_DAY}
        granted = self.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", asked)
        path = self.folder / f"account-{namespace}-{name}"
        return write_kubeconfig(path, self.url, self.ca_file, {"token": granted["status"]["token"]})

    # What a test does to it.

    def kill(self, name: str) -> None:
        """kill -9."""
        self._children[named(name)].kill()

    def restart(self, name: str) -> None:
        """Kill it, if it runs, and start it on the same port and data; back when it is ready again."""
        self._bring_up([named(name)])

    def pause(self, name: str) -> None:
        """Stop it answering (SIGSTOP)."""
        self._children[named(name)].pause()

    def resume(self, name: str) -> None:
        """Let it answer again (SIGCONT)."""
        self._children[named(name)].resume()

    def running(self, name: str) -> bool:
        """Whether there is such a process, paused or not."""
        return self._children[named(name)].running

    def pid(self, name: str) -> int:
        """Its process id."""
        return self._children[named(name)].pid

    def log(self, name: str) -> Path:
        """What it wrote."""
        return self.folder / f"{named(name)}.log"

    def wait_ready(self) -> None:
        """Wait until everything that runs says that it is ready, as after a restart of what it stands on."""
        for name, child in self._children.items():
            if child.running:
                self._wait(name)

    def _wait(self, name: str) -> None:
        part = PARTS[name]
        wait_until_ready(self._children[name], self._site.at(f"{name}/{part.health}"), part.ready, https=part.https)
