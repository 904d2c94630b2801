"""What is worked out once: a fact of a frozen value, and what a pure function makes of the very same objects.

Policy: no locks, since whatever is worked out twice at once comes out the same. (`functools.cached_property` takes one on each
first look in Python 3.11, which is most of its cost.) Sameness is identity: equal objects are compared by nobody, and those
remembered are kept alive, so that no other object can take their place.
Invariant: at most `MOST` answers a function are kept. Non-goals: functions that look at more than their arguments.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

T = TypeVar("T")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")
MOST = 1024


class once(Generic[S, T]):  # noqa: N801, used like a property
    """A property of an immutable object with a `__dict__`, worked out when first looked at."""

    def __init__(self, function: Callable[[S], T]) -> None:
        self.func = function
        """What works it out, as of `functools.cached_property`."""
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type[S]) -> "once[S, T]": ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> T: ...

    def __get__(self, instance: S | None, owner: type[S]) -> "once[S, T] | T":
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self.func(instance)
        return found


def for_same(function: Callable[[Unpack[Ts]], T]) -> Callable[[Unpack[Ts]], T]:
    """The same pure function, remembering its answers for the very same argument objects."""
    answers: dict[tuple[int, ...], tuple[Any, T]] = {}

    @wraps(function)
    def remembering(*objects: *Ts) -> T:
        key = tuple(map(id, objects))
        known = answers.get(key)
        if known is None:
            if len(answers) >= MOST:
                answers.clear()
            known = answers[key] = objects, function(*objects)
        return known[1]

    return remembering
