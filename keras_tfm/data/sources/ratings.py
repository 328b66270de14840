"""Ratings of items by users, from tables."""

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_tfm.data.sources.lines import DataError, Inputs, Path, Paths
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    one_of_each,
    parse_layout,
    read_all,
    read_inputs,
    without_labels,
)

USERS = ("user", "user_id", "userid", "reader", "reviewer", "reviewer_id")
ITEMS = (
    "item", "item_id", "itemid", "movie", "movie_id", "movieid", "book", "book_id", "bookid", "isbn",
    "product", "product_id", "productid", "asin",
)  # fmt: skip
RATINGS = ("rating", "ratings", "score", "stars", "book_rating")
COLUMNS = ("user", "item", "rating")
LARGEST = float(np.finfo("float32").max)


class Ratings(NamedTuple):
    """Three columns of equal length: ids of users, ids of items (strings), and the users' ratings of the
    items.

    >>> data = keras_tfm.data.Ratings(["ana", "ben"], ["1984", "1984"], np.array([5.0, 3.0]))
    >>> float(data.ratings.mean())
    4.0
    """

    users: list[str]
    items: list[str]
    ratings: np.ndarray


def read_ratings(
    paths: Paths,
    columns: ColumnNames = None,
    lowest: float | None = None,
    highest: float | None = None,
) -> Ratings:
    r"""Read users, items and ratings from one or several tables, given by paths or patterns.

    Tables are .tsv, .csv, .jsonl or .parquet files, or data sets of TFDS; a file with another name, such as
    MovieLens' u.data, is read as .tsv. `columns` chooses user, item and rating, by name or by position from
    0; a first row is a header if `columns` are names, or if it contains known names.

    Raises:
        DataError: for a blank id, a rating that is not a finite number from `lowest` to `highest`, a pair of
            user and item that occurs twice, and as in `read_rows`; the message names the file and the line.

    >>> import pathlib
    >>> _ = pathlib.Path("ratings.csv").write_text("user,item,rating\nana,1984,5\nben,1984,3\n")
    >>> keras_tfm.data.read_ratings("ratings.csv", lowest=1, highest=5)
    Ratings(users=['ana', 'ben'], items=['1984', '1984'], ratings=array([5., 3.], dtype=float32))
    """
    known = one_of_each(USERS, ITEMS, RATINGS)
    chosen = Columns(COLUMNS, known, parse_layout(columns, counts=(3,)))
    users: list[str] = []
    items: list[str] = []
    ratings, lines = array("f"), array("q")
    names: dict[str, str] = {}  # one string object per id, however often it occurs
    files: list[tuple[int, str, str]] = []  # (its first row, its path, its unit of rows)
    for row in read_all(paths, chosen, "ratings", unknown=".tsv"):
        if not files or files[-1][1] != row.path:
            files.append((len(users), row.path, row.unit))
        user, item = identifier(row, 0), identifier(row, 1)
        users.append(names.setdefault(user, user))
        items.append(names.setdefault(item, item))
        rating = row.as_number(2)
        if problem := rating_problem(rating, lowest, highest):
            row.refuse(f"expected {problem}, got {row.cells[2]!r:.60}")
        ratings.append(rating)
        lines.append(row.number)
    if found := repeated(users, items):
        first, second = found
        (_, before, its), (_, path, unit) = (
            next(file for file in reversed(files) if file[0] <= row) for row in found
        )
        place = f"{its} {lines[first]}" if before == path else f"{before}, {its} {lines[first]}"
        pair = f"{users[second]!r} rated {items[second]!r} before, in {place}"
        raise DataError(path, lines[second], f"expected a pair once, {pair}", unit)
    return Ratings(users, items, np.array(ratings, "float32"))


def read_users(path: Path, columns: ColumnNames = None) -> Inputs:
    """Ids of users to answer: the lines of text files, or the user column of tables."""
    return read_inputs(
        path, without_labels(COLUMNS, 2, one_of_each(USERS), columns), lambda row: identifier(row, 0)
    )


def identifier(row: Row, place: int) -> str:
    """The cell at `place` as an id, a whole number or a text; DataError for anything else."""
    value = row.cells[place]
    return str(value) if type(value) is int else row.text(place).strip()


def rating_problem(rating: float, lowest: float | None, highest: float | None) -> str | None:
    """What a rating must be and is not; None for a valid rating."""
    if not math.isfinite(rating) or abs(rating) > LARGEST:
        return "a number as the rating"
    if lowest is not None and rating < lowest:
        return f"a rating of at least {lowest:g}"
    if highest is not None and rating > highest:
        return f"a rating of at most {highest:g}"
    return None


def first_problem(ratings: np.ndarray, lowest: float | None, highest: float | None) -> tuple[int, str] | None:
    """(row, what it must be) of the first invalid rating; None if all are valid."""
    is_within = np.isfinite(ratings) & (np.abs(ratings) <= LARGEST)
    is_within &= ratings >= (-LARGEST if lowest is None else lowest)
    is_within &= ratings <= (LARGEST if highest is None else highest)
    if is_within.all():
        return None
    row = int(np.argmin(is_within))
    return row, str(rating_problem(float(ratings[row]), lowest, highest))


def repeated(users: Sequence[str], items: Sequence[str]) -> tuple[int, int] | None:
    """The rows of the first pair of user and item that occurs twice; None if all pairs are distinct."""
    numbers: list[dict[str, int]] = [{}, {}]
    columns = [
        np.fromiter((known.setdefault(name, len(known)) for name in column), np.int64, len(column))
        for known, column in zip(numbers, (users, items), strict=True)
    ]
    pairs = columns[0] * len(numbers[1]) + columns[1]
    order = np.argsort(pairs, kind="stable")
    twice = np.flatnonzero(pairs[order][1:] == pairs[order][:-1])
    if not len(twice):
        return None
    place = twice[np.argmin(order[twice + 1])]
    return int(order[place]), int(order[place + 1])
