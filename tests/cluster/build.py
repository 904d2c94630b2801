"""Builds the programs of the control plane: `python -m tests.cluster.build [--where-possible] [NAME ...]`.

Policy: a binary lies under the digest of all that decides what is in it (go.mod, go.sum, flags), so it is never stale and
is built once a machine; Go keeps its own caches where it always does. go.sum is complete, so every download is checked
against it and nothing else is asked.

Invariants: a path that exists is a whole binary (it is renamed into place); two processes never build the same one (a
file lock).

Non-goals: installing Go; removing binaries of older digests (they are a cache: delete the folder at will).
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
REQUIRE = "HEADRACE_REQUIRE_CLUSTER"
"""Set to 1 where a missing control plane is a failure and not a reason to skip."""

_GO_ENV = {
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
    "CGO_ENABLED": "0",
}


class Unavailable(Exception):
    """Why there is no control plane here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One binary: the folder of its module below `tools/`, its package, what the linker is told."""

    name: str
    module: str
    package: str
    linked: str = ""
    defines: bool = False
    """Whether definitions are read from its module when it is started."""

    @property
    def folder(self) -> Path:
        """Where its go.mod lies."""
        return TOOLS / self.module

    @property
    def binary(self) -> Path:
        """Where it is, or will be once built."""
        return cache() / self._digest() / self.name

    @property
    def linker_flags(self) -> str:
        """No symbol tables: half the size."""
        return f"-s -w {self.linked}".strip()

    def _digest(self) -> str:
        flags = repr((sorted(_GO_ENV.items()), self.linker_flags)).encode()
        content = b"\0".join((self.folder / name).read_bytes() for name in ("go.mod", "go.sum"))
        return hashlib.sha256(content + b"\0" + flags).hexdigest()[:16]


# Clients and charts read the version, which would otherwise be a placeholder.
_KUBERNETES_VERSION = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in {"gitVersion": "v1.37.2", "gitMajor": "1", "gitMinor": "37"}.items()
)


def _kubernetes(name: str) -> Program:
    return Program(name=name, module="kubernetes", package=f"k8s.io/kubernetes/cmd/{name}", linked=_KUBERNETES_VERSION)


PROGRAMS = {
    program.name: program
    for program in (
        Program(name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        Program(name="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok"),
        Program(name="karpenter", module="karpenter", package="sigs.k8s.io/karpenter/kwok", defines=True),
        Program(name="kuberay", module="kuberay", package="github.com/ray-project/kuberay/ray-operator", defines=True),
        Program(name="lws", module="lws", package="sigs.k8s.io/lws/cmd", defines=True),
        Program(name="helm", module="helm", package="helm.sh/helm/v4/cmd/helm"),
    )
}


def cache() -> Path:
    """The folder of all binaries, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "headrace" / "cluster"


def go(*args: str, folder: Path) -> str:
    """What a Go command says, run on the module in `folder`.

    Raises:
        Unavailable: there is no Go.
        subprocess.CalledProcessError: it failed; its own words went to stderr.
    """
    if shutil.which("go") is None:
        raise Unavailable("Go is not installed")
    return subprocess.run(
        ["go", *args], cwd=folder, env={**os.environ, **_GO_ENV}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def require_go() -> None:
    """Raise `Unavailable` where Go is missing or older than the modules ask for."""
    folders = {program.folder for program in PROGRAMS.values()}
    wanted = max(_numbers(_go_line(folder)) for folder in folders)
    found = go("env", "GOVERSION", folder=TOOLS).removeprefix("go")
    if _numbers(found) < wanted:
        raise Unavailable(f"Go {'.'.join(map(str, wanted))} or newer is needed, this is {found}")


def _go_line(folder: Path) -> str:
    lines = (folder / "go.mod").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("go "))


def _numbers(version: str) -> tuple[int, ...]:
    """1.26.8, 1.27rc1 or 1.26-custom as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"rc|[- ]", version, maxsplit=1)[0]))


def build(names: Iterable[str]) -> None:
    """Build what is not there yet, in this order.

    Raises:
        Unavailable: there is no suitable Go.
        subprocess.CalledProcessError: a build failed.
    """
    missing = [PROGRAMS[name] for name in names if not PROGRAMS[name].binary.exists()]
    if missing:
        require_go()
    for program in missing:
        with _locked(program.name):
            if not program.binary.exists():
                _compile(program)


def _compile(program: Program) -> None:
    program.binary.parent.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=program.binary.parent) as folder:
        made = Path(folder) / program.name
        go("build", "-ldflags", program.linker_flags, "-o", str(made), program.package, folder=program.folder)
        made.rename(program.binary)
    _say(f"{program.name}: built in {time.monotonic() - began_s:.0f} s: {program.binary}")


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def binaries(names: Iterable[str]) -> dict[str, Path]:
    """Where the programs are; they are built first where a control plane is required.

    Raises:
        Unavailable: one is not built, or what a control plane is started with is missing.
    """
    names = list(names)
    if is_required():
        build(names)
    if missing := [name for name in names if not PROGRAMS[name].binary.exists()]:
        raise Unavailable(f"not built: {', '.join(missing)} (make cluster-build)")
    tools = ("setpriv", *(["go"] if any(PROGRAMS[name].defines for name in names) else []))
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    return {name: PROGRAMS[name].binary for name in names}


def is_required() -> bool:
    """Whether a missing control plane is a failure."""
    return os.environ.get(REQUIRE) == "1"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main(argv: list[str] | None = None) -> int:
    """Build what is named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.build", description="Build the control plane.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}; all by default")
    parser.add_argument("--where-possible", action="store_true", help="no failure where there is no suitable Go")
    given = parser.parse_args(argv)
    if unknown := set(given.names) - set(PROGRAMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    try:
        build(given.names or PROGRAMS)
    except Unavailable as reason:
        _say(f"no control plane for tests: {reason}")
        return int(is_required() or not given.where_possible)
    except subprocess.CalledProcessError as failure:
        _say(f"the build failed: {' '.join(failure.cmd)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
