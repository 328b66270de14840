"""Instances whose masks a model predicts as codes, each in a box."""

from typing import Any

import tensorflow as tf

from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.heads.coded_segmenter import pasted
from keras_tfm.tasks.segmentation.segments import areas_and_boxes
from keras_tfm.tasks.segmentation.sets import Instances


class CodedInstances(Instances):
    """`Instances` of a `CodedSegmenter`: the likeliest pairs of a query and a class. A score is the class's
    probability; a pixel is in a mask where this says one half or more, and masks without pixels are left out.
    """

    def before_training(self, batches: CanvasBatches) -> None:
        self.model.fit_codes(masks for _, masks in batches.dataset())

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Logits (B, Q, C), boxes (B, Q, 4) and masks (B, Q, side, side)."""
        return {name: tf.cast(outputs[name], tf.float32) for name in ("logits", "boxes", "masks")}

    def found(  # type: ignore[override]  # boxes too
        self, logits: tf.Tensor, boxes: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The segments of one image of the `size` (2,), with `areas` and `boxes`."""
        num_classes = logits.shape[-1]
        scores, places = tf.math.top_k(tf.reshape(self.model.probabilities(logits), [-1]), self.most)
        queries = places // num_classes
        height, width = tf.unstack(tf.cast(size, tf.int32))
        inside = pasted(tf.sigmoid(tf.gather(masks, queries)), tf.gather(boxes, queries), (height, width))
        is_inside = inside >= 0.5
        is_kept = tf.reduce_any(is_inside, axis=(1, 2)) & (scores >= threshold)
        is_inside = tf.boolean_mask(is_inside, is_kept)
        return {
            "masks": is_inside,
            "classes": tf.boolean_mask(places % num_classes, is_kept),
            "scores": tf.boolean_mask(scores, is_kept),
            **areas_and_boxes(is_inside),
        }
