"""The encoder of the masked autoencoder (He et al. 2022, "Masked Autoencoders Are Scalable Vision
Learners").

A ViT that reads the class token and a random part of the patches; `heads.MaskedAutoencoder` learns to
reconstruct the others. Unlike ViT's, its positions are sines and not trained. An input, `noise`, decides
which patches are visible, so that results can be reproduced; if it is left out, it is drawn at random.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Rate
from keras_tfm.layers.image_positions import GridSines
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.layers.patch_masking import PatchMasking
from keras_tfm.layers.patches import patch_grid
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import image_input
from keras_tfm.models.vision.vit import PatchesConfig, ViT, ViTConfig
from keras_tfm.precision import quantize_parts, quantized_parts_of
from keras_tfm.training.weights import assign_by_path, by_path


@dataclasses.dataclass(frozen=True)
class ViTMAEConfig(PatchesConfig):
    """The sizes of a `ViTMAE`; `mask_ratio` is the share of the patches that is hidden."""

    mask_ratio: Rate = 0.75


class ViTMAE(ConfiguredModel):
    """The masked autoencoder's encoder: images in, hidden states of the visible patches out.

    Inputs: `images` (B, H, W, C), floating-point, and `noise` (B, N), a number for each patch; patches with
    the smallest numbers are visible. Outputs: `sequence_output` (B, M + 1, D), the class token first and
    then the visible patches, sorted by their numbers, and `pooled_output` (B, D), the class token's final
    state.

    >>> model = keras_tfm.models.ViTMAE.from_size("tiny", num_layers=1)
    >>> model({"images": np.ones((1, 32, 32, 3))})["sequence_output"].shape
    TensorShape([1, 17, 128])
    """

    config_class = ViTMAEConfig

    def __init__(self, config: ViTMAEConfig, name: str = "vitmae", **kwargs: Any) -> None:
        images = image_input(config)
        image_size = tuple(images.shape[1:3])
        grid = patch_grid(image_size, config.patch_size)
        noise = keras.Input((grid[0] * grid[1],), name="noise")
        encoder = PatchEncoder(
            config.dim, config.patch_size, position_initializer=GridSines(grid), name="patch_encoder"
        )
        x = encoder(images)
        encoder.position.trainable = False
        x = PatchMasking(config.mask_ratio, prefix=1, name="masking")(x, noise)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        trace = Trace()
        x = trace.run("encoder", ViT.encoder(config), x)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        inputs = {"images": images, "noise": noise}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.generator = keras.random.SeedGenerator()

    def draw_noise(self, images):
        """Numbers (B, N) for `images`, uniform in [0, 1), from the model's own random generator."""
        shape = (ops.shape(images)[0], self.input["noise"].shape[1])
        return keras.random.uniform(shape, seed=self.generator)

    def _fill(self, name, inputs):
        if name == "noise" and "images" in inputs:
            return self.draw_noise(inputs["images"])
        return super()._fill(name, inputs)

    def encoder(self, **changes):
        """A `ViT` with this encoder's weights that reads all patches, for fine-tuning.

        `changes` are fields of its configuration, such as `pooling="mean"`, with which the authors
        fine-tune.
        """
        fields = dataclasses.asdict(self.config)
        del fields["mask_ratio"]
        vit = ViT(ViTConfig.from_json(fields | changes), dtype=self.dtype_policy)
        quantize_parts(vit, quantized_parts_of(self))
        given, shapes = by_path(self), {path: weight.shape for path, weight in by_path(vit).items()}
        # A ViT without class token has one position less.
        shorter = {path: x[1:] for path, x in given.items() if x.shape != shapes.get(path, x.shape)}
        assign_by_path(vit, given | shorter)
        return vit


# He et al. 2022, with the sizes of ViT. tiny is this package's own, like ViT's.
_TINY = ViTMAEConfig(image_size=32, patch_size=4, num_layers=6, dim=128, num_heads=4, intermediate_dim=512)
_BASE = ViTMAEConfig()
_LARGE = ViTMAEConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)
_HUGE = ViTMAEConfig(patch_size=14, num_layers=32, dim=1280, num_heads=16, intermediate_dim=5120)
ViTMAE.sizes = {"tiny": _TINY, "B/16": _BASE, "L/16": _LARGE, "H/14": _HUGE}
