"""Convolutions: their padding, groups and norms; chains; grids; against NumPy by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from tensorflow.python.eager import context

from keras_tfm.layers import (
    BatchNormalization,
    Chain,
    Convolution,
    ConvolutionalStem,
    FeedForward,
    FourierPositions,
    LayerNormalization,
    MapAttention,
    MaxPooling,
    MultiHeadAttention,
    NormalizedDense,
    OnGrid,
    Parallel,
)
from keras_tfm.layers.grid import every_nth, to_map
from keras_tfm.layers.patches import flatten_map
from tests import contract
from tests.contract import Case, floats

MAP = {"x": floats(5, 6, 4)}
VIDEO = {"x": floats(4, 5, 3, 2)}


def depthwise(multiplier=1):
    return Convolution(4 * multiplier, 3, groups=4)


test_contract = contract.check(
    Case(
        "convolution",
        lambda: Convolution(6, (3, 2), 2, norm=BatchNormalization()),
        MAP,
        convolves=True,
    ),
    Case("grouped", lambda: Convolution(6, groups=2), MAP, convolves=True),
    Case("depthwise", lambda: depthwise(2), MAP, convolves=True, kind="depthwise"),
    Case("dilated", lambda: Convolution(6, dilation=2), MAP, convolves=True),
    Case("of videos", lambda: Convolution(6, (3, 1, 2), (2, 1, 2)), VIDEO, convolves=True),
    Case("of videos, same", lambda: Convolution(6, 3, 2, "same"), VIDEO, convolves=True),
    Case("dense", lambda: NormalizedDense(6, activation="silu"), {"x": floats("T", 4)}),
    Case("dense with another norm", lambda: NormalizedDense(6, LayerNormalization()), {"x": floats("T", 4)}),
    Case("chain", lambda: Chain([depthwise(), BatchNormalization(), depthwise()]), MAP),
    Case("chain with dropout", lambda: Chain([FeedForward(6, dropout=0.5)]), {"x": floats("T", 4)}),
    Case(
        "parallel",
        lambda: Parallel([Convolution(3, 1), Chain([MaxPooling(3, 1, 1), depthwise()])]),
        MAP,
        convolves=True,
    ),
    Case("stem", lambda: ConvolutionalStem(4, 2, "silu"), MAP, convolves=True),
    Case("Fourier positions", lambda: FourierPositions(4), MAP),
    Case("pooling", lambda: MaxPooling((3, 2), 2, (1, 0)), MAP),
    Case("pooling, same", lambda: MaxPooling(3, 2, "same"), MAP),
    Case("pooling of videos", lambda: MaxPooling((1, 3, 3), (1, 2, 2), "same"), VIDEO),
    Case("attention among cells", lambda: MapAttention(MultiHeadAttention(2)), MAP, attends=True),
    Case(
        "attention to a smaller map",
        lambda: MapAttention(MultiHeadAttention(2), Chain([Convolution(4, 2, 2), LayerNormalization()])),
        MAP,
        attends=True,
        convolves=True,
    ),
    Case("on a grid", lambda: OnGrid(depthwise(), (2, 3), prefix=1), {"x": floats(7, 4)}),
)


def by_hand(x, kernel, stride, padding):
    """A convolution (B, H, W, C) of a kernel (height, width, C, F), one window after the other."""
    rows, columns = padding
    x = np.pad(x, ((0, 0), (rows, rows), (columns, columns), (0, 0)))
    height, width = kernel.shape[:2]
    return np.stack(
        [
            np.stack(
                [
                    np.einsum("bhwc,hwcf->bf", x[:, i : i + height, j : j + width], kernel)
                    for j in range(0, x.shape[2] - width + 1, stride)
                ],
                axis=1,
            )
            for i in range(0, x.shape[1] - height + 1, stride)
        ],
        axis=1,
    )


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding", "margins"),
    [
        (3, 1, None, (1, 1)),
        (3, 2, None, (1, 1)),
        ((5, 1), 1, None, (2, 0)),
        (4, 3, (2, 0), (2, 0)),
        (1, 2, 0, (0, 0)),
    ],
)
def test_maps_are_padded_on_both_sides(kernel_size, stride, padding, margins):
    x = np.random.default_rng(0).normal(size=(2, 6, 7, 3)).astype("float32")
    layer = Convolution(5, kernel_size, stride, padding)
    y = layer(x)
    kernel, bias = layer.get_weights()
    assert (bias == 0).all()
    np.testing.assert_allclose(y, by_hand(x, kernel, stride, margins), atol=1e-5)
    assert layer.compute_output_shape(x.shape) == y.shape


@pytest.mark.parametrize(
    ("stride", "padding", "margins"),
    [((2, 1, 2), None, (1, 0, 1)), (1, (0, 2, 1), (0, 2, 1)), ((2, 2, 1), "same", (1, 0, 1))],
)
def test_videos_are_convolved_over_frames_too(stride, padding, margins):
    """A 3 x 2 x 3 kernel is the sum of three 2 x 3 kernels on neighbouring frames. "same" on 5 x 6 x 7 adds
    a frame and a column before and after, since 2 (3 - 1) + 3 - 5 = 2, and no row: 2 (3 - 1) + 2 - 6 = 0.
    """
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 7, 3)).astype("float32")
    layer = Convolution(5, (3, 2, 3), stride, padding)
    y = layer(x)
    kernel = layer.get_weights()[0]
    padded = np.pad(x, ((0, 0), *((n, n) for n in margins), (0, 0)))
    steps = (stride,) * 3 if isinstance(stride, int) else stride
    moments = range(0, padded.shape[1] - 2, steps[0])
    whole = [
        sum(by_hand(padded[:, i + t], kernel[t], 1, (0, 0)) for t in range(3))[:, :: steps[1], :: steps[2]]
        for i in moments
    ]
    np.testing.assert_allclose(y, np.stack(whole, axis=1), atol=1e-5)
    assert layer.compute_output_shape(x.shape) == y.shape


def test_a_dilated_kernel_has_zeros_between_its_cells():
    x = np.random.default_rng(0).normal(size=(2, 6, 7, 3)).astype("float32")
    layer = Convolution(5, 3, dilation=2, use_bias=False)
    y = layer(x)
    kernel = np.zeros((5, 5, 3, 5), "float32")
    kernel[::2, ::2] = layer.get_weights()[0]
    np.testing.assert_allclose(y, by_hand(x, kernel, 1, (2, 2)), atol=1e-5)


def test_groups_are_convolved_on_their_own():
    x = np.random.default_rng(0).normal(size=(2, 5, 5, 6)).astype("float32")
    layer = Convolution(4, 3, groups=2, use_bias=False)
    y = ops.convert_to_numpy(layer(x))
    (kernel,) = layer.get_weights()
    assert kernel.shape == (3, 3, 3, 4)
    for part in range(2):
        expected = by_hand(x[..., 3 * part : 3 * part + 3], kernel[..., 2 * part : 2 * part + 2], 1, (1, 1))
        np.testing.assert_allclose(y[..., 2 * part : 2 * part + 2], expected, atol=1e-5)


def test_a_depthwise_convolution_gives_each_channels_filters_one_after_the_other():
    x = np.random.default_rng(0).normal(size=(2, 5, 5, 3)).astype("float32")
    layer = Convolution(6, 3, groups=3, norm=BatchNormalization())
    layer.build(x.shape)
    kernel = layer.convolution.kernel.numpy()
    assert kernel.shape == (3, 3, 3, 2) and not layer.convolution.use_bias
    y = ops.convert_to_numpy(layer(x)) * np.sqrt(1 + 1e-5)
    for channel in range(3):
        expected = by_hand(x[..., channel : channel + 1], kernel[:, :, channel : channel + 1], 1, (1, 1))
        np.testing.assert_allclose(y[..., 2 * channel : 2 * channel + 2], expected, atol=1e-5)


def test_the_norm_comes_before_the_activation():
    x = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype("float32")
    layer = Convolution(
        3, 1, norm=BatchNormalization(beta_initializer=keras.initializers.Constant(-100)), activation="relu"
    )
    assert (ops.convert_to_numpy(layer(x)) == 0).all()


def test_statistics_move_by_a_tenth():
    layer = NormalizedDense(2)
    x = np.random.default_rng(0).normal(2, 3, size=(50, 4)).astype("float32")
    y = ops.convert_to_numpy(layer(x, training=True))
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(0), 1, atol=1e-4)
    hidden = ops.convert_to_numpy(layer.dense(x))
    np.testing.assert_allclose(layer.norm.moving_mean, 0.1 * hidden.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.norm.moving_variance, 0.9 + 0.1 * hidden.var(0), rtol=1e-4)


def test_statistics_move_once_where_a_layer_recomputes():
    x = tf.constant(np.random.default_rng(0).normal(2, 3, size=(20, 4)), "float32")
    with keras.RematScope("full"):
        layer = NormalizedDense(2)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(layer(x, training=True) ** 3)
    tape.gradient(y, layer.dense.kernel.value)
    hidden = ops.convert_to_numpy(layer.dense(x))
    np.testing.assert_allclose(layer.norm.moving_mean, 0.1 * hidden.mean(0), rtol=1e-4, atol=1e-5)
    layer.norm.moving_mean.assign([5, 5])
    np.testing.assert_array_equal(layer.norm.moving_mean, [5, 5])


def test_paths_of_weights_do_not_depend_on_what_was_made_before():
    Chain([BatchNormalization(), BatchNormalization()])
    chain = Chain([Convolution(2, norm=BatchNormalization()), NormalizedDense(3)], name="stem")
    chain.build((None, 4, 4, 1))
    assert {weight.path for weight in chain.trainable_weights} == {
        "stem/layer_0/convolution/kernel",
        "stem/layer_0/norm/gamma",
        "stem/layer_0/norm/beta",
        "stem/layer_1/dense/kernel",
        "stem/layer_1/norm/gamma",
        "stem/layer_1/norm/beta",
    }


def test_branches_stand_side_by_side_and_take_a_context():
    x, context = np.random.default_rng(0).normal(size=(2, 3, 5, 8)).astype("float32")
    layer = Parallel([MultiHeadAttention(2), MultiHeadAttention(4)])
    y = layer(x, context)
    assert [branch.name for branch in layer.branches] == ["branch_0", "branch_1"]
    np.testing.assert_array_equal(y[..., 8:], layer.branches[1](x, context))


def test_a_grid_runs_row_by_row_behind_its_prefix():
    x = np.arange(7, dtype="float32").reshape(1, 7, 1)
    np.testing.assert_array_equal(to_map(x[:, 1:], (2, 3))[0, ..., 0], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(flatten_map(to_map(x[:, 1:], (2, 3))), x[:, 1:])
    np.testing.assert_array_equal(every_nth(x[:, 1:], (2, 3), 2)[0, :, 0], [1, 3])
    layer = OnGrid(Convolution(1, (1, 3), use_bias=False), (2, 3), prefix=1)
    layer.build(x.shape)
    layer.set_weights([np.ones((1, 3, 1, 1))])
    np.testing.assert_array_equal(layer(x)[0, :, 0], [0, 3, 6, 5, 9, 15, 11])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Convolution(0), "`filters` must be at least 1; it is 0"),
        (lambda: Convolution(2, 0), "`kernel_size` must be a positive integer"),
        (lambda: Convolution(2, stride=0), "`stride` must be at least 1; it is 0"),
        (lambda: Convolution(2, padding=(0, -1)), r"`padding` must be at least 0; it is \(0, -1\)"),
        (
            lambda: Convolution(4, groups=3),
            "`groups` must divide the channels, 4, and `filters`, 4; it is 3",
        ),
        (lambda: Convolution(4, 9, padding=0), r"A map of 5 x 6 is smaller than a window of 9 x 9"),
        (lambda: Convolution(4, (3, 3, 3)), "`kernel_size` must be one number, or one for each of 2 axes"),
        (lambda: Convolution(4, stride=2, dilation=2), "`stride` must be 1 where `dilation` is 2; it is 2"),
        (lambda: NormalizedDense(0), "`units` must be at least 1; it is 0"),
        (lambda: Chain([]), "`layers` must hold at least one"),
        (lambda: Parallel([]), "`branches` must hold at least one"),
        (
            lambda: OnGrid(depthwise(), (2, 3)),
            "must have 6 tokens, `prefix` 0 and a `grid` of 2 x 3; it has 5",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        layer = make()
        layer(np.zeros((1, 5, 4) if isinstance(layer, OnGrid) else (1, 5, 6, 4), "float32"))


def test_a_convolution_takes_maps():
    with pytest.raises(ValueError, match=r"\(B, height, width, C\), of videos .*; it is \(1, 5, 4\)"):
        Convolution(2)(np.zeros((1, 5, 4), "float32"))


def pooled_video(video):
    return [video[i : i + 2].max((0, 2), keepdims=True)[0] for i in range(len(video) - 1)]


def test_pooling_takes_the_greatest_of_each_window():
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype("float32") - 9  # zeros would be greater
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=-np.inf)
    expected = np.stack(
        [
            np.stack([padded[:, i : i + 3, j : j + 2].max((1, 2)) for j in range(0, 5, 2)], axis=1)
            for i in range(0, 5, 2)
        ],
        axis=1,
    )
    np.testing.assert_array_equal(MaxPooling((3, 2), 2, (1, 0))(x), expected)
    for sides in ((5, 6), (6, 3)):
        maps = np.resize(x, (2, *sides, 3))
        np.testing.assert_array_equal(
            MaxPooling(3, 2, "same")(maps), keras.layers.MaxPooling2D(3, 2, "same")(maps)
        )
    with pytest.raises(ValueError, match=r"`padding` must lie in 0 to half of `pool_size`, 3; it is 2"):
        MaxPooling(3, padding=2)
    videos = np.reshape(x, (2, 5, 2, 3, 3))
    np.testing.assert_array_equal(MaxPooling((2, 1, 3), 1)(videos), [pooled_video(video) for video in videos])
    with pytest.raises(ValueError, match="A map of 5 x 2 is smaller than a window of 3 x 3"):
        MaxPooling(3)(x[:, :, :2])


def test_cells_attend_to_what_a_reduction_makes_of_their_map():
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 8)).astype("float32")
    layer = MapAttention(MultiHeadAttention(2), MaxPooling(2))
    y = layer(x)
    cells, reduced = x.reshape(2, 24, 8), x.reshape(2, 2, 2, 3, 2, 8).max((2, 4)).reshape(2, 6, 8)
    np.testing.assert_allclose(np.reshape(y, (2, 24, 8)), layer.attention(cells, reduced), atol=1e-6)
    bias = np.zeros((1, 1, 24, 6), "float32")
    bias[..., 4] = 1e4  # all attend to the fifth of the reduced cells
    alone = layer.attention(cells, np.repeat(reduced[:, 4:5], 6, axis=1))
    np.testing.assert_allclose(np.reshape(layer(x, bias=bias), (2, 24, 8)), alone, atol=1e-5)


def test_a_slope_after_videos_without_biases_is_not_fused(optimised_graphs):
    """With oneDNN, TensorFlow 2.21 makes margins, such a convolution and a leaky ReLU one wrong operation."""
    layer = Convolution(4, stride=2, use_bias=False, activation="leaky_relu")
    videos = np.random.default_rng(0).normal(size=(2, 3, 13, 16, 2)).astype("float32")
    expected = layer(videos)
    assert np.min(expected) < 0
    np.testing.assert_allclose(tf.function(layer)(videos), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "groups"), [((1, 6, 6, 4), 1), ((1, 6, 6, 4), 4), ((1, 3, 6, 6, 4), 1)])
def test_a_sum_after_a_convolution_is_not_fused(shape, groups, optimised_graphs):
    """With oneDNN, TensorFlow 2.21 keeps the buffers of a fused sum in the operation, for all threads."""
    layer, x = Convolution(4, groups=groups), tf.ones(shape)
    layer.build(shape)
    context.enable_graph_collection()
    try:
        tf.function(lambda x: x + layer(x))(x)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_graph_collection()
    nodes = [node for graph in graphs for node in graph.post_optimization_graph.node]
    assert any("Conv" in node.op or "Depthwise" in node.op for node in nodes)
    fused = [node.attr["fused_ops"].list.s for node in nodes]
    assert not [names for names in fused if b"Add" in names]


@pytest.mark.parametrize("shape", [(1, 6, 6, 4), (1, 3, 6, 6, 4)])
def test_biases_get_their_own_gradients(shape):
    """With oneDNN, TensorFlow 2.21 fuses the gradient of biases with that of a kernel whose gradient comes
    from another output of the same operation.
    """
    layers, x = [Convolution(4) for _ in range(8)], tf.random.stateless_normal(shape, (0, 0))
    for layer in layers:
        layer.build(shape)
    weights = [weight.value for layer in layers for weight in layer.trainable_weights]

    def gradients():
        with tf.GradientTape() as tape:
            y = tf.stack([layer(x, training=True) for layer in layers])
            loss = tf.reduce_sum(y * tf.range(8.0)[:, *[None] * len(shape)])
        return tape.gradient(loss, weights)

    for traced, expected in zip(tf.function(gradients)(), gradients(), strict=True):
        np.testing.assert_allclose(traced, expected, rtol=1e-5, atol=1e-5)


def test_a_kernel_of_one_cell_takes_every_nth_before_it():
    """Its gradient by a stride corrupts memory in TensorFlow 2.21, on CPUs, where cells are left over."""
    x = np.random.default_rng(0).normal(size=(2, 6, 5, 4)).astype("float32")
    layer = Convolution(3, 1, stride=2)
    y = layer(x)
    assert tuple(layer.convolution.strides) == (1, 1) and y.shape == layer.compute_output_shape(x.shape)
    expected = x[:, ::2, ::2] @ np.asarray(layer.convolution.kernel)[0, 0]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert layer(keras.Input((None, None, 4))).shape == (None, None, None, 3)
