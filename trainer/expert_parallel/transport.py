"""What tokens really travel over: read from NCCL's own log and the NICs' counters, held against what was declared.

A wrong plugin, a missing NIC or a wrong NCCL does not stop NCCL: it takes a slower way without a word to the program.
So the ways are declared (`--transport p2p,efa`), a first exchange is made before step 0, and a way that was not declared
stops the job with the line of the log that proves it. NCCL names a way at every channel that it opens:

    Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM            p2p: NVLink, or PCIe between peers
    Channel 00/1 : 0[0] -> 1[1] via SHM/direct/direct    shm: through the host's memory
    Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0  socket; NET/IB: ib; NET/AWS Libfabric, NET/OFI: efa or another provider

Source: research/deepep-efa.md section 3 ("Detecting a silent slower fallback").
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.expert_parallel.mesh import CrewRefused

WAYS = ("p2p", "shm", "socket", "ib", "efa", "ofi")
_CHANNEL = re.compile(r"Channel \S+ : .* via (\S+?)/(.*)")
_PROVIDER = re.compile(r"NET/OFI Selected provider is (\S+?)(?:,| \(|$)", re.IGNORECASE)
_NICS = re.compile(r"found (\d+) nics", re.IGNORECASE)
_MOVED = ("tx_bytes", "rdma_read_resp_bytes", "rdma_write_bytes", "send_bytes")
"""Counters of an EFA device that grow with what it sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a log says: each way with a line that shows it."""

    ways: Mapping[str, str]
    nics: int | None = None
    """NICs that the plugin found; None where it said nothing."""


def read_log(lines: Iterable[str]) -> Observed:
    """What NCCL's log tells of the ways it took."""
    kept = [line.strip() for line in lines]
    provider, nics = None, None
    for line in kept:
        if found := _PROVIDER.search(line):
            provider = found.group(1)
            nics = int(count.group(1)) if (count := _NICS.search(line)) else nics
    ways: dict[str, str] = {}
    for line in kept:
        if found := _CHANNEL.search(line):
            ways.setdefault(_way(found.group(1), found.group(2), provider), line)
    return Observed(ways=ways, nics=nics)


def _way(kind: str, rest: str, provider: str | None) -> str:
    if kind != "NET":
        return kind.lower()
    plugin = rest.partition("/")[0].lower()
    if plugin in {"socket", "ib"}:
        return plugin
    return "efa" if (provider or "").startswith("efa") else "ofi"


def check_ways(observed: Observed, declared: Collection[str], *, efa_nics: int | None, world: int) -> None:
    """`CrewRefused` with the line that proves it, where a way was not declared, none was seen or NICs are missing."""
    for way, line in observed.ways.items():
        if way not in declared:
            raise CrewRefused(f"transport {way} was not declared ({', '.join(sorted(declared))} was): {line}")
    if world > 1 and not observed.ways:
        raise CrewRefused(
            "NCCL's log shows no channel, so nothing proves the transport; is NCCL_DEBUG set to less than INFO?"
        )
    if "efa" in observed.ways and efa_nics is not None and observed.nics != efa_nics:
        raise CrewRefused(
            f"{efa_nics} EFA NICs were declared, the plugin found {observed.nics}: {observed.ways['efa']}"
        )


def sent_bytes(root: Path = Path("/sys/class/infiniband")) -> dict[str, int]:
    """Bytes that each NIC has sent since it came up; empty where there is none."""
    return {device.name: _sent(device / "ports" / "1" / "hw_counters") for device in sorted(root.glob("*"))}


def _sent(counters: Path) -> int:
    texts = [path.read_text() for name in _MOVED if (path := counters / name).is_file()]
    return sum(int(text) for text in texts if text.strip().isdigit())


def check_nics(before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """`CrewRefused` where a NIC sent nothing meanwhile: the log can be wrong, bytes cannot."""
    if not after:
        raise CrewRefused("EFA was declared, and /sys/class/infiniband has no device")
    if still := [name for name, count in after.items() if count <= before.get(name, 0)]:
        raise CrewRefused(f"EFA was declared, and nothing was sent by {', '.join(still)} while tokens were exchanged")
