"""Masks of single segments, as COCO's run lengths (RLE) and polygons have them (Lin et al. 2014).

The pixels of a mask are counted column by column: so many outside, so many inside, and so on. Polygons are
drawn, and masks packed, by faster-coco-eval.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.stated_sizes import Size, resized

EXPECTED = 'expected polygons or an RLE as "segmentation", got'


def packed(mask: np.ndarray) -> bytes:
    """A mask (H, W), of any type, as the text of COCO's packed run lengths."""
    from faster_coco_eval.core import mask as library

    runs = library.encode(np.asfortranarray(mask, "uint8"))["counts"]
    return runs if isinstance(runs, bytes) else runs.encode("ascii")


def unpacked(runs: bytes, size: Size) -> np.ndarray:
    """The mask (H, W), boolean, that `packed` made."""
    from faster_coco_eval.core import mask as library

    return library.decode({"size": list(size), "counts": runs}).astype(bool)


def mask_of(segmentation: Any, size: Size, stated: Size | None = None) -> np.ndarray | str:
    """The mask (H, W), boolean, of COCO's "segmentation" in an image of this `size`, or the reason why there
    is none. ValueError for what is neither polygons nor run lengths.

    Polygons, and run lengths of that size, are scaled from the `stated` size of the image.
    """
    if isinstance(segmentation, dict):
        return _of_runs(segmentation, size, stated or size)
    if not isinstance(segmentation, list) or not segmentation:
        raise ValueError(f"{EXPECTED} {brief(segmentation)}")
    return _of_polygons(segmentation, size, stated or size)


def _of_polygons(polygons: list, size: Size, stated: Size) -> np.ndarray | str:
    """The union of polygons [x, y, x, y, ...], cut off at the edges of the image. Points outside by more than
    its size are moved to that distance, since drawing takes memory by the length of the lines.
    """
    from faster_coco_eval.core import mask as library

    height, width = size
    drawn = []
    for polygon in polygons:
        if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2 or not _are_numbers(polygon):
            raise ValueError(f"expected polygons of three points or more, x and y, got {brief(polygon)}")
        try:
            points = np.array(polygon, "float64").reshape(-1, 2)
        except OverflowError:
            return "not finite"
        if not np.isfinite(points).all():
            return "not finite"
        own = np.array(stated[::-1])
        points = np.clip(points, -own, 2 * own) * ([width, height] / own)
        drawn.append(points.ravel().tolist())
    runs = library.merge(library.frPyObjects(drawn, height, width))
    return library.decode(runs).astype(bool)


def _of_runs(encoded: dict, size: Size, stated: Size) -> np.ndarray | str:
    """The mask of {"size": [height, width], "counts": run lengths, a list or packed as a text}."""
    own, counts = encoded.get("size"), encoded.get("counts")
    if not isinstance(own, list) or len(own) != 2 or not all(type(side) is int for side in own):
        raise ValueError(f'expected [height, width] as the "size" of an RLE, got {brief(own)}')
    if isinstance(counts, str):
        runs = run_lengths(counts)
    elif isinstance(counts, list) and all(type(count) is int for count in counts):
        runs = counts
    else:
        raise ValueError(f'expected run lengths as the "counts" of an RLE, got {brief(counts)}')
    height, width = stated if own == list(stated) else size
    if own != [height, width]:
        return f"an RLE of {brief(own[1])} x {brief(own[0])}, the image has {width} x {height}"
    if runs is None or min(runs, default=0) < 0 or sum(runs) != height * width:
        return f"an RLE whose runs are not {height * width:,} pixels"
    inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return resized(inside.reshape(width, height).T, size)


def run_lengths(text: str) -> list[int] | None:
    """The numbers in packed run lengths; None where the text is none.

    Each character has five bits of a number, the lowest first, and a sixth where more follow; from the
    fourth run on a number is the difference from the run before the last.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 60:
            return None
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:  # the sign
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return runs if shift == 0 else None


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
