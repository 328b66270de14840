"""CMT (Guo et al. 2022, "CMT: Convolutional Neural Networks Meet Vision Transformers").

A pyramid whose blocks start with a depthwise convolution, attend to a map that another depthwise convolution
made smaller, and have a convolution inside their feed-forward layers. The blocks of a stage share a learned
bias for each pair of query and key, so a model is for images of one size.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, Residual, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages, rate_of
from keras_tfm.models.vision.images import ImageConfig, Rates, Ratio, Side, image_input

EPSILON = 1e-5  # of the norms after patches; `epsilon` of the configuration is for the blocks


@dataclasses.dataclass(frozen=True)
class CMTConfig(Rates, ImageConfig):
    """The sizes of a `CMT`; tuples have one entry per stage.

    Args:
        stem_dim: the width of the three convolutions before the first stage.
        mlp_ratios: the feed-forward width as a multiple of a stage's width.
        reductions: how many times smaller, on each side, the maps of keys are.
        output_dim: the width of the last projection.
    """

    stem_dim: Size = 32
    dims: tuple[Size, ...] = (64, 128, 256, 512)
    depths: tuple[Depth, ...] = (3, 3, 16, 3)
    num_heads: tuple[Size, ...] = (1, 2, 4, 8)
    mlp_ratios: tuple[Ratio, ...] = (4, 4, 4, 4)
    reductions: tuple[Side, ...] = (8, 4, 2, 1)
    output_dim: Size = 1280
    stochastic_depth: Rate = 0.0
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "depths", "num_heads", "mlp_ratios", "reductions")


class CMT(ConfiguredModel):
    """CMT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N, `output_dim`), the
    projected cells of the last stage's map row by row, and `pooled_output` (B, `output_dim`), their mean.
    `hidden_states` are maps (B, rows, columns, D): the input of the first block and the output of each.
    `maps` are the last map of each stage, for a detector or a decoder.

    >>> sizes = {"dims": (16,), "depths": (1,), "num_heads": (2,), "mlp_ratios": (2.0,), "reductions": (2,)}
    >>> model = keras_tfm.models.CMT.from_size("Ti", image_size=32, output_dim=8, **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["pooled_output"].shape
    TensorShape([1, 8])
    """

    config_class = CMTConfig

    def __init__(self, config: CMTConfig, name: str = "cmt", **kwargs: Any) -> None:
        images = image_input(config)
        x = _stem(config)(images)
        trace, maps = Trace(), []
        for stage, dim in enumerate(config.dims):
            x = PatchEmbedding(dim, 2, name=f"stage_{stage}_embedding")(x)
            x = LayerNormalization(EPSILON, name=f"stage_{stage}_embedding_norm")(x)
            heads, reduction = config.num_heads[stage], config.reductions[stage]
            bias = PositionTable(heads, reduction, name=f"stage_{stage}_position")(x)
            blocks = [_block(config, stage, i) for i in range(config.depths[stage])]
            x = trace.run("encoder", blocks, x, attention={"bias": bias})
            maps.append(x)
        options: dict[str, Any] = {"norm": BatchNormalization(), "activation": "silu", "use_bias": True}
        x = flatten_map(Convolution(config.output_dim, 1, **options, name="projection")(x))
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.maps = maps


class PositionTable(Layer):
    """A learned bias for each head, each cell of a map and each cell of the map `reduction` times smaller.

    Called on (B, height, width, D), of which only the shape matters, it returns (1, H, N, S).
    """

    def __init__(self, num_heads, reduction=1, **kwargs):
        super().__init__(**kwargs)
        for name, number in (("num_heads", num_heads), ("reduction", reduction)):
            if number < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {number}.")
        self.num_heads = num_heads
        self.reduction = reduction

    def build(self, x_shape):
        self.table = self.add_weight(self.compute_output_shape(x_shape)[1:], TRUNCATED.clone(), name="table")

    def call(self, x):
        return ops.cast(self.table[None], x.dtype)

    def compute_output_shape(self, x_shape):
        _, height, width, _ = x_shape
        num_keys = (height // self.reduction) * (width // self.reduction)
        return (1, self.num_heads, height * width, num_keys)


def _stem(config):
    """Three convolutions, each followed by GELU and a norm; the first halves the sides of the image."""
    layers = []
    for i in range(3):
        convolution = Convolution(config.stem_dim, stride=1 if i else 2, activation="gelu")
        layers += [convolution, BatchNormalization()]
    return Chain(layers, name="stem")


def _block(config, stage, index):
    dim, ratio = config.dims[stage], config.reductions[stage]
    rate = rate_of(config, stage, index)
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    attention = MultiHeadAttention(
        config.num_heads[stage], dropout=config.attention_dropout, kernel_initializer=TRUNCATED
    )
    reduction = None
    if ratio > 1:
        options = {"padding": 0, "groups": dim, "norm": BatchNormalization(), "use_bias": True}
        reduction = Convolution(dim, ratio, ratio, **options)
    parts = {
        "position": Residual(Convolution(dim, groups=dim)),  # the paper's local perception unit
        "attention": part(MapAttention(attention, reduction)),
        "feedforward": part(_feedforward(dim, int(config.mlp_ratios[stage] * dim))),
    }
    return Block(parts, name=f"stage_{stage}_block_{index}")


def _feedforward(dim, hidden):
    """The inverted residual feed-forward layer, equation 5."""
    layers = [
        *[keras.layers.Dense(hidden, "gelu"), BatchNormalization()],
        Residual(Convolution(hidden, groups=hidden)),
        *[keras.layers.Activation("gelu"), BatchNormalization()],
        *[keras.layers.Dense(dim), BatchNormalization()],
    ]
    return Chain(layers)


def _size(image_size, stem_dim, dim, depths, mlp_ratio=4.0):
    dims, ratios = tuple(dim * 2**stage for stage in range(4)), 4 * (mlp_ratio,)
    return CMTConfig(image_size, stem_dim=stem_dim, dims=dims, depths=depths, mlp_ratios=ratios)


# The architectures of Guo et al. 2022, with their image sizes. XS's ratio, 3.8 there, is 3.77 in their code.
# S has 26.26 M weights, by the depths and widths of the paper and in its authors' code; the paper's table 2
# says 25.1 M, which these do not give.
CMT.sizes = {
    "Ti": _size(160, 16, 46, (2, 2, 10, 2), 3.6),
    "XS": _size(192, 16, 52, (3, 3, 12, 3), 3.77),
    "S": _size(224, 32, 64, (3, 3, 16, 3)),
    "B": _size(256, 38, 76, (4, 4, 20, 4)),
}
