"""Logit processors: small objects that change the logits of a step, `processor(logits, written) -> logits`.

Logits are float32 (R, V), and -inf where a token must not be chosen; in beam search they are
log-probabilities. The definitions follow the classes with similar names in transformers, with equal results.
Parameters may be tensors, so that a compiled function can take them as inputs. No processor sorts: bisection
finds the threshold that keeps the wanted number or probability of tokens, at a fraction of the cost.

Any callable can be a processor. Equal processors share a compiled function: derive yours from `Value`, or
define `__eq__` and `__hash__`; otherwise each object is compiled separately.
"""

import numbers
from collections.abc import Iterable
from typing import Any, NamedTuple

from keras import ops

from keras_tfm.configs import Field, FieldError, Refusal
from keras_tfm.layers.signatures import Tensor

MINUS_INFINITY = float("-inf")
HALVINGS = 32  # steps of bisection, from a range of some hundreds to the last digit of float32
SMALLEST, LARGEST = 1.1754944e-38, 3.4028235e38  # normal numbers of float32


class Value:
    """An object that equals another one of its class with equal attributes.

    If an attribute has no hash, a tensor for example, the object has none either, and is compared by
    identity.
    """

    def __eq__(self, other):
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self):
        return hash((type(self), frozenset(vars(self).items())))


class Written(NamedTuple):
    """What each row holds so far: `token_ids` (R, L), of which `length` () columns are filled.

    `mask` (R, L) is True at tokens, False at padding and at what is not filled yet. The first
    `prompt_length` () columns are the prompt. `source` is what an encoder read, token ids (R, S) and their
    mask; () if it read no tokens.
    """

    token_ids: Any
    mask: Any
    length: Any
    prompt_length: Any
    source: Any = ()

    @property
    def num_new(self):
        """How many tokens were generated: ()."""
        return self.length - self.prompt_length

    @property
    def prompt(self):
        """The token ids of the source or, without one, of the prompt, and which count: (R, S) each."""
        if self.source:
            return self.source
        in_prompt = ops.arange(ops.shape(self.token_ids)[1], dtype="int32") < self.prompt_length
        return self.token_ids, ops.cast(self.mask, "bool") & in_prompt

    @property
    def last(self):
        """The last token of each row: (R, 1)."""
        return ops.slice(self.token_ids, (0, self.length - 1), (ops.shape(self.token_ids)[0], 1))

    def append(self, token_ids):
        """The same with one more token (R,) in each row."""
        mask = ops.ones_like(token_ids, "bool")[:, None]
        return self._replace(
            token_ids=ops.slice_update(self.token_ids, (0, self.length), token_ids[:, None]),
            mask=ops.slice_update(self.mask, (0, self.length), mask),
            length=self.length + 1,
        )


class Temperature(Value):
    """logits / `temperature`: below 1 it sharpens the distribution, above 1 it flattens it.

    >>> keras_tfm.generation.Temperature(0.5)(np.array([[1.0, 2.0]]), None).tolist()
    [[2.0, 4.0]]
    """

    def __init__(self, temperature: float | Tensor) -> None:
        require("temperature", temperature, lambda t: t >= SMALLEST, "must be above 0")
        self.temperature = temperature

    def __call__(self, logits, written):
        return logits / self.temperature


class TopK(Value):
    """Keeps the `k` likeliest tokens (Fan et al. 2018), and any token exactly as likely as the last of them.

    >>> keras_tfm.generation.TopK(2)(np.array([[1.0, 3.0, 2.0]], "float32"), None).numpy().tolist()
    [[-inf, 3.0, 2.0]]
    """

    def __init__(self, k: int | Tensor) -> None:
        require("top_k", k, lambda k: k >= 1, "must be at least 1", whole=True)
        self.k = k

    def __call__(self, logits, written):
        return keep_highest(logits, logits, ops.ones_like(logits), self.k)


class TopP(Value):
    """Keeps the likeliest tokens whose probabilities add up to `p` (Holtzman et al. 2020, nucleus
    sampling).

    >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], "float32"))
    >>> np.isfinite(keras_tfm.generation.TopP(0.7)(logits, None)).tolist()
    [[True, True, False]]
    """

    def __init__(self, p: float | Tensor) -> None:
        require("top_p", p, lambda p: 0 < p <= 1, "must lie in (0, 1]")
        self.p = p

    def __call__(self, logits, written):
        return keep_highest(logits, logits, ops.softmax(logits), self.p)


class MinP(Value):
    """Keeps tokens with at least `p` times the probability of the likeliest (Nguyen et al. 2024).

    >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], "float32"))
    >>> np.isfinite(keras_tfm.generation.MinP(0.5)(logits, None)).tolist()
    [[True, True, False]]
    """

    def __init__(self, p: float | Tensor) -> None:
        require("min_p", p, lambda p: 0 <= p <= 1, "must lie in [0, 1]")
        self.p = p

    def __call__(self, logits, written):
        probabilities = ops.softmax(logits)
        too_low = probabilities < self.p * ops.max(probabilities, axis=-1, keepdims=True)
        return ops.where(too_low, MINUS_INFINITY, logits)


class Typical(Value):
    """Keeps tokens of total probability `mass` whose -log p is nearest the entropy (Meister et al. 2023).

    >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], "float32"))
    >>> np.isfinite(keras_tfm.generation.Typical(0.4)(logits, None)).tolist()
    [[True, True, False]]
    """

    def __init__(self, mass: float | Tensor) -> None:
        require("typical_p", mass, lambda mass: 0 < mass <= 1, "must lie in (0, 1]")
        self.mass = mass

    def __call__(self, logits, written):
        probabilities = ops.softmax(logits)
        information = -ops.log_softmax(logits)
        information = ops.where(probabilities > 0, information, 1e3)  # not inf: 0 * inf is NaN
        entropy = ops.sum(probabilities * information, axis=-1, keepdims=True)
        return keep_highest(logits, -ops.abs(information - entropy), probabilities, self.mass)


class RepetitionPenalty(Value):
    """Divides positive logits of tokens that occurred before by `penalty`, and multiplies negative ones by
    it.

    Keskar et al. 2019, section 4.1. Tokens of the prompt count, its padding does not; with `prompt_only` only
    they count or, if an encoder read a source, only tokens of the source.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> penalties = [keras_tfm.generation.RepetitionPenalty(1.2)]
    >>> decode = keras_tfm.generation.Decoder(model, max_new_tokens=2, processors=penalties)
    >>> decode(np.array([[5, 6, 7]])).shape
    TensorShape([1, 5])
    """

    def __init__(self, penalty: float | Tensor, prompt_only: bool = False) -> None:
        require("repetition_penalty", penalty, lambda x: x >= SMALLEST, "must be above 0")
        self.penalty, self.prompt_only = penalty, prompt_only

    def __call__(self, logits, written):
        token_ids, mask = written.prompt if self.prompt_only else written[:2]
        seen = mark(token_ids, ops.cast(mask, "bool"), logits.shape[-1])
        penalised = ops.where(logits < 0, logits * self.penalty, logits / self.penalty)
        return ops.where(seen, penalised, logits)


class NoRepeatNGram(Value):
    """Forbids tokens that would repeat any `size` tokens in a row (Paulus et al. 2018), the prompt included;
    with `prompt_only` it forbids only what repeats tokens of the prompt, or of the source if an encoder read
    one.

    >>> written = keras_tfm.generation.processors.Written(np.array([[1, 2, 1]]), np.ones((1, 3), bool), 3, 1)
    >>> processor = keras_tfm.generation.NoRepeatNGram(2)  # 1 must not be followed by 2 again
    >>> processor(np.zeros((1, 3), "float32"), written).numpy().tolist()
    [[0.0, 0.0, -inf]]
    """

    def __init__(self, size: int, prompt_only: bool = False) -> None:
        require("size", size, lambda size: size >= 1, "must be at least 1", whole=True)
        self.size, self.prompt_only = size, prompt_only

    def __call__(self, logits, written):
        token_ids, mask = written.prompt if self.prompt_only else written[:2]
        rows, width = ops.shape(token_ids)
        before = self.size - 1  # tokens that must agree for the next to be forbidden
        if any(isinstance(n, int) and n <= before for n in (width, ops.shape(written.token_ids)[1])):
            return logits
        agrees = mask[:, before:]  # (R, S - before), for windows that start at each column
        if before:
            start = ops.maximum(written.length - before, 0)
            last = ops.slice(written.token_ids, (0, start), (rows, before))
            is_real = ops.slice(written.mask, (0, start), (rows, before))[:, :1]  # padding is on the left
            agrees = agrees & is_real & mask[:, : width - before]
            for i in range(before):
                agrees = agrees & (token_ids[:, i : width - before + i] == last[:, i : i + 1])
        repeats = mark(token_ids[:, before:], agrees & (written.length >= before), logits.shape[-1])
        return ops.where(repeats, MINUS_INFINITY, logits)


class MinNewTokens(Value):
    """Forbids `end_ids` until `count` tokens are generated.

    >>> written = keras_tfm.generation.processors.Written(np.array([[5, 6, 1]]), np.ones((1, 3)), 3, 2)
    >>> processor = keras_tfm.generation.MinNewTokens(2, end_ids=[0])  # one token is generated yet, 1
    >>> processor(np.zeros((1, 3), "float32"), written).numpy().tolist()
    [[-inf, 0.0, 0.0]]
    """

    def __init__(self, count: int | Tensor, end_ids: int | Iterable[int] | Tensor) -> None:
        require("count", count, lambda count: count >= 0, "must be at least 0", whole=True)
        self.count = count
        self.end_ids = as_ids("end_ids", end_ids)

    def __call__(self, logits, written):
        is_end = is_one_of(self.end_ids, logits.shape[-1])
        return ops.where(is_end & (written.num_new < self.count), MINUS_INFINITY, logits)


class Suppress(Value):
    """Forbids `token_ids` everywhere.

    >>> keras_tfm.generation.Suppress([1])(np.zeros((1, 3), "float32"), None).numpy().tolist()
    [[0.0, -inf, 0.0]]
    """

    def __init__(self, token_ids: int | Iterable[int] | Tensor) -> None:
        self.token_ids = as_ids("token_ids", token_ids)

    def __call__(self, logits, written):
        return ops.where(is_one_of(self.token_ids, logits.shape[-1]), MINUS_INFINITY, logits)


class ForcedTokens(Value):
    """Forces `token_ids` one after the other, starting at generated token number `first`.

    Each is an id, or several ids of which one is forced. By default it is a forced prefix; with `first` at
    the last token and an end token it is a forced end. Raises ValueError for ids outside the vocabulary when
    it is called.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> forced = [keras_tfm.generation.ForcedTokens([7, 8])]
    >>> decode = keras_tfm.generation.Decoder(model, max_new_tokens=2, processors=forced)
    >>> decode(np.array([[5, 6]])).numpy().tolist()
    [[5, 6, 7, 8]]
    """

    def __init__(self, token_ids: Iterable[int | Iterable[int] | Tensor], first: int = 0) -> None:
        self.token_ids = tuple(as_ids("token_ids", token) for token in token_ids)
        self.first = first

    def __call__(self, logits, written):
        number, size = written.num_new - self.first, logits.shape[-1]
        for i, token in enumerate(self.token_ids):
            forced = ops.where(is_one_of(token, size), 0.0, MINUS_INFINITY)
            logits = ops.where(number == i, forced, logits)
        return logits


def process(logits, written, processors):
    """The logits (R, V), in float32, after all `processors`, in order."""
    logits = ops.cast(logits, "float32")
    for processor in processors:
        logits = processor(logits, written)
    return logits


def keep_highest(logits, scores, weights, amount):
    """`logits` where `scores` are the highest whose `weights` add up to `amount`, elsewhere -inf.

    All are (R, V). Equal scores are kept or removed together; if all weights together are less than
    `amount`, all are kept.
    """
    high = ops.max(scores, axis=-1, keepdims=True)
    # Lower scores than this have probability 0 in float32 where scores are logits or informations.
    low = ops.maximum(ops.min(scores, axis=-1, keepdims=True), high - 256.0)
    weights = ops.where(ops.isfinite(logits), weights, 0.0)

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low) / 2
        total = ops.sum(ops.where(scores >= middle, weights, 0.0), axis=-1, keepdims=True)
        suffices = total >= amount
        return ops.where(suffices, middle, low), ops.where(suffices, high, middle)

    low, high = ops.fori_loop(0, HALVINGS, halve, (low, high))
    # The upper bound is tried last: it may be the highest score itself.
    total = ops.sum(ops.where(scores >= high, weights, 0.0), axis=-1, keepdims=True)
    threshold = ops.where(total >= amount, high, low)
    return ops.where(scores >= threshold, logits, MINUS_INFINITY)


def mark(token_ids, mask, size):
    """True at the tokens of each row (R, L) where `mask` is True: (R, V)."""
    rows, width = ops.shape(token_ids)
    row = ops.broadcast_to(ops.arange(rows, dtype="int32")[:, None], (rows, width))
    indices = ops.stack([row, ops.where(mask, token_ids, 0)], axis=-1)  # (R, L, 2)
    return ops.scatter(indices, ops.cast(mask, "int32"), (rows, size)) > 0


def is_one_of(token_ids, size):
    """True at `token_ids`: (V,). ValueError for ids outside the vocabulary."""
    if not ops.is_tensor(token_ids) and max(token_ids, default=0) >= size:
        raise ValueError(
            f"`token_ids` must be in the vocabulary of {size:,}; one of them is {max(token_ids)}."
        )
    token_ids = ops.reshape(ops.convert_to_tensor(token_ids, "int32"), (-1, 1))
    return ops.any(token_ids == ops.arange(size, dtype="int32"), axis=0)


def as_ids(name, token_ids):
    """One or several token ids as a tuple of integers; a tensor is returned as it is. Raises ValueError for
    others.
    """
    if ops.is_tensor(token_ids):
        return token_ids
    token_ids = (token_ids,) if isinstance(token_ids, numbers.Number) else tuple(token_ids)
    for token_id in token_ids:
        require(name, token_id, lambda i: i >= 0, "must be at least 0", whole=True)
    return tuple(map(int, token_ids))


def require(name, value, is_right=lambda value: True, rule="", whole=False):
    """Raises ValueError unless `value` is a finite number, if `whole` a 32-bit integer, and
    `is_right(value)`.

    `rule` says in words what is right. Tensors pass, since their values are not known yet.
    """
    if ops.is_tensor(value):
        return
    kind: Any = numbers.Integral if whole else numbers.Real
    most = 2**31 - 1 if whole else LARGEST
    if isinstance(value, bool) or not isinstance(value, kind) or not abs(value) <= most:
        expected = "a whole number of 32 bits" if whole else "a finite number"
        raise Refusal(name, expected, f"{value!r}")
    if not is_right(value):
        raise FieldError("{} {}; it is {}.", Field(name), rule, value)
