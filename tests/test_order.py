"""Long tests begin first, in parts of their own."""

import pytest

from tests.order import dealt

REST = [f"t{number}" for number in range(25)]


@pytest.mark.parametrize("parts", [1, 2, 3, 40])
def test_none_is_left_out_and_none_runs_twice(parts: int) -> None:
    assert sorted(dealt(["c1", "c2"], ["s1", "s2", "s3"], REST, parts)) == sorted(["c1", "c2", "s1", "s2", "s3", *REST])


def test_tests_of_a_cluster_begin_the_first_part_and_slow_ones_the_second() -> None:
    order = dealt(["c1", "c2"], ["s1", "s2", "s3"], REST, 3)
    first, second = order[:10], order[10:20]
    assert first[:2] == ["c1", "c2"]
    assert second[:3] == ["s1", "s2", "s3"]
    assert [each for each in order if each in REST] == REST, "the random order stays"


def test_alone_the_long_ones_come_first() -> None:
    assert dealt(["c"], ["s"], ["t"], 1) == ["c", "s", "t"]
