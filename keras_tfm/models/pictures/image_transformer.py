"""Image Transformer (Parmar et al. 2018, "Image Transformer"): a decoder of pixels that see a neighbourhood.

A picture is the sequence of its pixels' channels, line by line, of 256 values each. Local attention in one
dimension sees the own and the previous block of the sequence, in two dimensions a tile and a margin around
it. Deviates from the paper in that positions are learned, and that pictures are written line by line in two
dimensions too, where the paper writes tile by tile.
"""

import dataclasses
from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Config, Count, Depth, Heads, Rate, Size, Whole
from keras_tfm.inputs import as_integers, refuse_outside
from keras_tfm.layers.attention.patterns import BlockPattern, PatternAttention, TilePattern
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.base import copy_of
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.pictures.decoder import PictureDecoder
from keras_tfm.models.text.seq2seq import Stack
from keras_tfm.models.vision.images import Side

NUM_VALUES = 256  # of a channel; the token that begins a picture is the next one


@dataclasses.dataclass(frozen=True)
class ImageTransformerConfig(Config):
    """The sizes of an `ImageTransformer`; the defaults are for CIFAR-10.

    Args:
        image_size: (height, width).
        attention: "block", in one dimension, or "tile", in two.
        block_length: the length of a block of the sequence.
        tile: (rows, columns) of a tile, where each channel is a column.
        margin: (rows above, columns on both sides) of a tile.
        dropout: the rate for attention weights, embeddings and the output of each sub-layer.
    """

    image_size: tuple[Side, Side] = (32, 32)
    num_channels: Count = 3
    num_layers: Depth = 12
    dim: Size = 512
    num_heads: Heads = 4
    intermediate_dim: Size = 2048
    attention: Literal["block", "tile"] = "block"
    block_length: Count = 256
    tile: tuple[Count, Count] = (8, 32)
    margin: tuple[Whole, Whole] = (8, 32)
    dropout: Rate = 0.3
    epsilon: Rate = 1e-6

    tied = False  # no field: the head always has a table of its own

    @property
    def columns(self):
        """The channels of a line."""
        return self.image_size[1] * self.num_channels

    @property
    def max_length(self):
        """The channels of a picture."""
        return self.image_size[0] * self.columns


class ImageTransformer(PictureDecoder):
    """Values of channels in, hidden states out, each position attending to a neighbourhood before it.

    Input: `token_ids` (B, T), first `start_id`, then the values 0 .. 255 of the channels; `tokens_of` makes
    them of images. Output: `sequence_output` (B, T, D); `heads.LanguageModel` predicts the next values.

    >>> model = keras_tfm.models.ImageTransformer.from_size("tiny")
    >>> tokens = model.tokens_of(np.zeros((1, 8, 8, 3), "uint8"))
    >>> model({"token_ids": tokens[:, :-1]})["sequence_output"].shape
    TensorShape([1, 192, 64])
    """

    config_class = ImageTransformerConfig

    def __init__(
        self, config: ImageTransformerConfig, name: str = "image_transformer", **kwargs: Any
    ) -> None:
        embedding = ChannelEmbedding(config.image_size, config.num_channels, config.dim, name="embedding")
        decoder = Stack(
            lambda token_ids, positions=None: embedding(token_ids, positions=positions),
            [_block(config, f"block_{i}") for i in range(config.num_layers)],
        )
        dropout = Dropout(config.dropout, name="embedding_dropout")
        super().__init__(config, decoder, embedding, dropout, config.max_length, name=name, **kwargs)
        self.start_id = self.output_size = NUM_VALUES

    def tokens_of(self, images):
        """The sequences (B, 1 + H W C) of `images` (B, H, W, C) of whole numbers from 0 to 255."""
        images = as_integers(ops.convert_to_tensor(images), "images")
        refuse_outside(images, NUM_VALUES, "images")
        tokens = ops.reshape(ops.cast(images, "int32"), (-1, self.config.max_length))  # (B, H W C)
        return ops.pad(tokens, ((0, 0), (1, 0)), constant_values=self.start_id)

    def images_of(self, token_ids):
        """The images (B, H, W, C) of sequences (B, 1 + H W C)."""
        return ops.reshape(token_ids[:, 1:], (-1, *self.config.image_size, self.config.num_channels))


class ChannelEmbedding(TokenEmbedding):
    """Values of channels (B, T) -> vectors (B, T, D): a table for each channel, of rows and of columns.

    At a position stands the value before it, since the first token begins the picture.
    """

    def __init__(self, image_size, num_channels, dim, **kwargs):
        super().__init__(num_channels * NUM_VALUES + 1, dim, initializer=NORMAL, **kwargs)
        self.image_size = tuple(image_size)
        self.num_channels = num_channels

    def build(self, token_ids_shape, positions_shape=None):
        super().build(token_ids_shape)
        self.rows, self.columns = (
            self.add_weight((size, self.dim), copy_of(NORMAL), name=name)
            for size, name in zip(self.image_size, ("rows", "columns"), strict=True)
        )

    def call(self, token_ids, positions=None):
        """`positions` are (T,) or (B, T), by default 0 .. T-1; outside the picture the result is NaN."""
        if positions is None:
            positions = ops.arange(ops.shape(token_ids)[1], dtype="int32")
        token_ids = ops.cast(as_integers(token_ids, "token_ids"), "int32")
        refuse_outside(token_ids, NUM_VALUES + 1, "token_ids")
        channel = (positions - 1) % self.num_channels
        begins, last = token_ids == NUM_VALUES, self.vocabulary_size - 1
        numbers = ops.where(begins, last, token_ids + NUM_VALUES * channel)
        x = self.token(ops.clip(numbers, 0, last))
        height, width = self.image_size
        pixel = positions // self.num_channels
        row = ops.clip(pixel // width, 0, height - 1)
        x = x + ops.cast(
            ops.take(self.rows, row, axis=0) + ops.take(self.columns, pixel % width, axis=0), x.dtype
        )
        x = x + outside_is_nan(positions, height * width * self.num_channels, x.dtype)
        return x + outside_is_nan(token_ids, NUM_VALUES + 1, x.dtype)

    def compute_output_shape(self, token_ids_shape, positions_shape=None):
        return (*token_ids_shape, self.dim)


def _block(config, name):
    pattern: keras.layers.Layer = BlockPattern(config.block_length)
    if config.attention == "tile":
        pattern = TilePattern(config.tile, config.margin, config.columns)
    part = residuals(config.dropout, config.epsilon)
    attention = PatternAttention(HeadProjections(config.num_heads), pattern, config.dropout)
    feedforward = FeedForward(config.intermediate_dim)
    return block_of(part, name, causal=True, attention=attention, feedforward=feedforward)


# CIFAR-10, ImageNet-32: Parmar et al. 2018, as their released code has them.
ImageTransformer.sizes = {
    "tiny": ImageTransformerConfig(
        (8, 8), num_layers=2, dim=64, num_heads=2, intermediate_dim=128, block_length=48, dropout=0.1
    ),
    "CIFAR-10": ImageTransformerConfig(),
    "ImageNet-32": ImageTransformerConfig(dropout=0.1),
}
