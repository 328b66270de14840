"""The masked autoencoder's decoder: from the hidden states of visible patches to the pixels of hidden ones.

He et al. 2022, "Masked Autoencoders Are Scalable Vision Learners", section 3; Tong et al. 2022, "VideoMAE",
for videos.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import GridSines
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_masking import PatchRestoring, is_hidden
from keras_tfm.layers.patches import extract_patches, height_and_width, patch_grid
from keras_tfm.layers.positions import PositionEmbedding, SineTable
from keras_tfm.layers.tubelets import extract_tubelets


class MaskedAutoencoder(ModelWithHead):
    """A `backbone` that hides patches, a `ViTMAE`, with a decoder: images in, all their patches (B, N, P P
    C) out.

    The numbers of a patch are ordered by (row, column, channel). `num_layers`, `dim`, `num_heads` and
    `intermediate_dim` are the decoder's. For training, `examples` makes of images what `fit` takes, with the
    loss `patch_loss()`.

    Args:
        normalize_pixels: whether the targets of each patch are normalised to mean 0 and variance 1, which
            gives better features (table 1d).

    >>> sizes = {"image_size": 16, "patch_size": 4, "dim": 8, "num_layers": 1, "num_heads": 2}
    >>> backbone = keras_tfm.models.ViTMAE.from_size("B/16", intermediate_dim=16, **sizes)
    >>> model = keras_tfm.heads.MaskedAutoencoder(backbone, 1, dim=8, num_heads=2, intermediate_dim=16)
    >>> model.output.shape
    (None, 16, 48)
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_layers: int = 8,
        dim: int = 512,
        num_heads: int = 16,
        intermediate_dim: int = 2048,
        normalize_pixels: bool = True,
        name: str = "autoencoder",
        **kwargs: Any,
    ) -> None:
        config = backbone.config
        noise, images = backbone.input["noise"], backbone.input["images"]
        grid = patch_grid(images.shape[1:3], config.patch_size)
        x = keras.layers.Dense(dim, name="decoder_embedding")(backbone.output["sequence_output"])
        x = PatchRestoring(1, NORMAL, name="restoring")(x, noise)  # (B, N + 1, dim)
        position = PositionEmbedding(x.shape[1], GridSines(grid), name="decoder_position", trainable=False)
        x = _decoded(config, position(x), num_layers, num_heads, intermediate_dim, config.epsilon)
        height, width = height_and_width(config.patch_size)
        x = keras.layers.Dense(height * width * images.shape[3], name="pixels")(x[:, 1:])
        super().__init__(backbone, backbone.input, x, name=name, **kwargs)
        self.num_layers = num_layers
        self.dim = dim
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.normalize_pixels = normalize_pixels

    def examples(self, images, noise=None):
        """(Inputs, targets (B, N, P P C), weights (B, N)) for `images`; the weights are 1 for hidden
        patches, else 0.

        `noise` (B, N) decides which patches are hidden; by default the backbone draws it. The method can be
        mapped over a `tf.data.Dataset`.
        """
        images = ops.convert_to_tensor(images)
        noise = self.backbone.draw_noise(images) if noise is None else ops.convert_to_tensor(noise)
        config = self.backbone.config
        targets = extract_patches(images, config.patch_size)
        if self.normalize_pixels:
            mean, variance = _moments(targets)
            targets = (targets - mean) / ops.sqrt(variance + 1e-6)
        weights = ops.cast(is_hidden(noise, config.mask_ratio), "float32")
        return {"images": images, "noise": noise}, targets, weights

    def _fill(self, name, inputs):
        return self.backbone._fill(name, inputs)


class MaskedVideoAutoencoder(ModelWithHead):
    """A `VideoMAE` that reads visible tubelets alone, with a decoder: videos in, all their tubelets out,
    (B, N, f P P C).

    The same places are hidden at all moments (Tong et al. 2022, section 3.3): the input `noise` has a number
    for each place, and places with the largest numbers are hidden; if it is left out, it is drawn. The
    numbers of a tubelet are ordered by (frame, row, column, channel). For training, `examples` makes of
    videos what `fit` takes, with the loss `patch_loss()`; `backbone` is what was learnt.

    Args:
        mask_ratio: the share of places that is hidden, whose number is rounded down.
        normalize_pixels: whether each channel of a tubelet's targets is normalised to mean 0 and variance 1.
        mean, std: the numbers by which the videos' channels were normalised, which is undone in the targets.

    >>> sizes = {"num_frames": 4, "image_size": 16, "patch_size": 4, "dim": 8, "num_layers": 1}
    >>> backbone = keras_tfm.models.VideoMAE.from_size("B/16", num_heads=2, intermediate_dim=16, **sizes)
    >>> sizes = {"dim": 8, "num_heads": 2, "intermediate_dim": 16}
    >>> keras_tfm.heads.MaskedVideoAutoencoder(backbone, num_layers=1, **sizes).output.shape
    (None, 32, 96)
    """

    def __init__(
        self,
        backbone: keras.Model,
        mask_ratio: float = 0.9,
        num_layers: int = 4,
        dim: int = 384,
        num_heads: int = 6,
        intermediate_dim: int = 1536,
        normalize_pixels: bool = True,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        name: str = "video_autoencoder",
        **kwargs: Any,
    ) -> None:
        config, (moments, places) = backbone.config, backbone.grid
        inputs, x = backbone.visible(share_rounded_down(mask_ratio, places))
        x = keras.layers.Dense(dim, use_bias=False, name="decoder_embedding")(x)
        x = ops.reshape(x, (-1, x.shape[1] // moments, dim))  # (B moments, visible, dim)
        noise = ops.repeat(inputs["noise"], moments, axis=0)
        x = PatchRestoring(0, NORMAL, name="restoring")(x, noise)  # (B moments, places, dim)
        x = SineTable(name="decoder_position")(ops.reshape(x, (-1, moments * places, dim)))
        x = _decoded(config, x, num_layers, num_heads, intermediate_dim, 1e-5)
        numbers = int(np.prod(backbone.config.tubelet_size)) * config.num_channels
        x = keras.layers.Dense(numbers, name="pixels")(x)
        super().__init__(backbone, inputs, x, name=name, **kwargs)
        self.mask_ratio = mask_ratio
        self.num_layers = num_layers
        self.dim = dim
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.normalize_pixels = normalize_pixels
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.generator = keras.random.SeedGenerator()

    def draw_noise(self, videos):
        """Numbers (B, places) for `videos`, uniform in [0, 1), from the model's own random generator."""
        shape = (ops.shape(videos)[0], self.backbone.grid[1])
        return keras.random.uniform(shape, seed=self.generator)

    def examples(self, videos, noise=None):
        """(Inputs, targets (B, N, f P P C), weights (B, N)) for `videos`; the weights are 1 for hidden
        tubelets, else 0.

        `noise` (B, places) decides which places are hidden; by default it is drawn. The method can be mapped
        over a `tf.data.Dataset`.
        """
        videos = ops.convert_to_tensor(videos)
        noise = self.draw_noise(videos) if noise is None else ops.convert_to_tensor(noise)
        moments, places = self.backbone.grid
        pixels = videos * np.asarray(self.std, "float32") + np.asarray(self.mean, "float32")
        targets = extract_tubelets(pixels, self.backbone.config.tubelet_size)
        channels = self.backbone.config.num_channels
        targets = ops.reshape(targets, (-1, moments * places, targets.shape[-1] // channels, channels))
        if self.normalize_pixels:
            mean, variance = _moments(targets, axis=2)
            targets = (targets - mean) / (ops.sqrt(variance) + 1e-6)
        targets = ops.reshape(targets, (-1, moments * places, targets.shape[2] * channels))
        hidden = is_hidden(noise, share_rounded_down(self.mask_ratio, places))
        weights = ops.cast(ops.tile(hidden, (1, moments)), "float32")  # (B, N)
        return {"videos": videos, "noise": noise}, targets, weights

    def _fill(self, name, inputs):
        if name == "noise" and "videos" in inputs:
            return self.draw_noise(inputs["videos"])
        return super()._fill(name, inputs)


def _decoded(config, x, num_layers, num_heads, intermediate_dim, epsilon):
    """The states, normalised with `epsilon`, of a decoder of blocks like the backbone's on the tokens `x`."""
    part = residuals(epsilon=config.epsilon, normalize_first=True)
    for i in range(num_layers):
        attention = MultiHeadAttention(num_heads, use_bias=config.qkv_bias or ())
        feedforward = FeedForward(intermediate_dim, config.activation)
        x = block_of(part, f"decoder_block_{i}", attention=attention, feedforward=feedforward)(x)
    return LayerNormalization(epsilon, name="decoder_norm")(x)


def share_rounded_down(mask_ratio, count):
    """The share with which `PatchMasking` hides `count` `mask_ratio` patches, rounded down.

    It would round the visible ones down. Half a patch less is hidden than the share says, so that no rounding
    of floating-point numbers matters.
    """
    return max(int(mask_ratio * count) - 0.5, 0) / count


def _moments(x, axis=-1):
    """The mean and the unbiased variance along an `axis`, as in the authors' code."""
    count = x.shape[axis]
    mean, variance = ops.mean(x, axis, keepdims=True), ops.var(x, axis, keepdims=True)
    return mean, variance * (count / max(count - 1, 1))


def patch_loss() -> keras.losses.Loss:
    """The mean squared error of the patches' numbers, averaged over the patches of weight 1.

    >>> loss = keras_tfm.heads.patch_loss()
    >>> weights = np.array([[1.0, 0.0]])  # the second patch was visible
    >>> float(loss(np.zeros((1, 2, 4)), np.array([[[2.0] * 4, [5.0] * 4]]), weights))
    4.0
    """
    return keras.losses.MeanSquaredError(reduction="mean_with_sample_weight", name="loss")
