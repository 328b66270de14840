"""What all readers share: examples as rows, rows as arrays, and which rows are computed together."""

from typing import NamedTuple

import numpy as np

from .examples import Refused, check, not_in_memory

WASTE = 1.3  # texts share a batch if the longest is at most so many times as long as the shortest


class Read(NamedTuple):
    """An example's rows, and whether more of it was there than the model reads."""

    rows: list
    is_cut: bool = False


class Reader:
    """Examples as rows, and rows as arrays; a subclass has `row`, or else `read`."""

    portion: int | None = (
        None  # how many examples are read at once, where their rows take much memory; None for all
    )

    def read(self, examples):
        """What each of the `examples` is read as: a `Read`, or the `Refused` that says why it is not."""
        return [refused_or(self.read_one, example) for example in examples]

    def read_one(self, example):
        """The `Read` of an example; raises `Refused`."""
        return Read([self.row(example)])

    def row(self, example):
        """The row of an example; raises `Refused`."""
        raise NotImplementedError

    def length(self, row):
        return 1

    def join(self, rows, widths=None):
        """Rows as {input: array}."""
        raise NotImplementedError


def refused_or(make, *arguments):
    """What `make` gives for the arguments, or the `Refused` that it raises."""
    try:
        return make(*arguments)
    except Refused as refused:
        return refused


class InMemory(Reader):
    """A `reader` of files that refuses their paths."""

    def __init__(self, reader):
        self._reader, self.portion = reader, reader.portion

    def read_one(self, example):
        check(example, not_in_memory)
        return self._reader.read_one(example)

    def join(self, rows, widths=None):
        return self._reader.join(rows, widths)


class Plain(Reader):
    """A reader that is a function of an example alone: it gives {input: array}, or raises a ValueError.

    Arrays of several lengths, their first axis, are padded with zeros.
    """

    def __init__(self, function):
        self._function = function

    def row(self, example):
        try:
            return {name: np.asarray(x) for name, x in self._function(example).items()}
        except ValueError as error:
            raise Refused(str(error)) from None

    def length(self, row):
        return max((len(x) for x in row.values() if x.ndim), default=1)

    def join(self, rows, widths=None):
        least = fitting(max(map(self.length, rows)), widths) if widths else 0

        def padded(x, length):
            return np.pad(x, [(0, length - len(x))] + [(0, 0)] * (x.ndim - 1)) if x.ndim else x

        columns = {name: [row[name] for row in rows] for name in rows[0]}
        lengths = {name: max([least, *(len(x) for x in some if x.ndim)]) for name, some in columns.items()}
        return {name: np.stack([padded(x, lengths[name]) for x in some]) for name, some in columns.items()}


def by_length(lengths, most):
    """The places of the rows that are computed together, `most` at most: of about the same length."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == most or lengths[place] > WASTE * lengths[batch[0]] + 2):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def fitting(length, widths):
    """The least of `widths`, sorted, that holds `length`; without any, `length` itself."""
    if not widths:
        return length
    if length > widths[-1]:
        raise ValueError(f"expected rows of at most {widths[-1]} tokens, got one of {length}")
    return next(width for width in widths if width >= length)
