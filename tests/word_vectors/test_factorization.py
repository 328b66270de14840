"""Matrix factorisation against dense algebra: every half-step, the objective, the answers, the file."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.training.safetensors import CheckpointError
from keras_tfm.word_vectors import MatrixFactorization, Observed, compiled, ridge
from tests.fresh_process import run_fresh


@pytest.fixture(params=["compiled", "numpy"])
def way(request, monkeypatch):
    """With Numba's loops, and without."""
    if request.param == "numpy":
        monkeypatch.setattr(compiled, "compiled", lambda *_, **__: None)
    elif compiled.numba() is None:
        pytest.skip("Numba is not installed")
    return request.param


def made_ratings(num_users=40, num_items=30, dim=3, share=0.5, noise=0.05, seed=0):
    """(dense ratings, which of them are known) of a known structure; user 0 and item 0 are never seen."""
    draw = np.random.default_rng(seed)
    users, items = draw.normal(size=(num_users, dim)), draw.normal(size=(num_items, dim))
    dense = users @ items.T + draw.normal(size=(num_users, 1)) + draw.normal(size=(1, num_items)) + 3
    dense += noise * draw.normal(size=dense.shape)
    known = draw.random(dense.shape) < share
    known[0] = known[:, 0] = False
    return dense, known


def sparse(dense, known):
    places = np.nonzero(known)
    return scipy.sparse.coo_array((dense[places], places), shape=dense.shape)


def begun(ratings, dim=3, regularization=0.1, **options):
    model = MatrixFactorization(dim, regularization, dtype="float64", **options)
    known = Observed(ratings, "float64")
    model.begin(known)
    return model, known


def dense_objective(model, dense, known):
    """The objective, over the whole matrix."""
    predicted = model.user_factors @ model.item_factors.T + model.mean
    predicted += model.user_biases[:, None] + model.item_biases
    parts = model.user_factors, model.item_factors, model.user_biases, model.item_biases
    squares = sum((part**2).sum() for part in parts)
    return ((dense - predicted) ** 2)[known].sum() + model.config.regularization * squares


def ridge_by_lstsq(features, targets, regularization):
    """argmin ||features x - targets||^2 + regularization ||x||^2, as an ordinary least squares problem."""
    dim = features.shape[1]
    rows = np.vstack([features, np.sqrt(regularization) * np.eye(dim)])
    return np.linalg.lstsq(rows, np.concatenate([targets, np.zeros(dim)]), rcond=None)[0]


def test_the_worked_examples_of_three_genres():
    """(novel, poetry, romance): recommend, do not recommend, and neither."""
    model = MatrixFactorization(3)
    readers, books = [[1, 0, -1], [-1, 1, -1]], [[1, 0, 0], [1, 0, 1], [0, 1, 0]]
    model.set_arrays({
        "user_factors": readers, "item_factors": books,
        "user_biases": [0, 0], "item_biases": [0, 0, 0], "mean": 0,
    })  # fmt: skip
    assert model.predict([0, 1, 0], [0, 1, 2]).tolist() == [1, -2, 0]
    assert model.count_params() == (2 + 3) * (3 + 1) + 1
    assert model.top_n(1, 3)[0].tolist() == [2, 0, 1]


def test_the_objective_is_that_of_the_known_ratings_alone():
    dense, known = made_ratings()
    model, observed = begun(sparse(dense, known))
    model.sweep(observed)
    assert model.objective(observed) == pytest.approx(dense_objective(model, dense, known))
    dense[~known] = 1e6
    assert model.objective(observed) == pytest.approx(dense_objective(model, dense, known))


@pytest.mark.parametrize("seed", range(3))
def test_each_half_step_is_a_ridge_regression_and_never_raises_the_objective(way, seed, monkeypatch):
    monkeypatch.setattr(ridge, "BLOCK", 64)  # so that threads share even these rows
    dense, known = made_ratings(seed=seed)
    regularization = 0.3
    model, observed = begun(sparse(dense, known), regularization=regularization, seed=seed)
    last = model.objective(observed)
    for sweep in range(12):
        for name in model.half_steps(observed):
            objective = model.objective(observed)
            assert objective <= last + 1e-8, (sweep, name)
            last = objective
            if sweep != 2:
                continue
            rest = dense - model.mean - model.user_biases[:, None] - model.item_biases
            products = model.user_factors @ model.item_factors.T
            if name == "user_factors":
                for user, row in enumerate(known):
                    expected = ridge_by_lstsq(model.item_factors[row], rest[user, row], regularization)
                    np.testing.assert_allclose(model.user_factors[user], expected, atol=1e-10)
            elif name == "item_factors":
                for item, column in enumerate(known.T):
                    expected = ridge_by_lstsq(model.user_factors[column], rest[column, item], regularization)
                    np.testing.assert_allclose(model.item_factors[item], expected, atol=1e-10)
            elif name == "mean":
                assert model.mean == pytest.approx((rest - products + model.mean)[known].mean())
            else:
                axis, biases = (1, model.user_biases) if name == "user_biases" else (0, model.item_biases)
                left = rest - products + np.expand_dims(biases, axis)
                expected = np.where(known, left, 0).sum(axis) / (known.sum(axis) + regularization)
                np.testing.assert_allclose(biases, expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_of_all_ratings_is_their_noise(seed):
    """40 users, 30 items, 3 factors, noise of 0.05: an RMSE of about 0.044, for some of it is fitted, too."""
    dense, _ = made_ratings(noise=0.05, seed=seed)
    model, observed = begun(sparse(dense, np.ones(dense.shape, bool)), regularization=0.01, seed=seed)
    for _ in range(20):
        model.sweep(observed)
    assert 0.040 < model.rmse(observed) < 0.050


def test_the_gradient_vanishes_where_learning_ends():
    dense, known = made_ratings(20, 15, 2)
    model, observed = begun(sparse(dense, known), dim=2, regularization=1.0)
    for _ in range(1500):
        model.sweep(observed)
    for name in ("user_factors", "item_factors", "user_biases", "item_biases", "mean"):
        array = getattr(model, name)
        for place in list(np.ndindex(array.shape))[:8]:
            slopes = []
            for step in (1e-4, -1e-4):
                array[place] += step
                slopes.append(dense_objective(model, dense, known) / 2e-4)
                array[place] -= step
            assert abs(slopes[0] - slopes[1]) < 1e-4, (name, place)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.integers(1, 9),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 2**31),
)
def test_rows_of_any_length_are_solved(lengths, dim, dtype, seed):
    draw = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns = draw.integers(0, 7, offsets[-1]).astype("int32")
    targets, features = (draw.normal(size=size).astype(dtype) for size in (offsets[-1], (7, dim)))
    weights = draw.uniform(size=offsets[-1]).astype(dtype)
    compile_loop, bound = compiled.compiled, {"float32": 1e-4, "float64": 1e-10}[dtype]
    try:
        for compiled.compiled in (compile_loop, lambda *_, **__: None):
            for given in (None, weights):
                rows, cost = ridge.solve_rows(offsets, columns, targets, features, 0.5, given)
                assert rows.dtype == dtype
                roots, minima = np.sqrt(np.ones_like(weights) if given is None else given), 0.0
                for row, first, last in zip(rows, offsets, offsets[1:], strict=False):
                    part = slice(first, last)
                    left, right = features[columns[part]] * roots[part, None], targets[part] * roots[part]
                    expected = ridge_by_lstsq(left, right, 0.5)
                    np.testing.assert_allclose(row, expected, atol=bound)
                    minima += np.sum((right - left @ expected) ** 2) + 0.5 * np.sum(expected**2)
                assert cost == pytest.approx(minima, rel=10 * bound, abs=10 * bound)
            products = ridge.inner_products(offsets, columns, rows, features)
            numbers = np.repeat(np.arange(len(lengths)), lengths)
            np.testing.assert_allclose(products, (rows @ features.T)[numbers, columns], atol=bound)
    finally:
        compiled.compiled = compile_loop


def test_the_structure_is_found_from_a_part_of_the_ratings(way):
    dense, known = made_ratings(120, 80, 3, share=0.4, noise=0.1)
    model = MatrixFactorization(3, 0.1, 30).fit(sparse(dense, known))
    hidden = ~known
    hidden[0] = hidden[:, 0] = False
    users, items = np.nonzero(hidden)
    error = np.sqrt(np.mean((model.predict(users, items) - dense[hidden]) ** 2))
    assert error < 0.2 < 1 < dense[hidden].std()
    # Alike users: of two items the one that the ratings' structure prefers stands first.
    best, ratings = model.top_n(5, 10, exclude=np.flatnonzero(known[5]))
    assert not known[5][best].any() and (np.diff(ratings) <= 0).all()
    everything = model.predict(np.full(80, 5), np.arange(80))
    everything[known[5]] = -np.inf
    assert best.tolist() == np.argsort(-everything, kind="stable")[:10].tolist()
    assert len(model.top_n(5, 1_000, exclude=np.flatnonzero(known[5]))[0]) == (~known[5]).sum()


def test_a_stored_zero_is_a_rating_and_the_rest_is_missing():
    ratings = scipy.sparse.coo_array(([0.0, 4.0, 2.0], ([0, 0, 1], [0, 1, 1])), shape=(3, 2))
    observed = Observed(ratings)
    assert len(observed) == 3 and observed.user_counts.tolist() == [2, 1, 0]
    model = MatrixFactorization(2, 1e-3, 50).fit(ratings.tocsr())
    assert model.predict(0, 0) == pytest.approx(0, abs=0.1)
    assert not model.user_factors[2].any() and model.user_biases[2] == 0


def test_validation_stops_learning_and_keeps_the_best_sweep():
    dense, known = made_ratings(30, 20, 3, share=0.5, noise=1.0)
    held = known & (np.random.default_rng(1).random(known.shape) < 0.3)
    train, judge = sparse(dense, known & ~held), sparse(dense, held)
    model = MatrixFactorization(8, 0.01, 60).fit(train, judge, patience=2)
    known_to_judge, observed = Observed(judge), Observed(train)
    other = MatrixFactorization(8, 0.01)
    other.begin(observed)
    errors = []
    for _ in range(60):
        other.sweep(observed)
        errors.append(other.rmse(known_to_judge))
        if len(errors) > 2 and min(errors[-2:]) >= min(errors[:-2]):
            break
    assert len(errors) < 60 and model.rmse(known_to_judge) == min(errors) < errors[-1]


def test_a_new_user_is_folded_in_by_one_regression():
    dense, known = made_ratings(60, 40, 3, share=0.6, noise=0.0)
    known[7] = False
    model = MatrixFactorization(3, 0.1, 40, dtype="float64").fit(sparse(dense, known))
    items = np.arange(1, 40, 3)
    factors, bias = model.fold_in(items, dense[7, items])
    features = np.column_stack([model.item_factors[items], np.ones(len(items))])
    targets = dense[7, items] - model.item_biases[items] - model.mean
    np.testing.assert_allclose([*factors, bias], ridge_by_lstsq(features, targets, 0.1), atol=1e-10)
    others = np.setdiff1d(np.arange(1, 40), items)
    predicted = model.item_factors[others] @ factors + model.item_biases[others] + model.mean + bias
    assert np.sqrt(np.mean((predicted - dense[7, others]) ** 2)) < 0.3 * dense[7, others].std()
    best, ratings = model.top_n((factors, bias), 5, exclude=items)
    expected = others[np.argsort(-predicted)][:5]
    assert [item for item in best.tolist() if item] == expected.tolist()[: 5 - (0 in best)]
    assert model.fold_in([], [])[1] == 0 and ratings[0] >= ratings[-1]


def test_the_unknown_get_the_biases_that_are_known():
    dense, known = made_ratings()
    model = MatrixFactorization(3, 0.1, 3, dtype="float64").fit(sparse(dense, known))
    b, c, mean = model.user_biases, model.item_biases, model.mean
    predicted = model.predict([-1, 4, -1], [6, -1, -1])
    np.testing.assert_allclose(predicted, [mean + c[6], mean + b[4], mean])
    assert model.top_n(-1, 3)[0].tolist() == np.argsort(-c, kind="stable")[:3].tolist()


def test_a_file_keeps_all_bits_and_others_are_refused(tmp_path):
    dense, known = made_ratings()
    model = MatrixFactorization(3, 0.1, 2, seed=4).fit(sparse(dense, known))
    path = tmp_path / "books.safetensors"
    model.save(path)
    loaded = MatrixFactorization.load(path)
    assert loaded.config == model.config and loaded.dtype == "float32"
    for name, array in model.arrays().items():
        np.testing.assert_array_equal(getattr(loaded, name), array)
    content = path.read_bytes()
    for wrong, expected in (
        (content.replace(b'\\"dim\\": 3', b'\\"dim\\": 4'), "must have the shape"),
        (content.replace(b"user_factors", b"user_fastors"), "expected a factorisation"),
        (content.replace(b"float32", b"float16"), "`dtype` must be"),
        (content[:-1], "bytes"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=expected):
            MatrixFactorization.load(path)
    model.mean = np.float32("nan")
    model.save(path)
    with pytest.raises(CheckpointError, match="`mean` must be finite"):
        MatrixFactorization.load(path)


def test_too_little_regularization_is_refused_and_not_learnt_with(way):
    model = MatrixFactorization(2, 1e-46)  # 0 in float32, and one rating does not determine two factors
    known = Observed(scipy.sparse.coo_array(([1.0], ([0], [0]))))
    model.begin(known)
    model.set_arrays({**model.arrays(), "item_factors": np.ones((1, 2))})
    with pytest.raises(FloatingPointError, match=r"`user_factors` are not finite .* 1e-46, is too low"):
        model.sweep(known)


def test_arrays_are_set_all_or_none():
    dense, known = made_ratings()
    model = MatrixFactorization(3, 0.1, 2).fit(sparse(dense, known))
    before = model.arrays()
    with pytest.raises(ValueError, match="`mean` must be finite"):
        model.set_arrays({**{name: array * 2 for name, array in before.items()}, "mean": np.nan})
    assert all(getattr(model, name) is array for name, array in before.items())


def test_keras_is_not_needed():
    code = """
import numpy as np, scipy.sparse
from keras_tfm.word_vectors import MatrixFactorization
ratings = scipy.sparse.coo_array(([1.0, 2.0, 3.0], ([0, 1, 1], [0, 0, 1])))
print(MatrixFactorization(2).fit(ratings).predict([0], [1]))
"""
    done = run_fresh(code, blocked=("keras", "tensorflow", "numba"))
    assert done.stdout.startswith("["), done.stderr
    assert "Numba is not installed, so" in done.stderr


def test_what_cannot_be_learnt_or_asked_is_refused():
    ones = np.ones(2)
    twice = scipy.sparse.coo_array((ones, ([1, 1], [0, 0])), shape=(2, 2))
    cases = [
        (np.ones((2, 2)), "`ratings` must be a sparse matrix of SciPy; it is ndarray"),
        (twice, "must hold a pair once; item 0 by user 1 stands twice"),
        (
            scipy.sparse.coo_array(([np.nan], ([1], [0]))),
            "must be finite; the rating of item 0 by user 1 is nan",
        ),
        (scipy.sparse.coo_array((2, 2)), "must hold ratings; there are none"),
    ]
    for ratings, message in cases:
        with pytest.raises(ValueError, match=message):
            MatrixFactorization(2).fit(ratings)
    good = scipy.sparse.coo_array((ones, ([0, 1], [0, 1])), shape=(2, 2))
    with pytest.raises(ValueError, match="`validation` must hold ratings, in the shape"):
        MatrixFactorization(2).fit(good, scipy.sparse.coo_array((ones, ([0, 1], [0, 2]))))
    model = MatrixFactorization(2, num_sweeps=1).fit(good)
    for call, message in (
        (lambda: model.predict([0], [2]), r"`items` must lie in \[-1, 1\]; one is 2"),
        (lambda: model.top_n(2), r"`user` must lie in \[-1, 1\]; one is 2"),
        (lambda: model.top_n(0, 0), "`n` must be at least 1; it is 0"),
        (lambda: model.top_n(0, exclude=[-1]), r"`exclude` must lie in \[0, 1\]; one is -1"),
        (lambda: model.fold_in([0, 0], [1, 2]), "`items` must be different"),
        (lambda: model.fold_in([-1], [1]), r"`items` must lie in \[0, 1\]; one is -1"),
        (lambda: model.fold_in([0], [np.inf]), "`ratings` must be finite"),
        (lambda: MatrixFactorization(0), "`dim` must be at least 1; it is 0"),
        (lambda: MatrixFactorization(2, 0.0), "`regularization` must be above 0; it is 0.0"),
        (lambda: MatrixFactorization(2, dtype="float16"), "`dtype` must be float32 or float64"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
