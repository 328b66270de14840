"""Pre-training whole: a few sentences by heart, blanks filled, kept, resumed, exported; BERT's folders."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError
from keras_tfm.convert.folder import max_length_writer
from keras_tfm.data import BERTTokenizer
from keras_tfm.heads import EnhancedMaskedLM, MaskedLM, SpanMaskedLM
from keras_tfm.models import ALBERT, BERT, ALBERTConfig, DeBERTa, DeBERTaConfig
from keras_tfm.tasks import MaskedLanguageModel, MaskedLanguageModelConfig
from keras_tfm.training import Checkpoint
from tests import contract
from tests.fresh_process import ask
from tests.tasks.tiny import TINY

LINES = [
    "the bank of the river was very green",
    "bob deposited the check in the bank",
    "i am very tired because i did not sleep",
    "so long and thanks for all the fish",
]
DOCUMENTS = [f"{LINES[i]}\n{LINES[i]}\n{LINES[i]}" for i in range(4)] * 40
WORDS = sorted({word for line in LINES for word in line.split()})
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make(pairs="next", masking="token", max_length=24):
    keras.utils.set_random_seed(0)
    tokenizer = BERTTokenizer([*SPECIAL, *WORDS, "un", "##able"])
    config = MaskedLanguageModelConfig(max_length, pairs, masking)
    return MaskedLanguageModel.from_tokenizer(tokenizer, "tiny", config, **TINY)


@pytest.fixture(scope="module")
def learnt():
    """A task that has learnt LINES by heart."""
    task = make()
    history = task.fit(  # an epoch costs more than its steps
        DOCUMENTS * 5, DOCUMENTS[:40], epochs=5, batch_tokens=400, learning_rate=1e-2, weight_decay=0.0
    )
    assert history["val_loss"][-1] < 0.5 * history["val_loss"][0]
    return task


BLANKS = ["the bank of the [MASK] was very green", "i am very [MASK] because i did not [MASK]", "", "bob"]
FILLED = ["the bank of the river was very green", "i am very tired because i did not sleep", "", "bob"]


def test_blanks_are_filled(learnt):
    assert learnt.predict(BLANKS) == FILLED
    assert learnt.predict([]) == []
    assert [learnt.predict([text])[0] for text in BLANKS] == FILLED
    assert learnt.predict(["So LONG and [MASK]  for"])[0].startswith("So LONG and ")  # what is given stays


def test_candidates_with_probabilities(learnt):
    river, tired, nothing, bob = learnt.candidates(BLANKS, count=3)
    assert [len(text) for text in (river, tired, nothing, bob)] == [1, 2, 0, 0]
    assert river[0][0][0] == "river" and tired[1][0][0] == "sleep"
    for candidates in (river[0], *tired):
        pieces, probabilities = zip(*candidates, strict=True)
        assert len(set(pieces)) == 3 and not set(pieces) & set(SPECIAL)
        assert (
            sorted(probabilities, reverse=True) == list(probabilities) and 0.5 < sum(probabilities) <= 1.00001
        )
    (everything,) = learnt.candidates(BLANKS[:1], count=learnt.tokenizer.vocabulary_size)[0]
    assert sum(chance for _, chance in everything) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match=r"`count` must lie in \[1, "):
        learnt.candidates(BLANKS, count=0)


def test_candidates_are_computed_by_one_function_whatever_their_count(learnt, monkeypatch):
    learnt.candidates(BLANKS)
    monkeypatch.setattr(learnt, "signature", lambda: pytest.fail("the function is made anew"))
    for count in (1, 2, 7):
        assert {len(blank) for text in learnt.candidates(BLANKS, count) for blank in text} == {count}


def test_what_is_cut_off_keeps_its_blank(learnt):
    text = "the " * 21 + "[MASK] [MASK]"
    assert learnt.count_truncated([text, "the bank"]) == 1
    (filled,) = learnt.predict([text])
    assert filled.endswith(" [MASK]") and filled.count("[MASK]") == 1


def test_evaluate_stands_beside_what_knows_nothing(learnt):
    measures = learnt.evaluate(DOCUMENTS, seed=5)
    assert measures["mlm_accuracy"] > 2 * measures["unigram_accuracy"]
    assert measures["mlm_loss"] < 0.5 * measures["unigram_loss"] < 0.5 * np.log(len(WORDS))
    assert 0.5 <= measures["nsp_baseline"] < 0.65
    assert measures["documents"] == 160 and measures["masked_tokens"] > 400
    assert learnt.evaluate(DOCUMENTS, seed=5) == measures
    fresh = make().evaluate(DOCUMENTS)
    assert fresh["mlm_loss"] == pytest.approx(np.log(len(WORDS) + 7), abs=0.4)


@pytest.mark.slow
def test_the_measures_are_those_of_fit(learnt):
    """On one drawing Keras computes the same accuracy and losses as `evaluate` counts."""
    task = make()
    history = task.fit(DOCUMENTS, DOCUMENTS, epochs=1, learning_rate=1e-9)
    measures = task.evaluate(DOCUMENTS)
    assert measures["mlm_accuracy"] == pytest.approx(history["val_mlm_token_accuracy"][0], abs=1e-4)
    assert measures["nsp_accuracy"] == pytest.approx(history["val_nsp_accuracy"][0], abs=1e-3)
    assert measures["mlm_loss"] == pytest.approx(history["val_mlm_loss"][0], abs=0.02)


def test_a_folder_keeps_the_task(learnt, tmp_path):
    learnt.save(tmp_path / "task")
    kept = tasks.load(tmp_path / "task")
    assert kept.predict(BLANKS) == FILLED and kept.config == learnt.config
    for a, b in zip(learnt.model.weights, kept.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_model",
    [
        lambda config: EnhancedMaskedLM(DeBERTa(config), num_layers=3),
        lambda config: MaskedLM(DeBERTa(config), activation="relu"),  # another than the backbone's
    ],
    ids=["enhanced mask decoder", "activation"],
)
def test_a_folder_keeps_the_head(make_model, tmp_path):
    tokenizer = BERTTokenizer([*SPECIAL, *WORDS])
    config = DeBERTaConfig(tokenizer.vocabulary_size, max_length=32, num_buckets=0, **TINY)
    task = MaskedLanguageModel(make_model(config), tokenizer, MaskedLanguageModelConfig(24, "none"))
    contract.randomise(task.model, seed=0)
    task.save(tmp_path / "task")
    again = tasks.load(tmp_path / "task")
    assert type(again.model) is type(task.model)
    batch = {"token_ids": np.array([[5, 6, 7]])}
    np.testing.assert_array_equal(again(batch), task(batch))
    path = tmp_path / "task" / "config.json"
    content = json.loads(path.read_text("utf-8"))
    for head in (
        {"class": "EnhancedMaskedLM", "num_layers": 10**7},
        {"class": "Model"},
        {"class": []},
        {},
        "x",
    ):
        content["model"]["head"] = head
        path.write_text(json.dumps(content), "utf-8")
        with pytest.raises(tasks.TaskError, match=r"config\.json: not a configuration of 'masked-lm'"):
            tasks.load(tmp_path / "task")


@pytest.mark.slow
def test_the_saved_model_answers_alone(learnt, tmp_path):
    learnt.export(tmp_path / "served")
    asked = ["the bank of the [MASK] was very green", "", "bob", "the " * 30 + "[MASK]"]
    assert ask(tmp_path / "served", text=asked)["text"].tolist() == [FILLED[0], *asked[1:]]
    assert ask(tmp_path / "served", text=np.array([], "U"))["text"].shape == (0,)


@pytest.mark.parametrize(
    ("pairs", "masking", "model", "heads"),
    [
        pytest.param("none", "span", SpanMaskedLM, {"mlm", "sbo"}, marks=pytest.mark.slow),
        pytest.param("none", "token", MaskedLM, None, marks=pytest.mark.slow),
        pytest.param("order", "word", MaskedLM, {"mlm", "nsp"}, marks=pytest.mark.slow),
        pytest.param("next", "span", MaskedLM, {"mlm", "nsp"}, marks=pytest.mark.slow),
    ],
)
def test_other_objectives_train_and_measure(pairs, masking, model, heads, tmp_path):
    task = make(pairs, masking)
    assert type(task.model) is model
    history = task.fit(DOCUMENTS, DOCUMENTS, epochs=2, run=tmp_path / "run", num_drawings=1)
    assert np.isfinite(history["val_loss"]).all()
    assert {name.split("_")[1] for name in history if name.startswith("val_")} >= (heads or {"token"})
    measures = task.evaluate(DOCUMENTS)
    assert ("nsp_accuracy" in measures) == (pairs != "none")
    kept = tasks.load(tmp_path / "run")
    assert kept.predict(BLANKS) == task.predict(BLANKS)


@pytest.mark.slow
def test_a_resumed_run_ends_as_an_unbroken_one(tmp_path, monkeypatch):
    options = {"epochs": 3, "batch_tokens": 100, "epoch_batches": 5, "patience": 9}
    make().fit(DOCUMENTS, run=tmp_path / "whole", **options)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, after=8)
        make().fit(DOCUMENTS, run=tmp_path / "broken", save_minutes=1e-9, **options)
    resumed = MaskedLanguageModel.load(tmp_path / "broken")
    with pytest.raises(ValueError, match="these differ: num_drawings"):
        resumed.fit(DOCUMENTS, run=tmp_path / "broken", resume=True, num_drawings=1, **options)
    resumed.fit(DOCUMENTS, run=tmp_path / "broken", resume=True, **options)
    whole, broken = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert whole == broken


def interrupt(patch, after):
    """Let training end with KeyboardInterrupt after so many steps."""
    go_on = Checkpoint.on_train_batch_end

    def stop(self, batch, logs=None):
        go_on(self, batch, logs)
        if self.step == after:
            raise KeyboardInterrupt

    patch.setattr(Checkpoint, "on_train_batch_end", stop)


@pytest.mark.slow
def test_hugging_faces_folders_both_ways(learnt, tmp_path):
    learnt.save_huggingface(tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert entries["architectures"] == ["BertForPreTraining"]
    again = MaskedLanguageModel.from_huggingface(tmp_path / "folder", max_length=24)
    assert again.predict(BLANKS) == FILLED and again.config == learnt.config
    alone = make("none")
    alone.save_huggingface(tmp_path / "alone")
    assert MaskedLanguageModel.from_huggingface(tmp_path / "alone").config.pairs == "none"
    learnt.model.backbone.save_huggingface(tmp_path / "backbone")
    with pytest.raises(CheckpointError, match="architectures: expected one for masked language modelling"):
        MaskedLanguageModel.from_huggingface(tmp_path / "backbone")


def test_a_folder_is_asked_at_its_length_and_trained_at_the_usual_one(tmp_path):
    make().save_huggingface(tmp_path / "folder")
    assert MaskedLanguageModel.from_huggingface(tmp_path / "folder").config.max_length == 24
    max_length_writer(300)(tmp_path / "folder")
    assert MaskedLanguageModel.from_huggingface(tmp_path / "folder").config.max_length == 300
    for fields, length in (({}, 128), ({"max_length": 200}, 200)):
        task = MaskedLanguageModel.start_from(tmp_path / "folder", None, **fields)
        assert task.config.max_length == length


def test_the_second_head_of_an_albert_is_for_the_order_of_texts(tmp_path):
    tokenizer = make().tokenizer
    sizes = {"embedding_dim": 8, "dim": 16, "num_layers": 1, "num_heads": 2, "intermediate_dim": 32}
    config = ALBERTConfig(tokenizer.vocabulary_size, **sizes, max_length=128)
    MaskedLanguageModel(ALBERT(config), tokenizer).save_huggingface(tmp_path / "folder")
    assert MaskedLanguageModel.from_huggingface(tmp_path / "folder").config.pairs == "order"


def test_a_vocabulary_is_trained_on_the_documents():
    texts = [" ".join(["Unbelievable café stories"] * 9)] * 3
    task = MaskedLanguageModel.from_documents(texts, "tiny", vocabulary_size=300, **TINY)
    assert task.tokenizer.vocabulary[:5] == tuple(SPECIAL)
    assert task.model.backbone.config.vocabulary_size == task.tokenizer.vocabulary_size
    assert task.tokenizer.detokenize(task.tokenizer.tokenize(["Café stories"])).numpy()[0] == b"cafe stories"
    cased = MaskedLanguageModel.from_documents(texts, "tiny", 300, lowercase=False, **TINY)
    assert cased.tokenizer.detokenize(cased.tokenizer.tokenize(["café"])).numpy()[0] == "café".encode()


def test_refusals():
    for options, message in (
        ({"pairs": "both"}, "`pairs` must be one of next, order, none; it is 'both'"),
        ({"masking": "letter"}, "`masking` must be one of token, word, span"),
        ({"max_length": 3}, "`max_length` must be at least 8"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)
    tokenizer = BERTTokenizer([*SPECIAL, *WORDS])
    small = BERT.from_size("tiny", **TINY, max_length=16, vocabulary_size=tokenizer.vocabulary_size)
    with pytest.raises(ValueError, match="`max_length` must be at most the model's, 16; it is 128"):
        MaskedLanguageModel(small, tokenizer)
    narrow = BERT.from_size("tiny", **TINY, vocabulary_size=20)
    with pytest.raises(ValueError, match=r"the tokenizer has 3\d tokens, the model 20"):
        MaskedLanguageModel(narrow, tokenizer)
