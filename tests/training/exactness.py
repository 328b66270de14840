"""Cases of training that must give the same numbers in every layout, and a process that runs them.

    python -m tests.training.exactness STRATEGY[,STRATEGY] FILE.npz [CASE ...]

writes what each case ends with under each STRATEGY (TF_CONFIG says who a worker is): the weights after two
epochs, the history, what `evaluate` and `predict` give. A case "pairs FILE FILE2" trains a translation model.
"""

import dataclasses
import sys
from collections.abc import Callable

import numpy as np

from tests.training import cluster

V, T, SIZE = 30, 6, 40  # vocabulary, length, examples
BOUNDS = {"float32": 1e-6, "mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}


def data(seed=0):
    """Token ids with padding (SIZE, T), the next ones as labels, and weights 0.0 to 2.0 with zeros."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, V, (SIZE, T)).astype("int32")
    ids[np.arange(T) >= rng.integers(2, T + 1, (SIZE, 1))] = 0
    weights = rng.integers(0, 3, (SIZE, T)).astype("float32")
    return ids, np.roll(ids, -1, axis=1), weights


def tagger(mask_zero=False, dropout=0.0, **options):
    """A small model of labels for tokens, without weights whose gradient is zero by theory."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(V, 8, mask_zero=mask_zero, name="embedding")(inputs)
    x = keras.layers.Dense(16, activation="tanh", name="hidden", **options)(x)
    x = keras.layers.Dropout(dropout)(x)
    return keras_tfm.Model(inputs, keras.layers.Dense(V, dtype="float32", name="output")(x))


def two_headed():
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(V, 8)(inputs)
    outputs = {
        "tokens": keras.layers.Dense(V, name="tokens")(x),
        "size": keras.layers.Dense(1, name="size")(keras.layers.GlobalAveragePooling1D()(x)),
    }
    return keras_tfm.Model(inputs, outputs)


def adding_loss():
    import keras

    import keras_tfm

    class Activity(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(keras.ops.square(x)))
            return x

    inputs = keras.Input((T,), dtype="int32")
    x = Activity()(keras.layers.Embedding(V, 8)(inputs))
    return keras_tfm.Model(inputs, keras.layers.Dense(V)(x))


def subclassed():
    import keras

    import keras_tfm

    class Tagger(keras_tfm.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.dense = keras.layers.Embedding(V, 8), keras.layers.Dense(V)

        def call(self, x):
            return self.dense(self.embedding(x))

    return Tagger()


def own_train_step():
    """Keras's way to train of one's own: the optimizer sums what the replicas' losses give."""
    import keras
    import tensorflow as tf

    import keras_tfm

    class Own(keras_tfm.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x, y, y_pred)
            variables = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return self.compute_metrics(x, y, y_pred)

    inputs = keras.Input((T,), dtype="int32")
    return Own(inputs, keras.layers.Dense(V)(keras.layers.Embedding(V, 8)(inputs)))


def detector():
    """A model of two blocks' predictions of four objects."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(V, 8)(inputs))
    x = keras.layers.Reshape((2, 4, 7))(keras.layers.Dense(2 * 4 * 7, activation="sigmoid")(x))
    return keras_tfm.Model(inputs, x)


def detr():
    """A whole detector, two blocks each, of tokens' vectors as the pixels of 16 x 24."""
    import keras

    import keras_tfm
    from keras_tfm import heads, models

    network = {"stem_dim": 8, "dims": (8, 16), "depths": (1, 1), "block": "basic"}
    sizes = {"num_queries": 7, "dim": 16, "num_layers": 2, "num_heads": 2, "intermediate_dim": 16}
    config = models.DETRConfig((16, 24), 1, "ResNet", network, dropout=0.0, activation="gelu", **sizes)
    detector = heads.ObjectDetector(models.DETR(config), 2)
    learner = keras_tfm.Model(detector.input, detector.predictions)
    inputs = keras.Input((T,), dtype="int32")
    pixels = keras.layers.Embedding(V, 64, keras.initializers.RandomNormal(stddev=1.0))(inputs)
    images = keras.layers.Reshape((16, 24, 1))(pixels)
    mask = keras.ops.ones_like(images[..., 0], "bool")
    return keras_tfm.Model(inputs, learner({"images": images, "pixel_mask": mask}))


def objects(ids):
    """Those in the place of every third token or so, of class 0 or 1, and padding: (B, T, 5)."""
    is_object = (ids % 3 == 1)[..., None]
    sides = np.stack([ids, ids[:, ::-1], ids + 3, ids[:, ::-1] + 5], axis=-1) / (2 * V)
    return np.where(is_object, np.concatenate([ids[..., None] % 2, sides], axis=-1), -1).astype("float32")


def translation():
    from keras_tfm.heads import LanguageModel
    from keras_tfm.models import Transformer

    # Softmax does not see what is added to all keys, so the bias of these has no gradient: plain SGD.
    return LanguageModel(
        Transformer.from_size("tiny", vocabulary_size=V, dim=16, intermediate_dim=32, dropout=0.0)
    )


def blocks(dropout=0.0, rematerialize=True, num_experts=0):
    """A Transformer's block; GELU, whose slope does not jump with a rounding. Experts add a loss."""
    import keras

    import keras_tfm
    from keras_tfm import layers

    inputs = keras.Input((T,), dtype="int32")
    if num_experts:
        feedforward = layers.SwitchFeedForward(num_experts, 16, "gelu", balance=0.5)
    else:
        feedforward = layers.FeedForward(16, "gelu")
    attention = layers.MultiHeadAttention(2, dropout=dropout)
    block = layers.Block(
        layers.Residual(attention, layers.LayerNormalization(), dropout=dropout),
        layers.Residual(feedforward, layers.LayerNormalization(), dropout=dropout),
    )
    # Vectors of variance 1: Keras's are 1,000 times nearer to zero, and a norm magnifies their roundings.
    embedding = keras.layers.Embedding(V, 8, keras.initializers.RandomNormal(stddev=1.0), mask_zero=True)
    x = block(embedding(inputs))
    model = keras_tfm.Model(inputs, keras.layers.Dense(V)(x))
    return layers.rematerialize(model) if rematerialize else model


def paired(**options):
    """Two vectors of each text, whose products are logits: those of the whole batch are its negatives."""
    import keras

    import keras_tfm
    from keras_tfm.heads import ContrastiveHead

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(V, 8, "glorot_normal")(inputs))
    sides = [keras.layers.UnitNormalization()(keras.layers.Dense(4)(x)) for _ in range(2)]
    return keras_tfm.Model(inputs, ContrastiveHead(1.0, **options)(*sides))


def contrast(name):
    from keras_tfm import heads

    return getattr(heads, name)()


def sgd(**options):
    import keras

    return keras.optimizers.SGD(0.1, **options)


def adam(**options):
    import keras

    return keras.optimizers.AdamW(0.01, **options)


def by_path(**options):
    from keras_tfm.training import AdamW

    return AdamW(0.01, 0.1, rates={"embedding/embeddings": 0.25, "hidden/kernel": 0.5}, **options)


def scaled(optimizer):
    import keras

    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to train; the data is batched by `batch_size`, `weighted` adds weights to each token.

    Without a `loss` it is the labels' cross-entropy.
    """

    model: Callable = tagger
    optimizer: Callable = sgd
    batch_size: int = 8
    weighted: bool = False
    reduction: str = "sum_over_batch_size"
    compile: dict = dataclasses.field(default_factory=dict)
    fit: dict = dataclasses.field(default_factory=dict)
    policy: str = "float32"
    loss: Callable | None = None


CASES = {
    "sgd": Case(),
    "adam": Case(optimizer=adam),
    "weight decay": Case(optimizer=lambda: adam(weight_decay=0.1)),
    "average of weights": Case(optimizer=lambda: sgd(use_ema=True, ema_momentum=0.9)),
    "momentum": Case(optimizer=lambda: sgd(momentum=0.9)),
    "sum": Case(reduction="sum", optimizer=lambda: sgd(clipnorm=0.1)),
    "sample weights": Case(weighted=True),
    "mean by sample weights": Case(weighted=True, reduction="mean_with_sample_weight"),
    "keras mask": Case(lambda: tagger(mask_zero=True)),
    "keras mask and weights": Case(
        lambda: tagger(mask_zero=True), weighted=True, reduction="mean_with_sample_weight"
    ),
    "partial last batch": Case(batch_size=12),
    "indivisible batch": Case(batch_size=13, weighted=True),
    "last batch of one": Case(batch_size=13, weighted=True, reduction="mean_with_sample_weight"),
    "clip by global norm": Case(optimizer=lambda: sgd(global_clipnorm=0.1)),
    "clip by norm": Case(optimizer=lambda: sgd(clipnorm=0.05)),
    "accumulation": Case(optimizer=lambda: adam(gradient_accumulation_steps=2)),
    "accumulation and average": Case(
        optimizer=lambda: sgd(gradient_accumulation_steps=3, use_ema=True, global_clipnorm=0.1)
    ),
    "steps per execution": Case(batch_size=12, compile={"steps_per_execution": 3}),
    "jit": Case(weighted=True, compile={"jit_compile": True}),
    "rematerialized": Case(blocks),
    "rematerialized, jit": Case(blocks, compile={"jit_compile": True}),
    "experts, rematerialized, jit": Case(
        lambda: blocks(num_experts=3), batch_size=13, compile={"jit_compile": True}
    ),
    "regularizer": Case(lambda: tagger(kernel_regularizer="l2")),
    "add_loss": Case(adding_loss, batch_size=13),
    "two outputs": Case(two_headed, batch_size=13, compile={"loss_weights": {"tokens": 1.0, "size": 0.3}}),
    "set of objects": Case(detector, batch_size=13),
    "DETR": Case(detr, optimizer=lambda: sgd(global_clipnorm=0.1), batch_size=13),
    "subclassed": Case(subclassed, batch_size=12),
    "own train_step": Case(own_train_step),
    "class weights": Case(fit={"class_weight": {i: 1.0 + i / V for i in range(V)}}),
    "translation": Case(translation, weighted=True, batch_size=13, reduction="mean_with_sample_weight"),
    "bfloat16": Case(policy="mixed_bfloat16", batch_size=13),
    "float16, scaled loss": Case(optimizer=lambda: scaled(sgd()), policy="mixed_float16", weighted=True),
    "rates by path": Case(optimizer=lambda: by_path(global_clipnorm=0.1), batch_size=13),
    "rates, accumulation": Case(optimizer=lambda: by_path(gradient_accumulation_steps=2, clipnorm=0.1)),
    "rates, scaled loss": Case(optimizer=lambda: scaled(by_path(use_ema=True)), weighted=True),
    "softmax contrast": Case(paired, batch_size=13, loss=lambda: contrast("SoftmaxContrast")),
    "sigmoid contrast": Case(
        lambda: paired(logit_bias=-1.0), batch_size=12, loss=lambda: contrast("SigmoidContrast"),
        compile={"jit_compile": True},
    ),
    "rates, jit": Case(optimizer=by_path, batch_size=12, compile={"jit_compile": True}),
}  # fmt: skip
# What each of these ends with depends on another part of training.
QUICK = (
    "mean by sample weights", "accumulation", "jit", "own train_step", "set of objects", "softmax contrast",
    "sigmoid contrast",
)  # fmt: skip
QUICK_OF_PROCESSES = ("mean by sample weights", "accumulation")
# Not as on one device: each replica drops other values. Both of them drop the same.
DRAWING = {
    "dropout in blocks": Case(lambda: blocks(0.3, rematerialize=False)),
    "dropout in rematerialized blocks": Case(lambda: blocks(0.3)),
}


def run(case, scope):
    """{name: array} of what the case ends with."""
    import keras
    import tensorflow as tf

    # Before the seed: initializers of modules draw theirs when they are imported.
    import keras_tfm.models  # noqa: F401
    from keras_tfm.heads import SetPredictionLoss

    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy(case.policy)
    ids, labels, weights = data()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=case.reduction)
    metrics = ["sparse_categorical_accuracy"]
    inputs, targets = ids, labels
    if case.loss:
        loss, metrics, targets = case.loss(), [], labels[:, 0]
    if case.model is two_headed:
        loss, metrics = {"tokens": loss, "size": "mse"}, {"tokens": metrics, "size": ["mae"]}
        targets = {"tokens": labels, "size": labels.mean(axis=1, keepdims=True).astype("float32")}
    if case.model in (detector, detr):
        loss, metrics, targets = SetPredictionLoss(), None, objects(ids)
    if case.model is translation:
        inputs = {"token_ids": ids, "padding_mask": ids != 0}
        inputs |= {"decoder_token_ids": labels, "decoder_padding_mask": labels >= 0}
    if case.fit.get("class_weight"):
        inputs, targets = ids, labels[:, 0]
    with scope():
        model = case.model()
        if case.fit.get("class_weight"):
            model = type(model)(model.input, keras.layers.GlobalAveragePooling1D()(model.output))
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
    from keras_tfm.training.strategy import strategy, worker_index

    # Replicas first: a layout's devices are chosen before TensorFlow begins, and serve `none` as well.
    chosen = {layout: strategy(layout) for layout in sorted(layouts.split(","), key="none".__eq__)}
    arrays = {}
    for place, layout in enumerate(layouts.split(",")):
        scope = chosen[layout].scope
        for name in names or CASES:
            if name == "dropout":
                results = run_dropout(scope)
            elif name == "teacher":
                results = run_teacher(scope)
            elif name.startswith("pairs "):
                results = run_pairs(scope, name.split()[1:])
            else:
                results = run((CASES | DRAWING)[name], scope)
            arrays |= {f"{place}|{name}|{key}": value for key, value in results.items()}
    if worker_index(chosen[layouts.split(",")[0]]) == 0:  # all have the same
        np.savez(file, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
