"""`cooccurrence`: against two loops in plain Python, with and without Numba, in memory and on disk."""

import importlib
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from keras_tfm.word_vectors import Vocabulary, compiled, cooccurrence, runs
from keras_tfm.word_vectors.runs import Runs

MODULE = importlib.import_module("keras_tfm.word_vectors.cooccurrence")  # which its function hides
LETTERS = [chr(ord("a") + k) for k in range(20)]


def reference(texts, window, min_count=1, symmetric=True):
    """{(word, neighbour): sum of 1 / distance}, by the definition."""
    counts = Counter(word for text in texts for word in text)
    sums = defaultdict(float)
    for text in texts:
        kept = [word for word in text if counts[word] >= min_count]
        for i, word in enumerate(kept):
            for j, other in enumerate(kept):
                if 1 <= i - j <= window or (symmetric and 1 <= j - i <= window):
                    sums[word, other] += 1 / abs(i - j)
    return sums


def as_dict(matrix, words):
    coo = matrix.tocoo()
    return {(words[i], words[j]): x for i, j, x in zip(coo.row, coo.col, coo.data, strict=True)}


def is_mapped(values):
    while values is not None and not isinstance(values, np.memmap):
        values = values.base
    return values is not None


def assert_equal(result, expected):
    matrix, words = result
    found = as_dict(matrix, words)
    assert found.keys() == expected.keys()
    for pair, x in expected.items():
        assert found[pair] == pytest.approx(x, rel=1e-6), pair
    assert matrix.dtype == np.float32 and matrix.has_sorted_indices and matrix.shape == (len(words),) * 2


TEXTS = st.lists(st.lists(st.sampled_from(LETTERS[:6]), max_size=12), max_size=6).filter(any)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS, st.integers(1, 14), st.booleans(), st.integers(1, 3), st.integers(1, 5))
def test_equals_the_definition(engine, monkeypatch, texts, window, symmetric, min_count, block):
    monkeypatch.setattr(MODULE, "BLOCK", block)
    counts = Counter(word for text in texts for word in text)
    if max(counts.values()) < min_count:
        with pytest.raises(ValueError, match="`min_count` must leave words"):
            cooccurrence(texts, window, min_count, symmetric)
        return
    result = cooccurrence([" ".join(text) for text in texts], window, min_count, symmetric)
    assert result[1] == Vocabulary.from_texts(texts, min_count).words
    assert_equal(result, reference(texts, window, min_count, symmetric))


def test_by_hand(engine):
    matrix, words = cooccurrence(iter(["a b c a"]), window=3)
    at = {word: k for k, word in enumerate(words)}
    x = matrix.toarray()
    assert x[at["a"], at["b"]] == 1.5  # 1 at positions 0 and 1, 1/2 at 3 and 1
    assert x[at["a"], at["a"]] == pytest.approx(2 / 3)  # each of both stands 3 from the other
    np.testing.assert_array_equal(x, x.T)
    left, _ = cooccurrence(["a b c a"], window=3, symmetric=False)
    assert left.toarray()[at["b"], at["a"]] == 1 and left.toarray()[at["a"], at["b"]] == 0.5
    np.testing.assert_allclose((left + left.T).toarray(), x)


def test_words_that_are_dropped_leave_no_gap():
    matrix, words = cooccurrence(["a x b", "a b"], window=1, min_count=2)
    assert words == ["a", "b"]
    np.testing.assert_array_equal(matrix.toarray(), [[0, 2], [2, 0]])


@pytest.fixture(scope="module")
def long_texts():
    """60,000 words whose frequencies fall as one over the rank."""
    random = np.random.default_rng(3)
    words = np.minimum(random.zipf(1.3, 60_000), 5_000)
    return [list(map(str, text)) for text in np.split(words, np.sort(random.integers(0, 60_000, 300)))]


def test_more_text_than_memory(engine, long_texts, monkeypatch):
    whole, words = cooccurrence(long_texts, window=8)
    monkeypatch.setattr(runs, "FAN_IN", 2)
    bounded, same_words = cooccurrence(iter(long_texts), window=8, memory=0.01)
    assert is_mapped(bounded.data) and is_mapped(bounded.indices) and not is_mapped(whole.data)
    assert words == same_words and whole.nnz == bounded.nnz > 100_000
    np.testing.assert_array_equal(whole.indices, bounded.indices)
    np.testing.assert_allclose(whole.data, bounded.data, rtol=1e-6)


def test_threads_change_no_bit(long_texts, monkeypatch):
    results = []
    for number in (1, 3):
        monkeypatch.setattr(MODULE, "num_threads", lambda number=number: number)
        monkeypatch.setattr(MODULE, "BLOCK", 1_000)
        results.append(cooccurrence(long_texts, window=5)[0])
    np.testing.assert_array_equal(results[0].data, results[1].data)


@given(st.integers(1, 20), st.integers(1, 400), st.integers(2, 4), st.integers(0, 2**31))
def test_runs_are_added_up(number, limit, fan_in, seed):
    random = np.random.default_rng(seed)
    matrices = [
        sparse.random_array((9, 9), density=random.uniform(0, 0.4), format="csr", rng=random)
        for _ in range(number)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "FAN_IN", fan_in)
        for bound in (None, limit):
            total = Runs(bound)
            for matrix in matrices:
                total.add(matrix)
            merged = total.merged()
            np.testing.assert_allclose(merged.toarray(), sum(matrices).toarray(), rtol=1e-6)
            assert merged.dtype == np.float32 and sum(map(len, total.generations)) < fan_in * 5


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "`texts` must hold words; there are none"),
        (["", " "], {}, "`texts` must hold words; there are none"),
        ("a b", {}, "iterable of texts; it is one string"),
        (["a b"], {"window": 0}, "`window` must be at least 1; it is 0"),
        (["a b"], {"min_count": 0}, "`min_count` must be at least 1; it is 0"),
        (["a b"], {"max_size": 0}, "`max_size` must be at least 1; it is 0"),
        (["a b"], {"memory": 0}, "`memory` must be at least 0.01 GiB; it is 0"),
        (["a b"], {"memory": float("nan")}, "`memory` must be at least 0.01 GiB; it is nan"),
        (["a b"], {"min_count": 2}, "it is 2, and 'a' occurs most often, 1 times"),
    ],
)
def test_refuses(texts, options, message):
    with pytest.raises(ValueError, match=message):
        cooccurrence(texts, **options)


def test_a_corpus_of_one_word_has_no_neighbours():
    matrix, words = cooccurrence(["a"])
    assert words == ["a"] and matrix.nnz == 0


def test_says_once_that_numba_is_missing(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled.numba.cache_clear(), compiled.compiled.cache_clear()
    try:
        for _ in range(2):
            assert_equal(cooccurrence(["a b c a"], window=3), reference(["abca"], 3))
    finally:
        compiled.numba.cache_clear(), compiled.compiled.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert 'pip install "keras-tfm[fast]"' in caplog.text
