"""What a task attends to while it reads one raw example: tokens, weights by layer, hidden states."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np

from keras_tfm.layers.attention.alignment import Alignment
from keras_tfm.layers.attention.cross_covariance import CrossCovarianceAttention
from keras_tfm.layers.windows import WindowAttention
from keras_tfm.private.keras import layers_in
from keras_tfm.tasks.reading import FoundObjects, Reading, read
from keras_tfm.training.model import Model
from keras_tfm.visualize.grids import Grid, grid_of, maps_of
from keras_tfm.visualize.record import in_rows, named_calls, record_attention

Kind = Literal["encoder", "decoder", "cross"]


@dataclasses.dataclass(frozen=True)
class Attention:
    """The weights of one attention layer, called `name`: the number `layer` of its `kind`, from 0.

    `weights` are (H, T, S), rows sum to 1, 0 where a key is hidden; within windows (N, H, T, S), as `axes`
    says. `query_tokens` (T) and `key_tokens` (S) are what the rows and the columns stand for; `query_grid`
    and `key_grid` say where these lie on an image; they are None for a text or windows. For windows of a map
    of `map_size`, (rows, columns), `cells` (N, T) are the map's cells, counted row by row, at the places of
    each window, -1 for padding.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> attention = keras_tfm.visualize.look(task, "a film").attention[0]
    >>> attention.name, attention.weights.shape, attention.key_tokens
    ('block_0/attention/branch', (2, 4, 4), ['[CLS]', 'a', 'film', '[SEP]'])
    """

    name: str
    kind: Kind
    layer: int
    weights: np.ndarray
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
    axes: tuple[str, ...] = ("heads", "queries", "keys")
    query_grid: Grid | None = None
    key_grid: Grid | None = None
    cells: np.ndarray | None = None
    map_size: tuple[int, int] | None = None

    @property
    def num_heads(self) -> int:
        """H."""
        return self.weights.shape[-3]

    def of_cell(self, row: int, column: int) -> np.ndarray:
        """What a cell of the map attends to, as a map: (H, rows, columns), 0 outside of its window.

        ValueError where attention is not within windows of a map, or the map has no such cell.
        """
        if self.cells is None or self.map_size is None:
            raise ValueError(f"{self.name!r} does not attend within windows of a map.")
        rows, columns = self.map_size
        if not (0 <= row < rows and 0 <= column < columns):
            raise ValueError(f"Expected a cell of a map of {rows} x {columns}, got ({row}, {column}).")
        ((window, place),) = np.argwhere(self.cells == row * columns + column)
        windows = self.weights.reshape(-1, *self.weights.shape[-3:])  # (N, H, T, T)
        seen, cells = np.zeros((self.num_heads, rows * columns), "float32"), self.cells[window]
        seen[:, cells[cells >= 0]] = windows[window, :, place][:, cells >= 0]
        return seen.reshape(-1, rows, columns)


@dataclasses.dataclass(frozen=True)
class Look:
    """What a task's model attends to in one example.

    `tokens` (S) are the encoder's, or a decoder's prompt; `target_tokens` (T) what the decoder reads, from
    its start token on, or wrote behind the prompt: at each of them the decoder predicts the next one. For a
    detector they name what each query found, and `objects` says where. `segments` (S) number the texts of a
    pair. `attention` is in the order of the calls. `hidden_states` are {stack: (layers + 1, T, D), or a list
    of arrays where widths differ}, of `model.hidden_states`. `image` (H, W, C) is an image as the model read
    it, before normalisation, `grid` (rows, columns) the patches of the first layer that attends over all of
    them, `num_prefix` how many tokens stand before theirs.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> seen = keras_tfm.visualize.look(task, "a film")
    >>> seen.between("a", "film").shape  # of two layers with two heads
    (2, 2)
    """

    tokens: Sequence[str]
    target_tokens: Sequence[str]
    attention: Sequence[Attention]
    segments: Sequence[int] = ()
    hidden_states: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    image: np.ndarray | None = None
    grid: tuple[int, int] | None = None
    num_prefix: int = 0
    objects: FoundObjects | None = None

    def of(self, kind: Kind) -> list[Attention]:
        """The attention of one kind, the lowest layer first."""
        return [attention for attention in self.attention if attention.kind == kind]

    def between(self, query: str | int, key: str | int, kind: Kind = "encoder") -> np.ndarray:
        """How much one token attends to another, in each layer and head of a kind: (L, H).

        A token is a text that stands there once, or a place. NaN for a layer of fewer heads. ValueError for a
        token that is not there or stands there twice, and for attention within windows.
        """
        weights = []
        for attention in self.of(kind):
            if "windows" in attention.axes:
                raise ValueError(f"{attention.name!r} attends within windows; see `Attention.of_cell`.")
            row, column = _place(query, attention.query_tokens), _place(key, attention.key_tokens)
            weights.append(attention.weights[:, row, column])
        if not weights:
            raise ValueError(f"There is no attention of kind {kind!r}; there is {', '.join(self.kinds)}.")
        return in_rows(weights)

    def weights(self, kind: Kind) -> dict[str, np.ndarray]:
        """{layer: (1, H, T, S), or (N, H, T, S) of windows} of one kind, as `record_attention` has it."""
        arrays = {attention.name: attention.weights for attention in self.of(kind)}
        return {name: array if array.ndim == 4 else array[None] for name, array in arrays.items()}

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of attention that the model has, in the order of their first calls."""
        return list(dict.fromkeys(attention.kind for attention in self.attention))


def look(task: Any, example: Any, target: str | None = None, **options: Any) -> Look:
    """What `task` attends to while it reads `example`: a text, a tuple of two, or an image.

    A task that writes text then reads `target`, or what it writes itself by `options`, arguments of its
    `generate`, in one pass over all tokens. The model runs eagerly, without dropout. ValueError for a task
    that reads neither texts nor images, and for a model without attention.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> seen = keras_tfm.visualize.look(task, "a film")
    >>> seen.tokens, [attention.weights.shape for attention in seen.of("encoder")]
    (['[CLS]', 'a', 'film', '[SEP]'], [(2, 4, 4), (2, 4, 4)])
    """
    return look_at(task, read(task, example, target, **options))


def look_at(task: Any, reading: Reading) -> Look:
    """What `task` attends to in what it read of an example; ValueError for a model without attention."""
    model = reading.model or getattr(task.model, "backbone", task.model)
    states = {name: list(states) for name, states in model.hidden_states.items()}
    inner = Model(model.input, {"output": model.output, "states": states})
    with record_attention(model) as recorded:
        states = inner(reading.inputs, training=False)["states"]
    if not recorded:
        raise ValueError(f"The {type(model).__name__} of {task.name!r} has no attention to look at.")
    attention = _attention(model, reading, recorded)
    grids = [one.query_grid for one in attention if one.query_grid]
    grids += [one.key_grid for one in attention if one.key_grid and one.kind == "cross"]
    first = grids[0] if grids else None
    grid, num_prefix = (None, 0) if first is None else ((first.rows, first.columns), first.first)
    return Look(
        list(reading.tokens),
        list(reading.target_tokens),
        attention,
        list(reading.segments),
        {name: _stacked(values) for name, values in states.items()},
        reading.image,
        grid,
        num_prefix,
        reading.objects,
    )


def _stacked(states: Sequence[Any]) -> Any:
    """Hidden states (1, T, D) of the layers as one array, where they have one shape."""
    arrays = [np.asarray(state, "float32")[0] for state in states]
    return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays


def _place(token: str | int, tokens: Sequence[str]) -> int:
    """Where the token stands; ValueError where it stands not once."""
    if isinstance(token, int):
        if not -len(tokens) <= token < len(tokens):
            raise ValueError(f"Expected a place among {len(tokens)} tokens, got {token}.")
        return token
    count = list(tokens).count(token)
    if count != 1:
        raise ValueError(f"{token!r} stands {count} times among the tokens: name one, or give its place.")
    return list(tokens).index(token)


def _attention(model: keras.Model, reading: Reading, recorded: Mapping[str, Any]) -> list[Attention]:
    """Each recorded array, by what it joins."""
    kinds, layers = _kinds(model), {layer.path: layer for layer in layers_in(model)}
    windows_of = {
        layer.attention.path: (layer.cells, layer.map_size)
        for layer in layers.values()
        if isinstance(layer, WindowAttention)
    }
    tokens, targets = list(reading.tokens), list(reading.target_tokens)
    if "decoder_token_ids" not in reading.inputs and reading.image is None:
        tokens = targets = tokens + targets
    maps = [] if reading.image is None else maps_of(model)
    sides = {"encoder": (tokens, tokens), "decoder": (targets, targets), "cross": (targets, tokens)}
    attentions: list[Attention] = []
    for path, calls in recorded.items():
        kind = kinds.get(path, "encoder")
        if isinstance(layers[path], Alignment) and isinstance(calls, list):
            # Keras runs the first step of a loop twice.
            calls = np.concatenate(calls[-len(targets) :], axis=2)  # (1, 1, T, S)
        cells, map_size = windows_of.get(path, (None, None))
        for name, weights in named_calls(path, calls):
            weights = _of_one(weights)
            number = sum(attention.kind == kind for attention in attentions)
            *windows, _, rows, columns = weights.shape
            axes = ("windows", "heads", "queries", "keys")[1 - len(windows) :]
            is_of_cells = cells is None and not isinstance(layers[path], CrossCovarianceAttention)
            at = maps if is_of_cells and not windows else []
            is_one = rows == 1 < columns  # a class token, which reads all patches
            query_grid = grid_of(rows, at) if kind == "encoder" and not is_one else None
            key_grid = grid_of(columns, at) if kind != "decoder" else None
            queries = _labels(sides[kind][0], rows, query_grid)
            keys = _labels(sides[kind][1], columns, key_grid)
            places = queries, keys, axes, query_grid, key_grid, cells, map_size
            attentions.append(Attention(name, kind, number, weights, *places))
    return attentions


def _labels(names: Sequence[str], length: int, grid: Grid | None) -> list[str]:
    """The names of tokens or of a grid's cells, or numbers where an attention has other places."""
    if grid is not None:
        return grid.names()
    return list(names) if len(names) == length else [str(i) for i in range(length)]


def _of_one(weights: Any) -> np.ndarray:
    """(1, H, T, S) as (H, T, S); more rows than one are windows, and stay."""
    array = np.asarray(weights, "float32")
    return array[0] if len(array) == 1 else array


def _kinds(model: keras.Model) -> dict[str, Kind]:
    """{path: kind} of a model's layers that are not an encoder's self-attention."""
    kinds: dict[str, Kind] = {layer.path: "decoder" for layer in _layers_of(model.blocks.get("decoder", ()))}
    for layer in layers_in(model):
        if "context_attention" in str(layer.path) or isinstance(layer, Alignment):
            kinds[layer.path] = "cross"
    return kinds


def _layers_of(blocks: Iterable[Any]) -> Iterator[Any]:
    return (layer for block in blocks for layer in layers_in(block))
