"""Recommending items to users, by the ratings that users have given."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import scipy.sparse
import tensorflow as tf

from keras_tfm.configs import Between, Config, Option, Size
from keras_tfm.data.sources.inputs import Inputs, read_users
from keras_tfm.data.sources.ratings import Ratings, first_problem, rating_problem, read_ratings, repeated
from keras_tfm.tasks.ids import Ids, as_ids
from keras_tfm.tasks.learning import TABLES, LearningTask, ModelOptions
from keras_tfm.tasks.served_factors import ServedFactors
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.sweeps import best_of_sweeps
from keras_tfm.tasks.task import WEIGHTS, refuse_rows
from keras_tfm.training.folder import Path
from keras_tfm.training.options import Learning
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.weights import UNTRAINED, write_tensors
from keras_tfm.word_vectors import MatrixFactorization, Observed
from keras_tfm.word_vectors.factorization import ARRAYS

Bound = Annotated[float, Between(-100, 10**6)]
DTYPES = {  # what a file of weights holds
    **dict.fromkeys(ARRAYS, "float32"),
    **dict.fromkeys(("users", "items"), "uint8"),
    **dict.fromkeys(("users_ends", "items_ends", "seen_offsets"), "int64"),
    "seen_items": "int32",
}
ANSWERS = 10  # items for a user, where no other number is asked for


@dataclasses.dataclass(frozen=True)
class RecommenderConfig(Config):
    """Between which bounds ratings lie; predictions are kept there."""

    lowest: Annotated[Bound | None, Option("the lowest rating that there is", default="none")] = None
    highest: Annotated[Bound | None, Option("the highest rating that there is", default="none")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lowest is not None and self.highest is not None and self.lowest >= self.highest:
            raise ValueError(f"`highest` must be above `lowest`, {self.lowest:g}; it is {self.highest:g}.")


@dataclasses.dataclass(frozen=True)
class FactorOptions(ModelOptions):
    """A factorisation that has learnt nothing."""

    dim: Annotated[Size, Option("factors of each user and item")] = 32
    regularization: Annotated[
        Annotated[float, Between(0, 10**9, is_above=True)],
        Option("weight of the squares of factors and biases; ratings of a wider range need more"),
    ] = 5.0


@dataclasses.dataclass(frozen=True)
class Sweeps(Learning):
    """An epoch is a sweep, which sets all factors and biases once by least squares."""


class Recommendation(NamedTuple):
    """An item, and how the user would rate it."""

    item: str
    rating: float


class Recommender(LearningTask):
    """Users to the items that they would rate highest, of those that they have not rated.

    `model` is a `MatrixFactorization`, whose users and items have the ids `users` and `items`, strings. It
    learns from `data.Ratings`, or three such columns; `predict` takes ids of users, `rate` those of users and
    items, `recommend` the ratings of somebody who is new. Each `fit` begins anew.
    """

    name = "recommend"
    help = "learn from ratings which items each user would like"
    files = f"{TABLES}, with a user, an item and a rating; a file of another name is read as .tsv"
    columns = (3,)
    examples_class = Ratings
    unit = "ratings"
    held_out = (0.1, 100_000)
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
        """A recommender for the users and items of `ratings`, which has learnt nothing yet.

        `fields` are those of `RecommenderConfig`.
        """
        return cls.make(ratings, FactorOptions(dim, regularization), {}, **fields)

    @classmethod
    def make(cls, examples: Any, options: FactorOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        users, items = (sorted(set(as_ids(column))) for column in examples[:2])
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
        """Ratings, each between the bounds."""
        bounds = RecommenderConfig(lowest, highest)
        return read_ratings(paths, columns, bounds.lowest, bounds.highest)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        """Users: lines of text, or a table's column."""
        return read_users(path, columns)

    def check_examples(self, examples: Any) -> Ratings:
        """As `Ratings`; ValueError for a rating outside of the bounds, and a pair that stands twice."""
        users, items, ratings = super().check_examples(examples)
        values = np.asarray(ratings, "float64")
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
        """Ratings as a sparse matrix; ValueError for ids that are none of the task's."""
        users, items = self._places(examples.users, examples.items)
        for name, indices, ids in (("user", users, examples.users), ("item", items, examples.items)):
            if (indices < 0).any():
                row = int(np.argmin(indices))
                raise ValueError(f"row {row}: the {name} {ids[row]!r} is none of this task's")
        shape = len(self.users), len(self.items)
        return scipy.sparse.coo_array((examples.ratings, (users, items)), shape=shape)

    def _places(self, users: Iterable[Any], items: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
        """The indices of ids, -1 for an unknown one."""
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
        """Learn in sweeps, and keep the best; see `best_of_sweeps`."""
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

    def _see(self, ratings: Any, users: np.ndarray, items: np.ndarray) -> None:
        """Remember what each user has rated: the matrix `ratings`, and these pairs beside."""
        both = (users >= 0) & (items >= 0)
        places = [np.concatenate(x) for x in zip(ratings.coords, (users[both], items[both]), strict=True)]
        seen = np.ones(len(places[0]), bool)
        self._seen = scipy.sparse.csr_array((seen, tuple(places)), shape=ratings.shape)
        self._seen.sum_duplicates()

    # Answers ---------------------------------------------------------------------------------------------

    def rate(self, users: Iterable[str], items: Iterable[str]) -> np.ndarray:
        """How each of `users` would rate that of `items` beside it: an array (n,), within the bounds.

        Of an id that is unknown neither bias nor factors count.
        """
        return self._rated(*self._places(users, items))

    def predict(self, users: Iterable[str], num_items: int = ANSWERS) -> list[list[Recommendation]]:
        """For each of `users` the `num_items` items that he or she would rate highest, of those not rated.

        ValueError for an unknown user, for whom there is `recommend`.
        """
        users = as_ids(users)
        refuse_rows(self.refusals(users))
        offsets, seen = self._seen.indptr, self._seen.indices
        return [
            self._answers(*self.model.top_n(user, num_items, seen[offsets[user] : offsets[user + 1]]))
            for user in self.users.indices(users).tolist()
        ]

    def recommend(self, ratings: Mapping[str, float], num_items: int = ANSWERS) -> list[Recommendation]:
        """Items for somebody who is new, from some `ratings` by item: one ridge regression, no training.

        Without ratings they are those that are liked most by all. ValueError for an unknown item.
        """
        ratings = dict(zip(as_ids(ratings), ratings.values(), strict=True))
        for item, rating in ratings.items():
            if item not in self.items.places:
                raise ValueError(f"`ratings`: the item {item!r} is none of this task's")
            if problem := rating_problem(rating, self.config.lowest, self.config.highest):
                raise ValueError(f"`ratings`: expected {problem} of {item!r}, got {rating}")
        items = self.items.indices(ratings)
        user = self.model.fold_in(items, list(ratings.values()))
        return self._answers(*self.model.top_n(user, num_items, items))

    def refusals(self, examples: Sequence[str], **options: Any) -> dict[int, str]:
        return {
            row: f"no ratings by {user!r} were learnt from"
            for row, user in enumerate(as_ids(examples))
            if user not in self.users.places
        }

    def as_line(self, answer: Sequence[Recommendation]) -> str:
        return "\t".join(re.sub(r"[\t\r\n]", " ", item) for item, _ in answer)

    def measure(self, examples: Ratings) -> dict[str, Any]:
        """The root mean squared error, "rmse", and the mean absolute one, "mae"."""
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
        """Write the factors, the biases, the ids and which items each user has rated."""
        tensors = self.model.arrays() | self.users.arrays() | self.items.arrays()
        tensors["seen_offsets"] = self._seen.indptr.astype("int64")
        tensors["seen_items"] = self._seen.indices.astype("int32")
        write_tensors(tensors, path, None if trained else UNTRAINED)

    @classmethod
    def load_sound_parts(cls, folder: pathlib.Path, config: Any, model: dict[str, Any]) -> Self:
        path = folder / WEIGHTS
        tensors = read_tensors(path)[0]
        options = FactorOptions.from_json(model)
        factorization = MatrixFactorization(options.dim, options.regularization)
        users, items = (Ids.of_arrays(name, tensors, path).names for name in ("users", "items"))
        return cls(factorization, users, items, config)

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

    def export_endpoints(self, num_items: int = ANSWERS) -> Endpoints:
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
    """How far predictions are from `ratings`."""
    errors = predicted.astype("float64") - ratings
    return {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}
