"""Curves and clouds: trainings by epochs, measures by anything, embeddings in two dimensions."""

import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.visualize.plots.canvas import COLOURS, INK, bare, matplotlib, new_axes

NO_MEASURES = ("epoch", "step", "seconds")
PANELS = 6  # measures that `draw_training` shows at most
Rows = Sequence[Mapping[str, str]]


def plot_curves(curves: Mapping[str, Any], axes: Any = None, log: bool = False, **labels: str) -> Any:
    """Named curves: {name: values (N,)} at 0, 1, 2, ..., or {name: (places, values)}; `labels` are `xlabel`,
    `ylabel` and `title`. With `log` the values are shown by powers of ten: how gradients vanish, for example.
    A name that differs from the one before only in its end, behind a comma, has its colour, dashed.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_curves({"training": [3.0, 2.0, 1.5], "validation": [3.1, 2.4, 2.2]}, xlabel="epoch")
    >>> [line.get_label() for line in axes.lines]
    ['training', 'validation']
    """
    axes, before = new_axes(axes), ""
    number = -1
    for name, curve in curves.items():
        family = name.rpartition(",")[0] or name
        is_next = family == before
        number, before = number + (not is_next), family
        places, values = curve if isinstance(curve, tuple) else (np.arange(len(curve)), curve)
        style = "--" if is_next else "-"
        axes.plot(places, values, style, color=COLOURS[number % len(COLOURS)], label=name, lw=1.8)
    if log:
        axes.set_yscale("log")
    axes.set(**labels)
    axes.legend(frameon=False)
    return bare(axes, "left", "bottom")


def plot_reach(jacobians: Mapping[str, np.ndarray], axes: Any = None) -> Any:
    """How far gradients reach back in time, by powers of ten: {name: Jacobians (N, P, D)} of the last state,
    or output, by the states, or inputs, before it, the earliest first, as `training.products_to_end` and
    `training.input_jacobians` give them. Drawn is the largest singular value of each, by the steps between.

    After section 2 of Pascanu, Mikolov and Bengio 2013, "On the Difficulty of Training Recurrent Neural
    Networks". ValueError for other shapes.

    >>> from keras_tfm.visualize import plots
    >>> jacobians = np.array([[[0.25]], [[0.5]], [[1.0]]])  # of the last of three states by each
    >>> axes = plots.plot_reach({"RNN": jacobians})
    >>> axes.get_yscale(), axes.lines[0].get_ydata().tolist()
    ('log', [1.0, 0.5, 0.25])
    """
    curves = {}
    for name, some in jacobians.items():
        if np.ndim(some) != 3:
            raise ValueError(f"{name}: expected Jacobians (N, P, D), got the shape {np.shape(some)}.")
        sizes = np.linalg.norm(np.asarray(some, float), 2, axis=(-2, -1))[::-1]
        curves[name] = np.where(sizes > 0, sizes, np.nan)  # what is 0 has no power of ten
    labels = {"xlabel": "steps back", "ylabel": "size of the gradient", "title": "How far gradients reach"}
    return plot_curves(curves, axes, log=True, **labels)


def plot_training(
    tables: Rows | Mapping[str, Rows],
    measure: str = "loss",
    axes: Any = None,
    best: Mapping[str, int] = types.MappingProxyType({}),
) -> Any:
    """A measure by epochs, and its validation's: `tables` are the rows of a metrics.csv, {column: text}, or
    {name: rows} of several trainings, whose `best` epochs, {name: epoch}, get a ring. ValueError where no row
    has the measure.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_training([{"epoch": "1", "loss": "2.0"}, {"epoch": "2", "loss": "1.5"}])
    >>> axes.lines[0].get_ydata()
    array([2. , 1.5])
    """
    named = tables if isinstance(tables, Mapping) else {"": tables}
    curves, rings = {}, {}
    for name, rows in named.items():
        for column, side in ((measure, "training"), (f"val_{measure}", "validation")):
            points = [(int(row["epoch"]), float(row[column])) for row in rows if row.get(column)]
            if points:
                title = ", ".join(filter(None, (name, side)))
                curves[title] = tuple(zip(*points, strict=True))
                if best.get(name) in (scores := dict(points)):
                    rings[name] = best[name], scores[best[name]]  # of the validation, which comes second
    if not curves:
        raise ValueError(f"`measure` must be one of {', '.join(measures_of(named))}; it is {measure!r}.")
    axes = new_axes(axes)
    if rings:
        label = "best epoch" if len(rings) > 1 else f"best epoch: {next(iter(rings.values()))[0]}"
        ring = {"facecolors": "none", "edgecolors": INK, "linewidths": 1.5, "zorder": 3}
        axes.scatter(*zip(*rings.values(), strict=True), s=80, label=label, **ring)
    axes = plot_curves(curves, axes, xlabel="epoch", ylabel=measure.replace("_", " "))
    axes.xaxis.get_major_locator().set_params(integer=True)
    return axes


def measures_of(tables: Mapping[str, Rows]) -> list[str]:
    """The measures of tables, without their validation's: "loss", others with a validation, others."""
    columns = [column for rows in tables.values() for row in rows for column, text in row.items() if text]
    names = dict.fromkeys(column.removeprefix("val_") for column in columns)
    order = {name: (name != "loss", f"val_{name}" not in columns) for name in names}
    return sorted((name for name in names if name not in NO_MEASURES), key=order.__getitem__)


def draw_training(tables: Mapping[str, Rows], best: Mapping[str, int] = types.MappingProxyType({})) -> Any:
    """A figure with a panel for each measure of the {name: rows} of trainings, the loss first, with a ring
    around the `best` epoch of each.

    >>> from keras_tfm.visualize import plots
    >>> rows = [{"epoch": "1", "loss": "2.0", "error": "0.5"}, {"epoch": "2", "loss": "1.5", "error": "0.4"}]
    >>> figure = plots.draw_training({"first": rows})  # as a `MetricsFile` has them
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['loss', 'error']
    """
    matplotlib()
    from matplotlib.figure import Figure

    names = measures_of(tables)[:PANELS]
    if not names:
        raise ValueError("Expected a loss or another measure in the tables; they have none.")
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.2 * rows), layout="constrained")
    for number, name in enumerate(names, start=1):
        plot_training(tables, name, figure.add_subplot(rows, columns, number), best)
    return figure


def plot_embeddings(
    words: Sequence[str], vectors: np.ndarray, axes: Any = None, pairs: Sequence[tuple[str, str]] = ()
) -> Any:
    """Vectors (N, D) at their two principal components, a dot and a word each; `pairs` are joined.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_embeddings(["cat", "dog", "car"], np.eye(3), pairs=[("cat", "dog")])
    >>> [text.get_text() for text in axes.texts]
    ['cat', 'dog', 'car']
    """
    vectors = np.asarray(vectors, float)
    if len(words) != len(vectors) or len(words) < 3:
        raise ValueError(f"Expected three words or more, and a vector each; {len(words)}, {len(vectors)}.")
    centred = vectors - vectors.mean(0)
    points = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T  # (N, 2)
    axes = new_axes(axes, (6, 6))
    places = dict(zip(words, points, strict=True))
    for one, other in pairs:
        axes.plot(*zip(places[one], places[other], strict=True), color="#BBBBBB", lw=1, zorder=0)
    axes.scatter(*points.T, color=COLOURS[0], s=18)
    for word, point in places.items():
        axes.annotate(word, point, xytext=(4, 3), textcoords="offset points", color=INK, fontsize=9)
    axes.set(xticks=[], yticks=[], xlabel="first component", ylabel="second component")
    axes.margins(0.12)
    return bare(axes, "left", "bottom")
