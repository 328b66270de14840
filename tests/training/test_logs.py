"""What callbacks measure, against what is known of the data; the files they leave, whole and resumable."""

import csv
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm.training import SGD
from keras_tfm.training.logs import GradientNorm, MetricsFile, TensorBoard, Throughput, work_in
from keras_tfm.training.metrics_file import read_rows


def compiled(optimizer=None, **options):
    inputs = keras.Input((1,), name="x")
    model = keras_tfm.Model(inputs, keras.layers.Dense(1, use_bias=False, name="dense")(inputs))
    model.set_weights([np.ones((1, 1))])
    model.compile(optimizer or SGD(0.5), "mse", **options)
    return model


def fit(model, dataset, *callbacks, **options):
    return model.fit(dataset, callbacks=list(callbacks), shuffle=False, verbose=0, **options).history


def ones(count):
    return tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.zeros([4, 1]))).repeat(count)


def test_work_leaves_padding_out():
    mask = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    x = {"token_ids": np.ones((3, 3), "int32"), "padding_mask": mask}
    assert work_in(x).numpy().tolist() == [2, 3]
    x |= {"decoder_token_ids": np.ones((3, 2)), "decoder_padding_mask": np.array([[1, 1], [0, 0], [1, 0]])}
    assert work_in(x).numpy().tolist() == [3, 6]
    assert work_in({"token_ids": np.ones((3, 2))}).numpy().tolist() == [3, 6]
    assert work_in({"images": np.ones((5, 2, 2, 1))}).numpy().tolist() == [5, 0]
    choices = np.array([[[1, 1], [1, 0]], [[0, 1], [0, 0]], [[0, 0], [0, 0]]], bool)  # (B, C, T)
    assert work_in({"token_ids": choices, "padding_mask": choices}).numpy().tolist() == [2, 4]
    assert work_in(np.ones((0, 2))).numpy().tolist() == [0, 0]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_throughput_is_examples_by_time(jit_compile, steps_per_execution):
    class Clock(keras.callbacks.Callback):
        """Fifty milliseconds a step: the work of 4 examples takes no less."""

        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.05 * steps_per_execution)

        def on_test_begin(self, logs=None):
            time.sleep(1.0)

    model = compiled(jit_compile=jit_compile, steps_per_execution=steps_per_execution)
    functions = []
    for _ in range(2):
        history = fit(model, ones(12), Throughput(2), Clock(), epochs=2, validation_data=ones(1))
        assert "tokens_per_second" not in history
        for rate in history["examples_per_second"]:
            assert 40 < rate < 80
        functions.append(model.train_function)
    assert functions[0] is functions[1]  # the second fit counts on, nothing is traced anew


def test_an_epoch_of_one_step_has_no_rate():
    assert "examples_per_second" not in fit(compiled(), ones(1), Throughput())
    assert fit(compiled(), ones(2), Throughput())["examples_per_second"][0] > 0


def test_the_norm_is_the_mean_over_an_epoch(tmp_path):
    # The loss is w^2, its gradient 2 w; each step of the rate 0.25 halves w = 1.
    file = MetricsFile(tmp_path / "metrics.csv")
    history = fit(compiled(SGD(0.25, clipnorm=100.0)), ones(2), GradientNorm(), file, epochs=2)
    assert history["gradient_norm"] == pytest.approx([1.5, 0.375])
    assert [float(row["gradient_norm"]) for row in read_rows(tmp_path / "metrics.csv")] == [1.5, 0.375]
    with pytest.raises(
        ValueError, match=r"needs an optimizer of keras_tfm.training, such as AdamW; it is SGD"
    ):
        fit(compiled(keras.optimizers.SGD(0.1)), ones(1), GradientNorm())


def test_the_file_holds_each_epoch_once(tmp_path):
    path = tmp_path / "metrics.csv"
    model = compiled(SGD(0.25))
    fit(model, ones(3), MetricsFile(path), epochs=3)
    first = path.read_text().splitlines()
    assert first[0] == "epoch,step,learning_rate,seconds,loss"
    assert [line.split(",")[:3] for line in first[1:]] == [[str(i), str(3 * i), "0.25"] for i in (1, 2, 3)]
    # Resumed from the end of the second epoch, with one measure more; a line cut short is not a row.
    path.write_text("\n".join(first) + "\n4,12,0.2")
    fit(model, ones(3), MetricsFile(path), epochs=4, initial_epoch=2, validation_data=ones(1))
    second = path.read_text().splitlines()
    assert second[0] == first[0] + ",val_loss"
    assert second[1:3] == [line + "," for line in first[1:3]]
    assert [row["epoch"] for row in csv.DictReader(second)] == ["1", "2", "3", "4"]
    # A run from the start begins anew.
    fit(model, ones(3), MetricsFile(path))
    assert [row["epoch"] for row in read_rows(path)] == ["1"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.csv"]


@pytest.mark.parametrize(
    "text", ["name,age\nAda,36\n", "epoch,step\none,2\n", "epoch,step\n1\n", "epoch\n1,2\n"]
)
def test_another_file_is_refused(text, tmp_path):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ValueError, match=r"metrics\.csv: expected a table of metrics by epoch"):
        fit(compiled(), ones(1), MetricsFile(tmp_path / "metrics.csv"))
    assert (tmp_path / "metrics.csv").read_text() == text


def scalars(folder):
    """{tag: {step: value}} of the event files in `folder`, read record by record."""
    found = {}
    for path in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def test_tensorboard_reads_all_measures_by_step(tmp_path):
    model = compiled(SGD(0.25))
    board = TensorBoard(tmp_path)
    history = fit(model, ones(3), GradientNorm(), board, epochs=2, validation_data=ones(1))
    train, validation = scalars(tmp_path / "train"), scalars(tmp_path / "validation")
    assert train.keys() == {"loss", "gradient_norm", "learning_rate"} and validation.keys() == {"loss"}
    assert list(train["loss"]) == [3, 6] and list(train["loss"].values()) == pytest.approx(history["loss"])
    assert list(validation["loss"].values()) == pytest.approx(history["val_loss"])


WORKERS = """
import sys
import keras, numpy as np, tensorflow as tf, keras_tfm
from keras_tfm.training import SGD, strategy
from keras_tfm.training.logs import GradientNorm, Throughput
devices = strategy(sys.argv[1])
with devices.scope():
    inputs = {"token_ids": keras.Input((3,), dtype="int32", name="token_ids"),
              "padding_mask": keras.Input((3,), dtype="bool", name="padding_mask")}
    x = keras.layers.Embedding(5, 4)(inputs["token_ids"])
    model = keras_tfm.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.LossScaleOptimizer(SGD(0.1)), "mse")
mask = np.arange(3) < np.array([3, 1, 0, 2] * 20)[:, None]
x = {"token_ids": np.ones((80, 3), "int32"), "padding_mask": mask}
dataset = tf.data.Dataset.from_tensor_slices((x, np.ones((80, 3, 1), "float32"))).batch(8)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
callbacks = [Throughput(3), GradientNorm()]
history = model.fit(dataset.with_options(options), epochs=2, verbose=0, callbacks=callbacks).history
print(*callbacks[0].work.numpy(), all(rate > 0 for rate in history["tokens_per_second"]))
"""


@pytest.mark.slow  # in a process of its own
def test_several_replicas_count_as_one(tmp_path):
    launched = "import sys, keras_tfm.launch as l; sys.exit(l.launch([sys.executable, *sys.argv[1:]], 2))"
    for command in (["-c", WORKERS, "mirrored:2"], ["-c", launched, "-c", WORKERS, "multi-worker"]):
        result = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr[-2000:]
        assert result.stdout.splitlines()[-1] == "120 240 True"
