"""PCT (Guo et al. 2021) of Strawberry-Eat-Mango/PCT_Pytorch, and the Point Transformer (Zhao et al. 2021) of
qq456cvb/Point-Transformers. The Point Transformer has blocks and pooling layers other than our family, made
here of the same bricks; biases before a norm are taken into the norm's mean, and the root by which their
scores are divided into the last layer of the scores.
"""

import keras
from keras import ops

from keras_tfm.convert.keymap import (
    AS_IS,
    POINTWISE,
    TRANSPOSED,
    Row,
    Transform,
    batch_norm,
    linear,
    read_state,
    weight,
)
from keras_tfm.heads import Classifier
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.points import NearestPoints, VectorAttention
from keras_tfm.models import PCT, PCTConfig
from keras_tfm.models.points.clouds import neighbourhoods
from keras_tfm.models.points.point_transformer import STRIDE, pooled, raised
from tests.parity.references.state import check_arguments

# torch.nn.Conv1d of one point keeps (out, in, 1).
OF_POINTS = Transform(lambda array: array[..., 0].T, lambda array, _: [array.T[..., None]])


def normalized(ours, dense, norm, transform=OF_POINTS, has_bias=False):
    """A `NormalizedDense`, and theirs, called `dense` and `norm`."""
    table = weight(f"{ours}/dense/kernel", f"{dense}.weight", transform) + batch_norm(f"{ours}/norm", norm)
    return table + (weight(f"{ours}/dense/bias", f"{dense}.bias") if has_bias else [])


def pct_rows():
    """The whole table; their `v_conv` and `trans_conv` have biases."""
    table = []
    for ours, theirs in (
        ("embedding", ""),
        ("stage_0_pooling", "gather_local_0."),
        ("stage_1_pooling", "gather_local_1."),
        ("projection", "pt_last."),
    ):
        for i in range(2):
            table += normalized(f"{ours}/layer_{i}", f"{theirs}conv{i + 1}", f"{theirs}bn{i + 1}")
    for i in range(4):
        ours, theirs = f"block_{i}", f"pt_last.sa{i + 1}"
        table += weight(f"{ours}/query_key/kernel", f"{theirs}.q_conv.weight", OF_POINTS)
        table += weight(f"{ours}/value/kernel", f"{theirs}.v_conv.weight", OF_POINTS)
        table += weight(f"{ours}/value/bias", f"{theirs}.v_conv.bias")
        table += normalized(f"{ours}/output", f"{theirs}.trans_conv", f"{theirs}.after_norm", has_bias=True)
    return [
        *table,
        *normalized("fusion", "conv_fuse.0", "conv_fuse.1"),
        *normalized("pooled_0", "linear1", "bn6", TRANSPOSED),
        *normalized("pooled_1", "linear2", "bn7", TRANSPOSED, has_bias=True),
        *linear("head/output", "linear3"),
    ]


def read_pct(arguments, weights, shapes):
    """PCT for the authors' arguments and weights and inputs of these `shapes`, and its outputs by their
    names. Queries and keys share their weights, which stand in the state twice.
    """
    check_arguments(arguments, {"channels", "npoint", "nsample", "fuse", "head", "output_channels"}, "PCT")
    config = PCTConfig(
        num_points=shapes["points"][1],
        dim=arguments["channels"],
        counts=tuple(arguments["npoint"]),
        num_neighbours=arguments["nsample"],
        fused_dim=arguments["fuse"],
        head_dims=tuple(arguments["head"]),
    )
    model = Classifier(PCT(config), arguments["output_channels"])
    read_state(model, weights, pct_rows(), {name for name in weights if "k_conv" in name})
    backbone = model.backbone
    outputs = {"logits": model.output, "features/fused": backbone.output["sequence_output"]}
    for i in range(len(config.counts)):
        outputs[f"sampled_{i}"] = backbone.get_layer(f"stage_{i}_sampling").output
        outputs[f"features/local_{i}"] = ops.max(backbone.get_layer(f"stage_{i}_pooling").output, axis=2)
    for i, x in enumerate(backbone.hidden_states["encoder"][1:], start=1):
        outputs[f"features/attention_{i}"] = x
    return model, outputs


POINT_TRANSFORMER = {
    "num_point",
    "num_class",
    "input_dim",
    "width",
    "transformer_dim",
    "nneighbor",
    "nblocks",
}
POINT_TRANSFORMER |= {"head", "first_sampled_point"}


def scaled(transform, factor):
    """`transform`, times a `factor`."""
    return Transform(
        lambda *arrays: factor * transform.load(*arrays),
        lambda array, count: transform.save(array / factor, count),
    )


def attention_rows(ours, theirs, scale):
    """One block; `scale` multiplies its scores."""
    table = linear(f"{ours}_input", f"{theirs}.fc1") + linear(f"{ours}_output", f"{theirs}.fc2")
    for i, key in enumerate((0, 2)):
        table += linear(f"{ours}/position/layer_{i}", f"{theirs}.fc_delta.{key}")
    table += linear(f"{ours}/weighing/hidden", f"{theirs}.fc_gamma.0")
    table += weight(
        f"{ours}/weighing/output/kernel", f"{theirs}.fc_gamma.2.weight", scaled(TRANSPOSED, scale)
    )
    table += weight(f"{ours}/weighing/output/bias", f"{theirs}.fc_gamma.2.bias", scaled(AS_IS, scale))
    for name in ("query", "key", "value"):
        table += weight(f"{ours}/{name}/kernel", f"{theirs}.w_{name[0]}s.weight", TRANSPOSED)
    return table


def pooling_rows(number):
    """A dense layer of all poolings, whose bias is taken out of the norm's mean."""
    ours, theirs = f"stage_{{}}_pooling/layer_{number}", "backbone.transition_downs.{}.sa.mlp_"
    norm, convolution = f"{theirs}bns.{number}", f"{theirs}convs.{number}"
    without = Transform(lambda mean, bias: mean - bias, lambda array, _: [array, array * 0])
    table = normalized(ours, convolution, norm, POINTWISE)
    table = [row for row in table if not row.ours.endswith("/moving_mean")]
    keys = (f"{norm}.running_mean", f"{convolution}.bias")
    return [*table, Row(f"{ours}/norm/moving_mean", keys, without)]


def point_transformer_rows(width):
    """The whole table of both models, with queries of this `width`."""
    table = linear("embedding_0", "backbone.fc1.0") + linear("embedding_1", "backbone.fc1.2")
    for ours, theirs in (
        ("transformer", "backbone.transformer1"),
        ("stage_{}_transformer", "backbone.transformers.{}"),
        ("middle_transformer", "transformer2"),
        ("up_{}_transformer", "transformers.{}"),
    ):
        table += attention_rows(ours, theirs, width**-0.5)
    for i in range(3):
        table += linear(f"middle_{i}", f"fc2.{2 * i}") + linear(f"head_{i}", f"fc3.{2 * i}")
    for ours, theirs in (("coarse", "fc1"), ("fine", "fc2")):
        theirs = f"transition_ups.{{}}.{theirs}"
        name = f"decoder_stage_{{}}_{ours}"
        table += normalized(name, f"{theirs}.0", f"{theirs}.2", TRANSPOSED, has_bias=True)
    return [*table, *pooling_rows(0), *pooling_rows(1)]


def point_transformer_block(arguments, name, x, points):
    """Their block between dense layers, in a residual without norms; all points are neighbours of few."""
    width = arguments["transformer_dim"]
    near = NearestPoints(min(arguments["nneighbor"], points.shape[1]))(points, points)
    position = Chain([Dense(width, activation="relu"), Dense(width)])
    attention = VectorAttention(width, position, FeedForward(width), use_bias=False, name=name)
    y = attention(Dense(width, name=f"{name}_input")(x), points, near)
    return x + Dense(x.shape[-1], name=f"{name}_output")(y)


def row_of_dense(x, widths, name):
    """Dense layers with ReLU between them."""
    for i, width in enumerate(widths):
        activation = None if i == len(widths) - 1 else "relu"
        x = Dense(width, activation=activation, name=f"{name}_{i}")(x)
    return x


def read_point_transformer(arguments, weights, shapes):
    """Either model for their arguments and weights and inputs of these `shapes`, and its outputs by their
    names. The segmenter has weights that the classifier lacks.
    """
    check_arguments(arguments, POINT_TRANSFORMER, "Point Transformer")
    dim, hidden = arguments["width"], arguments["head"]
    cloud = keras.Input(shapes["points"][1:], name="points")
    points = cloud[..., :3]
    x = row_of_dense(cloud, (dim, dim), "embedding")
    x = point_transformer_block(arguments, "transformer", x, points)
    stages, outputs = [(x, points)], {"features/transformer_0": x}
    for i in range(arguments["nblocks"]):
        size = points.shape[1] // STRIDE
        near = neighbourhoods(points, size, min(arguments["nneighbor"], points.shape[1]), i)
        x = pooled(dim * 2 ** (i + 1), f"stage_{i}_pooling", near.offsets(points), near.of(x), num_layers=2)
        points = near.points
        outputs |= {f"features/down_{i}_points": points, f"features/down_{i}": x}
        x = point_transformer_block(arguments, f"stage_{i}_transformer", x, points)
        stages.append((x, points))
        outputs[f"features/transformer_{i + 1}"] = x
    if any(name.startswith("fc3") for name in weights):
        x = row_of_dense(x, (hidden[1], hidden[1], x.shape[-1]), "middle")
        x = point_transformer_block(arguments, "middle_transformer", x, points)
        for i, (finer, places) in enumerate(reversed(stages[:-1])):
            x = raised(finer.shape[-1], i, finer, x, points, places, power=2.0)
            points, outputs[f"features/up_{i}"] = places, x
            x = point_transformer_block(arguments, f"up_{i}_transformer", x, points)
            outputs[f"features/up_transformer_{i}"] = x
        outputs["logits"] = row_of_dense(x, (hidden[2], hidden[2], arguments["num_class"]), "head")
    else:
        outputs["logits"] = row_of_dense(
            ops.mean(x, axis=1), (hidden[0], hidden[2], arguments["num_class"]), "middle"
        )
    model = keras.Model({"points": cloud}, outputs)
    read_state(model, weights, point_transformer_rows(arguments["transformer_dim"]))
    return model, outputs
