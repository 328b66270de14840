"""`Vocabulary`: against a sort in plain Python, and by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.word_vectors import Vocabulary

WORDS = st.lists(st.sampled_from(["a", "b", "c", "dé", "e" * 9]), max_size=30)


@given(st.lists(WORDS, max_size=5).filter(any), st.booleans())
def test_is_sorted_by_count_then_word(texts, are_strings):
    vocabulary = Vocabulary.from_texts([" ".join(text) for text in texts] if are_strings else texts)
    counter = Counter(word for text in texts for word in text)
    expected = sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))
    assert list(zip(vocabulary.words, vocabulary.counts, strict=True)) == expected
    assert vocabulary.counts.dtype == np.int64
    np.testing.assert_array_equal(vocabulary.ids(vocabulary.words), np.arange(len(expected)))
    assert vocabulary.total == sum(map(len, texts))
    assert "never" not in vocabulary and vocabulary.words[-1] in vocabulary


def test_by_hand():
    vocabulary = Vocabulary.from_texts(iter(["the cat and the dog", "", "the end"]))
    assert vocabulary.words == ["the", "and", "cat", "dog", "end"] and len(vocabulary) == 5
    ids = vocabulary.ids(["the", "cow", "end", "cow"])
    assert ids.tolist() == [0, -1, 4, -1] and ids.dtype == np.int32
    assert vocabulary.rank("and") == 2
    np.testing.assert_allclose(vocabulary.shares(), np.array([3, 1, 1, 1, 1]) / 7)
    assert vocabulary.coverage(1) == 3 / 7 and vocabulary.coverage() == 1


def test_limits_leave_the_total_alone():
    texts = ["a a a b b c c d"]
    vocabulary = Vocabulary.from_texts(texts, min_count=2)
    assert vocabulary.words == ["a", "b", "c"] and vocabulary.coverage() == 7 / 8
    assert Vocabulary.from_texts(texts, max_size=2).words == ["a", "b"]
    assert Vocabulary.from_texts(texts, min_count=3, max_size=2).words == ["a"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Vocabulary.from_texts([]), "`texts` must hold words; there are none"),
        (lambda: Vocabulary.from_texts(["", " \n"]), "`texts` must hold words; there are none"),
        (lambda: Vocabulary.from_texts("one string"), "iterable of texts; it is one string"),
        (lambda: Vocabulary.from_texts(["a", ["b", 3]]), r"text 1 is \['b', 3\]"),
        (
            lambda: Vocabulary.from_texts(["a a b"], min_count=3),
            "it is 3, and 'a' occurs most often, 2 times",
        ),
        (lambda: Vocabulary.from_texts(["a"], min_count=0), "`min_count` must be at least 1; it is 0"),
        (lambda: Vocabulary.from_texts(["a"], max_size=0), "`max_size` must be at least 1; it is 0"),
        (lambda: Vocabulary(["a", "a"], [1, 2]), "'a' stands twice"),
        (lambda: Vocabulary(["a", "b"], [1]), r"shape \(1,\) for 2 words"),
        (lambda: Vocabulary(["a", "b"], [1, 0]), "whole numbers from 1"),
        (lambda: Vocabulary(["a", "b"], [1, 1.5]), "whole numbers from 1"),
        (lambda: Vocabulary(["a", "b"], [1, 1], total=1), "`total` must be at least"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
