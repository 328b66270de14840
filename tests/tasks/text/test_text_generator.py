"""The text generator whole: it learns a sentence by heart, goes on from its beginning, and answers alone."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError
from keras_tfm.data import CharacterTokenizer
from keras_tfm.generation import DecodingDefaults, NoRepeatNGram
from keras_tfm.tasks import MaskedLanguageModel, TaskError, TextGenerator
from keras_tfm.tasks.text.text_generator import hold_out_texts
from tests.fresh_process import ask

TEXTS = ["So long and thanks for all the fish.", "The green witch arrived, né? 日本"]
SMALL = {"num_layers": 1, "dim": 32, "num_heads": 2, "max_length": 64} | dict.fromkeys(
    ("dropout", "attention_dropout", "embedding_dropout"), 0.0
)


BEGINNINGS = ["So long", "The green"]  # whole words: byte pairs of half a word are others than the whole's


def make(tokenizer, texts=TEXTS, **changes):
    keras.utils.set_random_seed(0)
    return TextGenerator.from_texts(texts, "tiny", 300, tokenizer, **SMALL | changes)


@pytest.fixture(scope="module", params=["characters", pytest.param("bytes", marks=pytest.mark.slow)])
def generator(request):
    """A generator that has learnt TEXTS by heart."""
    generator = make(request.param)
    many = TEXTS * 15  # an epoch costs more than its steps
    generator.fit(many, TEXTS, epochs=15, batch_tokens=128, learning_rate=1e-2, patience=15)
    return generator


def test_a_text_is_completed(generator):
    for text, beginning in zip(TEXTS, BEGINNINGS, strict=True):
        assert generator.generate([beginning]) == [text]
    assert generator.generate(BEGINNINGS, beam_size=3) == TEXTS
    assert generator.generate(BEGINNINGS[:1], contrastive_alpha=0.1, top_k=2) == TEXTS[:1]
    assert generator.predict(["So", "The green witch"], max_new_tokens=40) == TEXTS
    assert generator.generate([]) == []
    with pytest.raises(TypeError, match=r"no option beams \(did you mean beam_size\?\); it has max_new"):
        generator.generate(BEGINNINGS, beams=2)
    assert generator.generate(["So long"], stop="ank")[0].startswith("So long and thank")
    assert len(generator.generate(["So long"], stop=["ank", "never there"])[0]) < len(TEXTS[0])
    assert generator.generate(["So long"], stop="never there") == TEXTS[:1]


@pytest.mark.parametrize("task", [TextGenerator, MaskedLanguageModel])
def test_tables_of_texts_are_asked_by_their_column(task, tmp_path):
    (tmp_path / "a.csv").write_text('number,text\n1,"So long, and"\n2,The green\n')
    (tmp_path / "a.txt").write_text("So long, and\n")
    reading = object.__new__(task)
    assert [text for text, _ in reading.read_inputs(tmp_path / "a.csv")] == ["So long, and", "The green"]
    assert [text for text, _ in reading.read_inputs(tmp_path / "a.csv", ("number",))] == ["1", "2"]
    assert [text for text, _ in reading.read_inputs(tmp_path / "a.txt")] == ["So long, and"]


def test_evaluate_counts_nats_by_tokens_and_bits_by_bytes(generator):
    measures = generator.evaluate(TEXTS)
    assert measures["loss"] < 0.5 and measures["perplexity"] == pytest.approx(
        math.exp(measures["loss"]), 1e-3
    )
    num_bytes = sum(len(text.encode()) for text in TEXTS)
    bits = measures["loss"] * measures["tokens"] / math.log(2) / num_bytes
    assert measures["bits_per_byte"] == pytest.approx(bits, abs=1e-3)


def test_a_uniform_model_costs_the_logarithm_of_its_vocabulary():
    generator = make("characters")
    for weight in generator.model.trainable_weights:
        weight.assign(np.zeros(weight.shape))
    expected = math.log(generator.tokenizer.vocabulary_size)
    assert generator.evaluate(TEXTS)["loss"] == pytest.approx(expected, abs=1e-4)


def test_an_epoch_may_be_fewer_batches_than_a_pass(monkeypatch):
    """What `fit` hands on goes through the whole text, an epoch of two batches after the other."""
    handed_on = []

    def taken(model, batches, *_, **__):
        handed_on.append(batches)
        return {}

    monkeypatch.setattr("keras_tfm.tasks.trainable.fit_best", taken)
    generator = make("characters", max_length=8)
    generator.fit(TEXTS, TEXTS, batch_tokens=8, epoch_batches=2)
    (batches,) = handed_on
    whole = generator.batches(TEXTS, dataclasses.replace(generator.training, batch_tokens=8))
    assert batches.num_batches == 2 < whole.num_batches
    for one, other in zip(batches.epochs().take(whole.num_batches), whole.dataset(), strict=True):
        np.testing.assert_array_equal(one[1], other[1])


def published(generator, *stop, **options):
    """The same task, which decodes as a folder of transformers says."""
    decoding = DecodingDefaults(options=options, stop=stop)
    config = dataclasses.replace(generator.config, decoding=decoding)
    return TextGenerator(generator.model, generator.tokenizer, config)


@pytest.mark.slow
def test_a_length_that_includes_the_prompt_is_each_prompt_s_own():
    """What a prompt becomes does not depend on its neighbours, nor does the model's own length."""
    generator = make("characters")
    task = published(generator, max_length=20, min_length=18)
    prompts = ["So", "So long and than"]
    texts = task.generate(prompts)
    assert texts == [task.generate([prompt])[0] for prompt in prompts]
    assert max(map(len, texts)) <= 20
    full = [beginning * 12 for beginning in ("So so", "S")]
    assert generator.generate(full) == [generator.generate([prompt])[0] for prompt in full]
    with pytest.raises(ValueError, match=r"`max_length`, 20, includes the prompt.*give `max_new_tokens`"):
        task.signature()
    with pytest.raises(ValueError, match=r"`min_length`, 18, includes the prompt.*give `min_new_tokens`"):
        task.signature(max_new_tokens=4)
    task.signature(max_new_tokens=4, min_new_tokens=2)


@pytest.mark.slow
def test_published_strings_end_a_text(generator, tmp_path):
    task = published(generator, "ank", "never there")
    ended = task.generate(BEGINNINGS)
    assert ended[0].startswith("So long and thank") and len(ended[0]) < len(TEXTS[0]) and ended[1] == TEXTS[1]
    assert task.generate(BEGINNINGS, stop=()) == TEXTS
    assert task.signature(max_new_tokens=8).function.stop == ("ank", "never there")
    task.save(tmp_path / "task")
    assert tasks.load(tmp_path / "task").config == task.config


def test_what_fills_a_text_behind_its_end_is_not_spelled(generator):
    pad_id = int(generator.tokenizer.tokenize(["k"]).flat_values[0])
    config = dataclasses.replace(generator.config, decoding=DecodingDefaults(pad_id=pad_id))
    task = TextGenerator(generator.model, generator.tokenizer, config)
    options = {"max_new_tokens": 40, "stop": "ank"}
    assert task.generate(["So long"], **options) == generator.generate(["So long"], **options)
    (ids,) = generator.tokenizer.tokenize(["So long"]).to_list()
    assert task.generate_ids(np.array([ids]), max_new_tokens=50)[0, -1] == pad_id
    inputs = {"token_ids": tf.constant([ids]), "padding_mask": tf.ones([1, len(ids)], "int32")}
    written = task.signature(**options).function(inputs)["ids"][0, -1]
    assert written == generator.tokenizer.pad_id


@pytest.mark.parametrize(
    "noise", [pytest.param(0.0, id="equal", marks=pytest.mark.slow), pytest.param(0.3, id="disturbed")]
)
def test_what_is_drafted_and_checked_is_what_the_model_writes_alone(generator, noise):
    """Whatever the draft; prompts may be as long as leaves room for the last draft."""
    model = type(generator.model).from_config(generator.model.get_config())
    draft = TextGenerator(model, generator.tokenizer, generator.config)
    rng = np.random.default_rng(0)
    weights = [
        w + noise * rng.normal(size=w.shape) if w.dtype.kind == "f" else w
        for w in generator.model.get_weights()
    ]
    draft.model.set_weights(weights)
    alone = generator.generate(BEGINNINGS, max_new_tokens=12)
    assert generator.generate(BEGINNINGS, max_new_tokens=12, draft=draft) == alone
    prompt = "x" * 55  # and a start token: 4 new ones and 4 more drafted ones fill the model
    expected = generator.generate([prompt], max_new_tokens=4)
    assert generator.generate([prompt], max_new_tokens=4, draft=draft) == expected
    with pytest.raises(ValueError, match="room for 4 new ones among the model's 60 tokens"):
        generator.generate(["x" * 58], max_new_tokens=4, draft=draft)


def test_drafts_that_do_not_fit_are_refused(generator):
    with pytest.raises(ValueError, match="`draft` must be a TextGenerator; it is 'small'"):
        generator.generate(["x"], draft="small")
    other = make("characters", ["another text"])
    with pytest.raises(ValueError, match="`draft` must have the tokenizer of this task"):
        generator.generate(["x"], draft=other)
    kind = "characters" if isinstance(generator.tokenizer, CharacterTokenizer) else "bytes"
    shorter = make(kind, max_length=32)
    with pytest.raises(ValueError, match="`draft` must hold 64 tokens; it holds 32"):
        generator.generate(["x"], draft=shorter)
    for options in ({"beam_size": 2}, {"top_k": 3}, {"contrastive_alpha": 0.5}):
        with pytest.raises(ValueError, match="Only greedy decoding takes `draft`"):
            generator.generate(["x"], draft=generator, **options)
    with pytest.raises(ValueError, match="`draft` must be None to stream"):
        next(generator.stream("x", draft=generator))
    with pytest.raises(ValueError, match="`draft` must be None for an export"):
        generator.signature(max_new_tokens=2, draft=generator)


def test_pieces_come_one_by_one_and_make_the_whole(generator):
    typical = {"temperature": 3.0, "min_p": 1e-3, "typical_p": 0.9, "seed": 9}
    for options in (
        {},
        {"temperature": 3.0, "seed": 7},
        {"temperature": 3.0, "top_k": 9, "seed": 8},
        typical,
    ):
        pieces = list(generator.stream("The gr", max_new_tokens=20, **options))
        assert len(pieces) > 2
        assert generator.generate(["The gr"], max_new_tokens=20, **options) == ["The gr" + "".join(pieces)]


@pytest.mark.slow
def test_draws_are_a_function_of_the_seed(generator):
    hot = {"temperature": 9.0, "max_new_tokens": 12}
    draws = [generator.generate(["So"], seed=seed, **hot) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    two = generator.generate(["So", "So"], seed=1, batch_size=1, **hot)
    assert two[0] == draws[0][0] != two[1]  # another batch draws anew
    token_ids = generator.generate_ids([[5, 6]], processors=[NoRepeatNGram(1)], seed=0, **hot)[0].tolist()
    assert len(set(token_ids)) == len(token_ids) == 14


def test_bytes_that_are_no_text_are_replaced():
    generator = make("bytes")
    answers = generator.generate(["é"] * 8, max_new_tokens=20, temperature=1e3, seed=1)
    assert all(answer.startswith("é") for answer in answers) and any("\ufffd" in a for a in answers)
    assert "".join(generator.stream("é", 20, temperature=1e3, seed=1)) == answers[0][1:]


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("", {}, "row 0: expected a prompt, got an empty text"),
        ("x" * 64, {}, "row 0: .* room for a new one among the model's 64 tokens, got one of 6[45]"),
        ("x" * 50, {"max_new_tokens": 20}, "row 0: .* room for 20 new ones among the model's 64 tokens"),
        ("x", {"max_new_tokens": 64}, "`max_new_tokens` must be at most 6[23]"),
        ("x", {"max_new_tokens": 0}, "`max_new_tokens` must be at least 1; it is 0"),
        ("x", {"beam_size": 0}, "`beam_size` must be at least 1"),
        ("x", {"temperature": 0.0}, "`temperature` must be above 0"),
        ("x", {"temperature": -1.0}, "`temperature` must be above 0"),
        ("x", {"top_p": 0.0}, "`top_p` must lie in"),
        ("x", {"top_p": 1.5}, "`top_p` must lie in"),
        ("x", {"min_p": -0.1}, "`min_p` must lie in"),
        ("x", {"typical_p": 0.0}, "`typical_p` must lie in"),
        ("x", {"contrastive_alpha": 0.5, "min_p": 0.1}, "Contrastive search takes `top_k` only"),
        ("x", {"beam_size": 2, "top_k": 3}, "Beam search does not sample"),
        ("\ud800", {}, "surrogates not allowed"),
    ],
)
def test_what_cannot_be_is_refused(generator, prompt, options, message):
    with pytest.raises(ValueError, match=message):
        generator.generate([prompt], **options)
    with pytest.raises(ValueError, match="token_ids"):
        generator.generate_ids([[9_999]])
    with pytest.raises(ValueError, match="P at least 1"):
        generator.generate_ids(np.zeros((1, 0), int))


def test_a_folder_keeps_the_task(generator, tmp_path):
    generator.save(tmp_path / "task")
    kept = tasks.load(tmp_path / "task")
    assert kept.generate(BEGINNINGS[:1]) == TEXTS[:1] and kept.config == generator.config
    next((tmp_path / "task").glob("tokenizer*")).unlink()
    with pytest.raises(ValueError, match="expected the file 'tokenizer"):
        tasks.load(tmp_path / "task")
    with pytest.raises(TaskError, match="its task is 'generate'"):
        tasks.Translator.load(tmp_path / "task")


@pytest.mark.slow
def test_folders_of_transformers(generator, tmp_path):
    if isinstance(generator.tokenizer, CharacterTokenizer):
        with pytest.raises(TypeError, match="transformers knows no CharacterTokenizer"):
            generator.save_huggingface(tmp_path / "hf")
        assert not (tmp_path / "hf").exists()
        return
    generator.save_huggingface(tmp_path / "hf")
    kept = TextGenerator.from_huggingface(tmp_path / "hf")
    ids = generator.tokenizer.tokenize(TEXTS[:1]).to_tensor().numpy()[:, :6]
    np.testing.assert_array_equal(kept.generate_ids(ids), generator.generate_ids(ids))
    assert kept.tokenizer.symbols == generator.tokenizer.symbols
    # A prompt begins a document: TEXTS were two, each learnt behind a start token.
    assert kept.config.add_start and kept.generate(BEGINNINGS[:1]) == TEXTS[:1]
    path = tmp_path / "hf" / "tokenizer.json"
    path.write_text(path.read_text().replace('"ByteLevel"', '"Whitespace"', 1))
    with pytest.raises(ValueError, match="no tokenizer of GPT-2's kind"):
        TextGenerator.from_huggingface(tmp_path / "hf")
    path.unlink()
    bare = TextGenerator.from_huggingface(tmp_path / "hf")  # config.json and the weights suffice for ids
    np.testing.assert_array_equal(bare.generate_ids(ids), generator.generate_ids(ids))
    bare.save(tmp_path / "bare")
    np.testing.assert_array_equal(
        tasks.load(tmp_path / "bare").generate_ids(ids), generator.generate_ids(ids)
    )
    (tmp_path / "hf" / "generation_config.json").write_text(json.dumps({"eos_token_id": "</s>"}))
    with pytest.raises(CheckpointError, match="eos_token_id"):
        TextGenerator.from_huggingface(tmp_path / "hf")


@pytest.mark.slow
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1]])
def test_folders_keep_whether_a_start_stands_before_a_text(texts, tmp_path):
    generator = make("bytes", texts)
    generator.save(tmp_path / "task")
    tasks.load(tmp_path / "task").save_huggingface(tmp_path / "hf")
    kept = tasks.from_huggingface(tmp_path / "hf")
    assert isinstance(kept, TextGenerator)
    kept.save_huggingface(tmp_path / "again")
    again = TextGenerator.from_huggingface(tmp_path / "again")
    assert generator.config.add_start == kept.config.add_start == again.config.add_start == (len(texts) > 1)
    (tmp_path / "hf" / "tokenizer_config.json").unlink()  # tokenizer.json says so too
    assert TextGenerator.from_huggingface(tmp_path / "hf").config == kept.config


@pytest.mark.slow
def test_the_saved_model_answers_alone(generator, tmp_path):
    generator.export(tmp_path / "served", max_new_tokens=20)
    folder, numbers = tmp_path / "served", {"temperature": 3.0, "top_p": 0.9, "seed": 5}
    assert ask(folder, text=BEGINNINGS)["text"].tolist() == generator.generate(BEGINNINGS, max_new_tokens=20)
    sampled = ask(folder, "generate", text=BEGINNINGS, **numbers)["text"].tolist()
    assert sampled == generator.generate(BEGINNINGS, max_new_tokens=20, **numbers)
    for wrong in ({"temperature": 0.0}, {"top_p": 1.5}, {"text": [""]}, {"text": ["x" * 60]}):
        with pytest.raises(RuntimeError, match="InvalidArgumentError"):
            ask(folder, "generate", **{"text": BEGINNINGS, **numbers, **wrong})


def test_drawn_texts_obey_what_an_export_was_told(generator):
    told = {"suppressed_ids": [7], "repetition_penalty": 1.3, "beam_size": 2, "length_penalty": 0.5}
    writing = generator.signature(max_new_tokens=4, **told).function
    drawn = writing.sampled(temperature=1.0, top_p=0.9, seed=1)
    assert (drawn.suppressed_ids, drawn.repetition_penalty, drawn.beam_size) == ((7,), 1.3, 1)
    assert writing.options.beam_size == 2


def test_texts_are_held_out():
    train, judge = hold_out_texts(["abcdefghij" * 3, "xy"], 0)
    assert train == ["abcdefghij" * 2 + "abcdefg", "xy"] and judge == ["hij", ""]
    train, judge = hold_out_texts([str(i) for i in range(100)], 0)
    assert len(judge) == 2 and sorted(train + judge) == sorted(map(str, range(100)))
    with pytest.raises(ValueError, match="At least 10 characters"):
        hold_out_texts(["abc"], 0)


def test_a_tokenizer_must_fit(generator):
    other = make("characters", ["abc"])
    with pytest.raises(ValueError, match=r"the tokenizer has \d+ tokens, the model 7"):
        TextGenerator(other.model, generator.tokenizer)
    with pytest.raises(ValueError, match="must be bytes or characters"):
        TextGenerator.from_texts(TEXTS, tokenizer="words")


@pytest.mark.slow
def test_weights_in_eight_bits_say_the_same():
    """Weight-only quantisation by Keras: a quarter of the bytes, and nearly the same perplexity."""
    keras.utils.set_random_seed(0)
    wide = {"dim": 128, "num_layers": 2, "num_heads": 4, "max_length": 32}
    generator = make("bytes", **wide)
    generator.fit(TEXTS, TEXTS, epochs=20, learning_rate=3e-3, patience=20)
    before, cost = num_bytes(generator.model), generator.evaluate(TEXTS)["perplexity"]
    generator.model.quantize(
        config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None),
        filters=lambda layer: isinstance(layer, keras.layers.Dense | keras.layers.Embedding),
    )
    assert num_bytes(generator.model) < 0.3 * before
    assert generator.evaluate(TEXTS)["perplexity"] == pytest.approx(cost, rel=0.02)
    token_ids = generator.generate_ids([[5, 6]], max_new_tokens=8)
    assert token_ids.shape == (1, 10)


def num_bytes(model):
    return sum(weight.numpy().nbytes for weight in model.weights)
