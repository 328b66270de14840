"""ImagenUNet (Saharia et al. 2022, "Photorealistic Text-to-Image Diffusion Models with Deep Language
Understanding"), the networks of a cascade: one makes small images of noise and a text, others larger ones.

    text  --> tokens ----------------------------------------> [attention of cells to a context]
          \\-> vector --\\
    log of signal / noise --> time vector --------------------> [scales and shifts in residual blocks]
    noisy image, small image --> levels down --> middle --> levels up --> prediction

As in the re-creation lucidrains/imagen-pytorch, whose parts and numbers these are; the authors' code and
weights are not published. The networks of super-resolution see the small image, resized, and its own noise.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Config, Length, Refusal, Size, Whole
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.chain import Parallel
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.grid import to_map
from keras_tfm.layers.normalization import LayerNormalization, RMSNormalization
from keras_tfm.layers.patches import (
    combine_patches,
    extract_patches,
    flatten_map,
    height_and_width,
    patch_grid,
)
from keras_tfm.layers.residual_convolution import ResidualConvolution
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages
from keras_tfm.models.pictures.imagen_layers import (
    EPSILON,
    ContextAttention,
    GlobalContext,
    LearnedSines,
    Resampler,
    TextTokens,
    TextVector,
    cosine_attention,
    feedforward,
    scaling_norm,
)
from keras_tfm.models.vision.images import Side, image_input
from keras_tfm.private.keras import change_value

MIDDLE = (8, 64)  # heads, and the width of a head, of the attention to the context between the two ways


@dataclasses.dataclass(frozen=True)
class ImagenUNetConfig(Config):
    """The sizes of an `ImagenUNet`.

    Args:
        dims: the width of each level, the first of which the first convolution makes.
        num_layers: residual blocks for each level, after one that may attend to the context.
        attends: for each level, whether its cells attend to each other and to the context.
        attends_to_context: for each level, whether its first block attends to the context.
        text_dim: the width of the text encoder's vectors.
        condition_dim: the width of the tokens in the context.
        num_latents: a text is resampled to this many tokens and four more; 0 keeps its own.
        kernels: the sides of the first convolution's kernels.
        is_super_resolution: whether there is a small image.
        halves_first: whether a level is halved before its blocks, and the image is only half as large inside.
        patch_size: the side of the patches that are the cells of the largest map, 1 for pixels (Hoogeboom et
            al. 2023, "Simple Diffusion", section 3.2).
    """

    image_size: Side | tuple[Side, Side] = 64
    num_channels: Size = 3
    dims: tuple[Size, ...] = (128, 256, 512, 1024)
    num_layers: tuple[Size, ...] = (1, 1, 1, 1)
    attends: tuple[bool, ...] = (False, True, True, True)
    attends_to_context: tuple[bool, ...] = (False, True, True, True)
    num_heads: Size = 8
    key_dim: Size = 64
    text_dim: Size = 768
    max_length: Length = 256
    condition_dim: Size = 128
    num_time_tokens: Size = 2
    num_sines: Size = 16
    num_latents: Whole = 32
    kernels: tuple[Size, ...] = (3, 7, 15)
    is_super_resolution: bool = False
    halves_first: bool = False
    patch_size: Size = 1

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "num_layers", "attends", "attends_to_context")
        multiple = self.patch_size * 2 ** (len(self.dims) - (0 if self.halves_first else 1))
        sides = height_and_width(self.image_size, "image_size")
        if any(side % multiple for side in sides):
            raise Refusal("image_size", f"multiples of {multiple}", " x ".join(map(str, sides)))
        if not self.kernels or any(side % 2 == 0 for side in self.kernels):
            raise Refusal("kernels", "odd sides, at least one", self.kernels)


class ImagenUNet(ConfiguredModel):
    """Noisy images, their signal-to-noise ratios and texts in, predictions out: of the noise, or of what it
    was trained for.

    Inputs: `images` (B, H, W, C), floating-point, `log_snr` (B,), the logarithm of the signal-to-noise ratio,
    `text` (B, S, Dt), a text encoder's hidden states, and `text_mask` (B, S), True at its tokens: a text
    without any is no text, for guidance. With `is_super_resolution` also `low_resolution` (B, H, W, C), the
    small image in the size of the large one, and `low_resolution_log_snr` (B,), of the noise in it. Output:
    `prediction` (B, H, W, C).

    >>> sizes = dict(image_size=8, dims=[4, 8], num_layers=[1, 1], attends=[False, True], text_dim=6)
    >>> sizes |= dict(attends_to_context=[False, True], kernels=[3], num_latents=0, max_length=5)
    >>> model = keras_tfm.models.ImagenUNet.from_size("base", **sizes)
    >>> inputs = {"images": np.zeros((1, 8, 8, 3)), "log_snr": np.zeros(1)}
    >>> inputs |= {"text": np.zeros((1, 4, 6)), "text_mask": np.ones((1, 4), bool)}
    >>> model(inputs)["prediction"].shape
    TensorShape([1, 8, 8, 3])
    """

    config_class = ImagenUNetConfig

    def __init__(self, config: ImagenUNetConfig, name: str = "imagen_unet", **kwargs: Any) -> None:
        images = image_input(config)
        x = _map_of_patches(config, images)
        inputs = {"images": images, "log_snr": keras.Input((), name="log_snr")}
        inputs["text"] = keras.Input((None, config.text_dim), name="text")
        inputs["text_mask"] = keras.Input((None,), dtype="bool", name="text_mask")
        time, time_tokens = _time(config, inputs["log_snr"], "time")
        if config.is_super_resolution:
            inputs["low_resolution"] = keras.Input(images.shape[1:], name="low_resolution")
            small = _map_of_patches(config, inputs["low_resolution"])
            inputs["low_resolution_log_snr"] = keras.Input((), name="low_resolution_log_snr")
            x = ops.concatenate([x, small], axis=-1)
            small_time, small_tokens = _time(config, inputs["low_resolution_log_snr"], "low_resolution_time")
            time = time + small_time
            time_tokens = ops.concatenate([time_tokens, small_tokens], axis=1)
        tokens = TextTokens(config.condition_dim, config.max_length, name="text_tokens")(
            inputs["text"], inputs["text_mask"]
        )
        if config.num_latents:
            resampler = Resampler(config.num_latents, config.num_heads, config.key_dim, name="resampler")
            tokens = resampler(tokens)
        time = time + TextVector(_time_width(config), name="text_vector")(tokens, inputs["text_mask"])
        context = ops.concatenate([time_tokens, tokens], axis=1)
        context = LayerNormalization(EPSILON, name="context_norm")(context)  # (B, S', condition_dim)
        trace = Trace()

        def run(stack, x, dim, name, heads=None, gated=True):
            """A residual block, which attends to the context with these `heads`."""
            tensors = {"condition": time} | ({} if heads is None else {"context": context})
            attention = None if heads is None else ContextAttention(*heads)
            gate = GlobalContext() if gated else None
            norm = RMSNormalization(1e-12)
            block = ResidualConvolution(dim, norm, 0.0, True, attention, gate, name=f"{stack}_{name}")
            return trace.run(stack, [block], x, **tensors)

        def attend(stack, x, tensors):
            """A Transformer block on the cells of a map."""
            block = _transformer(config, x.shape[-1], f"{stack}_transformer")
            y = trace.run(stack, [block], flatten_map(x), **tensors)
            return to_map(y, x.shape[1:3])

        def level(i, stack, x, dim, before, after):
            """The blocks of level `i`; `before` is called on the input of each residual block, `after` on the
            output of all but the first.
            """
            heads = (config.num_heads, config.key_dim) if config.attends_to_context[i] else None
            x = run(stack, before(x), dim, "first", heads, gated=False)
            for block in range(config.num_layers[i]):
                x = after(run(stack, before(x), dim, f"block_{block}"))
            return attend(stack, x, {"attention": {"context": context}}) if config.attends[i] else x

        x = _first(config, x)
        if config.halves_first:
            x = run("first", x, config.dims[0], "block")
        kept: list[Any] = []
        levels = list(enumerate(config.dims))
        widths = (config.dims[0], *config.dims[:-1])  # into each level

        def keep(x):
            kept.append(x)
            return x

        def join(x):
            return ops.concatenate([x, kept.pop() * 2**-0.5], axis=-1)

        for i, dim in levels:
            stack = f"down_{i}"
            if config.halves_first:
                x = _halving(dim, stack)(x)
            x = level(i, stack, x, x.shape[-1], lambda x: x, keep)
            keep(x)
            if i == len(levels) - 1 and not config.halves_first:
                wide, narrow = (Convolution(dim, side, name=f"{stack}_last_{side}") for side in (3, 1))
                x = wide(x) + narrow(x)
            elif not config.halves_first:
                x = _halving(dim, stack)(x)
        x = run("middle", x, config.dims[-1], "block_0", MIDDLE, gated=False)
        x = attend("middle", x, {})
        x = run("middle", x, config.dims[-1], "block_1", MIDDLE, gated=False)
        for i, dim in reversed(levels):
            stack = f"up_{i}"
            x = level(i, stack, x, dim, join, lambda x: x)
            if i or config.halves_first:
                x = _doubled(x, widths[i], stack)
        x = run("last", x, config.dims[0], "block")
        if config.is_super_resolution:
            x = ops.concatenate([x, small], axis=-1)
        last = Convolution(config.num_channels * config.patch_size**2, name="convolution_out")
        x = last(x)
        if config.patch_size > 1:
            x = combine_patches(flatten_map(x), config.patch_size, images.shape[1:3])
        outputs = {"prediction": x}
        # Training begins with the prediction 0, as in the re-creation.
        change_value(last.convolution.kernel, ops.zeros_like)
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def _map_of_patches(config, x):
    """Images (B, H, W, C) as a map of their patches, (B, H / P, W / P, P P C)."""
    if config.patch_size == 1:
        return x
    grid = patch_grid(x.shape[1:3], config.patch_size)
    return to_map(extract_patches(x, config.patch_size), grid)


def _time_width(config):
    return config.dims[0] * (8 if config.is_super_resolution else 4)


def _time(config, log_snr, name):
    """(A vector (B, width), tokens (B, num_time_tokens, condition_dim)) of a signal-to-noise ratio."""
    width = _time_width(config)
    hidden = Dense(width, "silu", name=f"{name}_hidden")(
        LearnedSines(config.num_sines, name=f"{name}_sines")(log_snr)
    )
    tokens = Dense(config.num_time_tokens * config.condition_dim, name=f"{name}_tokens")(hidden)
    tokens = ops.reshape(tokens, (-1, config.num_time_tokens, config.condition_dim))
    return Dense(width, name=f"{name}_vector")(hidden), tokens


def _first(config, x):
    """The first convolution: kernels of several sides, wider ones for half as many channels each."""
    count, dim = len(config.kernels), config.dims[0]
    widths = [dim // 2**i for i in range(1, count)]
    widths.append(dim - sum(widths))
    convolutions = [Convolution(w, side) for w, side in zip(widths, sorted(config.kernels), strict=True)]
    return Parallel(convolutions, name="convolution_in")(x)


def _transformer(config, dim, name):
    options: Any = {"num_key_value_heads": 1, "joins": True}
    attention = cosine_attention(dim, config.num_heads, config.key_dim, scaling_norm(), **options)
    parts = {
        "attention": Residual(attention, scaling_norm(), normalize="input"),
        "feedforward": feedforward(dim),
    }
    return Block(parts, name=name)


def _halving(dim, stack):
    """Each patch of 2 x 2 cells becomes a cell: Imagen's "efficient" down-sampling."""
    return Convolution(dim, 2, 2, 0, name=f"{stack}_half")


def _doubled(x, dim, stack):
    """Each cell of a map becomes a patch of 2 x 2 cells (Shi et al. 2016)."""
    x = Convolution(4 * dim, 1, activation="silu", name=f"{stack}_double")(x)
    return ops.depth_to_space(x, 2)


# Saharia et al. 2022, appendix F: 64 x 64 of 512 x (1, 2, 3, 4), and 64 to 256 of 128 x (1, 2, 4, 8); their
# convolutions and their attention are not these.
ImagenUNet.sizes = {
    "base": ImagenUNetConfig(dims=(512, 1024, 1536, 2048), num_layers=(3,) * 4, text_dim=4096),
    "super-resolution": ImagenUNetConfig(
        256,
        dims=(128, 256, 512, 1024),
        num_layers=(2, 4, 8, 8),
        attends=(False, False, False, True),
        attends_to_context=(False, False, False, True),
        text_dim=4096,
        is_super_resolution=True,
        halves_first=True,
    ),
}
