"""Pictures larger than a model has positions for, written in a window that slides along.

Esser et al. 2021, "Taming Transformers for High-Resolution Image Synthesis", section 3.2.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_tfm.generation.processors import Written, process
from keras_tfm.generation.samplers import greedy
from keras_tfm.layers.signatures import Decodes, Tensor


def write_grid(
    model: Decodes,
    prompt: Tensor,
    grid: tuple[int, int],
    window: tuple[int, int],
    sampler: Callable = greedy,
    processors: Sequence[Callable] = (),
) -> Any:
    """The tokens (B, rows, columns) of a `grid`, line by line.

    Each is written behind the `prompt` (B, P) and what stands before it in a `window` of (rows, columns),
    which has the token in its middle, or nearest to it where the grid ends. The `model` needs positions for
    the prompt and a window. Where the window is the grid, the tokens are the decoding loop's. Raises
    ValueError for a window larger than the grid.

    >>> gpt = keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=20)
    >>> model = keras_tfm.heads.LanguageModel(gpt)
    >>> keras_tfm.generation.write_grid(model, np.array([[16]]), grid=(4, 3), window=(2, 2)).shape
    (1, 4, 3)
    """
    if any(side > whole or side < 1 for side, whole in zip(window, grid, strict=True)):
        raise ValueError(f"`window` must lie in the `grid` of {grid[0]} x {grid[1]}; it is {window}.")
    prompt = np.asarray(prompt, "int32")
    num_rows, length = prompt.shape
    tokens = np.zeros((num_rows, *grid), "int32")
    height, width = window
    for number, (row, column) in enumerate(np.ndindex(*grid)):
        top, left = (
            min(max(place - side // 2, 0), whole - side)
            for place, side, whole in zip((row, column), window, grid, strict=True)
        )
        seen = tokens[:, top : top + height, left : left + width].reshape(num_rows, -1)  # (B, height width)
        place = (row - top) * width + column - left
        # All of the window, whose later tokens are not seen: one shape for every step.
        sequence = np.concatenate([prompt, seen], axis=1)
        logits, _ = model.step(
            ops.convert_to_tensor(sequence[:, :-1]), model.start(num_rows, sequence.shape[1] - 1)
        )
        mask = np.broadcast_to(np.arange(sequence.shape[1]) < length + place, sequence.shape)
        written = Written(sequence, mask, np.int32(length + place), np.int32(length))
        tokens[:, row, column] = sampler(process(logits[:, length + place - 1], written, processors), number)
    return tokens
