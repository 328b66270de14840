"""Classifying whole: one class, several labels, numbers, pairs; kept, resumed, exported, given to others."""

import contextlib
import copy
import dataclasses
import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError, save_huggingface
from keras_tfm.data.tokenizers.huggingface import refuse_other_pairs
from keras_tfm.heads import ClassificationHead, Classifier, LanguageModel
from keras_tfm.models import BART, BERT, GPT2, T5, ImageGPT
from keras_tfm.tasks import SentenceEncoder, TextClassifier, TextClassifierConfig, TextGenerator
from keras_tfm.tasks.text.encoder_task import HEAD_ARGUMENTS
from keras_tfm.tasks.text.text_classifier import PAIRS as PAIRS_ENTRY
from keras_tfm.training.low_rank import adapted_layers
from tests.fresh_process import ask
from tests.models.folders import change_config
from tests.tasks.tiny import TINY

GOOD, BAD = (
    ["a warm and funny film", "what a great story", "i liked it"],
    ["a dull mess", "so bad it hurts", "no"],
)
TEXTS = [text for pair in zip(GOOD, BAD, strict=True) for text in pair]
EXAMPLES = (TEXTS * 8, ["good", "bad"] * 24)
PAIRS = (
    [(a, b) for a in TEXTS for b in TEXTS],
    [str((a in GOOD) == (b in GOOD)) for a in TEXTS for b in TEXTS],
)
NAMED = (TEXTS * 8, [["film", "praise"], ["film"], ["praise"], [], ["praise"], []] * 8)
NUMBERS = (TEXTS * 8, [1.0, -1.0] * 24)


def make(examples, **options):
    keras.utils.set_random_seed(0)
    options = {"max_length": 24, "pooling": "first", "head": {"dropout": 0.0}} | options
    return TextClassifier.from_examples(examples, "tiny", 400, changes=TINY, **options)


def learn(task, examples, epochs=5, **options):
    options = {"batch_tokens": 200, "learning_rate": 3e-3, "weight_decay": 0.0} | options
    many = [column * 5 for column in examples]  # an epoch costs more than its steps
    return task.fit(many, [column[:6] for column in examples], epochs=epochs, **options)


@pytest.fixture(scope="module")
def learnt():
    """A task that has learnt TEXTS by heart."""
    task = make(EXAMPLES)
    learn(task, EXAMPLES)
    return task


def test_texts_are_classified(learnt):
    assert learnt.config.labels == ("bad", "good")
    assert learnt.predict(TEXTS) == EXAMPLES[1][:6] and learnt.predict([]) == []
    chances = learnt.predict(TEXTS, probabilities=True)
    np.testing.assert_allclose(chances.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(learnt.predict(TEXTS[::-1], probabilities=True)[::-1], chances, atol=1e-6)
    measures = learnt.evaluate(EXAMPLES)
    assert measures["accuracy"] == measures["macro_f1"] == 1 and measures["examples"] == 48


def test_fresh_and_given_weights_have_recipes_of_their_own(learnt):
    fresh = TextClassifier.from_examples(EXAMPLES, "tiny", 400, changes=TINY, max_length=24)
    given = TextClassifier.from_backbone(learnt.model.backbone, learnt.tokenizer, EXAMPLES, max_length=24)
    for task, pooling, few, many in ((fresh, "mean", 1e-3, 3e-4), (given, "first", 5e-5, 5e-5)):
        assert task.config.pooling == pooling
        training, _ = task._told(None, {})
        for count, rate in ((10_000, few), (10_001, many)):
            assert training.settled(count).learning_rate == rate
        training, _ = task._told(None, {"learning_rate": 2e-4})
        assert training.settled(20_000).learning_rate == 2e-4
    assert fresh._told(None, {})[0].epochs > given._told(None, {})[0].epochs


@pytest.mark.slow  # the maximum is tested always
def test_a_mean_of_the_tokens_classifies(tmp_path):
    task = make(EXAMPLES, pooling="mean")
    assert not any("pooler" in weight.path for weight in task.model.weights)
    learn(task, EXAMPLES)
    assert task.evaluate(EXAMPLES)["accuracy"] == 1
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == task.config
    np.testing.assert_allclose(
        again.predict(TEXTS, probabilities=True), task.predict(TEXTS, probabilities=True), atol=1e-6
    )
    with pytest.raises(TypeError, match="Classifier around BERT has no counterpart"):
        task.save_huggingface(tmp_path / "theirs")


@pytest.mark.slow
def test_a_maximum_of_the_tokens_is_kept_and_exported(tmp_path):
    task = make(EXAMPLES, pooling="max")
    assert not any("pooler" in weight.path for weight in task.model.weights)
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == task.config and again.model.pooling == "max"
    chances = task.predict(TEXTS, probabilities=True)
    np.testing.assert_allclose(again.predict(TEXTS, probabilities=True), chances, atol=1e-6)
    task.export(tmp_path / "export")
    served = tf.saved_model.load(tmp_path / "export").signatures["serving_default"](tf.constant(TEXTS))
    np.testing.assert_allclose(served["probabilities"], chances, atol=1e-6)


def test_a_trained_head_goes_on_with_another_length_and_a_new_one_pools_otherwise(learnt):
    shorter = TextClassifier.adopt(learnt, EXAMPLES, max_length=16)
    assert shorter.config.max_length == 16 and shorter.model is learnt.model
    assert TextClassifier.adopt(learnt, EXAMPLES, pooling="mean").model is not learnt.model


def test_other_labels_get_a_new_head_and_fewer_the_old_one(learnt):
    good = [column[::2] for column in EXAMPLES]
    assert set(good[1]) == {"good"} and TextClassifier.adopt(learnt, good).model is learnt.model
    other = TextClassifier.adopt(learnt, (TEXTS, ["joy", "fear", "good"] * 2))
    assert other.config.labels == ("fear", "good", "joy") and other.config.pooling == "first"
    for one, before in zip(other.model.backbone.weights, learnt.model.backbone.weights, strict=True):
        np.testing.assert_array_equal(one, before)
    scores = TextClassifier.adopt(learnt, NUMBERS, problem="regression")
    assert scores.config.problem == "regression" and np.shape(scores.predict(TEXTS)) == (6,)


def test_the_measures_count(learnt):
    turned = (TEXTS, ["good", "good", "good", "bad", "good", "bad"])
    measures, answers = learnt.evaluate(turned), learnt.predict(TEXTS)
    assert measures["accuracy"] == pytest.approx(5 / 6, abs=1e-4)
    both = list(zip(turned[1], answers, strict=True))
    right = {label: both.count((label, label)) for label in ("good", "bad")}
    of_labels = [2 * n / (turned[1].count(label) + answers.count(label)) for label, n in right.items()]
    assert measures["macro_f1"] == pytest.approx(sum(of_labels) / 2, abs=1e-4)


def test_long_texts_are_cut_and_counted(learnt):
    assert learnt.count_truncated(["no", "no " * 22, "no " * 23]) == 1
    first, second = learnt.predict(["no " * 22, "no " * 22 + "great " * 9], probabilities=True)
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.slow
def test_pairs_of_texts():
    task = make(PAIRS)
    assert task.config.pairs and task.config.labels == ("False", "True")
    learn(task, PAIRS, epochs=1)
    as_lines = task.predict([f"{a}\t{b}" for a, b in PAIRS[0]], probabilities=True)
    np.testing.assert_allclose(task.predict(PAIRS[0], probabilities=True), as_lines, atol=1e-6)
    (encoded,) = task.answerer.read([("no", "it " * 30)])["token_ids"].tolist()
    assert len(encoded) == 24 and encoded.index(task.tokenizer.end_id) == 2
    with pytest.raises(ValueError, match="row 0: expected a pair of texts: two strings, or one with a tab"):
        task.predict(["alone"])


def test_folders_keep_whether_they_read_pairs(tmp_path):
    """Ours say it, examples decide it, and of any other folder each example is a text or two."""
    task = make(PAIRS)
    task.save_huggingface(tmp_path / "folder")
    chances = task.predict(PAIRS[0][:6], probabilities=True)
    again = tasks.from_huggingface(tmp_path / "folder")
    assert again.config.pairs
    np.testing.assert_allclose(again.predict(PAIRS[0][:6], probabilities=True), chances, atol=1e-6)
    path = tmp_path / "folder" / "config.json"
    entries = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**entries, PAIRS_ENTRY: None}), "utf-8")
    by_examples = TextClassifier.from_huggingface(tmp_path / "folder", PAIRS)
    assert by_examples.config.pairs and by_examples.config.labels == task.config.labels
    either = tasks.from_huggingface(tmp_path / "folder")
    assert either.config.pairs is None
    asked = ["\t".join(PAIRS[0][0]), PAIRS[0][1], TEXTS[0]]
    found = either.predict(asked, probabilities=True)
    np.testing.assert_allclose(found[:2], chances[:2], atol=1e-6)
    single = TextClassifier(either.model, either.tokenizer, dataclasses.replace(either.config, pairs=False))
    np.testing.assert_allclose(found[2:], single.predict(TEXTS[:1], probabilities=True), atol=1e-6)
    many = ["a\tb\tc"]
    np.testing.assert_allclose(
        either.predict(many, probabilities=True), single.predict(many, probabilities=True), atol=1e-6
    )
    table = tmp_path / "pairs.csv"
    table.write_text("premise,hypothesis\nno,what a great story\n", "utf-8")
    assert [text for text, _ in either.read_inputs(table)] == [("no", "what a great story")]


def test_a_published_head_reads_as_many_tokens_as_its_folder_says(tmp_path):
    make(EXAMPLES).save_huggingface(tmp_path / "folder")
    assert tasks.from_huggingface(tmp_path / "folder").config.max_length == 24
    path = tmp_path / "folder" / "tokenizer_config.json"
    entries = json.loads(path.read_text("utf-8"))
    for stated, length in ((300, 300), (1e30, 128), (1000, 512)):  # the model has 512 positions
        path.write_text(json.dumps(entries | {"model_max_length": stated}), "utf-8")
        assert TextClassifier.from_huggingface(tmp_path / "folder").config.max_length == length
    assert TextClassifier.from_huggingface(tmp_path / "folder", max_length=16).config.max_length == 16
    new_head = TextClassifier.from_huggingface(tmp_path / "folder", (TEXTS[:2], ["x", "y"]))
    assert new_head.config.max_length == 128
    path.write_text(json.dumps(entries | {"model_max_length": "512"}), "utf-8")
    with pytest.raises(CheckpointError, match="model_max_length: expected a number of at least 3 tokens"):
        TextClassifier.from_huggingface(tmp_path / "folder")


def test_pairs_that_are_joined_by_other_rules_are_refused(tmp_path):
    make(PAIRS).save_huggingface(tmp_path / "folder")
    options, rules = (tmp_path / "folder" / name for name in ("tokenizer_config.json", "tokenizer.json"))
    entries, content = (json.loads(path.read_text("utf-8")) for path in (options, rules))
    options.write_text(json.dumps(entries | {"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8")
    assert tasks.from_huggingface(tmp_path / "folder").config.pairs
    roberta = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    of_one_segment = copy.deepcopy(content["post_processor"])
    of_one_segment["pair"][3]["Sequence"]["type_id"] = 0
    for rule in (roberta, of_one_segment):
        rules.write_text(json.dumps(content | {"post_processor": rule}), "utf-8")
        with pytest.raises(
            CheckpointError, match=r"post_processor: expected pairs of texts as \[2, 'A', 3, 'B'"
        ):
            tasks.from_huggingface(tmp_path / "folder")
    for stated in (False, None):
        change_config(tmp_path / "folder", **{PAIRS_ENTRY: stated})
        assert tasks.from_huggingface(tmp_path / "folder").config.pairs is False
    rules.write_text(json.dumps(content), "utf-8")
    assert tasks.from_huggingface(tmp_path / "folder").config.pairs is None


def test_xlm_roberta_joins_pairs_by_two_ends(tmp_path):
    config = tmp_path / "tokenizer_config.json"
    tokenizer = make(PAIRS).tokenizer
    for name, is_refused in (("XLMRobertaTokenizerFast", True), ("BertTokenizer", False)):
        config.write_text(json.dumps({"tokenizer_class": name}), "utf-8")
        with pytest.raises(CheckpointError, match=r"got .*3, 3") if is_refused else contextlib.nullcontext():
            refuse_other_pairs(tmp_path, tokenizer, has_segments=True)


def test_a_regression_of_several_numbers_is_refused(learnt, tmp_path):
    learnt.save_huggingface(tmp_path / "folder")
    change_config(tmp_path / "folder", problem_type="regression")
    with pytest.raises(
        CheckpointError, match="problem_type: expected a regression of one number, got one of 2"
    ):
        tasks.from_huggingface(tmp_path / "folder")
    assert TextClassifier.from_huggingface(tmp_path / "folder", EXAMPLES).config.problem == "classes"


def test_pairs_adopt_a_head_of_texts(learnt):
    labelled = PAIRS[0][:2], ["good", "bad"]
    task = TextClassifier.adopt(learnt, labelled)
    assert task.model is learnt.model and task.config.pairs
    assert set(task.predict(labelled[0])) <= {"good", "bad"}


@pytest.mark.slow
def test_several_labels_at_once():
    task = make(NAMED, problem="multi-label")
    learn(task, NAMED, epochs=8)
    assert task.predict(TEXTS) == NAMED[1][:6]
    assert task.evaluate(NAMED) == {"micro_f1": 1.0, "exact_match": 1.0, "examples": 48}


@pytest.mark.slow
def test_numbers(tmp_path):
    task = make(NUMBERS, problem="regression")
    learn(task, NUMBERS, epochs=8)
    measures = task.evaluate(NUMBERS)
    assert measures["pearson"] > 0.99 and measures["mean_squared_error"] < 0.05
    np.testing.assert_allclose(task.predict(TEXTS), NUMBERS[1][:6], atol=0.5)
    assert task.evaluate((TEXTS[:1] * 2, [1.0, -1.0]))["pearson"] == 0  # the answers are equal
    with pytest.raises(ValueError, match="no probabilities"):
        task.predict(TEXTS, probabilities=True)
    task.save_huggingface(tmp_path / "folder")
    assert TextClassifier.from_huggingface(tmp_path / "folder", max_length=24).predict(TEXTS) == task.predict(
        TEXTS
    )


@pytest.mark.slow
def test_a_run_is_kept_and_resumed_exactly(tmp_path):
    whole = make(EXAMPLES)
    learn(whole, EXAMPLES, 4, run=tmp_path / "whole", layer_decay=0.8)
    run = make(EXAMPLES)
    learn(run, EXAMPLES, 4, run=tmp_path / "run", layer_decay=0.8, minutes=0)
    again = tasks.load(tmp_path / "run")
    learn(again, EXAMPLES, 4, run=tmp_path / "run", layer_decay=0.8, resume=True)
    for a, b in zip(whole.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    kept = tasks.load(tmp_path / "run")
    assert kept.config == whole.config and kept.predict(TEXTS) == whole.predict(TEXTS)


@pytest.mark.slow
def test_frozen_blocks_stay():
    task = make(EXAMPLES)
    before = {w.path: w.numpy() for w in task.model.weights}
    learn(task, EXAMPLES, 1, num_frozen=1)
    changed = {w.path for w in task.model.weights if (w.numpy() != before[w.path]).any()}
    assert changed == {path for path in before if path.startswith(("pooler/", "head/"))}
    assert len(task.model.trainable_weights) == len(task.model.weights)  # a next fit trains them all


@pytest.mark.slow
def test_low_rank_updates_end_in_the_kernels(tmp_path):
    whole, broken = make(EXAMPLES), make(EXAMPLES)
    before = {w.path: w.numpy() for w in whole.model.weights}
    learn(whole, EXAMPLES, 4, lora_rank=2, run=tmp_path / "whole")
    learn(broken, EXAMPLES, 4, lora_rank=2, run=tmp_path / "run", minutes=0)
    again = tasks.load(tmp_path / "run")
    learn(again, EXAMPLES, 4, lora_rank=2, run=tmp_path / "run", resume=True)
    after = {w.path: w.numpy() for w in whole.model.weights}
    assert after.keys() == before.keys()
    changed = {path for path in after if (after[path] != before[path]).any()}
    assert any("attention" in path for path in changed) and not any("embedding" in p for p in changed)
    for task in (again, tasks.load(tmp_path / "whole"), tasks.load(tmp_path / "run")):
        np.testing.assert_allclose(
            task.predict(TEXTS, probabilities=True), whole.predict(TEXTS, probabilities=True), atol=1e-5
        )
    with pytest.raises(ValueError, match="`lora_rank` freezes all blocks"):
        learn(again, EXAMPLES, 4, lora_rank=2, num_frozen=1)
    with pytest.raises(FileExistsError):
        learn(again, EXAMPLES, 4, lora_rank=2, run=tmp_path / "whole")
    assert not adapted_layers(again.model)


def test_the_saved_model_answers_alone(learnt, tmp_path):
    learnt.export(tmp_path / "served")
    served = ask(tmp_path / "served", text=["a dull mess", "i liked it"])
    assert served["label"].tolist() == ["bad", "good"] and served["probabilities"].shape == (2, 2)
    assert served["labels"].tolist() == [["bad", "good"]] * 2
    assert ask(tmp_path / "served", text=np.array([], "U"))["label"].shape == (0,)


@pytest.mark.slow
def test_folders_of_hugging_face(learnt, tmp_path):
    learnt.save_huggingface(tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text("utf-8"))
    assert entries["id2label"] == {"0": "bad", "1": "good"}
    assert entries["problem_type"] == "single_label_classification"
    kept = tasks.from_huggingface(tmp_path / "folder")
    np.testing.assert_allclose(
        kept.predict(TEXTS, probabilities=True), learnt.predict(TEXTS, probabilities=True), atol=1e-6
    )
    same = TextClassifier.from_huggingface(tmp_path / "folder", EXAMPLES, max_length=24)
    assert same.predict(TEXTS) == kept.predict(TEXTS)  # its head has these labels, and is kept
    assert kept.config.head["dropout"] == learnt.config.head["dropout"] == 0.0
    other = TextClassifier.from_huggingface(tmp_path / "folder", (TEXTS[:2], ["x", "y"]), max_length=24)
    assert other.config.labels == ("x", "y")
    for a, b in zip(other.model.backbone.weights, learnt.model.backbone.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    mean = TextClassifier.from_huggingface(tmp_path / "folder", EXAMPLES, max_length=24, pooling="mean")
    assert mean.model.pooling == "mean" and len(mean.model.weights) == len(kept.model.weights) - 2
    learnt.model.backbone.save_huggingface(tmp_path / "encoder")
    learnt.tokenizer.save(tmp_path / "encoder")
    with pytest.raises(CheckpointError, match="one for 'classify'"):
        TextClassifier.from_huggingface(tmp_path / "encoder")


def test_a_head_needs_a_model_that_reads_the_whole_text(learnt, tmp_path):
    """The first state of a decoder sees its own token alone; the two sides of BART read a text."""
    tokenizer = learnt.tokenizer
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1, "dim": 16, "num_heads": 2}
    refused = "`backbone` must be an encoder of texts, or BART; it is {}"
    for model in (GPT2.from_size("tiny", **sizes), T5.from_size("tiny", **sizes)):
        name = type(model).__name__
        save_huggingface(model, tmp_path / name, tokenizer=tokenizer)
        with pytest.raises(ValueError, match=refused.format(name)):
            TextClassifier.from_huggingface(tmp_path / name, EXAMPLES)
        with pytest.raises(ValueError, match=f"`backbone` must be an encoder of texts; it is {name}"):
            SentenceEncoder.from_huggingface(tmp_path / name)
    written = TextGenerator(LanguageModel(GPT2.from_size("tiny", **sizes)), tokenizer)
    with pytest.raises(ValueError, match="--from: a 'generate' task has no encoder of texts"):
        TextClassifier.adopt(written, EXAMPLES)
    bart = BART.from_size("tiny", **sizes, num_decoder_layers=1, max_length=20, end_id=tokenizer.end_id)
    save_huggingface(bart, tmp_path / "bart", tokenizer=tokenizer)
    task = TextClassifier.from_huggingface(tmp_path / "bart", EXAMPLES)
    assert task.config.max_length == 20 and np.isfinite(task.predict(TEXTS, probabilities=True)).all()
    assert not TextClassifier.takes(Classifier(ImageGPT.from_size("tiny", num_layers=1), 2, pooling="mean"))


def test_bad_input(learnt):
    with pytest.raises(ValueError, match="'ugly' unseen in training; known are bad, good"):
        learnt.evaluate((["no"], ["ugly"]))
    with pytest.raises(ValueError, match="expected columns of one length, got 2 texts, 1 labels"):
        learnt.fit((["a", "b"], ["bad"]), (["a"], ["bad"]))
    with pytest.raises(ValueError, match="expected one or more, got none"):
        learnt.fit(([], []), EXAMPLES)
    small = BERT.from_size("tiny", **TINY, vocabulary_size=20)
    with pytest.raises(ValueError, match=r"vocabulary does not match the embedding: .* tokens, the model 20"):
        TextClassifier(small, learnt.tokenizer, learnt.config)
    for options, message in (
        ({"labels": ("a",)}, "two at least"),
        ({"labels": ("a", "b"), "problem": "regression"}, "must be empty"),
        ({"labels": ("a", "b"), "problem": "poetry"}, "one of classes, multi-label, regression"),
        ({"labels": ("a", "b"), "pooling": "sum"}, "one of first, mean, max; it is 'sum'"),
        ({"labels": ("a", "b"), "max_length": 4}, "at least 8"),
    ):
        with pytest.raises(ValueError, match=message):
            TextClassifierConfig(**options)


def test_a_configuration_may_hold_all_that_a_head_takes():
    """A folder of transformers is read with the arguments that its head has, and they are kept."""
    taken = inspect.signature(ClassificationHead).parameters.keys() - {"num_classes", "kwargs"}
    assert HEAD_ARGUMENTS.keys() == taken
