"""A way that was not declared stops the job before step 0, with the line that proves it."""

from pathlib import Path

import pytest

from trainer.expert_parallel.mesh import CrewRefused, place_of
from trainer.expert_parallel.transport import Observed, check_nics, check_ways, read_log, sent_bytes

P2P = "node:71:90 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM"
SHM = "node:71:90 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
SOCKET = "node:71:90 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0"
LIBFABRIC = "node:71:90 [0] NCCL INFO Channel 03/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/3/GDRDMA"
EFA = "node:71:90 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)"
OLD_EFA = "node:71:90 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)"
TCP = "node:71:90 [0] NCCL INFO NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/16 (found 1 nics)"
NO_PLUGIN = "node:71:90 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so"


@pytest.mark.parametrize(
    ("lines", "ways", "nics"),
    [
        pytest.param([P2P, P2P], {"p2p"}, None, id="NVLink"),
        pytest.param([NO_PLUGIN, P2P, SHM], {"p2p", "shm"}, None, id="one pair of ranks without peer access"),
        pytest.param([NO_PLUGIN, SOCKET], {"socket"}, None, id="no plugin"),
        pytest.param([EFA, P2P, LIBFABRIC], {"p2p", "efa"}, 16, id="EFA"),
        pytest.param([LIBFABRIC, OLD_EFA], {"efa"}, 4, id="EFA, older spelling, after the channel"),
        pytest.param([TCP, LIBFABRIC], {"ofi"}, 1, id="libfabric over TCP is not EFA"),
        pytest.param(["", "no NCCL here"], set(), None, id="nothing"),
    ],
)
def test_nccls_log_names_the_ways(lines: list[str], ways: set[str], nics: int | None) -> None:
    observed = read_log(lines)

    assert set(observed.ways) == ways
    assert observed.nics == nics


@pytest.mark.parametrize(
    ("lines", "declared", "says"),
    [
        ([SHM], {"p2p"}, f"transport shm was not declared (p2p was): {SHM}"),
        ([EFA, P2P, SOCKET], {"p2p", "efa"}, SOCKET),
        ([TCP, LIBFABRIC], {"efa"}, "transport ofi was not declared"),
        ([], {"p2p"}, "nothing proves the transport"),
        ([OLD_EFA, LIBFABRIC], {"efa"}, "16 EFA NICs were declared, the plugin found 4"),
    ],
)
def test_what_was_not_declared_is_refused_with_the_line(lines: list[str], declared: set[str], says: str) -> None:
    with pytest.raises(CrewRefused) as refused:
        check_ways(read_log(lines), declared, efa_nics=16, world=2)

    assert says in str(refused.value)


def test_what_was_declared_may_start() -> None:
    check_ways(read_log([EFA, P2P, LIBFABRIC]), {"p2p", "efa"}, efa_nics=16, world=16)
    check_ways(read_log([P2P]), {"p2p", "efa"}, efa_nics=16, world=2)
    check_ways(Observed(ways={}), {"p2p"}, efa_nics=None, world=1)


def a_nic(root: Path, name: str, **counters: int) -> None:
    folder = root / name / "ports" / "1" / "hw_counters"
    folder.mkdir(parents=True, exist_ok=True)
    for counter, value in counters.items():
        (folder / counter).write_text(f"{value}\n")


def test_a_nic_that_sent_nothing_is_refused_whatever_the_log_says(tmp_path: Path) -> None:
    for name in ("rdmap0s6", "rdmap1s6"):
        a_nic(tmp_path, name, tx_bytes=100, rdma_write_bytes=7, rx_drops=3)
    before = sent_bytes(tmp_path)
    assert before == {"rdmap0s6": 107, "rdmap1s6": 107}
    a_nic(tmp_path, "rdmap0s6", rdma_write_bytes=9)

    with pytest.raises(CrewRefused, match="nothing was sent by rdmap1s6 while"):
        check_nics(before, sent_bytes(tmp_path))
    a_nic(tmp_path, "rdmap1s6", tx_bytes=101)
    check_nics(before, sent_bytes(tmp_path))


def test_a_machine_with_an_empty_folder_of_nics_has_none(tmp_path: Path) -> None:
    with pytest.raises(CrewRefused, match="no device"):
        check_nics({}, sent_bytes(tmp_path))


@pytest.mark.parametrize("environment", [{}, {"RANK": "0"}, {"RANK": "first", "WORLD_SIZE": "2"}])
def test_a_process_without_a_place_is_told_of_torchrun(environment: dict[str, str]) -> None:
    with pytest.raises(CrewRefused, match="torchrun"):
        place_of(environment)
