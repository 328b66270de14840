"""The names and arguments in docs/guides/coming_from.md exist in KerasHub, in transformers and in this
package.
"""

import inspect
import re

import keras_hub
import pytest
import transformers

import keras_tfm.data
import keras_tfm.heads
import keras_tfm.layers
import keras_tfm.models
import keras_tfm.tasks
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "guides" / "coming_from.md"
NAME = re.compile(r"(layers|models|heads|tasks|data)\.(\w+)(?:\.(\w+))?(?:\((.*)\))?")
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the pages are not part of the wheel")


def codes(heading, column):
    """What stands in backticks in a column of the tables below a heading."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split(" | ")[column] for line in section.splitlines() if line.startswith("| ")]
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


def check(package, code):
    """Whether `package` has the name in `code`, and its constructor or method these arguments."""
    module, name, method, arguments = NAME.fullmatch(code).groups()
    owner = getattr(getattr(package, module), name)
    owner = getattr(owner, method) if method else owner
    has = inspect.signature(owner).parameters
    if method:  # what it is called with are values
        return
    given = re.findall(r"(?:^|, )([a-z]\w*)(?==|,|$)", arguments or "")
    assert not set(given) - set(has), code


def arguments_of(*functions):
    return {name for function in functions for name in inspect.signature(function).parameters}


def test_keras_hub():
    layers, models, samplers = keras_hub.layers, keras_hub.models, keras_hub.samplers
    calls = layers.TransformerEncoder.call, layers.TransformerDecoder.call
    known = arguments_of(*calls, models.GPT2CausalLM.generate, models.CausalLM.compile)
    for code in codes("KerasHub", 0):
        if NAME.fullmatch(code):
            check(keras_hub, code)
        elif sampler := re.search(r"(\w+Sampler)\(([\w, ]+)", code):
            names = set(sampler[2].split(", "))
            assert names <= arguments_of(getattr(samplers, sampler[1])), code
        else:
            names = re.findall(r"[a-z]+_\w+", code)
            assert set(names) <= known, code


def test_transformers():
    bert, vit = transformers.BertModel.forward, transformers.ViTModel.forward
    known = arguments_of(transformers.TrainingArguments, bert, vit, transformers.T5Model.forward)
    known |= arguments_of(transformers.GenerationMixin.generate)
    known |= set(vars(transformers.GenerationConfig())) | set(vars(transformers.BertConfig()))
    known |= set(transformers.modeling_outputs.BaseModelOutputWithPooling.__annotations__)
    known |= set(dir(transformers)) | set(dir(transformers.BertModel)) | set(dir(transformers.BertConfig()))
    for code in codes("transformers", 0):
        assert set(re.findall(r"[A-Za-z_]\w*", re.split(r"[(.=]", code)[0])) <= known, code


def test_ours():
    found = [code for code in codes("KerasHub", 1) + codes("transformers", 1) if NAME.fullmatch(code)]
    assert len(found) > 25
    for code in found:
        check(keras_tfm, code)
