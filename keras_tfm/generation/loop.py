"""The decoding loop: a `while_loop` around a model's `start` and `step`, traced once.

This is all that decoding knows of a model, be it an encoder-decoder, decoder-only or recurrent:

    cache = model.start(batch_size, max_length, context)           context: {"token_ids", ...} or None
    logits, cache = model.step(token_ids, cache, padding_mask)     (B, T) -> (B, T, V)

A cache is any nested structure of tensors whose shapes do not change from step to step;
`keras_tfm.layers.cache` describes its tensors. Each row begins with a prompt; an encoder-decoder's prompt is
its start token. Prompts of different lengths are padded on the left.

Everything can be compiled by XLA (`tf.function(jit_compile=True)`), which is the fast way on CPUs too.
"""

import abc
import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops, random

from keras_tfm.generation.processors import Written, process
from keras_tfm.generation.samplers import greedy
from keras_tfm.generation.stopping import EndTokens, StopSequences
from keras_tfm.jit import jit_compile
from keras_tfm.layers.signatures import Decodes

MOST_FUNCTIONS = 128  # compiled functions that a `CompiledDecoding` keeps


class Progress(NamedTuple):
    """What the loop carries: the rows so far, which of them have ended, the state of `stop`, the cache."""

    written: Written
    finished: Any
    stop: Any
    cache: Any


class Loop(abc.ABC):
    """Decoding token by token, until `stop` ends each row or `max_new_tokens` are generated. Abstract.

    A subclass reads the prompts (B, P) in `start`, and adds one token in `_step`. Prompts are padded on the
    left, where `padding_mask` is False; `context` is for models that attend to one. After its end a row is
    filled with `pad_id`.
    """

    def __init__(self, max_new_tokens: int, stop: EndTokens | StopSequences, pad_id: int) -> None:
        self.max_new_tokens = max_new_tokens
        self.stop = stop
        self.pad_id = pad_id

    @abc.abstractmethod
    def start(self, token_ids, padding_mask=None, context=None):
        """The `Progress` after reading the prompts."""

    @abc.abstractmethod
    def _step(self, written, finished, stop, cache):
        """The `Progress` one token later."""

    def __call__(self, token_ids, padding_mask=None, context=None):
        """Prompts and continuations: (B, P + max_new_tokens)."""
        return self.advance(self.start(token_ids, padding_mask, context)).written.token_ids

    def advance(self, progress, count=None):
        """The `Progress` up to `count` tokens later, by default at the end."""
        most = self.max_new_tokens
        limit = most if count is None else ops.minimum(progress.written.num_new + count, most)

        def goes_on(*progress):
            progress = Progress(*progress)
            return (progress.written.num_new < limit) & ~tf.reduce_all(progress.finished)

        return Progress(*tf.while_loop(goes_on, self._step, progress, parallel_iterations=1))

    def stream(self, token_ids, padding_mask=None, context=None):
        """Yield the generated tokens (B,) one by one, as NumPy arrays, until every row has ended."""
        start, advance = self._compiled
        yield from each_token(start(token_ids, padding_mask, context), advance, self)

    @functools.cached_property
    def _compiled(self):
        """`start`, and `advance` by one token, compiled."""
        functions = self.start, lambda progress: self.advance(progress, 1)
        return [tf.function(f, autograph=False, jit_compile=jit_compile()) for f in functions]


class Decoder(Loop):
    """Decodes from `model`, greedily or by sampling.

    Args:
        max_new_tokens: how many tokens are generated at most.
        sampler: chooses a token from the logits; by default the likeliest.
        processors: change the logits, one after the other; see `keras_tfm.generation.processors`.
        stop: says where a row ends, such as `EndTokens(end_id)`; by default nowhere.
        pad_id: the token that fills a row after its end.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> decode = keras_tfm.generation.Decoder(model, max_new_tokens=2)
    >>> decode(np.array([[5, 6, 7]])).shape
    TensorShape([1, 5])
    """

    def __init__(
        self,
        model: Decodes,
        max_new_tokens: int,
        sampler: Callable = greedy,
        processors: Sequence[Callable] = (),
        stop: EndTokens | StopSequences | None = None,
        pad_id: int = 0,
    ) -> None:
        super().__init__(max_new_tokens, stop or EndTokens(), pad_id)
        self.model = model
        self.sampler = sampler
        self.processors = processors

    def start(self, token_ids, padding_mask=None, context=None):
        """The progress after reading the prompts except for their last tokens, in one step."""
        written, cache = read_prompts(
            self.model, token_ids, padding_mask, context, self.max_new_tokens, self.pad_id
        )
        num_rows = ops.shape(written.token_ids)[0]
        return Progress(written, ops.zeros((num_rows,), "bool"), self.stop.start(num_rows), cache)

    def _step(self, written, finished, stop, cache):
        logits, cache = self.model.step(written.last, cache)
        logits = process(logits[:, -1], written, self.processors)
        token_ids = self.sampler(logits, written.num_new)  # (B,)
        token_ids = ops.where(finished, self.pad_id, token_ids)
        stop, is_last = self.stop.advance(stop, token_ids)
        return Progress(written.append(token_ids), finished | is_last, stop, cache)


def read_prompts(model, token_ids, padding_mask, context, num_more, pad_id):
    """Start `model` and let it read the prompts (B, P) except for their last column, in one step.

    Nobody uses what that step predicts, so a compiler can leave out the product with the vocabulary. Returns
    the `Written` prompts, with room for `num_more` columns, and the cache.
    """
    written = write_prompts(token_ids, padding_mask, num_more, pad_id, context)
    num_rows, width = ops.shape(written.token_ids)
    length = width - num_more
    cache = model.start(num_rows, width, context)
    if not isinstance(length, int) or length > 1:  # an unknown length may be a step without tokens
        columns = slice(0, length - 1)
        _, cache = model.step(written.token_ids[:, columns], cache, written.mask[:, columns])
    return written, cache


def write_prompts(token_ids, padding_mask, num_more, pad_id, context=None):
    """The prompts (B, P) as `Written`, with room for `num_more` columns, beside a source of tokens in
    `context`. Raises ValueError for P = 0.
    """
    token_ids = ops.cast(token_ids, "int32")
    if padding_mask is None:
        padding_mask = ops.ones_like(token_ids, "bool")
    num_rows, length = ops.shape(token_ids)
    if isinstance(length, int) and not length:
        raise ValueError("A prompt must hold at least one token; `token_ids` has none: (B, 0).")
    more = (num_rows, num_more)
    source: tuple = ()
    if context is not None and "token_ids" in context:
        ids = ops.cast(context["token_ids"], "int32")
        mask = context.get("padding_mask")
        source = ids, ops.ones_like(ids, "bool") if mask is None else ops.cast(mask, "bool")
    return Written(
        ops.concatenate([token_ids, ops.full(more, pad_id, "int32")], axis=1),
        ops.concatenate([ops.cast(padding_mask, "bool"), ops.zeros(more, "bool")], axis=1),
        ops.convert_to_tensor(length, "int32"),
        ops.convert_to_tensor(length, "int32"),
        source,
    )


class CompiledDecoding:
    """Decoding from `model`, compiled once for each kind of `DecodingOptions` and each size.

    To need few compilations, sizes are rounded up by padding, which does not change the results: the number
    of rows and the length of a `context` of tokens to powers of two, the length of the prompts to multiples
    of 32. Options that differ only in numbers of sampling are of one kind. Equal processors count as the
    same; processors without a hash count as the same only if they are one object. The `MOST_FUNCTIONS`
    functions that were used last are kept.

    Args:
        max_length: the longest prompt and continuation together; more raises ValueError.
        max_context: up to which length a context is padded; a longer one stays as it is.

    >>> backbone = keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50, num_layers=1)
    >>> decode = keras_tfm.generation.CompiledDecoding(keras_tfm.heads.LanguageModel(backbone))
    >>> options = keras_tfm.generation.DecodingOptions(max_new_tokens=3)
    >>> decode(options, np.array([[5, 6, 7]])).shape
    TensorShape([1, 6])
    """

    def __init__(
        self,
        model: Decodes,
        stop: EndTokens | StopSequences | None = None,
        pad_id: int = 0,
        max_length: int | None = None,
        max_context: int | None = None,
    ) -> None:
        self.model = model
        self.stop = stop
        self.pad_id = pad_id
        self.max_length = max_length
        self.max_context = max_context
        self.functions: collections.OrderedDict = collections.OrderedDict()

    def __call__(self, options, token_ids, padding_mask=None, context=None):
        """Prompts (B, P) and continuations as a tensor (B, P + max_new_tokens)."""
        num_rows, length = tf.convert_to_tensor(token_ids).shape
        if not num_rows:
            return tf.zeros([0, length + options.max_new_tokens], tf.int32)
        padding, *inputs = self._inputs(options, token_ids, padding_mask, context)
        whole, *_ = self._functions(options, inputs)
        return whole(*inputs)[:num_rows, padding:]

    def stream(self, options, token_ids, padding_mask=None, context=None):
        """Yield the generated tokens (B,) one by one, as NumPy arrays, until every row has ended.

        Raises ValueError for a beam search, which knows no token before its end, and for a draft.
        """
        if options.draft is not None:
            raise ValueError("`draft` must be None to stream tokens: some steps write several.")
        if options.beam_size > 1:
            raise ValueError(f"`beam_size` must be 1 to stream tokens; it is {options.beam_size}.")
        num_rows = len(token_ids)
        if not num_rows:
            return
        _, *inputs = self._inputs(options, token_ids, padding_mask, context)
        _, start, advance = self._functions(options, inputs)
        numbers, prompt, context = inputs
        progress = start(numbers, prompt, context)
        yield from each_token(progress, lambda progress: advance(numbers, progress), options, num_rows)

    def _inputs(self, options, token_ids, padding_mask, context):
        """How many columns of padding were added, and the arguments for the compiled functions."""
        token_ids = tf.convert_to_tensor(token_ids, tf.int32)
        num_rows, length = token_ids.shape
        room = (self.max_length or length + 32 + options.room) - options.room
        if length > room:
            raise ValueError(
                f"Prompt and new tokens must be at most {self.max_length}; they are {length} + "
                f"{options.room}."
            )
        padding = min(-length % 32, room - length) if length > 1 else 0
        if padding_mask is None:
            padding_mask = tf.ones_like(token_ids, tf.bool)
        prompt = {"token_ids": token_ids, "padding_mask": tf.cast(padding_mask, tf.bool)}
        prompt = {name: tf.pad(x, [[0, 0], [padding, 0]]) for name, x in prompt.items()}
        if context is not None and "token_ids" in context:  # images have one size
            context = {"padding_mask": tf.ones_like(context["token_ids"], tf.bool)} | context
            width = context["token_ids"].shape[1]
            more = max(0, min(round_up(width), self.max_context or round_up(width)) - width)
            context = {name: tf.pad(x, [[0, 0], [0, more]]) for name, x in context.items()}
        rows = tf.minimum(tf.range(round_up(num_rows, 1)), num_rows - 1)  # the last row fills the new ones
        prompt, context = (x and {name: tf.gather(x[name], rows) for name in x} for x in (prompt, context))
        numbers = options.numbers
        if "seed" in numbers and numbers["seed"] is None:
            numbers["seed"] = draw_seed()
        numbers = {
            name: tf.constant(value, tf.int32 if name == "seed" else tf.float32)
            for name, value in numbers.items()
        }
        return padding, numbers, prompt, context

    def _functions(self, options, inputs):
        """The compiled functions for this kind and these sizes: whole decoding, its start, and one more
        token.
        """
        kind = dataclasses.replace(options, **dict.fromkeys(options.numbers, 1))
        processors = tuple(map(told_apart_by, kind.processors))
        key = (
            dataclasses.replace(kind, processors=()),
            processors,
            *(tuple(x.shape) for x in tf.nest.flatten(inputs) if x is not None),
        )
        if key in self.functions:
            self.functions.move_to_end(key)
        else:  # One tf.function per shape: a single one that retraces makes TensorFlow warn.
            while len(self.functions) >= MOST_FUNCTIONS:
                self.functions.popitem(last=False)

            def decoder(numbers):
                return dataclasses.replace(kind, **numbers).decoder(self.model, self.stop, self.pad_id)

            self.functions[key] = [
                tf.function(function, autograph=False, jit_compile=jit_compile())
                for function in (
                    lambda numbers, prompt, context: decoder(numbers)(**prompt, context=context),
                    lambda numbers, prompt, context: decoder(numbers).start(**prompt, context=context),
                    lambda numbers, progress: decoder(numbers).advance(progress, 1),
                )
            ]
        return self.functions[key]


def told_apart_by(processor):
    """What a processor is compared by: itself or, if it has no hash, the identity of the object."""
    try:
        hash(processor)
    except TypeError:
        return id(processor)  # The compiled function keeps the object alive, so nothing else gets its id.
    return processor


def draw_seed():
    """A seed below 2^31 from Keras's global generator, which `keras.utils.set_random_seed` sets."""
    with tf.init_scope():  # while a graph is traced the seed is drawn once, now
        return int(random.randint((), 0, 2**31 - 1, dtype="int32"))


def each_token(progress, advance, decoder, num_rows=None):
    """Yield the tokens (B,) that each `advance(progress)` adds, until every row has ended; of the first
    `num_rows` alone, if others but fill a batch.
    """
    for number in range(decoder.max_new_tokens):
        progress = advance(progress)
        place = progress.written.prompt_length + number
        yield progress.written.token_ids[:num_rows, place].numpy()
        if progress.finished[:num_rows].numpy().all():
            return


def round_up(number, least=8):
    """The smallest power of two that is at least `number` and at least `least`."""
    return max(least, 1 << (number - 1).bit_length())
