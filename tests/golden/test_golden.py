"""Our stacks against the stored outputs of other libraries, made by make_golden.py."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_tfm import convert, layers
from keras_tfm.generation import BeamSearch, Decoder, EndTokens
from keras_tfm.training.weights import write_tensors
from tests.golden.torch_stacks import check_stacks

FOLDER = pathlib.Path(__file__).parent
FILES = sorted(FOLDER.glob("torch_*.npz"))


def test_the_references_are_here():
    assert [path.stem for path in FILES] == ["torch_post_norm", "torch_pre_norm"]


def read(path):
    """(all arrays, the arrays of the state, the arrays of the inputs)."""
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    parts = (
        {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
        for part in ("state/", "inputs/")
    )
    return arrays, *parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_torch_stacks(path):
    arrays, state, inputs = read(path)
    check_stacks(json.loads(str(arrays["config"])), state, inputs, (arrays["encoded"], arrays["decoded"]))


def folder(tmp_path, arrays, state):
    """A folder as transformers would have written it."""
    (tmp_path / "config.json").write_text(str(arrays["config"]))
    write_tensors(state, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "distilbert", "deberta", "deberta-v2"])
def test_encoders(family, tmp_path):
    """The states and logits at the positions that are no padding."""
    arrays, state, inputs = read(FOLDER / f"{family}.npz")
    model = convert.from_huggingface(folder(tmp_path, arrays, state))
    mask = inputs["padding_mask"]
    assert not mask.all()
    hidden = model.backbone(inputs)["sequence_output"]
    np.testing.assert_allclose(hidden.numpy()[mask], arrays["hidden"][mask], rtol=1e-5, atol=1e-5)
    for i, y in enumerate(keras.tree.flatten(model(inputs))):
        y, expected = y.numpy(), arrays[f"outputs/{i}"]
        y, expected = (y[mask], expected[mask]) if y.ndim == 3 else (y, expected)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_gpt2(tmp_path):
    """The logits of a batch padded on the left, and how it goes on, token for token."""
    arrays, state, inputs = read(FOLDER / "gpt2.npz")
    model = convert.from_huggingface(folder(tmp_path, arrays, state))
    mask = inputs["padding_mask"]
    assert not mask.all()
    np.testing.assert_allclose(model(inputs).numpy()[mask], arrays["logits"][mask], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(Decoder(model, 8)(**inputs), arrays["greedy"])
    np.testing.assert_array_equal(BeamSearch(model, 8, 4, 0.6)(**inputs), arrays["beams"])


@pytest.mark.parametrize("family", ["t5", "bart", "mbart"])
def test_encoder_decoders(family, tmp_path):
    """The logits where there is no padding, and what is generated, token for token."""
    arrays, state, inputs = read(FOLDER / f"{family}.npz")
    model = convert.from_huggingface(folder(tmp_path, arrays, state))
    mask = inputs["decoder_padding_mask"]
    assert not mask.all()
    np.testing.assert_allclose(model(inputs).numpy()[mask], arrays["logits"][mask], rtol=1e-5, atol=1e-5)
    context = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    starts = np.full((len(mask), 1), model.backbone.config.start_id)
    stop = {"stop": EndTokens(5), "pad_id": 6}
    np.testing.assert_array_equal(Decoder(model, 8, **stop)(starts, context=context), arrays["greedy"])
    np.testing.assert_array_equal(
        BeamSearch(model, 8, 4, 0.6, **stop)(starts, context=context), arrays["beams"]
    )


@pytest.fixture(scope="module")
def positions():
    with np.load(FOLDER / "positions.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.mark.parametrize("name", ["t5", "t5_decoder", "odd", "odd_decoder"])
def test_t5_buckets(positions, name):
    num_buckets, max_distance, bidirectional = positions[f"{name}_arguments"].tolist()
    layer = layers.RelativePositionBias(num_buckets, max_distance, bool(bidirectional))
    np.testing.assert_array_equal(layer.buckets(positions["distances"]), positions[name])


def test_llama_rotation(positions):
    turned = layers.RotaryEmbedding(500.0).rotate(positions["query"], positions["key"])
    for ours, theirs in zip(turned, (positions["turned_query"], positions["turned_key"]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_keras_hub_sines(positions):
    x = np.zeros((1, *positions["sines"].shape), "float32")
    np.testing.assert_allclose(layers.SinePositionEncoding()(x)[0], positions["sines"], atol=1e-5)
