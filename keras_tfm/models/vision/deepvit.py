"""DeepViT (Zhou et al. 2021, "DeepViT: Towards Deeper Vision Transformer").

A ViT whose attention weights are mixed between the heads and normalised ("re-attention", eq. 3), so that
deep blocks do not all attend alike. As in the authors' code a row of mixed weights need not sum to 1, and
the two larger models have a convolutional stem and scaled residuals.
"""

import dataclasses
from typing import Annotated

import keras

from keras_tfm.configs import Between, Whole
from keras_tfm.layers.attention.on_scores import HeadMixing
from keras_tfm.layers.blocks import Block
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.patches import PatchEmbedding, height_and_width
from keras_tfm.models.vision.variant import (
    Variant,
    VariantConfig,
    attention_of,
    feedforward_of,
    residual_of,
)

STEM_WIDTH = 64


@dataclasses.dataclass(frozen=True)
class DeepViTConfig(VariantConfig):
    """The sizes of a `DeepViT`.

    Args:
        num_mixing_layers: how many blocks, the last ones, mix their heads.
        scale_weights: whether the mixed weights are divided by the square root of a head's width.
        branch_scale: s in x + branch(norm(s x)) / s.
        convolutional_stem: whether two convolutions, which halve the sides, come before the patches.
    """

    num_mixing_layers: Whole = 12
    scale_weights: bool = False
    branch_scale: Annotated[float, Between(0.01, 64)] = 1.0
    convolutional_stem: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.num_mixing_layers > self.num_layers:
            raise ValueError(
                f"`num_mixing_layers` must be at most `num_layers`, {self.num_layers}; it is "
                f"{self.num_mixing_layers}."
            )
        if self.convolutional_stem and any(side % 2 for side in height_and_width(self.patch_size)):
            raise ValueError(f"`patch_size` must be even with `convolutional_stem`; it is {self.patch_size}.")


class DeepViT(Variant):
    """A `ViT` with re-attention: `sequence_output` (B, N + 1, D), `pooled_output` (B, D).

    >>> sizes = dict(image_size=32, num_layers=1, num_mixing_layers=1, dim=16, num_heads=2)
    >>> model = keras_tfm.models.DeepViT.from_size("16B", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = DeepViTConfig

    @classmethod
    def patches(cls, config, images):
        if not config.convolutional_stem:
            return super().patches(config, images)
        stem = [
            Convolution(STEM_WIDTH, size, stride, norm=BatchNormalization(), activation="relu")
            for size, stride in ((7, 2), (3, 1))
        ]
        patch_size = tuple(side // 2 for side in height_and_width(config.patch_size))
        return PatchEmbedding(config.dim, patch_size, name="patch_embedding")(
            Chain(stem, name="stem")(images)
        )

    @classmethod
    def block(cls, config, index):
        is_mixing = index >= config.num_layers - config.num_mixing_layers
        attention = attention_of(config, on_weights=_mixing(config) if is_mixing else None)
        branches = {"attention": attention, "feedforward": feedforward_of(config)}
        parts = {name: _scaled(config, branch, index) for name, branch in branches.items()}
        return Block(parts, name=f"block_{index}")


def _mixing(config):
    scale = (config.dim // config.num_heads) ** -0.5 if config.scale_weights else 1.0
    return Chain([HeadMixing(BatchNormalization(axis=1)), keras.layers.Rescaling(scale)])


def _scaled(config, branch, index):
    """The residual x + branch(norm(s x)) / s with s = `branch_scale`; norm(s x) equals norm(x) with epsilon
    / s².
    """
    branch = Chain([branch, keras.layers.Rescaling(1 / config.branch_scale)])
    epsilon = config.epsilon / config.branch_scale**2
    return residual_of(dataclasses.replace(config, epsilon=epsilon), branch, index)


# Zhou et al. 2021 and the authors' code: 16, 24 and 32 blocks of the same sizes, then Small and Large.
_16B = DeepViTConfig(dim=384, intermediate_dim=1152, num_layers=16, num_mixing_layers=16)
_S = dataclasses.replace(
    _16B,
    dim=396,
    intermediate_dim=1188,
    num_mixing_layers=5,
    scale_weights=True,
    branch_scale=0.5,
    convolutional_stem=True,
)
DeepViT.sizes = {
    "16B": _16B,
    "24B": dataclasses.replace(_16B, num_layers=24, num_mixing_layers=24),
    "32B": dataclasses.replace(_16B, num_layers=32, num_mixing_layers=32),
    "S": _S,
    "L": dataclasses.replace(_S, dim=420, intermediate_dim=1260, num_layers=32, num_mixing_layers=12),
}
