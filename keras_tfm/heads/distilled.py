"""Classifying images with a second head that was trained by a teacher (Touvron et al. 2021, "DeiT")."""

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.classification import ClassificationHead


class DistilledClassifier(ModelWithHead):
    """A `backbone` with a `distillation_output`, and two heads, the mean of whose logits it gives:
    (B, num_classes).

    The second head reads the `distillation_output`; it learned a teacher's answers (section 4).
    """

    def __init__(self, backbone, num_classes, dropout=0.0, name="classifier", **kwargs):
        if "distillation_output" not in backbone.output:
            raise ValueError(f"{backbone.name!r} has no `distillation_output`; it is not distilled.")
        head = ClassificationHead(num_classes, dropout=dropout, name="head")
        distillation_head = ClassificationHead(num_classes, dropout=dropout, name="distillation_head")
        logits = head(backbone.output["pooled_output"])
        logits = (logits + distillation_head(backbone.output["distillation_output"])) / 2
        super().__init__(backbone, backbone.input, logits, name=name, **kwargs)
        self.num_classes = num_classes
        self.dropout = dropout
        self.head = head
        self.distillation_head = distillation_head
