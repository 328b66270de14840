"""Decoding: from a model's logits to sequences."""

from keras_tfm.generation.beam import BeamSearch
from keras_tfm.generation.contrastive import ContrastiveSearch
from keras_tfm.generation.loop import CompiledDecoding, Decoder
from keras_tfm.generation.options import DecodingOptions
from keras_tfm.generation.processors import (
    ForcedTokens,
    MinNewTokens,
    MinP,
    NoRepeatNGram,
    RepetitionPenalty,
    Suppress,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from keras_tfm.generation.samplers import Sample, greedy
from keras_tfm.generation.scheduled import ScheduledSampling
from keras_tfm.generation.speculative import SpeculativeDecoder
from keras_tfm.generation.stopping import EndTokens, StopSequences
