"""A process that trains cases of `exactness_cases` in a layout, and what compares the layouts.

    python -m tests.training.exactness STRATEGY[,STRATEGY] FILE.npz [CASE ...]

writes what each case ends with under each STRATEGY (TF_CONFIG says who a worker is): the weights after two
epochs, the history, what `evaluate` and `predict` give. A case "pairs FILE FILE2" trains a translation model.
"""

import gc
import os
import sys
import tempfile

import numpy as np

from tests.quick_graphs import make_graphs_quickly
from tests.training import cluster
from tests.training.exactness_cases import CASES, DRAWING, adam
from tests.training.exactness_models import (
    SIZE,
    adversarial,
    adversarial_codec,
    data,
    tagger,
    translation,
    two_headed,
)


def run(case, scope):
    """{name: array} of what the case ends with."""
    import keras
    import tensorflow as tf

    # Before the seed: initializers of modules draw theirs when they are imported.
    import keras_tfm.heads
    import keras_tfm.models  # noqa: F401

    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy(case.policy)
    ids, labels, weights = data()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=case.reduction)
    metrics = ["sparse_categorical_accuracy"]
    inputs, targets = ids, case.targets(ids, labels)
    if case.loss:
        loss, metrics = case.loss(), []
    if case.model is two_headed:
        loss, metrics = {"tokens": loss, "size": "mse"}, {"tokens": metrics, "size": ["mae"]}
        targets = {"tokens": labels, "size": labels.mean(axis=1, keepdims=True).astype("float32")}
    if case.model is translation:
        inputs = {"token_ids": ids, "padding_mask": ids != 0}
        inputs |= {"decoder_token_ids": labels, "decoder_padding_mask": labels >= 0}
    with scope():
        model = case.model()
        model.compile(case.optimizer(), loss, weighted_metrics=metrics, **case.compile)
    columns = (inputs, targets, weights) if case.weighted else (inputs, targets)
    dataset = tf.data.Dataset.from_tensor_slices(columns).batch(case.batch_size)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.with_options(options)
    history = model.fit(dataset, epochs=2, verbose=0, validation_data=dataset, **case.fit).history
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    results |= {f"history/{name}": np.array(values) for name, values in history.items()}
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if hasattr(optimizer, "take_gradient_norm"):
        results["history/gradient_norm"] = np.array(optimizer.take_gradient_norm())
    results |= {
        f"evaluate/{name}": np.array(value)
        for name, value in model.evaluate(dataset, verbose=0, return_dict=True).items()
    }
    predictions = keras.tree.flatten(model.predict(dataset, verbose=0))
    results |= {f"predict/{i}": np.asarray(y, "float32") for i, y in enumerate(predictions)}
    keras.config.set_dtype_policy("float32")
    return results


def run_dropout(scope):
    """Weights after an epoch with dropout, and what two replicas draw: (2, 1,000) of zeros and twos."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(7)
    ids, labels, _ = data()
    with scope():
        model = tagger(dropout=0.5)
        model.compile(adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(tf.data.Dataset.from_tensor_slices((ids, labels)).batch(8), epochs=1, verbose=0)
    (dropout,) = (layer for layer in model.layers if isinstance(layer, keras.layers.Dropout))
    masks = tf.function(
        lambda: model.distribute_strategy.run(lambda: dropout(tf.ones([1_000]), training=True))
    )()
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results | {"masks": np.stack(model.distribute_strategy.experimental_local_results(masks))}


def run_changes(scope):
    """The number of the first step by which each replica draws the changes of its inputs, (replicas,)."""
    import keras
    import tensorflow as tf

    import keras_tfm
    from keras_tfm.training.changed_steps import ChangedInputs

    class Echo(keras_tfm.Model):
        def train_step(self, data):
            return data

    with scope():
        inputs = keras.Input((2,))
        model = Echo(inputs, keras.layers.Dense(1)(inputs))
        model.compile(adam())
    ChangedInputs(lambda inputs, step, done: step, 1).set_model(model)
    strategy = model.distribute_strategy
    steps = tf.function(lambda: strategy.run(model.train_step, args=(tf.zeros((1, 2)),)))()
    return {"steps": np.stack(strategy.experimental_local_results(steps))}


def run_averages(scope):
    """The moving averages of each replica's batch normalisation after a batch of one example, (3, 5)."""
    import keras

    import keras_tfm

    with scope():
        inputs = keras.Input((2,))
        norm = keras_tfm.layers.BatchNormalization(momentum=0.9)
        model = keras_tfm.Model(inputs, norm(inputs))
        model.compile(keras.optimizers.SGD(0.1), "mse")
    example = np.array([[3.0, 5.0]], "float32")
    model.fit(example, example, batch_size=1, verbose=0)
    averages = norm.moving_mean.value, norm.moving_variance.value
    local = [model.distribute_strategy.experimental_local_results(x) for x in averages]
    return {"means": np.stack(local[0]), "variances": np.stack(local[1])}


def run_teacher(scope):
    """What a model and its moving average, the teacher, end with: their weights, and the center."""
    import keras
    import tensorflow as tf

    from keras_tfm.heads import SelfDistillation, SelfDistillationLoss
    from keras_tfm.models import ViT
    from keras_tfm.training import SGD, MovingAverage

    keras.utils.set_random_seed(7)
    sizes = {"image_size": 4, "patch_size": 2, "num_layers": 1, "dim": 8, "num_heads": 2, "num_channels": 1}
    with scope():
        model = SelfDistillation(ViT.from_size("tiny", **sizes, intermediate_dim=8), 6, 8, 4, 1, 2)
        # A loss that the student adds, as experts do; the teacher adds none.
        model.backbone.get_layer("block_0").activity_regularizer = keras.regularizers.L2(0.1)
        model.compile(SGD(0.1), SelfDistillationLoss(1.0, 1.0))
    rng = np.random.default_rng(0)
    images, local = rng.normal(size=(SIZE, 2, 4, 4, 1)), rng.normal(size=(SIZE, 1, 2, 2, 1))
    crops = {"images": images.astype("float32"), "local_images": local.astype("float32")}
    batches = tf.data.Dataset.from_tensor_slices((crops,)).batch(14)  # not the same number on each replica
    follow = MovingAverage(model.followed, 0.5, 6)
    history = model.fit(
        batches, epochs=2, validation_data=batches, callbacks=[follow], shuffle=False, verbose=0
    )
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results | {f"history/{name}": np.array(values) for name, values in history.history.items()}


def run_denoiser(scope):
    """What a diffusion model ends with, averages of its weights, if its noise and timesteps are inputs."""
    import keras
    import tensorflow as tf

    from keras_tfm.heads import Denoiser
    from keras_tfm.models import DiT, DiTConfig
    from keras_tfm.training import SGD

    keras.utils.set_random_seed(7)
    config = DiTConfig(
        4, 2, num_channels=1, num_layers=1, dim=8, num_heads=2, intermediate_dim=8, num_classes=3
    )
    with scope():
        model = Denoiser(DiT(config), "linear", class_dropout=0.0)
        model.compile(SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
    rng = np.random.default_rng(0)
    images, noise = rng.normal(size=(2, SIZE, 4, 4, 1)).astype("float32")
    inputs = {"images": images, "noise": noise, "timesteps": rng.integers(0, 1000, SIZE, "int32")}
    inputs["classes"] = rng.integers(0, 4, SIZE, "int32")  # 3 is no class
    batches = tf.data.Dataset.from_tensor_slices((inputs,)).batch(14)  # not the same number on each replica
    history = model.fit(batches, epochs=2, validation_data=batches, shuffle=False, verbose=0)
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results | {f"history/{name}": np.array(values) for name, values in history.history.items()}


def run_adversarial(scope):
    """What two players and the average of one end with, for latents that are given; and their metrics."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(7)
    with scope():
        model = adversarial(penalty=0.5, momentum=0.5)
    rng = np.random.default_rng(0)
    draws = {"points": rng.normal(size=(SIZE, 3)), "latents": rng.normal(size=(SIZE, 2))}
    draws = {name: values.astype("float32") for name, values in draws.items()}
    batches = tf.data.Dataset.from_tensor_slices(draws).batch(13)  # not the same number on each replica
    history = model.fit(batches, epochs=2, validation_data=batches, shuffle=False, verbose=0).history
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results | {f"history/{name}": np.array(values) for name, values in history.items()}


def run_adversarial_codec(scope):
    """What a codec that learns against a discriminator ends with, and its metrics."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(7)
    with scope():
        model = adversarial_codec()
    rows = {"images": np.random.default_rng(0).normal(size=(SIZE, 3)).astype("float32")}
    # 13 are not the same number on each replica.
    batches = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(13)
    history = model.fit(batches, epochs=2, validation_data=batches, shuffle=False, verbose=0).history
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results | {f"history/{name}": np.array(values) for name, values in history.items()}


def run_weighted_classes(scope):
    """The losses and the answers of a task whose classes have weights; the last batch is a part of one."""
    import keras

    from keras_tfm.tasks import TextClassifier
    from tests.tasks.tiny import TINY

    keras.utils.set_random_seed(7)
    texts = [f"{word} film {i}" for i in range(9) for word in ("good", "bad", "dull")]
    examples = texts, ["pos", "neg", "neg"] * 9
    with scope():
        task = TextClassifier.from_examples(
            examples, "tiny", vocabulary_size=300, changes=TINY, max_length=16, head={"dropout": 0.0}
        )
        weights = {"pos": 5.0, "neg": 0.5}
        history = task.fit(examples, examples, epochs=2, batch_tokens=64, seed=1, class_weight=weights)
    losses = {f"history/{name}": np.array(history[name]) for name in ("loss", "val_loss", "accuracy")}
    return losses | {"predict/0": task.probabilities(texts)}


def run_taught(scope):
    """What a student of images learns from a teacher: its losses and answers."""
    import keras

    from keras_tfm.tasks import ImageClassifier
    from tests.tasks.images.test_image_classifier import NAMES, SMALL, examples

    keras.utils.set_random_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        ImageClassifier.from_size("tiny", NAMES, **SMALL).save(f"{folder}/teacher")
        with scope():
            task = ImageClassifier.from_size("tiny", NAMES, **SMALL)
        options = {"epochs": 2, "batch_size": 8, "seed": 1, "teacher": f"{folder}/teacher"}
        history = task.fit(examples(24), examples(9, seed=1), **options)
    losses = {f"history/{name}": np.array(history[name]) for name in ("loss", "val_loss")}
    return losses | {"predict/0": task.probabilities(examples(9, seed=1)[0])}


def run_pairs(scope, files):
    """Weights, and the losses of each epoch, of a translation model trained on `files` of pairs."""
    import keras

    from keras_tfm.data import PairBatches, read_pairs, train_tokenizer
    from keras_tfm.heads import LanguageModel, TokenCrossEntropy
    from keras_tfm.models import Transformer

    keras.utils.set_random_seed(7)
    pairs = read_pairs(files)
    tokenizer = train_tokenizer([*pairs.sources, *pairs.targets], vocabulary_size=2_000)
    batches = PairBatches(*pairs, tokenizer, tokenizer, batch_tokens=2_048, num_shapes=4, seed=0)
    with scope():
        size = tokenizer.vocabulary_size
        # GELU: where a rounding decides on which side of a ReLU's bend a value falls, differences grow.
        backbone = Transformer.from_size("tiny", vocabulary_size=size, dropout=0.0, activation="gelu")
        model = LanguageModel(backbone)
        model.compile(keras.optimizers.SGD(0.1, global_clipnorm=1.0), TokenCrossEntropy(0.1))
    history = model.fit(
        batches.epochs(),
        steps_per_epoch=batches.num_batches,
        epochs=2,
        verbose=0,
        shuffle=False,
        validation_data=batches.dataset(),
    )
    results = {f"weight/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results | {f"history/{name}": np.array(values) for name, values in history.history.items()}


def differences(ours, expected):
    """{kind: the largest difference}, relative to 1 or more; shapes and names must agree."""
    assert ours.keys() == expected.keys(), ours.keys() ^ expected.keys()
    largest = {}
    for name, value in ours.items():
        assert value.shape == expected[name].shape, (name, value.shape, expected[name].shape)
        scale = max(1.0, float(np.abs(expected[name]).max(initial=0)))
        difference = float(np.abs(value - expected[name]).max(initial=0)) / scale
        kind = name.partition("/")[0]
        largest[kind] = max(largest.get(kind, 0.0), difference)
    return largest


def run_layout(layout, file, names, timeout=1800):
    """Run cases in a fresh process, or `processes:N` of them: {case: {name: array}}."""
    return run_layouts([layout], file, names, timeout)[layout]


def run_layouts(layouts, file, names, timeout=1800):
    """Run cases in one process for `none` and a `mirrored:N`, or N for `processes:N`: {layout: {case: …}}.

    Both fit into one since replicas are parts of its CPU, and `none` takes the first part.
    """
    kind, _, count = layouts[0].partition(":")
    workers = int(count) if kind == "processes" else 1
    strategies = "multi-worker" if kind == "processes" else ",".join(layouts)
    for code, errors in cluster.wait(
        cluster.start("tests.training.exactness", strategies, file, *names, workers=workers), timeout
    ):
        assert code == 0, errors[-4000:]
    with np.load(file, allow_pickle=False) as arrays:
        results = {layout: {name: {} for name in names} for layout in layouts}
        for key in arrays:
            place, case, name = key.split("|", 2)
            results[layouts[int(place)]][case][name] = arrays[key]
    return results


def main(layouts, file, *names):
    from keras_tfm.cli.console import quiet_tensorflow

    tf = quiet_tensorflow()  # without what Keras imports for wrappers and pictures, a second
    from keras_tfm.training.strategy import strategy, worker_index

    if os.environ.get("KERAS_TFM_GRAPPLER") == "0":  # as in the tests' own process
        make_graphs_quickly()
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)
    # Replicas first: a layout's devices are chosen before TensorFlow begins, and serve `none` as well.
    chosen = {layout: strategy(layout) for layout in sorted(layouts.split(","), key="none".__eq__)}
    arrays = {}
    for place, layout in enumerate(layouts.split(",")):
        scope = chosen[layout].scope
        for name in names or CASES:
            if name in ("dropout", "dropout again"):
                results = run_dropout(scope)
            elif name == "changes":
                results = run_changes(scope)
            elif name == "averages":
                results = run_averages(scope)
            elif name == "teacher":
                results = run_teacher(scope)
            elif name == "denoiser":
                results = run_denoiser(scope)
            elif name == "adversarial":
                results = run_adversarial(scope)
            elif name == "adversarial codec":
                results = run_adversarial_codec(scope)
            elif name == "weighted classes":
                results = run_weighted_classes(scope)
            elif name == "taught":
                results = run_taught(scope)
            elif name.startswith("pairs "):
                results = run_pairs(scope, name.split()[1:])
            else:
                results = run((CASES | DRAWING)[name], scope)
            arrays |= {f"{place}|{name}|{key}": value for key, value in results.items()}
    if worker_index(chosen[layouts.split(",")[0]]) == 0:  # all have the same
        np.savez(file, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
