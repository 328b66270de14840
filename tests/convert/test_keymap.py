"""The table's rows go both ways, and load all or nothing."""

import keras
import numpy as np
import pytest

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
