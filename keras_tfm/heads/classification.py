"""Classifying whole inputs: the head, the model it makes of a backbone, its loss."""

import keras

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.base import Layer
from keras_tfm.layers.regularization import Dropout


class ClassificationHead(Layer):
    """Logits of `num_classes` classes from a pooled vector: (B, D) -> (B, num_classes).

    One linear layer, the kind for fine-tuning; `hidden_dim` puts a tanh layer of that width before it, as in
    pre-training (Dosovitskiy et al. 2021, section 3.1). `dropout` acts on the last layer's input.
    """

    def __init__(self, num_classes, hidden_dim=None, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        for name, size in (("num_classes", num_classes), ("hidden_dim", hidden_dim)):
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {size}.")
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.input_dropout = Dropout(dropout, name="dropout")

    def build(self, x_shape):
        if len(x_shape) != 2:
            raise ValueError(f"`x` must have the shape (B, D); it is {tuple(x_shape)}.")
        self.hidden = None
        if self.hidden_dim is not None:
            self.hidden = keras.layers.Dense(self.hidden_dim, "tanh", name="hidden", dtype=self.dtype_policy)
            self.hidden.build(x_shape)
        self.output_projection = keras.layers.Dense(self.num_classes, name="output", dtype=self.dtype_policy)
        self.output_projection.build((x_shape[0], self.hidden_dim or x_shape[1]))
        self.built = True

    def call(self, x, training=None):
        """(B, D) -> (B, num_classes)."""
        if self.hidden is not None:
            x = self.hidden(x)
        return self.output_projection(self.input_dropout(x, training=training))

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.num_classes)


class Classifier(ModelWithHead):
    """A `backbone` with a `pooled_output` (B, D), and a head: its batches in, logits (B, num_classes) out.

    `hidden_dim` and `dropout` are the head's.
    """

    def __init__(self, backbone, num_classes, hidden_dim=None, dropout=0.0, name="classifier", **kwargs):
        head = ClassificationHead(num_classes, hidden_dim, dropout, name="head")
        super().__init__(
            backbone, backbone.input, head(backbone.output["pooled_output"]), name=name, **kwargs
        )
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.head = head


def classification_loss():
    """Cross-entropy of integer labels (B,) with logits (B, num_classes), in nats, averaged over the batch."""
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight", name="loss"
    )
