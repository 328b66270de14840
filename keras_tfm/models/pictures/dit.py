"""DiT (Peebles and Xie 2023, "Scalable Diffusion Models with Transformers"): a ViT that predicts the noise of
images, or of maps of an autoencoder, by blocks that the time and the class modulate.

    noisy images --> patches + sines --> blocks --> norm --> projection --> patches --> predictions
                                           ^         ^
    time, class ---> vector ---------------+---------+

The variant "adaLN-Zero" alone: at first each block is the identity, and all predictions are 0. Deviates from
the paper in that images of any number of channels are predicted without a variance unless `output_channels`
says so.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Config, Depth, Heads, Positive, Size, Whole
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import GridSines
from keras_tfm.layers.modulated_block import ModulatedBlock
from keras_tfm.layers.normalization import ModulatedNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.layers.patches import combine_patches, height_and_width, patch_grid
from keras_tfm.models.base import Trace
from keras_tfm.models.pictures.times import NoisePredictor, SinesOfTimes
from keras_tfm.models.vision.images import Side, image_input

TIME_DIM = 256  # sines and cosines of a time


@dataclasses.dataclass(frozen=True)
class DiTConfig(Config):
    """The sizes of a `DiT`; the defaults are DiT-XL/2's for images of 256 x 256, whose maps are 32 x 32.

    Args:
        output_channels: by default as many as the images have; twice as many for a learned variance.
        num_classes: 0 for none. One more stands for no class.
    """

    image_size: Side | tuple[Side, Side] = 32
    patch_size: Side | tuple[Side, Side] = 2
    num_channels: Size = 4
    output_channels: Size | None = None
    num_layers: Depth = 28
    dim: Size = 1152
    num_heads: Heads = 16
    intermediate_dim: Size = 4608
    num_classes: Whole = 1000
    epsilon: Positive = 1e-6


class DiT(NoisePredictor):
    """Noisy images and times in, predictions out: of the noise, or of what it was trained for.

    Inputs: `images` (B, H, W, C), floating-point, `timesteps` (B,), floating-point, and with `num_classes`
    `classes` (B,), whose default is no class, `num_classes`. Output: `prediction` (B, H, W, C').

    >>> model = keras_tfm.models.DiT.from_size("tiny", num_classes=10)
    >>> inputs = {"images": np.zeros((1, 32, 32, 3)), "timesteps": np.array([7.0]), "classes": np.array([3])}
    >>> model(inputs)["prediction"].shape
    TensorShape([1, 32, 32, 3])
    """

    config_class = DiTConfig

    def __init__(self, config: DiTConfig, name: str = "dit", **kwargs: Any) -> None:
        images = image_input(config)
        inputs = {"images": images, "timesteps": keras.Input((), name="timesteps")}
        condition = self.condition(config, inputs, SinesOfTimes(TIME_DIM, name="sines"), config.dim)
        condition = keras.layers.Activation("silu", name="condition")(condition)  # (B, D)
        grid = patch_grid(height_and_width(config.image_size, "image_size"), config.patch_size)
        encoder = PatchEncoder(config.dim, config.patch_size, False, GridSines(grid), name="patch_encoder")
        x = encoder(images)  # (B, N, D)
        encoder.position.trainable = False
        trace = Trace()
        blocks = [_block(config, f"block_{i}") for i in range(config.num_layers)]
        x = trace.run("denoiser", blocks, x, w=condition)
        x = ModulatedNormalization(config.epsilon, "zeros", name="norm")(x, condition)
        height, width = height_and_width(config.patch_size)
        channels = config.output_channels or config.num_channels
        x = Dense(height * width * channels, kernel_initializer="zeros", name="pixels")(x)
        outputs = {"prediction": combine_patches(x, config.patch_size, config.image_size)}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def _block(config, name):
    attention = MultiHeadAttention(config.num_heads)
    feedforward = FeedForward(config.intermediate_dim, "gelu_tanh")
    return ModulatedBlock(attention, feedforward, config.epsilon, is_gated=True, name=name)


# Peebles and Xie 2023, table 1, with a learned variance. The number after the slash is the side of a patch,
# of maps of 32 x 32 with 4 channels. tiny is this package's own, for images of about 32 x 32.
_SIZES = {
    "S": DiTConfig(output_channels=8, num_layers=12, dim=384, num_heads=6, intermediate_dim=1536),
    "B": DiTConfig(output_channels=8, num_layers=12, dim=768, num_heads=12, intermediate_dim=3072),
    "L": DiTConfig(output_channels=8, num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
    "XL": DiTConfig(output_channels=8),
}
DiT.sizes = {
    "tiny": DiTConfig(
        patch_size=4,
        num_channels=3,
        num_layers=6,
        dim=128,
        num_heads=4,
        intermediate_dim=512,
        num_classes=0,
    ),
    **{
        f"{name}/{side}": dataclasses.replace(config, patch_size=side)
        for name, config in _SIZES.items()
        for side in (2, 4, 8)
    },
}
