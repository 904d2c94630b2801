"""What is worked out once."""

from dataclasses import dataclass

from scaler.model.once import MOST, for_same, once

looks: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Fact:
    name: str

    @once
    def shouted(self) -> str:
        looks.append(self.name)
        return self.name.upper()


def test_a_fact_is_worked_out_when_first_looked_at_and_for_each_value_apart() -> None:
    looks.clear()
    one, other = Fact(name="one"), Fact(name="other")

    assert [one.shouted, one.shouted, other.shouted, one.shouted] == ["ONE", "ONE", "OTHER", "ONE"]
    assert looks == ["one", "other"]


def test_only_the_very_same_objects_get_an_answer_that_was_given_before() -> None:
    asked: list[tuple[int, ...]] = []

    @for_same
    def total(numbers: tuple[int, ...]) -> int:
        asked.append(numbers)
        return sum(numbers)

    first, equal = tuple(range(3)), tuple(range(3))

    assert [total(first), total(first), total(equal)] == [3, 3, 3]
    assert len(asked) == 2


def test_no_object_takes_the_place_of_one_that_is_gone_however_many_there_were() -> None:
    @for_same
    def only(numbers: list[int]) -> int:
        return numbers[0]

    assert [only([number]) for number in range(3 * MOST)] == list(range(3 * MOST))
