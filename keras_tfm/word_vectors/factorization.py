"""Matrix factorisation of ratings: each user and each item gets K factors and a bias, by least squares.

Koren, Bell and Volinsky 2009, "Matrix Factorization Techniques for Recommender Systems", with ratings
centred by their mean, solved by alternating least squares, whose half-steps never raise the objective.
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse

from keras_tfm.configs import Between, Config, Positive, Size, parse_json
from keras_tfm.word_vectors.not_fitted import Learns
from keras_tfm.word_vectors.ridge import inner_products, solve_rows

ARRAYS = ("user_factors", "item_factors", "user_biases", "item_biases", "mean")


@dataclasses.dataclass(frozen=True)
class FactorizationConfig(Config):
    """`dim` factors for each user and item; `regularization` weighs the squares of factors and biases."""

    dim: Size = 32
    regularization: Positive = 5.0
    num_sweeps: Annotated[int, Between(1, 2**31, is_open=True)] = 20
    seed: Annotated[int, Between(0, 2**31, is_open=True)] = 0


class Observed:
    """Ratings sorted by user and by item, in the dtype of the computation.

    Args:
        ratings: a sparse matrix (users, items). Every stored entry, even a zero, is a rating; all others are
            unknown.
        dtype: "float32" or "float64".

    Raises:
        ValueError: if a pair is stored twice, or a rating is not finite.

    >>> ratings = scipy.sparse.coo_array(([5.0, 1.0, 4.0], ([0, 0, 1], [0, 1, 0])), shape=(2, 2))
    >>> observed = keras_tfm.word_vectors.Observed(ratings)
    >>> len(observed), observed.user_counts.tolist()
    (3, [2, 1])
    """

    def __init__(self, ratings: Any, dtype: str = "float32"):
        if not scipy.sparse.issparse(ratings) or len(ratings.shape) != 2:
            raise ValueError(f"`ratings` must be a sparse matrix of SciPy; it is {type(ratings).__name__}.")
        entries = scipy.sparse.coo_array(ratings)
        users, items = entries.coords
        self.shape = entries.shape
        self.ratings = entries.data.astype(dtype)
        if not np.isfinite(self.ratings).all():
            place = int(np.flatnonzero(~np.isfinite(self.ratings))[0])
            raise ValueError(
                f"`ratings` must be finite; the rating of item {items[place]} by user {users[place]} is "
                f"{entries.data[place]}."
            )
        keys = users.astype(np.int64) * self.shape[1] + items
        order = np.argsort(keys)
        self.users = users[order].astype(np.int32)
        self.items = items[order].astype(np.int32)
        self.ratings = self.ratings[order]
        twice = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(twice):
            user, item = self.users[twice[0]], self.items[twice[0]]
            raise ValueError(f"`ratings` must hold a pair once; item {item} by user {user} stands twice.")
        self.user_counts = np.bincount(self.users, minlength=self.shape[0])
        self.item_counts = np.bincount(self.items, minlength=self.shape[1])
        self.user_offsets = np.concatenate([[0], np.cumsum(self.user_counts)])
        self.item_offsets = np.concatenate([[0], np.cumsum(self.item_counts)])
        self.by_item = np.argsort(self.items.astype(np.int64) * self.shape[0] + self.users)
        self.users_by_item = self.users[self.by_item]

    def __len__(self) -> int:
        return len(self.ratings)


class MatrixFactorization(Learns):
    """Predicts the rating of item j by user i as w_i^T u_j + b_i + c_j + mu.

    `user_factors` W (N, K), `item_factors` U (D, K), `user_biases` b (N,), `item_biases` c (D,) and `mean` mu
    minimise the squared errors of the known ratings plus `regularization` times
    ||W||^2 + ||U||^2 + ||b||^2 + ||c||^2. Each half-step sets one of the five to its optimum given the
    others, so that the objective never rises; it ends at a stationary point, which need not be the minimum.

    Args:
        dim: K, the number of factors.
        regularization: the default suits ratings from about 1 to 5; a wider range needs more.
        num_sweeps: how often all five are set, the mean and the biases before the factors.
        seed: draws the initial factors.
        dtype: "float32" or "float64".

    >>> ratings = scipy.sparse.coo_array(([5.0, 1.0, 4.0], ([0, 0, 1], [0, 1, 0])), shape=(2, 2))
    >>> model = keras_tfm.word_vectors.MatrixFactorization(dim=2, num_sweeps=3).fit(ratings)
    >>> model.predict([0, 1], [0, 1]).shape  # two pairs of a user and an item
    (2,)
    >>> model.top_n(1, 1, exclude=[0])[0]  # the item that user 1 would rate highest, item 0 left out
    array([1])
    """

    learnt = ARRAYS
    user_factors: np.ndarray
    item_factors: np.ndarray
    user_biases: np.ndarray
    item_biases: np.ndarray
    mean: np.ndarray

    def __init__(
        self,
        dim: int = 32,
        regularization: float = 5.0,
        num_sweeps: int = 20,
        seed: int = 0,
        dtype: str = "float32",
    ):
        self.config = FactorizationConfig(dim, regularization, num_sweeps, seed)
        if dtype not in ("float32", "float64"):
            raise ValueError(f"`dtype` must be float32 or float64; it is {dtype!r}.")
        self.dtype = dtype

    # Learning --------------------------------------------------------------------------------------------

    def fit(self, ratings: Any, validation: Any = None, patience: int | None = 3) -> Self:
        """Learn from a sparse matrix (N, D) of `ratings`, as described at `Observed`.

        With `validation`, another such matrix, the parameters of the sweep with its lowest RMSE are kept, and
        learning stops after `patience` sweeps without a lower one. Raises ValueError for other matrices.
        """
        known = Observed(ratings, self.dtype)
        held_out = None if validation is None else Observed(validation, self.dtype)
        if held_out is not None and (held_out.shape != known.shape or not len(held_out)):
            raise ValueError(
                f"`validation` must hold ratings, in the shape {known.shape}; it holds {len(held_out):,} in "
                f"{held_out.shape}."
            )
        self.begin(known)
        least, waited, best = math.inf, 0, self.arrays()
        for _ in range(self.config.num_sweeps):
            self.sweep(known)
            if held_out is None:
                continue
            error, waited = self.rmse(held_out), waited + 1
            if error < least:
                least, waited, best = error, 0, self.arrays()
            if waited == patience:
                break
        if held_out is not None:
            self.set_arrays(best)
        return self

    def begin(self, known: Observed, seed: int | None = None) -> None:
        """Draw what learning begins with, for the mean of the known ratings; see `draw`."""
        if not len(known):
            raise ValueError("`ratings` must hold ratings; there are none.")
        self.draw(known.shape, float(known.ratings.mean(dtype="f8")), seed)

    def draw(self, shape: tuple[int, int], mean: float = 0.0, seed: int | None = None) -> None:
        """Draw small factors for (users, items), by `seed` or the constructor's; the biases are 0."""
        generator = np.random.default_rng(self.config.seed if seed is None else seed)
        scale, dim = 0.1 / math.sqrt(self.config.dim), self.config.dim
        factors = [generator.normal(0, scale, (size, dim)) for size in shape]
        self.set_arrays(dict(zip(ARRAYS, [*factors, *map(np.zeros, shape), mean], strict=True)))

    def sweep(self, known: Observed) -> None:
        """Set each of the five to its optimum; raises FloatingPointError if one has no finite optimum."""
        for name in self.half_steps(known):
            if not np.isfinite(getattr(self, name)).all():
                raise FloatingPointError(
                    f"`{name}` are not finite any more: `regularization`, "
                    f"{self.config.regularization:g}, is too low for such ratings."
                )

    def half_steps(self, known: Observed) -> Iterator[str]:
        """Do one sweep; after each half-step, yield the name of the array that it set."""
        products = self._products(known)
        for name in ("mean", "user_biases", "item_biases"):
            self._set_additive(name, known, products)
            yield name
        residuals = known.ratings - self.item_biases[known.items] - self.user_biases[known.users] - self.mean
        self.user_factors = self._solved(known.user_offsets, known.items, residuals, self.item_factors)
        yield "user_factors"
        users, residuals = known.users_by_item, residuals[known.by_item]
        self.item_factors = self._solved(known.item_offsets, users, residuals, self.user_factors)
        yield "item_factors"

    def _set_additive(self, name: str, known: Observed, products: np.ndarray) -> None:
        """Set the mean, or the biases of one side, to the regularised means of what all else leaves.

        The mean has no regularization, and is divided by the number of all ratings.
        """
        rest = known.ratings - products
        if name != "mean":
            rest -= self.mean
        if name != "user_biases":
            rest -= self.user_biases[known.users]
        if name != "item_biases":
            rest -= self.item_biases[known.items]
        if name == "mean":
            value = rest.mean(dtype="f8")
        else:
            is_user = name == "user_biases"
            groups, counts = (known.users, known.user_counts) if is_user else (known.items, known.item_counts)
            sums = np.bincount(groups, rest, minlength=len(counts))
            value = sums / (counts + self.config.regularization)
        setattr(self, name, np.asarray(value, self.dtype))

    def _solved(
        self, offsets: np.ndarray, columns: np.ndarray, residuals: np.ndarray, features: np.ndarray
    ) -> np.ndarray:
        return solve_rows(offsets, columns, residuals, features, self.config.regularization)[0]

    def _products(self, known: Observed) -> np.ndarray:
        return inner_products(known.user_offsets, known.items, self.user_factors, self.item_factors)

    # Measuring -------------------------------------------------------------------------------------------

    def squared_error(self, known: Observed) -> float:
        """The sum of the squared errors at the known ratings."""
        biases = self.user_biases[known.users] + self.item_biases[known.items] + self.mean
        errors = (known.ratings - self._products(known) - biases).astype("f8")
        return float(errors @ errors)

    def objective(self, known: Observed) -> float:
        """What learning minimises: the squared errors and the penalty."""
        return self.squared_error(known) + self.penalty()

    def penalty(self) -> float:
        """The regularised squares of all but the mean."""
        squares = sum(float(np.sum(np.square(getattr(self, name), dtype="f8"))) for name in ARRAYS[:-1])
        return self.config.regularization * squares

    def rmse(self, known: Observed) -> float:
        """The root of the mean squared error."""
        return math.sqrt(self.squared_error(known) / len(known))

    # Asking ----------------------------------------------------------------------------------------------

    def predict(self, users: Any, items: Any) -> np.ndarray:
        """The ratings of `items` by `users`, index arrays of one length: an array (n,).

        An index of -1 stands for an unknown user or item, of which bias and factors are 0. ValueError for
        an index outside.
        """
        users, items = np.asarray(users, np.int64), np.asarray(items, np.int64)
        ratings = self.mean
        for name, rows, biases in (("users", users, self.user_biases), ("items", items, self.item_biases)):
            _check_indices(name, rows, len(biases), least=-1)
            ratings = ratings + np.where(rows < 0, 0, biases[rows])
        products = np.einsum("...k,...k->...", self.user_factors[users], self.item_factors[items])
        return ratings + np.where((users < 0) | (items < 0), 0, products)

    def fold_in(self, items: Any, ratings: Any) -> tuple[np.ndarray, float]:
        """A new user's factors (K,) and bias from some ratings, by one ridge regression given the items.

        Factors and bias are solved for together. ValueError for items outside, or twice, and for ratings of
        another number or not finite.
        """
        items, ratings = np.asarray(items, np.int64), np.asarray(ratings, self.dtype)
        if items.ndim != 1 or items.shape != ratings.shape or len(np.unique(items)) < len(items):
            raise ValueError(
                f"`items` must be different, with a rating for each; they have the shapes {items.shape} and "
                f"{ratings.shape}."
            )
        _check_indices("items", items, len(self.item_biases))
        if not np.isfinite(ratings).all():
            raise ValueError("`ratings` must be finite.")
        features = np.column_stack([self.item_factors[items], np.ones(len(items), self.dtype)])
        targets = ratings - self.item_biases[items] - self.mean
        offsets = np.array([0, len(items)])
        columns = np.arange(len(items), dtype=np.int32)
        (solution,) = self._solved(offsets, columns, targets, features)
        return solution[:-1], float(solution[-1])

    def top_n(
        self, user: int | tuple[np.ndarray, float], n: int = 10, exclude: Any = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """The `n` items that `user` would rate highest, and their ratings; fewer where there are no more.

        `user` is an index, -1 for an unknown one, whose items the biases rank, or what `fold_in` gave.
        `exclude` are items to leave out, for example all that the user has rated.
        """
        if n < 1:
            raise ValueError(f"`n` must be at least 1; it is {n}.")
        if not isinstance(user, tuple):
            _check_indices("user", np.asarray(user), len(self.user_biases), least=-1)
            is_known = user >= 0
            user = (self.user_factors[user] * is_known, float(self.user_biases[user]) * is_known)
        exclude = np.asarray(exclude, np.int64)
        _check_indices("exclude", exclude, len(self.item_biases))
        factors, bias = user
        ratings = self.item_factors @ factors + self.item_biases + (self.mean + self.mean.dtype.type(bias))
        ratings[exclude] = -np.inf
        n = min(n, int(np.isfinite(ratings).sum()))
        best = np.argpartition(-ratings, n - 1)[:n] if n < len(ratings) and n else np.arange(len(ratings))
        best = best[np.lexsort((best, -ratings[best]))][:n]  # of equals the first item
        return best, ratings[best]

    @property
    def shape(self) -> tuple[int, int]:
        """How many users and items there are."""
        return len(self.user_biases), len(self.item_biases)

    def count_params(self) -> int:
        """How many numbers are learnt: (N + D)(K + 1) + 1."""
        return sum(array.size for array in self.arrays().values())

    # Keeping ---------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """The learnt arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS}

    def set_arrays(self, arrays: dict[str, Any]) -> None:
        """Set what is learnt; ValueError, before any is set, where shapes do not fit together, or numbers
        are not finite.
        """
        values = {name: np.array(arrays[name], self.dtype) for name in ARRAYS}
        num_users, num_items = (len(np.atleast_1d(values[name])) for name in ("user_biases", "item_biases"))
        dim = self.config.dim
        shapes = [(num_users, dim), (num_items, dim), (num_users,), (num_items,), ()]
        for (name, value), shape in zip(values.items(), shapes, strict=True):
            if value.shape != shape:
                raise ValueError(f"`{name}` must have the shape {shape}; it has {value.shape}.")
            if not np.isfinite(value).all():
                raise ValueError(f"`{name}` must be finite.")
        vars(self).update(values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is learnt, and the configuration, to the safetensors file `path`, whole."""
        from keras_tfm.training.weights import write_tensors

        config = {**dataclasses.asdict(self.config), "dtype": self.dtype}
        write_tensors(self.arrays(), path, {"config": json.dumps(config)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The factorisation that `save` wrote; CheckpointError where the file is not one."""
        from keras_tfm.training.safetensors import CheckpointError, read_tensors

        tensors, metadata = read_tensors(path)
        if tensors.keys() != set(ARRAYS) or "config" not in metadata:
            raise CheckpointError(
                path, None, f"a factorisation: {', '.join(ARRAYS)}", ", ".join(tensors)[:80]
            )
        try:
            config = parse_json(metadata["config"])
            dtype = config.pop("dtype")
            model = cls(**dataclasses.asdict(FactorizationConfig.from_json(config)), dtype=dtype)
            model.set_arrays(tensors)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(path, "config", "the config of a factorisation", str(error)[:200]) from None
        return model


def _check_indices(name: str, indices: np.ndarray, size: int, least: int = 0) -> None:
    """ValueError where an index is not from `least` to below `size`."""
    wrong = indices[(indices < least) | (indices >= size)]
    if wrong.size:
        raise ValueError(f"`{name}` must lie in [{least}, {size - 1}]; one is {wrong.flat[0]}.")
