"""Rates and decay by path, and the gradients' norm, against updates in NumPy; what is frozen stays."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import layers
from keras_tfm.heads import Classifier, LanguageModel
from keras_tfm.models import T5, RecurrentSeq2Seq, ResNet, ResNetConfig, Transformer, ViT
from keras_tfm.training import SGD, Adam, AdamW, WarmupLinearSchedule, freeze, layer_rates, trainable_kept

TINY = {"dim": 8, "intermediate_dim": 16, "num_heads": 2}


def classifier(num_layers=2, **changes):
    return Classifier(ViT.from_size("tiny", image_size=8, num_layers=num_layers, **TINY, **changes), 3)


def drawn_gradients(model, steps, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [rng.normal(size=v.shape).astype("float32") for v in model.trainable_variables] for _ in range(steps)
    ]


def global_norm(gradients):
    return np.sqrt(sum(np.sum(np.float64(gradient) ** 2) for gradient in gradients))


class AdamWByHand:
    """AdamW with decoupled decay in float64, each variable at its own rate."""

    def __init__(self, weights, rates, decays):
        self.weights = [np.float64(weight) for weight in weights]
        self.rates, self.decays = rates, decays
        self.momentums = [np.zeros_like(weight) for weight in self.weights]
        self.velocities = [np.zeros_like(weight) for weight in self.weights]
        self.step = 0

    def apply(self, gradients, learning_rate, clip, t):
        scale = min(1.0, clip / global_norm(gradients))
        for i, gradient in enumerate(gradients):
            rate, gradient = learning_rate * self.rates[i], np.float64(gradient) * scale
            self.weights[i] -= rate * self.decays[i] * self.weights[i]
            self.momentums[i] = 0.9 * self.momentums[i] + 0.1 * gradient
            self.velocities[i] = 0.999 * self.velocities[i] + 0.001 * gradient**2
            mean = self.momentums[i] / (1 - 0.9**t)
            deviation = np.sqrt(self.velocities[i] / (1 - 0.999**t))
            self.weights[i] -= rate * mean / (deviation + 1e-7 / np.sqrt(1 - 0.999**t))


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_adamw_is_the_update_by_hand(jit_compile, accumulated):
    model = classifier()
    paths = [variable.path for variable in model.trainable_variables]
    kept = ("bias", "gamma", "beta")
    by_hand = AdamWByHand(
        [variable.numpy() for variable in model.trainable_variables],
        [layer_rates(model, 0.5)[path] for path in paths],
        [
            0.0 if path.endswith(kept) or "position" in path or "class_token" in path else 0.3
            for path in paths
        ],
    )
    schedule = WarmupLinearSchedule(0.1, 3, 9)
    optimizer = AdamW(
        schedule,
        0.3,
        rates=layer_rates(model, 0.5),
        global_clipnorm=5.0,
        gradient_accumulation_steps=accumulated if accumulated > 1 else None,
        use_ema=True,
        ema_momentum=0.5,
    )
    optimizer.build(model.trainable_variables)
    apply = tf.function(optimizer.apply, jit_compile=jit_compile, autograph=False)
    steps = drawn_gradients(model, 4 * accumulated)
    norms, averages = [], by_hand.weights
    for step, gradients in enumerate(steps):
        apply([tf.constant(gradient) for gradient in gradients])
        if (step + 1) % accumulated == 0:
            parts = steps[step + 1 - accumulated : step + 1]
            mean = [sum(gradients) / accumulated for gradients in zip(*parts, strict=True)]
            norms.append(global_norm(mean))
            by_hand.apply(mean, float(schedule(step)), 5.0, (step + 1) // accumulated)
        # Keras averages at every step: those of one update keep together what one update is to keep.
        updates = step // accumulated
        share = 1 - min(0.5, updates / (updates + 9)) ** (1 / accumulated)
        averages = [
            (1 - share) * average + share * weight
            for average, weight in zip(averages, by_hand.weights, strict=True)
        ]
    for ours, expected in (
        (model.trainable_variables, by_hand.weights),
        (optimizer._model_variables_moving_average, averages),
    ):
        for variable, value in zip(ours, expected, strict=True):
            np.testing.assert_allclose(variable.numpy(), value, rtol=2e-5, atol=2e-6, err_msg=variable.path)
    assert optimizer.take_gradient_norm() == pytest.approx(np.mean(norms), rel=1e-5)
    assert np.isnan(optimizer.take_gradient_norm())


@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_gradients_that_are_not_finite_are_not_clipped_to_finite_ones(option, value):
    weight = keras.Variable(np.ones(2, "float32"))
    optimizer = SGD(0.1, **{option: 1.0})
    optimizer.build([weight])
    optimizer.apply([tf.constant([value, 1.0])])
    assert np.isnan(weight.numpy()).all()


@pytest.mark.parametrize(
    ("ours", "keras_own", "options", "rounding"),
    [
        (AdamW, keras.optimizers.AdamW, {"weight_decay": 0.1}, 5e-6),
        (Adam, keras.optimizers.Adam, {"clipnorm": 0.1, "use_ema": True}, 5e-6),
        (Adam, keras.optimizers.Adam, {"amsgrad": True}, 0),
        (SGD, keras.optimizers.SGD, {"momentum": 0.9, "weight_decay": 0.1}, 1e-7),
    ],
)
def test_without_rates_it_is_kerass(ours, keras_own, options, rounding):
    """But for rounding: TensorFlow's operation for Adam computes 1 - beta in float32, Keras in float64."""
    gradients = drawn_gradients(classifier(), 3)
    results = []
    for optimizer in (ours(0.1, not_decayed="nothing", **options), keras_own(0.1, **options)):
        keras.utils.set_random_seed(0)
        model = classifier()
        optimizer.build(model.trainable_variables)
        for step in gradients:
            optimizer.apply([tf.constant(gradient) for gradient in step])
        results.append(model.get_weights())
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding)


def test_adam_squares_the_whole_gradient_of_a_row():
    """Not the parts that each lookup of the row gives, as the gradient of a table would have it."""
    updated = []
    for rows in ([1, 1, 2], [1, 2]):
        table = keras.Variable(np.ones((4, 2)), name="table")
        optimizer = Adam(0.1)
        optimizer.build([table])
        for step in range(2):
            values = np.array([[1.0], [2.0], [4.0]], "float32") * np.array([1.0, step], "float32")
            values = values if len(rows) == 3 else np.stack([values[0] + values[1], values[2]])
            optimizer.apply([tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant([4, 2]))])
        updated.append(table.numpy())
    np.testing.assert_array_equal(*updated)


@pytest.mark.parametrize(("batches", "average"), [(None, -45.1), (4, -44.8)])
def test_averages_of_a_short_run_are_of_what_it_learnt(batches, average):
    """Keras's would be -1.1, which is where it began."""
    weight = keras.Variable(0.0, name="weight")
    optimizer = SGD(1.0, use_ema=True, ema_momentum=0.9999, gradient_accumulation_steps=batches)
    optimizer.build([weight])
    for _ in range(50 * (batches or 1)):
        optimizer.apply([tf.constant(1.0)])
    (found,) = optimizer._model_variables_moving_average
    assert float(weight) == -50 and float(found) == pytest.approx(average, abs=0.5)


def test_a_row_looked_up_twice_counts_once_in_the_norm():
    table = keras.Variable(np.ones((4, 2)), name="table")
    optimizer = SGD(0.1)
    optimizer.build([table])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table.value, [1, 1, 2]) * [[1.0], [2.0], [4.0]])
    (gradient,) = tape.gradient(loss, [table.value])
    assert isinstance(gradient, tf.IndexedSlices)
    optimizer.apply([gradient])
    assert optimizer.take_gradient_norm() == pytest.approx(np.sqrt(2 * 3**2 + 2 * 4**2))


def test_scaled_losses_do_not_scale_the_norm():
    norms = []
    for scaled in (False, True):
        keras.utils.set_random_seed(0)
        model, optimizer = classifier(), SGD(0.1)
        model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, "mse")
        model.train_on_batch(np.ones((2, 8, 8, 3)), np.ones((2, 3)))
        norms.append(optimizer.take_gradient_norm())
    assert norms[0] == pytest.approx(norms[1], rel=1e-4) and norms[0] > 0


def test_training_goes_on_from_a_file(tmp_path):
    data = np.random.default_rng(0).normal(size=(4, 8, 8, 3)), np.ones((4, 3))
    model = classifier()
    model.compile(AdamW(0.01, 0.1, rates=layer_rates(model, 0.5), global_clipnorm=1.0, use_ema=True), "mse")
    model.train_on_batch(*data)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is AdamW and again.optimizer.get_config() == model.optimizer.get_config()
    for either in (model, again):
        either.train_on_batch(*data)
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_rates_of_a_vision_transformer_fall_with_depth():
    rates = layer_rates(classifier(num_layers=3), 0.5)
    assert len(rates) == len(classifier(num_layers=3).trainable_variables)
    heights = {"patch_encoder": 4, "block_0": 3, "block_1": 2, "block_2": 1, "norm": 0, "head": 0}
    for path, rate in rates.items():
        assert rate == 0.5 ** heights[path.split("/")[0]], path


def test_rates_of_a_transformer_count_both_stacks_from_above():
    backbone = Transformer.from_size("tiny", vocabulary_size=9, num_layers=2, normalize_first=True, **TINY)
    rates = layer_rates(LanguageModel(backbone), 0.1)
    assert rates["embedding/token/embeddings"] == pytest.approx(
        1e-3
    )  # also what makes the logits: it is tied
    for stack in ("encoder", "decoder"):
        assert rates[f"{stack}_block_0/attention/branch/output/kernel"] == pytest.approx(1e-2)
        assert rates[f"{stack}_block_1/attention/branch/output/kernel"] == pytest.approx(1e-1)
        assert rates[f"{stack}_norm/gamma"] == 1


def test_a_table_that_blocks_share_is_as_deep_as_the_embeddings():
    backbone = T5.from_size("tiny", vocabulary_size=9, num_layers=2, key_dim=4, **TINY)
    rates = layer_rates(LanguageModel(backbone), 0.1)
    for path in ("embedding/token/embeddings", "encoder_position/table", "decoder_position/table"):
        assert rates[path] == pytest.approx(1e-3)
    assert rates["encoder_norm/gamma"] == rates["decoder_norm/gamma"] == 1


def test_rates_of_a_stack_that_is_one_layer():
    inputs = keras.Input((None,), dtype="int32")
    x = layers.TokenEmbedding(9, 8, name="embedding")(inputs)
    x = layers.TransformerEncoder(2, 2, 16, normalize_first=True, name="encoder")(x)
    model = keras_tfm.Model(inputs, keras.layers.Dense(3, name="head")(x))
    heights = {"embedding/token": 3, "encoder/block_0": 2, "encoder/block_1": 1, "encoder/norm": 0, "head": 0}
    for path, rate in layer_rates(model, 0.5).items():
        (height,) = (height for start, height in heights.items() if path.startswith(start))
        assert rate == 0.5**height, path


def test_rates_of_a_recurrent_model():
    size = next(iter(RecurrentSeq2Seq.sizes))
    rates = layer_rates(LanguageModel(RecurrentSeq2Seq.from_size(size, vocabulary_size=9)), 0.5)
    assert (
        rates["embedding/token/embeddings"] < rates["decoder/cell_0/kernel"] < rates["decoder/output/kernel"]
    )


def test_what_may_be_trained_is_given_back():
    model = classifier(num_layers=2)
    model.layers[-1].trainable = False
    before = [layer.trainable for layer in model._flatten_layers()], [w.trainable for w in model.weights]
    with pytest.raises(ZeroDivisionError), trainable_kept(model):
        freeze(model, 1)
        model.trainable = False
        model.trainable = True
        raise ZeroDivisionError
    after = [layer.trainable for layer in model._flatten_layers()], [w.trainable for w in model.weights]
    assert after == before and False in before[0] and len(model.trainable_weights) < len(model.weights)


def test_freezing_trains_what_is_above():
    model = classifier(num_layers=2)
    freeze(model, 1)
    trained = {variable.path for variable in model.trainable_variables}
    assert {path.split("/")[0] for path in trained} == {"block_1", "norm", "head"}
    before = {variable.path: variable.numpy() for variable in model.weights}
    model.compile(AdamW(0.1, 0.1, rates=layer_rates(model, 0.5)), "mse")
    model.train_on_batch(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), np.ones((4, 3)))
    for variable in model.weights:
        changed = not np.array_equal(variable.numpy(), before[variable.path])
        assert changed == (variable.path in trained), variable.path


def test_frozen_blocks_keep_their_statistics():
    config = ResNetConfig(image_size=8, stem_dim=4, dims=(4, 8), depths=(1, 1), block="basic")
    model = Classifier(ResNet(config), num_classes=3)
    before = {variable.path: variable.numpy() for variable in model.weights}
    with trainable_kept(model):
        freeze(model, 1)
        model.compile("sgd", "mse")
        model.train_on_batch(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), np.ones((4, 3)))
    moving = [variable for variable in model.weights if "/moving_" in variable.path]
    moved = {x.path for x in moving if not np.array_equal(x.numpy(), before[x.path])}
    assert moved == {x.path for x in moving if x.path.startswith("stage_1")}
    assert moved and not any(layer.trainable is False for layer in model._flatten_layers())


def test_mistakes_are_named():
    model = classifier()
    with pytest.raises(ValueError, match=r"`decay` must lie in \(0, 1\]; it is 1.5"):
        layer_rates(model, 1.5)
    with pytest.raises(ValueError, match=r"`num_blocks` must lie in \[0, 2\]; it is 3"):
        freeze(model, 3)
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="plain")
    with pytest.raises(ValueError, match="'plain' has no blocks"):
        layer_rates(plain, 0.5)
    rates = layer_rates(model, 0.5)
    freeze(model, 0)
    with pytest.raises(
        ValueError, match=r"`rates` names patch_encoder/.* which this optimizer does not train"
    ):
        AdamW(0.1, rates=rates).build(model.trainable_variables)
    with pytest.raises(ValueError, match="Pass `not_decayed`, a regular expression of paths"):
        AdamW(0.1, 0.1).exclude_from_weight_decay(var_names=["kernel"])
