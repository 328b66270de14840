"""Our stacks against the stored outputs of other libraries, made by make_golden.py."""

import json
import pathlib

import numpy as np
import pytest

from keras_tfm import layers
from keras_tfm.generation import BeamSearch, Decoder
from tests.golden.gpt2_weights import check_logits
from tests.golden.torch_stacks import check_stacks

FILES = sorted(pathlib.Path(__file__).parent.glob("torch_*.npz"))


def test_the_references_are_here():
    assert [path.stem for path in FILES] == ["torch_post_norm", "torch_pre_norm"]


def read(path):
    """(all arrays, those of the state, those of the inputs)."""
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


@pytest.fixture(scope="module")
def positions():
    with np.load(pathlib.Path(__file__).with_name("positions.npz"), allow_pickle=False) as file:
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


def test_gpt2():
    arrays, state, inputs = read(pathlib.Path(__file__).with_name("gpt2.npz"))
    model = check_logits(json.loads(str(arrays["config"])), state, inputs, arrays["logits"])
    prompt = inputs["token_ids"], inputs["padding_mask"]
    np.testing.assert_array_equal(Decoder(model, 8)(*prompt), arrays["greedy"])
    np.testing.assert_array_equal(BeamSearch(model, 8, 4, 0.6)(*prompt), arrays["beams"])
