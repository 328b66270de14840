"""The discrete autoencoder of DALL-E (Ramesh et al. 2021, "Zero-Shot Text-to-Image Generation", appendix A):
pictures become a grid of codes, and codes pictures.

Residual convolutions turn an image into logits over the codes, of a square of 8 x 8 pixels each; the decoder
reads the codes and gives, for each pixel, the mean and the logarithm of the scale of a logit-Laplace
distribution. `heads.LogitLaplace` is its loss; the divergence from the uniform distribution and the
temperature of the codes follow the paper's schedules.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Depth, Length, Positive, Refusal, Size
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.quantizer import GumbelSoftmax
from keras_tfm.models.pictures.codec import ImageCodec
from keras_tfm.models.vision.images import ImageConfig, Side

FACTORS = (1, 2, 4, 8)  # the widths of the groups of blocks, times `dim`
SCALE, OFFSET = 0.8, 0.1  # pixels in [0, 1] become ones in [0.1, 0.9], whose logits are bounded


@dataclasses.dataclass(frozen=True)
class DiscreteVAEConfig(ImageConfig):
    """The sizes of a `DiscreteVAE`; the defaults are DALL-E's.

    Args:
        dim: the width of the first group of the encoder; it doubles with each of the four.
        num_blocks: the residual blocks of a group.
        code_dim: the width to which the decoder embeds a code.
        least_temperature: the temperature of the codes falls from 1 to it, by a cosine of the steps.
        temperature_steps: in how many steps.
        divergence: the final weight of the divergence from the uniform distribution, a mean over codes, where
            the loss of pixels is a mean over pixels and channels.
        divergence_steps: in how many steps it rises from 0.
    """

    image_size: Side | tuple[Side, Side] = 256
    dim: Size = 256
    num_blocks: Depth = 2
    num_codes: Size = 8192
    code_dim: Size = 128
    least_temperature: Positive = 1 / 16
    temperature_steps: Length = 150_000
    divergence: Annotated[float, Between(0)] = 6.6 / 192
    divergence_steps: Length = 5_000

    def __post_init__(self):
        super().__post_init__()
        if any(side % 8 for side in height_and_width(self.image_size, "image_size")):
            raise Refusal("image_size", "a multiple of 8", self.image_size)


class DiscreteVAE(ImageCodec):
    """DALL-E's autoencoder; see `ImageCodec`. Images are from 0 to 1.

    A second output, `distributions` (B, H, W, 2 C), has the means of logits, then the logarithms of scales,
    for `heads.LogitLaplace`. The output `images` is made of the means, and clipped to [0, 1].

    >>> model = keras_tfm.models.DiscreteVAE.from_size("tiny")
    >>> codes = model.encode(np.zeros((1, 32, 32, 3)))
    >>> codes.shape, model.decode(codes).shape
    (TensorShape([1, 4, 4]), TensorShape([1, 32, 32, 3]))
    """

    config_class = DiscreteVAEConfig

    def __init__(self, config: DiscreteVAEConfig, name: str = "discrete_vae", **kwargs: Any) -> None:
        schedules = keras.optimizers.schedules
        least, weight = config.least_temperature, config.divergence
        quantizer = GumbelSoftmax(
            schedules.CosineDecay(1.0, config.temperature_steps, alpha=least),
            schedules.PolynomialDecay(0.0, config.divergence_steps, weight) if weight else 0.0,
            name="quantizer",
        )
        super().__init__(config, encoder_of(config), quantizer, decoder_of(config), name=name, **kwargs)

    def outputs_of(self, x):
        means, _ = ops.split(x, 2, axis=-1)  # (B, H, W, C)
        return {"images": ops.clip((ops.sigmoid(means) - OFFSET) / SCALE, 0, 1), "distributions": x}


def encoder_of(config):
    """The layers from images to logits."""
    layers = [
        keras.layers.Rescaling(SCALE, OFFSET, name="encoder_range"),
        Convolution(config.dim, 7, name="encoder_input"),
    ]
    width = config.dim
    for group, factor in enumerate(FACTORS):
        for i in range(config.num_blocks):
            new = config.dim * factor
            layers.append(_block(config, f"encoder_group_{group}_block_{i}", width, new, (3, 3, 3, 1)))
            width = new
        if group < len(FACTORS) - 1:
            layers.append(keras.layers.MaxPooling2D(name=f"encoder_group_{group}_halved"))
    return [*layers, _last(config.num_codes, "encoder_output")]


def decoder_of(config):
    """The layers from codes to distributions of pixels."""
    layers = [Convolution(config.code_dim, 1, name="decoder_input")]
    width = config.code_dim
    for group, factor in enumerate(reversed(FACTORS)):
        for i in range(config.num_blocks):
            new = config.dim * factor
            layers.append(_block(config, f"decoder_group_{group}_block_{i}", width, new, (1, 3, 3, 3)))
            width = new
        if group < len(FACTORS) - 1:
            layers.append(keras.layers.UpSampling2D(name=f"decoder_group_{group}_doubled"))
    return [*layers, _last(2 * config.num_channels, "decoder_output")]


def _block(config, name, width, filters, kernels):
    """Four convolutions of a quarter of the width, scaled down the more blocks there are, and a shortcut."""
    *hidden, last = kernels
    num_blocks = len(FACTORS) * config.num_blocks
    branch = Chain(
        [
            keras.layers.Activation("relu"),
            *(Convolution(max(filters // 4, 1), size, activation="relu") for size in hidden),
            Convolution(filters, last),
            keras.layers.Rescaling(num_blocks**-2),
        ]
    )
    return ShortcutBlock(branch, None if width == filters else Convolution(filters, 1), name=name)


def _last(filters, name):
    return Chain([keras.layers.Activation("relu"), Convolution(filters, 1)], name=name)


# dall-e: the released model, of 2 blocks a group as its code has it.
DiscreteVAE.sizes = {
    "tiny": DiscreteVAEConfig(
        32, dim=16, num_blocks=1, num_codes=64, code_dim=16, temperature_steps=1_000, divergence_steps=500
    ),
    "dall-e": DiscreteVAEConfig(),
}
