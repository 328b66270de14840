"""VQGAN (Esser et al. 2021, "Taming Transformers for High-Resolution Image Synthesis", section 3.1): pictures
become a grid of codes, and codes pictures.

Residual convolutions and, on small maps, attention turn an image into a small map, whose vectors are replaced
by their nearest codes; their mirror image makes an image of the codes. The authors train it with a
perceptual loss and a discriminator too, which are no part of the model. The loss of the codes is weighted as
in the paper, where the authors' first code had its two terms exchanged. The second stage, which writes codes,
is a `GPT2` whose prompt is a token of the class, with `heads.LanguageModel(gpt2, tied=False)`;
`generation.write_grid` writes larger pictures with it.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Count, Depth, Rate, Refusal, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.feedforward import silu
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.normalization import GroupNormalization, RMSNormalization
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.quantizer import VectorQuantizer
from keras_tfm.layers.residual_convolution import ResidualConvolution
from keras_tfm.models.base import check_stages
from keras_tfm.models.pictures.codec import ImageCodec
from keras_tfm.models.vision.images import ImageConfig, Side


@dataclasses.dataclass(frozen=True)
class VQGANConfig(ImageConfig):
    """The sizes of a `VQGAN`; the defaults are the published model's of 1,024 codes.

    Args:
        dim: the width of the first level; a level's is `dim` times its factor.
        factors: one for each level; each level but the first has half the size of the one before.
        attends: for each level whether its blocks are followed by attention.
        num_blocks: the blocks of a level of the encoder; the decoder has one more.
        latent_dim: the width of the map between convolutions and codes.
        code_dim: the width of a code.
        num_groups: of the group norms.
        commitment: the weight of the loss by which vectors approach their codes.
        dead_after: after so many steps without use a code is replaced; None for never, as in the paper.
        local_codes: whether a code is made of its own square of pixels alone, by an encoder whose kernels do
            not overlap, with norms of single cells and without attention: what is not there has no influence,
            so that codes are much easier to predict for a model that writes them, and more are needed.
    """

    image_size: Side | tuple[Side, Side] = 256
    dim: Size = 128
    factors: tuple[Size, ...] = (1, 1, 2, 2, 4)
    attends: tuple[bool, ...] = (False, False, False, False, True)
    num_blocks: Depth = 2
    latent_dim: Size = 256
    num_codes: Size = 1024
    code_dim: Size = 256
    num_groups: Size = 32
    dropout: Rate = 0.0
    commitment: float = 0.25
    dead_after: Count | None = None
    local_codes: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "factors", "attends")
        if self.dim % self.num_groups:
            raise Refusal("num_groups", f"a divisor of `dim`, {self.dim}", self.num_groups)
        if any(side % self.stride for side in height_and_width(self.image_size, "image_size")):
            raise Refusal("image_size", f"a multiple of {self.stride}", self.image_size)

    @property
    def stride(self):
        """The side of the square of pixels that has one code."""
        return 2 ** (len(self.factors) - 1)


class VQGAN(ImageCodec):
    """VQGAN's autoencoder; see `ImageCodec`. Images are from -1 to 1.

    >>> model = keras_tfm.models.VQGAN.from_size("tiny")
    >>> codes = model.encode(np.zeros((1, 32, 32, 3)))
    >>> codes.shape, model.decode(codes).shape
    (TensorShape([1, 8, 8]), TensorShape([1, 32, 32, 3]))
    """

    config_class = VQGANConfig
    value_range = (-1.0, 1.0)

    def __init__(self, config: VQGANConfig, name: str = "vqgan", **kwargs: Any) -> None:
        quantizer = VectorQuantizer(
            config.num_codes, config.commitment, dead_after=config.dead_after, name="quantizer"
        )
        super().__init__(config, encoder_of(config), quantizer, decoder_of(config), name=name, **kwargs)


def encoder_of(config):
    """The layers from images to vectors."""
    prefix, last, is_local = "encoder", len(config.factors) - 1, config.local_codes
    side, half = (1, 2) if is_local else (3, 3)  # of the kernels
    layers = [Convolution(config.dim, side, name=f"{prefix}_input")]
    for level, factor in enumerate(config.factors):
        attends = config.attends[level] and not is_local
        layers += _level(config, f"{prefix}_level_{level}", factor, config.num_blocks, attends, is_local)
        if level < last:
            # After the map alone, as Keras pads: the sides are even.
            down = Convolution(
                config.dim * factor, half, stride=2, padding="same", name=f"{prefix}_level_{level}_halved"
            )
            layers.append(down)
    layers += _middle(config, prefix, is_local)
    layers.append(_last(config, prefix, config.latent_dim, is_local))
    return [*layers, Convolution(config.code_dim, 1, name=f"{prefix}_projection")]


def decoder_of(config):
    """The layers from codes to images."""
    prefix, last = "decoder", len(config.factors) - 1
    layers = [
        Convolution(config.latent_dim, 1, name=f"{prefix}_projection"),
        Convolution(config.dim * config.factors[-1], name=f"{prefix}_input"),
        *_middle(config, prefix),
    ]
    for level in reversed(range(last + 1)):
        factor = config.factors[level]
        layers += _level(
            config, f"{prefix}_level_{level}", factor, config.num_blocks + 1, config.attends[level]
        )
        if level:
            larger = [keras.layers.UpSampling2D(), Convolution(config.dim * factor)]
            layers.append(Chain(larger, name=f"{prefix}_level_{level}_doubled"))
    return [*layers, _last(config, prefix, config.num_channels)]


def _norm(config, is_local=False):
    if is_local:
        return RMSNormalization()
    return GroupNormalization(config.num_groups, epsilon=1e-6)


def _block(config, name, factor, is_local=False):
    norm, side = _norm(config, is_local), 1 if is_local else 3
    return ResidualConvolution(config.dim * factor, norm, config.dropout, kernel_size=side, name=name)


def _attention(config, name):
    return Block(
        {"attention": Residual(MapAttention(MultiHeadAttention(1)), _norm(config), "input")}, name=name
    )


def _level(config, prefix, factor, count, attends, is_local=False):
    for i in range(count):
        yield _block(config, f"{prefix}_block_{i}", factor, is_local)
        if attends:
            yield _attention(config, f"{prefix}_attention_{i}")


def _middle(config, prefix, is_local=False):
    """Two residual blocks, around attention unless cells are to be apart, on the smallest map."""
    factor = config.factors[-1]
    blocks = [_block(config, f"{prefix}_middle_block_{i}", factor, is_local) for i in range(2)]
    return blocks if is_local else [blocks[0], _attention(config, f"{prefix}_middle_attention"), blocks[1]]


def _last(config, prefix, filters, is_local=False):
    parts = [
        _norm(config, is_local),
        keras.layers.Activation(silu),
        Convolution(filters, 1 if is_local else 3),
    ]
    return Chain(parts, name=f"{prefix}_output")


# f16-*: the released models of ImageNet, of 16 x 16 pixels per code (Esser et al. 2021, section 4).
VQGAN.sizes = {
    "tiny": VQGANConfig(
        32,
        dim=16,
        factors=(1, 2, 2),
        attends=(False, False, True),
        num_blocks=1,
        latent_dim=16,
        num_codes=64,
        code_dim=8,
        num_groups=4,
    ),
    "f16-1024": VQGANConfig(),
    "f16-16384": VQGANConfig(num_codes=16_384),
}
