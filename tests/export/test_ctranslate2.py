"""Exports for CTranslate2 write the task's texts, token for token, without TensorFlow too."""

import compileall
import json
import shutil
import sys

import numpy as np
import pytest

from keras_tfm import serving
from keras_tfm.data import BERTTokenizer, ByteLevelTokenizer, CharacterTokenizer, SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.generation import DecodingDefaults
from keras_tfm.heads import LanguageModel
from keras_tfm.models import BART, GPT2, T5, RecurrentSeq2Seq, Transformer
from keras_tfm.serving.answers import Written
from keras_tfm.tasks import TextClassifier, TextGenerator, Translator
from keras_tfm.tasks.text.text_generator import TextGeneratorConfig
from keras_tfm.tasks.text.translator_options import TranslatorConfig
from keras_tfm.training.folder import refuse_existing
from tests.fresh_process import run_fresh
from tests.tasks.tiny import TINY

LETTERS = "abcdefgh"
CHARACTERS = CharacterTokenizer(LETTERS)
SMALL = {"num_layers": 2, "dim": 16, "num_heads": 2, "intermediate_dim": 24, "max_length": 32}
BEAMS = {"beam_size": 3, "early_stopping": True}


@pytest.fixture(scope="module", autouse=True)
def no_torch():
    """CTranslate2 imports torch and transformers, where they are, to read their checkpoints: that takes
    seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("torch", "transformers"):
            if name not in sys.modules:
                patch.setitem(sys.modules, name, None)
        import ctranslate2  # noqa: F401


def shaken(model, seed=0, deviation=2.0):
    """The model with random weights, biases and scales too, which seldom writes a token twice."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if "float" in str(weight.dtype):
            noise = (0.2 if len(weight.shape) == 1 else deviation) * random.standard_normal(weight.shape)
            weight.assign(noise + weight.path.endswith("gamma"))
    return model


def translator(backbone, tokenizer=CHARACTERS, use_bias=False, tied=None, **config):
    config = TranslatorConfig(**{"max_length": 16, **config})
    return Translator(shaken(LanguageModel(backbone, tied, use_bias)), tokenizer, config=config)


def generator(tokenizer=CHARACTERS, **changes):
    backbone = GPT2.from_size("tiny", **SMALL | changes, vocabulary_size=tokenizer.vocabulary_size)
    return TextGenerator(shaken(LanguageModel(backbone)), tokenizer)


def words(num=24, longest=18):
    """Strings of letters, of one to `longest`."""
    random = np.random.default_rng(1)
    lengths = random.integers(1, longest + 1, num)
    return ["".join(random.choice(list(LETTERS), length)) for length in lengths]


SIZE = CHARACTERS.vocabulary_size
T5_SMALL = {"num_layers": 2, "dim": 16, "num_heads": 2, "intermediate_dim": 24, "num_buckets": 8}
FAMILIES = {
    "transformer": lambda: translator(
        Transformer.from_size("tiny", **SMALL, vocabulary_size=SIZE), tied=False
    ),
    "transformer, norms first, two vocabularies, heads of another width": lambda: translator(
        Transformer.from_size(
            "tiny",
            **SMALL,
            vocabulary_size=SIZE,
            target_vocabulary_size=SIZE,
            normalize_first=True,
            key_dim=6,
            activation="gelu",
        )
    ),
    "gpt2": lambda: translator(GPT2.from_size("tiny", **SMALL, vocabulary_size=SIZE)),
    "bart": lambda: translator(
        BART.from_size("tiny", **SMALL, vocabulary_size=SIZE, num_decoder_layers=1, num_decoder_heads=4),
        use_bias=True,
        around=(SpecialTokens([1], [2]), SpecialTokens([2, 1], [2])),
        decoding=DecodingDefaults(start_id=2),
    ),
    "mbart": lambda: translator(
        BART.from_size("tiny", **SMALL, vocabulary_size=SIZE, normalize_first=True, scale_embedding=True)
    ),
    "t5": lambda: translator(
        T5.from_size("tiny", **T5_SMALL, key_dim=6, vocabulary_size=SIZE),
        decoding=DecodingDefaults(start_id=0),
    ),
    "t5 1.1": lambda: translator(
        T5.from_size(
            "tiny",
            **T5_SMALL,
            key_dim=8,
            vocabulary_size=SIZE + 3,
            gated=True,
            tied=False,
            activation="gelu_tanh",
            max_distance=10,
            num_decoder_layers=1,
        )
    ),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A translator and its export."""
    task, folder = FAMILIES["mbart"](), tmp_path_factory.mktemp("exports") / "served"
    task.export(folder, format="ctranslate2")
    return task, folder


def compare(task, folder, texts, most=1e-5, **options):
    """The answers of an export are the task's, and are not all alike; scores differ by `most` at most."""
    served = serving.load(folder)
    answers = served(texts)["text"].tolist()
    # Without a penalty of their length the likeliest texts are short, and fewer are different.
    least = 2 if options.get("length_penalty") == 0 else 3
    assert answers == task.generate(texts, **options) and len(set(answers)) >= least
    assert served.description["difference"] < most
    assert served(texts[:1], batch_size=1)["text"].tolist() == answers[:1] and served([]) == {}
    return answers


def test_texts_are_written_as_by_the_task(exported):
    answers = compare(*exported, words())
    assert len({len(answer) for answer in answers}) > 2, "texts that end by themselves, at different places"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, BEAMS, {**BEAMS, "length_penalty": 0.0, "max_new_tokens": 9}])
@pytest.mark.parametrize("name", FAMILIES)
def test_families_write_as_the_task_does(name, options, tmp_path):
    task = FAMILIES[name]()
    task.export(tmp_path / "served", format="ctranslate2", **options)
    # The drawn weights of one of them magnify roundings: in ONNX it differs by 5e-5.
    compare(task, tmp_path / "served", words(), 1e-4 if "two vocabularies" in name else 1e-5, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"normalize_first": False}])
def test_prompts_are_continued_as_by_the_task(options, tmp_path):
    task, prompts = generator(**options), words(16, longest=20)
    for decoding in ({}, BEAMS):
        task.export(tmp_path / "served", True, format="ctranslate2", max_new_tokens=8, **decoding)
        served = serving.load(tmp_path / "served")
        assert served(prompts)["text"].tolist() == task.generate(prompts, max_new_tokens=8, **decoding)
    for wrong, message in (
        (["ab", ""], "row 1: expected a prompt, got an empty text"),
        (["a" * 25], "row 0: expected a prompt of at most 24 tokens, got one of 25"),
        ([3], "row 0: expected a string, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            served(wrong)
    with pytest.raises(ValueError, match="expected a list, got a single one"):
        served("ab")


@pytest.mark.slow
def test_what_is_forced_and_forbidden(tmp_path):
    task, texts = FAMILIES["mbart"](), words()
    options = {"forced_first_id": 7, "min_new_tokens": 6, "suppressed_ids": (5, 9)}
    task.export(tmp_path / "served", format="ctranslate2", **options)
    answers = serving.load(tmp_path / "served")(texts)["text"].tolist()
    assert answers == task.generate(texts, **options) != task.generate(texts)


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 8])
def test_texts_of_few_tokens(length, tmp_path):
    """The scores that are compared need no position that the model has not."""
    sizes = {**SMALL, "vocabulary_size": SIZE, "max_length": length}
    task = translator(Transformer.from_size("tiny", **sizes), max_length=length)
    task.export(tmp_path / "served", format="ctranslate2")
    assert serving.load(tmp_path / "served")(words())["text"].tolist() == task.generate(words())


LINES = ["Käse und Brot", "a film, a good film", "▁ two  spaces ", "🙂 東京", ""]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sentencepiece", "wordpiece", "bytes"])
def test_tokenizers_read_and_write_without_tensorflow(name, tmp_path):
    train = {
        "sentencepiece": SentencePieceTokenizer.train,
        "wordpiece": BERTTokenizer.train,
        "bytes": ByteLevelTokenizer.train,
    }
    tokenizer = train[name](LINES * 3, 320)
    if name == "bytes":
        task = generator(tokenizer, num_layers=1)
    else:
        size = {**SMALL, "num_layers": 1, "vocabulary_size": tokenizer.vocabulary_size}
        task = translator(Transformer.from_size("tiny", **size), tokenizer)
    task.export(tmp_path / "served", format="ctranslate2", max_new_tokens=6)
    texts = [*LINES[:-1], "<|endoftext|> a", "Bro[SEP]t"]
    served = serving.load(tmp_path / "served")
    assert served(texts)["text"].tolist() == task.generate(texts, max_new_tokens=6)
    random = np.random.default_rng(0).integers(0, tokenizer.vocabulary_size, (20, 9))
    expected = [text.decode("utf-8", "replace") for text in tokenizer.detokenize(random).numpy()]
    spell = Written(tmp_path / "served", **{k: v for k, v in task.signature().answers.items() if k != "kind"})
    assert [spell.spelled(row) for row in random.tolist()] == expected


@pytest.mark.slow
def test_eight_bits_are_smaller_and_close(tmp_path, caplog):
    sizes = {**SMALL, "dim": 64, "intermediate_dim": 256, "vocabulary_size": SIZE}
    model = LanguageModel(Transformer.from_size("tiny", **sizes))
    task = Translator(model, CHARACTERS, config=TranslatorConfig(16))
    with caplog.at_level("INFO", "keras_tfm"):
        for name in (None, "int8"):
            task.export(tmp_path / str(name), format="ctranslate2", quantization=name)
    whole, small = (tmp_path / str(name) / "model" / "model.bin" for name in (None, "int8"))
    assert small.stat().st_size < 0.4 * whole.stat().st_size
    assert 0 < serving.load(tmp_path / "int8").description["difference"] < 0.05
    assert "ctranslate2: int8, root mean square of" in caplog.text and "8 of 8 answers equal" in caplog.text


ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from serving import load
print(json.dumps(load(sys.argv[1])(["abc", "hgf"])["text"].tolist()))
"""


def test_a_folder_answers_alone(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "served")
    blocked = ("tensorflow", "keras", "keras_tfm", "torch", "transformers", "tokenizers", "sentencepiece")
    done = run_fresh(ASK, tmp_path / "served", blocked=blocked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == serving.load(exported[1])(["abc", "hgf"])["text"].tolist()
    compileall.compile_dir(tmp_path / "served" / "serving", quiet=1)
    refuse_existing(tmp_path / "served", overwrite=True)  # byte code is no foreign file


# What is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 2}, "`early_stopping` must be True, it is False"),
        ({"temperature": 0.5}, "it neither samples nor contrasts"),
        ({"no_repeat_ngram_size": 2}, "decodes `no_repeat_ngram_size` otherwise than the task: it must be 0"),
        *(
            ({name: value}, f"decodes `{name}` otherwise than the task")
            for name, value in {
                "sequence_bias": [([5], 1.0)],
                "forbidden_sequences": [[5, 6]],
                "prompt_repetition_penalty": 1.5,
                "prompt_no_repeat_ngram_size": 2,
                "length_decay": (2, 1.1),
                "first_suppressed_ids": [5],
                "renormalize": True,
            }.items()
        ),
        ({**BEAMS, "min_new_tokens": 2}, "decodes `min_new_tokens` with beams otherwise than the task"),
        ({"quantization": "int4"}, "`quantization` must be None or one of int8"),
        ({"max_new_tokens": 17}, r"`max_new_tokens` must lie in \[1, 16\]"),
    ],
)
def test_other_decoding(exported, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        exported[0].export(tmp_path / "served", format="ctranslate2", **options)
    assert not list(tmp_path.iterdir())


def test_other_models_and_tasks(tmp_path, monkeypatch):
    def refuses(task, message, error=ValueError):
        with pytest.raises(error, match=message):
            task.export(tmp_path / "served", format="ctranslate2")
        assert not list(tmp_path.iterdir())

    sizes = {"vocabulary_size": SIZE, "num_layers": 1, "dim": 16}
    recurrent = Translator(LanguageModel(RecurrentSeq2Seq.from_size("tiny", **sizes)), CHARACTERS)
    refuses(recurrent, "ctranslate2 holds Transformer, BART, T5, GPT2; it cannot hold RecurrentSeq2Seq")
    elu = Transformer.from_size("tiny", **SMALL, vocabulary_size=SIZE, activation="elu")
    refuses(Translator(LanguageModel(elu), CHARACTERS, config=TranslatorConfig(16)), "it has no 'elu'")
    eight = FAMILIES["transformer"]()
    eight.quantize("int8")
    refuses(eight, "The weights are in 8 bits already")
    classifier = TextClassifier.from_examples((["a", "b"] * 4, ["+", "-"] * 4), "tiny", 300, changes=TINY)
    refuses(classifier, "ctranslate2 holds tasks that answer texts by texts; 'classify' does not")
    config = TextGeneratorConfig(has_tokenizer=False, decoding=DecodingDefaults(end_ids=(2,)))
    ids = TextGenerator(generator().model, None, config)
    refuses(ids, "A generator without a tokenizer only continues ids: it is not exported")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    task = FAMILIES["transformer"]()
    refuses(task, r'needs ctranslate2: pip install "keras-tfm\[ctranslate2\]"', ImportError)


def test_other_folders(exported, tmp_path, monkeypatch):
    shutil.copytree(exported[1], tmp_path / "served")
    path = tmp_path / "served" / "serving.json"
    content = json.loads(path.read_text())
    for changed, message in (
        ({**content, "layout": 9}, f"expected layout {serving.LAYOUT}, got 9"),
        ({**content, "decoding": {}}, r"decoding\.has_source: expected true or false, got none"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            serving.load(tmp_path / "served")
    path.write_text(json.dumps(content))
    model = tmp_path / "served" / "model" / "model.bin"
    whole = model.read_bytes()
    model.write_bytes(whole[:200])
    with pytest.raises(ValueError, match="ctranslate2 cannot read it"):
        serving.load(tmp_path / "served", check=False)
    model.write_bytes(whole[:-20] + bytes(10) + whole[-10:])  # which it would read
    with pytest.raises(ValueError, match=r"model\.bin: expected the file as it was exported"):
        serving.load(tmp_path / "served")
    model.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError, match="This folder needs ctranslate2: pip install ctranslate2"):
        serving.load(tmp_path / "served")
