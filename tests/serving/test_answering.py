"""Examples of several rows: read once, refused before anything is computed, computed in batches, answered."""

import numpy as np
import pytest

from keras_tfm.serving.answering import Answerer, ReadExamples
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.reading import Read, Reader


class Counted(Reader):
    """A number as that many rows, 1 to the number, each as long as it says; below 0 it is refused."""

    def __init__(self):
        self.num_read = 0

    def read_one(self, example):
        self.num_read += 1
        if example < 0:
            raise Refused("expected a natural number")
        return Read(list(range(1, example + 1)), is_cut=example > 8)

    def length(self, row):
        return row

    def join(self, rows, widths=None):
        return {"x": np.array(rows)}


@pytest.fixture
def answerer():
    batches = []

    def run(inputs):
        batches.append(inputs["x"].tolist())
        return {"y": 10 * inputs["x"]}

    answerer = Answerer(
        Counted(), run, lambda outputs, rows, example: (example, rows, [x["y"] for x in outputs])
    )
    answerer.batches = batches
    return answerer


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_an_example_gets_the_outputs_of_its_own_rows(answerer, batch_size):
    examples = [3, 0, 1, 9, 0, 2]
    expected = [(n, list(range(1, n + 1)), [10 * k for k in range(1, n + 1)]) for n in examples]
    assert answerer.ask(examples, batch_size) == expected
    assert sorted(x for batch in answerer.batches for x in batch) == sorted(
        x for _, rows, _ in expected for x in rows
    )
    assert max(map(len, answerer.batches)) <= batch_size
    assert answerer.ask([]) == [] and answerer.ask(examples, finish=lambda *parts: None) == [None] * 6


def test_answers_come_one_by_one(answerer):
    """Before the next batch is computed; an example without rows waits for none."""
    found = [(place, len(answerer.batches)) for place, _ in answerer.each([1, 0, 1, 1, 1], 2)]
    assert found == [(1, 0), (0, 1), (2, 1), (3, 2), (4, 2)]


def test_what_is_refused_is_named_before_anything_is_computed(answerer):
    with pytest.raises(ValueError, match=r"^row 1: expected a natural number \(1 more rows"):
        answerer.ask([3, -1, 2, -2])
    assert answerer.batches == []
    read, refusals = answerer.inspect([9, -1])
    assert read == [Read(list(range(1, 10)), True), None] and refusals == {1: "expected a natural number"}


def test_what_was_read_is_not_read_again(answerer):
    read, _ = answerer.inspect([2, 1])
    assert answerer.ask(ReadExamples([2, 1], read)) == answerer.ask([2, 1])
    assert answerer.reader.num_read == 4
