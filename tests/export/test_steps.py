"""Texts that are written by a loop in NumPy, around a step of the model, are the task's, token for token."""

import dataclasses
import json
import shutil
import sys

import numpy as np
import pytest

from keras_tfm import serving
from keras_tfm.data import ByteLevelTokenizer, ImageTexts, SentencePieceTokenizer
from keras_tfm.export import steps, writers
from keras_tfm.generation import DecodingDefaults, DecodingOptions, EndTokens, StopSequences, beam
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2, T5, RecurrentSeq2Seq, Transformer
from keras_tfm.serving import beams
from keras_tfm.serving.decoding import StepDecoder
from keras_tfm.serving.rules import Rules
from keras_tfm.tasks import Captioner, CaptionerOptions, TextGenerator, Translator
from keras_tfm.tasks.text.text_generator import TextGeneratorConfig
from keras_tfm.tasks.text.translator_options import TranslatorConfig
from tests.export.edits import refusals
from tests.export.test_ctranslate2 import (
    ASK,
    BEAMS,
    CHARACTERS,
    FAMILIES,
    SIZE,
    SMALL,
    compare,
    generator,
    shaken,
    translator,
    words,
)
from tests.fresh_process import run_fresh
from tests.tasks.image_text.test_video_texts import fresh_captioner, pairs

FORMATS = ("onnx", "openvino", "litert")


# The loop ------------------------------------------------------------------------------------------------


def decoder_by_tensorflow(signature, folder):
    """A function of other options that makes the decoder of an export whose functions TensorFlow computes."""
    functions = {}

    def keep(function, folder, quantization, name):
        functions[name] = function
        return None, None

    arguments = json.loads(json.dumps(steps.write_writer(signature, "onnx", keep, folder, None)))
    signature.write_files(folder)

    def runtime(folder, threads, name):
        return lambda inputs: list(functions[name](inputs).values())

    def decoder(**changes):
        rules, search = steps.decoding_of(dataclasses.replace(signature.function, **changes), "onnx")
        chosen = {"rules": rules, "search": search, "stop": changes["stop"]}
        return StepDecoder(runtime, folder, 1, **arguments | chosen)

    return decoder


def drawn(random):
    """Options of decoding, each of which is there now and then."""
    some = {
        "beam_size": int(random.integers(1, 4)),
        "length_penalty": float(random.uniform(-1, 2)),
        "early_stopping": [True, False, "never"][random.integers(3)],
        "repetition_penalty": float(random.uniform(0.5, 2)),
        "no_repeat_ngram_size": int(random.integers(1, 4)),
        "min_new_tokens": int(random.integers(1, 6)),
        "forced_first_id": int(random.integers(4, SIZE)),
        "forced_last_ids": (2, 7),
        "suppressed_ids": tuple(random.integers(3, SIZE, 2).tolist()),
        "sequence_bias": [([*random.integers(3, SIZE, n).tolist()], 4.0) for n in (1, 1, 2, 2, 2, 3)],
        "forbidden_sequences": [random.integers(2, SIZE, n).tolist() for n in (1, 1, 2, 2, 2)],
        "prompt_repetition_penalty": float(random.uniform(0.5, 2)),
        "prompt_no_repeat_ngram_size": int(random.integers(1, 4)),
        "length_decay": (int(random.integers(0, 5)), float(random.uniform(0.5, 1.5))),
        "first_suppressed_ids": tuple(random.integers(2, SIZE, 3).tolist()),
        "renormalize": True,
    }
    return {name: value for name, value in some.items() if random.random() < 0.5}


def test_rules_have_the_names_and_defaults_of_the_options_of_decoding():
    """`serving` stands without TensorFlow, so it cannot take them from `generation`."""
    options = {field.name: field.default for field in dataclasses.fields(DecodingOptions)}
    defaults = Rules._field_defaults
    assert {name: options[name] for name in defaults if name != "end_ids"} == {
        name: default for name, default in defaults.items() if name != "end_ids"
    }
    assert beams.LOW == beam.LOW


T5_SMALL = {
    "num_layers": 2,
    "dim": 16,
    "num_heads": 2,
    "key_dim": 6,
    "intermediate_dim": 24,
    "num_buckets": 8,
}


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("prompts", 4),
        pytest.param("prompts", 10, marks=pytest.mark.slow),
        pytest.param("sources", 10, marks=pytest.mark.slow),
    ],
)
def test_any_options_decode_as_in_tensorflow(kind, count, tmp_path):
    """Rows of several lengths, some of which end before others, and more entries than there was room for."""
    texts, random = words(6, longest=9), np.random.default_rng(0)
    if kind == "prompts":
        task = generator()
        signature = task.signature(max_new_tokens=12)
    else:
        backbone = T5.from_size("tiny", **T5_SMALL, vocabulary_size=SIZE)
        task = translator(backbone, decoding=DecodingDefaults(start_id=0))
        signature = task.signature()
    inputs, make, num_ended = task.answerer.read(texts), decoder_by_tensorflow(signature, tmp_path), 0
    begun = signature.function.begun(inputs)
    first = begun["token_ids"].shape[1]
    for number in range(count):
        options = DecodingOptions(int(random.integers(1, 13)), **drawn(random))
        strings = ("ab", "dh", "f") if number % 2 else ()
        stop = EndTokens(2)
        if strings:
            stop = StopSequences([string.encode() for string in strings], CHARACTERS.symbols, [2])
        right = options.decoder(task.model, stop)(**begun).numpy()[:, first:].tolist()
        found = make(options=options, stop=strings)(inputs)
        padded = [ids + [0] * (options.max_new_tokens - len(ids)) for ids in found]
        assert padded == right, (options, strings)
        num_ended += sum(len(ids) < options.max_new_tokens for ids in found)
    assert num_ended > 0.6 * count, "texts that end by themselves"


def test_a_function_of_more_rows_has_room_for_more_positions(tmp_path):
    """What a row of a batch is given does not depend on the others, nor on when the arrays grow."""
    task = generator(max_length=80)
    signature = task.signature(max_new_tokens=40)
    decode = decoder_by_tensorflow(signature, tmp_path)(
        options=DecodingOptions(40, suppressed_ids=(2,)), stop=()
    )
    read, texts = task.answerer.read, words(5, longest=30)
    assert decode(read(texts)) == [decode(read([text]))[0] for text in texts]
    first = read(texts[:1])
    (ids,) = decode(first)
    right = writers.scores_of(signature.function, first, ids)
    np.testing.assert_allclose(decode.score(first, ids), right, atol=1e-4)


# The formats ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A translator and its export."""
    task, folder = FAMILIES["mbart"](), tmp_path_factory.mktemp("exports") / "served"
    task.export(folder, format="onnx")
    return task, folder


def test_texts_are_written_as_by_the_task(exported):
    answers = compare(*exported, words())
    assert len({len(answer) for answer in answers}) > 2, "texts that end by themselves, at different places"


def test_nothing_copies_old_keys_and_values(exported):
    """Products with old and new ones are computed apart: of what is joined nothing has the heads' shape."""
    import onnx

    graph = onnx.load(exported[1] / "model" / "step.onnx").graph
    past = [node.name for node in graph.input if node.name.startswith("past")]
    joined = {name for node in graph.node if node.op_type == "Concat" for name in node.input}
    assert len(past) == 4 and not joined & set(past)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, BEAMS], ids=["likeliest", "beams"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "transformer"])
def test_families_write_as_the_task_does(name, format, options, tmp_path):
    task = FAMILIES[name]()
    task.export(tmp_path / "served", format=format, **options)
    # GELU is 1 + erf in exports and erfc in TensorFlow, and these weights enlarge the difference.
    compare(task, tmp_path / "served", words(), most=1e-4, **options)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_prompts_are_continued_as_by_the_task(format, tmp_path):
    """Up to the last position of the model, in LiteRT by several steps of fixed width."""
    task, prompts = generator(max_length=80), words(12, longest=70)
    options = {"max_new_tokens": 10, "stop": ["ab", "c"], "repetition_penalty": 1.3}
    task.export(tmp_path / "served", format=format, **options)
    served = serving.load(tmp_path / "served")
    assert served(prompts)["text"].tolist() == task.generate(prompts, **options)
    with pytest.raises(ValueError, match="row 0: expected a prompt of at most 70 tokens, got one of 71"):
        served(["a" * 71])


def captioner(decoder):
    options = CaptionerOptions(vocabulary_size=300, decoder=decoder, max_length=12)
    sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
    parts = {"encoder_config": {**sizes, "patch_size": 8}, "decoder_config": {**sizes, "num_layers": 2}}
    examples = ImageTexts(np.zeros((2, 32, 32, 3), "uint8"), ["aa bb", "cc"])
    task = Captioner.make(examples, options, parts)
    shaken(task.model, deviation=1.0)  # of larger weights the rounding of an image grows beyond the bound
    return task


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("decoder", ["gpt2", "bart"])
def test_captions_are_written_as_by_the_task(decoder, format, tmp_path):
    task = captioner(decoder)
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), "uint8")
    task.export(tmp_path / "served", format=format, beam_size=2)
    answers = serving.load(tmp_path / "served")(images)["text"].tolist()
    assert answers == task.generate(images, beam_size=2) and len(set(answers)) > 2
    with pytest.raises(ValueError, match="it cannot hold VisionEncoderDecoder"):
        task.export(tmp_path / "other", format="ctranslate2")


@pytest.mark.slow
def test_captions_of_videos_are_written_as_by_the_task(tmp_path):
    task, videos = fresh_captioner(), pairs(3, seed=2).videos
    task.export(tmp_path / "served", format="onnx", max_new_tokens=8)
    answers = serving.load(tmp_path / "served")(videos)["text"].tolist()
    assert answers == task.generate(videos, max_new_tokens=8)
    card = (tmp_path / "served" / "README.md").read_text("utf-8")
    assert "`pip install numpy onnxruntime pillow av`" in card and 'served(["clip.mp4"])' in card


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_eight_bits_are_smaller_and_close(format, tmp_path, caplog):
    sizes = {**SMALL, "dim": 64, "intermediate_dim": 256, "vocabulary_size": SIZE}
    task = Translator(LanguageModel(Transformer.from_size("tiny", **sizes)), CHARACTERS)
    with caplog.at_level("INFO", "keras_tfm"):
        for name in (None, "int8"):
            task.export(tmp_path / str(name), format=format, quantization=name, max_new_tokens=8)

    def size(folder):
        return sum(path.stat().st_size for path in (folder / "model").iterdir() if path.suffix != ".xml")

    assert size(tmp_path / "int8") < 0.6 * size(tmp_path / "None")
    assert 0 < serving.load(tmp_path / "int8").description["difference"] < 0.05
    assert f"{format}: int8, root mean square of" in caplog.text and "of 8 answers equal" in caplog.text


@pytest.mark.slow
def test_the_product_with_the_vocabulary_is_in_eight_bits(tmp_path):
    """By the table of the embedding, transposed."""
    import onnx

    sizes = {**SMALL, "vocabulary_size": 300, "num_layers": 1}
    task = translator(GPT2.from_size("tiny", **sizes))
    task.export(tmp_path / "served", format="onnx", quantization="int8", max_new_tokens=2)
    graph = onnx.load(tmp_path / "served" / "model" / "step.onnx").graph
    large = [tensor for tensor in graph.initializer if 300 in tensor.dims]
    assert {tuple(tensor.dims) for tensor in large if len(tensor.dims) == 2} == {(300, 16), (16, 300)}
    kinds = {tensor.data_type for tensor in large if len(tensor.dims) == 2}
    assert kinds == {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}


def test_a_folder_answers_alone(exported):
    blocked = ("tensorflow", "keras", "keras_tfm", "torch", "tokenizers", "sentencepiece", "ctranslate2")
    done = run_fresh(ASK, exported[1], blocked=blocked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == exported[0].generate(["abc", "hgf"])


# What is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.5}, "onnx: an export writes likely texts, without `temperature`: it must be None"),
        ({"contrastive_alpha": 0.6}, "without `contrastive_alpha`: it must be None; it is 0.6"),
        ({"processors": [abs]}, r"without `processors`: it must be \(\); it is \(<built-in function abs>,\)"),
        ({"max_new_tokens": 17}, r"`max_new_tokens` must lie in \[1, 16\]"),
        ({"beams": 2}, "beams"),
    ],
)
def test_other_decoding(exported, options, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        exported[0].export(tmp_path / "served", format="onnx", **options)
    assert not list(tmp_path.iterdir())


def test_other_models(tmp_path, monkeypatch):
    def refuses(task, message, error=ValueError):
        with pytest.raises(error, match=message):
            task.export(tmp_path / "served", format="onnx")
        assert not list(tmp_path.iterdir())

    sizes = {"vocabulary_size": SIZE, "num_layers": 1, "dim": 16, "hidden_dim": 16}
    recurrent = Translator(LanguageModel(RecurrentSeq2Seq.from_size("tiny", **sizes)), CHARACTERS)
    refuses(recurrent, r"The model has a loop or a branch \(.*While.*\): export a SavedModel")
    half = GPT2.from_size("tiny", **SMALL, vocabulary_size=SIZE, dtype="mixed_bfloat16")
    half = Translator(LanguageModel(half), CHARACTERS, config=TranslatorConfig(16))
    refuses(half, "exported in float32; it computes in bfloat16")
    config = TextGeneratorConfig(has_tokenizer=False, decoding=DecodingDefaults(end_ids=(2,)))
    refuses(TextGenerator(generator().model, None, config), "without a tokenizer only continues ids: it is")
    eight = captioner("gpt2")
    eight.quantize("int8")
    refuses(eight, "The weights are in 8 bits already")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    refuses(FAMILIES["bart"](), r'tf2onnx: pip install "keras-tfm\[onnx\]"', ImportError)


def test_rows_beyond_the_exported(exported):
    served = serving.load(exported[1])
    for rows, message in (
        ([[4], [5] * 17], "row 1: expected 1 to 16 token ids, got 17"),
        ([[]], "row 0: expected 1 to 16 token ids, got 0"),
        ([[4, SIZE]], f"row 0: expected ids from 0 to {SIZE - 1}, got 4 to {SIZE}"),
    ):
        with pytest.raises(ValueError, match=message):
            served.run(served.reader.join(rows))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["onnx", "beams", "ctranslate2"])
def test_whatever_a_description_says_is_obeyed_or_refused(kind, exported, tmp_path):
    folder = tmp_path / "served"
    if kind == "onnx":
        shutil.copytree(exported[1], folder)
    else:
        options = {"beam_size": 2} if kind == "beams" else {}
        exported[0].export(folder, format="onnx" if kind == "beams" else kind, **options)
    content = json.loads((folder / "serving.json").read_text()) | {"files": {}}
    assert refusals(folder, content, lambda served: served(words()[:2])) > 200


def test_damaged_folders(exported, tmp_path, monkeypatch):
    shutil.copytree(exported[1], tmp_path / "served")
    path = tmp_path / "served" / "serving.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "decoding": {}}))
    with pytest.raises(ValueError, match=r"decoding\.functions: expected an object, got none"):
        serving.load(tmp_path / "served")
    path.write_text(json.dumps(content))
    step = tmp_path / "served" / "model" / "step.onnx"
    whole = step.read_bytes()
    step.write_bytes(b"")
    with pytest.raises(ValueError, match=r"step\.onnx: expected the file as it was exported"):
        serving.load(tmp_path / "served")
    with pytest.raises(ValueError, match=r"step\.onnx: expected a whole file that the runtime can read"):
        serving.load(tmp_path / "served", check=False)
    step.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="This folder needs onnxruntime: pip install onnxruntime"):
        serving.load(tmp_path / "served")


LINES = ["Käse und Brot", "a film, a good film", "▁ two  spaces ", "🙂 東京", ""]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SentencePieceTokenizer, ByteLevelTokenizer])
def test_tokenizers_read_and_write_without_tensorflow(kind, tmp_path):
    tokenizer = kind.train(LINES * 3, 320)
    if kind is ByteLevelTokenizer:
        task = generator(tokenizer, num_layers=1)
    else:
        size = {**SMALL, "num_layers": 1, "vocabulary_size": tokenizer.vocabulary_size}
        task = translator(Transformer.from_size("tiny", **size), tokenizer)
    task.export(tmp_path / "served", format="onnx", max_new_tokens=6)
    texts = [*LINES[:-1], "<|endoftext|> a", "Bro[SEP]t"]
    assert serving.load(tmp_path / "served")(texts)["text"].tolist() == task.generate(texts, max_new_tokens=6)
