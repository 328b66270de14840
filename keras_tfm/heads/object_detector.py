"""DETR's head: one object, or none, of each query (Carion et al. 2020, section 3.2)."""

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense


class ObjectDetector(ModelWithHead):
    """A `backbone` with `decoder_outputs` (B, L, Q, D), a `DETR`, and a head: images in, Q objects out.

    Outputs: `logits` (B, Q, num_classes + 1), the last one that of no object, and `boxes` (B, Q, 4), (x, y,
    width, height) around the centre as parts of the image's sides, padding apart. They are those of the last
    decoder block; `predictions` (B, L, Q, num_classes + 5), logits and boxes side by side, are of all. To
    train, make a `keras_tfm.Model` of the model's `input` and `predictions`, with `SetPredictionLoss`.
    """

    def __init__(self, backbone, num_classes, name="object_detector", **kwargs):
        if num_classes < 1:
            raise ValueError(f"`num_classes` must be at least 1; it is {num_classes}.")
        states = backbone.output["decoder_outputs"]
        dim = states.shape[-1]
        classes = keras.layers.Dense(num_classes + 1, name="class_head")
        boxes = Chain([Dense(dim, "relu"), Dense(dim, "relu"), Dense(4, "sigmoid")], name="box_head")
        logits, boxes = classes(states), boxes(states)
        outputs = {"logits": logits[:, -1], "boxes": boxes[:, -1]}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.predictions = ops.concatenate([logits, boxes], axis=-1)

    def _fill(self, name, inputs):
        return self.backbone._fill(name, inputs)
