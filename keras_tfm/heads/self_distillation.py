"""Self-distillation: learning from images without labels, by a teacher that is the student's moving average.

Caron et al. 2021, "Emerging Properties in Self-Supervised Vision Transformers" (DINO). The teacher sees
large crops of an image, the student sees these and small ones. From each crop the student predicts the
teacher's output for another crop. Deviates from the authors' code: the last layer learns from the first step
on.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import Loss
from keras_tfm.layers.base import Layer, copy_of
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import unit
from keras_tfm.training.model import Model

NUM_LARGE = 2  # large crops per image, which the teacher sees
CENTER_MOMENTUM = 0.9


class ProjectionHead(Layer):
    """The cosines of a projected vector with `num_prototypes` learned vectors: (B, D) -> (B,
    num_prototypes).

    The projection is three dense layers with GELU between them, D -> `hidden_dim` -> `hidden_dim` ->
    `bottleneck_dim`.

    >>> head = keras_tfm.heads.ProjectionHead(num_prototypes=16, hidden_dim=8, bottleneck_dim=4)
    >>> head(np.ones((2, 8))).shape
    TensorShape([2, 16])
    """

    def __init__(
        self, num_prototypes: int, hidden_dim: int = 2048, bottleneck_dim: int = 256, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_prototypes = num_prototypes
        self.hidden_dim = hidden_dim
        self.bottleneck_dim = bottleneck_dim

    def build(self, x_shape):
        self.denses, width = [], x_shape[-1]
        for i, dim in enumerate((self.hidden_dim, self.hidden_dim, self.bottleneck_dim)):
            dense = Dense(
                dim, "gelu" if i < 2 else None, kernel_initializer=copy_of(TRUNCATED), name=f"dense_{i}"
            )
            dense.build((None, width))
            self.denses.append(dense)
            width = dim
        shape = (self.bottleneck_dim, self.num_prototypes)
        self.prototypes = self.add_weight(shape, copy_of(TRUNCATED), name="prototypes")

    def call(self, x):
        """Vectors (B, D) -> cosines (B, num_prototypes)."""
        for dense in self.denses:
            x = dense(x)
        prototypes = unit(self.prototypes, axis=0)
        return ops.matmul(ops.cast(unit(x), x.dtype), ops.cast(prototypes, x.dtype))

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.num_prototypes)


class SelfDistillation(ModelWithHead):
    """A student, its teacher, and the `center` of the teacher's outputs.

    Inputs: `images` (B, 2, H, W, C), two large crops of the size that the `backbone` reads, and, with n =
    `num_local` > 0, small crops `local_images` (B, n, h, w, C). The output is the student's cosines (B, 2 +
    n, `num_prototypes`); the loss is a `SelfDistillationLoss`. The `teacher` and its `teacher_backbone`
    start as copies of the student. During training a `training.MovingAverage` has to update their weights
    from the student's; `followed` lists the pairs.

    Args:
        num_prototypes: how many cosines; with `hidden_dim` and `bottleneck_dim` the sizes of the
            `ProjectionHead`.
        num_local: n, the number of small crops.
        local_size: the side of the small crops. If it differs from the images' the backbone must read any
            size, as a `ViT` does.

    >>> sizes = {"image_size": 16, "patch_size": 4, "dim": 8, "num_layers": 1, "num_heads": 2}
    >>> backbone = keras_tfm.models.ViT.from_size("Ti/16", intermediate_dim=16, **sizes)
    >>> model = keras_tfm.heads.SelfDistillation(backbone, num_prototypes=4, hidden_dim=8, bottleneck_dim=4)
    >>> model.output.shape
    (None, 2, 4)
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_prototypes: int = 4096,
        hidden_dim: int = 2048,
        bottleneck_dim: int = 256,
        num_local: int = 0,
        local_size: int | None = None,
        name: str = "self_distillation",
        **kwargs: Any,
    ) -> None:
        shape = tuple(backbone.input["images"].shape[1:])
        local_shape = shape if local_size is None else (local_size, local_size, shape[-1])
        sizes = (num_prototypes, hidden_dim, bottleneck_dim)
        head = ProjectionHead(*sizes, name="head")
        images = keras.Input((NUM_LARGE, *shape), name="images")
        inputs, cosines = {"images": images}, [cosines_of(backbone, head, images)]
        if num_local:
            reader = backbone if local_shape == shape else backbone.reading(local_size)
            inputs["local_images"] = keras.Input((num_local, *local_shape), name="local_images")
            cosines.append(cosines_of(reader, head, inputs["local_images"]))
        super().__init__(backbone, inputs, ops.concatenate(cosines, axis=1), name=name, **kwargs)
        self.num_prototypes = num_prototypes
        self.hidden_dim = hidden_dim
        self.bottleneck_dim = bottleneck_dim
        self.num_local = num_local
        self.local_size = local_size
        self.head = head
        with keras.name_scope("teacher"):
            twin = type(backbone).from_config(backbone.get_config())
            images = keras.Input((NUM_LARGE, *shape), name="images")
            twin_head = ProjectionHead(*sizes, name="head", dtype=head.dtype_policy)
            self.teacher = Model(images, cosines_of(twin, twin_head, images), name="teacher")
        self.teacher.trainable = False
        self.teacher_backbone = twin
        self.center = self.add_weight((num_prototypes,), "zeros", trainable=False, name="center")
        for own_weight, followed in self.followed:
            own_weight.assign(followed)

    @property
    def followed(self):
        """Pairs of the teacher's weights and the student's weights that they follow."""
        teacher = [*self.teacher_backbone.weights, *self.teacher.get_layer("head").weights]
        return list(zip(teacher, [*self.backbone.weights, *self.head.weights], strict=True))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The loss of the student's cosines; the labels are the teacher's centred cosines for the large
        crops.

        In training the center moves towards the mean of the teacher's cosines over the whole batch.
        """
        labels = ops.stop_gradient(ops.cast(self.teacher(x["images"], training=False), "float32"))
        center = ops.convert_to_tensor(self.center)
        # Before the mean, which waits for other replicas: what layers have added is the last call's then.
        loss = super().compute_loss(x, labels - center, y_pred, sample_weight, training)
        if training:
            mean = self.mean_of_batch(ops.mean(labels, axis=1))
            self.center.assign(CENTER_MOMENTUM * center + (1 - CENTER_MOMENTUM) * mean)
        return loss


def cosines_of(backbone, head, crops):
    """The output of `head` on the pooled output for n crops (B, n, H, W, C): (B, n, prototypes)."""
    count, *shape = crops.shape[1:]
    pooled = backbone({"images": ops.reshape(crops, (-1, *shape))})["pooled_output"]  # (B n, D)
    return ops.reshape(head(pooled), (-1, count, head.num_prototypes))


class SelfDistillationLoss(Loss):
    """The cross-entropy of the student's probabilities for a crop with the teacher's for another, averaged
    over pairs.

    The teacher's probabilities are softmax(centred cosines / `teacher_temperature`), of cosines (B, 2, K).
    The student's are softmax(cosines / `student_temperature`), of cosines (B, 2 + n, K), the same two crops
    first (Caron et al. 2021, section 3).

    >>> loss = keras_tfm.heads.SelfDistillationLoss()
    >>> round(float(loss(np.zeros((1, 2, 4)), np.zeros((1, 3, 4)))), 4)  # log 4
    1.3863
    """

    def __init__(
        self,
        teacher_temperature: float = 0.04,
        student_temperature: float = 0.1,
        reduction: str | None = "mean_with_sample_weight",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction=reduction, **kwargs)
        self.teacher_temperature = teacher_temperature
        self.student_temperature = student_temperature

    def call(self, y_true, y_pred):
        """One number per image of the batch: (B,)."""
        teacher = ops.softmax(ops.cast(y_true, "float32") / self.teacher_temperature)
        student = ops.log_softmax(ops.cast(y_pred, "float32") / self.student_temperature)
        pairs = -ops.einsum("btk,bsk->bts", teacher, student)  # (B, 2, 2 + n)
        of_others = 1 - ops.eye(pairs.shape[1], pairs.shape[2], dtype=pairs.dtype)
        return ops.sum(pairs * of_others, axis=(1, 2)) / ops.sum(of_others)
