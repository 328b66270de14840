"""Classifier-free guidance of decoding (Ho and Salimans 2021, "Classifier-Free Diffusion Guidance")."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_tfm.layers.cache import PositionCache
from keras_tfm.layers.signatures import Decodes


class GuidedCache(NamedTuple):
    """The caches of a `Guided` model: where the next token stands, and one for each of the two readings."""

    position: PositionCache
    conditional: Any
    unconditional: Any


class Guided:
    """A model that decodes, for which each token's logits are u + `scale` (c - u).

    c are the logits of `model` for the tokens, u for the same tokens without the condition, which `forget`
    takes away: a function of the tokens and of their positions, (B, T) each. A `scale` of 1 is the model
    itself, 0 the model without the condition. What both logits forbid stays forbidden.

    >>> model = keras_tfm.heads.TextToCodes(keras_tfm.models.DALLE.from_size("tiny"))
    >>> guided = keras_tfm.generation.Guided(model, scale=3.0, forget=model.backbone.forget_text)
    >>> prompt = model.backbone.tokens_of(np.ones((1, 16), int))
    >>> keras_tfm.generation.Decoder(guided, max_new_tokens=2)(prompt).shape
    TensorShape([1, 19])
    """

    def __init__(self, model: Decodes, scale: float, forget: Callable) -> None:
        self.model = model
        self.scale = scale
        self.forget = forget

    def start(self, batch_size, max_length, context=None):
        """The two caches of the model."""
        caches = (self.model.start(batch_size, max_length, context) for _ in range(2))
        return GuidedCache(PositionCache.empty(batch_size), *caches)

    def step(self, token_ids, cache, padding_mask=None):
        """The guided logits (B, T, V) at the next T tokens (B, T), and the new caches."""
        positions, position = cache.position.append(ops.shape(token_ids)[1], padding_mask)
        conditional, with_it = self.model.step(token_ids, cache.conditional, padding_mask)
        forgotten = self.forget(token_ids, positions)
        unconditional, without = self.model.step(forgotten, cache.unconditional, padding_mask)
        difference = conditional - unconditional  # 0 where both forbid a token by the same low number
        return unconditional + self.scale * difference, GuidedCache(position, with_it, without)
