"""The names by which Keras loads: one definition each, and a family's own apart from all others."""

import keras
import pytest

from keras_tfm import layers, training
from keras_tfm.models import ALBERT
from keras_tfm.models.text.deberta import ConvolutionBranch
from keras_tfm.registry import register


@pytest.mark.parametrize(("definition", "name"), [
    (layers.TransformerBlock, "keras_tfm>TransformerBlock"),
    (training.AdamW, "keras_tfm>AdamW"),
    (ALBERT, "keras_tfm.albert>ALBERT"),
    (ConvolutionBranch, "keras_tfm.deberta>ConvolutionBranch"),
])  # fmt: skip
def test_names(definition, name):
    assert keras.saving.get_registered_name(definition) == name
    assert keras.saving.get_registered_object(name) is definition


def make(module, width):
    """A layer class `Own` as the module of this name would define it."""
    return type(layers.Layer)("Own", (layers.Layer,), {"__module__": module, "width": width})


def test_two_families_may_use_one_name_and_load_their_own():
    of_families = [make(f"keras_tfm.models.text.{family}", i) for i, family in enumerate(("one", "two"))]
    for own in of_families:
        config = keras.saving.serialize_keras_object(own())
        assert type(keras.saving.deserialize_keras_object(config)) is own


def test_two_modules_that_claim_a_name_are_refused():
    make("claims.first", 1)
    with pytest.raises(
        ValueError, match=r"'claims>Own' from two modules, claims\.first and claims\.second: give"
    ):
        make("claims.second", 2)
    with pytest.raises(
        ValueError, match=r"'keras_tfm>FeedForward' from two modules, keras_tfm\.layers\.feed"
    ):
        type(layers.Layer)("FeedForward", (layers.Layer,), {"__module__": "keras_tfm.heads.tokens"})


def test_a_cell_of_a_notebook_may_be_run_again():
    for module in ("__main__", "again.module"):
        make(module, 1)
        latest = make(module, 2)
        package = module.partition(".")[0]
        assert keras.saving.get_registered_object(f"{package}>Own") is latest


def test_functions_too():
    def double(x):
        return 2 * x

    assert register(double) is double
    assert keras.saving.get_registered_name(double) == "tests>double"
