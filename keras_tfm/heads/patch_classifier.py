"""Classification by a class token and the mean of the patches."""

from typing import Any

from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.classification import ClassificationHead
from keras_tfm.layers.signatures import Backbone


class PatchClassifier(ModelWithHead):
    """A `backbone` with one linear layer on its `pooled_output` and the mean of its `patch_output`,
    concatenated.

    The output is logits (B, num_classes). Oquab et al. 2023, "DINOv2", appendix B.3, train such a layer to
    evaluate frozen features.

    >>> sizes = {"image_size": 28, "dim": 8, "num_layers": 1, "num_heads": 2}
    >>> backbone = keras_tfm.models.DINOv2.from_size("S/14", **sizes)
    >>> keras_tfm.heads.PatchClassifier(backbone, num_classes=3).output.shape
    (None, 3)
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        dropout: float = 0.0,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        outputs = backbone.output
        if "patch_output" not in outputs:
            raise ValueError(f"`backbone` must have a `patch_output`; it has {', '.join(outputs)}.")
        head = ClassificationHead(num_classes, dropout=dropout, name="head")
        mean = ops.mean(outputs["patch_output"], axis=1)
        x = ops.concatenate([outputs["pooled_output"], mean], axis=-1)  # (B, 2 D)
        super().__init__(backbone, backbone.input, head(x), name=name, **kwargs)
        self.num_classes = num_classes
        self.dropout = dropout
        self.head = head
