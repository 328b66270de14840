"""What writes the texts of exported tasks: the loop around a step of a runtime, or CTranslate2."""

import functools
from typing import Any, NamedTuple

import numpy as np

from .decoding import StepDecoder, rows_of
from .packages import imported
from .runtimes import RUNTIMES

NO_PENALTY = 1e-30  # a length penalty of exactly 0 would make CTranslate2 end a search earlier


class Decoding(NamedTuple):
    """What an export for CTranslate2 says of its model.

    Args:
        has_source: whether it is an encoder-decoder, whose target begins with `prefix`; otherwise its rows
            are prompts.
        end: the ids that end a text.
        beam_size, length_penalty, max_new_tokens, min_new_tokens: how it decodes.
        suppressed: the ids that are never written.
    """

    has_source: bool
    prefix: list[int]
    end: list[int]
    beam_size: int
    length_penalty: float
    max_new_tokens: int
    min_new_tokens: int
    suppressed: list[int]


class Decoder:
    """The model in the folder "model", by CTranslate2 on the CPU; `decoding` are the arguments of `Decoding`.

    Each thread decodes rows of its own. Threads that share each product of a step take longer than one
    alone, for models up to the size of GPT-2 at least: five times as long for a small translator.
    """

    entries, most_rows, widths = Decoding, None, None

    def __init__(self, folder, threads, **decoding):
        self._decoding = said = Decoding(**decoding)
        library = imported("ctranslate2", "ctranslate2")
        kind = library.Translator if said.has_source else library.Generator
        try:
            self._model = kind(str(folder / "model"), device="cpu", inter_threads=threads, intra_threads=1)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"{folder / 'model'}: ctranslate2 cannot read it: {reason}") from None
        self._threads = threads
        self._options = {
            "beam_size": said.beam_size,
            "length_penalty": said.length_penalty or NO_PENALTY,
            "end_token": as_tokens(said.end),
            "return_end_token": True,  # it counts in the length that a score is divided by
        }
        if said.suppressed:
            self._options["suppress_sequences"] = [[token] for token in as_tokens(said.suppressed)]

    def __call__(self, inputs):
        """The ids that are written for each row of the `inputs`, with the end token."""
        tokens, said = list(map(as_tokens, rows_of(inputs))), self._decoding
        if said.has_source:
            results = self._model.translate_batch(
                tokens,
                [as_tokens(said.prefix)] * len(tokens) if said.prefix else None,
                max_input_length=0,
                max_decoding_length=said.max_new_tokens,
                min_decoding_length=said.min_new_tokens,
                max_batch_size=self._share(len(tokens)),
                **self._options,
            )
            return [list(map(int, result.hypotheses[0])) for result in results]
        # CTranslate2 treats the surplus of the longer of two prompts as forced tokens, which its beam search
        # handles in another way: prompts of one length share a call.
        found: list[list[int]] = [[] for _ in tokens]
        for length in sorted(set(map(len, tokens))):
            places = [place for place, row in enumerate(tokens) if len(row) == length]
            results = self._model.generate_batch(
                [tokens[place] for place in places],
                max_length=said.max_new_tokens,
                min_length=said.min_new_tokens,
                include_prompt_in_result=False,
                max_batch_size=self._share(len(places)),
                **self._options,
            )
            for place, result in zip(places, results, strict=True):
                found[place] = list(result.sequences_ids[0])
        return found

    def _share(self, count):
        """How many of `count` rows a thread decodes at once."""
        return -(-count // self._threads)

    def score(self, inputs, target):
        """See `StepDecoder.score`."""
        (row,), target = map(as_tokens, rows_of(inputs)), as_tokens(target)
        if self._decoding.has_source:
            (result,) = self._model.score_batch([row], [target], max_input_length=0)
            return np.array(result.log_probs[: len(target)], "float32")
        (result,) = self._model.score_batch([row + target], max_input_length=0)
        first = len(row) - 1  # the first token of a row has no score
        return np.array(result.log_probs[first : first + len(target)], "float32")


def as_tokens(ids):
    """CTranslate2 takes strings: the vocabulary of an export is "0", "1", "2", ..."""
    return list(map(str, ids))


DECODERS: dict[str, Any] = {
    "ctranslate2": Decoder,
    **{name: functools.partial(StepDecoder, runtime) for name, runtime in RUNTIMES.items()},
}
