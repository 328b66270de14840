"""Training and decoding compiled by XLA, as users have them, equal the plain ones that other tests check."""

import random

import numpy as np
import pytest

from keras_tfm.jit import brief, is_cpu_alone, jit_compile, multiplies_bfloat16, slow_bfloat16
from keras_tfm.models import CvT, ResNet, ViT, tiny_config
from keras_tfm.tasks import TextClassifier, TextGenerator, Translator
from keras_tfm.training.fit import pays
from tests.tasks.tiny import TINY

TEXTS = ["a warm and funny film", "a dull mess", "what a great story", "so bad it hurts"] * 4
PAIRS = (TEXTS, TEXTS[::-1])
SMALL = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32, "dropout": 0.0}
PLAIN = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), 0.0)


def classifier():
    task = TextClassifier.from_examples(
        (TEXTS, ["good", "bad"] * 8), "tiny", 300, changes=TINY, max_length=16, head={"dropout": 0.0}
    )
    return task, (TEXTS, ["good", "bad"] * 8), lambda: task.predict(TEXTS[:4], probabilities=True)


def generator():
    sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "max_length": 32}
    task = TextGenerator.from_texts(TEXTS, "tiny", tokenizer="characters", **sizes, **PLAIN)
    return task, TEXTS, lambda: task.generate(["a d"], max_new_tokens=6)


def translator():
    task = Translator.from_pairs(PAIRS, size="tiny", vocabulary_size=300, max_length=16, **SMALL)
    return task, PAIRS, lambda: task.generate(["a dull mess"], max_new_tokens=6)


def recurrent():
    task = Translator.from_pairs(PAIRS, "recurrent", "tiny", 300, max_length=16, dropout=0.0)
    return task, PAIRS, lambda: task.generate(["a dull mess"], max_new_tokens=6)


@pytest.mark.parametrize(
    "make",
    [
        classifier,
        *(pytest.param(make, marks=pytest.mark.slow) for make in (generator, translator, recurrent)),
    ],
)
def test_compiled_is_plain(make, monkeypatch):
    losses, answers = [], []
    for value in ("0", "1"):
        monkeypatch.setenv("KERAS_TFM_JIT", value)
        random.seed(0)  # from which Keras draws the seeds of layers
        task, examples, ask = make()
        losses.append(task.fit(examples, examples, epochs=2, learning_rate=1e-3)["loss"])
        assert task.model.jit_compile == (value == "1")
        answers.append(ask())
    np.testing.assert_allclose(*losses, rtol=1e-4)
    if isinstance(answers[0], list):
        assert answers[0] == answers[1]
    else:
        np.testing.assert_allclose(*answers, atol=1e-4)


def test_the_variable_is_0_or_1(monkeypatch):
    monkeypatch.setenv("KERAS_TFM_JIT", "yes")
    with pytest.raises(ValueError, match="KERAS_TFM_JIT must be 0 or 1; it is 'yes'"):
        classifier()[0].fit((TEXTS, ["good", "bad"] * 8))


def test_what_is_brief_is_not_compiled_unless_asked_for(monkeypatch):
    monkeypatch.delenv("KERAS_TFM_JIT")
    with brief():
        assert not jit_compile()
    assert jit_compile()
    monkeypatch.setenv("KERAS_TFM_JIT", "1")
    with brief():
        assert jit_compile()


@pytest.mark.skipif(not is_cpu_alone(), reason="an accelerator compiles all")
def test_what_xla_slows_down_is_not_compiled(monkeypatch):
    depthwise, dense, patches = (family(tiny_config(family)) for family in (CvT, ResNet, ViT))
    cases = ((None, [False, False, True]), ("1", [True] * 3), ("0", [False] * 3))
    for value, expected in cases:
        if value is None:
            monkeypatch.delenv("KERAS_TFM_JIT")
        else:
            monkeypatch.setenv("KERAS_TFM_JIT", value)
        assert [jit_compile(model) for model in (depthwise, dense, patches)] == expected


@pytest.mark.skipif(not is_cpu_alone(), reason="an accelerator computes bfloat16 quickly")
def test_bfloat16_on_a_cpu_is_not_compiled_and_says_where_it_is_slow(monkeypatch, caplog):
    monkeypatch.delenv("KERAS_TFM_JIT")
    task, examples, _ = classifier()
    caplog.set_level("INFO", "keras_tfm")
    task.fit(examples, examples, epochs=1, precision="mixed_bfloat16")
    assert not task.model.jit_compile
    assert ("bfloat16: this processor cannot multiply" in caplog.text) == (not multiplies_bfloat16())
    assert task.model.compiles_parts
    assert ("bfloat16: products by the processor's own instructions" in caplog.text) == multiplies_bfloat16()
    assert "leave out --jit" in slow_bfloat16(jit=True)


def test_few_minutes_leave_xla_out_and_a_resumed_run_goes_on_so(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_TFM_JIT", raising=False)
    task, examples, _ = classifier()
    task.fit(examples, examples, run=tmp_path / "run", epochs=1, learning_rate=1e-3, minutes=0.2)
    assert not task.model.jit_compile
    again = TextClassifier.load(tmp_path / "run")
    assert again.record["jit"] is False
    options = {"run": tmp_path / "run", "resume": True, "epochs": 1, "learning_rate": 1e-3}
    again.fit(examples, examples, minutes=100, **options)
    assert not again.model.jit_compile and again.record["jit"] is False
    assert pays(None, 16) and pays(5, 16) and not pays(1, 16) and pays(1, 1)
