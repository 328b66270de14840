"""What the `fit` of every task has in common: what an epoch is, what is refused, and what is left alone."""

import copy
import csv
import dataclasses
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.data import BERTTokenizer
from keras_tfm.tasks import (
    ImageClassifier,
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    TextClassifier,
    TextGenerator,
    Translator,
)
from keras_tfm.tasks.columns import columns_of, fingerprint_of
from keras_tfm.training.record import read_record, write_record
from tests.tasks.images.test_image_classifier import NAMES, SMALL, examples
from tests.tasks.test_every_task import MAKERS
from tests.tasks.tiny import TINY

LINES = [f"the {adjective} {noun} slept" for adjective in ("old", "young", "wise") for noun in ("cat", "dog")]
WITH_DROPOUT = {"num_layers": 1, "dim": 32, "num_heads": 2, "intermediate_dim": 64, "dropout": 0.3}
DECODER = {"num_layers": 1, "dim": 16, "num_heads": 2, "max_length": 16}


def image_classifier():
    return ImageClassifier.from_size("tiny", NAMES, **SMALL), (examples(80),), {"batch_size": 4}


def translator():
    pairs = LINES * 20, LINES[::-1] * 20
    made = Translator.from_pairs(pairs, size="tiny", vocabulary_size=300, max_length=16, **WITH_DROPOUT)
    return made, (pairs,), {"batch_tokens": 40}


def text_generator():
    return TextGenerator.from_texts(LINES, "tiny", 300, **DECODER), (LINES * 20,), {"batch_tokens": 40}


def masked_language_model():
    tokenizer = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *" ".join(LINES).split()[:4]])
    made = MaskedLanguageModel.from_tokenizer(tokenizer, "tiny", MaskedLanguageModelConfig(24), **TINY)
    return made, (["\n".join(LINES)] * 20,), {"batch_tokens": 24}


def text_classifier():
    labelled = LINES * 20, ["old", "young"] * 60
    made = TextClassifier.from_examples(
        labelled, "tiny", 300, changes=TINY, max_length=16, head={"dropout": 0.3}
    )
    return made, (labelled,), {"batch_tokens": 32}


def test_more_epochs_of_a_resumed_training_change_no_rate(tmp_path):
    """The warm-up stays a tenth of the steps with which it began, however often it is resumed."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    run, data = tmp_path / "run", examples(16)
    options = {
        "run": run,
        "batch_size": 2,
        "schedule": "constant",
        "learning_rate": 1e-3,
        "callbacks": [Stop()],
    }
    image_classifier()[0].fit(data, data, epochs=1, **options)
    for epochs in (40, 50):
        tasks.load(run).fit(data, data, epochs=epochs, resume=True, **options)
        record = read_record(run)
        assert (record["options"]["epochs"], record["planned_epochs"]) == (epochs, 1)
    with open(run / "metrics.csv", encoding="utf-8") as file:
        assert [float(row["learning_rate"]) for row in csv.DictReader(file)] == [1e-3] * 3


@pytest.mark.parametrize("make", ["image_classifier", "text_classifier"])
def test_a_resumed_training_has_the_options_with_which_it_began(make, tmp_path):
    """In another process too, where the weights are given ones, which have other defaults."""
    task, data, options = FITS[make]()
    run = tmp_path / "run"
    began = task.fit(*data, epochs=1, run=run, schedule="constant", **options)
    before = read_record(run)["options"]
    history = tasks.load(run).fit(*data, epochs=2, run=run, resume=True)
    assert history["loss"][:1] == began["loss"]
    assert read_record(run)["options"] == before | {"epochs": 2}
    write_record(run, {**read_record(run), "options": {**before, "velocity": 3}})
    with pytest.raises(ValueError, match="has no velocity; it has"):
        tasks.load(run).fit(*data, run=run, resume=True)


def test_a_training_goes_on_whose_first_record_was_not_settled(tmp_path):
    """As that of a launched training, which is written before the data are read."""
    run, data = tmp_path / "run", examples(16)
    options = {"run": run, "batch_size": 8, "schedule": "constant", "learning_rate": 1e-3}
    image_classifier()[0].fit(data, data, epochs=1, **options)
    record = read_record(run)
    results = {**record["results"], "seconds": 1000.0}
    write_record(run, {**record, "options": {**record["options"], "epochs": None}, "results": results})
    tasks.load(run).fit(data, data, epochs=2, resume=True, **options)
    assert read_record(run)["options"]["epochs"] == 2 and "planned_epochs" not in read_record(run)
    assert read_record(run)["results"]["seconds"] > 1000  # of both processes


def test_a_copy_of_an_untrained_task_is_untrained_until_it_learns(tmp_path):
    image_classifier()[0].save(tmp_path / "fresh", trained=False)
    task = tasks.load(tmp_path / "fresh")
    task.save(tmp_path / "copy")
    assert not tasks.load(tmp_path / "copy").is_trained
    task.fit(examples(16), examples(16), epochs=1, batch_size=8)
    task.save(tmp_path / "trained")
    assert tasks.load(tmp_path / "trained").is_trained


FITS = {make.__name__: make for make in (
    image_classifier, translator, text_generator, masked_language_model, text_classifier,
)}  # fmt: skip


@pytest.fixture(scope="module", params=FITS)
def made(request):
    """(its name, a task, what its `fit` takes: examples, and options that make small batches)"""
    return request.param, *FITS[request.param]()


@pytest.fixture
def asked(monkeypatch):
    """What each `fit` asks `fit_best` for, which does nothing."""
    arguments = {}

    def ask(model, batches, validation, training, **options):
        policies = {layer.dtype_policy.name for layer in model._flatten_layers()}
        arguments.update(options, batches=batches, model=model, training=training, policies=policies)
        return {}

    monkeypatch.setattr("keras_tfm.tasks.trainable.fit_best", ask)
    return arguments


def test_epochs_are_counted_alike(made, asked):
    _, task, data, options = made
    task.fit(*data, epochs=3, **options)
    a_pass = asked["batches"].num_batches
    assert a_pass > 4 and asked["training"].epochs == 3
    for most, expected in ((4, 4), (10**6, a_pass)):
        task.fit(*data, epochs=3, epoch_batches=most, **options)
        assert (asked["batches"].num_batches, asked["training"].epochs) == (expected, 3)


def test_what_is_held_out_is_not_trained_on(made):
    """By default a share of the examples, or the share that is asked for."""
    name, task, (examples,), _ = made
    count = 120 if name != "masked_language_model" else 20
    count = 80 if name == "image_classifier" else count
    for share in (None, 0.25):
        train, held = task._parts(examples, share, seed=1)
        sizes = [len(columns_of(part)[0]) for part in (train, held)]
        assert sum(sizes) == count and 0 < sizes[1] < sizes[0]
        assert share is None or sizes[1] == share * count


SENSELESS = {
    "epochs": (0, 1.5),
    "minutes": (-1.0, float("nan"), float("inf")),
    "save_minutes": (0, float("nan")),
    "learning_rate": (-1.0, 0.0, float("inf")),
    "weight_decay": (-1.0, float("nan")),
    "label_smoothing": (-0.1, 1.0),
    "schedule": ("steep",),
    "warmup_steps": (0,),
    "precision": ("float8",),
    "jit": (1,),
    "patience": (0,),
    "seed": (-1, "0"),
    "epoch_batches": (0,),
}


def test_numbers_without_sense_are_refused_before_anything_is_done(made, asked):
    _, task, data, options = made
    taken = {field.name for field in dataclasses.fields(task.training)} & SENSELESS.keys()
    assert len(taken) >= 11
    for name in taken:
        for value in SENSELESS[name]:
            with pytest.raises(ValueError, match=f"`{name}` must be .*; it is '?{value}"):
                task.fit(*data, **options | {name: value})
    with pytest.raises(
        TypeError,
        match=r"no option epoch .did you mean epochs..; .*, epoch_batches, .*, run, resume",
    ):
        task.fit(*data, epoch=3)
    with pytest.raises(ValueError, match="`resume`, `tensorboard` need a `run`"):
        task.fit(*data, resume=True, tensorboard=True)
    assert not asked


def test_a_fit_may_compute_in_another_precision(made, asked):
    _, task, data, options = made
    task.fit(*data, epochs=1, precision="mixed_bfloat16", **options)
    assert asked["policies"] == {"mixed_bfloat16"}
    assert {layer.dtype_policy.name for layer in task.model._flatten_layers()} == {"float32"}


def test_another_model_that_learns_is_on_the_devices_of_the_tasks(asked):
    """The predictions of all blocks of a detector learn, by a model that each fit makes."""
    devices, (make, examples) = tf.distribute.OneDeviceStrategy("CPU:0"), MAKERS["detect"]
    with devices.scope():
        task = make()
    task.fit(examples, examples, epochs=1)
    assert asked["model"] is not task.model
    assert asked["model"].distribute_strategy is task.model.distribute_strategy is devices


def test_a_fit_leaves_the_global_generators_alone(made, asked):
    _, task, data, options = made

    def state():
        return (
            random.getstate(),
            np.random.get_state()[1].tolist(),
            keras.random.uniform([2]).numpy().tolist(),
        )

    keras.utils.set_random_seed(3)
    before, drawn = state(), tf.random.uniform([2]).numpy().tolist()
    keras.utils.set_random_seed(3)
    task.fit(*data, seed=5, epochs=1, **options)
    assert (state(), tf.random.uniform([2]).numpy().tolist()) == (before, drawn)


def test_dropout_is_drawn_by_the_seed_of_the_fit(made, asked):
    _, task, data, options = made
    states = []
    for seed in (1, 1, 2):
        task.fit(*data, seed=seed, epochs=1, **options)
        states.append([generator.state.numpy().tolist() for generator in generators(task.model)])
    assert states[0] == states[1] != states[2]
    assert len({tuple(state) for state in states[0]}) == len(states[0]) > 0  # each layer draws for itself


def generators(model):
    found = [g for layer in model._flatten_layers() for g in getattr(layer, "_seed_generators", ())]
    return list({id(generator): generator for generator in found}.values())


def test_what_may_be_trained_is_left_as_it_was(made, asked):
    """And what the caller has frozen stays so."""
    _, task, data, options = made
    (first, *_) = task.model.trainable_variables
    first.trainable = False
    before = [(w.path, w.trainable) for w in task.model.weights]
    task.fit(*data, epochs=1, **options)
    assert [(w.path, w.trainable) for w in task.model.weights] == before
    if isinstance(task, TextClassifier):
        for parts in ({"num_frozen": 1}, {"lora_rank": 2}):
            task.fit(*data, epochs=1, **options, **parts)
            assert [(w.path, w.trainable) for w in task.model.weights] == before
        assert sum(trainable for _, trainable in before) == len(before) - 1
    first.trainable = True


@pytest.mark.parametrize("keeps", [False, True])
def test_a_loss_that_is_no_number_ends_a_training(keeps, tmp_path):
    task, data, options = image_classifier()
    options |= {"run": tmp_path / "run"} if keeps else {}
    place = r"The loss is (nan|inf) at (batch|step \d+,) [12] of epoch \d[;:]"
    with pytest.raises(FloatingPointError, match=place):
        task.fit(*data, epochs=3, learning_rate=1e30, warmup_steps=1, **options)


def test_other_validation_does_not_judge_a_resumed_training(tmp_path):
    data = examples(16)
    options = {"epochs": 1, "run": tmp_path / "run", "batch_size": 8}
    image_classifier()[0].fit(data, data, **options)
    with pytest.raises(ValueError, match=r"these differ: validation \(now \w+, then \w+\)$"):
        tasks.load(tmp_path / "run").fit(data, examples(16, seed=1), resume=True, **options)


def test_weights_in_eight_bits_are_not_trained(tmp_path):
    task, data, options = text_classifier()
    task.save(tmp_path / "whole")
    small = tasks.load(tmp_path / "whole", quantization="int8")
    with pytest.raises(ValueError, match="8 bits cannot be trained: train the task that they come from"):
        small.fit(*data, **options)
    backbone = TextClassifier.from_backbone(small.model.backbone, small.tokenizer, data[0], max_length=16)
    with pytest.raises(ValueError, match="8 bits cannot be trained"):
        backbone.fit(*data, **options)


@pytest.mark.parametrize(
    ("is_asked_before", "how"),
    [(False, {"lora_rank": 2}), (True, {"lora_rank": 2}), (False, {"precision": "mixed_bfloat16"})],
)
def test_a_graph_is_of_the_training_in_which_it_is_traced(is_asked_before, how):
    """Low-rank updates would be missing, or in the kernels and in the graph too; 16 bits would stay."""
    keras.utils.set_random_seed(0)
    task, (labelled,), options = text_classifier()

    def check(tolerance):
        answers, expected = (each.predict(LINES, probabilities=True) for each in (task, copy.deepcopy(task)))
        np.testing.assert_allclose(answers, expected, atol=tolerance)

    class Ask(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            check(1e-5 if "lora_rank" in how else 0.1)

    if is_asked_before:
        check(1e-5)
    task.fit(labelled, 0.1, epochs=1, learning_rate=0.1, callbacks=[Ask()], **options, **how)
    check(1e-5)


def test_columns_of_objects_are_recognised_by_their_content():
    column = np.empty(2, object)
    column[:] = [["x", "y"], None]
    same = fingerprint_of((np.array(["a", "b"], object), column))
    assert (
        same == fingerprint_of((["a", "b"], [["x", "y"], None])) != fingerprint_of((["a", "b"], column[::-1]))
    )


def test_a_change_in_the_middle_of_a_large_array_is_recognised():
    def columns(place, **print_options):
        boxes = np.full((2, 600, 4), 1 / 3)
        boxes[1, place] = 1
        whole = np.empty(1, object)
        whole[0] = boxes[1]
        with np.printoptions(**print_options):
            return fingerprint_of((list(boxes), [(boxes[1], "cat", [])], whole, [np.zeros((0, 4))]))

    assert columns(300) == columns(300, precision=1) != columns(301)
