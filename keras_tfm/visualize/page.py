"""One page that shows what a task's model attends to: its data, which `web/` draws and `document` writes."""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.tasks.reading import FoundObjects, Reading, read
from keras_tfm.training.folder import Path
from keras_tfm.visualize.document import Page
from keras_tfm.visualize.grids import Grid
from keras_tfm.visualize.look import Attention, Look, look_at
from keras_tfm.visualize.packing import packed_layers, packed_vectors, png
from keras_tfm.visualize.patterns import attention_patterns
from keras_tfm.visualize.record import named_calls, record_products
from keras_tfm.visualize.steps import answer_of, steps_of

MOST_TOKENS = 512  # of a page: its size grows with the square
NEW_TOKENS = 32  # for which a prompt that is cut leaves room, unless `max_new_tokens` says how many
MOST_TOKENS_OF_ALL_VECTORS = 128  # up to which a page has the queries and keys of all layers
SUREST = 5  # of a detector's queries, where none found an object
ABOUT_PATTERNS = {
    "next": "The weight on the token behind the one that reads, the mean over all tokens.",
    "previous": "The weight on the token before the one that reads, the mean over all tokens.",
    "same_word": "The weight on the other places of the same token, over tokens that are there twice.",
    "same_word_other_segment": "The weight on the same token in the other one of two texts, if it is there.",
    "same_segment": "The weight within the same one of two texts, the mean over all tokens.",
    "null": "The weight on special tokens, such as [SEP], the mean over all tokens.",
    "broad": "How many tokens share the weight: 0 for one at a time, 1 for all alike.",
}


def attention_page(
    task: Any,
    example: Any,
    path: Path | None = None,
    target: str | None = None,
    max_tokens: int = MOST_TOKENS,
    layer: int = -1,
    **options: Any,
) -> Page:
    """A page of what `task` attends to in `example`, a text, a tuple of two, or an image; written to `path`.

    A task that writes text reads `target`, or what it writes itself by `options`, arguments of its
    `generate`. A text longer than the model is cut, which the page says. Above 128 tokens the page has
    queries and keys of one layer alone, number `layer` of all. Raises ValueError above `max_tokens` tokens,
    for a task without a tokenizer or a model without attention.

    >>> import pathlib
    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> page = keras_tfm.visualize.attention_page(task, "a film", "page.html")
    >>> "a film" in pathlib.Path("page.html").read_text("utf-8")
    True
    """
    if task.tokenizer is None and hasattr(task, "generate"):
        raise ValueError(f"This task {task.name!r} has no tokenizer: it reads ids, and a page shows texts.")
    reading = read(task, _shortened(task, example, options), target, **options)
    _refuse_many(max(len(reading.tokens), len(reading.target_tokens)), max_tokens)
    with record_products(task.model) as products:
        look = look_at(task, reading)
    _refuse_many(max(max(attention.weights.shape[-2:]) for attention in look.attention), max_tokens)
    page = _page(task, example, reading, look, products, layer)
    if path is not None:
        page.write(path)
    return page


def _refuse_many(count: int, max_tokens: int) -> None:
    if count > max_tokens:
        raise ValueError(
            f"The page would show {count} tokens, more than {max_tokens}: its size grows with their square. "
            "Give less, or raise `max_tokens`."
        )


def _shortened(task: Any, example: Any, options: Mapping[str, Any]) -> Any:
    """The beginning of a prompt that leaves a model no room for what it is to write."""
    if not (isinstance(example, str) and hasattr(task, "stream") and task.tokenizer is not None):
        return example
    (token_ids,) = task.tokenizer.tokenize([example]).to_list()
    new = min(options.get("max_new_tokens", NEW_TOKENS), task.max_length - 1)
    room = max(1, task.max_length - task.config.add_start - new)
    if len(token_ids) <= room:
        return example
    text = task.tokenizer.detokenize(np.asarray([token_ids[:room]], "int32"))
    return np.asarray(text)[0].decode("utf-8", "replace")


def _num_cut(task: Any, example: Any, reading: Reading) -> int:
    """How many tokens of the text, or of two, the model did not read."""
    parts = example.split("\t") if isinstance(example, str) and len(set(reading.segments)) == 2 else [example]
    parts = list(reading.texts) or (list(example) if isinstance(example, tuple) else parts)
    read_ids, cut = np.asarray(reading.inputs["token_ids"])[0], 0
    for part in parts:
        text = part if isinstance(part, str) else " ".join(part)
        (token_ids,) = task.tokenizer.tokenize([text]).to_list()
        cut += len(token_ids) - _longest_start(np.asarray(token_ids), read_ids)
    return cut


def _longest_start(token_ids: np.ndarray, read_ids: np.ndarray) -> int:
    """How many of the first `token_ids` stand in `read_ids`, one behind the other."""
    longest = 0
    for first in range(len(read_ids)):
        there = read_ids[first : first + len(token_ids)]
        differs = np.flatnonzero(there != token_ids[: len(there)])
        longest = max(longest, differs[0] if len(differs) else len(there))
    return int(longest)


def _page(
    task: Any, example: Any, reading: Reading, look: Look, products: Mapping[str, Any], layer: int
) -> Page:
    """The header and the blocks."""
    sides, entries, vectors_of = _Sides(look), [], _vectors_by_name(products)
    weights = [_by_window(attention) for attention in look.attention]
    blocks, levels = packed_layers([some.reshape(-1, *some.shape[2:]) for some in weights])
    keeps_all = max(max(some.shape[-2:]) for some in weights) <= MOST_TOKENS_OF_ALL_VECTORS
    chosen = range(len(weights))[layer] if -len(weights) <= layer < len(weights) else None
    if chosen is None:
        raise ValueError(f"`layer` must number one of {len(weights)} layers; it is {layer}.")
    for index, (attention, some) in enumerate(zip(look.attention, weights, strict=True)):
        num_windows, num_heads, num_queries, num_keys = some.shape
        entry = {
            "index": index,
            "name": attention.name,
            "kind": attention.kind,
            "layer": attention.layer,
            "heads": num_heads,
            "queries": num_queries,
            "keys": num_keys,
            "query": sides.name_of(attention.query_tokens, attention.query_grid, attention),
            "key": sides.name_of(attention.key_tokens, attention.key_grid, attention),
            "top": levels,
        }
        if num_windows > 1 or attention.cells is not None:
            entry["windows"] = num_windows
        vectors = vectors_of.get(attention.name) if keeps_all or index == chosen else None
        if vectors is not None and _fit(vectors, some):
            query, key, scale = vectors
            entry |= {"key_dim": query.shape[-1], "scale": scale}
            entry["is_biased"] = not _is_product(query, key, scale, some)
            blocks[f"vectors-{index}"] = packed_vectors(query, key)
        entries.append(entry)
    steps, written = steps_of(task, reading), None
    if steps:
        decoding = [entry for entry in entries if entry["kind"] in ("decoder", "cross")] or entries
        written = decoding[-1]["query"]
    error = 100 / (2 * levels)
    return Page(
        {
            "about": _about(task, look),
            "text": _named(example, reading),
            "answer": answer_of(task, example, reading),
            "notes": list(_notes(task, example, reading, look)),
            "precision": f"Weights are kept in {levels.bit_length()} bits of their row's maximum, each to "
            f"{error:.1f} % of it; queries and keys in 8 bits.",
            "sides": sides.content,
            "entries": entries,
            "patterns": _patterns(look),
            "picture": None if look.image is None else png(look.image),
            "steps": steps,
            "written": written,
        },
        blocks,
    )


class _Sides:
    """The tokens that rows and columns stand for, by a name for each of their sequences."""

    def __init__(self, look: Look):
        self.look = look
        self.content: dict[str, dict[str, Any]] = {}

    def name_of(self, tokens: Sequence[str], grid: Grid | None, attention: Attention) -> str:
        """The name of these tokens of the attention's; within windows they are the tokens of all windows."""
        windows, objects = None, None
        if attention.cells is not None and attention.map_size is not None:
            rows, columns = attention.map_size
            windows = {"rows": rows, "columns": columns, "cells": attention.cells.tolist()}
        if self.look.objects is not None and tokens == self.look.target_tokens:
            objects = _objects(self.look.objects)
        place = None if grid is None else dataclasses.asdict(grid)
        side = {"tokens": list(tokens), "grid": place, "windows": windows, "objects": objects}
        for name, known in self.content.items():
            if known == side:
                return name
        self.content[name := f"side-{len(self.content)}"] = side
        return name


def _objects(objects: FoundObjects) -> dict[str, Any]:
    """The box of each query, and which to show: all that count as objects, or else the surest few. The surest
    comes first.
    """
    order = np.argsort(-objects.scores, kind="stable")
    count = int((objects.scores >= objects.threshold).sum()) or SUREST
    return {"boxes": np.round(objects.boxes.astype(float), 4).tolist(), "shown": order[:count].tolist()}


def _by_window(attention: Attention) -> np.ndarray:
    """The weights (N, H, T, S), of one window where they are not within several."""
    return attention.weights.reshape(-1, *attention.weights.shape[-3:])


def _vectors_by_name(products: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """{layer's name: queries (N, H, T, K), keys (N, H, S, K) and scale} of what was recorded, of N windows or
    of one.
    """
    vectors = {}
    for path, calls in products.items():
        for name, (query, key, scale) in named_calls(path, calls):
            scale = np.asarray(scale, "float32")
            each, scale = (1, float(scale)) if scale.size == 1 else (scale, 1.0)
            vectors[name] = (np.asarray(query * each, "float32"), np.asarray(key, "float32"), scale)
    return vectors


def _fit(vectors: tuple[np.ndarray, np.ndarray, float], weights: np.ndarray) -> bool:
    """Whether each weight (N, H, T, S) has its query and its key."""
    query, key, _ = vectors
    return query.ndim == 4 and (*query.shape[:3], key.shape[-2]) == weights.shape


def _is_product(query: np.ndarray, key: np.ndarray, scale: float, weights: np.ndarray) -> bool:
    """Whether the weights (N, H, T, S) are the softmax of the products alone, hidden keys apart."""
    scores = np.where(weights > 0, scale * query @ key.swapaxes(-1, -2), -np.inf)
    highest = np.max(scores, -1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    total = exponentials.sum(-1, keepdims=True)
    return bool(np.allclose(exponentials / np.where(total > 0, total, 1), weights, atol=1e-4))


def _about(task: Any, look: Look) -> str:
    """What the page shows, in a line."""
    model = getattr(task.model, "backbone", task.model)
    words = {"encoder": "of the encoder", "decoder": "of the decoder", "cross": "from one to the other"}
    if len(look.kinds) == 1:
        words = {}
    counts = [f"{len(look.of(kind))} {words.get(kind, '')}".strip() for kind in look.kinds]
    heads = sorted({attention.num_heads for attention in look.attention})
    said = f"{heads[0]} heads each" if len(heads) == 1 else f"{heads[0]} to {heads[-1]} heads"
    return f"{task.name} · {type(model).__name__} · attention layers: {', '.join(counts)}; {said}"


def _named(example: Any, reading: Reading) -> str:
    """The text that was given, or the name of the image's file, without its folder."""
    if not isinstance(example, str | os.PathLike):
        return ""
    return str(example) if reading.image is None else os.path.basename(example)


def _notes(task: Any, example: Any, reading: Reading, look: Look) -> Iterable[str]:
    """What differs from what a reader expects."""
    if "token_ids" in reading.inputs and (cut := _num_cut(task, example, reading)):
        yield f"The text was cut: the last {cut} of its tokens are more than the model reads."
    if any("windows" in attention.axes for attention in look.attention):
        yield "Some layers attend within windows: choose one, or see the mean of all."
    if look.image is not None:
        off_grid = [some.key_grid is None and some.cells is None for some in look.of("encoder")]
        if any(off_grid):
            which = "Its layers do" if all(off_grid) else "Some layers do"
            yield f"{which} not attend over a map of patches: their places are numbered."
    if any(attention.weights.min() < 0 for attention in look.attention):
        yield "Some weights are negative, since layers mix the heads: they are shown as 0."


def _patterns(look: Look) -> list[dict[str, Any]]:
    """The scores of each pattern in layers whose queries are their keys; None where there is no score."""
    scores: dict[str, list[dict[str, Any]]] = {}
    writes = look.image is None or bool(look.target_tokens and look.objects is None)  # not a set of objects
    for index, attention in enumerate(look.attention):
        tokens = list(attention.query_tokens)
        is_ordered = attention.kind == "encoder" or (attention.kind == "decoder" and writes)
        if not is_ordered or "windows" in attention.axes or tokens != list(attention.key_tokens):
            continue
        segments = look.segments if len(look.segments) == len(tokens) else None
        patterns = attention_patterns(attention.weights, tokens, segments)
        is_text = look.image is None or attention.kind == "decoder"
        for name in ABOUT_PATTERNS if is_text else ("next", "previous", "broad"):
            (scores_by_head,) = getattr(patterns, name).tolist()
            values = [None if math.isnan(score) else round(score, 4) for score in scores_by_head]
            scores.setdefault(name, []).append({"entry": index, "kind": attention.kind, "values": values})
    return [
        {"name": name.replace("_", " "), "about": ABOUT_PATTERNS[name], "scores": rows}
        for name, rows in scores.items()
        if any(value is not None for row in rows for value in row["values"])
    ]
