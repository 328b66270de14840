"""Summaries and translations by one language model, "source, delimiter, target", and ROUGE."""

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.data import CharacterTokenizer
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2
from keras_tfm.tasks import Summarizer, Translator, TranslatorConfig
from keras_tfm.tasks.text.summarizer import rouge
from tests.fresh_process import ask

ARTICLES = [
    "The only dog in town ran away. It was found by a girl. Its name is Rex.",
    "Rain fell all day. The river rose. People left their houses.",
    "A ship reached its destination. Nobody was on it!",
]
SUMMARIES = ["A girl found Rex.", "People fled a flood.", "An empty ship arrived."]
SMALL = {"num_layers": 1, "dim": 48, "num_heads": 2} | dict.fromkeys(
    ("dropout", "attention_dropout", "embedding_dropout"), 0.0
)


def learn_by_heart(task, pairs):
    many = [column * 10 for column in pairs]  # an epoch costs more than its steps
    task.fit(many, pairs, epochs=10, batch_tokens=200, learning_rate=1e-2, label_smoothing=0.0)


@pytest.fixture(scope="module", params=["sentencepiece", pytest.param("bytes", marks=pytest.mark.slow)])
def summarizer(request):
    """A language model that has learnt SUMMARIES by heart."""
    keras.utils.set_random_seed(0)
    pairs = ARTICLES, SUMMARIES
    summarizer = Summarizer.from_pairs(pairs, "gpt2", None, 340, request.param, max_length=64, **SMALL)
    learn_by_heart(summarizer, pairs)
    return summarizer


def test_summaries_are_learnt_by_heart(summarizer):
    assert isinstance(summarizer.model.backbone, GPT2)
    assert summarizer.predict(ARTICLES) == SUMMARIES
    assert summarizer.generate(ARTICLES, beam_size=3) == SUMMARIES
    assert [summarizer.generate([article])[0] for article in ARTICLES] == SUMMARIES
    measures = summarizer.evaluate((ARTICLES, SUMMARIES))
    assert measures["rouge1"] == measures["rougeL"] == 100 and measures["pairs"] == 3
    assert measures["lead1_rouge1"] < 50


def test_generated_ids_begin_with_the_delimiter(summarizer):
    tokenizer = summarizer.tokenizer
    source = tokenizer.tokenize(ARTICLES[:1]).to_tensor().numpy()
    ids = summarizer.generate_ids(source, max_new_tokens=30)
    assert ids.shape == (1, 31) and ids[0, 0] == tokenizer.start_id
    assert tokenizer.detokenize(ids[:, 1:]).numpy()[0].decode() == SUMMARIES[0]
    padded = np.pad(source, ((0, 0), (3, 0)))
    np.testing.assert_array_equal(
        summarizer.generate_ids(padded, np.pad(source > -1, ((0, 0), (3, 0))), 30), ids
    )


@pytest.mark.slow  # a translator's and a generator's are tested always
def test_a_folder_and_a_saved_model_keep_it(summarizer, tmp_path):
    summarizer.save(tmp_path / "task")
    kept = tasks.load(tmp_path / "task")
    assert type(kept) is Summarizer and kept.generate(ARTICLES[:1]) == SUMMARIES[:1]
    summarizer.export(tmp_path / "served", max_new_tokens=32)
    assert ask(tmp_path / "served", text=ARTICLES)["text"].tolist() == SUMMARIES


@pytest.mark.slow
def test_translations_in_the_same_layout():
    """By a decoder alone, which reads the source, then writes."""
    keras.utils.set_random_seed(0)
    pairs = ["good morning", "thank you", "two  cats"], ["Guten Morgen", "danke", "zwei Katzen"]
    translator = Translator.from_pairs(pairs, "gpt2", max_length=24, tokenizer="characters", **SMALL)
    learn_by_heart(translator, pairs)
    assert translator.predict(pairs[0]) == pairs[1]
    assert translator.evaluate(pairs)["exact_match"] == 100


def test_rouge_by_hand():
    """Lin 2004: of 5 and 4 words 3 are common, "the" twice; one of 4 and 3 pairs; "the … dog" in order."""
    scores = rouge(["the cat saw the dog"], ["the dog chased the"])
    assert scores["rouge1"] == pytest.approx(200 * (3 / 5) * (3 / 4) / (3 / 5 + 3 / 4), abs=0.01)
    assert scores["rouge2"] == pytest.approx(200 * (1 / 4) * (1 / 3) / (1 / 4 + 1 / 3), abs=0.01)
    assert scores["rougeL"] == pytest.approx(200 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4), abs=0.01)
    assert rouge([], []) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}


def test_what_cannot_be_is_refused():
    pairs = ARTICLES, SUMMARIES
    with pytest.raises(ValueError, match="one tokenizer; it was given two"):
        Translator.from_pairs(pairs, "gpt2", separate_tokenizers=True, **SMALL)
    model = LanguageModel(GPT2.from_size("tiny", max_length=100, **SMALL))
    with pytest.raises(ValueError, match="The model holds 100 tokens, less than twice 64"):
        Summarizer(model, CharacterTokenizer("abc"), config=TranslatorConfig(64))
