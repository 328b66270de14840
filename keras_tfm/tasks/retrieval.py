"""How well what belongs together is found by its vectors: recall among all candidates."""

from collections.abc import Hashable, Sequence

import numpy as np

PLACES = (1, 5, 10)  # as in Radford et al. 2021, table 13, and before on Flickr30k


def recalls(
    images: np.ndarray, texts: np.ndarray, image_keys: Sequence[Hashable], text_keys: Sequence[Hashable]
) -> dict[str, float]:
    """Recall at `PLACES`, both ways, of rows that belong together: vectors (N, E) of images and of texts.

    Rows of one key are the same image, or the same text, and count once, as asked and as an answer; right is
    whatever stands in a row with what is asked.
    """
    image_rows, image_ids = distinct(image_keys)
    text_rows, text_ids = distinct(text_keys)
    is_right = np.zeros((len(image_rows), len(text_rows)), bool)
    is_right[image_ids, text_ids] = True
    scores = images[image_rows] @ texts[text_rows].T
    return {
        f"{name}_recall_{place}": float(np.mean(ranks < place))
        for name, ranks in (
            ("text", first_right(scores, is_right)),
            ("image", first_right(scores.T, is_right.T)),
        )
        for place in PLACES
    }


def first_right(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """How many wrong answers (N,) score as much as the best right one, or more, of `scores` (N, M)."""
    best = np.where(is_right, scores, -np.inf).max(axis=1, keepdims=True)
    return np.sum(~is_right & (scores >= best), axis=1)


def distinct(keys: Sequence[Hashable]) -> tuple[list[int], np.ndarray]:
    """(The row where each key stands first, for each row (N,) which of these keys it has)."""
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], int)
    rows: dict[int, int] = {}
    for row, number in enumerate(ids.tolist()):
        rows.setdefault(number, row)
    return list(rows.values()), ids
