"""Speculative decoding: a small model drafts several tokens, the large one checks them all in one step.

Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative Decoding", for greedy
decoding. The result is what the large model alone would write, in fewer steps where the draft is often
right. All rows of a batch advance together, by the number of tokens that all of them accept.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops, tree

from keras_tfm.generation.loop import read_prompts
from keras_tfm.generation.processors import Written, process
from keras_tfm.generation.samplers import greedy
from keras_tfm.generation.stopping import EndTokens, StopSequences
from keras_tfm.layers.cache import rewind
from keras_tfm.layers.signatures import Decodes

NUM_DRAFTED = 4  # the default


class Race(NamedTuple):
    """What the loop carries; `num_rounds` () counts the steps of the large model."""

    written: Written
    finished: Any
    stop: Any
    cache: Any
    draft_cache: Any
    num_rounds: Any


class SpeculativeDecoder:
    """Greedy decoding from `model`, for which `draft`, a smaller model, proposes `num_drafted` tokens at a
    time.

    The other arguments are as in `Decoder`. Both models need `num_drafted` positions more than the prompt and
    the new tokens. Their caches must be able to go back, which the state of a recurrent network cannot.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> decode = keras_tfm.generation.SpeculativeDecoder(model, draft=model, max_new_tokens=3, num_drafted=2)
    >>> decode(np.array([[5, 6, 7]])).shape
    TensorShape([1, 6])
    """

    def __init__(
        self,
        model: Decodes,
        draft: Decodes,
        max_new_tokens: int,
        num_drafted: int = NUM_DRAFTED,
        processors: Sequence[Callable] = (),
        stop: EndTokens | StopSequences | None = None,
        pad_id: int = 0,
    ) -> None:
        if num_drafted < 1:
            raise ValueError(f"`num_drafted` must be at least 1; it is {num_drafted}.")
        self.model = model
        self.draft = draft
        self.max_new_tokens = max_new_tokens
        self.num_drafted = num_drafted
        self.processors = processors
        self.stop = stop or EndTokens()
        self.pad_id = pad_id

    def __call__(self, token_ids, padding_mask=None, context=None):
        """Prompts and continuations: (B, P + max_new_tokens)."""
        return self.race(token_ids, padding_mask, context)[0]

    def race(self, token_ids, padding_mask=None, context=None):
        """Prompts and continuations (B, L), and how many steps the large model took, ()."""
        room = self.max_new_tokens + self.num_drafted  # the last draft may exceed `max_new_tokens`
        written, cache = read_prompts(self.model, token_ids, padding_mask, context, room, self.pad_id)
        _, draft_cache = read_prompts(self.draft, token_ids, padding_mask, context, room, self.pad_id)
        num_rows, length = ops.shape(written.token_ids)
        start = Race(
            written,
            ops.zeros((num_rows,), "bool"),
            self.stop.start(num_rows),
            cache,
            draft_cache,
            ops.zeros((), "int32"),
        )

        def goes_on(*race):
            race = Race(*race)
            return (race.written.num_new < self.max_new_tokens) & ~ops.all(race.finished)

        race = Race(*ops.while_loop(goes_on, self._round, start))
        return race.written.token_ids[:, : length - self.num_drafted], race.num_rounds

    def _round(self, written, finished, stop, cache, draft_cache, num_rounds):
        """Draft, check, and keep the tokens up to the first that any row would have chosen differently."""
        drafted, draft_cache = self._draft(written, draft_cache)
        num_rows, num_columns = ops.shape(finished)[0], self.num_drafted + 1
        questions = ops.slice(drafted.token_ids, (0, written.length - 1), (num_rows, num_columns))
        logits, cache = self.model.step(questions, cache)  # (B, G + 1, V)
        answers, accepted = [], ~ops.zeros((), "bool")
        kept, count = written, ops.zeros((), "int32")
        for i in range(num_columns):
            # If all drafts so far were right, the model read the true tokens up to column i.
            answer = greedy(process(logits[:, i], kept, self.processors), kept.num_new)
            answers.append(ops.where(finished, self.pad_id, answer))
            next_stop, is_last = self.stop.advance(stop, answers[-1])
            appended = kept.append(answers[-1])
            kept = _choose(accepted, appended, kept)
            stop, finished = _choose(accepted, (next_stop, finished | is_last), (stop, finished))
            count = count + ops.cast(accepted, "int32")
            if i < self.num_drafted:
                accepted = accepted & ops.all((questions[:, i + 1] == answer) | finished)
        back = num_columns - count
        return Race(kept, finished, stop, rewind(cache, back), rewind(draft_cache, back), num_rounds + 1)

    def _draft(self, written, cache):
        """What the small model would write, and its cache after reading all of it."""
        for _ in range(self.num_drafted):
            logits, cache = self.draft.step(written.last, cache)
            logits = process(logits[:, -1], written, self.processors)
            written = written.append(greedy(logits, written.num_new))
        _, cache = self.draft.step(written.last, cache)
        return written, cache


def _choose(condition, x, y):
    """`x` if the scalar `condition` is True, else `y`, for every tensor of two nested structures."""
    return tree.map_structure(lambda x, y: ops.where(condition, x, y), x, y)
