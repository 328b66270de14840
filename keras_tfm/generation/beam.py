"""Beam search: it looks for the likeliest sequence, not for the likeliest next token.

Scores, length penalty and early stopping are defined as in transformers 5.23, and give equal results. The
score of a sequence is sum(log p) / n^`length_penalty`, where n counts its generated tokens, the end token
included. A beam that has ended leaves the running beams, and its score does not change any more.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_tfm.generation.loop import read_prompts
from keras_tfm.generation.processors import Written, process
from keras_tfm.generation.stopping import EndTokens, StopSequences
from keras_tfm.layers.cache import map_rows, repeat_rows
from keras_tfm.layers.signatures import Decodes

LOW = -1e9  # below any score


class Beams(NamedTuple):
    """What the loop carries for W beams per prompt: the running beams, and the best ended beams.

    `written` and the cache have B W rows. `scores` (B, W) are sums of log p of the running beams. `ended`
    (B, W, L), `ended_scores` (B, W) and `is_ended` (B, W) are the results so far. A prompt where
    `can_improve` (B, 1) is True goes on; the loop goes on while `goes_on` () is True.
    """

    written: Written
    scores: Any
    stop: Any
    cache: Any
    ended: Any
    ended_scores: Any
    is_ended: Any
    can_improve: Any
    goes_on: Any


class BeamSearch:
    """Decodes from `model` with `beam_size` beams; the other arguments are as in `Decoder`.

    Beams share keys, values and contexts, and are reordered through their masks; see `KeyValueCache`.

    Args:
        beam_size: W, the number of beams per prompt.
        length_penalty: above 1 it favours longer sequences, below 1 shorter ones.
        early_stopping: when a prompt is finished. True: as soon as `beam_size` sequences have ended. False:
            when no running beam would beat them at its present length. "never": when none would at the
            length that is best for it.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> search = keras_tfm.generation.BeamSearch(model, max_new_tokens=2, beam_size=2)
    >>> search(np.array([[5, 6, 7]])).shape
    TensorShape([1, 5])
    """

    def __init__(
        self,
        model: Decodes,
        max_new_tokens: int,
        beam_size: int,
        length_penalty: float = 1.0,
        early_stopping: bool | str = False,
        processors: Sequence[Callable] = (),
        stop: EndTokens | StopSequences | None = None,
        pad_id: int = 0,
    ) -> None:
        if beam_size < 1:
            raise ValueError(f"`beam_size` must be at least 1; it is {beam_size}.")
        if not isinstance(early_stopping, bool) and early_stopping != "never":
            raise ValueError(f'`early_stopping` must be True, False or "never"; it is {early_stopping!r}.')
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.early_stopping = early_stopping
        self.processors = processors
        self.stop = stop or EndTokens()
        self.pad_id = pad_id

    def __call__(self, token_ids, padding_mask=None, context=None):
        """Each prompt and its best continuation: (B, P + max_new_tokens)."""
        return self.search(token_ids, padding_mask, context)[0][:, 0]

    def search(self, token_ids, padding_mask=None, context=None):
        """All W sequences of each prompt, the best first, and their scores: (B, W, L) and (B, W)."""
        beams = self.start(token_ids, padding_mask, context)
        beams = Beams(*ops.while_loop(lambda *beams: Beams(*beams).goes_on, self._step, beams))
        return beams.ended, beams.ended_scores

    def start(self, token_ids, padding_mask=None, context=None):
        """The beams after reading the prompts; of each prompt's W equal beams only the first counts yet."""
        width = self.beam_size
        written, cache = read_prompts(
            self.model, token_ids, padding_mask, context, self.max_new_tokens, self.pad_id
        )
        written, cache = repeat_rows((written, cache), width)
        num_rows = ops.shape(written.token_ids)[0]
        shape = (num_rows // width, width)
        return Beams(
            written,
            ops.broadcast_to(ops.where(ops.arange(width) == 0, 0.0, LOW), shape),
            self.stop.start(num_rows),
            cache,
            ops.reshape(written.token_ids, (*shape, ops.shape(written.token_ids)[1])),
            ops.full(shape, LOW),
            ops.zeros(shape, "bool"),
            ops.ones((shape[0], 1), "bool"),
            ops.convert_to_tensor((shape[0] > 0) & (self.max_new_tokens > 0)),
        )

    def _step(self, *beams):
        beams = Beams(*beams)
        written, width = beams.written, self.beam_size
        num_prompts = ops.shape(beams.scores)[0]
        logits, cache = self.model.step(written.last, beams.cache)
        scores = process(ops.log_softmax(ops.cast(logits[:, -1], "float32")), written, self.processors)
        size = scores.shape[-1]
        scores = ops.reshape(scores, (num_prompts, width, size)) + beams.scores[:, :, None]

        # At least twice as many candidates as beams, so that `width` of them can go on if the others end.
        num_candidates = min(max(2, 1 + self.stop.num_ends) * width, width * size)
        scores, choice = ops.top_k(ops.reshape(scores, (num_prompts, width * size)), num_candidates)
        rows = choice // size + width * ops.arange(num_prompts, dtype="int32")[:, None]  # (B, C) of B W
        flat = ops.reshape(rows, (-1,))
        candidates = map_rows(lambda x: ops.take(x, flat, axis=0), written)
        candidates = candidates.append(ops.reshape(choice % size, (-1,)))
        stop = map_rows(lambda x: ops.take(x, flat, axis=0), beams.stop)
        stop, ends = self.stop.advance(stop, ops.reshape(choice % size, (-1,)))
        is_last = candidates.num_new >= self.max_new_tokens
        ends = ops.reshape(ends, (num_prompts, num_candidates)) | is_last

        running_scores, running = ops.top_k(scores + ops.where(ends, LOW, 0.0), width)  # (B, W) of C
        first = num_candidates * ops.arange(num_prompts, dtype="int32")[:, None]
        chosen = ops.reshape(running + first, (-1,))
        source = ops.take(flat, chosen, axis=0)
        beams = beams._replace(
            written=map_rows(lambda x: ops.take(x, chosen, axis=0), candidates),
            scores=running_scores,
            stop=map_rows(lambda x: ops.take(x, chosen, axis=0), stop),
            cache=map_rows(lambda x: ops.take(x, source, axis=0), cache),
        )
        return self._decide(self._collect(beams, candidates, scores, ends), ends)

    def _collect(self, beams, candidates, scores, ends):
        """Let candidates that end, among the `width` best, compete with the sequences that ended before."""
        width = self.beam_size
        ends = ends & (ops.arange(ends.shape[1]) < width)
        is_full = ops.all(beams.is_ended, axis=1, keepdims=True) & (self.early_stopping is True)
        counts = ends & beams.can_improve & ~is_full
        length = ops.cast(candidates.num_new, "float32")
        scores = ops.where(counts, scores / length**self.length_penalty, LOW)
        sequences = ops.reshape(candidates.token_ids, (*ops.shape(scores), -1))
        ended_scores, best = ops.top_k(ops.concatenate([beams.ended_scores, scores], axis=1), width)
        ended = ops.concatenate([beams.ended, sequences], axis=1)
        is_ended = ops.concatenate([beams.is_ended, counts], axis=1)
        return beams._replace(
            ended=ops.take_along_axis(ended, best[:, :, None], axis=1),
            ended_scores=ended_scores,
            is_ended=ops.take_along_axis(is_ended, best, axis=1),
        )

    def _decide(self, beams, ends):
        """Decide which prompts go on: a prompt goes on if its running beams could still beat its worst ended
        one.
        """
        num_new = self.max_new_tokens if self._counts_final_length else beams.written.num_new
        best = beams.scores[:, :1] / ops.cast(num_new, "float32") ** self.length_penalty
        worst = ops.min(beams.ended_scores, axis=1, keepdims=True)
        has_all = ops.all(beams.is_ended, axis=1, keepdims=True)
        can_improve = beams.can_improve & (~has_all | (best > worst))
        wants_more = ops.any(~has_all) if self.early_stopping is True else True
        goes_on = ops.any(can_improve) & wants_more & ~ops.all(ends)
        return beams._replace(can_improve=can_improve, goes_on=goes_on)

    @property
    def _counts_final_length(self):
        return self.early_stopping == "never" and self.length_penalty > 0
