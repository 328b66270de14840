"""Predicting a text and the codes of its picture: logits of the one or the other, and their loss.

Ramesh et al. 2021, "Zero-Shot Text-to-Image Generation", section 2.2.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.language_model import LanguageModelHead, token_cross_entropy
from keras_tfm.heads.loss import Loss
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.masks import LOWEST


class ModalityMask(SameShape):
    """Logits (B, T, V) with the lowest number at tokens that cannot follow.

    The first `text_length` positions are followed by one of the first `num_text_tokens` tokens, all others by
    one of the rest.

    >>> mask = keras_tfm.heads.ModalityMask(text_length=1, num_text_tokens=1)
    >>> (mask(np.zeros((1, 2, 3), "float32")) < -1).numpy().tolist()
    [[[False, True, True], [True, False, False]]]
    """

    def __init__(self, text_length: int, num_text_tokens: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text_length = text_length
        self.num_text_tokens = num_text_tokens
        self.built = True

    def call(self, logits, positions=None):
        """`positions` are (B, T), by default 0 .. T-1."""
        if positions is None:
            positions = ops.arange(ops.shape(logits)[1], dtype="int32")
        is_before_text = (positions < self.text_length)[..., None]
        is_text = ops.arange(logits.shape[-1], dtype="int32") < self.num_text_tokens
        lowest = -6e4 if self.compute_dtype == "float16" else LOWEST  # float16 ends at -65,504
        return ops.where(is_before_text == is_text, logits, ops.cast(lowest, logits.dtype))


class TextToCodes(ModelWithHead):
    """A `DALLE` with a vocabulary head: `token_ids` (B, T) in, logits (B, T, V) for what follows out.

    Tokens that cannot follow have the lowest logits: in the text the codes, after it the tokens of texts.
    The decoding loop of `keras_tfm.generation` writes codes behind the prompts of `backbone.tokens_of`.

    >>> model = keras_tfm.heads.TextToCodes(keras_tfm.models.DALLE.from_size("tiny"))
    >>> prompt = model.backbone.tokens_of(np.ones((1, 16), int))
    >>> written = keras_tfm.generation.Decoder(model, max_new_tokens=64)(prompt)
    >>> model.backbone.codes_in(written).shape
    TensorShape([1, 8, 8])
    """

    def __init__(self, backbone: keras.Model, name: str = "text_to_codes", **kwargs: Any) -> None:
        config = backbone.config
        head = LanguageModelHead(config.vocabulary_size, use_bias=True, name="head")
        mask = ModalityMask(config.text_length, config.num_text_tokens, name="modality_mask")
        logits = mask(head(backbone.output["sequence_output"]))
        super().__init__(backbone, backbone.input, logits, name=name, **kwargs)
        self.vocabulary_head = head  # no `head`, whose logits alone would be the model's
        self.modality_mask = mask

    def start(self, batch_size, max_length, context=None):
        """The backbone's cache for decoding up to `max_length` tokens."""
        return self.backbone.start(batch_size, max_length, context)

    def step(self, token_ids, cache, padding_mask=None):
        """Logits (B, T, V) for what follows each of the next T tokens (B, T), and the new cache."""
        positions, _ = cache.position.append(ops.shape(token_ids)[1], padding_mask)
        hidden, cache = self.backbone.step(token_ids, cache, padding_mask)
        return self.modality_mask(self.vocabulary_head(hidden), positions), cache


class TextToCodesLoss(Loss):
    """(mean of the text's cross-entropies + w mean of the codes') / (1 + w), in nats.

    w is `picture_weight`. Labels (B, T) are the tokens that follow, of which the first `text_length` are the
    text's; logits are (B, T, V).

    >>> loss = keras_tfm.heads.TextToCodesLoss(text_length=1)
    >>> round(float(loss(np.array([[1, 0, 0]]), np.zeros((1, 3, 4)))), 4)  # log 4
    1.3863
    """

    def __init__(self, text_length: int, picture_weight: float = 7.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text_length = text_length
        self.picture_weight = picture_weight

    def call(self, labels, logits):
        losses = token_cross_entropy(labels, logits)  # (B, T)
        text = ops.mean(losses[:, : self.text_length], axis=1)
        codes = ops.mean(losses[:, self.text_length :], axis=1)
        return (text + self.picture_weight * codes) / (1 + self.picture_weight)  # (B,)
