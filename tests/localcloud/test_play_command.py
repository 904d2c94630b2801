"""The player as a process of its own."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scaler.localcloud.__main__ import main
from scaler.model.clock import Clock
from tests.builders.local import Site, eventually

TRACE = "time_s,offering,available\n0,a,4\n0,b,1\n1,a,0\n1,b,1\n"
WIDE = "time,a,b\n2023-02-15 22:00:00,1,1\n2023-02-15 23:00:00,0,1\n2023-02-16 00:00:00,1,1\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def the_options(site: Site, trace: Path, *options: str) -> list[str]:
    return ["--state-dir", str(site.state.root), "--trace", str(trace), *options]


@contextmanager
def playing(site: Site, trace: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "scaler.localcloud", *the_options(site, trace, *options)]
    with subprocess.Popen(command) as player:
        try:
            yield player
        finally:
            player.kill()


async def test_it_plays_kills_half_without_notice_and_ends_cleanly_on_sigterm(
    site: Site, trace: Path, real_clock: Clock
) -> None:
    pool = site.pool(clock=real_clock)
    records = await site.running(pool, "t-1", "t-2", "t-3", "t-4", offering="zone-a")
    kept = await site.running(pool, "t-5", offering="zone-b")
    options = ("--offering", "zone-a=a", "--offering", "zone-b=b", "--notice-s", "0.2")
    with playing(site, trace, *options) as player:
        await eventually(lambda: not any(record.alive for record in records))
        player.send_signal(signal.SIGTERM)
        assert player.wait() == 0
    assert site.state.read_capacity() == {"zone-a": 0, "zone-b": 1}
    assert sorted(each.noticed for each in site.state.read_interruptions()) == [False, False, True, True]
    assert [record.alive for record in kept] == [True]


async def test_killed_between_notice_and_deadline_and_started_again_it_keeps_the_deadline(
    site: Site, trace: Path, real_clock: Clock
) -> None:
    records = await site.running(site.pool(clock=real_clock), "t-1", offering="a")
    options = ("--notice-ratio", "1", "--notice-s", "3")
    with playing(site, trace, *options):
        await eventually(lambda: list(site.state.notices.iterdir()))
    assert records[0].alive
    with playing(site, trace, *options):
        await eventually(lambda: not records[0].alive)
    (only,) = site.state.read_interruptions()
    assert only.deadline_s is not None
    assert real_clock.now_s() >= only.deadline_s


async def test_a_second_player_on_a_folder_is_refused(
    site: Site, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with playing(site, trace):
        await eventually(site.state.capacity_file.exists)
        assert main(the_options(site, trace)) == 2
    assert capsys.readouterr().err == f"{site.state.root}: another player is at work there\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--series", "a,z"), "has no series 'z'; it has a, b"),
        (("--offering", "zone-a=z"), "no series 'z'; the trace has a, b"),
        (("--time-scale", "0"), "a time scale of 0.0 is not positive"),
        (("--count-scale", "-1"), "a count scale of -1.0 is negative"),
        (("--cap", "-1"), "a cap of -1 is negative"),
        (("--window", "5", "1"), "no window of 1 h at 5 h"),
        (("--notice-ratio", "2"), "not between 0 and 1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    site: Site, trace: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main(the_options(site, trace, *options)) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_a_trace_that_is_not_there_is_exit_code_2(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(the_options(site, site.root / "none.csv")) == 2
    assert "none.csv: it cannot be read: No such file" in capsys.readouterr().err


def test_an_offering_without_series_is_a_usage_error(site: Site, trace: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(the_options(site, trace, "--offering", "zone-a"))


async def test_a_measured_table_can_be_cut_merged_capped_and_compressed(site: Site, tmp_path: Path) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text(WIDE)
    options = ("--window", "1", "2", "--merge", "all", "--count-scale", "3", "--cap", "2", "--time-scale", "3600")
    with playing(site, wide, *options):
        await eventually(lambda: site.state.read_capacity() == {"all": 2})
