"""What a user says about decoding, checked, and the decoder that does it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.generation.beam import BeamSearch
from keras_tfm.generation.loop import Decoder
from keras_tfm.generation.processors import (
    ForcedTokens,
    MinNewTokens,
    NoRepeatNGram,
    RepetitionPenalty,
    Suppress,
    Temperature,
    TopK,
    TopP,
    require,
)
from keras_tfm.generation.samplers import Sample, greedy
from keras_tfm.generation.stopping import EndTokens


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """The likeliest token at each step; by beam search with a `beam_size`; else sampled.

    Sampling begins with any of `temperature`, `top_k`, `top_p` and `seed`, which may be tensors; without a
    `seed` one is drawn. `repetition_penalty`, `no_repeat_ngram_size`, `min_new_tokens`, the token
    `forced_first_id`, those of which the last one allowed must be, `forced_last_ids`, and `suppressed_ids`
    act first, in this order, then the `processors`, then what belongs to sampling. Raises ValueError for
    what cannot be.
    """

    max_new_tokens: int
    beam_size: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    temperature: Any = None
    top_k: Any = None
    top_p: Any = None
    seed: Any = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    forced_first_id: int | None = None
    forced_last_ids: Sequence[int] = ()
    suppressed_ids: Sequence[int] = ()
    processors: Sequence = ()

    def __post_init__(self):
        for name in ("forced_last_ids", "suppressed_ids", "processors"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require("max_new_tokens", self.max_new_tokens, lambda n: n >= 1, "must be at least 1")
        require("beam_size", self.beam_size, lambda n: n >= 1, "must be at least 1")
        require("min_new_tokens", self.min_new_tokens, lambda n: n >= 0, "must be at least 0")
        require("no_repeat_ngram_size", self.no_repeat_ngram_size, lambda n: n >= 0, "must be at least 0")
        list(self._constraints(EndTokens()))  # each refuses what it cannot be
        self._warpers()
        if self.samples and self.seed is None:
            object.__setattr__(self, "seed", np.random.randint(2**31))
        if self.samples and self.beam_size > 1:
            raise ValueError("Beam search does not sample: give `beam_size`, or what belongs to sampling.")

    @property
    def numbers(self):
        """What may differ from call to call of one compiled function: {name: value}."""
        names = ("temperature", "top_k", "top_p", "seed")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def samples(self):
        """Whether tokens are drawn."""
        return bool(self.numbers)

    def decoder(self, model, stop=None, pad_id=0):
        """The `Decoder` or `BeamSearch` that decodes from `model` in this way."""
        stop = stop or EndTokens()
        processors = (*self._constraints(stop), *self.processors)
        common = {"stop": stop, "pad_id": pad_id}
        if self.beam_size > 1:
            search = self.beam_size, self.length_penalty, self.early_stopping, processors
            return BeamSearch(model, self.max_new_tokens, *search, **common)
        sampler = Sample(self.seed) if self.samples else greedy
        return Decoder(model, self.max_new_tokens, sampler, (*processors, *self._warpers()), **common)

    def _constraints(self, stop):
        """The processors that the plain fields ask for, in transformers' order."""
        if self.repetition_penalty != 1:
            yield RepetitionPenalty(self.repetition_penalty)
        if self.no_repeat_ngram_size:
            yield NoRepeatNGram(self.no_repeat_ngram_size)
        if self.min_new_tokens:
            yield MinNewTokens(self.min_new_tokens, stop.end_ids)
        if self.forced_first_id is not None:
            yield ForcedTokens([self.forced_first_id])
        if self.forced_last_ids:
            yield ForcedTokens([self.forced_last_ids], first=self.max_new_tokens - 1)
        if self.suppressed_ids:
            yield Suppress(self.suppressed_ids)

    def _warpers(self):
        makers = {"temperature": Temperature, "top_k": TopK, "top_p": TopP}
        return [make(self.numbers[name]) for name, make in makers.items() if name in self.numbers]
