"""The table's rows go both ways, and load all or nothing."""

import keras
import numpy as np
import pytest

from keras_tfm import layers
from keras_tfm.convert import CheckpointError, keymap

ROWS = [
    *keymap.linear("block_{}", "layer.{}.first", "layer.{}.second"),
    *keymap.norm("norm", "LayerNorm"),
]


def model():
    x = inputs = keras.Input((3,))
    for i in (0, 11):
        x = keras.layers.Dense(6, name=f"block_{i}")(x)
    return keras.Model(inputs, keras.layers.LayerNormalization(name="norm")(keras.layers.Dropout(0.1)(x)))


def tensors(seed=0):
    rng = np.random.default_rng(seed)
    found = {"LayerNorm.weight": rng.normal(size=6), "LayerNorm.bias": rng.normal(size=6)}
    for layer, width in (("0", 3), ("11", 6)):
        for part in ("first", "second"):
            found[f"layer.{layer}.{part}.weight"] = rng.normal(size=(3, width))
            found[f"layer.{layer}.{part}.bias"] = rng.normal(size=3)
    return {key: tensor.astype("float32") for key, tensor in found.items()}


def test_what_is_loaded_is_saved_again():
    target, theirs = model(), tensors()
    read = keymap.load(target, theirs, ROWS, "file")
    assert read == theirs.keys()
    saved = keymap.save(target, ROWS)
    assert saved.keys() == theirs.keys()
    for key, tensor in theirs.items():
        np.testing.assert_array_equal(saved[key], tensor)


def test_linear_layers_are_joined_transposed():
    target, theirs = model(), tensors()
    keymap.load(target, theirs, ROWS, "file")
    x = np.random.default_rng(1).normal(size=(2, 3)).astype("float32")
    parts = [
        x @ theirs[f"layer.0.{part}.weight"].T + theirs[f"layer.0.{part}.bias"]
        for part in ("first", "second")
    ]
    np.testing.assert_allclose(target.layers[1](x), np.concatenate(parts, -1), atol=1e-5)


@pytest.mark.parametrize(
    ("key", "tensor", "message"),
    [
        ("layer.11.first.bias", None, r"expected a tensor for block_11/bias \(6,\), got none"),
        ("layer.0.second.weight", np.zeros((2, 3), "float32"), r"expected the shape \(3, 3\), got \(2, 3\)"),
        ("layer.0.first.bias", np.zeros((3, 1), "float32"), r"expected the shape \(3,\), got \(3, 1\)"),
        ("LayerNorm.bias", np.full(6, np.nan, "float32"), "expected finite values"),
        ("LayerNorm.bias", np.full(6, np.inf, "float16"), "expected finite values"),
        ("LayerNorm.weight", np.ones(6, "int32"), "expected numbers like float32, got int32"),
    ],
)
def test_one_fault_and_nothing_is_changed(key, tensor, message):
    target, theirs = model(), tensors()
    theirs[key] = tensor
    if tensor is None:
        del theirs[key]
    before = target.get_weights()
    with pytest.raises(CheckpointError, match=message) as caught:
        keymap.load(target, theirs, ROWS, "file")
    assert caught.value.path == "file" and key in caught.value.key
    for old, new in zip(before, target.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_parts_of_exchanged_sizes_do_not_join_by_chance():
    target, theirs = model(), tensors()
    theirs["layer.0.first.bias"], theirs["layer.0.second.bias"] = np.zeros(2, "f4"), np.zeros(4, "f4")
    with pytest.raises(CheckpointError, match=r"layer.0.first.bias: expected the shape \(3,\), got \(2,\)"):
        keymap.load(target, theirs, ROWS, "file")


def test_a_table_that_leaves_a_weight_out_is_found():
    with pytest.raises(ValueError, match="norm/gamma needs one row in its family's table; it has 0"):
        keymap.save(model(), ROWS[:2])
    with pytest.raises(ValueError, match="norm/gamma needs one row in its family's table; it has 2"):
        keymap.save(model(), [*ROWS, *ROWS[2:]])
    with pytest.raises(ValueError, match="differ in their number"):
        keymap.Row("block_{}", ("layer",))


def saved_and_loaded(layer, shape, rows, theirs):
    """The layer, called `layer`, that `theirs` was loaded into and came out of again."""
    inputs = keras.Input(shape)
    model = keras.Model(inputs, layer(inputs))
    assert keymap.load(model, theirs, rows, "file") == theirs.keys()
    saved = keymap.save(model, rows)
    assert saved.keys() == theirs.keys()
    for key, tensor in theirs.items():
        np.testing.assert_array_equal(saved[key], tensor)
    return layer


def draw(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype("float32")


def test_a_part_of_theirs_is_a_weight_of_ours():
    theirs = {"in_proj.weight": draw(9, 3), "in_proj.bias": draw(9)}
    x = inputs = keras.Input((3,))
    query, key_value = keras.layers.Dense(3, name="query"), keras.layers.Dense(6, name="key_value")
    model = keras.Model(inputs, [query(x), key_value(x)])
    rows = [
        *keymap.linear("query", "in_proj", part=(0, 1, 3)),
        *keymap.linear("key_value", "in_proj", part=(1, 3, 3)),
    ]
    assert keymap.load(model, theirs, rows, "file") == theirs.keys()
    np.testing.assert_array_equal(query.kernel, theirs["in_proj.weight"][:3].T)
    np.testing.assert_array_equal(key_value.bias, theirs["in_proj.bias"][3:])
    for key, tensor in keymap.save(model, rows).items():
        np.testing.assert_array_equal(tensor, theirs[key])
    with pytest.raises(CheckpointError, match=r"expected the shape \(9, 3\), got \(8, 3\)"):
        keymap.load(model, theirs | {"in_proj.weight": draw(8, 3)}, rows, "file")


def test_heads_in_another_order():
    """Theirs has for each of two heads a query, a key and a value of widths 1, 1 and 2."""
    order = keymap.parts_first(2, 1, 1, 2)
    np.testing.assert_array_equal(order, [0, 4, 1, 5, 2, 3, 6, 7])
    rows = keymap.weight("layer/kernel", "qkv.weight", keymap.reordered(keymap.TRANSPOSED, order))
    theirs = {"qkv.weight": draw(8, 3)}
    layer = saved_and_loaded(keras.layers.Dense(8, use_bias=False, name="layer"), (3,), rows, theirs)
    np.testing.assert_array_equal(layer.kernel[:, 1], theirs["qkv.weight"][4])


def test_convolutions_and_their_norms():
    theirs = {"conv.weight": draw(5, 3, 2, 4), "conv.bias": draw(5)}
    rows = keymap.convolution("layer", "conv")
    layer = layers.Convolution(5, (2, 4), name="layer")
    saved_and_loaded(layer, (6, 6, 3), rows, theirs)
    theirs = {"conv.weight": draw(6, 1, 2, 4), "conv.bias": draw(6)}
    rows = keymap.convolution("layer", "conv", keymap.depthwise_kernel(2))
    layer = layers.Convolution(6, (2, 4), groups=3, name="layer")
    saved_and_loaded(layer, (6, 6, 3), rows, theirs)
    np.testing.assert_array_equal(layer.convolution.kernel[:, :, 1, 1], theirs["conv.weight"][3, 0])
    theirs = {"conv.weight": draw(5, 3, 1, 1), "conv.bias": draw(5)}
    rows = keymap.linear("layer", "conv", transform=keymap.POINTWISE)
    layer = saved_and_loaded(keras.layers.Dense(5, name="layer"), (3,), rows, theirs)
    np.testing.assert_array_equal(layer.kernel, theirs["conv.weight"][:, :, 0, 0].T)
    theirs = {f"bn.{name}": draw(4) ** 2 for name in ("weight", "bias", "running_mean", "running_var")}
    layer = layers.BatchNormalization(name="layer")
    saved_and_loaded(layer, (4,), keymap.batch_norm("layer", "bn", [3, 2, 1, 0]), theirs)
    np.testing.assert_array_equal(layer.moving_variance, theirs["bn.running_var"][::-1])
