"""What a user says about decoding, checked, and the decoder that does it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.generation.beam import BeamSearch
from keras_tfm.generation.loop import Decoder
from keras_tfm.generation.processors import Temperature, TopK, TopP, require
from keras_tfm.generation.samplers import Sample, greedy


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """The likeliest token at each step; by beam search with a `beam_size`; else sampled.

    Sampling begins with any of `temperature`, `top_k`, `top_p` and `seed`, which may be tensors;
    they act after the `processors`, in this order; without a `seed` one is drawn. Raises ValueError
    for what cannot be.
    """

    max_new_tokens: int
    beam_size: int = 1
    length_penalty: float = 1.0
    temperature: Any = None
    top_k: Any = None
    top_p: Any = None
    seed: Any = None
    processors: Sequence = ()

    def __post_init__(self):
        object.__setattr__(self, "processors", tuple(self.processors))
        require("max_new_tokens", self.max_new_tokens, lambda n: n >= 1, "must be at least 1")
        require("beam_size", self.beam_size, lambda n: n >= 1, "must be at least 1")
        self._warpers()  # each refuses what it cannot be
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

    def decoder(self, model, stop, pad_id=0):
        """The `Decoder` or `BeamSearch` that decodes from `model` in this way."""
        common = {"stop": stop, "pad_id": pad_id}
        if self.beam_size > 1:
            common["processors"] = self.processors
            return BeamSearch(model, self.max_new_tokens, self.beam_size, self.length_penalty, **common)
        sampler = Sample(self.seed) if self.samples else greedy
        return Decoder(model, self.max_new_tokens, sampler, (*self.processors, *self._warpers()), **common)

    def _warpers(self):
        makers = {"temperature": Temperature, "top_k": TopK, "top_p": TopP}
        return [make(self.numbers[name]) for name, make in makers.items() if name in self.numbers]
