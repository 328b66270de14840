"""Quantisers: the contract, values and losses by hand, straight gradients, codes that die and live again."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm.layers import Chain, GumbelSoftmax, VectorQuantizer, nearest, quantization_loss
from tests import contract
from tests.contract import Case, floats
from tests.fresh_process import run_fresh

SCHEDULES = {
    "temperature": keras.optimizers.schedules.CosineDecay(1.0, 10, alpha=1 / 16),
    "divergence": keras.optimizers.schedules.PolynomialDecay(0.0, 5, 0.3),
}


def one_hot_by_hand(layer, x):
    dense = layer.layers[0]
    logits = x @ np.asarray(dense.kernel, "float64") + dense.bias
    return np.eye(logits.shape[-1])[logits.argmax(-1)]


test_contract = contract.check(
    Case(
        "VectorQuantizer",
        # Dense layers around it, since the codes learn by the loss that training adds, and so many codes that
        # all six vectors get one of their own.
        lambda: Chain([keras.layers.Dense(8), VectorQuantizer(60), keras.layers.Dense(3)]),
        {"x": floats(2, 5)},
        without_effect=("codebook",),
        chooses=True,
    ),
    Case(
        "GumbelSoftmax",
        lambda: Chain([keras.layers.Dense(6), GumbelSoftmax(**SCHEDULES)]),
        {"x": floats(3, 4, 5)},
        reference=one_hot_by_hand,
        chooses=True,
    ),
)


def test_losses_and_gradients_by_hand():
    layer = VectorQuantizer(3, commitment=0.5, codebook_weight=2.0)
    x = tf.constant([[0.9, 0.1], [0.2, 0.7], [2.0, 0.0], [0.1, 1.0]])
    layer.build(x.shape)
    codes = np.array([[1, 0], [0, 1], [-5, -5]], "float32")
    layer.codebook.assign(codes)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = layer(x, training=True)
        loss = sum(layer.losses)
        weighted = tf.reduce_sum(y * np.arange(8).reshape(4, 2))
    np.testing.assert_array_equal(y, codes[[0, 1, 0, 1]])  # exactly: not x + (codes - x)
    np.testing.assert_array_equal(tape.gradient(weighted, x), np.arange(8).reshape(4, 2))
    difference = x.numpy() - y.numpy()
    np.testing.assert_allclose(loss, 2.5 * np.mean(difference**2), rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, x), 0.5 * 2 * difference / 8, rtol=1e-5, atol=1e-7)
    expected = (
        np.stack([-(difference[0] + difference[2]), -(difference[1] + difference[3]), [0, 0]]) * 2 * 2 / 8
    )
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.codebook.value))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(layer.idle, [0, 0, 1])
    layer(x)
    assert not layer.losses
    np.testing.assert_array_equal(layer.idle, [0, 0, 1])  # training alone counts


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dead_codes_become_vectors_of_the_batch(jit_compile):
    layer = VectorQuantizer(5, dead_after=3, seed=1)
    x = np.random.default_rng(0).normal(size=(2, 3, 2)).astype("float32")
    layer.build(x.shape)
    far = np.array([[0, 0], [90, 90], [91, 90], [92, 90], [93, 90]], "float32")
    layer.codebook.assign(far)
    step = tf.function(lambda x: layer(x, training=True), autograph=False, jit_compile=jit_compile)
    step(x), step(x)
    np.testing.assert_array_equal(layer.codebook, far)
    np.testing.assert_array_equal(layer.idle, [0, 2, 2, 2, 2])
    step(x)
    np.testing.assert_array_equal(layer.codebook[:1], far[:1])
    rows = {tuple(row) for row in x.reshape(-1, 2).tolist()}
    revived = {tuple(row) for row in np.asarray(layer.codebook)[1:].tolist()}
    assert revived <= rows and len(revived) > 1
    np.testing.assert_array_equal(layer.idle, 0)
    used = len(set(np.asarray(layer.code_ids(x)).ravel().tolist()))
    assert used > 1


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dead_codes_become_vectors_far_from_their_code(jit_compile):
    """One rare vector among a thousand that lie on a code: by chance alone it would hardly be drawn."""
    layer = VectorQuantizer(3, dead_after=1, seed=1)
    layer.build((None, 2))
    layer.codebook.assign([[0.0, 0.0], [90.0, 90.0], [91.0, 90.0]])
    x = np.zeros((1000, 2), "float32")
    x[300] = 1, 2
    step = tf.function(lambda x: layer(x, training=True), autograph=False, jit_compile=jit_compile)
    step(x)
    np.testing.assert_array_equal(layer.codebook, [[0, 0], [1, 2], [1, 2]])
    step(np.zeros((0, 2), "float32"))  # nothing to count, nothing to draw
    step(np.zeros((4, 2), "float32"))  # all of them on a code
    np.testing.assert_array_equal(layer.codebook, 0)


def test_codes_learn_the_centres_of_clusters():
    """Eight clusters, eight codes that all begin at one point: without revival most would stay there."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(8, 4)) * 3
    x = (centres[rng.integers(0, 8, 512)] + rng.normal(size=(512, 4)) * 0.05).astype("float32")
    inputs = keras.Input((4,))
    layer = VectorQuantizer(8, dead_after=4, seed=2)
    model = keras_tfm.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    model.fit(x, x, batch_size=64, epochs=12, verbose=0)
    distances = np.linalg.norm(np.asarray(layer.codebook) - centres[:, None], axis=-1)
    assert distances.min(1).max() < 0.3


def test_gumbel_draws_the_distribution():
    """Over many draws each code is the likeliest as often as its probability says."""
    logits = np.log(np.array([0.5, 0.3, 0.2], "float32"))
    layer = GumbelSoftmax(1e-3, seed=3)
    y = np.asarray(layer(np.tile(logits, (20_000, 1)), training=True))
    np.testing.assert_allclose(y.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(y.mean(0), [0.5, 0.3, 0.2], atol=0.015)
    assert (y.max(-1) > 0.99).mean() > 0.98
    soft = np.asarray(GumbelSoftmax(50.0, seed=3)(np.tile(logits, (100, 1)), training=True))
    np.testing.assert_allclose(soft, 1 / 3, atol=0.1)


def test_schedules_and_the_divergence():
    layer = GumbelSoftmax(**SCHEDULES)
    logits = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    divergence = (p * np.log(p * 6)).sum(-1).mean()
    for step in range(3):
        layer(logits, training=True)
        np.testing.assert_allclose(sum(layer.losses), 0.3 * step / 5 * divergence, rtol=1e-5, atol=1e-7)
    assert int(layer.num_draws) == 3
    layer(logits)
    assert not layer.losses and int(layer.num_draws) == 3
    GumbelSoftmax(divergence=2.0)(logits, training=True)
    assert "CosineDecay" in str(layer.get_config()["temperature"])


def test_a_model_that_was_read_goes_on_in_its_schedules(tmp_path):
    inputs = keras.Input((4, 6))
    model = keras_tfm.Model(inputs, GumbelSoftmax(**SCHEDULES, name="gumbel")(inputs))
    logits = np.zeros((2, 4, 6), "float32")
    for _ in range(3):
        model(logits, training=True)
    model.save(tmp_path / "model.keras")
    layer = keras.saving.load_model(tmp_path / "model.keras").get_layer("gumbel")
    assert int(layer.num_draws) == 3
    logits = np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
    layer(logits, training=True), model(logits, training=True)
    np.testing.assert_array_equal(layer.losses, model.losses)


def test_the_nearest_by_hand():
    layer = VectorQuantizer(7)
    x = np.random.default_rng(0).normal(size=(3, 4, 5, 6)).astype("float32")
    layer.build(x.shape)
    layer.codebook.assign(np.random.default_rng(1).normal(size=(7, 6)))
    distances = np.linalg.norm(x[..., None, :] - np.asarray(layer.codebook, "float64"), axis=-1)
    np.testing.assert_array_equal(layer.code_ids(x), distances.argmin(-1))
    assert len(np.unique(layer.code_ids(x))) == 7


def test_ids_and_back():
    layer, gumbel = VectorQuantizer(4), GumbelSoftmax()
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer(x), gumbel(x)
    np.testing.assert_array_equal(layer.embed(layer.code_ids(x)), layer(x))
    np.testing.assert_array_equal(gumbel.embed(gumbel.code_ids(x)), gumbel(x))
    for one, size in ((layer, 4), (gumbel, 5)):
        with pytest.raises(ValueError, match=rf"`code_ids` must lie in \[0, {size}\); one of them is {size}"):
            one.embed(np.array([[0, size]]))
    embed = tf.function(layer.embed, jit_compile=True)
    assert np.isnan(embed(tf.constant([[0, 4]]))[0, 1]).all()
    np.testing.assert_array_equal(nearest(np.array([[0.4, 0.6]]), np.eye(2)), [1])
    assert float(quantization_loss(np.zeros((1, 2)), np.ones((1, 2)), 3.0, 0.0)) == 3


REPLICAS = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from keras_tfm.layers import VectorQuantizer
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    layer = VectorQuantizer(3, dead_after=1, seed=0)
    layer.build((None, 2))
    layer.codebook.assign([[0.0, 0.0], [1.0, 1.0], [50.0, 50.0]])
x = tf.data.Dataset.from_tensor_slices([[0.1, 0.0], [0.9, 1.0]]).batch(2)
step = tf.function(lambda x: layer(x, training=True), autograph=False)
for batch in strategy.experimental_distribute_dataset(x):
    strategy.run(step, args=(batch,))
print(layer.idle.numpy().tolist(), layer.codebook.numpy()[:2].tolist(), layer.codebook.numpy()[2].max() < 2)
"""


@pytest.mark.slow
def test_replicas_count_together():
    """Two replicas of one vector each: a code that either of them uses is not idle, and the third revives."""
    result = run_fresh(REPLICAS, blocked=())
    assert result.stdout.strip() == "[0, 0, 0] [[0.0, 0.0], [1.0, 1.0]] True", result.stderr


def test_refusals():
    with pytest.raises(ValueError, match="`num_codes` must be at least 1; it is 0"):
        VectorQuantizer(0)
    with pytest.raises(ValueError, match="`dead_after` must be at least 1; it is 0"):
        VectorQuantizer(2, dead_after=0)
    with pytest.raises(ValueError, match="`temperature` must be above 0; it is 0"):
        GumbelSoftmax(0)
