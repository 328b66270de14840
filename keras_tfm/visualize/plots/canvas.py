"""What all pictures share: axes of a figure of their own, colours, heat maps."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.training.folder import new_file

# Okabe and Ito's colours, which people who see few colours can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
INK = "#333333"


def matplotlib() -> Any:
    """The package; ImportError, naming the extra, where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError('Pictures need matplotlib: pip install "keras-tfm[plot]"') from None
    return matplotlib


def new_axes(axes: Any = None, size: tuple[float, float] = (6, 4), *place: int, **options: Any) -> Any:
    """`axes`, or the axes of a new figure of `size` inches, which `Figure.add_subplot` puts at `place`.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.new_axes(size=(3, 2))
    >>> plots.new_axes(axes) is axes
    True
    """
    if axes is not None:
        return axes
    matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot(*place, **options)


def save(picture: Any, path: str | os.PathLike[str], dpi: int = 150) -> None:
    """Write axes, or a figure, to a file whose name ends in .png, .svg or .pdf; ValueError for another.

    >>> import os
    >>> from keras_tfm.visualize import plots
    >>> plots.save(plots.plot_clocks(), "clocks.png")
    >>> os.listdir()
    ['clocks.png']
    """
    suffix = picture_kind(path)
    with new_file(path) as work:
        getattr(picture, "figure", picture).savefig(work, dpi=dpi, format=suffix[1:])


def picture_kind(path: str | os.PathLike[str]) -> str:
    """The suffix of a picture's name, .png, .svg or .pdf; ValueError for another."""
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{path}: expected a name that ends in .png, .svg or .pdf")
    return suffix


def bare(axes: Any, *sides: str) -> Any:
    """The axes with frame lines only on the `sides`, "left" for example."""
    for side, line in axes.spines.items():
        line.set_visible(side in sides)
        line.set_color(INK)
    axes.tick_params(colors=INK, length=3 if sides else 0)
    return axes


def heat_map(axes: Any, values: np.ndarray, colours: str = "Blues", **limits: Any) -> Any:
    """The matrix `values` (T, S) in cells, the first row on top; returns the image."""
    image = axes.imshow(values, cmap=colours, aspect="auto", interpolation="nearest", **limits)
    bare(axes)
    return image


def label_cells(axes: Any, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> None:
    """Names at the cells of a heat map, upright above the columns."""
    if len(rows):
        axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    if len(columns):
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        upright = max(map(len, map(str, columns))) > 2
        axes.set_xticks(range(len(columns)), [str(name) for name in columns], rotation=90 if upright else 0)


def colour_bar(axes: Any, image: Any, label: str) -> None:
    """What the colours of a heat map mean, on its right."""
    bar = axes.figure.colorbar(image, ax=axes, label=label, shrink=0.8)
    bar.outline.set_visible(False)
