"""Classification of whole inputs: the head, the model made of a backbone and the head, and the loss."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead, reading_of
from keras_tfm.layers.base import Layer, copy_of
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.masks import masked_max, masked_mean
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.signatures import Backbone

POOLINGS = "first", "mean", "max"


class ClassificationHead(Layer):
    """Logits for `num_classes` classes from a pooled vector: (B, D) -> (B, num_classes).

    By default it is one linear layer.

    Args:
        num_classes: the number of classes.
        hidden_dim: the width of a hidden layer before it, as in pre-training (Dosovitskiy et al. 2021,
            section 3.1); None for none.
        dropout: the rate for the input of the last layer.
        activation: of the hidden layer.
        input_dropout: the rate for the input of the hidden layer.
        kernel_initializer: "zeros" is what the authors fine-tune with (section 3.2); only for a single
            layer, since two layers of zeros never learn.
        use_bias: whether the layers have biases.

    >>> keras_tfm.heads.ClassificationHead(num_classes=3)(np.ones((2, 8))).shape
    TensorShape([2, 3])
    """

    def __init__(
        self,
        num_classes: int,
        hidden_dim: int | None = None,
        dropout: float = 0.0,
        activation: str | Callable | None = "tanh",
        input_dropout: float = 0.0,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        norm_epsilon: float | None = None,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, size in (("num_classes", num_classes), ("hidden_dim", hidden_dim)):
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {size}.")
        if hidden_dim is not None and kernel_initializer == "zeros":
            raise ValueError(f"`kernel_initializer` 'zeros' needs `hidden_dim` None; it is {hidden_dim}.")
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.activation = activation
        self.input_dropout = input_dropout
        self.kernel_initializer = kernel_initializer
        self.norm_epsilon = norm_epsilon
        self.use_bias = use_bias
        self.last_dropout = Dropout(dropout, name="dropout")
        self.first_dropout = Dropout(input_dropout, name="input_dropout")

    def build(self, x_shape):
        if len(x_shape) != 2:
            raise ValueError(f"`x` must have the shape (B, D); it is {tuple(x_shape)}.")
        self.norm = None
        if self.norm_epsilon is not None:
            self.norm = LayerNormalization(self.norm_epsilon, name="norm")
            self.norm.build(x_shape)
        self.hidden = None
        if self.hidden_dim is not None:
            self.hidden = self._dense(self.hidden_dim, activation_of(self.activation), name="hidden")
            self.hidden.build(x_shape)
        self.output_projection = self._dense(self.num_classes, name="output")
        self.output_projection.build((x_shape[0], self.hidden_dim or x_shape[1]))

    def _dense(self, *arguments, **options):
        initializer = copy_of(self.kernel_initializer)
        return keras.layers.Dense(
            *arguments, use_bias=self.use_bias, kernel_initializer=initializer, **options
        )

    def call(self, x, training=None):
        """(B, D) -> (B, num_classes)."""
        x = x if self.norm is None else self.norm(x)
        if self.hidden is not None:
            x = self.hidden(self.first_dropout(x, training=training))
        return self.output_projection(self.last_dropout(x, training=training))

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.num_classes)


class Classifier(ModelWithHead):
    """A `backbone` with a classification head: the backbone's inputs in, logits (B, num_classes) out.

    The other arguments go to `ClassificationHead`.

    Args:
        pooling: what the head reads. "first" is the backbone's `pooled_output` or, without one, the first
            token's hidden state. "mean" is the mean over the tokens that are not padding (Reimers and
            Gurevych 2019, section 3), "max" their maximum for each feature (the "max layer" of Collobert et
            al. 2011); both are zero if all is padding.

    >>> model = keras_tfm.heads.Classifier(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100), 3)
    >>> model({"token_ids": np.array([[1, 2, 3]])}).shape
    TensorShape([1, 3])
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        hidden_dim: int | None = None,
        dropout: float = 0.0,
        activation: str = "tanh",
        input_dropout: float = 0.0,
        pooling: str = "first",
        kernel_initializer: str = "glorot_uniform",
        norm_epsilon: float | None = None,
        use_bias: bool = True,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        parts = (hidden_dim, dropout, activation, input_dropout, kernel_initializer, norm_epsilon, use_bias)
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
        self.norm_epsilon = norm_epsilon
        self.use_bias = use_bias
        self.head = head


def pooled_of(inputs, outputs, pooling):
    """One vector per input, (B, D), of a backbone's `inputs` and `outputs`; see `Classifier`."""
    if pooling not in POOLINGS:
        raise ValueError(f"`pooling` must be one of {', '.join(POOLINGS)}; it is {pooling!r}.")
    hidden = outputs["sequence_output"]
    if pooling == "first":
        return outputs["pooled_output"] if "pooled_output" in outputs else ops.take(hidden, 0, axis=1)
    is_masked = isinstance(inputs, dict) and "padding_mask" in inputs
    mask = inputs["padding_mask"] if is_masked else ops.ones_like(hidden[..., 0], "bool")
    return masked_mean(hidden, mask) if pooling == "mean" else masked_max(hidden, mask)


def classification_loss() -> keras.losses.Loss:
    """The cross-entropy of integer labels (B,) with logits (B, num_classes), in nats, averaged over the
    batch.

    >>> loss = keras_tfm.heads.classification_loss()
    >>> float(loss(np.array([0]), np.zeros((1, 2)))) == float(np.float32(np.log(2)))
    True
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight", name="loss"
    )


def soft_classification_loss():
    """`classification_loss` for labels that are probabilities of the classes (B, num_classes)."""
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight", name="loss"
    )
