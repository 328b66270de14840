"""AutoFormer (Chen et al. 2021, "AutoFormer: Searching Transformers for Visual Recognition").

A ViT whose layers differ in their numbers of heads and in their feed-forward widths, as a search found them
(see `autoformer_supernet`), with image-relative positions on keys and values. All heads have the same width.
The pooled output is the mean of the patches, as in the authors' code.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Rate, Size
from keras_tfm.layers.attention.grid_position import ImageRelativePosition
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map, height_and_width, patch_grid
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages, growing_rates
from keras_tfm.models.vision.images import PatchedImageConfig, Ratio, image_input


@dataclasses.dataclass(frozen=True)
class AutoFormerConfig(PatchedImageConfig):
    """The sizes of an `AutoFormer`.

    Args:
        num_heads: the number of heads of each layer.
        mlp_ratios: the feed-forward width of each layer as a multiple of `dim`.
        key_dim: the width of a head.
        max_distance: `max_distance` of `ImageRelativePosition`, in cells.
    """

    dim: Size = 192
    num_heads: tuple[Size, ...] = (3,) * 12
    mlp_ratios: tuple[Ratio, ...] = (4.0,) * 12
    key_dim: Size = 64
    max_distance: Size = 14
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "num_heads", "mlp_ratios")

    @property
    def hidden_dims(self):
        """The feed-forward width of each layer."""
        return tuple(max(int(ratio * self.dim), 1) for ratio in self.mlp_ratios)


class AutoFormer(ConfiguredModel):
    """AutoFormer: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the mean of the patches.

    >>> sizes = dict(image_size=32, dim=16, num_heads=(2,), mlp_ratios=(2.0,))
    >>> model = keras_tfm.models.AutoFormer.from_size("T", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = AutoFormerConfig

    def __init__(self, config: AutoFormerConfig, name: str = "autoformer", **kwargs: Any) -> None:
        images = image_input(config)
        blocks = [Block(parts(config, i), name=f"block_{i}") for i in range(len(config.num_heads))]
        trace = Trace()
        x = trace.run("encoder", blocks, embedded(config, images))
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x[:, 1:], axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


def embedded(config, images):
    """The tokens (B, N + 1, D) of `images`, the class token first, with learned positions added."""
    x = flatten_map(PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images))
    x = PrependedTokens(initializer=TRUNCATED, name="class_token")(x)  # (B, N + 1, D)
    x = PositionEmbedding(x.shape[1], TRUNCATED, name="position")(x)
    return Dropout(config.dropout, name="embedding_dropout")(x)


def parts(config, i, norm=LayerNormalization):
    """The residuals of layer `i`, attention and feed-forward, each with a new `norm`."""
    grid = patch_grid(height_and_width(config.image_size), config.patch_size)
    position = ImageRelativePosition(
        grid, config.max_distance, with_values=True, prefix=1, initializer=TRUNCATED
    )
    attention = MultiHeadAttention(
        config.num_heads[i],
        config.key_dim,
        dropout=config.dropout,
        position=position,
        kernel_initializer=TRUNCATED,
    )
    feedforward = FeedForward(config.hidden_dims[i], "gelu", kernel_initializer=TRUNCATED)
    rate = growing_rates(config.stochastic_depth, len(config.num_heads))[i]
    part = residuals(config.dropout, config.epsilon, norm, normalize_first=True, stochastic_depth=rate)
    return {"attention": part(attention), "feedforward": part(feedforward)}


# The networks whose results Chen et al. 2021 report, from the authors' files of search results.
_T = AutoFormerConfig(
    num_heads=(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 3, 3),
    mlp_ratios=(3.5, 3.5, 3, 3.5, 3, 3, 4, 4, 3.5, 4, 3.5, 4, 3.5),
    stochastic_depth=0.1,
)
AutoFormer.sizes = {
    "T": _T,
    "S": dataclasses.replace(
        _T,
        dim=384,
        num_heads=(6, 6, 5, 7, 5, 5, 5, 6, 6, 7, 7, 6, 7),
        mlp_ratios=(3, 3.5, 3, 3.5, 4, 4, 4, 4, 4, 4, 4, 3.5, 4),
    ),
    "B": dataclasses.replace(
        _T,
        dim=576,
        num_heads=(9, 9, 9, 9, 9, 10, 9, 9, 10, 9, 10, 9, 9, 10),
        mlp_ratios=(3.5, 3.5, 4, 3.5, 4, 3.5, 3.5, 3, 4, 4, 3, 4, 3, 3.5),
    ),
}
