"""Every numbered bug report has a test that is named after it, or a reason why it cannot happen here."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.bug_reports import NOT_APPLICABLE, REPORTS

HERE = Path(__file__).parent
NUMBER = r"\d{3}[a-z]?"
NAME = re.compile(rf"test_bug_({NUMBER}(?:_(?:and|bug|to)_{NUMBER})*)_[a-z]")
PARAMETER = re.compile(r"bugs? (\d{1,3}[a-z]?(?:(?:, | and )\d{1,3}[a-z]?)*)\b")


def of_name(name: str) -> list[str]:
    """The numbers in the name of a test."""
    found = NAME.match(name)
    return re.findall(NUMBER, found[1]) if found else []


def of_parameter(text: object) -> list[str]:
    """The numbers at the beginning of a parameter's id."""
    found = PARAMETER.match(text) if isinstance(text, str) else None
    return [f"{int(digits):03}{letter}" for digits, letter in re.findall(r"(\d+)([a-z]?)\b", found[1])] if found else []


def numbers(tree: ast.AST) -> Iterator[str]:
    """The numbers that the tests of a module are about, as often as they are named."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from of_name(node.name)
        elif isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
            for part in ast.walk(node.value):
                yield from of_parameter(part.value if isinstance(part, ast.Constant) else None)


@cache
def covered() -> dict[str, set[str]]:
    """Number -> the files with tests about it."""
    found: dict[str, set[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        for number in numbers(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(number, set()).add(path.relative_to(HERE).as_posix())
    return found


def test_the_list_is_whole() -> None:
    assert set(REPORTS) == {f"{n:03}" for n in range(1, 110)} | {"056a", "056b", "058a", "058b"}
    assert all(reference and what for reference, what in REPORTS.values())


@pytest.mark.parametrize("number", REPORTS)
def test_each_report_has_a_test_or_a_reason_and_never_both(number: str) -> None:
    files = covered().get(number, set()) - {Path(__file__).name}
    assert bool(files) != (number in NOT_APPLICABLE), f"{number}: {REPORTS[number]}, tests in {sorted(files)}"


def test_no_test_is_about_a_report_that_there_is_not() -> None:
    assert covered().keys() <= REPORTS.keys()


def test_a_reason_says_something_about_a_report_that_there_is() -> None:
    assert NOT_APPLICABLE.keys() <= REPORTS.keys()
    assert all(len(reason.split()) >= 5 for reason in NOT_APPLICABLE.values())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_bug_041_one_thing(): ...", ["041"]),
        ("async def test_bug_056a_another(): ...", ["056a"]),
        ("def test_bug_067_and_074_two(): ...", ["067", "074"]),
        ("def test_bug_005_bug_006_two(): ...", ["005", "006"]),
        ("x = pytest.param(1, id='bug 7: one')", ["007"]),
        ("x = parametrize('a', [1, 2], ids=['bugs 56b and 85: two', 'none'])", ["056b", "085"]),
        ("def test_that_speaks_of_bug_041_only_later(): ...", []),
        ("def bug_041(): ...", []),
        ("x = pytest.param(1, id='no bug 7')", []),
        ("# test_bug_041_x\nx = 'test_bug_041_x'", []),
    ],
)
def test_names_and_ids_are_read_as_they_are_meant(source: str, found: list[str]) -> None:
    assert list(numbers(ast.parse(source))) == found
