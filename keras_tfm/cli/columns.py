"""--columns A,B of a table: names, or numbers from 0."""

from typing import Any


def column_names(text: str | None) -> list[str | int] | None:
    """The columns in --columns, as names or numbers."""
    return None if text is None else [int(name) if name.isdecimal() else name for name in text.split(",")]


def check_columns(task: Any, text: str | None, counts: tuple[int, ...] | None = None) -> None:
    """Raise ValueError if --columns names more or fewer columns than a task takes."""
    counts = task.columns if counts is None else counts
    if text is not None and text.count(",") + 1 not in counts:
        words = {1: "one, A", 2: "two, A,B", 3: "three, A,B,C"}
        expected = " or ".join(words.get(count, f"{count} of them") for count in counts)
        raise ValueError(f"--columns: expected {expected}; got {text}")
