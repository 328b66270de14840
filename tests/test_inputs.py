"""What models and layers refuse to be called with: the error names the argument."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import layers
from keras_tfm.models import BERT, GPT2, CLIPConfig, ViT
from keras_tfm.models import CLIP as Pairs
from tests.tasks.tiny import TINY

IDS = np.array([[1, 2, 3], [4, 5, 0]])
IMAGES = np.zeros((2, 8, 8, 3), "float32")
X = np.zeros((2, 3, 8), "float32")


@pytest.fixture(scope="module")
def models():
    small = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
    towers = CLIPConfig((8, 8), 4, 3, 1, 8, 2, 8, 11, 9, 1, 8, 2, 8, embedding_dim=4, end_id=10)
    return {
        "bert": BERT.from_size("tiny", **TINY, vocabulary_size=10),
        "gpt2": GPT2.from_size("tiny", num_layers=1, dim=8, num_heads=2, vocabulary_size=10),
        "vit": ViT.from_size("tiny", image_size=8, patch_size=4, **small),
        "clip": Pairs(towers),
    }


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("bert", {"token_ids": IDS, "padding_mask": np.ones((3, 3), bool)},
         r"`padding_mask` must have the shape \(2, 3\), like `token_ids`; it has \(3, 3\)"),
        ("bert", {"token_ids": IDS, "padding_mask": np.ones((2, 4), bool)}, r"`padding_mask` .* \(2, 4\)"),
        ("bert", {"token_ids": IDS, "segment_ids": IDS[:1]}, r"`segment_ids` .*; it has \(1, 3\)"),
        ("bert", {"token_ids": IDS, "padding_mask": None}, "`padding_mask` must be an array; it is None"),
        ("bert", {"token_ids": None}, "`token_ids` must be an array; it is None"),
        ("bert", {"token_ids": IDS[0]}, r"`token_ids` must have 2 axes, \(\?, \?\); its shape is \(3,\)"),
        ("bert", {"token_ids": IDS + 0j}, "`token_ids` must be real numbers; they are complex128"),
        ("gpt2", {"token_ids": IDS[..., None, None]}, "`token_ids` must have 2 axes"),
        ("gpt2", {"token_ids": IDS, "padding_mask": np.ones((2, 5), bool)}, "`padding_mask`"),
        ("vit", {"images": IMAGES + 0j}, "`images` must be real numbers; they are complex"),
        ("vit", {"images": None}, "`images` must be an array; it is None"),
        ("vit", {"images": IMAGES[0]}, r"`images` must have 4 axes, \(\?, 8, 8, 3\)"),
        ("clip", {"images": IMAGES, "token_ids": IDS, "padding_mask": np.ones((2, 2), bool)},
         "`padding_mask` must have the shape"),
    ],
)  # fmt: skip
def test_models_name_the_input(models, name, inputs, message, is_traced):
    def call():
        return models[name](inputs)

    with pytest.raises(ValueError, match=message):
        (tf.function(call, autograph=False) if is_traced else call)()


def test_models_take_whole_floats_as_ids_and_refuse_others_as_layers_do(models):
    bert, embedding = models["bert"], layers.TokenEmbedding(10, 4)
    expected = bert({"token_ids": IDS})["sequence_output"]
    np.testing.assert_array_equal(bert({"token_ids": IDS.astype("float32")})["sequence_output"], expected)
    for call in (lambda ids: bert({"token_ids": ids}), embedding):
        with pytest.raises(ValueError, match="`token_ids` must be integers; they are float32"):
            call((IDS + 0.9).astype("float32"))
    with pytest.raises(ValueError, match="`token_ids` must be integers; they are float16"):
        bert({"token_ids": IDS.astype("float16")})


BLOCK = {"num_heads": 2, "intermediate_dim": 8}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.MultiHeadAttention(2)(X, mask=np.ones((2, 4), bool)), r"B = 2, T = 3 and S = 3"),
        (lambda: layers.MultiHeadAttention(2)(X, mask=np.ones((3, 3), bool)), r"`mask` .* \(3, 1, 1, 3\)"),
        (lambda: layers.MultiHeadAttention(2)(X, mask=np.ones((2, 2, 3), bool)), r"\(2, 1, 2, 3\)"),
        (lambda: layers.MultiHeadAttention(2)(X, X[:, :2], mask=np.ones((2, 3), bool)), "S = 2"),
        (lambda: layers.TransformerBlock(**BLOCK)(X, mask=np.ones((2, 4), bool)), "`mask` must have"),
        (lambda: layers.TransformerEncoder(1, **BLOCK)(X, mask=np.ones((5, 3), bool)), "`mask` must have"),
        (lambda: layers.AdditiveAttention(4)(X, X, mask=np.ones((2, 4), bool)), "`mask` must have"),
        (lambda: layers.dot_product_attention(X, X, X, np.ones((2, 4), bool)), "`mask` must have"),
        (lambda: layers.RecurrentEncoder(4)(X, mask=np.ones((2, 4), bool)), r"the sequence, \(2, 3\); it is"),
        (lambda: layers.MultiHeadAttention(2)(X[0]), "expected ndim=3, found ndim=2"),
        (lambda: layers.TransformerBlock(**BLOCK)(X[0]), "expected ndim=3, found ndim=2|axes"),
        (lambda: layers.MultiHeadAttention(2)(X + 0j), "input of 'multi_head_.*' must be real numbers"),
        (lambda: layers.FeedForward(8)(X + 0j), "input of 'feed_forward.*' must be real numbers"),
        (lambda: layers.LayerNormalization()(X + 0j), "must be real numbers; they are complex"),
        (lambda: layers.MultiHeadAttention(2)(None), "None"),
    ],
)  # fmt: skip
def test_layers_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_masks_that_broadcast_are_taken():
    layer = layers.MultiHeadAttention(2)
    for shape in ((2, 3), (1, 3), (1, 3, 3), (2, 1, 3), (1, 1, 3, 3), (2, 2, 3, 3)):
        assert layer(X, mask=np.ones(shape, bool)).shape == (2, 3, 8)
    inputs = keras.Input((None, 8)), keras.Input((None,), dtype="bool")
    model = keras.Model(inputs, layer(inputs[0], mask=inputs[1]))
    assert model([X, np.ones((2, 3), bool)]).shape == (2, 3, 8)
