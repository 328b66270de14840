"""The values of pixels in masks: which are classes, and what is said of them before an hour is trained.

A mask that was stored as JPEG, or resized by mixing neighbours, has many values that no one drew. They are
recognised by their places: pixels of a class fill areas, mixed values lie along edges.
"""

import logging
from collections.abc import Iterable, Mapping

import numpy as np

from keras_tfm.data.sources.mask_files import MANY

LOG = logging.getLogger(__name__)
INNER = 0.1  # the share of inner pixels from which a value fills areas: areas of 3 x 3 pixels have it
FEWEST_MIXED = 8  # mixed values; masks with fewer may have classes of thin things
SHOWN = 8  # how many values a message names


def values_of(mask: np.ndarray) -> np.ndarray:
    """For each value from 0 to 255, how many pixels of a mask (H, W) have it, and how many of these are inner
    pixels, whose neighbours above, below, left and right have it too: (2, 256).
    """
    inner = np.ones(mask.shape, bool)
    below, beside = mask[1:] == mask[:-1], mask[:, 1:] == mask[:, :-1]
    inner[1:] &= below
    inner[:-1] &= below
    inner[:, 1:] &= beside
    inner[:, :-1] &= beside
    return np.stack([np.bincount(pixels, minlength=MANY) for pixels in (mask.ravel(), mask[inner])])


def mixed_values(counts: np.ndarray) -> str | None:
    """The error for masks, of the sum of their `values_of`, most of whose values lie along edges alone; None
    for others.
    """
    occurs = counts[0] > 0
    fills = occurs & (counts[1] >= INNER * counts[0])
    mixed, filling = np.flatnonzero(occurs & ~fills).tolist(), np.flatnonzero(fills).tolist()
    if len(filling) < 2 or len(mixed) < FEWEST_MIXED or len(mixed) <= len(filling):
        return None
    return (
        f"expected a value for each class, got {len(mixed)} values ({_listed(mixed)}) that occur only along "
        f"edges, beside areas of {_listed(filling)}, as in a JPEG or a smoothed mask: make the masks anew, "
        "stored as PNG and resized to the nearest pixel; if all values are classes, name them in classes.txt"
    )


def too_few(names: Mapping[int, str], ignored: int) -> str | None:
    """The error for masks with fewer than two classes; None if there are two or more."""
    if len(names) > 1:
        return None
    hint = f"; {ignored} is ignored unless --ignored is -1" if ignored >= 0 else ""
    return f"expected masks with two classes or more, got {', '.join(names.values()) or 'none'} alone{hint}"


def unknown_values(occurs: np.ndarray, names: Mapping[int, str] | None, ignored: int) -> str | None:
    """The error for values that occur, by `occurs` (256,), and are no class; None if there is none."""
    if names is None:
        return None
    unknown = [value for value in np.flatnonzero(occurs).tolist() if value not in names and value != ignored]
    if not unknown:
        return None
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return f"the value {unknown[0]}{more} in the mask is of no class"


def tell_ignored(path: str, counts: np.ndarray, ignored: int, are_named: bool) -> None:
    """Warn that the `ignored` value occurs in masks, as it may be meant as a class: where all other values
    are classes, and where only one of the named classes occurs.
    """
    pixels = counts[0]
    classes = [value for value in np.flatnonzero(pixels).tolist() if value != ignored]
    if ignored < 0 or not pixels[ignored] or (are_named and len(classes) > 1):
        return
    way_out = "give its pixels the number of its line in classes.txt, from 0" if are_named else "--ignored -1"
    LOG.warning(
        "%s: the classes in the masks are the values %s; %s is ignored, %s of the pixels; if it is a class: "
        "%s",
        path,
        _listed(classes) or "none",
        ignored,
        f"{pixels[ignored] / pixels.sum():.0%}",
        way_out,
    )


def _listed(values: Iterable[int]) -> str:
    values = list(values)
    return ", ".join(map(str, values[:SHOWN])) + (", …" if len(values) > SHOWN else "")
