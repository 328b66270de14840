"""Classification with a class token, which learns from labels, and a distillation token, which learns from a
teacher.
"""

from typing import Any

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.classification import ClassificationHead
from keras_tfm.layers.signatures import Backbone


class DistilledClassifier(ModelWithHead):
    """A `backbone` with a head on its `pooled_output` and another on its `distilled_output`.

    The output, logits (B, num_classes), is the mean of both heads' (Touvron et al. 2021, "Training
    data-efficient image transformers", section 5.2). To train by distillation, make a `keras_tfm.Model` of
    the model's input and its `logits`, {"class": (B, num_classes), "distilled": (B, num_classes)}.

    >>> sizes = {"image_size": 16, "patch_size": 4, "dim": 8, "num_layers": 1, "num_heads": 2}
    >>> backbone = keras_tfm.models.DeiT.from_size("Ti", intermediate_dim=16, **sizes)
    >>> keras_tfm.heads.DistilledClassifier(backbone, num_classes=3).output.shape
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
        if "distilled_output" not in outputs:
            raise ValueError(f"`backbone` must have a `distilled_output`; it has {', '.join(outputs)}.")
        head = ClassificationHead(num_classes, dropout=dropout, name="head")
        distilled_head = ClassificationHead(num_classes, dropout=dropout, name="distilled_head")
        logits = {
            "class": head(outputs["pooled_output"]),
            "distilled": distilled_head(outputs["distilled_output"]),
        }
        mean = (logits["class"] + logits["distilled"]) / 2
        super().__init__(backbone, backbone.input, mean, name=name, **kwargs)
        self.num_classes = num_classes
        self.dropout = dropout
        self.head = head
        self.distilled_head = distilled_head
        self.logits = logits
