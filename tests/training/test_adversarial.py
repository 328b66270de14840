"""Adversarial training: losses and R1 by hand, two optimizers in turn, the average, going on exactly."""

import keras
import numpy as np
import pytest

import keras_tfm
from keras_tfm.training import Adversarial, Checkpoint, FiniteLoss
from tests.training.exactness_models import SIZE, adversarial

REAL = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], "float32")
LATENTS = np.array([[1.0], [-2.0], [0.3]], "float32")
W, A, B = np.array([0.5, -1.0]), np.array([2.0, 1.0]), np.array([0.1, -0.2])


def linear(**options):
    """A generator a z + b of points, and a discriminator w x, whose step sizes are 0.1 and 0.2."""
    latents, points = keras.Input((1,), name="latents"), keras.Input((2,), name="points")
    generator = keras_tfm.Model({"latents": latents}, {"points": keras.layers.Dense(2)(latents)})
    scores = keras.layers.Dense(1, use_bias=False)(points)
    model = Adversarial(generator, keras_tfm.Model({"points": points}, {"scores": scores}), **options)
    generator.set_weights([A[None], B])
    model.average.set_weights([A[None], B])
    model.discriminator.set_weights([W[:, None]])
    model.compile(keras.optimizers.SGD(0.2), keras.optimizers.SGD(0.1))
    return model


def by_hand(loss, penalty):
    """(what `fit` logs, the new w, a and b) of a step on all three examples."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def log1p_exp(x):
        return np.log1p(np.exp(x))

    points = LATENTS * A + B
    real, scores = REAL @ W, points @ W
    if loss == "hinge":
        losses = np.maximum(1 - real, 0) + np.maximum(1 + scores, 0)
        slopes = -(real < 1).astype(float), (scores > -1).astype(float)
    else:
        losses, slopes = log1p_exp(-real) + log1p_exp(scores), (sigmoid(real) - 1, sigmoid(scores))
    of_discriminator = losses.mean() + penalty / 2 * (W @ W)  # the score's gradient by a point is w
    w = W - 0.1 * ((slopes[0] @ REAL + slopes[1] @ points) / 3 + penalty * W)
    scores_after = points @ w
    if loss == "hinge":
        of_generator, slope = -scores_after.mean(), -np.ones(3)
    else:
        of_generator, slope = log1p_exp(-scores_after).mean(), sigmoid(scores_after) - 1
    a, b = A - 0.2 * (slope @ LATENTS) * w / 3, B - 0.2 * slope.sum() * w / 3
    accuracy = ((real > 0).mean() + (scores < 0).mean()) / 2
    logs = {"loss": of_discriminator + of_generator, "accuracy": accuracy}
    return logs | {"discriminator_loss": of_discriminator, "generator_loss": of_generator}, w, a, b


@pytest.mark.parametrize(("loss", "penalty"), [("non_saturating", 3.0), ("hinge", 0.0), ("hinge", 0.5)])
def test_a_step_by_hand(loss, penalty):
    model = linear(loss=loss, penalty=penalty, momentum=0.75)
    logs = model.train_on_batch({"points": REAL, "latents": LATENTS}, return_dict=True)
    expected, w, a, b = by_hand(loss, penalty)
    assert logs.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(logs[name], value, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(model.discriminator.get_weights()[0][:, 0], w, rtol=1e-5)
    for weight, value, before in zip(model.generator.get_weights(), (a[None], b), (A[None], B), strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-5, atol=1e-6)
        average = model.average.get_weights()[value.ndim == 1]
        np.testing.assert_allclose(average, 0.75 * before + 0.25 * value, rtol=1e-5, atol=1e-6)


def test_evaluation_changes_nothing_and_has_no_penalty():
    model = linear(penalty=3.0)
    before = model.get_weights()
    logs = model.evaluate({"points": REAL, "latents": LATENTS}, batch_size=2, verbose=0, return_dict=True)
    scores = (LATENTS * A + B) @ W
    np.testing.assert_allclose(
        logs["discriminator_loss"], by_hand("", 0.0)[0]["discriminator_loss"], rtol=1e-5
    )
    np.testing.assert_allclose(logs["generator_loss"], np.log1p(np.exp(-scores)).mean(), rtol=1e-5)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_saving_and_loading(tmp_path):
    model = linear(loss="hinge", penalty=2.0, momentum=0.5)
    batch = {"points": REAL, "latents": LATENTS}
    model.compile(keras.optimizers.Adam(0.2), keras.optimizers.Adam(0.1))
    model.train_on_batch(batch)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert (again.loss_name, again.penalty, again.momentum) == ("hinge", 2.0, 0.5)
    np.testing.assert_array_equal(again(batch)["points"], model(batch)["points"])
    for one in (model, again):
        one.train_on_batch(batch)
    for weight, value in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, value)


def test_float16_scales_the_losses_of_both_players():
    keras.config.set_dtype_policy("mixed_float16")
    model = linear(penalty=3.0)
    assert {type(one).__name__ for one in model.optimizers} == {"LossScaleOptimizer"}
    model.compile(
        *(
            keras.optimizers.LossScaleOptimizer(one, 8.0)
            for one in (keras.optimizers.SGD(0.2), keras.optimizers.SGD(0.1))
        )
    )
    model.train_on_batch({"points": REAL, "latents": LATENTS})
    _, w, a, _ = by_hand("non_saturating", 3.0)
    np.testing.assert_allclose(model.discriminator.get_weights()[0][:, 0], w, rtol=1e-2)
    np.testing.assert_allclose(model.generator.get_weights()[0][0], a, rtol=1e-2)


class Stop(Exception):
    """Ends a training where it should break."""


def trained(folder, stop=None, resume=False):
    """All that a training of three epochs ends with; it draws its latents by itself."""

    class Break(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if checkpoint.step == stop:
                raise Stop

    import tensorflow as tf

    keras.utils.set_random_seed(3)
    model = adversarial()
    points = np.random.default_rng(0).normal(size=(SIZE, 3)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices({"points": points}).shuffle(SIZE, seed=1).batch(16)
    checkpoint = Checkpoint(folder, every_steps=2, resume=resume)
    history = model.fit(data, epochs=3, shuffle=False, verbose=0, callbacks=[checkpoint, Break()]).history
    state = [weight for optimizer in model.optimizers for weight in optimizer.variables]
    return [*model.get_weights(), *map(np.array, state), *history.values()]


def test_going_on_is_exact(tmp_path):
    whole = trained(tmp_path / "whole")
    with pytest.raises(Stop):
        trained(tmp_path / "broken", stop=5)
    again = trained(tmp_path / "broken", resume=True)
    assert len(again) == len(whole)
    for value, expected in zip(again, whole, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_loss_that_is_not_finite_stops():
    model = linear()
    model.discriminator.set_weights([np.array([[np.nan], [0.0]])])
    with pytest.raises(FloatingPointError, match="The loss is nan at batch 1 of epoch 1"):
        model.fit({"points": REAL}, verbose=0, callbacks=[FiniteLoss(1)])


def test_the_generator_learns_what_is_real():
    """Points around (3, -2): the discriminator knows them from generated ones at first, but not for long."""
    keras.utils.set_random_seed(0)
    real = np.random.default_rng(0).normal((3.0, -2.0), 0.3, (256, 2)).astype("float32")
    model = adversarial(2, penalty=1.0, momentum=0.95, rates=(0.005, 0.03))
    accuracy = model.fit({"points": real}, batch_size=64, epochs=60, verbose=0).history["accuracy"]
    assert max(accuracy[:15]) > 0.97
    assert np.mean(accuracy[-20:]) < 0.6
    points = model.predict({"latents": np.random.default_rng(1).normal(size=(256, 2))}, verbose=0)["points"]
    np.testing.assert_allclose(points.mean(axis=0), (3.0, -2.0), atol=0.3)


def test_refusals():
    generator, discriminator = linear().generator, linear().discriminator
    with pytest.raises(ValueError, match="one of non_saturating, hinge; it is 'mse'"):
        Adversarial(generator, discriminator, loss="mse")
    with pytest.raises(ValueError, match="`penalty` must not be negative; it is -1"):
        Adversarial(generator, discriminator, penalty=-1)
    with pytest.raises(ValueError, match="`generator` must output points by name"):
        Adversarial(discriminator, discriminator)
    with pytest.raises(ValueError, match="`discriminator` must be a functional model with inputs by name"):
        Adversarial(generator, keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    model = linear()
    with pytest.raises(ValueError, match="`use_ema` must be False"):
        model.compile(keras.optimizers.SGD(0.1, use_ema=True), "sgd")
    both = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match="Each player needs an optimizer of its own"):
        model.compile(both, both)
    model.compile("sgd", "sgd")
    with pytest.raises(ValueError, match="A batch must hold points by name; it is latents"):
        model.fit({"latents": LATENTS}, verbose=0)
