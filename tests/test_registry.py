"""The names by which Keras loads: one definition each, and a family's own apart from all others."""

import keras
import pytest

from keras_tfm import layers, training
from keras_tfm.models import ALBERT, BERT
from keras_tfm.models.text.deberta import ConvolutionBranch
from keras_tfm.registry import register
from tests.fresh_process import UNUSED, run_fresh


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


LOAD = """
import sys
for name in sys.argv[2:]:
    __import__(name)
assert ("keras" in sys.modules) == ("keras" in sys.argv)  # the package alone does not import it
import keras
packages = "keras_tfm.layers", "keras_tfm.models"
assert not any(name in sys.modules for name in packages)
assert keras.saving.get_registered_object("keras_tfm>NoSuchClass") is None
assert keras.saving.get_registered_object("other>Dense") is None
model = keras.models.load_model(sys.argv[1])
print(keras.saving.get_registered_name(type(model)))
if sys.argv[2] != "keras":
    sys.exit()
import pkgutil, keras_tfm
before = set(keras.saving.get_custom_objects())
for module in pkgutil.walk_packages(keras_tfm.__path__, "keras_tfm."):
    if module.name.split(".")[1] in ("layers", "heads", "models", "training", "generation", "tasks"):
        __import__(module.name)
print([name for name in set(keras.saving.get_custom_objects()) - before if name.startswith("keras_tfm")])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The .keras file of a model of this package."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    BERT(BERT.config_of_size("tiny")).save(path)
    return path


@pytest.mark.parametrize(
    "imports", [["keras_tfm"], pytest.param(["keras", "keras_tfm"], marks=pytest.mark.slow)]
)
def test_a_model_loads_after_the_package_alone(saved, imports):
    """Also where Keras was there first; all names are found there that any module registers."""
    result = run_fresh(LOAD, saved, *imports, blocked=UNUSED)
    unknown = ["[]"] if imports[0] == "keras" else []
    assert result.stdout.splitlines() == ["keras_tfm.bert>BERT", *unknown], result.stderr


def test_functions_too():
    def double(x):
        return 2 * x

    assert register(double) is double
    assert keras.saving.get_registered_name(double) == "tests>double"
