"""Exported tasks that write texts: translations, summaries, captions, continuations of prompts."""

import functools
from typing import Any, Literal, NamedTuple

import numpy as np

from .decoding import StepDecoder
from .entries import check, checked, chosen
from .examples import Refused, check_batch_size, listed, refuse_rows
from .files import NAME
from .packages import imported
from .readers import Images, Prompts
from .runtimes import RUNTIMES
from .tokens import Spelling

NO_PENALTY = 1e-30  # a length penalty of exactly 0 would make CTranslate2 end a search earlier


class Writer:
    """A task that writes texts: `served(examples)` gives {"text": array of strings}, as its SavedModel would.

    Examples are strings or, for captions, arrays or the paths or bytes of image files. `served.run(rows)`
    maps lists of token ids, or images, to lists of the ids that are written, with the end token; the rows of
    examples are `served.read(examples)`.
    """

    def __init__(self, folder, description, threads=1):
        self.description = description
        read, reads = chosen(folder, READERS, description.get("reads"), "reads")
        spelling = checked(folder, Spelling, description.get("spelling"), "spelling")
        check(folder, "format", description.get("format"), Literal[tuple(DECODERS)])
        check(folder, "repeats", description.get("repeats"), bool)
        decode, decoding = DECODERS[description["format"]], description.get("decoding")
        checked(folder, getattr(decode, "entries", decode), decoding, "decoding")
        self._reader, self._spell = read(folder, **reads), Spelling(folder, **spelling)
        self._decoder = decode(folder, threads, **decoding)
        self._repeats, self._path = description["repeats"], folder / NAME

    def __call__(self, examples, batch_size=32):
        """The answers to all `examples`: {"text": (B,)}."""
        check_batch_size(batch_size)
        examples = listed(examples)
        texts = [self._spell(ids) for ids in self.run(self.read(examples), batch_size)]
        if self._repeats:  # a continuation is answered with its prompt
            texts = [prompt + text for prompt, text in zip(examples, texts, strict=True)]
        # NumPy's own strings would lose a NUL at the end.
        return {"text": np.array(texts, object)} if texts else {}

    def read(self, examples):
        """Each of the `examples` as the model reads it: token ids, or an image."""
        read = self._reader.read(examples)
        refuse_rows({place: str(found) for place, found in enumerate(read) if isinstance(found, Refused)})
        return [row for (row,), _ in read]

    def run(self, rows, batch_size=32):
        """The ids that are written for each of the `rows`."""
        try:
            return self._decoder(rows, batch_size) if rows else []
        except (KeyError, IndexError, RuntimeError) as error:  # an input's name, an id, a runtime's own
            reason = " ".join(f"{error!r}".split())[:300]
            raise ValueError(f"{self._path}: what it says does not fit its model: {reason}") from None

    def score(self, rows, targets):
        """log p of each id of the `targets`, lists of ids, one for each of the `rows`: a list of arrays."""
        return self._decoder.score(rows, targets)


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

    entries = Decoding

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

    def __call__(self, rows, batch_size):
        tokens, said = list(map(as_tokens, rows)), self._decoding
        if said.has_source:
            results = self._model.translate_batch(
                tokens,
                [as_tokens(said.prefix)] * len(rows) if said.prefix else None,
                max_input_length=0,
                max_decoding_length=said.max_new_tokens,
                min_decoding_length=said.min_new_tokens,
                max_batch_size=self._share(len(rows), batch_size),
                **self._options,
            )
            return [list(map(int, result.hypotheses[0])) for result in results]
        # CTranslate2 treats the surplus of the longer of two prompts as forced tokens, which its beam search
        # handles in another way: prompts of one length share a call.
        found: list[list[int]] = [[] for _ in rows]
        for length in sorted({len(row) for row in rows}):
            places = [place for place, row in enumerate(rows) if len(row) == length]
            results = self._model.generate_batch(
                [tokens[place] for place in places],
                max_length=said.max_new_tokens,
                min_length=said.min_new_tokens,
                include_prompt_in_result=False,
                max_batch_size=self._share(len(places), batch_size),
                **self._options,
            )
            for place, result in zip(places, results, strict=True):
                found[place] = list(result.sequences_ids[0])
        return found

    def _share(self, count, batch_size):
        """How many of `count` rows a thread decodes at once."""
        return -(-min(batch_size, count) // self._threads)

    def score(self, rows, targets):
        """See `Writer.score`."""
        sides = list(map(as_tokens, rows)), list(map(as_tokens, targets))
        if self._decoding.has_source:
            results = self._model.score_batch(*sides, max_input_length=0)
            first = [0] * len(rows)
        else:
            results = self._model.score_batch(
                [row + target for row, target in zip(*sides, strict=True)], max_input_length=0
            )
            first = [len(row) - 1 for row in rows]  # the first token of a row has no score
        return [
            np.array(result.log_probs[start : start + len(target)], "float32")
            for result, start, target in zip(results, first, targets, strict=True)
        ]


def as_tokens(ids):
    """CTranslate2 takes strings: the vocabulary of an export is "0", "1", "2", ..."""
    return list(map(str, ids))


READERS: dict[str, Any] = {"prompts": Prompts, "images": Images}
DECODERS: dict[str, Any] = {
    "ctranslate2": Decoder,
    **{name: functools.partial(StepDecoder, runtime) for name, runtime in RUNTIMES.items()},
}
