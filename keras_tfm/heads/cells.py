"""Cells of an encoded map that learn the objects around them, by the heads that read a decoder's states.

A decoder learns to look when what it looks at is there to be seen. DETR and its kin learn their map through
the decoder alone, which takes long; a prediction of each cell teaches the map from the first step on. It has
no weights of its own, and no part in what the model answers.
"""

from keras import ops

from keras_tfm.heads.set_prediction import IGNORED, smallest_of, taken
from keras_tfm.layers.grid import centres_of, shares_of


def cells_of(context, heads, grid, pixel_mask):
    """The logits and the boxes by the `heads`, and the centres (x, y) as parts of the image's sides, padding
    apart, of the cells of `context` (B, N, D), a map of the `grid` (rows, columns): (B, N, C + 7), float32.
    """
    centres = centres_of([grid], shares_of([pixel_mask]))  # (B, N, 2)
    predictions = [ops.cast(head(context), "float32") for head in heads]
    return ops.concatenate([*predictions, centres], axis=-1)


def cell_means(loss, objects, cells, num_blocks):
    """[(total, count)] of the classes and of the boxes of `cells` (B, N, C + 7), once for each of as many
    blocks, by a `SetPredictionLoss`.

    A cell learns the smallest of the `objects` (B, M, 5) around its centre, or that there is none; a cell at
    padding, where a coordinate is 1 or more, learns nothing.
    """
    predictions, centres = cells[..., :-2], cells[..., -2:]
    apart = ops.abs(centres[:, :, None] - objects[:, None, :, 1:3])  # (B, N, M, 2)
    is_inside = ops.all(apart < objects[:, None, :, 3:] / 2, axis=-1)
    own = taken(objects, smallest_of(is_inside, objects))  # (B, N, 5)
    classes = ops.where(ops.all(centres < 1, axis=-1), own[..., 0], IGNORED)
    badness, weight = loss.class_terms(loss.logits_of(predictions), classes)
    count = ops.sum(ops.cast(own[..., 0] >= 0, "float32")) / num_blocks
    of_classes = (loss.weights[0] * ops.sum(badness), ops.sum(weight) / num_blocks)
    return [of_classes, (loss.box_total(predictions, own), count)]
