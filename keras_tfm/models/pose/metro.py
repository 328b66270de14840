"""METRO (Lin et al. 2021, "End-to-End Human Pose and Mesh Reconstruction with Transformers"): joints and
vertices of a body as tokens.

    image --> backbone --> vectors --+
                                     +--> tokens --> 4 blocks --> narrower --> 4 blocks --> ... --> x, y, z
    template: the body at rest ------+

A token is a point of the template with a vector of the image beside it. There are no body models here: the
template is an input, and joints are learnt as points like others. Deviates from the authors' code in the
backbone, which is a ResNet unless another one is named.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Depth, Length, Rate, Refusal, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import check_stages
from keras_tfm.models.detection.backbones import AroundBackbone, ModelAroundBackbone
from keras_tfm.models.vision.images import Side

Points = Annotated[int, Between(1, 2**14)]  # each attends to all others


@dataclasses.dataclass(frozen=True)
class METROConfig(AroundBackbone):
    """The sizes of a `METRO`; tuples have one entry per stage.

    Args:
        dims: the widths of the blocks; three numbers leave the last stage.
        output_dims: the widths between the stages, one less than these.
        intermediate_dims: the widths of the feed-forward layers.
        num_layers: the blocks of each stage.
        max_length: for how many tokens there are positions.
        mesh_sizes: the numbers of vertices of finer meshes, each a dense layer over those before it.
        weighs_cells: whether each token has a learned mean of the map's cells, instead of their mean.
        masking: the largest part of the tokens that training hides (section 3.3).
        camera_dim: the width of the camera's hidden layer.
        camera_reads_joints: whether the camera is made of all tokens, instead of the vertices alone.
    """

    image_size: Side | tuple[Side, Side] = 224
    num_joints: Points = 14
    num_vertices: Points = 431
    dims: tuple[Size, ...] = (1024, 256, 128)
    output_dims: tuple[Size, ...] = (512, 128)
    intermediate_dims: tuple[Size, ...] = (3072, 3072, 3072)
    num_layers: Depth = 4
    num_heads: Size = 4
    max_length: Length = 512
    mesh_sizes: tuple[Points, ...] = (1723, 6890)
    weighs_cells: bool = True
    masking: Rate = 0.3
    dropout: Rate = 0.1
    epsilon: Rate = 1e-12
    camera_dim: Size = 150
    camera_reads_joints: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "intermediate_dims")
        if len(self.output_dims) != len(self.dims) - 1:
            raise Refusal("output_dims", f"{len(self.dims) - 1} widths", self.output_dims)
        if any(dim % self.num_heads for dim in self.dims):
            raise Refusal("num_heads", f"a divisor of all of {self.dims}", self.num_heads)
        if self.max_length < self.num_points:
            raise Refusal("max_length", f"at least the number of tokens, {self.num_points}", self.max_length)

    @property
    def num_points(self):
        """How many tokens there are: joints, then vertices."""
        return self.num_joints + self.num_vertices


class METRO(ModelAroundBackbone):
    """Images and a template in, places of joints and vertices out.

    Inputs: `images` (B, H, W, C), floating-point, and `template` (B, T, 3), joints and then vertices of a
    body at rest, around its root. Outputs: `sequence_output` (B, T, 3), their places, `mesh_output` (B, V,
    3), the vertices of the finest mesh, and `camera` (B, 3), the scale and the shift of a weak perspective.

    >>> model = keras_tfm.models.METRO.from_size("tiny")
    >>> outputs = model({"images": np.zeros((1, 64, 64, 3)), "template": np.zeros((1, 24, 3))})
    >>> outputs["sequence_output"].shape, outputs["mesh_output"].shape
    (TensorShape([1, 24, 3]), TensorShape([1, 48, 3]))
    """

    config_class = METROConfig

    def __init__(self, config: METROConfig, name: str = "metro", **kwargs: Any) -> None:
        backbone = config.new_backbone()
        template = keras.Input((config.num_points, 3), name="template")
        cells = flatten_map(backbone.maps[-1])  # (B, N, D)
        if config.weighs_cells:
            over_cells = keras.layers.Dense(config.num_points, name="cell_weights")
            vectors = ops.swapaxes(over_cells(ops.swapaxes(cells, 1, 2)), 1, 2)  # (B, T, D)
        else:
            vectors = ops.mean(cells, axis=1, keepdims=True) + ops.zeros_like(template[..., :1])
        x = VertexMasking(config.masking, name="masking")(ops.concatenate([template, vectors], axis=-1))
        trace = config.trace_of(backbone)
        for stage, width in enumerate((*config.output_dims, 3)):
            x = _stage(config, stage, width, x, trace)
        vertices = x[:, config.num_joints :]
        mesh = ops.swapaxes(vertices, 1, 2)  # (B, 3, V)
        for i, size in enumerate(config.mesh_sizes):
            mesh = keras.layers.Dense(size, name=f"mesh_{i}")(mesh)
        camera = keras.layers.Dense(1, name="camera_point")(x if config.camera_reads_joints else vertices)
        camera = keras.layers.Dense(config.camera_dim, name="camera_hidden")(camera[..., 0])
        outputs = {
            "sequence_output": x,
            "mesh_output": ops.swapaxes(mesh, 1, 2),
            "camera": keras.layers.Dense(3, name="camera")(camera),
        }
        inputs = {"images": backbone.input["images"], "template": template}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps


def _stage(config, stage, width, x, trace):
    """BERT's blocks between two dense layers, and a dense layer past them: (B, T, D) -> (B, T, `width`)."""

    def dense(units, name):
        options = {"kernel_initializer": TRUNCATED.clone(), "name": f"encoder_{stage}_{name}"}
        return keras.layers.Dense(units, **options)

    h = dense(config.dims[stage], "embedding")(x)
    h = PositionEmbedding(config.max_length, TRUNCATED, name=f"encoder_{stage}_position")(h)
    h = Dropout(config.dropout, name=f"encoder_{stage}_dropout")(h)
    blocks = [_block(config, stage, i) for i in range(config.num_layers)]
    h = trace.run(f"encoder_{stage}", blocks, h)  # a stack of its own: stages differ in width
    return dense(width, "output")(h) + dense(width, "shortcut")(x)


def _block(config, stage, index):
    part = residuals(config.dropout, config.epsilon)
    attention = MultiHeadAttention(config.num_heads, dropout=config.dropout, kernel_initializer=TRUNCATED)
    feedforward = FeedForward(config.intermediate_dims[stage], "gelu", kernel_initializer=TRUNCATED)
    name = f"encoder_{stage}_block_{index}"
    return block_of(part, name, attention=attention, feedforward=feedforward)


class VertexMasking(SameShape):
    """Whole tokens (B, T, D) replaced by 0.01 in training: of each example up to `rate` of them, at random.

    Lin et al. 2021, section 3.3, "masked vertex modeling"; 0.01 is the authors' code's.
    """

    def __init__(self, rate: float = 0.3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, D)."""
        if not training or not self.rate:
            return x
        size, length = ops.shape(x)[:2]
        share = keras.random.uniform((size, 1, 1), 0.0, self.rate, seed=self.seed_generator)
        hidden = keras.random.uniform((size, length, 1), seed=self.seed_generator) < share
        return ops.where(hidden, ops.cast(0.01, x.dtype), x)


# Lin et al. 2021: the body and the hand, as in the authors' code, whose feed-forward layers are four times as
# wide as their blocks for the hand alone. tiny is this package's own.
METRO.sizes = {
    "tiny": METROConfig(
        64,
        backbone_config={"stem_dim": 16, "dims": (32, 64), "depths": (1, 1), "block": "basic"},
        frozen_norms=False,
        num_joints=4,
        num_vertices=20,
        dims=(64, 32),
        output_dims=(32,),
        intermediate_dims=(128, 64),
        num_layers=2,
        max_length=24,
        mesh_sizes=(48,),
        dropout=0.0,
    ),
    "body": METROConfig(camera_dim=250),
    "hand": METROConfig(
        num_joints=21,
        num_vertices=195,
        dims=(1024, 256, 64),
        intermediate_dims=(4096, 1024, 256),
        mesh_sizes=(778,),
        weighs_cells=False,
        masking=0.0,
        camera_reads_joints=True,
    ),
}
