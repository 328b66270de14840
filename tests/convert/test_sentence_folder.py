"""What the files of sentence-transformers say of vectors, and what is refused by name."""

import json

import pytest

from keras_tfm.convert.sentence_folder import read_sentence_folder
from keras_tfm.training.safetensors import CheckpointError

MODELS = "sentence_transformers.models"
MEAN = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}


def write(folder, modules=("Transformer", "Pooling"), pooling=None, **more):
    """A folder without its model: `more` are contents by a name without .json."""
    places = ["", *(f"{number}_{kind}" for number, kind in enumerate(modules[1:], 1))]
    entries = [
        {"idx": n, "name": str(n), "path": place, "type": kind if "." in kind else f"{MODELS}.{kind}"}
        for n, (kind, place) in enumerate(zip(modules, places, strict=True))
    ]
    (folder / "1_Pooling").mkdir()
    files = {"modules": entries, "1_Pooling/config": MEAN if pooling is None else pooling} | more
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def modes(*names):
    """The module's file of versions before 3, with all its entries."""
    kinds = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {f"pooling_mode_{kind}": kind in names for kind in kinds}


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (modes("cls_token"), ("cls",)),
        (modes("max_tokens", "mean_sqrt_len_tokens"), ("max", "mean_sqrt_len_tokens")),
        (modes("mean_tokens", "cls_token"), ("cls", "mean")),
        ({"pooling_mode_cls_token": True}, ("cls", "mean")),  # the mean is on where nothing is said of it
        ({}, ("mean",)),
        ({**modes(), "pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({**modes(), "pooling_mode_lasttoken": True, "include_prompt": True}, ("lasttoken",)),
        ({"embedding_dimension": 8, "pooling_mode": "max"}, ("max",)),
        ({"pooling_mode": ["mean", "cls"]}, ("cls", "mean")),
    ],
)
def test_poolings(pooling, expected, tmp_path):
    folder, fields = read_sentence_folder(write(tmp_path, pooling=pooling))
    assert folder == tmp_path and fields["pooling"] == expected and fields["normalize"] is False


NEW = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
    "max_seq_length": 7,
    "model_args": {},
}


@pytest.mark.parametrize(
    ("files", "length", "lowercase"),
    [
        ({}, None, None),
        ({"sentence_bert_config": {"max_seq_length": 64, "do_lower_case": True}}, 64, True),
        ({"sentence_roberta_config": {"max_seq_length": 32}}, 32, False),
        ({"sentence_bert_config": NEW}, 7, False),
        ({"sentence_bert_config": {"max_seq_length": None}, "tokenizer_config": {}}, None, False),
        ({"tokenizer_config": {"model_max_length": 512}}, 512, None),
        ({"tokenizer_config": {"model_max_length": 1e30}}, None, None),  # no limit
    ],
)
def test_lengths(files, length, lowercase, tmp_path):
    _, fields = read_sentence_folder(write(tmp_path, **files))
    assert (fields.get("max_length"), fields.get("lowercase")) == (length, lowercase)


def test_other_folders(tmp_path):
    assert read_sentence_folder(tmp_path) == (tmp_path, {})
    write(tmp_path, ("Transformer", "Pooling", "Dropout", "Normalize"))
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"  # as before 2020
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    folder, fields = read_sentence_folder(tmp_path)
    assert folder.name == "0_Transformer" and fields["normalize"] is True
    modules[0]["path"] = "../elsewhere"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="expected a plain file name, got a path"):
        read_sentence_folder(tmp_path)


PROMPTS = {"prompts": {"query": "query: ", "none": ""}, "default_prompt_name": "query"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"modules": names}, rf"modules.json: expected the modules .*, got {', '.join(names)}")
            for names in (
                ("Transformer", "Pooling", "Dense"),
                ("Transformer", "Pooling", "Normalize", "LayerNorm"),
                ("Transformer", "WeightedLayerPooling"),
                ("Transformer", "Normalize", "Pooling"),
                ("WordEmbeddings", "Pooling"),
                ("StaticEmbedding", "Normalize"),
                ("MLMTransformer", "SpladePooling"),
                ("Transformer", "own_code.Pooling"),
                ("Transformer", "Pooling", "Router"),
            )
        ),
        ({"pooling": {"pooling_mode_median": True}}, "config.json: pooling_mode_median: expected only"),
        ({"pooling": {"pooling_mode": "median"}}, "pooling_mode: expected one of cls, max"),
        ({"pooling": {"pooling_mode_cls_token": 1}}, "expected true or false, got 1"),
        ({"pooling": modes()}, "expected at least one pooling mode that is true"),
        ({"config_sentence_transformers": PROMPTS}, "default_prompt_name: .*'query: '"),
        ({"config_sentence_transformers": {"truncate_dim": 4}}, "truncate_dim: expected null, got 4"),
        ({"sentence_bert_config": {"max_seq_length": "64"}}, "max_seq_length: expected a number"),
        ({"sentence_bert_config": {"do_lower_case": 1}}, "do_lower_case: expected true or false"),
        ({"sentence_bert_config": {"unpad_inputs": True}}, "unpad_inputs: expected None, got True"),
        ({"sentence_bert_config": {"transformer_task": "fill-mask"}}, "transformer_task: expected 'feature"),
        ({"written": {}}, "modules.json: expected a JSON list"),
        ({"written": [3]}, "expected modules with a type and a path, got 3"),
    ],
)
def test_what_would_change_the_vectors_is_refused(changes, message, tmp_path):
    content = changes.pop("written", None)
    write(tmp_path, **changes)
    if content is not None:
        (tmp_path / "modules.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        read_sentence_folder(tmp_path)


def test_prompts_that_are_not_added_do_no_harm(tmp_path):
    write(tmp_path)
    for name in (None, "none"):
        options = {**PROMPTS, "default_prompt_name": name}
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(options))
        assert read_sentence_folder(tmp_path)[1]["pooling"] == ("mean",)
