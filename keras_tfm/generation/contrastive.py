"""Contrastive search: a likely token whose hidden state is unlike the states of the tokens before it.

Su et al. 2022, "A Contrastive Framework for Neural Text Generation", equation 5. Among the k likeliest tokens
v it takes the one that maximises

    (1 - alpha) p(v | x) - alpha max_j cos(h_v, h_xj)

where h_v is the model's last hidden state for v after x, and h_xj its last hidden state for token j of x.
With alpha 0 or k 1 it is greedy decoding.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_tfm.generation.loop import Loop, Progress, write_prompts
from keras_tfm.generation.processors import process, require
from keras_tfm.generation.stopping import EndTokens, StopSequences
from keras_tfm.layers.cache import map_rows, repeat_rows
from keras_tfm.layers.normalization import unit
from keras_tfm.layers.signatures import Tensor


class Memory(NamedTuple):
    """What contrastive search keeps, for R rows.

    `directions` (R, L, D) are the hidden states of the tokens so far, scaled to length 1; `last` (R, D) is
    the last one, unscaled; the `cache` has R k rows, k equal ones per sequence.
    """

    directions: Any
    last: Any
    cache: Any


class ContrastiveSearch(Loop):
    """Decodes from `model` by contrastive search; the other arguments are as in `Decoder`.

    Args:
        model: a `LanguageModel`, or another model whose `backbone` steps to hidden states and whose `head`
            makes logits of them. Each token, the last one too, needs a position of the model: a picture of
            N tokens that an `ImageGPT` or `ImageTransformer` writes lacks one for its last token.
        alpha: in [0, 1], how much likeness to the context counts against probability; the paper takes 0.6.
        k: how many candidates are compared, all in one step; the paper takes 3 to 10.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> decode = keras_tfm.generation.ContrastiveSearch(model, max_new_tokens=2)
    >>> decode(np.array([[5, 6, 7]])).shape
    TensorShape([1, 5])
    """

    def __init__(
        self,
        model: Any,
        max_new_tokens: int,
        alpha: float | Tensor = 0.6,
        k: int = 4,
        processors: Sequence[Callable] = (),
        stop: EndTokens | StopSequences | None = None,
        pad_id: int = 0,
    ) -> None:
        require("contrastive_alpha", alpha, lambda alpha: 0 <= alpha <= 1, "must lie in [0, 1]")
        require("top_k", k, lambda k: k >= 1, "must be at least 1", whole=True)
        if not (hasattr(model, "backbone") and hasattr(model, "head")):
            raise TypeError(
                f"`model` must have a `backbone` and a `head`; a {type(model).__name__} does not."
            )
        size = model.head.vocabulary_size
        require("top_k", k, lambda k: k <= size, f"must be at most {size}, the vocabulary")
        super().__init__(max_new_tokens, stop or EndTokens(), pad_id)
        self.model = model
        self.alpha = alpha
        self.k = k
        self.processors = processors

    def start(self, token_ids, padding_mask=None, context=None):
        """The progress after reading the prompts, in one step."""
        written = write_prompts(token_ids, padding_mask, self.max_new_tokens, self.pad_id, context)
        num_rows, width = ops.shape(written.token_ids)
        length = width - self.max_new_tokens
        cache = self.model.backbone.start(num_rows, width, context)
        most = getattr(self.model.backbone, "max_target_length", None)
        if most is not None and isinstance(width, int) and width > most:
            raise ValueError(
                f"Contrastive search reads all tokens, the last one too; the model has {most} positions: "
                f"after {length} tokens `max_new_tokens` must be at most {most - length}; "
                f"it is {self.max_new_tokens}."
            )
        hidden, cache = self.model.backbone.step(
            written.token_ids[:, :length], cache, written.mask[:, :length]
        )  # (R, P, D)
        directions = unit(ops.cast(hidden, "float32"))
        directions = ops.pad(directions, [[0, 0], [0, self.max_new_tokens], [0, 0]])  # (R, L, D)
        memory = Memory(directions, hidden[:, -1], repeat_rows(cache, self.k))
        return Progress(written, ops.zeros((num_rows,), "bool"), self.stop.start(num_rows), memory)

    def _step(self, written, finished, stop, memory):
        num_rows = ops.shape(finished)[0]
        logits = process(self.model.head(memory.last[:, None])[:, 0], written, self.processors)  # (R, V)
        probabilities, candidates = ops.top_k(ops.softmax(logits), self.k)  # (R, k)
        candidates = ops.cast(candidates, "int32")
        hidden, cache = self.model.backbone.step(ops.reshape(candidates, (-1, 1)), memory.cache)
        hidden = ops.reshape(hidden, (num_rows, self.k, hidden.shape[-1]))
        directions = unit(ops.cast(hidden, "float32"))  # (R, k, D)
        likeness = ops.einsum("rkd,rld->rkl", directions, memory.directions)
        likeness = ops.max(ops.where(written.mask[:, None], likeness, -1.0), axis=-1)  # (R, k)
        scores = (1 - self.alpha) * probabilities - self.alpha * likeness
        scores = ops.where(probabilities > 0, scores, float("-inf"))  # tokens that a processor forbids
        best = ops.argmax(scores, axis=-1)  # (R,)

        def chosen(x):
            index = ops.reshape(best, (-1, *[1] * (len(x.shape) - 1)))
            return ops.squeeze(ops.take_along_axis(x, index, axis=1), 1)

        token_ids = ops.where(finished, self.pad_id, chosen(candidates))
        stop, is_last = self.stop.advance(stop, token_ids)
        source = ops.repeat(ops.arange(num_rows) * self.k + ops.cast(best, "int32"), self.k, axis=0)
        memory = Memory(
            ops.slice_update(memory.directions, (0, written.length, 0), chosen(directions)[:, None]),
            chosen(hidden),
            map_rows(lambda x: ops.take(x, source, axis=0), cache),
        )
        return Progress(written.append(token_ids), finished | is_last, stop, memory)
