"""LocalViT (Li et al. 2021, "LocalViT: Bringing Locality to Vision Transformers").

A ViT whose feed-forward layer is an inverted residual on the grid of patches: a depthwise convolution and
squeeze-and-excitation between the two linear layers, with batch normalisation after each layer. As in the
authors' code its input is not normalised, stochastic depth applies to attention alone, and the class token
skips it.
"""

import dataclasses

from keras import ops

from keras_tfm.configs import Size
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.grid import OnGrid
from keras_tfm.layers.patches import height_and_width, patch_grid
from keras_tfm.models.vision.variant import Variant, VariantConfig, attention_of, residual_of


@dataclasses.dataclass(frozen=True)
class LocalViTConfig(VariantConfig):
    """The sizes of a `LocalViT`; squeeze-and-excitation has `intermediate_dim` / `reduction` features, None
    for none.
    """

    activation: str = "hard_swish"
    reduction: Size | None = 4

    def __post_init__(self):
        super().__post_init__()
        if self.reduction is not None and self.reduction > self.intermediate_dim:
            raise ValueError(
                f"`reduction` must be at most `intermediate_dim`, {self.intermediate_dim}, or None; it is "
                f"{self.reduction}."
            )


class LocalViT(Variant):
    """A `ViT` with local feed-forward layers: `sequence_output` (B, N + 1, D), `pooled_output` (B, D).

    >>> sizes = dict(image_size=32, num_layers=1, dim=16, intermediate_dim=32, reduction=4)
    >>> model = keras_tfm.models.LocalViT.from_size("T", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = LocalViTConfig

    @classmethod
    def block(cls, config, index):
        attention = residual_of(config, attention_of(config), index)
        grid = patch_grid(height_and_width(config.image_size), config.patch_size)
        feedforward = OnGrid(Residual(_inverted(config)), grid, prefix=1)
        return Block({"attention": attention, "feedforward": feedforward}, name=f"block_{index}")


def _inverted(config):
    """A wide hidden map between two narrow ones (Sandler et al. 2018, "MobileNetV2")."""

    def convolution(filters, size, activation=None, groups=1):
        norm = BatchNormalization()
        return Convolution(filters, size, groups=groups, norm=norm, activation=activation)

    hidden, layers = config.intermediate_dim, []
    if config.reduction is not None:
        layers = [SqueezeExcitation(config.reduction, name="excitation")]
    return Chain(
        [
            convolution(hidden, 1, config.activation),
            convolution(hidden, 3, config.activation, groups=hidden),
            *layers,
            Convolution(config.dim, 1, norm=BatchNormalization(), name="output"),
        ]
    )


class SqueezeExcitation(SameShape):
    """Multiplies each channel of a map by a number from 0 to 1, computed from the means of all channels.

    Two dense layers compute it, of C / `reduction` and of C features, with ReLU and a piecewise linear
    sigmoid: (B, height, width, C) in and out. Hu et al. 2018, "Squeeze-and-Excitation Networks".
    """

    def __init__(self, reduction, **kwargs):
        super().__init__(**kwargs)
        if reduction < 1:
            raise ValueError(f"`reduction` must be at least 1; it is {reduction}.")
        self.reduction = reduction

    def build(self, x_shape):
        channels = x_shape[-1]
        if channels < self.reduction:
            raise ValueError(f"`reduction` must be at most the {channels} channels; it is {self.reduction}.")
        self.hidden = Dense(channels // self.reduction, activation="relu", name="hidden")
        self.gate = Dense(channels, activation="hard_sigmoid", name="gate")
        self.hidden.build((x_shape[0], channels))
        self.gate.build((x_shape[0], channels // self.reduction))

    def call(self, x):
        """(B, height, width, C) -> (B, height, width, C)."""
        gate = self.gate(self.hidden(ops.mean(x, axis=(1, 2))))  # (B, C)
        return x * gate[:, None, None]


# Li et al. 2021 and the authors' code. Squeeze-and-excitation has 4 features, and 192 in T-SE4.
_T = LocalViTConfig(dim=192, num_heads=4, intermediate_dim=768, reduction=192)
LocalViT.sizes = {
    "T": _T,
    "T-SE4": dataclasses.replace(_T, reduction=4),
    "S": LocalViTConfig(dim=384, num_heads=8, intermediate_dim=1536, reduction=384),
}
