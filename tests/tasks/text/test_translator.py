"""The translator whole: it learns pairs by heart, resumes, is kept, and answers from its SavedModel alone."""

import contextlib
import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_tfm import convert, tasks
from keras_tfm.data.worlds.dates import date_pairs
from keras_tfm.data.worlds.sums import sum_pairs
from keras_tfm.generation import Decoder, EndTokens, NoRepeatNGram
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2, T5, RecurrentSeq2Seq, T5Config, Transformer
from keras_tfm.tasks import TaskError, Translator, TranslatorConfig
from keras_tfm.tasks.text.translator_options import default_size
from keras_tfm.training import Checkpoint, CheckpointError
from keras_tfm.training.store import CheckpointFolder
from tests.data.tokenizers.test_sentencepiece_files import trained
from tests.fresh_process import ask

PAIRS = (
    ["The green witch arrived", "What time is it?", "Good morning", "two  spaces", "", "Ελλάδα"],
    ["llegó la bruja verde", "Τι ώρα είναι;", "Guten Morgen", "zwei  Leerzeichen", "nothing", "Greece"],
)
SMALL = {"num_layers": 1, "dim": 32, "num_heads": 2, "intermediate_dim": 64}


@pytest.fixture(scope="module", params=["transformer", pytest.param("recurrent", marks=pytest.mark.slow)])
def translator(request):
    """A translator that has learnt PAIRS by heart."""
    changes = {"dim": 32, "hidden_dim": 48, "dropout": 0.0}
    if request.param == "transformer":
        del changes["hidden_dim"]
        changes |= SMALL | {"normalize_first": True}
    translator = Translator.from_pairs(PAIRS, request.param, "tiny", max_length=32, **changes)
    many = [column * 20 for column in PAIRS]  # an epoch costs more than its steps
    translator.fit(many, PAIRS, epochs=15, batch_tokens=300, learning_rate=1e-2, label_smoothing=0.0)
    return translator


def test_pairs_are_learnt_by_heart(translator):
    assert translator.predict(PAIRS[0]) == PAIRS[1]
    measures = translator.evaluate(PAIRS)
    assert measures["exact_match"] == 100 and measures["bleu"] == pytest.approx(100)
    assert "tok:13a" in measures["bleu_signature"] and "case:mixed" in measures["bleu_signature"]


def test_answers_do_not_depend_on_the_batch(translator):
    assert [translator.generate([source])[0] for source in PAIRS[0]] == translator.generate(PAIRS[0])
    assert translator.generate([]) == []


def test_generated_ids_are_start_tokens_end_padding(translator):
    tokenizer = translator.tokenizer
    source = tokenizer.tokenize(PAIRS[0][:1]).to_tensor().numpy()
    ids = translator.generate_ids(np.append(source, [[tokenizer.end_id]], axis=1))
    assert ids[0, 0] == tokenizer.start_id and ids.shape == (1, 33)
    end = ids[0].tolist().index(tokenizer.end_id)
    assert not ids[0, end + 1 :].any() and translator.generate(PAIRS[0][:1]) == [PAIRS[1][0]]
    with pytest.raises(ValueError, match="`token_ids` must lie in"):
        translator.generate_ids([[tokenizer.vocabulary_size]])
    for limit in (0, 33):
        with pytest.raises(ValueError, match=r"`max_new_tokens` must lie in \[1, 32\]"):
            translator.generate(["a"], max_new_tokens=limit)
    assert translator.generate_ids(source, max_new_tokens=1).shape == (1, 2)


def test_a_decoder_alone_reads_no_tokens_of_its_own():
    changes = {"num_layers": 1, "dim": 8, "num_heads": 2}
    alone = Translator.from_pairs(PAIRS, "gpt2", max_length=32, **changes)
    with pytest.raises(ValueError, match="`scheduled_sampling` needs an encoder-decoder"):
        alone.fit(PAIRS, PAIRS, scheduled_sampling=0.5)


@pytest.mark.slow
def test_texts_may_be_searched_and_sampled(translator):
    """What is learnt by heart is also the best of four beams, and nearly all of the distribution."""
    assert translator.generate(PAIRS[0], beam_size=4, length_penalty=0.6) == PAIRS[1]
    assert translator.generate(PAIRS[0], temperature=0.1, top_k=5, top_p=0.9, seed=1) == PAIRS[1]
    assert translator.evaluate(PAIRS, beam_size=2)["exact_match"] == 100
    hot = {"temperature": 20.0, "max_new_tokens": 8}
    draws = [translator.generate(PAIRS[0], seed=seed, **hot) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    equal = translator.generate(PAIRS[0][:1] * 4, seed=1, batch_size=1, **hot)
    assert len(set(equal)) == 4  # each batch draws anew
    processors = (NoRepeatNGram(1),)
    token_ids = translator.generate_ids([[5, 6, 2]], processors=processors, seed=0, **hot)[0].tolist()
    assert len(set(token_ids)) == len(token_ids)
    for options, message in (
        ({"beam_size": 0}, "`beam_size` must be at least 1"),
        ({"temperature": 0}, "`temperature` must be above 0"),
        ({"top_p": 0}, "`top_p` must lie in"),
        ({"beam_size": 2, "top_k": 3}, "Beam search does not sample"),
    ):
        with pytest.raises(ValueError, match=message):
            translator.generate(["a"], **options)


def test_a_long_source_is_cut_and_counted(translator):
    long = "green " * 50
    assert translator.count_truncated([long, "green"]) == 1
    assert len(translator.generate([long])) == 1


def test_a_folder_keeps_the_task(translator, tmp_path):
    translator.save(tmp_path / "task")
    kept = tasks.load(tmp_path / "task")
    for a, b in zip(translator.model.weights, kept.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert kept.generate(PAIRS[0]) == PAIRS[1] and kept.config == translator.config
    with pytest.raises(FileExistsError, match="exists already"):
        translator.save(tmp_path / "task")
    translator.save(tmp_path / "task", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["task"]


def test_the_saved_model_answers_alone(translator, tmp_path):
    beam_size = 2 if isinstance(translator.model.backbone, RecurrentSeq2Seq) else 1
    translator.export(tmp_path / "served", beam_size=beam_size)
    asked = [text or " " for text in PAIRS[0]]
    expected = translator.generate(asked, beam_size=beam_size)
    assert ask(tmp_path / "served", text=asked)["text"].tolist() == expected
    assert ask(tmp_path / "served", text=np.array([], "U"))["text"].shape == (0,)


def small(pairs):
    keras.utils.set_random_seed(0)
    return Translator.from_pairs(pairs, size="tiny", vocabulary_size=320, max_length=40, **SMALL)


@pytest.mark.slow
def test_a_resumed_run_ends_as_an_unbroken_one(tmp_path, monkeypatch):
    pairs, judge = date_pairs(64, seed=1), date_pairs(16, seed=2)
    options = {"epochs": 4, "batch_tokens": 600, "patience": 9}
    small(pairs).fit(pairs, judge, run=tmp_path / "whole", **options)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, after=15)
        small(pairs).fit(pairs, judge, run=tmp_path / "broken", save_minutes=1e-9, **options)
    resumed = Translator.load(tmp_path / "broken")
    for changed, differs in (
        ({"learning_rate": 0.5}, r"learning_rate \(now 0.5, then 0.002\)"),
        ({"examples": (pairs[0], [*pairs[1][:-1], "other"])}, "64 pairs to train on then, 64 pairs now"),
    ):
        kept = {"examples": pairs, "validation": judge, "run": tmp_path / "broken", "resume": True}
        with pytest.raises(ValueError, match=f"these differ: {differs}"):
            resumed.fit(**kept | options | changed)
    resumed.fit(pairs, judge, run=tmp_path / "broken", resume=True, **options)
    steps = CheckpointFolder(tmp_path / "whole" / "checkpoints").steps()
    assert steps == CheckpointFolder(tmp_path / "broken" / "checkpoints").steps()[-len(steps) :]
    for name in ("model.safetensors", f"checkpoints/step-{steps[-1]:08d}/state.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def interrupt(patch, after):
    """Let training end with KeyboardInterrupt after so many steps."""
    go_on = Checkpoint.on_train_batch_end

    def stop(self, batch, logs=None):
        go_on(self, batch, logs)
        if self.step == after:
            raise KeyboardInterrupt

    patch.setattr(Checkpoint, "on_train_batch_end", stop)


@pytest.mark.slow
def test_separate_tokenizers_and_wordpiece(tmp_path):
    pairs = date_pairs(64, seed=1)
    changes = {**SMALL, "num_layers": 1}
    translator = Translator.from_pairs(
        pairs, size="tiny", tokenizer="wordpiece", separate_tokenizers=True, max_length=40, **changes
    )
    assert translator.tokenizer.vocabulary_size != translator.target_tokenizer.vocabulary_size
    translator.save(tmp_path / "task")
    assert Translator.load(tmp_path / "task").generate(["1 May 2000"]) == translator.generate(["1 May 2000"])


@pytest.mark.parametrize(
    ("name", "value"), [("prompt_repetition_penalty", 1.5), ("prompt_no_repeat_ngram_size", 2)]
)
def test_ids_of_other_tokens_than_the_target_s_are_not_compared_with_its(name, value):
    options = {"size": "tiny", "tokenizer": "characters", **SMALL}
    for separate in (False, True):
        translator = Translator.from_pairs(PAIRS, separate_tokenizers=separate, **options)
        refused = pytest.raises(ValueError, match=f"`{name}` must be left out, as sources have other tokens")
        with refused if separate else contextlib.nullcontext():
            translator.signature(**{name: value})


def test_digits_are_single_tokens_of_characters():
    pairs = sum_pairs(8, (2, 2), "steps", mark_places=True)
    translator = Translator.from_pairs(pairs, size="tiny", tokenizer="characters", **SMALL)
    (row,) = translator.tokenizer.tokenize(pairs.sources[:1]).to_list()
    assert [translator.tokenizer.tokens[i] for i in row] == list(pairs.sources[0])


@pytest.mark.parametrize(
    ("count", "epochs", "batch_tokens"), [(1_000, 60, 512), (10_000, 30, 1_024), (10_001, 15, 4_096)]
)
def test_defaults_follow_the_amount_of_text(count, epochs, batch_tokens):
    pairs = tuple((side * 2_000)[:count] for side in PAIRS)
    translator = Translator.from_pairs(PAIRS, vocabulary_size=320)
    assert translator.model.backbone.config.dim == 128
    settled = translator.settled(translator.training, pairs)
    assert (settled.epochs, settled.batch_tokens, settled.learning_rate) == (epochs, batch_tokens, 2e-3)
    given = dataclasses.replace(translator.training, epochs=2, batch_tokens=64, learning_rate=0.1)
    assert translator.settled(given, pairs) == given


def test_many_pairs_are_learnt_by_a_larger_model_and_that_by_a_lower_rate():
    assert default_size(Transformer, 100_001) == "small"
    assert default_size(GPT2, 100_001) == "tiny"
    translator = Translator.from_pairs(PAIRS, size="small", num_layers=1, vocabulary_size=320)
    assert translator.settled(translator.training, PAIRS).learning_rate == 1e-3


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no family 'rnn'; there are transformer, recurrent"):
        Translator.from_pairs(PAIRS, family="rnn")
    with pytest.raises(ValueError, match="no size 'huge'; it has tiny, small, base, big"):
        Translator.from_pairs(PAIRS, size="huge")
    with pytest.raises(ValueError, match="At least 2 examples"):
        small(PAIRS).fit((["a"], ["b"]))


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [12, 200])
def test_static_attention_has_a_place_for_every_token(max_length):
    sizes = {"size": "tiny", "dim": 8, "hidden_dim": 8, "max_length": max_length, "vocabulary_size": 300}
    lengths = ("max_source_length", "max_target_length")

    def made(**options):
        return Translator.from_pairs(PAIRS, "recurrent", **sizes, **options)

    static = made(attention="static")
    assert [getattr(static.model.backbone.config, name) for name in lengths] == [max_length] * 2
    assert static.model.backbone.decoder.context_attention.table.shape == (max_length, max_length)
    other = made()  # its configuration has no use for them
    assert [getattr(other.model.backbone.config, name) for name in lengths] == [128, 128]
    message = f"`max_length` must be at most the model's `max_source_length`, 8, .* it is {max_length}"
    with pytest.raises(ValueError, match=message):
        made(attention="static", max_source_length=8)
    with pytest.raises(ValueError, match=f"`max_source_length`, {max_length}, .* it is {max_length + 1}"):
        Translator.adopt(static, PAIRS, max_length=max_length + 1)


def test_a_folder_cut_short_is_refused(tmp_path):
    translator = small(PAIRS)
    translator.save(tmp_path / "task")
    weights = tmp_path / "task" / "model.safetensors"
    whole = weights.read_bytes()
    for cut in (0, 7, 100, len(whole) - 1):
        weights.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match="expected"):
            Translator.load(tmp_path / "task")
    weights.unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        Translator.load(tmp_path / "task")
    config = tmp_path / "task" / "config.json"
    text = config.read_text()
    for broken, message in (
        (text[:40], "expected JSON"),
        ("[]", "expected a JSON object"),
        (text.replace('"translate"', '"fly"'), "its task is 'fly'"),
        (text.replace('"Transformer"', '"Keras"'), "unknown model class 'Keras'"),
        (text.replace('"max_length"', '"max"', 1), "not a configuration"),
    ):
        config.write_text(broken)
        with pytest.raises(TaskError, match=message):
            Translator.load(tmp_path / "task")
    with pytest.raises(TaskError, match="no such folder"):
        tasks.load(tmp_path / "nowhere")


def test_the_config_is_plain():
    config = TranslatorConfig()
    assert TranslatorConfig(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.slow
def test_a_folder_of_t5(tmp_path):
    """Its model and its SentencePiece file; kept and loaded; other starts are refused."""
    keras.utils.set_random_seed(3)
    (tmp_path / "t5").mkdir()
    model = LanguageModel(
        T5(T5Config(900, num_layers=1, dim=16, num_heads=2, key_dim=8, intermediate_dim=20))
    )
    convert.save_huggingface(model, tmp_path / "t5", overwrite=True)
    (tmp_path / "t5" / "spiece.model").write_bytes(trained("t5"))
    assert type(tasks.from_huggingface(tmp_path / "t5")) is Translator
    task = Translator.from_huggingface(tmp_path / "t5", max_length=20)
    texts = ["summarize: the compiler of more words", "a"]
    answers = task.generate(texts, max_new_tokens=7)
    alone = []
    for text in texts:
        token_ids = [[*task.tokenizer.tokenize([text])[0].numpy(), 1]]
        rows = Decoder(model, 7, stop=EndTokens(1))([[0]], context={"token_ids": np.array(token_ids)})
        alone.append(task.tokenizer.detokenize(rows).numpy()[0].decode())
    assert answers == alone
    task.save(tmp_path / "run")
    assert Translator.load(tmp_path / "run").generate(texts, max_new_tokens=7) == answers
    task.save_huggingface(tmp_path / "theirs")
    assert Translator.start_from(tmp_path / "theirs", None).config.max_length == 512
    again = Translator.from_huggingface(tmp_path / "theirs")
    assert again.config == task.config and again.generate(texts, max_new_tokens=7) == answers
    entries = json.loads((tmp_path / "t5" / "config.json").read_text())
    for change, message in (
        ({"eos_token_id": 5}, "end_id: expected the tokenizer's 1, got 5"),
        ({"decoder_start_token_id": 900}, "`start_id` must be in the vocabulary of 900; it is 900"),
    ):
        (tmp_path / "t5" / "config.json").write_text(json.dumps(entries | change))
        with pytest.raises(convert.CheckpointError, match=message):
            Translator.from_huggingface(tmp_path / "t5")


def test_few_pairs_of_much_text_are_learnt_as_many(translator):
    settled = translator.settled(translator.training, (["a" * 500_000], ["b" * 500_000]))
    assert (settled.epochs, settled.batch_tokens) == (30, 4_096)


def test_little_text_of_long_pairs_takes_batches_that_hold_them(translator):
    longer = dataclasses.replace(translator.config, max_length=400)
    task = Translator(translator.model, translator.tokenizer, config=longer)
    assert task.settled(task.training, PAIRS).batch_tokens == 800


def test_little_text_keeps_all_of_its_characters():
    texts = ["".join(map(chr, range(start, start + 50))) for start in range(0x4E00, 0x4E00 + 1_500, 50)]
    translator = Translator.from_pairs((texts, texts), size="tiny", tokenizer="characters", **SMALL)
    assert translator.tokenizer.vocabulary_size > 1_500


def test_little_text_gives_a_small_vocabulary():
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [a + b + c for a in letters for b in letters for c in letters[:3]]  # more than 1,000
    sides = [" ".join(words[start::40]) for start in range(40)]
    sizes = [
        Translator.from_pairs(
            (texts, texts), size="tiny", tokenizer="wordpiece", **SMALL
        ).tokenizer.vocabulary_size
        for texts in (sides, sides * 7)
    ]
    assert sizes[0] == 1_000 < sizes[1]
