"""Several classifications of one video that inform each other (Seong, Hyun and Kim 2019, "Video Multitask
Transformer Network").

A learned query per task attends to the whole video, by the unit of the Action Transformer with the norm at
its input. A class conversion matrix then adds to each task's logits what the classes of the others say of it.
Only the abstract was at hand: that there is one query per task, and the sizes, are ours.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead, reading_of
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.signatures import Backbone


class MultiTaskClassifier(ModelWithHead):
    """A `backbone` with a head for several tasks: the backbone's inputs in, {task: logits (B, classes)} out.

    Each task has a class, a scene and an action for example, and a loss; `compile(loss={task: ...})` adds
    them.

    Args:
        num_classes: {task: its number of classes}, of at least two tasks.
        dim: the width of the queries.
        converts: whether a task's probabilities of classes are added, by a matrix, to the other's logits.

    >>> sizes = dict(num_frames=2, image_size=16, num_layers=1, dim=8, num_heads=2, intermediate_dim=8)
    >>> backbone = keras_tfm.models.ViViT.from_size("B/16x2", **sizes)
    >>> model = keras_tfm.heads.MultiTaskClassifier(backbone, {"scene": 3, "action": 5}, dim=8)
    >>> model({"videos": np.ones((1, 2, 16, 16, 3))})["action"].shape
    TensorShape([1, 5])
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: Mapping[str, int],
        num_layers: int = 3,
        dim: int = 128,
        num_heads: int = 2,
        dropout: float = 0.0,
        converts: bool = True,
        name: str = "multi_task_classifier",
        **kwargs: Any,
    ) -> None:
        if len(num_classes) < 2 or min(num_classes.values()) < 1:
            raise ValueError(f"`num_classes` must have at least two tasks with classes; it is {num_classes}.")
        inputs, outputs = reading_of(backbone)
        memory = Dense(dim, name="memory")(outputs["sequence_output"])  # (B, S, dim)
        initial = keras.initializers.RandomNormal(stddev=0.02)
        count = len(num_classes)
        x = PrependedTokens(count, initial, name="queries")(memory)[:, :count]  # (B, tasks, dim)
        part = residuals(dropout, normalize_first=True)
        for i in range(num_layers):
            attention, feedforward = MultiHeadAttention(num_heads), FeedForward(4 * dim, "relu")
            branches = {"context_attention": attention, "feedforward": feedforward}
            block = block_of(part, f"task_block_{i}", **branches)
            x = block(x, context_attention={"context": memory})
        x = LayerNormalization(name="task_norm")(x)
        logits = {
            task: keras.layers.Dense(size, name=f"{task}_head")(x[:, i])
            for i, (task, size) in enumerate(num_classes.items())
        }
        if converts:
            logits = ClassConversion(name="conversion")(logits)
        super().__init__(backbone, inputs, logits, name=name, **kwargs)
        self.num_classes = dict(num_classes)
        self.num_layers = num_layers
        self.dim = dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.converts = converts


class ClassConversion(Layer):
    """Adds to the logits of each task the probabilities of the classes of every other task times a matrix of
    that pair: {task: (B, classes)} in and out.

    The matrices start at zero, which leaves the logits as they are.

    >>> logits = {"scene": np.ones((1, 3)), "action": np.ones((1, 5))}
    >>> keras_tfm.heads.ClassConversion()(logits)["action"].shape
    TensorShape([1, 5])
    """

    def build(self, logits_shape):
        for source, target in itertools.permutations(logits_shape, 2):
            shape = (logits_shape[source][-1], logits_shape[target][-1])
            name = f"{source}_to_{target}"
            setattr(self, name, self.add_weight(shape, "zeros", name=name))

    def call(self, logits):
        """{task: logits (B, classes)} in and out."""
        converted = dict(logits)
        for source, target in itertools.permutations(logits, 2):
            probabilities, matrix = ops.softmax(logits[source]), getattr(self, f"{source}_to_{target}")
            converted[target] += ops.matmul(probabilities, ops.cast(matrix, probabilities.dtype))
        return converted

    def compute_output_shape(self, logits_shape):
        return dict(logits_shape)
