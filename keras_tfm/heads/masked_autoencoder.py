"""The masked autoencoder's decoder: from the hidden states of visible patches to the pixels of hidden ones.

He et al. 2022, "Masked Autoencoders Are Scalable Vision Learners", section 3.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import GridSines
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_masking import PatchRestoring, is_hidden
from keras_tfm.layers.patches import extract_patches, height_and_width, patch_grid
from keras_tfm.layers.positions import PositionEmbedding

MASK_TOKEN = keras.initializers.RandomNormal(stddev=0.02)  # as in the authors' code


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
        x = PatchRestoring(1, MASK_TOKEN, name="restoring")(x, noise)  # (B, N + 1, dim)
        position = PositionEmbedding(x.shape[1], GridSines(grid), name="decoder_position", trainable=False)
        x = position(x)
        part = residuals(True, epsilon=config.epsilon)
        for i in range(num_layers):
            feedforward = FeedForward(intermediate_dim, config.activation)
            block = Block(
                {"attention": part(MultiHeadAttention(num_heads)), "feedforward": part(feedforward)},
                name=f"decoder_block_{i}",
            )
            x = block(x)
        x = LayerNormalization(config.epsilon, name="decoder_norm")(x)
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
            targets = normalized_pixels(targets)
        weights = ops.cast(is_hidden(noise, config.mask_ratio), "float32")
        return {"images": images, "noise": noise}, targets, weights

    def _fill(self, name, inputs):
        return self.backbone._fill(name, inputs)


def normalized_pixels(patches):
    """Each patch of (B, N, P P C) with mean 0 and variance 1, the unbiased one as in the authors' code."""
    count = patches.shape[-1]
    variance = ops.var(patches, axis=-1, keepdims=True) * (count / max(count - 1, 1))
    return (patches - ops.mean(patches, axis=-1, keepdims=True)) / ops.sqrt(variance + 1e-6)


def patch_loss() -> keras.losses.Loss:
    """The mean squared error of the patches' numbers, averaged over the patches of weight 1.

    >>> loss = keras_tfm.heads.patch_loss()
    >>> weights = np.array([[1.0, 0.0]])  # the second patch was visible
    >>> float(loss(np.zeros((1, 2, 4)), np.array([[[2.0] * 4, [5.0] * 4]]), weights))
    4.0
    """
    return keras.losses.MeanSquaredError(reduction="mean_with_sample_weight", name="loss")
