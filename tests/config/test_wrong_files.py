"""Files that hold no fleet at all: each is one readable line, and none costs memory."""

import os
from pathlib import Path
from typing import Any

import pytest

from scaler.config import yaml_text
from scaler.config.faults import ConfigError
from scaler.config.loader import load_fleet, load_fleets
from tests.builders.fleet_yaml import a_fleet, changed, faults_in, faults_of, parsed, text_of


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_fleets(path)
    (fault,) = caught.value.faults
    return str(fault)


def bomb(levels: int = 9) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    assert refusal(path) == f"{path}: no such file (check the name)"


def test_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: is a folder (name a YAML file)"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "is no regular file" in refusal(path)


def test_a_name_that_no_file_can_have() -> None:
    assert "cannot be read" in refusal(Path("a\0b"))


def test_a_file_of_ten_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(b"# filler\n" * (10 << 20 >> 3))
    assert "is larger than 1 MiB" in refusal(path)


def test_a_file_of_exactly_a_megabyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    fleet = text_of(a_fleet())
    path.write_bytes(fleet + b"#" * (yaml_text.MAX_BYTES - len(fleet)))
    assert load_fleet(path).metadata.name == "demo"


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# nothing but a comment\n", b"---\n---\n", b"\xef\xbb\xbf"])
def test_an_empty_file(data: bytes) -> None:
    (fault,) = faults_in(data)
    assert fault.message == "is empty"


def test_bytes_that_are_no_utf_8_tell_their_line() -> None:
    (fault,) = faults_in(b"kind: x\nname: \xff\n")
    assert (fault.line, fault.message) == (2, "byte 14 is no UTF-8")


@pytest.mark.parametrize(
    ("data", "line"),
    [(b"kind: [a, b\nspec: x", 2), (b"a: b: c", 1), (b"\n\n\tkind: x", 3), (b"x: *nowhere", 1), (b'a: "\x01"', 1)],
)
def test_what_is_no_yaml_tells_line_and_column(data: bytes, line: int) -> None:
    (fault,) = faults_in(data)
    assert fault.line == line
    assert fault.message.startswith("is no YAML: ")
    assert ", column " in fault.message


@pytest.mark.parametrize("text", ["just words", "[a, list]", "3", "true"])
def test_a_document_that_is_no_mapping(text: str) -> None:
    (fault,) = faults_in(text.encode())
    assert (fault.path, fault.remedy) == ("document", "write keys and values")


def test_a_bomb_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> object:
        raise AssertionError("built something")

    monkeypatch.setattr("yaml.compose_all", never)
    (fault,) = faults_in(bomb())
    assert fault.message == f"holds more than {yaml_text.MAX_NODES} values"
    # 12 thousand values up to the fourth line, 123 thousand with the fifth: the nine hundred million are never seen.
    assert fault.line == 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 500, "is nested deeper"),
        (b"a: " * 2000, "is no YAML"),
        (b"{a: " * 30 + b"1" + b"}" * 30, "is nested deeper"),
        (b"- 1\n" * 30_000, "holds more than"),
        (b"---\nx\n" * 30_000, "holds more than"),
        (b"a: &a [*a]", "holds more than"),
        (b"a: &a {b: &b [*a]}\nc: *b", "holds more than"),
        (b"a: &a [[[[[[[[[[[[1]]]]]]]]]]]]\nb: [[[[[[[[[[[[[*a]]]]]]]]]]]]]", "is nested deeper"),
    ],
    ids=[
        "deep list",
        "key in key",
        "deep mapping",
        "wide",
        "many documents",
        "holds itself",
        "hold each other",
        "deep alias",
    ],
)
def test_what_would_grow_too_large_or_too_deep(data: bytes, message: str) -> None:
    (fault,) = faults_in(data)
    assert fault.message.startswith(message)


def test_an_alias_may_repeat_a_value() -> None:
    document = text_of(a_fleet()).replace(b"name: spot", b"name: &n spot").replace(b"zone: here", b"zone: *n")
    assert not faults_in(document)


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (b"a: 1\nb: 2\na: 3", "a", "key is there twice, first in line 1"),
        (b"base: &b {x: 1}\nspec: {<<: *b}", "spec", "merge keys (<<) are not supported"),
        (b"1: x", "document", "'1' cannot be a key"),
        (b"? [a]\n: x", "document", "a collection cannot be a key"),
        (b"spec: !!python/object/apply:os.system [ls]", "spec", "is not allowed"),
        (b"spec: !!binary aGk=", "spec", "is not allowed"),
        (b"spec: !own x", "spec", "is not allowed"),
        (b"spec: !!int words", "spec", "'words' is no int"),
        (b"spec: " + b"9" * 5000, "spec", "is no int"),
        (b"spec: 1" + b":1" * 400_000, "spec", "'1:1:1:1"),
    ],
)
def test_yaml_beyond_plain_values(data: bytes, path: str, message: str) -> None:
    found = [fault for fault in faults_in(data) if fault.path == path]
    assert any(message in fault.message for fault in found), found


def test_a_date_stays_text() -> None:
    data = text_of(a_fleet("x")).replace(b"name: x", b"name: 2026-99-99")
    (document,) = yaml_text.read_documents(data, Path("f"))
    assert document.value["metadata"] == {"name": "2026-99-99"}


def test_a_time_of_day_is_no_number() -> None:
    (document,) = yaml_text.read_documents(b"a: 1:30", Path("f"))
    assert document.value == {"a": "1:30"}


def test_every_fault_has_the_line_of_its_place() -> None:
    data = text_of(a_fleet(), a_fleet("other", interval="5x"))
    (fault,) = faults_in(data)
    assert data.decode().splitlines()[(fault.line or 0) - 1] == "  interval: 5x"


def test_faults_are_sorted_and_each_is_one_line() -> None:
    lines = [str(fault) for fault in faults_of({"a\nb": 1, "\u2028": 2, "kind": "x" * 5000, "spec": {"é\x1b[31m": 3}})]
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert lines == sorted(lines, key=lambda line: int(line.split(":")[1]))


def test_a_file_full_of_faults_tells_a_hundred_of_them() -> None:
    faults = faults_of({f"key{n}": n for n in range(500)})
    assert len(faults) == 101
    assert "404 more faults" in {fault.message for fault in faults}


def test_several_fleets_are_several_documents() -> None:
    fleets = parsed(a_fleet("one"), None, in_another_folder(a_fleet("two")))
    assert [fleet.metadata.name for fleet in fleets] == ["one", "two"]


def in_another_folder(document: dict[str, Any]) -> dict[str, Any]:
    return changed(document, "spec", "stages", 0, "pools", 0, "provider", "stateDir", to="cloud2")


def test_one_fleet_is_wanted_and_two_are_there(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text_of(a_fleet("one"), in_another_folder(a_fleet("two"))))
    with pytest.raises(ConfigError, match="holds 2 fleets, and one is wanted"):
        load_fleet(path)


def test_what_fleets_of_one_file_may_not_share() -> None:
    job = {"name": "same", "groupSize": 8, "batchGroups": 4}
    messages = [fault.message for fault in faults_of(a_fleet("a", job=job), a_fleet("a", job=job))]
    assert messages == [
        "fleet a is there twice",
        "another fleet serves job same in this ledger already",
        "another fleet has a pool spot in /etc/headrace/cloud already",
    ]
