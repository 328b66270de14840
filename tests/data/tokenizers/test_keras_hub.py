"""KerasHub's tokenizers as ours and ours as KerasHub's: the same ids on random text, and in a task."""

import io
import random

import keras
import keras_hub
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_tfm.data import (
    BERTTokenizer,
    ByteLevelTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    from_keras_hub,
    to_keras_hub,
)
from keras_tfm.models import BERT
from keras_tfm.tasks import SentenceEncoder, SentenceEncoderConfig, TextClassifier
from tests.data.tokenizers.test_added import KINDS, bert
from tests.tasks.tiny import TINY

LINES = [
    "The quick brown fox didn't jump over 13 lazy dogs.",
    "naïve café in 東京, (so it seems)!",
    "so long and thanks for all the fish",
]


def pieces():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 50), model_writer=model, vocab_size=120, minloglevel=2, num_threads=1,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    return SentencePieceTokenizer(model.getvalue())


def byte_pairs(special=None, mask=()):
    learnt = ByteLevelTokenizer.train(LINES * 9, 300)
    tokens, merges = learnt.content["tokens"], learnt.content["merges"]
    if special is None:
        return learnt
    return ByteLevelTokenizer([*special, *(token for token in tokens if token[0] != "<"), *mask], merges)


MAKERS = {
    "BertTokenizer": lambda: BERTTokenizer.train(LINES, 300),
    "GPT2Tokenizer": byte_pairs,
    "RobertaTokenizer": lambda: byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<"], ["<mask>"]),
    "BytePairTokenizer": lambda: byte_pairs(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "<"], ["[MASK]"]),
    "SentencePieceTokenizer": pieces,
}


LETTERS = "abcdefgh THEQ 0123456789.,!?'()-\n éïü東京"


def in_graph(tokenizer):
    """A function of texts that gives the ids of a KerasHub tokenizer, traced once."""
    signature = [tf.TensorSpec([None], tf.string)]
    tokenize = tf.function(tokenizer.tokenize, input_signature=signature, autograph=False)
    return lambda texts: tokenize(tf.constant(texts)).to_list()


# Byte pairs, which KerasHub takes 10 to 20 s to trace.
SLOW = ("GPT2Tokenizer", "RobertaTokenizer", "BytePairTokenizer")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MAKERS]
)
def test_both_ways_keep_the_ids(name):
    ours = MAKERS[name]()
    theirs = to_keras_hub(ours)
    assert type(theirs) is getattr(keras_hub.tokenizers, name)
    again = from_keras_hub(theirs)
    assert type(again) is type(ours) and again.vocabulary_size == theirs.vocabulary_size()
    roles = ("pad_id", "start_id", "end_id", "mask_id")
    assert [getattr(again, role) for role in roles] == [getattr(ours, role) for role in roles]

    tokenize, draw = in_graph(theirs), random.Random(0)
    texts = ["".join(draw.choices(LETTERS, k=draw.randrange(30))) for _ in range(60)] + LINES
    if name.startswith("Bert"):
        texts.append("the [MASK].")
    assert ours.tokenize(texts).to_list() == tokenize(texts) == again.tokenize(texts).to_list()


def test_what_would_change_the_ids_is_refused():
    words = MAKERS["BertTokenizer"]().vocabulary
    hub = keras_hub.tokenizers
    for tokenizer, error, message in (
        (hub.ByteTokenizer(), TypeError, "expected a WordPieceTokenizer, .* got a ByteTokenizer"),
        (hub.WordPieceTokenizer(words[:4] + words[5:]), ValueError, r"with \[PAD\], .*\[MASK\]"),
        (hub.BertTokenizer(words, split=False), ValueError, "expected `split` True, got False"),
        (hub.BertTokenizer(words, sequence_length=3), ValueError, "expected `sequence_length` None, got 3"),
        (hub.SentencePieceTokenizer(pieces().model, add_eos=True), ValueError, "expected `add_eos` False"),
    ):
        with pytest.raises(error, match=message):
            from_keras_hub(tokenizer)
    for ours in (CharacterTokenizer("abc"), SentencePieceTokenizer.train(LINES, 300)):
        with pytest.raises(TypeError, match=f"KerasHub knows no {type(ours).__name__}"):
            to_keras_hub(ours)


def test_a_task_reads_by_a_keras_hub_tokenizer_and_is_kept(tmp_path):
    theirs = to_keras_hub(BERTTokenizer.train(LINES, 300))
    bert = BERT.from_size("tiny", **TINY, vocabulary_size=theirs.vocabulary_size(), max_length=64)
    examples = LINES, ["a", "b", "a"]
    task = TextClassifier.from_backbone(bert, from_keras_hub(theirs), examples, max_length=64)
    read = task.answerer.read_all(LINES)
    assert [row.ids[1:-1] for (row,), _ in read] == in_graph(theirs)(LINES)
    task.save(tmp_path / "task")
    np.testing.assert_array_equal(
        TextClassifier.load(tmp_path / "task").predict(LINES, probabilities=True),
        task.predict(LINES, probabilities=True),
    )


# Layers ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_our_layers_stand_in_their_models_and_theirs_in_ours(tmp_path):
    """Their embedding and backbone before our block, our embedding before their encoder: one model that
    learns, and comes back out of its .keras file.
    """
    from keras_tfm import layers

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=20,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        max_sequence_length=8,
    )
    token_ids = backbone.input["token_ids"]
    mask = backbone.input["padding_mask"]
    ours = layers.TransformerBlock(2, 32, dropout=0.0)(backbone.output["sequence_output"], mask=mask)
    embedded = keras_hub.layers.TokenAndPositionEmbedding(20, 8, 16)(token_ids)
    ours = ours + layers.TransformerBlock(2, 32, dropout=0.0)(embedded, mask=mask)
    embedded = layers.TokenAndPositionEmbedding(20, 8, 16)(token_ids)
    theirs = keras_hub.layers.TransformerEncoder(32, 2)(embedded, padding_mask=mask)
    theirs = keras_hub.layers.PositionEmbedding(8, name="more_positions")(theirs) + theirs
    logits = keras.layers.Dense(3)(keras.layers.GlobalAveragePooling1D()(ours + theirs))
    model = keras.Model(backbone.input, logits)
    rng = np.random.default_rng(0)
    batch = {
        "token_ids": rng.integers(1, 20, (16, 8)),
        "segment_ids": np.zeros((16, 8), "int32"),
        "padding_mask": np.arange(8) < rng.integers(1, 9, (16, 1)),
    }
    labels = batch["token_ids"][:, 0] % 3
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
    before = {weight.path: weight.numpy() for weight in model.trainable_weights}
    first = model.train_on_batch(batch, labels)
    assert all(np.any(weight.numpy() != before[weight.path]) for weight in model.trainable_weights
               if "key/bias" not in weight.path)  # fmt: skip
    for _ in range(5):
        last = model.train_on_batch(batch, labels)
    assert last < first
    model.save(tmp_path / "both.keras")
    again = keras.saving.load_model(tmp_path / "both.keras")
    np.testing.assert_array_equal(again(batch), model(batch))


@pytest.mark.slow
def test_our_encoder_task_takes_ids_of_their_preprocessing():
    """What KerasHub's packer gives is what our tasks read: the same vectors."""
    tokenizer = BERTTokenizer.train(LINES, 300)
    bert = BERT.from_size(
        "tiny", **TINY, vocabulary_size=tokenizer.vocabulary_size, max_length=32, pooler=False
    )
    encoder = SentenceEncoder(bert, tokenizer, SentenceEncoderConfig(32, normalize=False))
    pack = keras_hub.models.BertTextClassifierPreprocessor(to_keras_hub(tokenizer), sequence_length=32)
    batch = next(iter(tf.data.Dataset.from_tensor_slices(LINES).batch(3).map(pack)))
    hidden = bert(batch)["sequence_output"].numpy()
    mask = batch["padding_mask"].numpy()[..., None]
    np.testing.assert_allclose((hidden * mask).sum(1) / mask.sum(1), encoder.predict(LINES), atol=1e-5)


def test_keras_hub_finds_no_added_tokens():
    for make in (bert, KINDS["gpt2"]):
        with pytest.raises(TypeError, match="KerasHub finds no added tokens, got '<user>'"):
            to_keras_hub(make([("<user>", ())]))
