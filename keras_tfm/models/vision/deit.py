"""DeiT of Touvron et al. 2021, "Training data-efficient image transformers & distillation through attention".

A ViT with a second token beside the class token, whose head learns from a teacher. Without that token
a DeiT is a `ViT`, trained otherwise.
"""

import dataclasses

import keras
from keras import ops

from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.vision.vit import PatchesConfig, ViT

INITIALIZER = keras.initializers.TruncatedNormal(stddev=0.02)  # the authors' code


@dataclasses.dataclass(frozen=True)
class DeiTConfig(PatchesConfig):
    """The fields of `PatchesConfig`; the distillation token is always there."""


class DeiT(ViT):
    """`ViT` with a distillation token after the class token: `sequence_output` is (B, N + 2, D).

    `pooled_output` (B, D) is the class token's final state, `distilled_output` (B, D) that of the other one.
    """

    config_class = DeiTConfig
    reads_any_size = False

    @classmethod
    def embed(cls, config, images):
        x = flatten_map(PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images))
        x = PrependedTokens(2, INITIALIZER, name="tokens")(x)  # (B, N + 2, D)
        position = PositionEmbedding(x.shape[1], INITIALIZER, name="position")
        return position, position(x)

    @classmethod
    def pooled(cls, config, x):
        return {"pooled_output": ops.take(x, 0, axis=1), "distilled_output": ops.take(x, 1, axis=1)}


# The variants of Touvron et al. 2021.
_TI = DeiTConfig(dim=192, num_heads=3, intermediate_dim=768)
_S = DeiTConfig(dim=384, num_heads=6, intermediate_dim=1536)
DeiT.sizes = {"Ti": _TI, "S": _S, "B": DeiTConfig()}
