"""SceneFormer (Wang, Yeshwanth and Niessner 2021, "SceneFormer: Indoor Scene Generation with Transformers"):
furniture for rooms, one object after another, each by its category, orientation, location and size.

    tokens of the objects so far, and what is known of the next one -> a sum of their vectors
    -> causal blocks, which may attend to a context -> the next token

One network predicts one property; `make_rooms` lets four of them take turns. A token is a number of steps,
of a degree or of a coordinate, followed by three special ones: padding, stop, start. Here the context is
given as vectors, of words or of a plan of the floor; the paper's network for plans is left out.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Refusal, Size, Whole
from keras_tfm.inputs import every_position
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.base import ConfiguredModel, Trace

# What a sequence of one token for an object may hold of its location and of its size.
PARTS = {
    "x": ("location", 0), "y": ("location", 1), "z": ("location", 2),
    "width": ("size", 0), "depth": ("size", 1), "height": ("size", 2),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SceneFormerConfig(Config):
    """The sizes of a `SceneFormer`.

    Args:
        tables: {name: its number of tokens, the three special ones included} of the sequences that are read.
            "category", "orientation", "location" and "size" are the properties of the objects so far, "x",
            "y" and "z" the parts of their locations, "width", "depth" and "height" of their sizes,
            "current_category" and so on what the next object has.
        predicts: the name of the table whose next token is predicted.
        period: how many tokens an object takes: 1, or 3 for a location or a size.
        context_dim: the width of the context's vectors; 0 for no context.
    """

    tables: dict = dataclasses.field(default_factory=dict)
    predicts: str = "category"
    period: Size = 1
    context_dim: Whole = 0
    max_length: Length = 42
    num_layers: Depth = 8
    dim: Size = 256
    num_heads: Heads = 8
    intermediate_dim: Size = 256
    dropout: Rate = 0.3
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        if any(not isinstance(size, int) or size < 4 for size in self.tables.values()):
            raise Refusal("tables", "a number of tokens from 4 on for each name", self.tables)
        if self.predicts not in self.tables:
            raise Refusal("predicts", f"one of the tables, {', '.join(self.tables)}", self.predicts)

    @property
    def pad_id(self):
        """The padding of what is predicted; stop and start follow it."""
        return self.tables[self.predicts] - 3


class SceneFormer(ConfiguredModel):
    """A network of SceneFormer: sequences of tokens in, logits of the next token out.

    Inputs: a sequence (B, T) by the name of each table, the first token of which is "start", and `context`
    (B, S, `context_dim`) if there is one. Where the sequence that is predicted is padded, nothing attends.
    Output: `logits` (B, T, V) of all tokens but "start".

    >>> model = keras_tfm.models.SceneFormer.from_size("tiny")
    >>> model({name: np.zeros((1, 4)) for name in model.config.tables})["logits"].shape
    TensorShape([1, 4, 8])
    """

    config_class = SceneFormerConfig

    def __init__(self, config: SceneFormerConfig, name: str = "scene_former", **kwargs: Any) -> None:
        inputs = {table: keras.Input((None,), dtype="int32", name=table) for table in config.tables}
        tokens = inputs[config.predicts]
        vectors = [
            TokenEmbedding(size, config.dim, name=f"{table}_embedding")(inputs[table])
            for table, size in config.tables.items()
        ]
        if config.period > 1:
            kind = (every_position(tokens) - 1) % config.period
            vectors.append(TokenEmbedding(config.period, config.dim, name="part_embedding")(kind))
        x = PositionEmbedding(config.max_length, name="position")(sum(vectors[1:], vectors[0]))
        tensors: dict[str, Any] = {"attention": {"mask": ops.not_equal(tokens, config.pad_id)}}
        if config.context_dim:
            inputs["context"] = keras.Input((None, config.context_dim), name="context")
            tensors["context_attention"] = {
                "context": Dense(config.dim, name="context_projection")(inputs["context"])
            }
        trace, part = Trace(), residuals(dropout=config.dropout, epsilon=config.epsilon)

        def block(i):
            context = MultiHeadAttention(config.num_heads) if config.context_dim else None
            attention = MultiHeadAttention(config.num_heads)
            feedforward = FeedForward(config.intermediate_dim, "relu")
            branches = {"attention": attention, "context_attention": context, "feedforward": feedforward}
            return block_of(part, f"block_{i}", causal=True, **branches)

        x = trace.run("decoder", map(block, range(config.num_layers)), x, **tensors)
        outputs = {"logits": Dense(config.tables[config.predicts] - 1, name="output")(x)}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def room_sequences(config: SceneFormerConfig, room: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a network reads of rooms of n objects: {table: (B, n period + 1)}.

    `room` has `category` and `orientation` (B, n), `location` and `size` (B, n, 3), as far as they are read.
    The network learns sequence[:, 1:] of what it predicts from all sequences[:, :-1].
    """
    sequences = {}
    for table, size in config.tables.items():
        name = table.removeprefix("current_")
        whole, part = PARTS.get(name, (name, None))
        values = room[whole] if part is None else room[whole][..., part]
        if values.ndim == 2:
            values = np.repeat(values[..., None], config.period, axis=2)
        values = values.reshape(len(values), -1)  # (B, n period)
        special = np.full((len(values), 1), size - 1 if name == table else size - 3)  # start, or padding
        ends = (special, values) if name == table else (values, special)
        sequences[table] = np.concatenate(ends, axis=1).astype("int32")
    return sequences


def make_rooms(
    networks: list[SceneFormer],
    count: int,
    max_objects: int,
    seed: int = 0,
    temperature: float = 1.0,
    context: Any = None,
) -> dict[str, np.ndarray]:
    """Draw `count` rooms by `networks` that predict properties in turn, category first.

    Returns {property: (count, `max_objects`)}, or (count, `max_objects`, 3) for a property of period 3. A
    room ends with the category "stop"; what follows is padding. No other property stops.
    """
    rng, going, room = np.random.default_rng(seed), np.ones(count, bool), {}
    for config in (network.config for network in networks):
        parts = (config.period,) if config.period > 1 else ()
        room[config.predicts] = np.full((count, max_objects, *parts), config.pad_id)
    for number in range(max_objects):
        for place, network in enumerate(networks):
            config = network.config
            rows = room[config.predicts].reshape(count, -1)  # (B, n period), a view
            for index in range(number * config.period, (number + 1) * config.period):
                inputs = {name: x[:, :-1] for name, x in room_sequences(config, room).items()}
                inputs |= {"context": context} if config.context_dim else {}
                logits = np.array(network(inputs)["logits"][:, index], "float64") / temperature
                logits[:, config.pad_id :][:, : 1 if place == 0 else 2] = -np.inf  # padding, and stop
                tokens = (logits + rng.gumbel(size=logits.shape)).argmax(axis=-1)
                rows[:, index] = np.where(going, tokens, config.pad_id)
            if place == 0:
                going &= tokens < config.pad_id
    return room


# Wang et al. 2021: eight blocks of width 256; locations in 201 steps, orientations in degrees,
# sizes in 81 steps. 50 categories stand in for the data's, which differ from one kind of room to another.
_OBJECT: dict[str, int] = {"category": 53, "orientation": 364}
_PLACE = dict.fromkeys("xyz", 204)
_THREE: dict[str, Any] = {"period": 3, "max_length": 122}
_CURRENT = {"current_category": 53}
SceneFormer.sizes = {
    "category": SceneFormerConfig(_OBJECT | _PLACE),
    "orientation": SceneFormerConfig(_OBJECT | _PLACE | _CURRENT, "orientation"),
    "location": SceneFormerConfig(_OBJECT | {"location": 204} | _CURRENT, "location", **_THREE),
    "size": SceneFormerConfig(
        _OBJECT | {"location": 204, "size": 84} | _CURRENT | {"current_location": 204}, "size", **_THREE
    ),
    "tiny": SceneFormerConfig(
        {"category": 9, "orientation": 11},
        num_layers=2,
        dim=16,
        num_heads=2,
        intermediate_dim=20,
        max_length=10,
    ),
}
