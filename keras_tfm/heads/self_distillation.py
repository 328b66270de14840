"""Learning from images without labels, by a teacher that is the student's own moving average.

Caron et al. 2021, "Emerging Properties in Self-Supervised Vision Transformers" (DINO). The teacher sees large
crops of an image, the student these and small ones; from each crop the student predicts what the teacher says
of another. Deviates from the authors' code in that the last layer learns from the first step on.
"""

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.dense import Dense
from keras_tfm.training.model import Model

NUM_LARGE = 2  # crops that the teacher sees
CENTER_MOMENTUM = 0.9
INITIALIZER = keras.initializers.TruncatedNormal(stddev=0.02)  # the authors' code


class ProjectionHead(Layer):
    """Three dense layers with GELU between, D -> `hidden_dim` -> `hidden_dim` -> `bottleneck_dim`, and the
    cosines of what they give with `num_prototypes` learned vectors: (B, D) -> (B, num_prototypes).
    """

    def __init__(self, num_prototypes, hidden_dim=2048, bottleneck_dim=256, **kwargs):
        super().__init__(**kwargs)
        self.num_prototypes = num_prototypes
        self.hidden_dim = hidden_dim
        self.bottleneck_dim = bottleneck_dim

    def build(self, x_shape):
        self.denses, width = [], x_shape[-1]
        for i, dim in enumerate((self.hidden_dim, self.hidden_dim, self.bottleneck_dim)):
            dense = Dense(
                dim, "gelu" if i < 2 else None, kernel_initializer=own(INITIALIZER), name=f"dense_{i}"
            )
            dense.build((None, width))
            self.denses.append(dense)
            width = dim
        shape = (self.bottleneck_dim, self.num_prototypes)
        self.prototypes = self.add_weight(shape, own(INITIALIZER), name="prototypes")
        self.built = True

    def call(self, x):
        """Vectors (B, D) -> cosines (B, num_prototypes)."""
        for dense in self.denses:
            x = dense(x)
        prototypes = ops.cast(self.prototypes, x.dtype)
        return ops.matmul(ops.normalize(x, axis=-1), ops.normalize(prototypes, axis=0))

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.num_prototypes)


class SelfDistillation(ModelWithHead):
    """A student, its teacher, and the `center` of what the teacher says.

    Inputs: `images` (B, 2, H, W, C), two crops of the size of the `backbone`'s images; with `num_local`, n,
    also `local_images` (B, n, h, w, C), of the size `local_size`: where that is another one the backbone must
    read any, as a `ViT` does. The output are the student's cosines (B, 2 + n, `num_prototypes`), which learn
    with a `SelfDistillationLoss`. The `teacher` and its `teacher_backbone` begin as copies; as the student
    learns they are to follow its weights, `followed`, by a `training.MovingAverage`.
    """

    def __init__(
        self,
        backbone,
        num_prototypes=4096,
        hidden_dim=2048,
        bottleneck_dim=256,
        num_local=0,
        local_size=None,
        name="self_distillation",
        **kwargs,
    ):
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
        """Pairs of the teacher's weights and of the student's that they follow."""
        teacher = [*self.teacher_backbone.weights, *self.teacher.get_layer("head").weights]
        return list(zip(teacher, [*self.backbone.weights, *self.head.weights], strict=True))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The loss of the student's cosines, whose labels are the teacher's, centred, of the large crops.

        In training the center moves to the mean of the teacher's cosines over the whole batch.
        """
        labels = ops.stop_gradient(ops.cast(self.teacher(x["images"], training=False), "float32"))
        center = ops.convert_to_tensor(self.center)
        if training:
            mean = self.mean_of_batch(ops.mean(labels, axis=1))
            self.center.assign(CENTER_MOMENTUM * center + (1 - CENTER_MOMENTUM) * mean)
        return super().compute_loss(x, labels - center, y_pred, sample_weight, training)


def cosines_of(backbone, head, crops):
    """What `head` says of the pooled output for n crops (B, n, H, W, C): (B, n, prototypes)."""
    count, *shape = crops.shape[1:]
    pooled = backbone({"images": ops.reshape(crops, (-1, *shape))})["pooled_output"]  # (B n, D)
    return ops.reshape(head(pooled), (-1, count, head.num_prototypes))


class SelfDistillationLoss(keras.losses.Loss):
    """The cross-entropy of the student's probabilities for a crop with the teacher's for another, averaged.

    The teacher's are a softmax of centred cosines (B, 2, K) over `teacher_temperature`, the student's one of
    cosines (B, 2 + n, K), of the same two crops first, over `student_temperature` (Caron et al. 2021, section
    3).
    """

    def __init__(self, teacher_temperature=0.04, student_temperature=0.1):
        super().__init__(name="loss", reduction="mean_with_sample_weight")
        self.teacher_temperature = teacher_temperature
        self.student_temperature = student_temperature

    def call(self, y_true, y_pred):
        """One number for each image of the batch: (B,)."""
        said = ops.softmax(ops.cast(y_true, "float32") / self.teacher_temperature)
        found = ops.log_softmax(ops.cast(y_pred, "float32") / self.student_temperature)
        pairs = -ops.einsum("btk,bsk->bts", said, found)  # (B, 2, 2 + n)
        of_others = 1 - ops.eye(pairs.shape[1], pairs.shape[2], dtype=pairs.dtype)
        return ops.sum(pairs * of_others, axis=(1, 2)) / ops.sum(of_others)
