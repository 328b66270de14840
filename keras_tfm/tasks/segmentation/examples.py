"""Examples of segments as a `Segmenter` takes them from Python: masks and names of each image."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.crowds import details_of
from keras_tfm.data.sources.segments import PANOPTIC, SegmentSets
from keras_tfm.serving.examples import check_column, not_list, refuse_unequal
from keras_tfm.tasks.segmentation.config import SegmenterConfig


def checked_sets(
    sizes: np.ndarray, config: SegmenterConfig, masks: Any, labels: Any, iscrowd: Any = None
) -> SegmentSets:
    """Masks (M, H, W), boolean or 0 and 1, and M names of each image of these `sizes` (N, 2), packed, and
    apart from them those whose `iscrowd` is 1; ValueError for others.
    """
    columns = {"masks": masks, "labels": labels, **({} if iscrowd is None else {"iscrowd": iscrowd})}
    for name, column in columns.items():
        check_column(column, name, not_list)
    refuse_unequal(images=sizes, **columns)
    arrays: list[np.ndarray] = []
    problems: dict[int, str] = {}
    for row, (given, names, size) in enumerate(zip(masks, labels, sizes.tolist(), strict=True)):
        found = np.asarray(given) if len(given) else np.zeros((0, *size), bool)
        if problem := mask_problem(found, names, size) or _problem(found, names, config):
            problems[row] = problem
        arrays.append(found)
    for row, problem in problems.items():
        others = f" ({len(problems) - 1:,} more images are wrong)" if len(problems) > 1 else ""
        raise ValueError(f"image {row}: {problem}{others}")
    sets = SegmentSets.of(arrays, labels, config.class_names, stuff=config.stuff, kind=config.segments)
    if iscrowd is None:
        return sets
    details = [details_of(f"image {row}", labels[row], iscrowd=marks) for row, marks in enumerate(iscrowd)]
    segments, crowds = (
        [
            [part for part, detail in zip(*each, strict=True) if detail.is_crowd == wanted]
            for each in zip(sets.segments, details, strict=True)
        ]
        for wanted in (False, True)
    )
    return SegmentSets(sets.sizes, segments, sets.names, sets.stuff, sets.kind, crowds)


def mask_problem(masks: np.ndarray, names: Sequence[str], size: Sequence[int]) -> str | None:
    """Why masks (M, H, W), or of a video (M, T, H, W), and their M names do not fit what has this `size`;
    None if they do.
    """
    if masks.dtype.kind not in "biu" or masks.shape[1:] != tuple(size):
        shape = ", ".join(map(str, size))
        return f"expected masks of shape (M, {shape}), 0 or 1, got {masks.dtype} {masks.shape}"
    if masks.size and not 0 <= masks.min() <= masks.max() <= 1:
        return f"expected masks of 0 and 1, got {masks.min()} to {masks.max()}"
    if isinstance(names, str) or len(names) != len(masks) or not all(isinstance(x, str) for x in names):
        return f"expected a name for each of {len(masks)} masks, got {names!r:.60}"
    has_pixels = masks.any(axis=tuple(range(1, masks.ndim)))
    if not has_pixels.all():
        return f"expected masks with pixels, mask {int(np.argmin(has_pixels))} has none"
    return None


def _problem(masks: np.ndarray, names: Sequence[str], config: SegmenterConfig) -> str | None:
    """Why the masks of an image, and their names, are no panoptic segments; None if they are, or need not
    be.
    """
    if config.segments != PANOPTIC:
        return None
    if (masks.astype("int64").sum(axis=0) > 1).any():
        return "expected panoptic segments, which share no pixels, got pixels of two"
    for name in config.stuff:
        if list(names).count(name) > 1:
            return f"expected one segment of {name!r}, which is stuff, got {list(names).count(name)}"
    return None
