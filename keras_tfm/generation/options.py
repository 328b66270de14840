"""How a user asks for decoding: options that are checked, and the decoder that they make."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Self

from keras import ops

from keras_tfm.configs import Field, FieldError, Refusal
from keras_tfm.generation.beam import BeamSearch
from keras_tfm.generation.biases import LengthDecay, Renormalize, SequenceBias, SuppressFirst
from keras_tfm.generation.contrastive import ContrastiveSearch
from keras_tfm.generation.loop import Decoder, draw_seed
from keras_tfm.generation.processors import (
    MINUS_INFINITY,
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
    as_ids,
    require,
)
from keras_tfm.generation.samplers import Sample, greedy
from keras_tfm.generation.speculative import NUM_DRAFTED, SpeculativeDecoder
from keras_tfm.generation.stopping import EndTokens

CANDIDATES = 4  # the default for contrastive search
# The fields that change the distribution which is sampled, in the order in which they do.
DISTRIBUTION = {
    "temperature": Temperature, "top_k": TopK, "top_p": TopP, "min_p": MinP, "typical_p": Typical,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """How to decode: greedily by default, by beam search, by sampling or by contrastive search.

    Any of `temperature`, `top_k`, `top_p`, `min_p`, `typical_p` and `seed`, which may be tensors, turns
    sampling on. The logits pass, in this order, `sequence_bias`, `prompt_repetition_penalty`,
    `repetition_penalty`, `no_repeat_ngram_size`, `prompt_no_repeat_ngram_size`, `forbidden_sequences`,
    `min_new_tokens`, the forced tokens, `length_decay`, the suppressed tokens, the `processors`, then
    temperature, top-k, top-p, min-p and typical-p, and `renormalize`.

    Args:
        max_new_tokens: how many tokens are generated at most.
        beam_size: above 1 for beam search; for `length_penalty` and `early_stopping` see `BeamSearch`.
        temperature: divides the logits; see `Temperature`, and `TopK`, `TopP`, `MinP` and `Typical` for
            `top_k`, `top_p`, `min_p` and `typical_p`.
        seed: None draws one at each call from Keras's global generator, which `keras.utils.set_random_seed`
            sets.
        contrastive_alpha: in [0, 1], for contrastive search among the `top_k` likeliest tokens, by default
            4.
        repetition_penalty: see `RepetitionPenalty`.
        no_repeat_ngram_size: see `NoRepeatNGram`; 0 for none.
        min_new_tokens: how many tokens come before an end token at least.
        forced_first_id: the first generated token.
        forced_last_ids: the last token, where `max_new_tokens` are reached, is one of these.
        suppressed_ids: tokens that are never generated.
        sequence_bias: (ids, number) for each sequence whose last token gets this number; see `SequenceBias`.
        forbidden_sequences: sequences of ids that are never completed; an end token alone is not forbidden.
        prompt_repetition_penalty: above 1, tokens of the prompt become likelier by it, or tokens of the
            source if the model's encoder reads tokens.
        prompt_no_repeat_ngram_size: how many tokens in a row of the prompt, or source, are not repeated; 0
            for none.
        length_decay: (start, factor) of `LengthDecay`.
        first_suppressed_ids: tokens that do not come first, after `forced_first_id`.
        renormalize: whether scores are log-probabilities again after all processors.
        draft: a small model of the same tokens, for a `SpeculativeDecoder`: what is written is what greedy
            decoding writes. Both models need room for 4 tokens more.
        processors: further processors, `processor(logits, written) -> logits`.

    Raises:
        ValueError: for an impossible value, naming the field, and for options that exclude each other.

    >>> options = keras_tfm.generation.DecodingOptions(max_new_tokens=5, top_p=0.9, seed=1)
    >>> options.samples
    True
    """

    max_new_tokens: int
    beam_size: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    temperature: Any = None
    top_k: Any = None
    top_p: Any = None
    min_p: Any = None
    typical_p: Any = None
    seed: Any = None
    contrastive_alpha: float | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    forced_first_id: int | None = None
    forced_last_ids: Sequence[int] = ()
    suppressed_ids: Sequence[int] = ()
    sequence_bias: Sequence[tuple[tuple[int, ...], float]] = ()
    forbidden_sequences: Sequence[tuple[int, ...]] = ()
    prompt_repetition_penalty: float = 1.0
    prompt_no_repeat_ngram_size: int = 0
    length_decay: tuple[int, float] | None = None
    first_suppressed_ids: Sequence[int] = ()
    renormalize: bool = False
    draft: Any = None
    processors: Sequence = ()

    def __post_init__(self):
        for name in ("max_new_tokens", "beam_size"):
            require(name, getattr(self, name), lambda n: n >= 1, "must be at least 1", whole=True)
        for name in ("min_new_tokens", "no_repeat_ngram_size", "prompt_no_repeat_ngram_size"):
            require(name, getattr(self, name), lambda n: n >= 0, "must be at least 0", whole=True)
        require("length_penalty", self.length_penalty)
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise Refusal("early_stopping", 'True, False or "never"', f"{self.early_stopping!r}")
        for name in ("forced_last_ids", "suppressed_ids", "first_suppressed_ids"):
            object.__setattr__(self, name, as_ids(name, getattr(self, name)))
        forbidden = tuple(as_ids("forbidden_sequences", ids) for ids in self.forbidden_sequences)
        if not all(forbidden):
            raise ValueError("`forbidden_sequences` must have one token or more each; one has none.")
        object.__setattr__(self, "forbidden_sequences", forbidden)
        object.__setattr__(self, "sequence_bias", SequenceBias(self.sequence_bias).biases)
        if self.length_decay is not None:
            object.__setattr__(self, "length_decay", tuple(self.length_decay))
        if self.forced_first_id is not None:
            as_ids("forced_first_id", self.forced_first_id)
            if self.forced_first_id in self.suppressed_ids:
                expected = f"without {self.forced_first_id}, the `forced_first_id`"
                raise Refusal("suppressed_ids", expected, self.suppressed_ids)
        object.__setattr__(self, "processors", tuple(self.processors))
        if not all(map(callable, self.processors)):
            raise ValueError(f"`processors` must be callables; they are {self.processors}.")
        # The objects made of the other fields check their values.
        list(self._constraints(EndTokens()))
        self._distribution_processors()
        if self.contrastive_alpha is not None:
            self._check_contrastive()
        if self.draft is not None and (
            self.samples or self.beam_size > 1 or self.contrastive_alpha is not None
        ):
            raise FieldError(
                "Only greedy decoding takes {draft}: give no beams, no numbers of sampling, no contrast."
            )
        if self.seed is not None:
            Sample(self.seed)
        if self.samples and self.beam_size > 1:
            raise FieldError(
                f"Beam search does not sample: give {{beam_size}}, or {listed(DISTRIBUTION)} or {{seed}}."
            )

    @property
    def numbers(self):
        """The numbers that may change from call to call of one compiled function: {name: value}.

        A seed of None is still to be drawn.
        """
        names = (*DISTRIBUTION, "seed")
        values = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**values, "seed": self.seed} if values and self.contrastive_alpha is None else {}

    @property
    def samples(self):
        """Whether tokens are drawn at random."""
        return bool(self.numbers)

    @property
    def room(self):
        """How many positions behind a prompt decoding needs."""
        return self.max_new_tokens + num_spare(self.draft)

    def within(self, size: int) -> Self:
        """These options; ValueError if they name ids outside a vocabulary of `size` tokens, or more beams."""
        if self.beam_size > size:
            raise Refusal("beam_size", f"at most {size}, the vocabulary", self.beam_size)
        sequences = {
            "forced_first_id": () if self.forced_first_id is None else [[self.forced_first_id]],
            "forced_last_ids": [self.forced_last_ids],
            "suppressed_ids": [self.suppressed_ids],
            "first_suppressed_ids": [self.first_suppressed_ids],
            "forbidden_sequences": self.forbidden_sequences,
            "sequence_bias": [ids for ids, _ in self.sequence_bias],
        }
        for name, several in sequences.items():
            for token_id in itertools.chain.from_iterable(several):
                if token_id >= size:
                    raise FieldError("{} must lie in [0, {}); it has {}.", Field(name), size, token_id)
        return self

    def reseeded(self, first: int) -> Self:
        """The options for the batch that begins with row `first`, with a seed of its own: draws depend on the
        seed and on the row within the batch alone.
        """
        if self.seed is None or not first:
            return self
        return dataclasses.replace(self, seed=(self.seed + first) % 2**31)

    def decoder(self, model, stop=None, pad_id=0):
        """The `Decoder`, `BeamSearch`, `ContrastiveSearch` or `SpeculativeDecoder` for `model` with these
        options.
        """
        stop = stop or EndTokens()
        processors = (*self._constraints(stop), *self.processors)
        last = (Renormalize(),) if self.renormalize else ()
        common = {"stop": stop, "pad_id": pad_id}
        if self.beam_size > 1:
            search = self.beam_size, self.length_penalty, self.early_stopping, (*processors, *last)
            return BeamSearch(model, self.max_new_tokens, *search, **common)
        if self.contrastive_alpha is not None:
            alpha, k = self.contrastive_alpha, self.top_k or CANDIDATES
            return ContrastiveSearch(model, self.max_new_tokens, alpha, k, (*processors, *last), **common)
        if self.draft is not None:
            drafts = self.draft, self.max_new_tokens, NUM_DRAFTED
            return SpeculativeDecoder(model, *drafts, (*processors, *last), **common)
        sampler = Sample(draw_seed() if self.seed is None else self.seed) if self.samples else greedy
        processors = (*processors, *self._distribution_processors(), *last)
        return Decoder(model, self.max_new_tokens, sampler, processors, **common)

    def _constraints(self, stop):
        """The processors that the plain fields ask for, in transformers' order."""
        if self.sequence_bias:
            yield SequenceBias(self.sequence_bias)
        if self.prompt_repetition_penalty != 1:
            require(
                "prompt_repetition_penalty",
                self.prompt_repetition_penalty,
                lambda x: x > 0,
                "must be above 0",
            )
            yield RepetitionPenalty(1 / self.prompt_repetition_penalty, prompt_only=True)
        if self.repetition_penalty != 1:
            yield RepetitionPenalty(self.repetition_penalty)
        if self.no_repeat_ngram_size:
            yield NoRepeatNGram(self.no_repeat_ngram_size)
        if self.prompt_no_repeat_ngram_size:
            yield NoRepeatNGram(self.prompt_no_repeat_ngram_size, prompt_only=True)
        if forbidden := allowed_to_end(self.forbidden_sequences, stop.end_ids):
            yield SequenceBias((ids, MINUS_INFINITY) for ids in forbidden)
        if self.min_new_tokens:
            yield MinNewTokens(self.min_new_tokens, stop.end_ids)
        if self.forced_first_id is not None:
            yield ForcedTokens([self.forced_first_id])
        if self.forced_last_ids:
            yield ForcedTokens([self.forced_last_ids], first=self.max_new_tokens - 1)
        if self.length_decay is not None:
            yield LengthDecay(*self.length_decay, stop.end_ids)
        if self.suppressed_ids:
            yield Suppress(self.suppressed_ids)
        if self.first_suppressed_ids:
            yield SuppressFirst(self.first_suppressed_ids, number=int(self.forced_first_id is not None))

    def _check_contrastive(self):
        alpha, k = self.contrastive_alpha, self.top_k
        require("contrastive_alpha", alpha, lambda alpha: 0 <= alpha <= 1, "must lie in [0, 1]")
        if ops.is_tensor(k):
            raise Refusal("top_k", "a plain number for contrastive search", k)
        others = [name for name in (*DISTRIBUTION, "seed") if name != "top_k"]
        if self.beam_size > 1 or any(getattr(self, name) is not None for name in others):
            names = f"{listed(others[:-1])} or {listed(others[-1:])}"
            raise FieldError(f"Contrastive search takes {{top_k}} only: no {{beam_size}}, {names}.")

    def _distribution_processors(self):
        values = [(make, getattr(self, name)) for name, make in DISTRIBUTION.items()]
        return [make(value) for make, value in values if value is not None]


def num_spare(draft):
    """How many positions decoding with a `draft`, or None, needs besides the new tokens."""
    return 0 if draft is None else NUM_DRAFTED


def listed(names):
    """The fields of these names in the text of a `FieldError`."""
    return ", ".join(f"{{{name}}}" for name in names)


def allowed_to_end(sequences, end_ids):
    """`sequences` of ids without the end tokens that stand alone."""
    return tuple(ids for ids in sequences if len(ids) > 1 or ids[0] not in end_ids)
