"""`GloVe`: its objective by loops and autodiff, each step against NumPy's own, with and without Numba."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from keras_tfm.word_vectors import (
    AdaGrad,
    GloVe,
    LeastSquares,
    adagrad,
    compiled,
    cooccurrence,
    ridge,
)
from keras_tfm.word_vectors.objective import Parameters

SIZE = 30


def some_matrix(seed, size=SIZE, density=0.3, dtype=np.float64):
    random = np.random.default_rng(seed)
    matrix = sparse.random_array((size, size), density=density, format="csr", rng=random, dtype=dtype)
    matrix.data[:] = random.gamma(1, 5, matrix.nnz) + 0.1
    return matrix


def some_parameters(seed, dim=4, size=SIZE):
    random = np.random.default_rng(seed)
    return Parameters(*random.normal(size=(2, size, dim + 1)), mean=random.normal())


def test_the_weights_of_counts():
    glove = GloVe(x_max=100)
    assert glove.weights(np.array([0.0, 1, 100, 1000])).round(5).tolist() == [0, 0.03162, 1, 1]
    near = glove.weights(np.array([100 - 1e-9, 100]))
    assert near[1] - near[0] < 1e-9
    assert (np.diff(glove.weights(np.linspace(0, 200, 1000))) >= 0).all()


@pytest.mark.parametrize("transform", ["log", "log1p"])
def test_the_objective_by_loops(transform):
    matrix, learnt = some_matrix(0), some_parameters(1)
    matrix.data[:5] = 0  # which is not log 0, but nothing
    glove = GloVe(dim=4, x_max=6, alpha=0.6, transform=transform)
    glove.parameters = learnt
    total = 0.0
    for i, row in enumerate(matrix.toarray()):
        for j, x in enumerate(row):
            if x > 0:
                guess = learnt.words[i, :4] @ learnt.contexts[j, :4] + learnt.mean
                guess += learnt.words[i, 4] + learnt.contexts[j, 4]
                target = np.log(x) if transform == "log" else np.log(1 + x)
                total += min(1, x / 6) ** 0.6 * (target - guess) ** 2
    assert glove.objective(matrix) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("block", [7, 1000])
@pytest.mark.parametrize("mean", [False, True])
def test_adagrad_follows_the_gradient_of_the_objective(engine, monkeypatch, block, mean):
    """Steps of nearly no length add up to -η/2 times the gradient, which TensorFlow finds by itself."""
    import tensorflow as tf

    monkeypatch.setattr(adagrad, "BLOCK", block)
    matrix = some_matrix(2)
    glove = GloVe(dim=4, x_max=8, method=AdaGrad(1e-6, 1e-6), mean=mean)
    problem, learnt = glove.problem(matrix), some_parameters(3)
    if not mean:
        learnt.mean = 0.0  # the objective of Pennington et al.
    before = learnt.words.copy(), learnt.contexts.copy()
    words, contexts = map(tf.Variable, before)
    with tf.GradientTape() as tape:
        guesses = words[:, :4] @ tf.transpose(contexts[:, :4]) + words[:, 4:] + contexts[:, 4] + learnt.mean
        x = tf.constant(matrix.toarray())
        weights = tf.minimum(x / 8, 1) ** 0.75
        cost = tf.reduce_sum(weights * (tf.math.log(tf.where(x > 0, x, 1)) - guesses) ** 2)
    slopes = tape.gradient(cost, [words, contexts])
    steps = AdaGrad(1e-6, 1e-6).steps(problem, learnt, mean, np.random.default_rng(0))
    assert next(steps) == pytest.approx(float(cost), rel=1e-4)
    for after, then, slope in zip((learnt.words, learnt.contexts), before, slopes, strict=True):
        np.testing.assert_allclose((then - after) / 1e-6, slope.numpy() / 2, rtol=1e-3, atol=1e-3)


def test_a_step_of_adagrad_by_hand():
    """The paper's program: one entry after another, each with the sums of the squares before it."""
    random = np.random.default_rng(4)
    rows, columns = random.integers(0, 3, (2, 40))
    weights, targets = random.random(40) / 10, random.normal(size=40)
    arrays = [random.normal(size=(3, 5)) for _ in range(2)] + [1 + random.random((3, 5)) for _ in range(2)]
    w, u, w_sums, u_sums = (array.copy() for array in arrays)
    total = 0.0
    for i, j, f, target in zip(rows, columns, weights, targets, strict=True):
        left, right = np.append(w[i, :4], 1), np.append(u[j, :4], 1)
        residual = left[:4] @ right[:4] + w[i, 4] + u[j, 4] - target
        total += f * residual**2
        steps = f * residual * right, f * residual * left
        w[i] -= steps[0] / np.sqrt(w_sums[i])
        u[j] -= steps[1] / np.sqrt(u_sums[j])
        w_sums[i] += steps[0] ** 2
        u_sums[j] += steps[1] ** 2
    descend = compiled.compiled(adagrad._descend, fastmath=True, error_model="numpy") or adagrad._descend
    assert descend(rows, columns, weights, targets, *arrays) == pytest.approx(total, rel=1e-9)
    for found, expected in zip(arrays, (w, u, w_sums, u_sums), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**31))
def test_tiles_hold_every_entry_once(size, block, seed):
    problem = GloVe().problem(some_matrix(seed, size, 1.0 if size == 1 else 0.5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adagrad, "BLOCK", block)
        tiles = adagrad._tiles(problem, 0.5, np.random.default_rng(seed))
    word_at = {slot: word for word, slot in enumerate(tiles.slots.tolist())}
    assert len(word_at) == size and max(word_at) < tiles.num * tiles.size
    found = {}
    for tile in range(tiles.num**2):
        for k in range(tiles.starts[tile], tiles.starts[tile + 1]):
            row = word_at[tile // tiles.num * tiles.size + tiles.rows[k]]
            column = word_at[tile % tiles.num * tiles.size + tiles.columns[k]]
            found[row, column] = tiles.weights[k], tiles.targets[k] + 0.5
    expected = dict(
        zip(
            zip(problem.rows().tolist(), problem.columns.tolist(), strict=True),
            zip(problem.weights, problem.targets, strict=True),
            strict=True,
        )
    )
    assert len(expected) == tiles.starts[-1] and found.keys() == expected.keys()
    for pair, values in expected.items():
        assert found[pair] == pytest.approx(values)


@pytest.mark.parametrize("method", ["adagrad", "als"])
def test_threads_change_no_bit_and_seeds_do(method, monkeypatch):
    matrix = some_matrix(5, size=60, dtype=np.float32)
    monkeypatch.setattr(adagrad, "BLOCK", 10)
    monkeypatch.setattr(ridge, "BLOCK", 50)

    def learnt(threads, seed):
        for module in (adagrad, compiled):
            monkeypatch.setattr(module, "num_threads", lambda: threads)
        glove = GloVe(dim=4, method=method, seed=seed)
        return glove.fit(matrix, epochs=3), glove.parameters.words

    one, many, other = learnt(1, 0), learnt(4, 0), learnt(1, 1)
    assert one[0] == many[0] != other[0]
    np.testing.assert_array_equal(one[1], many[1])
    assert one[1].dtype == np.float32


@pytest.mark.parametrize("mean", [False, True])
def test_half_a_sweep_solves_ridge_problems_and_never_rises(engine, monkeypatch, mean):
    monkeypatch.setattr(ridge, "BLOCK", 40)
    glove = GloVe(dim=4, x_max=8, mean=mean)
    matrix = some_matrix(6, density=0.15)
    matrix.data[matrix.indptr[3] : matrix.indptr[4]] = 0  # a word without neighbours
    problem, learnt = glove.problem(matrix), some_parameters(7)
    learnt.mean *= mean
    dense, regularization = sparse.csr_array(matrix).toarray(), 0.2
    costs = []
    steps = LeastSquares(regularization).half_steps(problem, learnt, mean)
    for number in range(12):
        before = Parameters(learnt.words.copy(), learnt.contexts.copy(), learnt.mean)
        costs.append(next(steps))
        sides = [(before.contexts, learnt.words, dense), (before.words, learnt.contexts, dense.T)]
        fixed, solved, counts = sides[number % 2]
        for row, x in zip(solved, counts, strict=True):
            at = np.flatnonzero(x)
            roots = np.sqrt(glove.weights(x[at]))[:, None]
            factors = np.hstack([fixed[at, :4], np.ones((len(at), 1))]) * roots
            targets = (np.log(x[at]) - fixed[at, 4] - before.mean) * roots[:, 0]
            # A ridge is as many rows more, of √λ.
            left = np.vstack([factors, np.sqrt(regularization) * np.eye(5)])
            expected = np.linalg.lstsq(left, np.append(targets, np.zeros(5)))[0]
            np.testing.assert_allclose(row, expected, rtol=1e-8, atol=1e-10)
        squares = sum(np.sum(part**2) for part in (learnt.words, learnt.contexts))
        assert costs[-1] == pytest.approx(problem.objective(learnt) + regularization * squares, rel=1e-10)
    assert (np.diff(costs) <= 1e-8).all() and costs[-1] < costs[0]
    assert (learnt.mean != before.mean) == mean or not mean


@pytest.fixture(scope="module")
def topics():
    """(matrix, words) of texts that each speak of one of three topics, "a0" to "c7", but for some words: what
    never stood together would have no say.
    """
    random = np.random.default_rng(8)
    texts = []
    for number in range(240):
        own = random.random(30) < 0.8
        letters = np.where(own, "abc"[number % 3], random.choice(list("abc"), 30))
        numbers = random.integers(0, 13, 30)
        texts.append([a + str(k) if k < 8 else f"common{k}" for a, k in zip(letters, numbers, strict=True)])
    return cooccurrence(texts, window=5)


@pytest.mark.parametrize("method", ["adagrad", "als"])
def test_words_of_a_topic_are_nearer_than_others(engine, topics, method):
    matrix, words = topics
    glove = GloVe(dim=6, x_max=10, method=method, transform="log1p")
    history = glove.fit(matrix, epochs=20)
    assert len(history) == 20 and history[-1] < history[0] * 0.8
    unit = glove.vectors(words).unit
    cosines = defaultdict(list)
    for i, word in enumerate(words):
        for j, other in enumerate(words[:i]):
            if len(word) == len(other) == 2:
                cosines[word[0] == other[0]].append(unit[i] @ unit[j])
    assert np.mean(cosines[True]) > np.mean(cosines[False]) + 0.5
    assert min(word[0] == glove.vectors(words).neighbours(word, 1)[0][0][0] for word in ("a1", "b2", "c3"))


def test_ends_by_the_clock(topics):
    assert len(GloVe(dim=2).fit(topics[0], epochs=1000, minutes=1e-9)) == 1


def test_a_rate_that_diverges_is_said(topics):
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"J is (nan|inf); try a lower rate"),
    ):
        GloVe(dim=20, method=AdaGrad(1e30)).fit(topics[0], epochs=20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GloVe(dim=0), "`dim` must be at least 1; it is 0"),
        (lambda: GloVe(x_max=0), "`x_max` must be a number above 0; it is 0"),
        (lambda: GloVe(alpha=float("nan")), "`alpha` must be a number from 0 on; it is nan"),
        (lambda: GloVe(transform="sqrt"), "`transform` must be log or log1p; it is 'sqrt'"),
        (lambda: GloVe(method="sgd"), "`method` must be adagrad or als; it is 'sgd'"),
        (lambda: AdaGrad(0), "`learning_rate` must be a number above 0; it is 0"),
        (lambda: AdaGrad(bias_rate=-1), "`bias_rate` must be a number above 0; it is -1"),
        (lambda: LeastSquares(0), "`regularization` must be a number above 0; it is 0"),
        (lambda: GloVe().fit(some_matrix(0), epochs=0), "`epochs` must be at least 1; it is 0"),
        (lambda: GloVe().fit(np.eye(3)), r"square SciPy sparse array; it is \(3, 3\)"),
        (lambda: GloVe().fit(sparse.csr_array((2, 3))), r"square SciPy sparse array; it is \(2, 3\)"),
        (lambda: GloVe().fit(cooccurrence(["a"])[0]), "no word stands near another one"),
        (lambda: GloVe().fit(sparse.csr_array([[np.nan]])), "finite numbers, none below 0"),
        (lambda: GloVe().fit(sparse.csr_array([[-1.0]])), "finite numbers, none below 0"),
        (lambda: GloVe().vectors(["a"]), "no vectors yet; call `fit` first"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
