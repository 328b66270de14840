"""Tasks that write texts read each prompt once, on the host, and begin as a graph does."""

import pytest

from keras_tfm import serving
from keras_tfm.data import CharacterTokenizer
from keras_tfm.models import Transformer
from tests.export.test_ctranslate2 import SIZE, SMALL, generator, translator, words

MAKERS = {
    "translate": lambda: translator(Transformer.from_size("tiny", **SMALL, vocabulary_size=SIZE)),
    "generate": generator,
}


@pytest.mark.parametrize("name", MAKERS)
def test_each_prompt_becomes_tokens_once(name, monkeypatch):
    """By `inspect` and `predict` together, and by the tokenizer of the host alone."""
    task, texts, options = MAKERS[name](), words(6, longest=9), {"max_new_tokens": 4}
    expected, counted, reader = task.predict(texts, **options), [], task.answerer.reader
    encode = reader.ids

    def count(strings):
        counted.extend(strings)
        return encode(strings)

    def refuse(self, strings):
        raise AssertionError("a prompt becomes tokens in a graph")

    monkeypatch.setattr(reader, "ids", count)
    monkeypatch.setattr(CharacterTokenizer, "tokenize", refuse)
    refusals, num_cut, asked = task.inspect(texts, **options)
    assert task.predict(asked, **options) == expected and (refusals, num_cut) == ({}, 0)
    assert sorted(counted) == sorted(set(texts))


def test_prompts_begin_as_in_a_graph():
    """The host pads rows behind, and the graph in front."""
    task, texts = generator(), words(6, longest=9)
    begun = task.signature(max_new_tokens=4).function.begun(task.answerer.read(texts))
    rows, masks = begun["token_ids"].numpy(), begun["padding_mask"].numpy()
    for ids, row, mask in zip(task.tokenizer.tokenize(texts).to_list(), rows, masks, strict=True):
        padding = len(row) - len(ids)
        assert row.tolist() == [0] * padding + ids and mask.tolist() == [False] * padding + [True] * len(ids)


def test_a_seed_draws_for_the_rows_of_a_batch():
    """Lines of one batch are drawn as before whichever batches follow, and each batch draws anew."""
    task, texts = MAKERS["translate"](), ["abcd"] * 5
    options = {"seed": 3, "temperature": 9.0, "max_new_tokens": 8}
    drawn = task.generate(texts, batch_size=2, **options)
    assert drawn == task.generate(texts, batch_size=2, **options) and len(set(drawn)) > 2
    # The last two lines are the first batch: it begins with the row 3, which the seed counts.
    assert drawn[3:] == task.generate(["abcd"] * 2, **{**options, "seed": 6})


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_an_export_for_an_older_layout_is_refused_by_name(name, tmp_path):
    task = MAKERS[name]()
    task.export(tmp_path / "served", format="onnx", max_new_tokens=4)
    path = tmp_path / "served" / "serving.json"
    path.write_text(path.read_text().replace('"layout": 3', '"layout": 2'))
    with pytest.raises(ValueError, match=r"expected layout 3, got 2.*use the `serving` beside it"):
        serving.load(tmp_path / "served")
