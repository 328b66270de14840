"""Recall of retrieval: how often the matching vector is among the nearest of all candidates."""

from collections.abc import Hashable, Sequence

import numpy as np

from keras_tfm.tasks.grouped import distinct

PLACES = (1, 5, 10)  # the ranks of Radford et al. 2021, table 13, and of Flickr30k


def recalls(
    images: np.ndarray, texts: np.ndarray, image_keys: Sequence[Hashable], text_keys: Sequence[Hashable]
) -> dict[str, float]:
    """Recall at `PLACES` in both directions, for vectors (N, E) of images and texts whose rows match.

    Rows with equal keys are the same image, or the same text; they count once, as a question and as an
    answer. An answer is right if it shares a row with the question.
    """
    image_rows, text_rows, is_right = pairs_of(image_keys, text_keys)
    return recalls_of(images[image_rows] @ texts[text_rows].T, is_right)


def recalls_of(scores: np.ndarray, is_right: np.ndarray) -> dict[str, float]:
    """Recall at `PLACES` in both directions, by the `scores` (I, T) of different images and texts; `is_right`
    (I, T) says which belong together.
    """
    return {
        f"{name}_recall_{place}": float(np.mean(ranks < place))
        for name, ranks in (
            ("text", first_right(scores, is_right)),
            ("image", first_right(scores.T, is_right.T)),
        )
        for place in PLACES
    }


def pairs_of(
    image_keys: Sequence[Hashable], text_keys: Sequence[Hashable]
) -> tuple[list[int], list[int], np.ndarray]:
    """The first row of each image, of each text, and which of them (I, T) share a row."""
    image_rows, image_ids = distinct(image_keys)
    text_rows, text_ids = distinct(text_keys)
    is_right = np.zeros((len(image_rows), len(text_rows)), bool)
    is_right[image_ids, text_ids] = True
    return image_rows, text_rows, is_right


def first_right(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """For each row of `scores` (N, M), how many wrong answers score at least as high as the best right one.
    Where a score is NaN, the wrong answer counts.
    """
    best = np.where(is_right, scores, -np.inf).max(axis=1, keepdims=True)
    return np.sum(~is_right & ~(scores < best), axis=1)
