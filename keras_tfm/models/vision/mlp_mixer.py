"""MLP-Mixer (Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision").

Patches, then blocks of two feed-forward layers, one along the patches and one along the features, without
attention and without positions. Deviates from the authors' code, which approximates GELU with tanh: here it
is exact, as in timm.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.mixing import TokenMixing
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.models.base import ConfiguredModel, Trace, growing_rates
from keras_tfm.models.vision.images import PatchedImageConfig, Side, image_input

INITIALIZER = keras.initializers.LecunNormal()  # as in the authors' code


@dataclasses.dataclass(frozen=True)
class MLPMixerConfig(PatchedImageConfig):
    """The sizes of an `MLPMixer`.

    Args:
        tokens_dim: the hidden width of the layers along the patches.
        channels_dim: the hidden width of the layers along the features.
    """

    patch_size: Side = 16
    num_layers: Depth = 12
    dim: Size = 768
    tokens_dim: Size = 384
    channels_dim: Size = 3072
    activation: str = "gelu"
    epsilon: Rate = 1e-6


class MLPMixer(ConfiguredModel):
    """MLP-Mixer: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N, D), the patches row by
    row, and `pooled_output` (B, D), their mean.

    >>> sizes = dict(image_size=32, num_layers=1, dim=16, tokens_dim=8, channels_dim=32)
    >>> model = keras_tfm.models.MLPMixer.from_size("S/16", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 4, 16])
    """

    config_class = MLPMixerConfig

    def __init__(self, config: MLPMixerConfig, name: str = "mlp_mixer", **kwargs: Any) -> None:
        images = image_input(config)
        x = flatten_map(PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images))
        rates = growing_rates(config.stochastic_depth, config.num_layers)
        blocks = [_block(config, rate, f"block_{i}") for i, rate in enumerate(rates)]
        trace = Trace()
        x = trace.run("encoder", blocks, x)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


def _block(config, rate, name):
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    tokens, channels = (
        FeedForward(width, config.activation, kernel_initializer=INITIALIZER)
        for width in (config.tokens_dim, config.channels_dim)
    )
    return block_of(part, name, attention=TokenMixing(tokens), feedforward=channels)


# The architectures of Tolstikhin et al. 2021, for images of 224 x 224. The number after the slash is the side
# of a patch.
_S = MLPMixerConfig(num_layers=8, dim=512, tokens_dim=256, channels_dim=2048)
_B = MLPMixerConfig()
_L = MLPMixerConfig(num_layers=24, dim=1024, tokens_dim=512, channels_dim=4096)
_H = MLPMixerConfig(num_layers=32, dim=1280, tokens_dim=640, channels_dim=5120)
MLPMixer.sizes = {
    "S/32": dataclasses.replace(_S, patch_size=32),
    "S/16": _S,
    "B/32": dataclasses.replace(_B, patch_size=32),
    "B/16": _B,
    "L/32": dataclasses.replace(_L, patch_size=32),
    "L/16": _L,
    "H/14": dataclasses.replace(_H, patch_size=14),
}
