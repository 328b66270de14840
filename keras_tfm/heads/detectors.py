"""Which head of a detector fits which backbone."""

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.candidate_detectors import CellSetDetector, RegionSetDetector
from keras_tfm.heads.object_detector import (
    CrowdDetector,
    ObjectDetector,
    ReferencedDetector,
    VarifocalDetector,
)
from keras_tfm.layers.signatures import Backbone


def detector_around(backbone: Backbone, num_classes: int) -> SetPredictor:
    """The head that fits what `backbone` gives, on it, or, if it knows another number of classes, on one with
    its other weights.

    >>> backbone = keras_tfm.models.DETR.from_size("tiny", image_size=32)
    >>> type(keras_tfm.heads.detector_around(backbone, num_classes=3)).__name__
    'ObjectDetector'
    """
    names = backbone.output.keys()
    if hasattr(backbone, "with_classes"):
        head = CellSetDetector if "cells" in names else VarifocalDetector
        return head(backbone.with_classes(num_classes), num_classes)
    if "proposal_mask" in names:
        return RegionSetDetector(backbone, num_classes)
    if getattr(backbone, "is_for_crowds", False):
        return CrowdDetector(backbone, num_classes)
    has_references = {"references", "decoder_boxes"} & names
    return (ReferencedDetector if has_references else ObjectDetector)(backbone, num_classes)
