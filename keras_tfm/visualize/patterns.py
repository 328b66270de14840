"""What the heads of an encoder look at: the next token, the previous one, the same word, separators, all.

The patterns are described by Clark et al. 2019, "What Does BERT Look At?", and Vig 2019, "A Multiscale
Visualization of Attention in the Transformer Model". One pattern of Vig's is left out: attention to the words
that predict a word cannot be read off the weights; `input_attribution` measures what a prediction depends on.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.visualize.record import by_layer, in_rows

# If two patterns fit alike, the first is a head's: the more specific one of the same word comes first.
PATTERNS = ("next", "previous", "same_word_other_segment", "same_word", "same_segment", "null", "broad")
SPECIAL = frozenset(
    ("[CLS]", "[SEP]", "[PAD]", "[START]", "[END]", "<s>", "</s>", "<pad>", "<cls>", "<sep>", "<|endoftext|>")
)


@dataclasses.dataclass(frozen=True)
class Patterns:
    """How much of each head's attention goes where: arrays (L, H) from 0 to 1, means over the queries.

    `next` and `previous` are the weight on the token behind and before, `same_word` the weight on the other
    places of the query's token, for tokens that are there twice and not special,
    `same_word_other_segment` the weight on its places in other segments, `same_segment` the weight within the
    query's own segment, `null` the weight on special tokens. `broad` is (e^entropy - 1) / (keys - 1): 0 for a
    head that looks at one key at a time, 1 for one that looks at all alike. NaN where there is nothing to
    measure: no token twice, one segment, one visible key, a layer of fewer heads. `even` is {pattern: (L,)},
    what attention to all keys alike would score.

    >>> weights = np.array([[[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]])  # one head
    >>> patterns = keras_tfm.visualize.attention_patterns(weights, ["the", "cat", "sat"])
    >>> patterns.next.round(2).tolist(), patterns.strongest() == [["next"]]
    ([[0.8]], True)
    """

    layers: Sequence[str]
    next: np.ndarray
    previous: np.ndarray
    same_word_other_segment: np.ndarray
    same_word: np.ndarray
    same_segment: np.ndarray
    null: np.ndarray
    broad: np.ndarray
    even: Mapping[str, np.ndarray] = dataclasses.field(repr=False)

    def strongest(self) -> list[list[str]]:
        """The name of each head's pattern, by layers: the one that is furthest above what even attention
        would score, as a share of what is left to 1; "broad" counts as it is.
        """
        scores = np.stack([getattr(self, name) for name in PATTERNS])  # (patterns, L, H)
        even = np.stack([self.even[name] if name != "broad" else 0 * self.even[name] for name in PATTERNS])
        with np.errstate(invalid="ignore", divide="ignore"):
            above = (scores - even[:, :, None]) / (1 - even[:, :, None])
        above = np.where(np.isfinite(above), above, -np.inf)
        has_head = ~np.isnan(self.null)  # (L, H)
        names = np.array(PATTERNS)[above.argmax(0)]
        return [list(row[known]) for row, known in zip(names, has_head, strict=True)]

    def table(self) -> list[dict[str, Any]]:
        """A row for each head: its "layer", its number "head", its "strongest" pattern, and all scores."""
        return [
            {
                "layer": layer,
                "head": head,
                "strongest": str(name),
                **{pattern: float(getattr(self, pattern)[number, head]) for pattern in PATTERNS},
            }
            for number, (layer, names) in enumerate(zip(self.layers, self.strongest(), strict=True))
            for head, name in enumerate(names)
        ]


def attention_patterns(
    scores: Any,
    tokens: Sequence[str] | Sequence[Sequence[str]],
    segments: Sequence[int] | Sequence[Sequence[int]] | None = None,
    special: frozenset[str] = SPECIAL,
) -> Patterns:
    """How much of each head's self-attention follows a pattern; see `Patterns`.

    `scores` are what `record_attention` gives, {layer path: (B, H, T, T)}, or one array (B, H, T, T) or (H,
    T, T). `tokens` are an example's, or a list for each example; what stands behind them, up to T, is padding
    and counts neither as query nor as key. `segments` number each token's sentence. ValueError for attention
    from one sequence to another, and for tokens that do not fit.

    >>> weights = np.array([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])  # one head
    >>> patterns = keras_tfm.visualize.attention_patterns(weights, ["the", "cat", "sat"])
    >>> patterns.next.tolist(), patterns.previous.tolist()
    ([[0.5]], [[1.0]])
    """
    rows: Any = [list(tokens)] if not tokens or isinstance(tokens[0], str) else [list(row) for row in tokens]
    numbers = _segments(segments, rows)
    names: list[str] = []
    measured, even = [], []
    for name, weights in by_layer(scores):
        examples, _, num_queries, num_keys = weights.shape
        if num_queries != num_keys:
            raise ValueError(f"{name}: patterns are of self-attention, it has {num_queries} x {num_keys}.")
        if examples != len(rows) or any(not 0 < len(row) <= num_keys for row in rows):
            lengths = ", ".join(str(len(row)) for row in rows)
            raise ValueError(f"{name}: {examples} x {num_keys} tokens, but `tokens` are {lengths} of them.")
        measures, alike = [], []
        for example, row, segment in zip(weights, rows, numbers, strict=True):
            inner = example[:, : len(row), : len(row)]  # (H, n, n)
            visible = (inner > 0).any(0)  # (n, n), what a mask leaves
            uniform = visible / np.maximum(visible.sum(-1, keepdims=True), 1)
            measures.append(_measure(inner, visible, row, segment, special))
            alike.append(_measure(uniform[None], visible, row, segment, special))
        names.append(name)
        measured.append(_average(measures))
        even.append(_average(alike)[:, 0])
    arrays = {name: in_rows([scores[i] for scores in measured]) for i, name in enumerate(PATTERNS)}
    return Patterns(names, **arrays, even=dict(zip(PATTERNS, np.stack(even, axis=1), strict=True)))


def _segments(segments: Any, rows: list[list[str]]) -> list[np.ndarray]:
    """A segment for each token of each row, the first one where none are given."""
    if segments is None or not len(segments):
        return [np.zeros(len(row), int) for row in rows]
    numbers = [segments] if np.ndim(segments[0]) == 0 else segments
    arrays = [np.asarray(row) for row in numbers]
    if [len(row) for row in arrays] != [len(row) for row in rows]:
        expected, got = len(rows[0]), len(arrays[0])
        raise ValueError(f"`segments` must be one for each of {expected} tokens; there are {got}.")
    return arrays


def _average(measures: list[np.ndarray]) -> np.ndarray:
    """Sums and counts (patterns, 2, H) of examples as means (patterns, H), NaN where none counts."""
    total, count = np.sum(measures, axis=0).swapaxes(0, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / count


def _measure(
    weights: np.ndarray, visible: np.ndarray, tokens: list[str], segments: np.ndarray, special: frozenset[str]
) -> np.ndarray:
    """Sums over the queries of (H, n, n), and how many queries count: (patterns, 2, H)."""
    length, heads = len(tokens), len(weights)
    names = np.array(tokens)
    is_special = np.isin(names, list(special))
    same = (names[:, None] == names) & ~np.eye(length, dtype=bool) & ~is_special
    within = segments[:, None] == segments
    everywhere = np.ones(length, bool)
    several = np.full(length, len(set(segments.tolist())) > 1)
    place = np.arange(length)
    keys = {  # pattern: (which keys (n, n) of a query, which queries count)
        "next": (place[None] == place[:, None] + 1, place < length - 1),
        "previous": (place[None] == place[:, None] - 1, place > 0),
        "same_word_other_segment": (same & ~within, (same & ~within).any(-1)),
        "same_word": (same, same.any(-1)),
        "same_segment": (within, several),
        "null": (np.broadcast_to(is_special, within.shape), everywhere),
    }
    measures = []
    for chosen, counted in keys.values():
        sums = (weights * chosen).sum(-1)[:, counted].sum(-1)  # (H,)
        measures.append([sums, np.full(heads, counted.sum())])
    measures.append([_breadth(weights, visible), np.full(heads, (visible.sum(-1) > 1).sum())])
    return np.array(measures, float)


def _breadth(weights: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """The sums over the queries of (e^entropy - 1) / (visible keys - 1): (H,)."""
    bits = np.log2(np.where(weights > 0, weights, 1))
    spread = np.exp2(-(weights * bits).sum(-1)) - 1  # (H, n)
    num_keys = visible.sum(-1)
    return (spread / np.maximum(num_keys - 1, 1))[:, num_keys > 1].sum(-1)
