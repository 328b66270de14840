"""Attention in pictures: alignments, all heads of a model, their patterns and distances, masks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.visualize.patterns import PATTERNS, Patterns
from keras_tfm.visualize.plots.canvas import (
    COLOURS,
    INK,
    bare,
    colour_bar,
    heat_map,
    label_cells,
    new_axes,
)
from keras_tfm.visualize.record import by_layer

GAP = 0.08  # between the maps of two heads, in parts of a map


def plot_alignment(
    weights: np.ndarray, query_tokens: Sequence[str], key_tokens: Sequence[str], axes: Any = None
) -> Any:
    """The weights (T, S) of one head, or the mean of several, as cells: queries in rows, keys in columns.

    As in figure 3 of Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and
    Translate". ValueError where the tokens are not as many.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_alignment(np.eye(2), ["the", "cat"], ["le", "chat"])
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['le', 'chat']
    """
    if np.shape(weights) != (len(query_tokens), len(key_tokens)):
        expected = (len(query_tokens), len(key_tokens))
        raise ValueError(f"`weights` must be {expected}, by the tokens; they are {np.shape(weights)}.")
    size = 1.6 + 0.3 * len(key_tokens), 1.2 + 0.3 * len(query_tokens)
    axes = new_axes(axes, size)
    image = heat_map(axes, np.asarray(weights), vmin=0, vmax=1)
    label_cells(axes, query_tokens, key_tokens)
    colour_bar(axes, image, "weight")
    return axes


def plot_heads(scores: Any, axes: Any = None) -> Any:
    """Every head's weights as a small map: layers in rows, from the first on top, heads in columns.

    `scores` are what `record_attention` gives, of one example, or one array (H, T, S). A map is as dark as
    its largest weight is near to 1.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_heads(np.full((2, 3, 3), 1 / 3))  # one layer with two heads
    >>> len(axes.get_images())
    2
    """
    layers = by_layer(scores)
    columns = max(weights.shape[1] for _, weights in layers)
    axes = new_axes(axes, (0.6 * columns + 1, 0.6 * len(layers) + 0.8))
    for row, (_, weights) in enumerate(layers):
        for column, head in enumerate(weights[0]):
            left, top = column - 0.5 + GAP / 2, row - 0.5 + GAP / 2
            place = (left, left + 1 - GAP, top + 1 - GAP, top)
            axes.imshow(
                head, cmap="Blues", vmin=0, vmax=1, extent=place, aspect="auto", interpolation="nearest"
            )
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(len(layers) - 0.5, -0.5), xlabel="head", ylabel="layer")
    axes.set_xticks(range(columns))
    axes.set_yticks(range(len(layers)))
    axes.set_facecolor("#DDDDDD")
    return bare(axes)


def plot_patterns(patterns: Patterns, axes: Any = None) -> Any:
    """The strongest pattern of every head by its colour, the score in the cell: layers in rows.

    >>> from keras_tfm import visualize
    >>> from keras_tfm.visualize import plots
    >>> weights = np.array([[[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]])  # one head
    >>> axes = plots.plot_patterns(visualize.attention_patterns(weights, ["the", "cat", "sat"]))
    >>> axes.texts[0].get_text()  # the score of the pattern "next"
    '0.80'
    """
    names = patterns.strongest()
    columns = max(map(len, names))
    axes = new_axes(axes, (0.62 * columns + 1, 0.5 * len(names) + 1.1))
    from matplotlib.patches import Patch, Rectangle

    colours = dict(zip(PATTERNS, COLOURS, strict=False))
    for row, of_layer in enumerate(names):
        for column, name in enumerate(of_layer):
            score = getattr(patterns, name)[row, column]
            corner = (column - 0.47, row - 0.46)
            axes.add_patch(Rectangle(corner, 0.94, 0.92, color=colours[name], alpha=0.25 + 0.6 * score))
            axes.text(column, row, f"{score:.2f}", ha="center", va="center", fontsize=8, color="black")
    used = [name for name in PATTERNS if any(name in of_layer for of_layer in names)]
    handles = [Patch(color=colours[name], label=name.replace("_", " "), alpha=0.7) for name in used]
    axes.figure.legend(handles=handles, loc="outside upper center", ncols=len(used), frameon=False)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(len(names) - 0.5, -0.5), xlabel="head", ylabel="layer")
    axes.set_xticks(range(columns))
    axes.set_yticks(range(len(names)))
    return bare(axes)


def plot_distances(distances: np.ndarray, axes: Any = None, unit: str = "pixels") -> Any:
    """Mean attention distances (L, H) by the depth of the layer, a dot for each head.

    As in figure 7 of Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words".

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_distances(np.array([[2.0, 5.0], [4.0, 6.0]]))  # two layers with two heads
    >>> axes.get_ylabel()
    'mean attention distance, pixels'
    """
    axes = new_axes(axes)
    layers, heads = np.indices(distances.shape)
    axes.scatter(
        layers, distances, c=[COLOURS[head % len(COLOURS)] for head in heads.ravel()], s=22, alpha=0.8
    )
    axes.set(xlabel="layer", ylabel=f"mean attention distance, {unit}", ylim=(0, None))
    axes.set_xticks(range(len(distances)))
    return bare(axes, "left", "bottom")


def plot_mask(mask: np.ndarray, tokens: Sequence[str] = (), axes: Any = None) -> Any:
    """Which keys (columns) each query (row) attends to: a boolean mask (T, S), dark where it may.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_mask(keras_tfm.layers.causal_mask(3, 3)[0], ["the", "cat", "sat"])
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('key', 'query')
    """
    mask = np.asarray(mask)
    if mask.ndim != 2:
        raise ValueError(f"`mask` must have the shape (T, S); it is {mask.shape}.")
    axes = new_axes(axes, (1.2 + 0.3 * mask.shape[1], 1 + 0.3 * mask.shape[0]))
    heat_map(axes, mask.astype(float), vmin=0, vmax=1.4)
    axes.set_xticks(np.arange(mask.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(mask.shape[0] + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.set(xlabel="key", ylabel="query")
    label_cells(axes, tokens, tokens)
    return axes


def plot_query_and_keys(
    query: np.ndarray, keys: np.ndarray, tokens: Sequence[str], axes: Any = None, scale: float | None = None
) -> Any:
    """A query (K,) and the keys (S, K) as arrows in space, each key's width its weight.

    Beyond three numbers the arrows are projected to the query and to the two directions beside it in which
    the keys vary most. `scale` multiplies the dot products, by default by 1/sqrt(K). `axes` are 3-D.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_query_and_keys([1.0, 0.0, 0.0], np.eye(3), ["the", "cat", "sat"])
    >>> axes.name
    '3d'
    """
    query, keys = np.asarray(query, float), np.asarray(keys, float)
    scores = keys @ query * (query.size**-0.5 if scale is None else scale)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    if query.size > 3:
        query, keys = _in_space(query, keys)
    missing = (0, 3 - query.size)
    query, keys = np.pad(query, [missing]), np.pad(keys, [(0, 0), missing])
    axes = new_axes(axes, (6, 6), projection="3d")
    for key, token, weight in zip(keys, tokens, weights, strict=True):
        axes.plot(
            *zip(np.zeros(3), key, strict=True),
            color=COLOURS[0],
            lw=0.8 + 5 * weight,
            alpha=0.35 + 0.6 * weight,
        )
        axes.text(*key, f"{token} {weight:.2f}", color=INK, fontsize=8)
    axes.plot(*zip(np.zeros(3), query, strict=True), color=COLOURS[5], lw=2.5)
    axes.text(*query, "query", color=COLOURS[5])
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_ticklabels([])
    return axes


def _in_space(query: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(3,) and (S, 3): along the query, and along the keys' two main directions at right angles to it."""
    first = query / np.linalg.norm(query)
    rest = keys - np.outer(keys @ first, first)
    others = np.linalg.svd(rest - rest.mean(0), full_matrices=False)[2][:2]
    others = np.pad(others, [[0, 2 - len(others)], [0, 0]])
    directions = np.stack([first, *others], axis=1)
    return query @ directions, keys @ directions


def plot_softmax(dim: int = 64, num_keys: int = 200, seed: int = 0, axes: Any = None) -> Any:
    """The weights of a random query over random keys of unit variance, the largest first, with the scores
    divided by sqrt(dim) and without: what Vaswani et al. 2017 scale them for, section 3.2.1.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_softmax(dim=16, num_keys=50)
    >>> len(axes.lines)
    2
    """
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(num_keys, dim)) @ rng.normal(size=dim)
    axes = new_axes(axes)
    for scale, label, colour in ((1.0, "q·k", COLOURS[5]), (dim**-0.5, "q·k / √d", COLOURS[0])):
        weights = np.exp(scale * (scores - scores.max()))
        weights = np.sort(weights / weights.sum())[::-1]
        entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum()
        axes.plot(np.arange(1, num_keys + 1), weights, color=colour, label=f"{label}: entropy {entropy:.2f}")
    axes.set(xscale="log", xlabel="key, the largest weight first", ylabel="weight", ylim=(0, None))
    axes.legend(frameon=False, title=f"d = {dim}, {num_keys} keys, uniform: {np.log(num_keys):.2f}")
    return bare(axes, "left", "bottom")
