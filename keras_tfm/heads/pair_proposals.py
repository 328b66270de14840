"""Which pairs of objects are worth a relation: the most related ones that overlap little with better ones.

Yang et al. 2018, "Graph R-CNN for Scene Graph Generation", section 3.2.
"""

from keras import ops

from keras_tfm.layers.boxes import common_area, corners_and_area, suppressed
from keras_tfm.layers.signatures import Tensor

FREE = -1


def pair_overlaps(boxes: Tensor, pairs: Tensor) -> Tensor:
    """How much each two of the `pairs` (B, K, 2), rows of `boxes` (B, N, 4), overlap: (B, K, K), 0 to 1.

    It is the area common to both subjects plus that common to both objects, over the sum of both unions. A
    quotient by an area of 0 is 0.

    >>> boxes = np.array([[[0.2, 0.5, 0.2, 0.2], [0.8, 0.5, 0.2, 0.2]]])  # two squares apart
    >>> pairs = np.array([[[0, 1], [1, 0], [0, 0]]])
    >>> keras_tfm.heads.pair_overlaps(boxes, pairs).numpy()[0, 2].round(2)
    array([0.33, 0.33, 1.  ], dtype=float32)
    """
    common = union = 0.0
    for side in range(2):
        own = ops.take_along_axis(boxes, ops.maximum(pairs[..., side : side + 1], 0), axis=1)  # (B, K, 4)
        corners, area = corners_and_area(own)
        shared = common_area(corners[:, :, None], corners[:, None])
        common += shared
        union += area[:, :, None] + area[:, None] - shared
    return ops.divide_no_nan(common, union)


def best_pairs(
    relatedness: Tensor, boxes: Tensor, count: int, most_overlap: float = 0.7
) -> tuple[Tensor, Tensor]:
    """(The best pairs of objects (B, `count`, 2), rows of subject and object; their relatedness).

    The candidates are the `count` pairs with the highest `relatedness` (B, N, N), which a
    `layers.RelationProposal` gives. A pair is dropped if its relatedness is 0, or if its `pair_overlaps` with
    a better pair that stays exceeds `most_overlap`. `boxes` (B, N, 4) are (x, y, width, height) around
    centres. Rows without a pair come last: they are -1, with the relatedness 0. Gradients pass through the
    relatedness alone.

    >>> related = np.array([[[0.0, 0.9], [0.4, 0.0]]])
    >>> boxes = np.array([[[0.2, 0.5, 0.2, 0.2], [0.8, 0.5, 0.2, 0.2]]])
    >>> pairs, scores = keras_tfm.heads.best_pairs(related, boxes, count=3)
    >>> pairs.numpy().tolist()
    [[[0, 1], [1, 0], [-1, -1]]]
    """
    if count < 1:
        raise ValueError(f"`count` must be at least 1; it is {count}.")
    num_objects = ops.shape(relatedness)[1]
    flat = ops.reshape(relatedness, (-1, num_objects * num_objects))
    flat = ops.pad(flat, ((0, 0), (0, count)))  # there are `count` at least
    scores, places = ops.top_k(flat, count)
    places = ops.cast(places, "int32")
    pairs = ops.stack([places // num_objects, places % num_objects], axis=-1)  # (B, K, 2)
    pairs = ops.where((scores > 0)[..., None], pairs, FREE)
    overlaps = pair_overlaps(boxes, pairs) > most_overlap  # (B, K, K)
    stays = suppressed(overlaps, scores > 0)
    order = ops.argsort(ops.cast(ops.logical_not(stays), "int32"), axis=1)  # what stays, in its order
    stays = ops.take_along_axis(stays, order, axis=1)
    scores = ops.where(stays, ops.take_along_axis(scores, order, axis=1), 0.0)
    pairs = ops.take_along_axis(pairs, order[..., None], axis=1)
    return ops.where(stays[..., None], pairs, FREE), scores
