"""Plain text tables: every column as wide as its widest cell, whatever the terminal's width, so that they can be piped."""

from collections.abc import Mapping, Sequence


def table_of(rows: Sequence[Mapping[str, object]]) -> str:
    """A line of names and a line a row, right-aligned; all rows have the keys of the first. Empty without rows."""
    if not rows:
        return ""
    columns = tuple(rows[0])
    lines = [columns, *(tuple(f"{row[column]}" for column in columns) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
