"""Models in pictures: how large they have become, and what stands in one."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_tfm.visualize.parts import PARTS, part_of
from keras_tfm.visualize.plots.canvas import COLOURS, INK, bare, new_axes

# (Name, year and part of it, parameters), of the papers and announcements.
MODEL_SIZES = (
    ("Transformer big", 2017.46, 213e6),
    ("GPT", 2018.46, 117e6),
    ("BERT large", 2018.79, 335e6),
    ("GPT-2", 2019.12, 1.56e9),
    ("RoBERTa large", 2019.57, 355e6),
    ("Megatron-LM", 2019.71, 8.3e9),
    ("T5", 2019.81, 11e9),
    ("Turing-NLG", 2020.12, 17e9),
    ("GPT-3", 2020.41, 175e9),
    ("Switch Transformer", 2021.03, 1.6e12),
    ("WuDao 2.0", 2021.42, 1.75e12),
    ("BaGuaLu", 2022.25, 174e12),
)


def plot_sizes(models: Sequence[tuple[str, float, float]] = MODEL_SIZES, axes: Any = None) -> Any:
    """Parameters of models, (name, year, count) each, by powers of ten along the years.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_sizes([("BERT", 2018.8, 340e6), ("GPT-2", 2019.1, 1.5e9)])
    >>> [text.get_text() for text in axes.texts]
    ['BERT, 340M', 'GPT-2, 1.5B']
    """
    axes = new_axes(axes, (8, 4.5))
    _, years, counts = zip(*models, strict=True)
    axes.scatter(years, counts, color=COLOURS[0], s=30, zorder=2)
    on_the_left: list[tuple[float, float]] = []
    for name, year, count in models:
        is_near = any(year - y < 1.7 and abs(math.log10(count / c)) < 0.3 for y, c in on_the_left)
        side, place = ("left", (5, -9)) if is_near else ("right", (-5, 4))
        on_the_left += [] if is_near else [(year, count)]
        label = f"{name}, {_brief(count)}"
        axes.annotate(label, (year, count), xytext=place, textcoords="offset points", ha=side, fontsize=8)
    axes.set(yscale="log", ylabel="parameters", xlim=(min(years) - 1.5, max(years) + 0.6))
    axes.set_xticks(range(math.floor(min(years)), math.ceil(max(years)) + 1))
    axes.grid(axis="y", color="#EEEEEE")
    return bare(axes, "left", "bottom")


def plot_model(model: keras.Model, axes: Any = None) -> Any:
    """A model's stacks, what stands in their blocks, their parameters and the shapes that they give, without
    the batch (T is any length): inputs at the bottom.

    Blocks that hold the same layers are drawn once, with their number; an encoder's output goes to all the
    blocks of the decoder beside it, and a backbone's to the stack beside it.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_model(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> axes.texts[0].get_text()
    'embedding  78.6K'
    """
    states = getattr(model, "hidden_states", {})
    stacks = {name: _folded(blocks, states.get(name, ())) for name, blocks in model.blocks.items()}
    inner = {id(weight) for blocks in model.blocks.values() for block in blocks for weight in block.weights}
    outer = [weight for weight in model.weights if id(weight) not in inner]
    before = [w for w in outer if part_of(w.path) == "embedding"]
    after = [w for w in outer if part_of(w.path) != "embedding"]
    heights = {name: sum(len(parts) + 0.9 for parts, *_ in folded) for name, folded in stacks.items()}
    highest = max(heights.values(), default=0)
    width = 3 * max(len(stacks), 1)
    axes = new_axes(axes, (1.35 * width, 0.42 * highest + 2.2))
    inputs = ", ".join(model.input if isinstance(model.input, dict) else [x.name for x in model.inputs])
    middle = (width - 1) / 2
    reads_backbone = "backbone" in stacks  # then the other stacks read its maps instead of the inputs
    wide = 2 if reads_backbone else width - 1
    _box(axes, wide / 2, -1.6, wide, f"embedding  {_brief(_count(before))}", _colour("embedding"))
    axes.text(wide / 2, -2.35, inputs, ha="center", va="center", fontsize=8, color=INK)
    centres = {name: 3 * number + 1 for number, name in enumerate(stacks)}
    for name, folded in stacks.items():
        centre, level = centres[name], 0.0
        if name == "backbone" or not reads_backbone:
            axes.annotate("", (centre, -0.55), (centre, -1.25), arrowprops=_ARROW)
        for parts, repeats, count, shape in folded:
            _frame(axes, centre, level - 0.45, len(parts) + 0.35)
            for row, part in enumerate(parts):
                _box(axes, centre, level + row, 1.7, part, _colour(part))
            label = f"{repeats} × {_brief(count)}" if repeats > 1 else _brief(count)
            above = level + len(parts) - 0.12
            axes.text(centre - 1, above, label, fontsize=8, color=INK, va="center")
            axes.text(centre + 1, above, shape, fontsize=8, color=INK, va="center", ha="right")
            level += len(parts) + 0.9
        axes.text(
            centre - 0.12, -0.9, name, ha="right", va="center", fontsize=9, color=INK, fontweight="bold"
        )
        axes.annotate("", (centre, highest + 0.1), (centre, level - 1.25), arrowprops=_ARROW)
    for name, reader in itertools.pairwise(stacks):
        if name == "backbone" or (name, reader) == ("encoder", "decoder"):
            ends = (centres[reader] - 1, 0.9), (centres[name] + 1, 0.9)
            axes.annotate("", *ends, arrowprops=_ARROW)
    lines = textwrap.wrap(_output(model, _count(after)), LETTERS * (width - 1))
    _box(axes, middle, highest + 0.5, width - 1, "\n".join(lines), COLOURS[6])
    axes.set(xlim=(-0.6, width - 0.4), ylim=(-2.7, highest + 0.7 + LINE * len(lines)), xticks=[], yticks=[])
    title = f"{type(model).__name__}, {_brief(_count(model.weights))} parameters"
    axes.set_title(title, fontsize=11, color=INK)
    return bare(axes)


LETTERS = 14  # of a line, in a box of width 1
LINE = 0.4  # the height of one more line in a box

_ARROW: Mapping[str, Any] = {"arrowstyle": "->", "color": INK, "lw": 1}


def _folded(blocks: Sequence[Any], states: Sequence[Any]) -> list[tuple[list[str], int, int, str]]:
    """[(parts, how often in a row, parameters of one, the shape that it gives)] of a stack's blocks, the
    lowest first; `states` are what goes into the first block and comes out of each, or none.
    """
    runs: list[tuple[list[str], int, int, str]] = []
    shapes = [" × ".join("T" if n is None else str(n) for n in state.shape[1:]) for state in states[1:]]
    # ALBERT's one block gives as many states as it has runs.
    for block, shape in zip(blocks, shapes or [""] * len(blocks), strict=False):
        names = dict.fromkeys(part_of(weight.path) for weight in block.weights)
        parts = [name for name in names if name != "normalization"] or list(names) or ["other"]
        count = _count(block.weights)
        repeats = 1
        if runs and (runs[-1][0], *runs[-1][2:]) == (parts, count, shape):
            repeats += runs.pop()[1]
        runs.append((parts, repeats, count, shape))
    return runs


def _box(axes: Any, x: float, y: float, width: float, text: str, colour: str) -> None:
    """A box with a text of one line or several, whose first line would be in the middle at `y`."""
    from matplotlib.patches import FancyBboxPatch

    height = 0.64 + LINE * text.count("\n")
    corner, style = (x - width / 2, y - 0.32), "round,pad=0.02,rounding_size=0.12"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, fc=colour, ec="none", alpha=0.45))
    axes.text(x, y - 0.32 + height / 2, text, ha="center", va="center", fontsize=9, color="black")


def _frame(axes: Any, x: float, y: float, height: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0.02,rounding_size=0.15"
    axes.add_patch(FancyBboxPatch((x - 1, y), 2, height - 0.3, boxstyle=style, fc="none", ec="#999999"))


def _output(model: keras.Model, count: int) -> str:
    name = ", ".join(model.output) if isinstance(model.output, dict) else model.name
    return f"{name}  {_brief(count)}" if count else name


def _colour(part: str) -> str:
    return COLOURS[[*PARTS, "other"].index(part) % len(COLOURS)]


def _count(weights: Sequence[Any]) -> int:
    floats = {id(w): w for w in weights if w.dtype.startswith(("float", "bfloat"))}
    return sum(int(np.prod(weight.shape)) for weight in floats.values())


def _brief(count: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:g}"
