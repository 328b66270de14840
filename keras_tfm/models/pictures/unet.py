"""DiffusionUNet (Ho et al. 2020, "Denoising Diffusion Probabilistic Models"), which predicts the noise of
images; with texts as conditions the network of Latent Diffusion (Rombach et al. 2022).

A level is residual blocks of one width; what each block makes on the way down is joined on the way up.

    images, 1/1 --> blocks --> blocks --> predictions
                      |  \\_____  ^
             1/2    blocks --> blocks          all know the time, and the class if there are any
                      |  \\_____  ^
             1/4    blocks --> blocks          some attend to the map and to the context

The library diffusers, whose names of the parts differ, has these weights too.
"""

import dataclasses
from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Config, Positive, Rate, Refusal, Size, Whole
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Block, Residual, block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import MapAttention, to_map
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.layers.patches import flatten_map, height_and_width
from keras_tfm.layers.residual_convolution import ResidualConvolution
from keras_tfm.models.base import Trace, check_stages
from keras_tfm.models.pictures.times import NoisePredictor, SinesOfTimes
from keras_tfm.models.vision.images import Side, image_input


@dataclasses.dataclass(frozen=True)
class DiffusionUNetConfig(Config):
    """The sizes of a `DiffusionUNet`.

    Args:
        image_size: the side of the images or their (height, width), multiples of 2^(levels - 1).
        output_channels: by default as many as the images have; twice as many for a learned variance.
        dims: the width of each level, multiples of `num_groups`.
        num_layers: residual blocks per level on the way down; on the way up there is one more.
        attends: for each level, whether attention follows each of its blocks. Between the ways it does.
        num_classes: 0 for none. One more stands for no class.
        context_dim: the width of a context to attend to, in Transformer blocks then; None for none.
        sines: "cosines first" of a time, or "sines first" with frequencies that reach 1/10,000.
        pads: the zeros where a level is halved: on "both" sides of a map, or "after" it.
    """

    image_size: Side | tuple[Side, Side] = 32
    num_channels: Size = 3
    output_channels: Size | None = None
    dims: tuple[Size, ...] = (128, 256, 256, 256)
    num_layers: Size = 2
    attends: tuple[bool, ...] = (False, True, False, False)
    num_heads: Size = 1
    num_groups: Size = 32
    num_classes: Whole = 0
    context_dim: Size | None = None
    dropout: Rate = 0.0
    epsilon: Positive = 1e-5
    sines: Literal["cosines first", "sines first"] = "cosines first"
    pads: Literal["both", "after"] = "both"

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "attends")
        multiple = 2 ** (len(self.dims) - 1)
        sides = height_and_width(self.image_size, "image_size")
        if any(side % multiple for side in sides):
            raise Refusal("image_size", f"multiples of {multiple}", " x ".join(map(str, sides)))
        for dim, attends in zip(self.dims, (*self.attends[:-1], True), strict=True):
            if dim % self.num_groups or (attends and dim % self.num_heads):
                numbers = f"{self.num_groups} groups, and of {self.num_heads} heads where they attend"
                raise Refusal("dims", f"multiples of {numbers}", self.dims)


class DiffusionUNet(NoisePredictor):
    """Noisy images and times in, predictions out: of the noise, or of what it was trained for.

    Inputs: `images` (B, H, W, C), floating-point, `timesteps` (B,), floating-point, with `num_classes`
    `classes` (B,), whose default is no class, `num_classes`; with a `context_dim` `context` (B, S, Dc), for
    example a text encoder's hidden states. Output: `prediction` (B, H, W, C').

    >>> sizes = dict(image_size=8, dims=[8, 8], attends=[False, True], num_groups=4, num_layers=1)
    >>> model = keras_tfm.models.DiffusionUNet.from_size("CIFAR-10", **sizes)
    >>> model({"images": np.zeros((1, 8, 8, 3)), "timesteps": np.array([7.0])})["prediction"].shape
    TensorShape([1, 8, 8, 3])
    """

    config_class = DiffusionUNetConfig

    def __init__(self, config: DiffusionUNetConfig, name: str = "diffusion_unet", **kwargs: Any) -> None:
        images, width = image_input(config), 4 * config.dims[0]
        inputs = {"images": images, "timesteps": keras.Input((), name="timesteps")}
        is_original = config.sines == "sines first"
        sines = SinesOfTimes(config.dims[0], is_original, is_original, name="sines")
        condition = self.condition(config, inputs, sines, width)  # (B, width)
        if config.context_dim is not None:
            inputs["context"] = keras.Input((None, config.context_dim), name="context")
        context = inputs.get("context")
        trace = Trace()

        def run(stack, x, dim, i, attends):
            """Residual block `i` of a stack and, where it `attends`, attention."""
            x = trace.run(stack, [_block(config, dim, f"{stack}_block_{i}")], x, condition=condition)
            if attends:
                tensors = {} if context is None else {"attention": {"context": context}}
                x = trace.run(stack, [_attention(config, f"{stack}_attention_{i}")], x, **tensors)
            return x

        x = Convolution(config.dims[0], name="convolution_in")(images)
        skips = [x]
        levels = list(enumerate(zip(config.dims, config.attends, strict=True)))
        padding: Any = "same" if config.pads == "after" else None
        for level, (dim, attends) in levels:
            for i in range(config.num_layers):
                x = run(f"down_{level}", x, dim, i, attends)
                skips.append(x)
            if level < len(levels) - 1:
                x = Convolution(dim, 3, 2, padding, name=f"down_{level}_half")(x)
                skips.append(x)
        for i in range(2):
            x = run("middle", x, config.dims[-1], i, attends=i == 0)
        for level, (dim, attends) in reversed(levels):
            for i in range(config.num_layers + 1):
                x = run(f"up_{level}", ops.concatenate([x, skips.pop()], axis=-1), dim, i, attends)
            if level:
                double = [keras.layers.UpSampling2D(2), Convolution(dim)]
                x = Chain(double, name=f"up_{level}_double")(x)
        x = keras.layers.Activation("silu", name="activation")(_norm(config, config.epsilon, "norm")(x))
        channels = config.output_channels or config.num_channels
        outputs = {"prediction": Convolution(channels, name="convolution_out")(x)}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def _norm(config, epsilon, name=None):
    return GroupNormalization(config.num_groups, epsilon=epsilon, name=name)


def _block(config, dim, name):
    return ResidualConvolution(dim, _norm(config, config.epsilon), config.dropout, name=name)


def _attention(config, name):
    """Attention of a map, or a Transformer block that also attends to a context, in a residual."""
    epsilon, branch = config.epsilon, MapAttention(MultiHeadAttention(config.num_heads))
    if config.context_dim is not None:
        epsilon, branch = 1e-6, MapTransformer(config.num_heads)
    return Block({"attention": Residual(branch, _norm(config, epsilon), normalize="input")}, name=name)


class MapTransformer(SameShape):
    """A Transformer block on the cells of a map, which attends to a context, between two linear layers: (B,
    height, width, D) and (B, S, Dc) -> (B, height, width, D) (Rombach et al. 2022, appendix E.2.1).
    """

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, x_shape, context_shape=None):
        batch_size, height, width, dim = x_shape
        sequence = (batch_size, height * width, dim)
        part = residuals(normalize_first=True, epsilon=1e-5)
        attention, context = (MultiHeadAttention(self.num_heads, use_bias=()) for _ in range(2))
        feedforward = FeedForward(4 * dim, "gelu", gated=True)
        branches = {"attention": attention, "context_attention": context, "feedforward": feedforward}
        self.block = block_of(part, "block", **branches)
        self.block.build(sequence, {"context_attention": {"context": context_shape}})
        self.input_layer, self.output_layer = Dense(dim, name="input"), Dense(dim, name="output")
        for layer in (self.input_layer, self.output_layer):
            layer.build(sequence)

    def call(self, x, context, training=None):
        """Maps of cells, each of which attends to all cells, then to the `context`."""
        y = self.input_layer(flatten_map(x))  # (B, height width, D)
        y = self.block(y, context_attention={"context": context}, training=training)
        return to_map(self.output_layer(y), x.shape[1:3])


# Ho et al. 2020, appendix B: 35.7 and 114 million weights, 114 million for CelebA-HQ and LSUN; Rombach et al.
# 2022 as it was published under the name Stable Diffusion 1.
_ORIGINAL: Any = {"epsilon": 1e-6, "sines": "sines first", "pads": "after"}
DiffusionUNet.sizes = {
    "tiny": DiffusionUNetConfig(dims=(32, 64), attends=(False, True), num_layers=1, num_groups=8),
    "CIFAR-10": DiffusionUNetConfig(dropout=0.1, **_ORIGINAL),
    "256": DiffusionUNetConfig(
        256, dims=(128, 128, 256, 256, 512, 512), attends=(False,) * 4 + (True, False), **_ORIGINAL
    ),
    "stable-diffusion-1": DiffusionUNetConfig(
        64,
        num_channels=4,
        dims=(320, 640, 1280, 1280),
        attends=(True, True, True, False),
        num_heads=8,
        context_dim=768,
    ),
}
