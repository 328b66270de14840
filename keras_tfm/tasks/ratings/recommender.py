"""Recommendation: which items a user would like, learnt from ratings."""

import dataclasses
import math
import pathlib
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import scipy.sparse
import tensorflow as tf

from keras_tfm.asking import ITEMS
from keras_tfm.configs import Between, Config, FieldError, Option, Size
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.ratings import (
    Ratings,
    first_problem,
    rating_problem,
    read_ratings,
    read_users,
    repeated,
)
from keras_tfm.serving.examples import as_numbers, listed, not_id
from keras_tfm.tasks.baselines import MEAN, Baselines
from keras_tfm.tasks.learning import TABLES, LearningTask, ModelOptions
from keras_tfm.tasks.ratings.ids import Ids, as_ids
from keras_tfm.tasks.ratings.served_factors import ServedFactors
from keras_tfm.tasks.ratings.sweeps import best_of_sweeps
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import WEIGHTS
from keras_tfm.training.folder import Path
from keras_tfm.training.options import Learning
from keras_tfm.training.safetensors import UNTRAINED, CheckpointError, read_tensors
from keras_tfm.training.weights import write_tensors
from keras_tfm.word_vectors import MatrixFactorization, Observed
from keras_tfm.word_vectors.factorization import ARRAYS

Bound = Annotated[float, Between(-100, 10**6)]
DTYPES = {  # {name: data type} of the arrays in the file of weights
    **dict.fromkeys(ARRAYS, "float32"),
    **dict.fromkeys(("users", "items"), "uint8"),
    **dict.fromkeys(("users_ends", "items_ends", "seen_offsets"), "int64"),
    "seen_items": "int32",
}


@dataclasses.dataclass(frozen=True)
class RecommenderConfig(Config):
    """The least and greatest possible rating, or None; predictions are clipped to them."""

    lowest: Annotated[Bound | None, Option("the lowest possible rating", default="none")] = None
    highest: Annotated[Bound | None, Option("the highest possible rating", default="none")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lowest is not None and self.highest is not None and self.lowest >= self.highest:
            raise FieldError("{highest} must be above {lowest}, {:g}; it is {:g}.", self.lowest, self.highest)


@dataclasses.dataclass(frozen=True)
class FactorOptions(ModelOptions):
    """An untrained factorisation."""

    dim: Annotated[Size, Option("factors per user and per item")] = 32
    regularization: Annotated[
        Annotated[float, Between(0, 10**9, is_above=True)],
        Option("weight of the squared factors and biases in the loss; wider ranges of ratings need more"),
    ] = 5.0


@dataclasses.dataclass(frozen=True)
class Sweeps(Learning):
    """An epoch is one sweep: it sets all factors and biases once by least squares."""


class Recommendation(NamedTuple):
    """An item, and the rating that the user is predicted to give it."""

    item: str
    rating: float


class Recommender(LearningTask):
    """Predicts ratings, and recommends to each user the best items that he or she has not rated yet.

    `model` is a `MatrixFactorization`; `users` and `items` are the ids of its rows and columns, strings.
    Examples are `data.Ratings`, or three columns: users, items, ratings. `predict` takes known users, `rate`
    pairs of users and items, `recommend` the ratings of a new user. Each `fit` starts from scratch.

    >>> ratings = ["Ann", "Ann", "Bob", "Bob"], ["x", "y", "x", "z"], [5.0, 1.0, 4.0, 2.0]
    >>> task = keras_tfm.tasks.Recommender.from_ratings(ratings, dim=2)
    >>> history = task.fit(ratings, ratings, epochs=2)
    >>> [item for item, rating in task.predict(["Ann"])[0]]
    ['z']
    """

    name = "recommend"
    files = f"a user, an item and a rating in {TABLES}; other file names are read as .tsv"
    columns = (3,)
    examples_class = Ratings
    column_kinds = types.MappingProxyType({"users": not_id, "items": not_id})
    unit = "ratings"
    held_out = HeldOut(0.1, 100_000)
    judged_by = ("val_rmse", "min")
    training = Sweeps(patience=3)
    model_options = FactorOptions
    config_class = RecommenderConfig
    model: MatrixFactorization

    def __init__(
        self,
        model: MatrixFactorization,
        users: Sequence[str],
        items: Sequence[str],
        config: RecommenderConfig | None = None,
    ):
        self.model, self.config = model, config or RecommenderConfig()
        self.users, self.items = Ids("users", users), Ids("items", items)
        self._seen = scipy.sparse.csr_array((len(self.users), len(self.items)), dtype=bool)

    @classmethod
    def from_ratings(cls, ratings: Any, dim: int = 32, regularization: float = 5.0, **fields: Any) -> Self:
        """An untrained recommender for the users and items in `ratings`; `fields` are fields of
        `RecommenderConfig`.
        """
        return cls.make(ratings, FactorOptions(dim, regularization), {}, **fields)

    @classmethod
    def make(cls, examples: Any, options: FactorOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        users, items = (sorted(set(as_ids(column))) for column in cls.as_examples(examples)[:2])
        model = MatrixFactorization(options.dim, options.regularization)
        model.draw((len(users), len(items)))
        return cls(model, users, items, RecommenderConfig(**fields))

    # Examples --------------------------------------------------------------------------------------------

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        lowest: float | None = None,
        highest: float | None = None,
        **fields: Any,
    ) -> Ratings:
        """Ratings, checked to lie between the bounds."""
        bounds = RecommenderConfig(lowest, highest)
        return read_ratings(paths, columns, bounds.lowest, bounds.highest)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        """Users, from lines of text or from the column of a table."""
        return read_users(path, columns)

    def check_examples(self, examples: Any) -> Ratings:
        """The examples as `Ratings`; ValueError for a rating outside the bounds, and for a pair that occurs
        twice.
        """
        users, items, ratings = super().check_examples(examples)
        values = as_numbers(ratings, "ratings")
        if wrong := first_problem(values, self.config.lowest, self.config.highest):
            row, problem = wrong
            raise ValueError(f"row {row}: expected {problem}, got {values[row]}")
        found = Ratings(as_ids(users), as_ids(items), values.astype("float32"))
        if twice := repeated(found.users, found.items):
            first, row = twice
            pair = f"{found.users[row]!r} rated {found.items[row]!r} in row {first}"
            raise ValueError(f"row {row}: expected a pair once, {pair}")
        return found

    def _matrix(self, examples: Ratings) -> Any:
        """The ratings as a sparse matrix; ValueError for unknown ids."""
        users, items = self._places(examples.users, examples.items)
        for name, indices, ids in (("user", users, examples.users), ("item", items, examples.items)):
            if (indices < 0).any():
                row = int(np.argmin(indices))
                raise ValueError(f"row {row}: this task does not know the {name} {ids[row]!r}")
        shape = len(self.users), len(self.items)
        return scipy.sparse.coo_array((examples.ratings, (users, items)), shape=shape)

    def _places(self, users: Iterable[Any], items: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
        """The indices of users and items, -1 for an unknown one."""
        return self.users.indices(as_ids(users)), self.items.indices(as_ids(items))

    # Learning --------------------------------------------------------------------------------------------

    def learn(
        self,
        examples: Ratings,
        validation: Ratings,
        training: Sweeps,
        callbacks: Iterable[Any],
        **keeping: Any,
    ) -> dict[str, list[float]]:
        """Learn in sweeps and keep the best one; see `best_of_sweeps`."""
        ratings = self._matrix(examples)
        known, judging = Observed(ratings), self._places(validation.users, validation.items)
        self._see(ratings, *judging)
        self.model.begin(known, training.seed)

        def sweep() -> dict[str, float]:
            self.model.sweep(known)
            error = self.model.squared_error(known)
            rmse = math.sqrt(error / len(known))
            val_rmse = errors_of(self._rated(*judging), validation.ratings)["rmse"]
            return {"loss": error + self.model.penalty(), "rmse": rmse, "val_rmse": val_rmse}

        return best_of_sweeps(
            self.model,
            sweep,
            training,
            self.judged_by,
            save_best=self.save_weights,
            load_best=self.load_weights,
            callbacks=callbacks,
            **keeping,
        )

    def baselines(self, examples: Ratings, validation: Ratings, seed: int) -> Baselines:
        errors = np.asarray(validation.ratings) - np.mean(examples.ratings)
        rules = {MEAN: float(np.sqrt(np.mean(np.square(errors))))}
        return Baselines("val_rmse", "min", rules, len(validation.ratings))

    def _see(self, ratings: Any, users: np.ndarray, items: np.ndarray) -> None:
        """Remember which items each user has rated, by the matrix `ratings` and the given pairs."""
        both = (users >= 0) & (items >= 0)
        places = [np.concatenate(x) for x in zip(ratings.coords, (users[both], items[both]), strict=True)]
        seen = np.ones(len(places[0]), bool)
        self._seen = scipy.sparse.csr_array((seen, tuple(places)), shape=ratings.shape)
        self._seen.sum_duplicates()

    # Answers ---------------------------------------------------------------------------------------------

    def rate(self, users: Iterable[str], items: Iterable[str]) -> np.ndarray:
        """The predicted rating of each of `items` by the user at the same place in `users`: (N,), within the
        bounds.

        An unknown id contributes neither a bias nor factors.
        """
        pairs = as_ids(listed(users, "users")), as_ids(listed(items, "items"))
        if len(pairs[0]) != len(pairs[1]):
            raise ValueError(
                f"`items` must be one for each of {len(pairs[0])} users; there are {len(pairs[1])}."
            )
        return self._rated(*self._places(*pairs))

    def predict(self, users: Iterable[str], /, *, num_items: int = ITEMS) -> list[list[Recommendation]]:
        """For each of `users`, the `num_items` items with the highest predicted ratings among those not yet
        rated.

        ValueError for an unknown user; use `recommend` for new users.
        """
        users = as_ids(self.answerable(users))
        offsets, seen = self._seen.indptr, self._seen.indices
        return [
            self._answers(*self.model.top_n(user, num_items, seen[offsets[user] : offsets[user + 1]]))
            for user in self.users.indices(users).tolist()
        ]

    def recommend(self, ratings: Mapping[str, float], num_items: int = ITEMS) -> list[Recommendation]:
        """Items for a new user with these `ratings`, {item: rating}: one ridge regression, without training.

        Without ratings, the items that are rated best on average. ValueError for an unknown item.
        """
        ratings = dict(zip(as_ids(ratings), ratings.values(), strict=True))
        for item, rating in ratings.items():
            if item not in self.items.places:
                raise ValueError(f"`ratings`: this task does not know the item {item!r}")
            if problem := rating_problem(rating, self.config.lowest, self.config.highest):
                raise ValueError(f"`ratings`: expected {problem} of {item!r}, got {rating}")
        items = self.items.indices(ratings)
        user = self.model.fold_in(items, list(ratings.values()))
        return self._answers(*self.model.top_n(user, num_items, items))

    def refusal(self, example: Any) -> str | None:
        (user,) = as_ids([example])
        unknown = None if user in self.users.places else f"the training had no ratings by {user!r}"
        return not_id(example) or unknown

    def as_line(self, answer: Sequence[Recommendation]) -> str:
        return "\t".join(re.sub(r"[\t\r\n]", " ", item) for item, _ in answer)

    def measure(self, examples: Ratings) -> dict[str, Any]:
        """ "rmse", the root mean squared error, and "mae", the mean absolute error."""
        return errors_of(self.rate(examples.users, examples.items), examples.ratings)

    def _rated(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self._bounded(self.model.predict(users, items))

    def _bounded(self, ratings: np.ndarray) -> np.ndarray:
        low, high = self.config.lowest, self.config.highest
        return ratings if low is None and high is None else np.clip(ratings, low, high)

    def _answers(self, items: np.ndarray, ratings: np.ndarray) -> list[Recommendation]:
        pairs = zip(items.tolist(), self._bounded(ratings).tolist(), strict=True)
        return [Recommendation(self.items.names[item], rating) for item, rating in pairs]

    # Folders ---------------------------------------------------------------------------------------------

    def describe_model(self) -> dict[str, Any]:
        return {"dim": self.model.config.dim, "regularization": self.model.config.regularization}

    def save_weights(self, path: Path, trained: bool = True) -> None:
        """Write the factors, the biases, the ids, and which items each user has rated."""
        tensors = self.model.arrays() | self.users.arrays() | self.items.arrays()
        tensors["seen_offsets"] = self._seen.indptr.astype("int64")
        tensors["seen_items"] = self._seen.indices.astype("int32")
        write_tensors(tensors, path, None if trained else UNTRAINED)

    @classmethod
    def load_sound_parts(
        cls, folder: pathlib.Path, config: Any, model: dict[str, Any]
    ) -> tuple[Self, Sequence[Any]]:
        path = folder / WEIGHTS
        tensors = read_tensors(path)[0]
        options = FactorOptions.from_json(model)
        factorization = MatrixFactorization(options.dim, options.regularization)
        users, items = (Ids.of_arrays(name, tensors, path).names for name in ("users", "items"))
        return cls(factorization, users, items, config), ()

    def load_weights(self, path: Path) -> bool:
        tensors, metadata = read_tensors(path)
        for name in sorted(tensors.keys() | DTYPES.keys()):
            expected, got = DTYPES.get(name, "no such array"), "none"
            if name in tensors:
                got = str(tensors[name].dtype)
            if got != expected:
                raise CheckpointError(path, name, expected, got)
        shape = len(self.users), len(self.items)
        with_factors = tensors["user_biases"].shape + tensors["item_biases"].shape
        try:
            if with_factors != shape:
                raise ValueError(f"{shape} users and items have names, {with_factors} have factors")
            offsets, items = tensors["seen_offsets"], tensors["seen_items"]
            seen = scipy.sparse.csr_array((np.ones(len(items), bool), items, offsets), shape=shape)
            seen.check_format()
            self.model.set_arrays(tensors)
        except (ValueError, TypeError) as error:
            raise CheckpointError(path, None, "a recommender's arrays", str(error)) from None
        self._seen = seen
        return not UNTRAINED.items() <= metadata.items()

    def quantization(self) -> None:
        return None

    def quantize(self, mode: str) -> None:
        raise ValueError(f"{self.name!r} has no weights that could be kept in 8 bits")

    # Export ----------------------------------------------------------------------------------------------

    def export_endpoints(self, num_items: int = ITEMS) -> Endpoints:
        self._served = ServedFactors(self.model, self.users.names, self.items.names, self._seen)

        def serve(user: tf.Tensor) -> dict[str, tf.Tensor]:
            items, ratings = self._served.top(user, num_items)
            low, high = self.config.lowest, self.config.highest
            ratings = ratings if low is None else tf.maximum(ratings, low)
            return {"item": items, "rating": ratings if high is None else tf.minimum(ratings, high)}

        return {"serving_default": (serve, [tf.TensorSpec([None], tf.string, "user")])}

    def exported(self) -> tf.Module:
        return self._served


def errors_of(predicted: np.ndarray, ratings: np.ndarray) -> dict[str, float]:
    """The errors of predictions compared with `ratings`."""
    errors = predicted.astype("float64") - ratings
    return {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}
