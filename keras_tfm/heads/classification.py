"""Classifying whole inputs: the head, the model it makes of a backbone, its loss."""

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead, reading_of
from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.masks import masked_max, masked_mean
from keras_tfm.layers.regularization import Dropout

POOLINGS = "first", "mean", "max"


class ClassificationHead(Layer):
    """Logits of `num_classes` classes from a pooled vector: (B, D) -> (B, num_classes).

    One linear layer, the kind for fine-tuning; `hidden_dim` puts a layer of that width, with `activation`,
    before it, as in pre-training (Dosovitskiy et al. 2021, section 3.1). `dropout` acts on the last layer's
    input, `input_dropout` on the hidden one's. To fine-tune, the authors begin with the `kernel_initializer`
    "zeros" (section 3.2), which goes with one linear layer alone: two of zeros would never learn.
    """

    def __init__(
        self,
        num_classes,
        hidden_dim=None,
        dropout=0.0,
        activation="tanh",
        input_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, size in (("num_classes", num_classes), ("hidden_dim", hidden_dim)):
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {size}.")
        if hidden_dim is not None and kernel_initializer == "zeros":
            raise ValueError(f"`kernel_initializer` 'zeros' is for one layer; `hidden_dim` is {hidden_dim}.")
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.activation = activation
        self.input_dropout = input_dropout
        self.kernel_initializer = kernel_initializer
        self.last_dropout = Dropout(dropout, name="dropout")
        self.first_dropout = Dropout(input_dropout, name="input_dropout")

    def build(self, x_shape):
        if len(x_shape) != 2:
            raise ValueError(f"`x` must have the shape (B, D); it is {tuple(x_shape)}.")
        self.hidden = None
        if self.hidden_dim is not None:
            self.hidden = self._dense(self.hidden_dim, activation_of(self.activation), name="hidden")
            self.hidden.build(x_shape)
        self.output_projection = self._dense(self.num_classes, name="output")
        self.output_projection.build((x_shape[0], self.hidden_dim or x_shape[1]))
        self.built = True

    def _dense(self, *arguments, **options):
        return keras.layers.Dense(*arguments, kernel_initializer=own(self.kernel_initializer), **options)

    def call(self, x, training=None):
        """(B, D) -> (B, num_classes)."""
        if self.hidden is not None:
            x = self.hidden(self.first_dropout(x, training=training))
        return self.output_projection(self.last_dropout(x, training=training))

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.num_classes)


class Classifier(ModelWithHead):
    """A `backbone` and a head: its batches in, logits (B, num_classes) out.

    With `pooling` "first" the head reads the backbone's `pooled_output` or, where it has none, the first
    token's hidden state, with "mean" the mean of the tokens' that are not padding (Reimers and Gurevych 2019,
    section 3), with "max" the greatest value of each feature among them (the "max layer" of Collobert et al.
    2011); of padding alone both are zeros. The other arguments are `ClassificationHead`'s.
    """

    def __init__(
        self,
        backbone,
        num_classes,
        hidden_dim=None,
        dropout=0.0,
        activation="tanh",
        input_dropout=0.0,
        pooling="first",
        kernel_initializer="glorot_uniform",
        name="classifier",
        **kwargs,
    ):
        parts = (hidden_dim, dropout, activation, input_dropout, kernel_initializer)
        head = ClassificationHead(num_classes, *parts, name="head")
        inputs, outputs = reading_of(backbone)
        super().__init__(backbone, inputs, head(pooled_of(inputs, outputs, pooling)), name=name, **kwargs)
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.activation = activation
        self.input_dropout = input_dropout
        self.pooling = pooling
        self.kernel_initializer = kernel_initializer
        self.head = head


def pooled_of(inputs, outputs, pooling):
    """One vector for each input, (B, D), of what a backbone made of `inputs`; see `Classifier`."""
    if pooling not in POOLINGS:
        raise ValueError(f"`pooling` must be one of {', '.join(POOLINGS)}; it is {pooling!r}.")
    hidden = outputs["sequence_output"]
    if pooling == "first":
        return outputs["pooled_output"] if "pooled_output" in outputs else ops.take(hidden, 0, axis=1)
    is_masked = isinstance(inputs, dict) and "padding_mask" in inputs
    mask = inputs["padding_mask"] if is_masked else ops.ones_like(hidden[..., 0], "bool")
    return masked_mean(hidden, mask) if pooling == "mean" else masked_max(hidden, mask)


def classification_loss():
    """Cross-entropy of integer labels (B,) with logits (B, num_classes), in nats, averaged over the batch."""
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight", name="loss"
    )


def soft_classification_loss():
    """`classification_loss` of labels that are shares of the classes (B, num_classes)."""
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight", name="loss"
    )
