"""Building, on a Go module without dependencies that stands for the real ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import build
from tests.cluster.build import PROGRAMS, REQUIRE, Program, Unavailable, binaries, main, require_go

ROOT = Path(__file__).parents[2]
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
BUILD_HELLO = """
from pathlib import Path
from tests.cluster import build
build.TOOLS = Path({folder!r}) / "tools"
build.cache = lambda: Path({folder!r}) / "cache"
build.PROGRAMS = {{"hello": build.Program(name="hello", module="hello", package=".")}}
raise SystemExit(build.main(["hello"]))
"""


@pytest.fixture
def hello(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program that says "one", and a cache of its own."""
    folder = tmp_path / "tools" / "hello"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module hello\n\ngo 1.21\n")
    (folder / "go.sum").touch()
    (folder / "main.go").write_text('package main\n\nfunc main() { println("hello") }\n')
    program = Program(name="hello", module="hello", package=".")
    monkeypatch.setattr(build, "TOOLS", tmp_path / "tools")
    monkeypatch.setattr(build, "PROGRAMS", {"hello": program})
    monkeypatch.setattr(build, "cache", lambda: tmp_path / "cache")
    monkeypatch.delenv(REQUIRE, raising=False)
    return program


@needs_go
def test_what_is_built_runs_and_is_not_built_again(hello: Program) -> None:
    assert main([]) == 0
    first = hello.binary.stat()
    assert subprocess.run([hello.binary], capture_output=True, check=True).stderr == b"hello\n"
    assert main(["hello"]) == 0
    assert hello.binary.stat().st_ino == first.st_ino
    assert [path.name for path in hello.binary.parent.iterdir()] == ["hello"]


def test_a_changed_module_or_flag_is_another_binary(hello: Program) -> None:
    before = {hello.binary, Program(name="hello", module="hello", package=".", linked="-X a=b").binary}
    (hello.folder / "go.sum").write_text("changed")
    assert len(before | {hello.binary}) == 3


@needs_go
def test_two_that_build_at_once_build_it_once(hello: Program, tmp_path: Path) -> None:
    script = BUILD_HELLO.format(folder=str(tmp_path))
    both = [
        subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=os.environ, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(said).count("built in") == 1
    assert hello.binary.exists()


@needs_go
def test_a_failed_build_leaves_no_binary_and_says_so(hello: Program, capfd: pytest.CaptureFixture[str]) -> None:
    (hello.folder / "main.go").write_text("no Go at all")
    assert main([]) == 1
    assert not hello.binary.exists()
    assert "the build failed: go build" in capfd.readouterr().err


@pytest.mark.parametrize(("required", "code"), [("0", 0), ("1", 1)])
def test_without_go_a_build_where_possible_fails_only_where_a_cluster_is_required(
    hello: Program,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    required: str,
    code: int,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(REQUIRE, required)
    assert main(["--where-possible"]) == code
    assert "Go is not installed" in capfd.readouterr().err
    assert main([]) == 1


def test_what_is_not_built_is_said_by_name(hello: Program) -> None:
    with pytest.raises(Unavailable, match=r"not built: hello \(make cluster-build\)"):
        binaries(["hello"])


@needs_go
def test_where_a_cluster_is_required_it_is_built(hello: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "1")
    assert binaries(["hello"]) == {"hello": hello.binary}
    assert hello.binary.exists()


@needs_go
def test_a_go_that_is_too_old_is_said_to_be(hello: Program) -> None:
    (hello.folder / "go.mod").write_text("module hello\n\ngo 9.1\n")
    with pytest.raises(Unavailable, match=r"Go 9\.1 or newer is needed, this is 1\."):
        require_go()


def test_an_unknown_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["keda"])
    assert "unknown: keda" in capsys.readouterr().err


def test_only_modules_and_their_sums_are_kept_of_the_tools() -> None:
    kept = {path.name for path in build.TOOLS.rglob("*") if path.is_file()}
    assert kept == {"go.mod", "go.sum"}
    assert {program.module for program in PROGRAMS.values()} == {path.name for path in build.TOOLS.iterdir()}
