"""Folders like Llama 3's, Qwen2's and Mistral's as tasks: texts in and out, in a RUN, a folder, an export."""

import json

import keras
import numpy as np
import pytest
import tokenizers

from keras_tfm import convert, models, tasks
from keras_tfm.heads import LanguageModel
from keras_tfm.tasks import TextGenerator
from tests.contract import randomise
from tests.data.tokenizers.chats import NAMES, STARTS, write_folder
from tests.fresh_process import ask

SIZES = {"num_layers": 1, "dim": 32, "num_heads": 2, "num_key_value_heads": 1, "intermediate_dim": 48}
FAMILIES = {"llama3": models.Llama, "qwen2": models.Qwen2, "tekken": models.Mistral}
PROMPTS = {
    "llama3": ["<|start_header_id|>user\n\nIsn't it 2024?<|eot_id|>", "The café"],
    "qwen2": ["<|im_start|>user\nIsn't it 2024?<|im_end|>\n", "The cafe\u0301"],
    "tekken": ["[INST]Isn't it CamelCASE 2024?[/INST]", "The café"],
}


@pytest.fixture(
    scope="module", params=["llama3", *(pytest.param(x, marks=pytest.mark.slow) for x in ("qwen2", "tekken"))]
)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    """A published folder, of a model with more rows than there are tokens."""
    folder = tmp_path_factory.mktemp(kind) / "hf"
    keras.utils.set_random_seed(0)
    sizes = SIZES | {"vocabulary_size": 400, "max_length": 64}
    model = LanguageModel(FAMILIES[kind].from_size("tiny", **sizes))
    randomise(model, seed=0)
    convert.save_huggingface(model, folder)
    whole = write_folder(kind, folder)
    ends = [whole.token_to_id(name) for name in NAMES[kind][1:]]
    ids = {"eos_token_id": ends, "pad_token_id": ends[-1] if kind in STARTS else ends[0] - 1}
    (folder / "generation_config.json").write_text(json.dumps(ids))
    return folder


@pytest.fixture(scope="module")
def task(folder):
    return TextGenerator.from_huggingface(folder)


def texts_of(task, folder, prompts):
    """What the library makes of the ids that the task's model writes."""
    whole = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for prompt in prompts:
        ids = whole.encode(prompt).ids
        written = task.generate_ids(np.array([ids]), max_new_tokens=12)[0, len(ids) :]
        written = [i for i in written.tolist() if i < whole.get_vocab_size()]
        yield prompt + whole.decode(written, skip_special_tokens=True)


def test_texts_are_the_librarys(task, folder, kind):
    assert task.config.add_start == (kind in STARTS)
    assert len(task.config.decoding.end_ids) == len(NAMES[kind]) - 1
    texts = task.generate(PROMPTS[kind], max_new_tokens=12)
    # Rows of the model that no token has are written as U+FFFD.
    assert [text.replace("\ufffd", "") for text in texts] == [
        text.replace("\ufffd", "") for text in texts_of(task, folder, PROMPTS[kind])
    ]
    assert "".join(task.stream(PROMPTS[kind][1], 12)) == texts[1].removeprefix(PROMPTS[kind][1])


def test_runs_and_folders_keep_the_task(task, folder, kind, tmp_path):
    expected = task.generate(PROMPTS[kind], max_new_tokens=12)
    task.save(tmp_path / "run")
    kept = tasks.load(tmp_path / "run")
    assert kept.config == task.config and kept.generate(PROMPTS[kind], max_new_tokens=12) == expected
    task.save_huggingface(tmp_path / "hf")
    ours, theirs = (
        tokenizers.Tokenizer.from_file(str(path / "tokenizer.json")) for path in (tmp_path / "hf", folder)
    )
    texts = [*PROMPTS[kind], "don't  \n\n x <think>1234"]
    assert [ours.encode(text).ids for text in texts] == [theirs.encode(text).ids for text in texts]
    again = TextGenerator.from_huggingface(tmp_path / "hf")
    assert again.config == task.config and again.tokenizer.content == task.tokenizer.content


def test_an_export_answers_alone(task, kind, tmp_path):
    task.export(tmp_path / "served", max_new_tokens=12)
    texts = ask(tmp_path / "served", text=PROMPTS[kind])["text"].tolist()
    assert texts == task.generate(PROMPTS[kind], max_new_tokens=12)
