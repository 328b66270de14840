"""Weights in 8 bits: a task's folder keeps them, smaller, and answers as the task did."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import models, tasks
from keras_tfm.cli import main
from keras_tfm.convert import CheckpointError
from keras_tfm.tasks import TaskError, TextClassifier, TextGenerator
from keras_tfm.tasks.text.encoder_task import with_parts
from keras_tfm.training.quantization import quantization_of, quantize
from keras_tfm.training.safetensors import read_tensors
from keras_tfm.training.weights import by_path
from tests import contract

TEXTS = ["So long and thanks for all the fish.", "The green witch arrived."]


def make_generator():
    sizes = {"dim": 128, "num_layers": 2, "num_heads": 4, "max_length": 32}
    return TextGenerator.from_texts(TEXTS, "tiny", 300, **sizes)


def make_classifier():
    sizes = {"dim": 128, "num_layers": 1, "num_heads": 2, "intermediate_dim": 256, "max_length": 32}
    return TextClassifier.from_examples(
        (TEXTS, ["a", "b"]), vocabulary_size=300, changes=sizes, max_length=32
    )


ASK = {
    make_generator: lambda task: task.generate_ids([[5, 6, 7]], max_new_tokens=8),
    make_classifier: lambda task: task.predict(TEXTS, probabilities=True),
}


@pytest.mark.parametrize("make", [make_generator, pytest.param(make_classifier, marks=pytest.mark.slow)])
def test_a_folder_keeps_weights_in_eight_bits(make, tmp_path, capsys):
    keras.utils.set_random_seed(0)
    whole, small, again = (tmp_path / name for name in ("whole", "small", "again"))
    make().save(whole)
    main(["quantize", str(whole), "--out", str(small)])
    kept = tasks.load(small)
    kept.save(again)
    size, before = ((folder / "model.safetensors").stat().st_size for folder in (small, whole))
    assert size <= 0.3 * before
    tensors = read_tensors(small / "model.safetensors")[0]
    kernels = [x for name, x in tensors.items() if name.endswith(("kernel", "embeddings"))]
    assert kernels and all(x.dtype == "int8" for x in kernels)
    assert json.loads((small / "config.json").read_text())["quantization"] == "int8"
    expected = ASK[make](tasks.load(whole, quantization="int8"))
    for task in (kept, tasks.load(again)):
        np.testing.assert_array_equal(ASK[make](task), expected)
    if make is make_generator:
        with pytest.raises(ValueError, match="transformers does not read weights in 8 bits"):
            kept.save_huggingface(tmp_path / "theirs")


def close_to(found, expected):
    """Whether the vectors differ by what 8 bits leave out, of vectors that differ among each other."""
    scale = np.abs(np.ptp(expected, axis=0)).max()
    return np.abs(np.subtract(found, expected)).max() < 0.05 * scale


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: models.ViTMAE.from_size("tiny", num_layers=1), "images"),
        (lambda: models.VideoMAE(models.tiny_config(models.VideoMAE)), "videos"),
    ],
)
def test_an_encoder_of_weights_in_eight_bits_has_their_scales(make, name):
    model = make()
    contract.randomise(model, 1)
    inputs = {name: np.random.default_rng(0).random((4, *model.input[name].shape[1:]), "float32")}
    expected = model.encoder()(inputs)["pooled_output"]
    quantize(model)
    encoder = model.encoder()
    assert close_to(encoder(inputs)["pooled_output"], expected)
    assert quantization_of(encoder) == "int8"  # which no training takes


def test_positions_in_eight_bits_are_resized_with_their_scales():
    vit = models.ViT.from_size("tiny", num_layers=1)
    contract.randomise(vit, 1)
    images = {"images": np.random.default_rng(0).random((4, 24, 24, 3), "float32")}
    expected = vit.reading((24, 24))(images)["pooled_output"]
    quantize(vit)
    assert close_to(vit.reading((24, 24))(images)["pooled_output"], expected)
    with pytest.raises(ValueError, match="8 bits cannot be part of a model in floats, nor be resized"):
        vit.with_image_size(24)


def test_weights_in_eight_bits_do_not_become_floats():
    swin = models.Swin(models.tiny_config(models.Swin))
    bert = models.BERT.from_size("tiny", vocabulary_size=20, num_layers=1)
    for model in (swin, bert):
        quantize(model)
    with pytest.raises(ValueError, match="8 bits cannot be part of a model in floats"):
        models.DETR.around(swin, num_queries=3, dim=8, num_layers=1, num_heads=2)
    other = with_parts(bert, pooler=False)
    assert {x.path for x in bert.weights} - {x.path for x in other.weights} == {
        "pooler/kernel", "pooler/bias", "pooler/kernel_scale"
    }  # fmt: skip
    for weight in other.weights:
        np.testing.assert_array_equal(weight, by_path(bert)[weight.path])


def test_what_decoding_has_compiled_is_of_the_weights_at_work():
    task = make_generator()
    contract.randomise(task.model, 2)
    before = task.generate_ids([[5, 6, 7]], max_new_tokens=8)
    task.quantize("int8")
    for weight in task.model.weights:
        if weight.dtype == "int8":
            weight.assign(np.zeros(weight.shape))
    after = task.generate_ids([[5, 6, 7]], max_new_tokens=8)
    assert before[0, 3:].any() and not after[0, 3:].any()


def test_what_cannot_be_is_refused(tmp_path):
    task = make_generator()
    task.save(tmp_path / "whole")
    with pytest.raises(ValueError, match="`quantization` must be one of int8; it is 'int3'"):
        tasks.load(tmp_path / "whole", quantization="int3")
    task = tasks.load(tmp_path / "whole", quantization="int8")
    task.save(tmp_path / "small")
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    for quantization, error in (("int3", TaskError), (8, TaskError), (None, CheckpointError)):
        (tmp_path / "small" / "config.json").write_text(json.dumps(config | {"quantization": quantization}))
        with pytest.raises(error, match=r"config\.json: `quantization` must be|kernel_scale"):
            tasks.load(tmp_path / "small")
    other = tasks.load(tmp_path / "whole")
    other.model.quantize(
        "int8", filters=lambda layer: isinstance(layer, keras.layers.Dense)
    )  # activations too
    with pytest.raises(ValueError, match="is not quantised the way `quantize` does it"):
        other.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
