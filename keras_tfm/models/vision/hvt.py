"""HVT (Pan et al. 2021, "Scalable Vision Transformers with Hierarchical Pooling").

A ViT without a class token whose sequence becomes shorter with the depth: some blocks end with max-pooling
of neighbouring tokens, to which new positions are added. As in the authors' code the first block pools too.
"""

import dataclasses

from keras_tfm.configs import Rounds
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block
from keras_tfm.layers.chain import ChainBlock
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patches import height_and_width, patch_grid
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.vision.variant import Variant, VariantConfig, attention_of, feedforward_of, residual_of


@dataclasses.dataclass(frozen=True)
class HVTConfig(VariantConfig):
    """The sizes of an `HVT`.

    Args:
        pool_every: blocks 0, `pool_every`, 2 `pool_every`, ... end with max-pooling.
        pool_size: how many tokens are pooled into one.
        pool_stride: the distance between the windows of tokens.
    """

    pooling = "mean"
    pool_every: Rounds = 12
    pool_size: Rounds = 3
    pool_stride: Rounds = 2

    @property
    def lengths(self):
        """The number of tokens that enter the first block, and that leave each block."""
        sides = height_and_width(self.image_size, "image_size")
        rows, columns = patch_grid(sides, self.patch_size)
        lengths = [rows * columns]
        for index in range(self.num_layers):
            length = lengths[-1]
            if index % self.pool_every == 0:
                if length < self.pool_size:
                    raise ValueError(
                        f"`pool_size` must be at most the {length} tokens of block {index}; it is "
                        f"{self.pool_size}."
                    )
                length = (length - self.pool_size) // self.pool_stride + 1
            lengths.append(length)
        return lengths


class HVT(Variant):
    """A `ViT` with fewer and fewer tokens: `sequence_output` (B, N', D), and `pooled_output` (B, D), their
    mean.

    >>> sizes = dict(image_size=32, patch_size=8, num_layers=1, dim=16, num_heads=2)
    >>> model = keras_tfm.models.HVT.from_size("Ti-1", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 7, 16])
    """

    config_class = HVTConfig

    @classmethod
    def block(cls, config, index):
        attention = residual_of(config, attention_of(config), index, name="attention")
        feedforward = residual_of(config, feedforward_of(config), index, name="feedforward")
        name = f"block_{index}"
        if index % config.pool_every:
            return Block({"attention": attention, "feedforward": feedforward}, name=name)
        pooling = TokenPooling(config.pool_size, config.pool_stride, name="pooling")
        position = PositionEmbedding(config.lengths[index + 1], TRUNCATED, name="position")
        return ChainBlock([attention, feedforward, pooling, position], name=name)

    def with_image_size(self, image_size):
        """Raises ValueError: the positions of pooled tokens are not on a grid that could be resized."""
        raise ValueError("HVT cannot change its image size: positions of pooled tokens are on no grid.")


class TokenPooling(Layer):
    """The maximum of each feature in windows of `pool_size` tokens: (B, N, D) -> (B, N', D).

    The windows are `stride` tokens apart; tokens left over at the end are in none.
    """

    def __init__(self, pool_size, stride, **kwargs):
        super().__init__(**kwargs)
        self.pool_size = pool_size
        self.stride = stride
        self.pooling = MaxPooling((pool_size, 1), (stride, 1))  # the sequence as a map of one column

    def build(self, x_shape):
        batch_size, length, dim = x_shape
        self.pooling.build((batch_size, length, 1, dim))

    def call(self, x):
        """(B, N, D) -> (B, N', D)."""
        return self.pooling(x[:, :, None])[:, :, 0]

    def compute_output_shape(self, x_shape):
        batch_size, length, dim = x_shape
        return (batch_size, (length - self.pool_size) // self.stride + 1, dim)


# Pan et al. 2021 and the authors' configurations, with DeiT's widths. The number after the hyphen counts the
# poolings.
_TI = HVTConfig(dim=192, num_heads=3, intermediate_dim=768)
_S = HVTConfig(dim=384, num_heads=6, intermediate_dim=1536)
HVT.sizes = {
    "Ti-1": _TI,
    "S-1": _S,
    "S-2": dataclasses.replace(_S, pool_every=6),
    "S-3": dataclasses.replace(_S, pool_every=4),
    "S-4": dataclasses.replace(_S, pool_every=3),
}
