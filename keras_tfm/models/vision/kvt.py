"""KVT of Wang et al. 2022, "KVT: k-NN Attention for Boosting Vision Transformers".

A ViT whose queries attend to the `k` keys of the greatest scores alone; it has the weights of a ViT.
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
    """`k` is how many keys a query attends to, in every head and block."""

    k: Size = 100


class KVT(Variant):
    """`ViT` attending to the `k` nearest keys: `sequence_output` (B, N + 1, D), `pooled_output` (B, D)."""

    config_class = KVTConfig

    @classmethod
    def block(cls, config, index):
        attention = residual_of(config, attention_of(config, on_scores=TopK(config.k)), index)
        feedforward = residual_of(config, feedforward_of(config), index)
        return Block(attention, feedforward, name=f"block_{index}")


# Wang et al. 2022: k-NN attention in DeiT-Tiny and DeiT-Small, with 100 of 197 keys.
KVT.sizes = {
    "Ti": KVTConfig(dim=192, num_heads=3, intermediate_dim=768),
    "S": KVTConfig(dim=384, num_heads=6, intermediate_dim=1536),
}
