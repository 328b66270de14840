"""The structure module of AlphaFold: from vectors of residues and pairs to the places of atoms.

    frames: all residues at the origin
    num_layers times, with the same weights:
        invariant point attention --> transition --> each frame moves a little --> angles --> atoms

Jumper et al. 2021, supplement, section 1.8, algorithms 20, 22 and 23. Weights and numbers are OpenFold's,
which are the authors': ReLU before the angles' first layers, for example, which the paper leaves out.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Config, Depth, Positive, Rate, Size, Whole
from keras_tfm.inputs import as_integers, refuse_outside
from keras_tfm.layers.attention.invariant_point import InvariantPointAttention
from keras_tfm.layers.base import Layer, SameShape, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.frames import (
    Frames,
    frames_of_matrices,
    identity_frames,
    rotation_of_quaternion,
    turned,
)
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.residues import LETTERS, NUM_GROUPS, residues

NUM_ANGLES = NUM_GROUPS - 1  # omega, phi, psi, chi 1 to 4


@dataclasses.dataclass(frozen=True)
class StructureConfig(Config):
    """The sizes of a `StructureModule` in a model.

    Args:
        num_structure_layers: how often its weights are applied.
        num_structure_heads: of its attention, each `structure_head_dim` wide.
        num_query_points: of each head's queries and keys.
        num_value_points: of each head's values.
        num_transitions: residual parts of three dense layers after the attention.
        angle_dim: the width of its layers for angles, of which there are `num_angle_blocks` residual parts.
        scale: how many angstroms a translation of 1 is.
        structure_dropout: the rate after its attention and after the transition.
    """

    num_structure_layers: Depth = 8
    num_structure_heads: Size = 12
    structure_head_dim: Size = 16
    num_query_points: Size = 4
    num_value_points: Size = 8
    num_transitions: Depth = 1
    angle_dim: Size = 128
    num_angle_blocks: Whole = 2
    scale: Positive = 10.0
    structure_dropout: Rate = 0.1


class StructureModule(Layer):
    """Vectors of N residues (B, N, D) and of their pairs (B, N, N, P) in, frames and atoms out.

    Outputs, after each of L layers: `frames` (B, L, N, 7), quaternions and places in angstroms;
    `sidechain_frames` (B, L, N, 8, 4, 4) of the groups of `residues`; `unnormalized_angles` and `angles` (B,
    L, N, 7, 2), sines and cosines; `positions` (B, L, N, 14, 3) in angstroms, 0 where a residue has no such
    atom; `states` (B, L, N, D). All but the states are float32, whatever the policy. Gradients do not pass
    through rotations from one layer to the one before.

    Args:
        num_layers: L, how often the same weights are applied.
        attention: an `InvariantPointAttention`.
        num_transitions: residual parts of three dense layers after the attention.
        angle_dim: the width of the layers for angles.
        num_angle_blocks: their residual parts, of two dense layers each.
        scale: how many angstroms a translation of 1 is.
        dropout: the rate after the attention and after the transition.

    >>> attention = keras_tfm.layers.InvariantPointAttention(num_heads=2, key_dim=4)
    >>> module = keras_tfm.models.StructureModule(2, attention, angle_dim=8)
    >>> numbers = np.array([[0, 7, 17]])  # alanine, glycine, tryptophan
    >>> module(np.ones((1, 3, 8)), np.ones((1, 3, 3, 6)), numbers)["positions"].shape
    TensorShape([1, 2, 3, 14, 3])
    """

    def __init__(
        self,
        num_layers: int,
        attention: Any,
        num_transitions: int = 1,
        angle_dim: int = 128,
        num_angle_blocks: int = 2,
        scale: float = 10.0,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(num_layers=num_layers, num_transitions=num_transitions)
        self.num_layers = num_layers
        self.attention = attention
        self.num_transitions = num_transitions
        self.angle_dim = angle_dim
        self.num_angle_blocks = num_angle_blocks
        self.scale = scale
        self.dropout = dropout
        self.single_norm, self.pair_norm, self.attention_norm, self.transition_norm = (
            LayerNormalization(1e-5) for _ in range(4)
        )
        self.transitions = [SquareMLP(3, name=f"transition_{i}") for i in range(num_transitions)]
        self.frame_update = Dense(6, kernel_initializer="zeros")
        self.angles = AngleNetwork(angle_dim, num_angle_blocks)
        self.value_dropout = Dropout(dropout)

    def build(self, single_shape, pair_shape, numbers_shape=None, mask_shape=None):
        self.single_projection = Dense(single_shape[-1], name="single_projection")
        self.pair_norm.build(pair_shape)
        self.attention.build(single_shape, pair_shape)
        self.angles.build(single_shape, single_shape)
        for norm in (self.single_norm, self.attention_norm, self.transition_norm):
            norm.build(single_shape)
        for transition in self.transitions:
            transition.build(single_shape)
        self.single_projection.build(single_shape)
        self.frame_update.build(single_shape)

    def call(self, single, pair, numbers, mask=None, training=None):
        """A dictionary, for `single` (B, N, D), `pair` (B, N, N, P), `numbers` (B, N) of residues, from 0 to
        20 as in `residues`, and `mask` (B, N), False at padding. Other numbers are refused with a ValueError;
        in a graph they give NaN.
        """
        numbers = as_integers(numbers, "numbers")
        refuse_outside(numbers, len(LETTERS) + 1, "numbers")
        start = self.single_norm(single)
        pair = self.pair_norm(pair)
        x = self.single_projection(start)
        frames = identity_frames(ops.shape(x)[:2])
        quaternion = ops.zeros_like(frames.translation[..., :1])
        quaternion = ops.concatenate([quaternion + 1, frames.translation], axis=-1)  # (B, N, 4)
        layers: dict[str, list] = {"quaternions": [], "places": [], "states": []}
        for _ in range(self.num_layers):
            x = x + self.attention(x, pair, *frames, mask=mask)
            x = self.attention_norm(self.value_dropout(x, training=training))
            for transition in self.transitions:
                x = transition(x)
            x = self.transition_norm(self.value_dropout(x, training=training))
            update = in_float32(self.frame_update(x))  # (B, N, 6)
            place = frames.apply(update[..., 3:])
            quaternion = turned(quaternion, update[..., :3])
            for values, value in zip(layers.values(), (quaternion, place, x), strict=True):
                values.append(value)
            quaternion = ops.stop_gradient(quaternion)
            frames = Frames(rotation_of_quaternion(quaternion), place)
        quaternions, places, states = (ops.stack(x, axis=1) for x in layers.values())
        raw, angles = self.angles(states, start[:, None])  # (B, L, N, 7, 2)
        frames = Frames(rotation_of_quaternion(quaternions), places * self.scale)
        folded = [_layers_to_batch(x) for x in (*frames, angles)]
        numbers = ops.repeat(numbers, self.num_layers, axis=0)  # (B L, N)
        groups = group_frames(Frames(*folded[:2]), folded[2], numbers)
        placed = {"sidechain_frames": groups.matrices(), "positions": atom_positions(groups, numbers)}
        shape = ops.shape(states)[:2]
        placed = {name: ops.reshape(y, (*shape, *ops.shape(y)[1:])) for name, y in placed.items()}
        return {
            "frames": ops.concatenate([quaternions, frames.translation], axis=-1),
            "unnormalized_angles": raw,
            "angles": angles,
            "states": states,
            **placed,
        }


def structure_module(config: StructureConfig, name):
    """The `StructureModule` of a model of this configuration."""
    attention = InvariantPointAttention(
        config.num_structure_heads,
        config.structure_head_dim,
        config.num_query_points,
        config.num_value_points,
    )
    return StructureModule(
        config.num_structure_layers,
        attention,
        config.num_transitions,
        config.angle_dim,
        config.num_angle_blocks,
        config.scale,
        config.structure_dropout,
        name=name,
    )


class SquareMLP(SameShape):
    """x + a row of `depth` dense layers as wide as x, with ReLU between them and, if `relu_first`, before the
    first: (..., D) in and out.
    """

    def __init__(self, depth: int, relu_first: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(depth=depth)
        self.depth = depth
        self.relu_first = relu_first

    def build(self, x_shape):
        last = self.depth - 1
        self.layers = [
            Dense(
                x_shape[-1],
                activation=None if i == last else "relu",
                kernel_initializer="zeros" if i == last else "he_normal",
                name=f"dense_{i}",
            )
            for i in range(self.depth)
        ]
        for layer in self.layers:
            layer.build(x_shape)

    def call(self, x):
        """(..., D) -> (..., D)."""
        y = ops.relu(x) if self.relu_first else x
        for layer in self.layers:
            y = layer(y)
        return x + y


class AngleNetwork(Layer):
    """The sines and cosines of seven angles from a residue's vector now and at the start (algorithm 20, lines
    11 to 14): two of (..., D) in, two of (..., 7, 2) out, as they are and of length 1.
    """

    def __init__(self, dim: int, num_blocks: int, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(dim=dim)
        self.dim = dim
        self.num_blocks = num_blocks
        self.epsilon = epsilon
        self.embedding = Dense(dim)
        self.start_embedding = Dense(dim)
        self.blocks = [SquareMLP(2, relu_first=True, name=f"block_{i}") for i in range(num_blocks)]
        self.output_projection = Dense(2 * NUM_ANGLES, name="output")

    def build(self, x_shape, start_shape):
        self.embedding.build(x_shape)
        self.start_embedding.build(start_shape)
        for block in self.blocks:
            block.build((*x_shape[:-1], self.dim))
        self.output_projection.build((*x_shape[:-1], self.dim))

    def call(self, x, start):
        """Both in float32."""
        y = self.embedding(ops.relu(x)) + self.start_embedding(ops.relu(start))
        for block in self.blocks:
            y = block(y)
        y = in_float32(self.output_projection(ops.relu(y)))
        y = ops.reshape(y, (*ops.shape(y)[:-1], NUM_ANGLES, 2))  # (..., 7, 2)
        squares = ops.sum(ops.square(y), axis=-1, keepdims=True)
        return y, y / ops.sqrt(ops.maximum(squares, self.epsilon))


def group_frames(backbone, angles, numbers):
    """The `Frames` (..., N, 8) of all groups of residues, seen from outside (algorithm 24).

    `backbone` are frames (..., N), `angles` (..., N, 7, 2) sines and cosines, `numbers` (..., N) of residues.
    Chi 2 to 4 each turn in the group before them.
    """
    outside = outside_is_nan(numbers, len(LETTERS) + 1, "float32")[..., None, None]  # (..., N, 1, 1, 1)
    default = frames_of_matrices(_taken(residues().frames, numbers) + outside)  # (..., N, 8)
    sine, cosine = ops.unstack(angles, 2, axis=-1)  # (..., N, 7)
    sine = ops.concatenate([ops.zeros_like(sine[..., :1]), sine], axis=-1)  # the backbone does not turn
    cosine = ops.concatenate([ops.ones_like(cosine[..., :1]), cosine], axis=-1)  # (..., N, 8)
    zero, one = ops.zeros_like(sine), ops.ones_like(sine)
    rows = [(one, zero, zero), (zero, cosine, -sine), (zero, sine, cosine)]
    turn = ops.stack([ops.stack(row, axis=-1) for row in rows], axis=-2)  # (..., N, 8, 3, 3)
    groups = default.compose(Frames(turn, ops.stack([zero] * 3, axis=-1)))
    chain = [Frames(groups.rotation[..., i, :, :], groups.translation[..., i, :]) for i in range(NUM_GROUPS)]
    for i in range(NUM_GROUPS - 3, NUM_GROUPS):
        chain[i] = chain[i - 1].compose(chain[i])
    rotations, translations = zip(*chain, strict=True)
    groups = Frames(ops.stack(rotations, axis=-3), ops.stack(translations, axis=-2))
    return backbone.with_axes(1).compose(groups)


def atom_positions(groups, numbers):
    """The positions (..., N, 14, 3) of the atoms of residues with `numbers` (..., N), 0 where there is none.

    `groups` are the `Frames` (..., N, 8) of their groups.
    """
    tables = residues()
    of_group = ops.one_hot(_taken(tables.groups, numbers), NUM_GROUPS)  # (..., N, 14, 8)
    rotation = ops.sum(of_group[..., None, None] * groups.rotation[..., None, :, :, :], axis=-3)
    translation = ops.sum(of_group[..., None] * groups.translation[..., None, :, :], axis=-2)
    positions = Frames(rotation, translation).apply(_taken(tables.positions, numbers))
    return positions * _taken(tables.exists, numbers)[..., None]


def _layers_to_batch(x):
    """(B, L, N, ...) -> (B L, N, ...)."""
    size, count, *shape = ops.shape(x)
    return ops.reshape(x, (size * count, *shape))


def _taken(table, numbers):
    """The entries of a constant `table` at `numbers`."""
    return ops.take(ops.convert_to_tensor(table), ops.cast(numbers, "int32"), axis=0)
