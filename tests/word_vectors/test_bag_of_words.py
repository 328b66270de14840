"""Bags of words by hand, TF-IDF against scikit-learn, SVD against NumPy."""

import math
from pydoc_data.topics import topics

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from keras_tfm.training.safetensors import CheckpointError
from keras_tfm.word_vectors import (
    MatrixFactorization,
    OneHot,
    TfIdf,
    Vocabulary,
    cosines,
    density,
    dimensions,
    size_reduction,
    term_counts,
    truncated_svd,
)

TEXTS = ["the cat saw the dog", "a dog", "the end"]
WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12)
CORPUS = st.lists(WORDS, min_size=1, max_size=8)


def test_one_hot_in_both_meanings_by_hand():
    vocabulary = Vocabulary.from_texts(TEXTS)
    assert vocabulary.words == ["the", "dog", "a", "cat", "end", "saw"]
    one_hot = OneHot(vocabulary)
    assert one_hot.incidence(TEXTS).toarray().tolist() == [
        [1, 0, 1], [1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0],
    ]  # fmt: skip
    assert term_counts(TEXTS, vocabulary).toarray()[0].tolist() == [2, 1, 0, 1, 0, 1]
    vectors = one_hot.vectors([*vocabulary.words, "cow"]).toarray()
    np.testing.assert_array_equal(vectors[:-1], np.eye(6))
    assert not vectors[-1].any()
    distances = np.linalg.norm(vectors[:-1, None] - vectors[None, :-1], axis=-1)
    np.testing.assert_array_equal(distances[~np.eye(6, dtype=bool)], math.sqrt(2))


@given(CORPUS, st.randoms())
def test_order_is_lost_and_how_often_is_in_the_counts_alone(corpus, random):
    vocabulary = Vocabulary.from_texts(corpus)
    shuffled = [random.sample(words, len(words)) for words in corpus]
    doubled = [words * 2 for words in corpus]
    counts = term_counts(corpus, vocabulary)
    assert counts.sum() == sum(map(len, corpus))
    for position, words in enumerate(corpus):
        assert counts.toarray()[position].tolist() == [words.count(word) for word in vocabulary.words]
    one_hot = OneHot(vocabulary)
    for changed, factor in ((shuffled, 1), (doubled, 2)):
        assert (term_counts(changed, vocabulary) != counts * factor).nnz == 0
        assert (one_hot.incidence(changed) != one_hot.incidence(corpus)).nnz == 0


def test_the_three_problems_as_numbers():
    vocabulary = Vocabulary.from_texts(TEXTS)
    one_hot = OneHot(vocabulary)
    matrix = one_hot.incidence(TEXTS)
    assert density(matrix) == 8 / 18
    assert dimensions(matrix) == (3, 6, 18)
    every = [(a, b) for a in vocabulary.words for b in vocabulary.words if a < b]
    assert not cosines(one_hot.vectors(vocabulary.words), vocabulary, every).any()
    found = cosines(matrix, vocabulary, [("cat", "saw"), ("the", "dog"), ("cat", "end"), ("a", "a")])
    np.testing.assert_allclose(found, [1, 0.5, 0, 1])
    with pytest.raises(ValueError, match="it has no 'cow'"):
        cosines(matrix, vocabulary, [("cat", "cow")])
    assert density(scipy.sparse.csr_array((0, 3))) == 0


def test_the_three_problems_of_a_real_corpus():
    """Python's own manual, by paragraphs: less than 1 % of the matrix is not zero, synonyms have cosine 0."""
    texts = [text for page in topics.values() for text in page.lower().split("\n\n")]
    vocabulary = Vocabulary.from_texts(texts)
    one_hot = OneHot(vocabulary)
    matrix = one_hot.incidence(texts)
    assert density(matrix) < 0.01
    assert dimensions(matrix) == (len(texts), len(vocabulary), len(texts) * len(vocabulary))
    synonyms = [("function", "method"), ("list", "sequence"), ("class", "type")]
    assert not cosines(one_hot.vectors(vocabulary.words), vocabulary, synonyms).any()


@given(CORPUS, CORPUS, st.booleans(), st.booleans(), st.sampled_from(["l1", "l2", None]))
def test_tf_idf_equals_scikit_learns(corpus, others, smooth, sublinear, norm):
    vocabulary = Vocabulary.from_texts(corpus)
    theirs = TfidfVectorizer(
        analyzer=list, vocabulary=vocabulary.words, smooth_idf=smooth, sublinear_tf=sublinear, norm=norm
    ).fit(corpus)
    if not smooth:
        theirs.idf_ -= 1  # which they add to the textbook's
    ours = TfIdf(smooth, sublinear, norm)
    np.testing.assert_allclose(
        ours.fit_transform(corpus).toarray(), theirs.transform(corpus).toarray(), atol=1e-12
    )
    np.testing.assert_allclose(
        ours.transform(others).toarray(), theirs.transform(others).toarray(), atol=1e-12
    )


def test_a_word_of_every_text_counts_nothing_unsmoothed():
    tf_idf = TfIdf(smooth=False, norm=None).fit(["the cat", "the dog the", "the"])
    rows = tf_idf.transform(["the cat", "the the"]).toarray()
    assert tf_idf.idf[tf_idf.vocabulary.words.index("the")] == 0
    cat = tf_idf.vocabulary.words.index("cat")
    assert rows[0, cat] == pytest.approx(math.log(3)) and rows.sum() == rows[0, cat]


def test_tf_idf_keeps_and_refuses(tmp_path):
    tf_idf = TfIdf(smooth=False, sublinear=True, norm="l1").fit(TEXTS)
    path = tmp_path / "words.safetensors"
    tf_idf.save(path)
    loaded = TfIdf.load(path)
    assert loaded.config == tf_idf.config and loaded.vocabulary.words == tf_idf.vocabulary.words
    assert (loaded.transform(TEXTS) != tf_idf.transform(TEXTS)).nnz == 0
    content = path.read_bytes()
    for wrong in (
        content.replace(b'"idf"', b'"ifd"'),
        content.replace(b"smooth", b"smooht"),
        content.replace(b'\\"the\\"', b'\\"zzz\\"').replace(b'\\"dog\\"', b'\\"zzz\\"'),
        content[:-1],
    ):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError):
            TfIdf.load(path)
    for call, message in (
        (lambda: TfIdf().fit([]), "`texts` must hold words"),
        (lambda: TfIdf().fit([], Vocabulary(["a"], [1])), "`texts` must hold texts; there are none"),
        (lambda: TfIdf(False).fit(["a"], Vocabulary(["a", "b"], [1, 1])), "'b' stands in none"),
        (lambda: TfIdf(norm="l3"), "`norm` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (5, 5), (1, 7)])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_svd_drops_the_smallest_singular_values(shape, is_sparse):
    dense = np.random.default_rng(0).normal(size=shape) * (np.random.default_rng(1).random(shape) < 0.3)
    matrix = scipy.sparse.coo_array(dense) if is_sparse else dense
    all_values = np.linalg.svd(dense, compute_uv=False)
    for dim in {1, min(3, *shape), min(shape)}:
        svd = truncated_svd(matrix, dim)
        np.testing.assert_allclose(svd.singular_values, all_values[:dim], atol=1e-10)
        for side in (svd.left, svd.right):
            np.testing.assert_allclose(side.T @ side, np.eye(dim), atol=1e-10)
        w, u = svd.factors()
        missing = np.linalg.norm(dense - w @ u.T)
        assert svd.error == pytest.approx(missing, abs=1e-6)
        assert svd.error == pytest.approx(np.sqrt(np.sum(all_values[dim:] ** 2)), abs=1e-6)
        assert (svd.left[np.abs(svd.left).argmax(0), range(dim)] > 0).all()


def test_svd_and_its_sizes():
    assert size_reduction(5_000_000, 500_000, 10) == pytest.approx(45_454.5, abs=0.05)
    for call, message in (
        (lambda: truncated_svd(np.ones((2, 3)), 3), r"`dim` must lie between 1 and the sides .*; it is 3"),
        (lambda: truncated_svd(np.full((2, 3), np.nan), 1), "`matrix` must be finite"),
        (lambda: size_reduction(0, 1, 1), "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda _: TfIdf().transform(["a"]), "TfIdf has no `vocabulary` before `fit` or `load`"),
        (lambda path: TfIdf().save(path), "TfIdf has no `vocabulary`"),
        (lambda _: MatrixFactorization(2).predict([0], [0]), "MatrixFactorization has no `mean` before"),
        (lambda _: MatrixFactorization(2).top_n(0), "MatrixFactorization has no `user_biases`"),
        (lambda _: MatrixFactorization(2).fold_in([0], [1.0]), "MatrixFactorization has no `item_biases`"),
        (lambda _: MatrixFactorization(2).shape, "MatrixFactorization has no `user_biases`"),
        (lambda path: MatrixFactorization(2).save(path), "MatrixFactorization has no `user_factors`"),
    ],
)  # fmt: skip
def test_what_has_not_learnt_says_so(ask, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        ask(tmp_path / "file.safetensors")
    assert not hasattr(TfIdf(), "idf") and not list(tmp_path.iterdir())
    with pytest.raises(AttributeError, match="object has no attribute 'wings'"):
        _ = MatrixFactorization(2).wings
