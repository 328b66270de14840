"""CLIP of Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision".

A ViT that also normalises before its blocks and a causal Transformer like GPT-2's, whose state at the end of
the text stands for the text; both are projected into one space. Deviates from the authors' code in the
initial values of kernels, which are Keras's. The logits' scale is a weight of the head, `heads.Contrastive`.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, TokenId
from keras_tfm.layers.base import WithoutMask
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.models.multimodal.dual_encoder import (
    DualEncoder,
    DualEncoderConfig,
    UnitLength,
    tower_blocks,
)
from keras_tfm.models.text.encoder import token_inputs
from keras_tfm.models.vision.images import image_input


@dataclasses.dataclass(frozen=True)
class CLIPConfig(DualEncoderConfig):
    """As `DualEncoderConfig`.

    Args:
        end_id: the token that ends a text; the first one counts.
        position_stddev: the spread of the initial positions of patches, see `ViTConfig`.
    """

    end_id: TokenId = 49_407
    position_stddev: Annotated[float, Between(0, 10)] = 0.02


class CLIP(DualEncoder):
    """An image encoder and a text encoder with outputs in one vector space.

    Inputs: `images` (B, H, W, C), floating-point, `token_ids` (B, T) and `padding_mask` (B, T). Outputs:
    `image_sequence_output` (B, N + 1, D), the class token first, `image_pooled_output` (B, D), its normalised
    state, `text_sequence_output` (B, T, D), `text_pooled_output` (B, D), the state at the end of the text,
    `image_embeddings` and `text_embeddings` (B, E), of unit length. `image` and `text` are the two encoders.

    >>> model = keras_tfm.models.CLIP.from_size("tiny", num_image_layers=1, num_text_layers=1)
    >>> output = model({"images": np.zeros((2, 32, 32, 3)), "token_ids": np.ones((2, 5), "int32")})
    >>> output["image_embeddings"].shape, output["text_embeddings"].shape
    (TensorShape([2, 128]), TensorShape([2, 128]))
    """

    config_class = CLIPConfig

    def __init__(self, config: CLIPConfig, name: str = "clip", **kwargs: Any) -> None:
        super().__init__(config, _image, text_tower, name=name, **kwargs)


def _image(config, trace):
    images = image_input(config)
    x, pooled = image_states(config, trace, images, config.patch_size)
    outputs = {"sequence_output": x, "pooled_output": pooled}
    return {"images": images}, outputs | _embeddings(config, pooled, "image")


def image_states(config, trace, images, patch_size):
    """(The states (B, N + 1, D) of `images`, and the normalised one (B, D) of the class token)."""
    positions = positions_of(config)
    encoder = PatchEncoder(
        config.image_dim, patch_size, True, positions, use_bias=False, name="image_patch_encoder"
    )
    x = LayerNormalization(config.epsilon, name="image_embedding_norm")(encoder(images))
    x = trace.run("image", tower_blocks(config, "image"), x)
    return x, LayerNormalization(config.epsilon, name="image_norm")(ops.take(x, 0, axis=1))


def positions_of(config):
    """The initializer of the positions of what is seen."""
    return keras.initializers.RandomNormal(stddev=config.position_stddev)


def text_tower(config, trace, embedding):
    """The inputs and outputs of the texts' side."""
    inputs = token_inputs()
    blocks = tower_blocks(config, "text", causal=True)
    mask = inputs["padding_mask"]
    x = trace.run("text", blocks, embedding(inputs["token_ids"]), attention={"mask": mask})
    x = LayerNormalization(config.epsilon, name="text_norm")(x)
    pooled = EndPooling(config.end_id, name="text_pooling")(x, inputs["token_ids"], mask)
    outputs = {"sequence_output": x, "pooled_output": pooled}
    return inputs, outputs | _embeddings(config, pooled, "text")


def _embeddings(config, x, side):
    """The output `embeddings` (B, E) of the pooled `x` (B, D)."""
    return {"embeddings": UnitLength(name=f"{side}_embeddings")(projected(config, x, side))}


def projected(config, x, side):
    """The pooled `x` (B, D) in the space that both sides share, (B, E)."""
    return keras.layers.Dense(config.embedding_dim, use_bias=False, name=f"{side}_projection")(x)


class EndPooling(WithoutMask):
    """The state at a text's first `end_id`; where a text has none, as one that was cut, at its last token.

    `x` (B, T, D), `token_ids` and `padding_mask` (B, T) give (B, D).
    """

    def __init__(self, end_id, **kwargs):
        super().__init__(**kwargs)
        self.end_id = end_id

    def call(self, x, token_ids, padding_mask):
        length = ops.shape(token_ids)[1]
        positions = ops.arange(length, dtype="int32")[None]
        is_end = padding_mask & ops.equal(token_ids, self.end_id)
        first = ops.min(ops.where(is_end, positions, length), axis=1, keepdims=True)
        last = ops.max(ops.where(padding_mask, positions, 0), axis=1, keepdims=True)
        place = ops.where(first < length, first, last)  # (B, 1)
        return ops.squeeze(ops.take_along_axis(x, place[..., None], axis=1), 1)  # (B, D)

    def compute_output_shape(self, x_shape, token_ids_shape=None, padding_mask_shape=None):
        return (x_shape[0], x_shape[-1])


# Radford et al. 2021, section 2.5 and appendix F: the Vision Transformers. tiny is this package's own, for
# images of some 32 x 32.
_LARGE = CLIPConfig(
    patch_size=14,
    num_image_layers=24,
    image_dim=1024,
    num_image_heads=16,
    image_intermediate_dim=4096,
    text_dim=768,
    num_text_heads=12,
    text_intermediate_dim=3072,
    embedding_dim=768,
)
CLIP.sizes = {
    "tiny": CLIPConfig(32, 4, 3, 4, 128, 4, 512, 8_000, 64, 4, 128, 4, 512, embedding_dim=128, end_id=7_999),
    "B/32": CLIPConfig(),
    "B/16": CLIPConfig(patch_size=16),
    "L/14": _LARGE,
    "L/14@336": dataclasses.replace(_LARGE, image_size=336),
}
