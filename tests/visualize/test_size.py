"""Sizes counted from shapes: parameters and operations computed by hand, published ones, the verb `info`."""

import json

import keras
import numpy as np
import pytest

import keras_tfm
from keras_tfm import layers, tasks
from keras_tfm.cli import main
from keras_tfm.cli.measure import measured_bytes
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.models import BERT, RecurrentSeq2Seq, ResNet, ViT
from keras_tfm.private.keras import initialize, shapes_alone
from keras_tfm.visualize import size_of
from tests import contract


def block(dim, num_heads, width, key_dim=None):
    """A model of one block on 600 tokens."""
    part, x = residuals(0.0), keras.Input((600, dim))
    attention = layers.MultiHeadAttention(num_heads, key_dim)
    return keras_tfm.Model(
        x,
        Block({"attention": part(attention), "feedforward": part(layers.FeedForward(width))}, name="block")(
            x
        ),
    )


def test_a_block_of_full_width_heads_by_its_parts():
    """Queries, keys and values 3 x 1,056 for each of two heads, their projection 2,080, two dense layers
    1,056 each, two norms 64 each.
    """
    size = size_of(block(32, 2, 32, key_dim=32))
    counts = {name: part.parameters for name, part in size.parts.items()}
    assert counts == {"attention": 8_416, "feed-forward": 2 * 1_056, "normalization": 2 * 64}
    assert size.parameters == 10_656


@pytest.mark.parametrize(
    ("dim", "heads", "width", "count"), [(256, 2, 32, 543_776), (768, 10, 3072, 28_342_272)]
)
def test_larger_blocks_of_full_width_heads(dim, heads, width, count):
    with shapes_alone():
        assert size_of(block(dim, heads, width, key_dim=dim)).parameters == count


@pytest.mark.parametrize("family", ["GPT2", "T5", "Imagen", "RelTR"])
def test_initial_values_that_a_model_changes_are_not_drawn_for_shapes_alone(family):
    """They would take the time and the memory of weights, and a folder's replace them. Drawn later, they are
    changed alike.
    """
    family = getattr(keras_tfm.models, family)
    keras.utils.set_random_seed(1)
    expected = family.from_size("tiny")
    keras.utils.set_random_seed(1)
    with shapes_alone(), keras.StatelessScope(initialize_variables=False) as scope:
        model = family.from_size("tiny")
    assert not scope.state_mapping
    for weight, other in zip(model.weights, expected.weights, strict=True):
        initialize([weight])
        np.testing.assert_array_equal(weight, other)


def test_multiply_adds_of_self_attention():
    """Four projections of T d^2 each; the scores and the averages take T^2 d each, whatever the heads."""
    for heads in (1, 4):
        size = size_of(block(32, heads, 64))
        assert size.parts["attention"].multiply_adds == 4 * 600 * 32**2 + 2 * 600**2 * 32
        assert size.parts["feed-forward"].multiply_adds == 2 * 600 * 32 * 64
        assert size.multiply_adds == sum(part.multiply_adds for part in size.parts.values())
    assert size.activations == 600 * (3 * 32 + 4 * 600 + 32 + 32 + 64 + 32)
    assert size.training_bytes(2) == 16 * size.parameters + 16 * size.activations
    assert size.inference_bytes() == 4 * (size.parameters + 4 * 600 * 600 + 2 * 600 * 32)


# He et al. 2016 for ResNet-50, Touvron et al. 2021 for ViT-B/16.
@pytest.mark.slow
@pytest.mark.parametrize(("family", "size", "billions"), [(ResNet, "50", 4.1), (ViT, "B/16", 17.6)])
def test_published_multiply_adds(family, size, billions):
    with shapes_alone():
        found = size_of(family.from_size(size))
    assert found.length is None
    assert found.multiply_adds / 1e9 == pytest.approx(billions, rel=0.02)


def test_no_values_are_made_and_none_later():
    with shapes_alone():
        model = BERT.from_size("tiny")
    size_of(model)
    with keras.StatelessScope():
        pass
    assert not any(weight._initializer is None for weight in model.weights)


def test_loops_hide_what_they_do():
    with shapes_alone():
        size = size_of(RecurrentSeq2Seq.from_size("tiny"))
    assert size.multiply_adds is None and size.training_bytes() is None and size.parameters > 10**6


def test_the_verb(tmp_path, capsys):
    main(["info", "bert:tiny", "--length", "16", "--json"])
    told = json.loads(capsys.readouterr().out)
    *parts, whole = told["parts"]
    assert (whole["part"], whole["parameters"], told["length"]) == ("all", 4_385_920, 16)
    assert {"embedding", "attention", "feed-forward", "normalization", "head"} == {p["part"] for p in parts}
    main(["info", "ViT:Ti/16"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["part", "parameters", "multiply-adds"]
    assert lines[-2].startswith("inference: 0.02") and lines[-1].startswith("training: ")


def test_the_verb_of_a_run(tmp_path, capsys):
    pairs = ["the cat", "the dog"], ["le chat", "le chien"]
    sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
    task = tasks.Translator.from_pairs(pairs, size="tiny", max_length=8, **sizes)
    task.save(tmp_path / "run")
    main(["info", str(tmp_path / "run"), "--json"])
    *_, whole = json.loads(capsys.readouterr().out)["parts"]
    assert whole["parameters"] == contract.num_parameters(task.model.trainable_weights)
    tasks.Recommender.from_ratings((["a", "b"], ["x", "y"], [1.0, 2.0]), dim=1).save(tmp_path / "books")
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "books")])
    assert "no Keras model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bert-base"], "expected a RUN, or FAMILY:SIZE"),
        (["bert:huge"], "BERT has no size 'huge'"),
        (["bert:tiny", "--length", "513"], "takes 512 tokens at most"),
        (["vit:Ti/16", "--length", "5"], "--length: vit:Ti/16 reads no tokens"),
        (["bert:tiny", "--batch", "0"], "--batch: must be at least 1; it is 0"),
    ],
)
def test_mistakes_are_one_line(arguments, told, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["info", *arguments])
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_memory_is_measured_beside_the_estimate(capsys):
    """What stays measured is more than the weights, of training with their gradients and moments."""
    main(["info", "bert:tiny", "--length", "16", "--measure", "--json"])
    told = json.loads(capsys.readouterr().out)
    weights = 4 * told["parts"][-1]["parameters"]
    measured = told["measured"]
    assert weights < measured["inference_bytes"] < measured["training_bytes"] < 10**9
    assert measured["training_bytes"] > 4 * weights


@pytest.mark.slow
def test_larger_steps_take_about_what_is_estimated(capsys):
    """Of 8 images by ViT-S/16, with XLA: 0.24 GB and 1.3 GB were measured, 0.12 and 1.11 are estimated."""
    main(["info", "ViT:S/16", "--batch", "8", "--measure", "--json"])
    told = json.loads(capsys.readouterr().out)
    for name, most in (("inference_bytes", 2.5), ("training_bytes", 1.5)):
        assert 0.9 * told[name] < told["measured"][name] < most * told[name]


@pytest.mark.slow  # in a process of its own, which imports TensorFlow
def test_what_fails_where_memory_is_measured_is_told():
    with pytest.raises(ValueError, match="--measure: the inference step failed: ValueError: BERT has no"):
        measured_bytes("bert:huge", "inference", 1, 4)


def test_memory_cannot_be_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("keras_tfm.cli.measure.CHILD", "raise ValueError('it has no such size')")
    with pytest.raises(ValueError, match="--measure: the inference step failed: ValueError: it has no such"):
        measured_bytes("bert:huge", "inference", 1, 4)
    monkeypatch.setattr("keras_tfm.cli.measure.CHILD", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(ValueError, match="it was ended by SIGKILL, perhaps for lack of memory"):
        measured_bytes("bert:tiny", "training", 1, 4)
    monkeypatch.setattr("keras_tfm.cli.measure.STATUS", tmp_path / "none")
    with pytest.raises(SystemExit):
        main(["info", "bert:tiny", "--measure"])
    assert "--measure: expected Linux" in capsys.readouterr().err
