"""Classification of tokens, such as named entities (Devlin et al. 2019, section 5.3)."""

from typing import Any

import keras

from keras_tfm.heads.base import ModelWithHead, reading_of
from keras_tfm.layers.base import Layer
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.signatures import Backbone


class TokenClassificationHead(Layer):
    """Logits for `num_classes` classes at every position: (B, T, D) -> (B, T, num_classes).

    `dropout` is the rate for the input.

    >>> keras_tfm.heads.TokenClassificationHead(num_classes=3)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 3])
    """

    def __init__(self, num_classes: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_classes < 1:
            raise ValueError(f"`num_classes` must be at least 1; it is {num_classes}.")
        self.num_classes = num_classes
        self.dropout = dropout
        self.input_dropout = Dropout(dropout, name="dropout")

    def build(self, x_shape):
        if len(x_shape) != 3:
            raise ValueError(f"`x` must have the shape (B, T, D); it is {tuple(x_shape)}.")
        self.output_projection = keras.layers.Dense(self.num_classes, name="output")
        self.output_projection.build(x_shape)

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, num_classes)."""
        return self.output_projection(self.input_dropout(x, training=training))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.num_classes)


class TokenTagger(ModelWithHead):
    """A `backbone` with a head on its `sequence_output`: the backbone's inputs in, logits (B, T,
    num_classes) out.

    `dropout` is the head's rate. The loss is `TokenCrossEntropy`, weighed by which positions have a label.

    >>> model = keras_tfm.heads.TokenTagger(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100), 3)
    >>> model({"token_ids": np.array([[1, 2, 3]])}).shape
    TensorShape([1, 3, 3])
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        dropout: float = 0.0,
        name: str = "token_tagger",
        **kwargs: Any,
    ) -> None:
        head = TokenClassificationHead(num_classes, dropout, name="head")
        inputs, outputs = reading_of(backbone)
        super().__init__(backbone, inputs, head(outputs["sequence_output"]), name=name, **kwargs)
        self.num_classes = num_classes
        self.dropout = dropout
