"""KVT (Wang et al. 2022, "KVT: k-NN Attention for Boosting Vision Transformers").

A ViT in which each query attends only to the `k` keys with the largest scores. It has the weights of a ViT.
"""

import dataclasses

from keras_tfm.configs import Size
from keras_tfm.layers.attention.on_scores import TopK
from keras_tfm.layers.blocks import Block
from keras_tfm.models.vision.variant import (
    Variant,
    VariantConfig,
    attention_of,
    feedforward_of,
    residual_of,
)


@dataclasses.dataclass(frozen=True)
class KVTConfig(VariantConfig):
    """The sizes of a `KVT`; `k` is the number of keys that a query attends to, in every head and block."""

    k: Size = 100


class KVT(Variant):
    """A `ViT` that attends to the `k` nearest keys: `sequence_output` (B, N + 1, D), `pooled_output` (B, D).

    >>> model = keras_tfm.models.KVT.from_size("Ti", image_size=32, num_layers=1, dim=16, num_heads=2, k=3)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = KVTConfig

    @classmethod
    def block(cls, config, index):
        attention = residual_of(config, attention_of(config, on_scores=TopK(config.k)), index)
        feedforward = residual_of(config, feedforward_of(config), index)
        return Block({"attention": attention, "feedforward": feedforward}, name=f"block_{index}")


# Wang et al. 2022: k-NN attention in DeiT-Tiny and DeiT-Small, with 100 of 197 keys.
KVT.sizes = {
    "Ti": KVTConfig(dim=192, num_heads=3, intermediate_dim=768),
    "S": KVTConfig(dim=384, num_heads=6, intermediate_dim=1536),
}
