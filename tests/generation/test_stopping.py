"""Where rows end: tokens, sequences of them, and strings however they are spelled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.generation import Decoder, EndTokens, StopSequences
from tests.generation.markov import Markov

SYMBOLS = [b"a", b"b", b"ab", b"ba", b"abab", b"", b"c", b"bca"]


def first_end(stop, tokens):
    """How many tokens are read when the row ends, or None."""
    state = stop.start(1)
    for number, token in enumerate(tokens, 1):
        state, ends = stop.advance(state, np.array([token], "int32"))
        if bool(ends[0]):
            return number
    return None


@given(
    st.lists(st.integers(0, len(SYMBOLS) - 1), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=5).map(str.encode), min_size=1, max_size=3),
)
def test_stop_strings_are_found_where_the_text_has_them(tokens, strings):
    text, expected = b"", None
    for number, token in enumerate(tokens, 1):
        text += SYMBOLS[token]
        if any(string in text for string in strings):
            expected = number
            break
    assert first_end(StopSequences(strings, SYMBOLS), tokens) == expected


def test_sequences_of_tokens_and_end_tokens():
    stop = StopSequences([[1, 2, 1]], [(i,) for i in range(6)], end_ids=[5])
    assert first_end(stop, [1, 2, 1, 2, 1]) == 3
    assert first_end(stop, [1, 1, 2, 2, 1, 2, 1]) == 7
    assert first_end(stop, [1, 5, 1]) == 2
    assert first_end(stop, [1, 2, 3, 4]) is None
    assert first_end(EndTokens(3, 4), [1, 4, 3]) == 2
    assert first_end(EndTokens(), [1, 2]) is None


def test_tokens_beyond_the_symbols_stand_for_none():
    stop = StopSequences([b"ab"], [b"a", b"b"])
    assert first_end(stop, [0, 2, 9, 1]) == 4
    assert first_end(stop, [0, 2, 0]) is None


def test_a_row_stops_and_another_whose_string_never_comes_goes_on():
    """1 -> 2 -> 3 -> 4 -> 1 ...: one row begins at 1, the other is stuck at 5."""
    table = np.zeros((6, 6))
    for a, b in ((1, 2), (2, 3), (3, 4), (4, 1), (5, 5)):
        table[a, b] = 9
    stop = StopSequences([b"bc"], [b"", b"a", b"xb", b"cx", b"d", b"e"])
    rows = Decoder(Markov(table), 6, stop=stop)(np.array([[1], [5]])).numpy()
    assert rows.tolist() == [[1, 2, 3, 0, 0, 0, 0], [5] * 7]


def test_empty_sequences_are_refused():
    for sequences in ([], [b"a", b""]):
        with pytest.raises(ValueError, match="`sequences` must be one or more, none of them empty"):
            StopSequences(sequences, SYMBOLS)
