"""A reader, a function of numbers and an answer in one: raw examples in, answers out."""

import numpy as np

from .examples import Refused, check_batch_size, listed, refuse_rows
from .reading import by_length


class ReadExamples(list):
    """Examples beside what they were `read` as, so that they are read once."""

    def __init__(self, examples, read):
        super().__init__(examples)
        self.read = read

    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        return ReadExamples(found, self.read[rows]) if isinstance(rows, slice) else found


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

    def __init__(self, reader, run=None, finish=None, most_rows=None, widths=None):
        self.reader, self.run, self.finish = reader, run, finish
        self.most_rows, self.widths = most_rows, widths

    def __call__(self, examples, batch_size=32):
        """The answers to all `examples`, {name: array with one row per example}."""
        check_batch_size(batch_size)
        answers = self.ask(listed(examples), batch_size)
        return {name: stacked([answer[name] for answer in answers]) for name in answers[0]} if answers else {}

    def ask(self, examples, batch_size=32, finish=None, progress=iter, plan=None):
        """The answer to each of a list of `examples`; the arguments are as in `each`."""
        answers = dict(self.each(examples, batch_size, finish, progress, plan))
        return [answers[place] for place in range(len(examples))]

    def each(self, examples, batch_size=32, finish=None, progress=iter, plan=None):
        """Yield the place of each of a list of `examples`, and its answer as soon as it is known, {name:
        value} or what another `finish` makes; examples of one row each, as long as each other, in order.

        They are read together, or in the portions that the reader states. ValueError for the first that
        cannot be read. Outputs are kept until an example has all of its own. `plan` are the batches, pairs of
        the numbers of their rows and of a `run` for these; by default rows of about the same length share
        one. `progress` goes through them.
        """
        if plan is not None:
            yield from self._each(examples, self.read_all(examples), batch_size, finish, progress, plan)
            return
        portion = getattr(self.reader, "portion", None) or max(batch_size, len(examples))
        portion = max(batch_size, portion - portion % batch_size) if portion < len(examples) else portion
        for first in range(0, len(examples), portion):
            part = examples[first : first + portion]
            found = self._each(part, self.read_all(part, first), batch_size, finish, progress)
            yield from ((first + place, answer) for place, answer in found)

    def _each(self, examples, read, batch_size, finish, progress, plan=None):
        """What `each` yields for `examples` that are `read`."""
        rows = [(place, row) for place, (rows, _) in enumerate(read) for row in rows]
        firsts = np.cumsum([0, *(len(rows) for rows, _ in read)])
        outputs = [[None] * len(rows) for rows, _ in read]
        finish = finish or self.finish
        for place, (rows_of_it, _) in enumerate(read):
            if not rows_of_it:
                yield place, finish([], [], examples[place])
        if plan is None:
            lengths = [self.reader.length(row) for _, row in rows]
            batches = by_length(lengths, min(batch_size, self.most_rows or batch_size))
            plan = [(numbers, self.run) for numbers in batches]
        for numbers, run in progress(plan):
            found = run(self.reader.join([rows[number][1] for number in numbers], self.widths))
            for at, number in enumerate(numbers):
                place = rows[number][0]
                outputs[place][number - firsts[place]] = {name: x[at] for name, x in found.items()}
                if None not in outputs[place]:
                    yield place, finish(outputs[place], read[place].rows, examples[place])
                    outputs[place] = []

    def inspect(self, examples):
        """The `Read` of each of the `examples`, None for the rows in {row: reason}."""
        read = examples.read if isinstance(examples, ReadExamples) else self.reader.read(examples)
        refusals = {place: str(found) for place, found in enumerate(read) if isinstance(found, Refused)}
        return [None if place in refusals else found for place, found in enumerate(read)], refusals

    def read_all(self, examples, first=0):
        """The `Read` of each of the `examples`; ValueError for the first that cannot be read. They are the
        rows from `first` on.
        """
        read, refusals = self.inspect(examples)
        refuse_rows({first + row: reason for row, reason in refusals.items()})
        return read

    def read(self, examples):
        """The inputs of `run` for `examples`, padded to the longest."""
        rows = [row for rows, _ in self.read_all(examples) for row in rows]
        return self.reader.join(rows, self.widths)


def stacked(values):
    """Values as one array; vectors of several lengths are padded with zeros."""
    if isinstance(values[0], str):
        return np.array(values, object)  # NumPy's own strings would lose a NUL at the end
    if len({np.shape(value) for value in values}) == 1:
        return np.array(values)
    longest = max(map(len, values))
    return np.array([np.pad(value, (0, longest - len(value))) for value in values])
