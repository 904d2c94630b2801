"""What a rank was built from and runs on: compared across ranks before step 0, kept with every checkpoint.

Two ranks with another NCCL, driver or environment may run for hours and then differ, or hang; here they do not start.
Facts are text by name; what a machine does not have is left out. Fields that differ by rank on purpose are in none.

Source: research/deepep-efa.md section 3 ("Build manifest fields").
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import torch

_ENVIRONMENT = ("NCCL_", "FI_", "OFI_NCCL_", "NVSHMEM_", "EP_")
_OURS = ("NCCL_DEBUG_FILE",)
"""Set by us, different on every rank."""
_PACKAGES = (
    "deep_ep",
    "tokenspeed-deepep",
    "sgl-deep-ep",
    "uccl",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13",
    "safetensors",
)
_LIBRARIES = ("libnccl.so", "libnccl-net", "libfabric.so", "libnvshmem_host", "libgdrapi", "deep_ep_cpp")
_FILES = {
    "efa.driver": "/sys/module/efa/version",
    "efa.installer": "/opt/amazon/efa_installed_packages",
    "gdrdrv": "/sys/module/gdrdrv/version",
    "nvidia.driver": "/sys/module/nvidia/version",
    "nvidia.params": "/proc/driver/nvidia/params",
}
"""Small files that say a version; long ones by digest."""
_LONG = 80


def own_manifest(extra: Mapping[str, str]) -> dict[str, str]:
    """This rank's; call it when everything is loaded. `extra`: what the caller knows (mode, transport seen)."""
    facts: dict[str, str] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    mapped = _mapped()
    facts |= _libraries(mapped) | _nccl(mapped)
    for gather in (_gpus, _packages, _files, _nics, _libfabric, _environment):
        facts |= gather()
    return dict(sorted((facts | dict(extra)).items()))


def differences(manifests: Sequence[Mapping[str, str]]) -> list[str]:
    """A line for each fact that is not the same at every rank; the lead's value first."""
    names = sorted({name for manifest in manifests for name in manifest})
    return [line for name in names for line in _difference(name, [m.get(name, "missing") for m in manifests])]


def _difference(name: str, values: Sequence[str]) -> Iterable[str]:
    first = values[0]
    others = {value: rank for rank, value in reversed(list(enumerate(values))) if value != first}
    return [f"{name}: rank 0 has {first}, rank {rank} has {value}" for value, rank in others.items()]


def _gpus() -> dict[str, str]:
    if not torch.cuda.is_available():
        return {}
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    names = sorted({f"{p.name} sm_{p.major}{p.minor}" for p in properties})
    return {"gpus": f"{len(properties)} x {', '.join(names)}", "cuda": str(torch.version.cuda)}


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[f"package.{name}"] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _mapped() -> list[Path]:
    """The libraries that matter, as they are mapped into this process."""
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    paths = {Path(words[5]) for words in lines if len(words) == 6}
    return sorted(path for path in paths if path.name.startswith(_LIBRARIES) and path.is_file())


def _libraries(mapped: Sequence[Path]) -> dict[str, str]:
    """Digests of what is mapped, whatever a path or a package says."""
    return {f"library.{path.name}": _digest(path) for path in mapped}


def _nccl(mapped: Sequence[Path]) -> dict[str, str]:
    """The version that the mapped library says of itself; torch's own word is that of its build."""
    for path in mapped:
        if path.name.startswith("libnccl.so"):
            number = ctypes.c_int()
            ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(number))
            return {"nccl": f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"}
    return {}


def _files() -> dict[str, str]:
    found = {}
    for name, path in _FILES.items():
        if (text := _read(Path(path))) is not None:
            found[name] = text if len(text) <= _LONG else hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _nics() -> dict[str, str]:
    return {"nics": str(len(list(Path("/sys/class/infiniband").glob("*"))))}


def _libfabric() -> dict[str, str]:
    program = shutil.which("fi_info", path=f"{os.environ.get('PATH', '')}:/opt/amazon/efa/bin")
    if program is None:
        return {}
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    lines = [line for line in told.stdout.splitlines() if line.startswith("libfabric:")]
    return {"libfabric": lines[0].partition(":")[2].strip()} if lines else {}


def _environment() -> dict[str, str]:
    names = (name for name in os.environ if name.startswith(_ENVIRONMENT) and name not in _OURS)
    return {f"env.{name}": os.environ[name] for name in names}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
