"""A request, as the operations see it, and what several of them share: pages and filters."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

from tests.simcloud.errors import CloudError

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")
_MOST_FILTER_VALUES = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """Parameters by the API's names, and the access key of who asks."""

    p: Mapping[str, Any]
    caller: str = "test"


def page(
    items: Sequence[T], token: str | None, limit: int | None, *, bad_token: str = "InvalidNextToken"
) -> tuple[list[T], str | None]:
    """One page of at most `limit` items after `token`, and the next token."""
    start = _offset(token, bad_token) if token else 0
    end = len(items) if limit is None else start + limit
    following = base64.urlsafe_b64encode(f"page:{end}".encode()).decode() if end < len(items) else None
    return list(items[start:end]), following


def _offset(token: str, bad_token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("page:"))
    except ValueError:
        raise CloudError(bad_token, "The token is not valid") from None


def filters(asked: Asked) -> dict[str, list[str]]:
    """EC2's and Auto Scaling's filters by name; EC2's limit counts the values of all of them."""
    found = {one["Name"]: list(one.get("Values", [])) for one in asked.p.get("Filters", [])}
    if sum(map(len, found.values())) > _MOST_FILTER_VALUES:
        raise CloudError("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200")
    return found


def matches(values: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether any value matches any pattern: `*` and `?` are wild cards, as EC2 has them."""
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


def tags_match(tags: Mapping[str, str], name: str, patterns: Sequence[str]) -> bool:
    """`tag:<key>`, `tag-key` and `tag-value`."""
    if name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return key in tags and matches([tags[key]], patterns)
    return matches(list(tags if name == "tag-key" else tags.values()), patterns)
