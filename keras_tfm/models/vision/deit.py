"""DeiT (Touvron et al. 2021, "Training data-efficient image transformers & distillation through attention").

A ViT with a second token next to the class token, whose head learns from a teacher. Without that token a
DeiT is a `ViT` that was trained differently.
"""

import dataclasses

from keras import ops

from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.vision.vit import PatchesConfig, ViT


@dataclasses.dataclass(frozen=True)
class DeiTConfig(PatchesConfig):
    """The sizes of a `DeiT`: the fields of `PatchesConfig`, and `qkv_bias`, whether queries, keys and values
    have biases. The distillation token is always there.
    """

    qkv_bias: bool = True


class DeiT(ViT):
    """A `ViT` with a distillation token after the class token: `sequence_output` is (B, N + 2, D).

    `pooled_output` (B, D) is the class token's final state, `distilled_output` (B, D) the distillation
    token's.

    >>> model = keras_tfm.models.DeiT.from_size("Ti", image_size=32, num_layers=1, dim=16, num_heads=2)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 6, 16])
    """

    config_class = DeiTConfig
    reads_any_size = False

    @classmethod
    def embed(cls, config, images):
        x = flatten_map(PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images))
        x = PrependedTokens(2, TRUNCATED, name="tokens")(x)  # (B, N + 2, D)
        position = PositionEmbedding(x.shape[1], TRUNCATED, name="position")
        return position, position(x)

    @classmethod
    def pooled(cls, config, x):
        return {"pooled_output": ops.take(x, 0, axis=1), "distilled_output": ops.take(x, 1, axis=1)}


# The variants of Touvron et al. 2021.
_TI = DeiTConfig(dim=192, num_heads=3, intermediate_dim=768)
_S = DeiTConfig(dim=384, num_heads=6, intermediate_dim=1536)
DeiT.sizes = {"Ti": _TI, "S": _S, "B": DeiTConfig()}
