"""Tasks of texts learn from a stream of them, which is read as it is needed."""

import json

import numpy as np
import pytest

from keras_tfm.data import BERTTokenizer, TextStream
from keras_tfm.tasks import (
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    TextGenerator,
    TrainableTask,
)
from keras_tfm.tasks.text import streams
from tests.tasks.tiny import TINY

WORDS = ["the", "old", "young", "wise", "cat", "dog", "slept", "ran", "sat", "mat"]
SMALL = {"num_layers": 1, "dim": 16, "num_heads": 2, "max_length": 16}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of 600 documents of a sentence each."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    drawn = np.random.default_rng(0).choice(WORDS, (600, 8))
    path.write_text("\n\n".join(" ".join(row) + "." for row in drawn), "utf-8")
    return path


@pytest.mark.slow  # the batches of a stream, and a generator that learns from texts, are tested always
def test_a_language_model_learns_from_a_stream(path, tmp_path):
    stream = TextStream([path], "\n\n")
    generator = TextGenerator.from_texts(stream, tokenizer="characters", separator="\n\n", **SMALL)
    assert generator.config.add_start and set("".join(WORDS)) <= set(
        b"".join(generator.tokenizer.symbols).decode()
    )
    options = {"epoch_batches": 3, "batch_tokens": 64, "run": tmp_path / "run"}
    generator.fit(stream, epochs=1, **options)
    history = generator.fit(stream, epochs=2, resume=True, **options)
    assert len(history["val_loss"]) == 2
    record = json.loads((tmp_path / "run" / "training.json").read_text("utf-8"))
    assert record["data"]["train"].endswith(" bytes of text")
    with pytest.raises(ValueError, match=r"these differ: .* bytes of text to train on then, "):
        generator.fit(TextStream([path]), epochs=3, resume=True, **options)


@pytest.mark.slow
def test_a_masked_language_model_learns_from_a_stream(path):
    tokenizer = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS])
    config = MaskedLanguageModelConfig(24, pairs="none")
    task = MaskedLanguageModel.from_tokenizer(tokenizer, "tiny", config, **TINY)
    texts = ["the old cat slept. the dog ran."] * 4
    history = task.fit(TextStream([path], "\n\n"), texts, epochs=1, epoch_batches=2, batch_tokens=96)
    assert np.isfinite(history["val_loss"]).all()
    paired = MaskedLanguageModel.from_tokenizer(tokenizer, "tiny", MaskedLanguageModelConfig(24), **TINY)
    with pytest.raises(ValueError, match='objective: expected "none"'):
        paired.fit(TextStream([path], "\n\n"), texts, epochs=1)


@pytest.mark.parametrize("task", [TextGenerator, pytest.param(MaskedLanguageModel, marks=pytest.mark.slow)])
def test_large_files_are_read_as_a_stream(task: type[TrainableTask], path, tmp_path, monkeypatch):
    """Files that patterns and folders name, too; but no tables, and only to train on."""
    assert isinstance(task.read_training([path]), list)
    monkeypatch.setattr(streams, "LARGE", 1_000)
    for paths in ([path], [path.parent / "*.txt"]):
        stream = task.read_training(paths)
        assert isinstance(stream, TextStream)
        assert task.describe(stream) == f"{path.stat().st_size:,} bytes of text"
    assert isinstance(task.read_files([path]), list)
    table = tmp_path / "texts.jsonl"
    table.write_text('{"text": "the old cat slept."}\n' * 100)
    assert len(task.read_training([table])) == 100
    assert isinstance(task.read_training([path, table]), list)


def test_a_share_of_a_stream_is_held_out_and_none_is_measured(path):
    stream = TextStream([path], "\n\n")
    generator = TextGenerator.from_texts(stream, tokenizer="characters", **SMALL)
    rest, held = generator._parts(stream, 0.25, seed=0)
    assert rest.num_bytes < stream.num_bytes and sum(map(len, held)) == pytest.approx(
        stream.num_bytes / 4,
        rel=0.1,  # the separators are gone
    )
    with pytest.raises(ValueError, match="A stream is for training alone"):
        generator.evaluate(stream)
