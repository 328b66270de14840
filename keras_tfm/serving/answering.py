"""A reader, a function of numbers and an answer in one: raw examples in, answers out."""

from typing import Any, NamedTuple

import numpy as np

from .examples import Refused, check_batch_size, listed, refuse_rows
from .readers import Read, by_length


class Answered(NamedTuple):
    """What came of examples: the `answers`, {name: value} each or what `finish` made, None for those with
    `refusals`, {row: reason}; and how many were cut.
    """

    answers: list
    refusals: dict[int, str]
    num_cut: int


class ReadExamples(list):
    """Examples beside what they were `read` as, so that they are read once."""

    def __init__(self, examples, read):
        super().__init__(examples)
        self.read = read


class Answerer:
    """`answerer(examples)` gives {name: array} with a row for each of the examples.

    Args:
        reader: a `Reader`.
        run: the function of numbers, {name: array} to {name: array}.
        finish: makes an answer of the outputs of an example's rows, {name: array} each, of these rows, and of
            the example itself.
        most_rows: the most rows of a call of `run`, None for any number.
        widths: the lengths that it takes, sorted, None for any.
    """

    def __init__(self, reader, run, finish, most_rows=None, widths=None):
        self.reader, self.run, self.finish = reader, run, finish
        self.most_rows, self.widths = most_rows, widths

    def __call__(self, examples, batch_size=32):
        """The answers to all `examples`, {name: array with one row per example}."""
        check_batch_size(batch_size)
        answered = self.ask(listed(examples), batch_size)
        refuse_rows(answered.refusals)
        answers = answered.answers
        return {name: stacked([answer[name] for answer in answers]) for name in answers[0]} if answers else {}

    def ask(self, examples, batch_size=32, finish=None, progress=iter):
        """The `Answered` of a list of `examples`; `progress` goes through lists of the numbers of rows that
        are computed together.
        """
        read, refusals = self.rows(examples)
        left = iter(self.outputs([row for rows, _ in read for row in rows], batch_size, progress))
        finish = finish or self.finish
        answers = [
            None if place in refusals else finish([next(left) for _ in rows], rows, example)
            for place, ((rows, _), example) in enumerate(zip(read, examples, strict=True))
        ]
        return Answered(answers, refusals, sum(is_cut for _, is_cut in read))

    def rows(self, examples):
        """The `Read` of each of the `examples`, without a row where it is refused, and {row: reason} of
        those.
        """
        read = examples.read if isinstance(examples, ReadExamples) else self.reader.read(examples)
        refusals = {place: str(found) for place, found in enumerate(read) if isinstance(found, Refused)}
        return [Read([]) if place in refusals else found for place, found in enumerate(read)], refusals

    def outputs(self, rows, batch_size=32, progress=iter):
        """What the function gives for each of the `rows`, {name: array}."""
        found: list[Any] = [None] * len(rows)
        lengths = [self.reader.length(row) for row in rows]
        batches = list(by_length(lengths, min(batch_size, self.most_rows or batch_size)))
        for places in progress(batches):
            outputs = self.run(self.reader.join([rows[place] for place in places], self.widths))
            for number, place in enumerate(places):
                found[place] = {name: x[number] for name, x in outputs.items()}
        return found

    def read(self, examples):
        """The inputs of `run` for `examples`, padded to the longest."""
        read, refusals = self.rows(examples)
        refuse_rows(refusals)
        return self.reader.join([row for rows, _ in read for row in rows], self.widths)


def stacked(values):
    """Values as one array; vectors of several lengths are padded with zeros."""
    if len({np.shape(value) for value in values}) == 1:
        return np.array(values)
    longest = max(map(len, values))
    return np.array([np.pad(value, (0, longest - len(value))) for value in values])
