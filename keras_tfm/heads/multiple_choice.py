"""Multiple choice: which of several texts fits best (Devlin et al. 2019, section 4.4)."""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.classification import Classifier
from keras_tfm.layers.base import Layer
from keras_tfm.layers.signatures import Backbone


class MultipleChoice(ModelWithHead):
    """A `backbone` with one logit for each choice: inputs (B, C, T) in, logits (B, C) out.

    Each choice is read separately, as by a `Classifier` with one class, whose arguments the others are. The
    loss is `classification_loss`; the label is the number of the right choice, counted from 0.

    >>> model = keras_tfm.heads.MultipleChoice(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> model({"token_ids": np.ones((1, 4, 3), "int32")}).shape
    TensorShape([1, 4])
    """

    def __init__(
        self,
        backbone: Backbone,
        hidden_dim: int | None = None,
        dropout: float = 0.0,
        activation: str = "tanh",
        input_dropout: float = 0.0,
        name: str = "multiple_choice",
        **kwargs: Any,
    ) -> None:
        policy = keras.config.dtype_policy()  # set to this model's policy while it is made
        classifier = Classifier(backbone, 1, hidden_dim, dropout, activation, input_dropout, dtype=policy)
        inputs = {
            name: keras.Input((None, None), dtype=x.dtype, name=name) for name, x in classifier.input.items()
        }
        fold = FoldChoices(name="fold")
        logits = classifier({name: fold(x) for name, x in inputs.items()})  # (B C, 1)
        outputs = UnfoldChoices(name="unfold")(logits, inputs["token_ids"])
        super().__init__(backbone, inputs, outputs, name=name, **kwargs)
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.activation = activation
        self.input_dropout = input_dropout


class FoldChoices(Layer):
    """The choices as rows of a batch: (B, C, T) -> (B C, T), in any dtype."""

    def call(self, x):
        batch, choices, length = ops.shape(x)
        return ops.reshape(x, (batch * choices, length))  # (B C, T)

    def compute_output_spec(self, x):
        batch, choices, length = x.shape
        rows = None if batch is None or choices is None else batch * choices
        return keras.KerasTensor((rows, length), x.dtype)


class UnfoldChoices(Layer):
    """One number per choice: (B C, 1) -> (B, C), in the shape of `like` (B, C, T)."""

    def call(self, x, like):
        return ops.reshape(x, ops.shape(like)[:2])  # (B, C)

    def compute_output_spec(self, x, like):
        return keras.KerasTensor(like.shape[:2], x.dtype)
