"""SigLIP of Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training".

CLIP's two towers with other ends: the images' patches are pooled by a learned query (Zhai et al. 2022,
"Scaling Vision Transformers"), the text is read in both directions and its last token stands for it. Padding
is read like any other token: the published models learnt with every text padded to `max_length`, and answer
as published only if texts are padded so. The logits' scale and bias are weights of the head,
`heads.Contrastive`.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Length, Rate, Size
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.layers.pooling import AttentionPooling
from keras_tfm.models.multimodal.dual_encoder import (
    DualEncoder,
    DualEncoderConfig,
    TextHeads,
    UnitLength,
    tower_blocks,
)
from keras_tfm.models.vision.images import Side, image_input


@dataclasses.dataclass(frozen=True)
class SigLIPConfig(DualEncoderConfig):
    """As `DualEncoderConfig`, with the sizes of B/16; the embeddings are as wide as the images' tower.

    Raises ValueError where `embedding_dim` is another than `image_dim`.
    """

    patch_size: Side | tuple[Side, Side] = 16
    vocabulary_size: Size = 32_000
    max_length: Length = 64
    text_dim: Size = 768
    num_text_heads: TextHeads = 12
    text_intermediate_dim: Size = 3072
    embedding_dim: Size = 768
    activation: str = "gelu_tanh"
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        if self.embedding_dim != self.image_dim:
            raise ValueError(
                f"`embedding_dim` must be `image_dim`, {self.image_dim}; it is {self.embedding_dim}."
            )


class SigLIP(DualEncoder):
    """An image encoder and a text encoder with outputs in one vector space.

    Inputs: `images` (B, H, W, C), floating-point, and `token_ids` (B, T). Outputs: `image_sequence_output`
    (B, N, D), `image_pooled_output` (B, D), `text_sequence_output` (B, T, D), `text_pooled_output` (B, E),
    the last token's projected state, `image_embeddings` and `text_embeddings` (B, E), the pooled outputs at
    unit length. `image` and `text` are the two encoders.

    >>> model = keras_tfm.models.SigLIP.from_size("tiny", num_image_layers=1, num_text_layers=1)
    >>> output = model({"images": np.zeros((2, 32, 32, 3)), "token_ids": np.ones((2, 64), "int32")})
    >>> output["image_embeddings"].shape, output["text_embeddings"].shape
    (TensorShape([2, 128]), TensorShape([2, 128]))
    """

    config_class = SigLIPConfig

    def __init__(self, config: SigLIPConfig, name: str = "siglip", **kwargs: Any) -> None:
        super().__init__(config, _image, _text, name=name, **kwargs)


def _image(config, trace):
    images = image_input(config)
    encoder = PatchEncoder(config.image_dim, config.patch_size, class_token=False, name="image_patch_encoder")
    x = trace.run("image", tower_blocks(config, "image"), encoder(images))
    x = LayerNormalization(config.epsilon, name="image_norm")(x)
    sizes = (config.num_image_heads, config.image_intermediate_dim, config.activation, config.epsilon)
    pooled = AttentionPooling(*sizes, name="image_pooling")(x)
    outputs = {
        "sequence_output": x,
        "pooled_output": pooled,
        "embeddings": UnitLength(name="image_embeddings")(pooled),
    }
    return {"images": images}, outputs


def _text(config, trace, embedding):
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    x = trace.run("text", tower_blocks(config, "text"), embedding(token_ids))
    x = LayerNormalization(config.epsilon, name="text_norm")(x)
    projection = keras.layers.Dense(config.embedding_dim, name="text_projection")
    pooled = projection(ops.take(x, -1, axis=1))
    outputs = {
        "sequence_output": x,
        "pooled_output": pooled,
        "embeddings": UnitLength(name="text_embeddings")(pooled),
    }
    return {"token_ids": token_ids}, outputs


# Zhai et al. 2023: the sizes of ViT, and So400m, the shape of Alabdulmohsin et al. 2023, "Getting ViT in
# Shape". tiny is this package's own, for images of some 32 x 32.
_LARGE = SigLIPConfig(
    num_image_layers=24,
    image_dim=1024,
    num_image_heads=16,
    image_intermediate_dim=4096,
    num_text_layers=24,
    text_dim=1024,
    num_text_heads=16,
    text_intermediate_dim=4096,
    embedding_dim=1024,
)
SigLIP.sizes = {
    "tiny": SigLIPConfig(32, 4, 3, 4, 128, 4, 512, 8_000, 64, 4, 128, 4, 512, embedding_dim=128),
    "B/16": SigLIPConfig(),
    "L/16": dataclasses.replace(_LARGE, image_size=256),
    "So400m/14": SigLIPConfig(
        patch_size=14,
        num_image_layers=27,
        image_dim=1152,
        num_image_heads=16,
        image_intermediate_dim=4304,
        max_length=16,
        num_text_layers=27,
        text_dim=1152,
        num_text_heads=16,
        text_intermediate_dim=4304,
        embedding_dim=1152,
    ),
}
