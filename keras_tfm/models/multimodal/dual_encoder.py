"""The base of models with two towers, of images or clips and of texts, whose vectors lie in one space."""

import dataclasses
import functools
from typing import Annotated, NamedTuple

from keras import ops

from keras_tfm.configs import Config, Depth, Divides, Length, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import unit
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side
from keras_tfm.training.model import Model

SIDES = ("image", "text")
ImageHeads = Annotated[Size, Divides("image_dim")]
TextHeads = Annotated[Size, Divides("text_dim")]


class Sizes(NamedTuple):
    """The sizes of one side's blocks."""

    num_layers: int
    dim: int
    num_heads: int
    intermediate_dim: int


def sizes_of(config, side):
    """The `Sizes` of "image" or "text", from the fields of a configuration that name this side."""
    fields = (f"num_{side}_layers", f"{side}_dim", f"num_{side}_heads", f"{side}_intermediate_dim")
    return Sizes(*(getattr(config, field) for field in fields))


@dataclasses.dataclass(frozen=True)
class DualEncoderConfig(Config):
    """The sizes of both towers.

    Args:
        image_size: the side of the images, or (height, width).
        patch_size: the same for their patches.
        embedding_dim: the width of the space in which images and texts meet.
        attention_dropout: the rate for the attention weights of both towers.
    """

    image_size: Side | tuple[Side, Side] = 224
    patch_size: Side | tuple[Side, Side] = 32
    num_channels: Size = 3
    num_image_layers: Depth = 12
    image_dim: Size = 768
    num_image_heads: ImageHeads = 12
    image_intermediate_dim: Size = 3072
    vocabulary_size: Size = 49_408
    max_length: Length = 77
    num_text_layers: Depth = 12
    text_dim: Size = 512
    num_text_heads: TextHeads = 8
    text_intermediate_dim: Size = 2048
    embedding_dim: Size = 512
    attention_dropout: Rate = 0.0
    activation: str = "gelu_quick"
    epsilon: Rate = 1e-5

    @property
    def num_layers(self):
        """The blocks of both towers."""
        return self.num_image_layers + self.num_text_layers


class TwoTowers(ConfiguredModel):
    """Pairs of two things in, the `sides`, the second of which are texts; vectors of both out. Abstract.

    The inputs are the two `towers`', (inputs, outputs) by name for each side, and the outputs are theirs
    after the side's name and "_". `tower` makes a model of one side alone, with the same weights, for any
    number of its things.
    """

    sides: tuple[str, str]

    def __init__(self, config, towers, trace, **kwargs):
        outputs = {
            f"{side}_{name}": x
            for side, (_, parts) in zip(self.sides, towers, strict=True)
            for name, x in parts.items()
        }
        super().__init__(config, towers[0][0] | towers[1][0], outputs, trace, **kwargs)
        self._inputs_of = {side: inputs.keys() for side, (inputs, _) in zip(self.sides, towers, strict=True)}

    @functools.cached_property
    def text(self):
        """The texts' tower alone."""
        return self.tower("text")

    def tower(self, side):
        """The model of one side's graph; it shares its layers with the whole."""
        outputs = {
            name.removeprefix(f"{side}_"): x for name, x in self.output.items() if name.startswith(f"{side}_")
        }
        inputs = {name: self.input[name] for name in self._inputs_of[side]}
        tower = Model(inputs, outputs, name=side)
        is_text = side == "text"
        states = {name: x for name, x in self.hidden_states.items() if (name == "text") == is_text}
        tower.config, tower.hidden_states = self.config, states
        return tower


class DualEncoder(TwoTowers):
    """Pairs of an image and a text in, vectors of both out. Abstract: a family gives the two towers.

    Inputs: `images` (B, H, W, C), floating-point, and the text's inputs. Outputs, for each side:
    `image_sequence_output` (B, N, D), `image_pooled_output` (B, D) and `image_embeddings` (B, E), of unit
    length; `text_sequence_output` (B, T, D), `text_pooled_output` and `text_embeddings`. `image` and `text`
    are the towers alone, models of the same weights, for any number of images and texts. Two functions make
    the towers, (inputs, outputs) by name: `seen(config, trace)` and `text(config, trace, embedding)`;
    `embedding` is the layer that makes vectors of tokens and their positions. A family of other things that
    are seen names them first in `sides`.
    """

    sides: tuple[str, str] = SIDES

    def __init__(self, config, seen, text, **kwargs):
        embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.max_length,
            config.text_dim,
            initializer=NORMAL,
            name="text_embedding",
        )
        trace = Trace()
        towers = seen(config, trace), text(config, trace, embedding)
        super().__init__(config, towers, trace, **kwargs)
        self.embedding = embedding

    @functools.cached_property
    def image(self):
        """The images' tower alone: `sequence_output`, `pooled_output` and `embeddings` of `images`."""
        return self.tower("image")


def tower_blocks(config, side, causal=False):
    """The blocks of a tower, `{side}_block_{i}`, which normalise first; the lowest first."""
    sizes = sizes_of(config, side)
    part = residuals(epsilon=config.epsilon, normalize_first=True)

    def block(name):
        attention = MultiHeadAttention(sizes.num_heads, dropout=config.attention_dropout)
        feedforward = FeedForward(sizes.intermediate_dim, config.activation)
        return block_of(part, name, causal, attention=attention, feedforward=feedforward)

    return [block(f"{side}_block_{i}") for i in range(sizes.num_layers)]


class UnitLength(Layer):
    """Vectors (..., E), each divided by its length, which is computed in float32; 0 stays 0."""

    def call(self, x):
        return ops.cast(unit(x), x.dtype)
