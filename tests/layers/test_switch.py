"""The feed-forward layer of many experts: the contract, its paper's formulas once more, training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers import reference

Switch = layers.SwitchFeedForward
INPUTS = {"x": floats("T", 6), "mask": mask("T")}


def outputs_of(layer, x, mask=None):
    return reference.switch(layer, x, mask, layer.inference_capacity_factor)[0]


test_contract = contract.check(
    Case("all_served", lambda: Switch(3, 9, "gelu", dropout=0.1), INPUTS, reference=outputs_of),
    Case("limited", lambda: Switch(2, 9, inference_capacity_factor=0.5), INPUTS, reference=outputs_of),
)  # fmt: skip


def built(layer, seed=3, dim=6):
    layer.build((None, None, dim))
    contract.randomise(layer, seed)
    return layer


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("factor", [0.4, 1.0, 1.25, 5.0])
def test_training_is_the_papers(factor, jit_compile):
    """Gates, capacity and the balance loss, padding in the middle and a row of it alone among them."""
    layer = built(Switch(3, 9, capacity_factor=factor, balance=0.3))
    x = np.random.normal(size=(4, 7, 6)).astype("float32")
    shown = np.random.random((4, 7)) < 0.7
    shown[0], shown[3] = True, False

    @tf.function(autograph=False, jit_compile=jit_compile)
    def call(x, shown):
        return layer(x, mask=shown, training=True), sum(layer.losses)

    y, loss = call(x, shown)
    expected, expected_loss = reference.switch(layer, x, shown, factor)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    assert factor > 1 or (np.abs(y.numpy()[shown]).max(-1) == 0).any()  # some find their expert full


def test_equal_use_has_the_least_loss():
    """N sum f P is 1 where all are used alike, and N where one takes all, whatever the tokens' number."""
    layer = built(Switch(2, 4, balance=1.0), dim=2)
    layer.router.assign(30 * np.eye(2))
    for x, expected in (([[1, 0], [0, 1]], 1), ([[1, 0], [1, 0]], 2)):
        layer(np.array([x], "float32"), training=True)
        np.testing.assert_allclose(sum(layer.losses), expected, rtol=1e-5)
    layer(np.ones((1, 2, 2)))
    assert layer.losses == []


def block_of(feedforward):
    """A causal block with these experts."""
    attention = layers.Residual(layers.MultiHeadAttention(2), layers.LayerNormalization(), causal=True)
    feedforward = layers.Residual(feedforward, layers.LayerNormalization())
    return layers.Block({"attention": attention, "feedforward": feedforward})


def test_the_loss_has_its_gradient_where_a_block_is_recomputed():
    gradients = []
    for recomputed in (False, True):
        keras.utils.set_random_seed(1)
        block = block_of(Switch(3, 9, balance=0.5))
        x = tf.random.stateless_normal((2, 5, 6), (1, 2))
        block(x)
        if recomputed:
            layers.rematerialize(block)

        @tf.function(autograph=False)
        def losses(block=block, x=x):
            with tf.GradientTape() as tape:
                block(x, training=True)
                (loss,) = block.losses
            return loss, tape.gradient(loss, block.feedforward.branch.router.value)

        gradients.append([part.numpy() for part in losses()])
    assert np.abs(gradients[0][1]).max() > 1e-4
    for plain, again in zip(*gradients, strict=True):
        np.testing.assert_allclose(again, plain, rtol=1e-5, atol=1e-8)


def test_a_block_tells_what_is_padding():
    """By a mask of tokens, or one that Keras carries: the loss is the same as of both rows alone."""
    block = block_of(Switch(2, 9, balance=1.0))
    x = np.random.normal(size=(2, 5, 6)).astype("float32")
    keys = np.arange(5) < np.array([[5], [3]])
    carried = keras.layers.Masking()(np.where(keys[..., None], x, 0))
    block(x)
    contract.randomise(block, seed=2)
    losses = []
    for given, shown in ((x, keys), (carried, None), (x[:1], None), (x[1:, :3], None)):
        masks = {"attention": {"mask": shown}, "feedforward": {"mask": shown}}
        block(given, training=True, **masks)
        losses.append(float(sum(block.losses)))
    np.testing.assert_allclose(losses[:2], (losses[2] + losses[3]) / 2, rtol=1e-5)


def test_decoding_equals_the_whole():
    block = block_of(Switch(3, 9))
    x = np.random.normal(size=(2, 5, 6)).astype("float32")
    expected = block(x)
    contract.randomise(block, seed=2)
    expected, cache, pieces = block(x), block.start(2, 5), []
    for t in range(5):
        y, cache = block.step(x[:, t : t + 1], cache)
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces, 1), expected, atol=1e-5)


@pytest.mark.slow
def test_a_small_model_learns_and_uses_all_experts():
    """Which of four functions a token undergoes, its first component says."""
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8, 6)).astype("float32")
    kind = rng.integers(0, 4, (64, 8))
    x[..., :4] = np.eye(4)[kind] * 2
    maps = rng.normal(size=(4, 6, 3)).astype("float32")
    y = np.einsum("btd,btdf->btf", x, maps[kind])
    inputs = keras.Input((None, 6))
    switch = Switch(4, 16, capacity_factor=2.0, balance=0.05)
    hidden = keras.layers.Add()([inputs, switch(inputs)])
    model = keras_tfm.Model(inputs, keras.layers.Dense(3)(hidden))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    first = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=64, epochs=60, verbose=0)
    assert model.evaluate(x, y, verbose=0) < 0.3 * first
    used = np.argmax(x @ switch.router.numpy(), axis=-1)
    assert np.bincount(used.reshape(-1), minlength=4).min() > 0.05 * used.size


def test_experts_begin_apart():
    """With a seeded initializer too; each is drawn by the fans of its own matrix."""
    for initializer in ("glorot_uniform", keras.initializers.GlorotUniform(seed=3)):
        layer = Switch(3, 64, kernel_initializer=initializer)
        layer.build((None, None, 64))
        kernels = layer.hidden.kernel.numpy()
        assert np.abs(kernels[0] - kernels[1]).max() > 0.01 < np.abs(kernels[1] - kernels[2]).max()
        np.testing.assert_allclose(kernels.std((1, 2)), (2 / 128) ** 0.5, rtol=0.05)


def test_impossible_sizes_are_refused():
    for name, sizes in (("num_experts", (0, 9)), ("intermediate_dim", (2, 0))):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1; it is 0"):
            Switch(*sizes)
    with pytest.raises(ValueError, match="`capacity_factor` must be positive, and"):
        Switch(2, 9, capacity_factor=0)
    with pytest.raises(ValueError, match="`balance` must be at least 0; it is -1"):
        Switch(2, 9, balance=-1)
