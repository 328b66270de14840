"""ViTAS: networks found by a search (Su et al. 2022, "ViTAS: Vision Transformer Architecture Search").

A ViT whose layers differ in their numbers of heads, the widths of these, and their feed-forward widths. As
in the authors' code the scores are divided by the square root of `dim` // heads, although heads have other
widths. Only the architectures are here: not the search, by a supernet whose channels are shared in cycles and
which has class tokens for each patch size, nor published weights. `AutoFormerSupernet` is one to search in.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages, growing_rates
from keras_tfm.models.vision.autoformer import embedded
from keras_tfm.models.vision.images import PatchedImageConfig, image_input


@dataclasses.dataclass(frozen=True)
class ViTASConfig(PatchedImageConfig):
    """The sizes of a `ViTAS`: for each layer its `num_heads`, their width `key_dims`, and its feed-forward
    width `hidden_dims`.
    """

    dim: Size = 230
    num_heads: tuple[Size, ...] = (3,) * 12
    key_dims: tuple[Size, ...] = (48,) * 12
    hidden_dims: tuple[Size, ...] = (720,) * 12
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "num_heads", "key_dims", "hidden_dims")
        if max(self.num_heads) > self.dim:
            raise ValueError(f"`num_heads` must be at most `dim`, {self.dim}; they are {self.num_heads}.")


class ViTAS(ConfiguredModel):
    """ViTAS: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state.

    >>> sizes = dict(image_size=32, dim=16, num_heads=(2,), key_dims=(4,), hidden_dims=(32,))
    >>> model = keras_tfm.models.ViTAS.from_size("A", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = ViTASConfig

    def __init__(self, config: ViTASConfig, name: str = "vitas", **kwargs: Any) -> None:
        images = image_input(config)
        blocks = [_block(config, i) for i in range(len(config.num_heads))]
        trace = Trace()
        x = trace.run("encoder", blocks, embedded(config, images))
        x = LayerNormalization(1e-5, name="norm")(x)  # not the blocks' epsilon, as in the authors' code
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


def _block(config, i):
    num_heads = config.num_heads[i]
    attention = MultiHeadAttention(
        num_heads,
        config.key_dims[i],
        dropout=config.dropout,
        scale=(config.dim // num_heads) ** -0.5,
        kernel_initializer=TRUNCATED,
    )
    feedforward = FeedForward(config.hidden_dims[i], "gelu", kernel_initializer=TRUNCATED)
    rate = growing_rates(config.stochastic_depth, len(config.num_heads))[i]
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    return block_of(part, f"block_{i}", attention=attention, feedforward=feedforward)


# The networks of the authors' files, with 0.86, 1.0, 1.3, 2.7 and 4.9 G multiply-adds per image. For C the
# search was limited to equal layers.
_C = ViTASConfig(stochastic_depth=0.1)
ViTAS.sizes = {
    "A": dataclasses.replace(
        _C,
        dim=154,
        num_heads=(12, 16, 6, 16, 16, 16, 16),
        key_dims=(8, 15, 16, 21, 24, 18, 30),
        hidden_dims=(1008, 576, 1296, 720, 1008, 1152, 1296),
    ),
    "B": dataclasses.replace(
        _C,
        dim=192,
        num_heads=(16, 16, 16, 12, 12, 12, 16, 6),
        key_dims=(6, 9, 9, 32, 28, 24, 9, 48),
        hidden_dims=(864, 576, 1008, 864, 720, 576, 1296, 864),
    ),
    "C": _C,
    "E": dataclasses.replace(
        _C,
        dim=346,
        num_heads=(16, 16, 16, 6, 3, 12, 6, 12, 12, 6, 12),
        key_dims=(15, 21, 18, 48, 64, 36, 72, 20, 40, 32, 32),
        hidden_dims=(720, 864, 1008, 1008, 720, 1296, 1152, 144, 864, 1008, 1296),
    ),
    "F": dataclasses.replace(
        _C,
        dim=307,
        num_heads=(16,) * 13,
        key_dims=(18, 6, 36, 24, 42, 30, 54, 30, 48, 42, 42, 30, 36),
        hidden_dims=(1728, 2304, 864, 2016, 864, 1440, 2304, 2016, 864, 576, 2016, 2304, 2304),
    ),
}
