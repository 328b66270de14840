"""DALL-E's Transformer: the contract, its size, tokens of texts and codes, decoding, guidance, its loss."""

import math

import numpy as np
import pytest
from keras import ops

from keras_tfm.generation import BeamSearch, CompiledDecoding, Decoder, DecodingOptions, Guided
from keras_tfm.heads import TextToCodes, TextToCodesLoss, token_cross_entropy
from keras_tfm.models import DALLE, DALLEConfig
from tests import contract
from tests.contract import Case, ids, randomise

TINY = DALLEConfig(
    7, 2, 5, (3, 2), num_layers=2, dim=8, num_heads=2, kinds=("row", "column"), kernel_size=2, layer_scale=0.5
)
TEXT, CODES = np.array([[3, 0], [6, 2]]), np.arange(12).reshape(2, 3, 2) % 5


def start(model, inputs, max_length):
    return model.start(len(inputs["token_ids"]), max_length)


PROMISES = {"attends": True, "causal": "T", "cache": start}

test_contract = contract.check_family(
    Case("DALLE", lambda: DALLE(TINY), {"token_ids": ids("T", TINY.vocabulary_size)}, **PROMISES),
    Case(
        "TextToCodes",
        lambda: TextToCodes(DALLE(TINY)),
        {"token_ids": ids("T", TINY.vocabulary_size)},
        **PROMISES,
        chooses=True,
    ),
)


@pytest.fixture(scope="module")
def model():
    model = TextToCodes(DALLE(TINY))
    randomise(model, 1)
    return model


def test_parameters_of_the_published_size(no_allocation):
    """12 billion in the paper: 12 D² a block, and tables."""
    model = TextToCodes(DALLE.from_size("dall-e"))
    count = sum(math.prod(weight.shape) for weight in model.weights if "float" in weight.dtype)
    dim = 3968
    tables = (16_384 + 256 + 8_192) * dim + (257 + 32 + 32) * dim
    head = (16_384 + 256 + 8_192) * (dim + 1)
    assert count == 64 * (12 * dim**2 + 13 * dim) + tables + 2 * dim + head == 12_293_853_056
    kinds = [model.backbone.config.kind(i) for i in range(64)]
    assert kinds[:6] == ["row", "column", "row", "row", "row", "column"] and kinds[-1] == "convolution"


def test_tokens_of_texts_and_codes(model):
    tokens = np.asarray(model.backbone.tokens_of(TEXT, CODES))
    assert tokens[:, :3].tolist() == [[0, 3, 8], [0, 6, 2]]  # 8 is the padding of the second place
    np.testing.assert_array_equal(tokens[:, 3:], CODES.reshape(2, 6) + 9)
    np.testing.assert_array_equal(model.backbone.codes_in(tokens), CODES)
    np.testing.assert_array_equal(model.backbone.tokens_of(TEXT), tokens[:, :3])
    forgotten = model.backbone.forget_text(tokens, np.tile(np.arange(9), (2, 1)))
    np.testing.assert_array_equal(forgotten[:, :3], [[0, 7, 8]] * 2)
    np.testing.assert_array_equal(forgotten[:, 3:], tokens[:, 3:])
    with pytest.raises(
        ValueError, match=r"`text_ids` must be \(B, 2\), 0 at padding; their shape is \(1, 3\)"
    ):
        model.backbone.tokens_of(np.ones((1, 3), int))
    with pytest.raises(ValueError, match=r"`code_ids` must lie in \[0, 5\); one of them is 5"):
        model.backbone.tokens_of(TEXT, CODES + 1)


def test_no_token_of_the_other_kind(model):
    logits = np.asarray(model({"token_ids": model.backbone.tokens_of(TEXT, CODES)[:, :-1]}))
    is_possible = logits > -1e30
    assert is_possible[:, :2, :9].all() and not is_possible[:, :2, 9:].any()
    assert is_possible[:, 2:, 9:].all() and not is_possible[:, 2:, :9].any()


def test_a_cell_sees_text_and_its_row_or_column():
    """With one block of each kind: who changes the last state when its token changes?"""
    for kind, seen in (("row", []), ("column", [0, 2]), ("convolution", [2]), ("full", [0, 1, 2, 3])):
        config = DALLEConfig(
            7, 2, 5, (3, 2), num_layers=1, dim=8, num_heads=2, kinds=(kind,), last_kind=None, kernel_size=2
        )
        model = DALLE(config)
        randomise(model, 2)
        tokens = np.asarray(model.tokens_of(TEXT[:1], CODES[:1]))[:, :8]

        def last(tokens, model=model):
            return np.asarray(model({"token_ids": tokens})["sequence_output"])[0, 7]

        base = last(tokens)
        changed = []
        for place in range(7):
            other = tokens.copy()
            first = 9 if place > 2 else 0
            other[0, place] = (other[0, place] - first + 1) % 5 + first
            if np.abs(last(other) - base).max() > 1e-6:
                changed.append(place)
        assert changed == [0, 1, 2, *(3 + cell for cell in seen)], kind


def test_decoding_is_the_uncached_models(model):
    prompt = np.asarray(model.backbone.tokens_of(TEXT))
    expected = prompt
    for _ in range(6):
        logits = np.asarray(model({"token_ids": expected}))[:, -1]
        expected = np.concatenate([expected, logits.argmax(-1)[:, None]], axis=1)
    written = np.asarray(Decoder(model, max_new_tokens=6)(prompt))
    np.testing.assert_array_equal(written, expected)
    codes = np.asarray(model.backbone.codes_in(written))
    assert codes.shape == (2, 3, 2) and codes.min() >= 0 and codes.max() < 5
    compiled = CompiledDecoding(model, max_length=9)(DecodingOptions(max_new_tokens=5), prompt)  # padded by 1
    np.testing.assert_array_equal(compiled, expected[:, :-1])
    beams = np.asarray(BeamSearch(model, 6, beam_size=2)(prompt))
    assert beams.shape == (2, 9) and (beams[:, 3:] >= 9).all()
    started = np.asarray(model.backbone.tokens_of(TEXT, CODES.reshape(2, 6)[:, :2]))
    np.testing.assert_array_equal(Decoder(model, max_new_tokens=4)(started)[:, :5], started)


def test_guidance(model):
    """Scale 1 is the model, 0 the model without text, and 3 what the formula says."""
    tokens = model.backbone.tokens_of(TEXT, CODES)[:, :-1]
    conditional = np.asarray(model({"token_ids": tokens}))
    positions = np.tile(np.arange(8), (2, 1))
    unconditional = np.asarray(model({"token_ids": model.backbone.forget_text(tokens, positions)}))
    assert np.abs(conditional - unconditional)[:, 3:, 9:].max() > 1e-3
    for scale in (0.0, 1.0, 3.0):
        guided = Guided(model, scale, model.backbone.forget_text)
        cache = guided.start(2, 8)
        first, cache = guided.step(tokens[:, :4], cache)
        second, _ = guided.step(tokens[:, 4:], cache)
        expected = unconditional + scale * (conditional - unconditional)
        np.testing.assert_allclose(ops.concatenate([first, second], axis=1), expected, rtol=1e-5, atol=1e-4)
    written = Decoder(Guided(model, 3.0, model.backbone.forget_text), max_new_tokens=6)(tokens[:, :3])
    assert np.asarray(model.backbone.codes_in(written)).min() >= 0


def test_loss_by_hand(model):
    tokens = np.asarray(model.backbone.tokens_of(TEXT, CODES))
    logits = model({"token_ids": tokens[:, :-1]})
    losses = np.asarray(token_cross_entropy(tokens[:, 1:], logits))
    assert np.isfinite(losses).all()
    expected = (losses[:, :2].mean() + 7 * losses[:, 2:].mean()) / 8
    np.testing.assert_allclose(TextToCodesLoss(2)(tokens[:, 1:], logits), expected, rtol=1e-5)
    assert TextToCodesLoss.from_config(TextToCodesLoss(2, 3.0).get_config()).picture_weight == 3


def test_refusals(model):
    with pytest.raises(ValueError, match="The decoder has positions for 8 tokens; 10 are asked for"):
        model.start(1, 10)
    with pytest.raises(ValueError, match="`kinds` must have at least one kind; it is empty"):
        DALLEConfig(kinds=())
