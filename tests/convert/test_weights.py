"""The weights of published folders: types, shards, tied tables, prefixes; and files that are refused."""

import json
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import heads, models
from keras_tfm.convert import from_huggingface, save_huggingface
from keras_tfm.convert.folder import INDEX, WEIGHTS, read_weights
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.weights import write_tensors
from tests.contract import randomise
from tests.models.folders import assert_same, change_config

SIZES = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 16, "vocabulary_size": 12}
# {model_type: (the model, its prefix in a model with a head, the table of tokens, its copies)}
FAMILIES = {
    "bert": (
        lambda: heads.MaskedLM(models.BERT.from_size("tiny", **SIZES, max_length=8, pooler=False)),
        "bert.",
        "embeddings.word_embeddings.weight",
        ["cls.predictions.decoder.weight"],
    ),
    "gpt2": (
        lambda: heads.LanguageModel(models.GPT2.from_size("tiny", **SIZES, max_length=8)),
        "transformer.",
        "wte.weight",
        ["lm_head.weight"],
    ),
    "bart": (
        lambda: heads.LanguageModel(models.BART.from_size("tiny", **SIZES, max_length=8), use_bias=True),
        "model.",
        "shared.weight",
        ["model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight", "lm_head.weight"],
    ),
    "t5": (
        lambda: heads.LanguageModel(models.T5.from_size("tiny", **SIZES)),
        "",
        "shared.weight",
        ["decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "lm_head.weight"],
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def published(request, tmp_path_factory):
    """(A model with random weights, its folder, what `FAMILIES` says of it.)"""
    make, *names = FAMILIES[request.param]
    model, folder = make(), tmp_path_factory.mktemp(request.param) / "published"
    randomise(model, 1)
    for variable in model.weights:  # numbers of few digits, which float16 and bfloat16 hold exactly
        if "float" in variable.dtype:
            variable.assign(np.round(np.asarray(variable) * 8) / 8)
    save_huggingface(model, folder)
    return model, folder, *names


def again(folder, place, tensors):
    """A copy of the `folder` at `place` with other weights."""
    place.mkdir()
    (place / "config.json").write_bytes((folder / "config.json").read_bytes())
    write_tensors(tensors, place / WEIGHTS, {"format": "pt"})
    return place


def write_as(kind, tensors, path):
    """Write tensors of 16 bits, which NumPy does not have for bfloat16."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        if kind == "F16":
            part = tensor.astype("<f2").tobytes()
        else:  # its upper half, which has all that such a number holds
            part = (tensor.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        places = [len(data), len(data) + len(part)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": places}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_types_and_shards(published, tmp_path):
    model, folder, *_ = published
    tensors, _ = read_tensors(folder / WEIGHTS)
    for kind in ("F16", "BF16"):
        write_as(kind, tensors, again(folder, tmp_path / kind, {}) / WEIGHTS)
        assert_same(from_huggingface(tmp_path / kind), model)
    place = again(folder, tmp_path / "shards", {})
    (place / WEIGHTS).unlink()
    names, kinds = list(tensors), (write_tensors, lambda x, path: write_as("BF16", x, path))
    index = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(names)}
    for file, write in zip(sorted(set(index.values())), kinds, strict=True):
        write({name: tensors[name] for name in names if index[name] == file}, place / file)
    (place / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    assert_same(from_huggingface(place), model)


def test_prefixes(published, tmp_path):
    """As the model with its head has it, and as the backbone alone was written."""
    model, folder, prefix, *_ = published
    tensors, _ = read_tensors(folder / WEIGHTS)
    bare = {key.removeprefix(prefix): tensor for key, tensor in tensors.items()}
    assert_same(from_huggingface(again(folder, tmp_path / "bare", bare)), model)
    alone = {key.removeprefix(prefix): x for key, x in tensors.items() if key.startswith(prefix)}
    for number, found in enumerate((alone, {prefix + key: x for key, x in alone.items()})):
        backbone = from_huggingface(again(folder, tmp_path / str(number), found), with_head=False)
        assert_same(backbone, model.backbone)


@pytest.fixture
def made():
    """The names of the variables that are made while a test runs."""
    names = []

    def create(next_creator, **options):
        names.append(options["name"])
        return next_creator(**options)

    with tf.variable_creator_scope(create):
        yield names


@pytest.mark.parametrize("rows", [2**20, 9])
def test_a_wrong_size_is_refused_before_memory_is_allocated(rows, made, tmp_path):
    """The sizes of config.json are compared with each tensor's shape before its weight has values."""
    save_huggingface(models.BERT.from_size("tiny", **SIZES, max_length=8), tmp_path / "bert")
    change_config(tmp_path / "bert", max_position_embeddings=rows)
    made.clear()
    expected = rf"position_embeddings.weight: expected the shape \({rows}, 8\), got \(8, 8\)"
    with pytest.raises(CheckpointError, match=expected):
        from_huggingface(tmp_path / "bert")
    assert not made
    change_config(tmp_path / "bert", max_position_embeddings=8)
    from_huggingface(tmp_path / "bert")
    assert "embeddings" in made


def test_a_large_weight_without_a_tensor_is_refused_before_memory_is_allocated(made, tmp_path):
    """A small one may be a part that the model leaves out."""
    save_huggingface(models.BERT.from_size("tiny", **SIZES, max_length=8), tmp_path / "bert")
    change_config(tmp_path / "bert", max_position_embeddings=2**20)
    made.clear()
    tensors, _ = read_tensors(tmp_path / "bert" / WEIGHTS)
    (key,) = [key for key in tensors if key.endswith("position_embeddings.weight")]
    write_tensors(
        {name: tensor for name, tensor in tensors.items() if name != key}, tmp_path / "bert" / WEIGHTS
    )
    expected = rf"{key}: expected a tensor for .* \(1048576, 8\), got none"
    with pytest.raises(CheckpointError, match=expected):
        from_huggingface(tmp_path / "bert")
    assert not made


def test_tied_tables(published, tmp_path):
    """The table of tokens alone, with all its copies, or one of the copies in its place."""
    model, folder, prefix, table, copies = published
    tensors, _ = read_tensors(folder / WEIGHTS)
    original = tensors[prefix + table]
    others = {key: x for key, x in tensors.items() if key not in (prefix + table, *copies)}
    # Without a prefix (T5) lm_head.weight is a row of the table, for models that are not tied.
    alone = [copy for copy in copies if prefix or copy != "lm_head.weight"]
    forms = [[prefix + table], [prefix + table, *copies], *([copy] for copy in alone)]
    for number, keys in enumerate(forms):
        found = others | dict.fromkeys(keys, original)
        assert_same(from_huggingface(again(folder, tmp_path / str(number), found)), model)
    wrong = others | dict.fromkeys([prefix + table, *copies], original) | {copies[-1]: original + 1}
    with pytest.raises(
        CheckpointError, match=r"expected a copy of .*, to which it is tied, got other values"
    ):
        from_huggingface(again(folder, tmp_path / "wrong", wrong))
    with pytest.raises(CheckpointError, match=rf"{table}|`vocabulary_size` is \d+, and no weight has"):
        from_huggingface(again(folder, tmp_path / "none", others))


@pytest.mark.parametrize(
    ("file", "argument", "packages"),
    [
        ("pytorch_model.bin", "", "transformers and torch"),
        ("pytorch_model.bin.index.json", "", "transformers and torch"),
        ("tf_model.h5", ", from_tf=True", "transformers 4, torch and tensorflow"),
        ("flax_model.msgpack", ", from_flax=True", "transformers 4, torch and flax"),
    ],
)
@pytest.mark.parametrize(
    ("architectures", "model"),
    [(["BertForMaskedLM"], "BertForMaskedLM"), (None, "AutoModel"), (["x; import os"], "AutoModel")],
)
def test_other_files_are_refused_with_a_command(file, argument, packages, architectures, model, tmp_path):
    folder = tmp_path / "it's old"
    folder.mkdir()
    (folder / file).write_bytes(b"")
    (folder / "config.json").write_text(json.dumps({"architectures": architectures}))
    with pytest.raises(CheckpointError, match="nothing pickled is read") as raised:
        read_weights(folder)
    got = raised.value.got
    assert file in got and f"where {packages} are installed" in got
    command = got.partition("python -c ")[2]
    code = subprocess.run(["sh", "-c", f"printf %s {command}"], capture_output=True, text=True).stdout
    called = f"t.{model}.from_pretrained({str(folder)!r}{argument}).save_pretrained({str(folder)!r})"
    assert code == f"import transformers as t; {called}"
    compile(code, "command", "exec")


def test_a_folder_without_any_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"got config\.json\.$"):
        read_weights(tmp_path)
