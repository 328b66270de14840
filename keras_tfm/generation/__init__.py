"""Decoding: from a model's logits to sequences; and sampling: from noise to images.

`DecodingOptions` says how to decode, and makes a `Decoder` (greedy or sampling), a `BeamSearch` or a
`ContrastiveSearch`; `DecodingDefaults` are what a published checkpoint brings along. Processors change the
logits, samplers choose a token, `EndTokens` and `StopSequences` say where a sequence ends.

Diffusion models are sampled by `denoise`, along a `trajectory` of `DDIM`, `DDPM` or `DPMSolver` steps.
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.generation.beam import BeamSearch
    from keras_tfm.generation.biases import LengthDecay, Renormalize, SequenceBias, SuppressFirst
    from keras_tfm.generation.contrastive import ContrastiveSearch
    from keras_tfm.generation.defaults import DecodingDefaults
    from keras_tfm.generation.diffusion import (
        DDIM,
        DDPM,
        DPMSolver,
        Trajectory,
        clip,
        continuous_trajectory,
        denoise,
        dynamic_threshold,
        generate_images,
        normal_noise,
        posterior,
        predictor,
        timesteps,
        trajectory,
    )
    from keras_tfm.generation.guidance import Guided
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
    from keras_tfm.generation.stepwise import Stepwise
    from keras_tfm.generation.stopping import EndTokens, StopSequences
    from keras_tfm.generation.windows import write_grid
else:
    on_demand.begin(globals())
