"""Contrastive search against equation 5 of Su et al. 2022, computed whole for every candidate."""

import numpy as np
import pytest

from keras_tfm.generation import CompiledDecoding, ContrastiveSearch, Decoder, DecodingOptions, EndTokens
from keras_tfm.heads import LanguageModel, TextToCodes
from keras_tfm.models import (
    DALLE,
    GPT2,
    GPT2Config,
    ImageGPT,
    ImageGPTConfig,
    RecurrentSeq2Seq,
    RecurrentSeq2SeqConfig,
    Transformer,
    TransformerConfig,
)
from tests import contract
from tests.generation.markov import markov

NEW, END, PAD = 5, 2, 0
CONTEXT = {"token_ids": np.array([[5, 6, 3, 9], [7, 4, 0, 0]]), "padding_mask": np.arange(4) < [[4], [2]]}


def make(kind):
    """A small random language model, and what it attends to."""
    if kind == "gpt2":
        backbone = GPT2(GPT2Config(13, 24, num_layers=2, dim=8, num_heads=2))
    elif kind == "transformer":
        config = TransformerConfig(
            13, num_layers=1, dim=8, num_heads=2, intermediate_dim=9, normalize_first=True
        )
        backbone = Transformer(config)
    else:
        backbone = RecurrentSeq2Seq(RecurrentSeq2SeqConfig(13, dim=6, hidden_dim=8, dropout=0.0))
    model = LanguageModel(backbone, tied=kind == "gpt2")
    contract.randomise(model, seed=5)
    return model, None if kind == "gpt2" else CONTEXT


@pytest.fixture(
    scope="module",
    params=["gpt2", *(pytest.param(x, marks=pytest.mark.slow) for x in ("transformer", "recurrent"))],
)
def model(request):
    return make(request.param)


def hidden_states(model, context, row, texts):
    """The last hidden states (N, T, D) of texts (N, T) that answer one row of the context."""
    name = "token_ids" if context is None else "decoder_token_ids"
    inputs = {key: np.repeat(x[row : row + 1], len(texts), axis=0) for key, x in (context or {}).items()}
    outputs = model.backbone({**inputs, name: np.array(texts)})
    return outputs.get("decoder_sequence_output", outputs.get("sequence_output"))


def by_the_equation(model, context, row, prompt, alpha, k):
    """Tokens, and by how much each was better than the next candidate."""
    tokens, margins = list(prompt), []
    for _ in range(NEW):
        states = hidden_states(model, context, row, [tokens])
        logits = model.head(states)[0, -1].numpy().astype("float64")
        p = np.exp(logits) / np.exp(logits).sum()
        before = states[0].numpy().astype("float64")
        candidates = np.argsort(-p, kind="stable")[:k].tolist()
        after = hidden_states(model, context, row, [[*tokens, v] for v in candidates])[:, -1].numpy()
        scores = {}
        for v, h in zip(candidates, after.astype("float64"), strict=True):
            cosines = before @ h / np.linalg.norm(before, axis=1) / np.linalg.norm(h)
            scores[v] = (1 - alpha) * p[v] - alpha * cosines.max()
        best, second = sorted(scores, key=scores.get, reverse=True)[:2]
        margins.append(scores[best] - scores[second])
        tokens.append(best)
        if best == END:
            break
    return tokens + [PAD] * (len(prompt) + NEW - len(tokens)), min(margins)


PROMPTS = np.array([[4, 7, 5], [9, 9, 3]], "int32")


@pytest.mark.parametrize(("alpha", "k"), [(0.6, 4), pytest.param(1.0, 3, marks=pytest.mark.slow)])
def test_each_token_is_the_best_by_the_equation(model, alpha, k):
    model, context = model
    search = ContrastiveSearch(model, NEW, alpha, k, stop=EndTokens(END), pad_id=PAD)
    rows = search(PROMPTS, context=context).numpy()
    for row, prompt in enumerate(PROMPTS):
        expected, margin = by_the_equation(model, context, row, prompt, alpha, k)
        assert margin > 1e-5, "a tie: choose another seed"
        assert rows[row].tolist() == expected
    greedy = Decoder(model, NEW, stop=EndTokens(END), pad_id=PAD)(PROMPTS, context=context).numpy()
    assert alpha < 1 or (rows != greedy).any()


def test_without_a_penalty_or_a_choice_it_is_greedy(model):
    model, context = model
    expected = Decoder(model, NEW, stop=EndTokens(END), pad_id=PAD)(PROMPTS, context=context)
    for alpha, k in ((0.0, 4), (0.6, 1)):
        search = ContrastiveSearch(model, NEW, alpha, k, stop=EndTokens(END), pad_id=PAD)
        np.testing.assert_array_equal(search(PROMPTS, context=context), expected)


def test_compiled_streamed_padded_and_forbidden():
    model, _ = make("gpt2")
    options = DecodingOptions(NEW, contrastive_alpha=0.6)
    search = ContrastiveSearch(model, NEW, 0.6, 4, stop=EndTokens(END), pad_id=PAD)
    expected = search(PROMPTS).numpy()
    compiled = CompiledDecoding(model, EndTokens(END), PAD, max_length=24)
    np.testing.assert_array_equal(compiled(options, PROMPTS), expected)
    pieces = np.stack(list(compiled.stream(options, PROMPTS)), axis=1)
    np.testing.assert_array_equal(pieces, expected[:, 3 : 3 + pieces.shape[1]])
    padded, mask = np.pad(PROMPTS, ((0, 0), (2, 0)), constant_values=8), np.arange(5) >= [[2], [2]]
    np.testing.assert_array_equal(search(padded, mask)[:, 2:], expected)
    some = DecodingOptions(NEW, contrastive_alpha=0.9, top_k=6, suppressed_ids=range(3, 9), forced_first_id=1)
    rows = some.decoder(model, EndTokens(END))(PROMPTS).numpy()[:, 3:]
    assert (rows[:, 0] == 1).all() and not np.isin(rows, range(3, 9)).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contrastive_alpha": 1.1}, r"`contrastive_alpha` must lie in \[0, 1\]; it is 1.1"),
        ({"contrastive_alpha": -0.1}, r"`contrastive_alpha` must lie in \[0, 1\]"),
        ({"contrastive_alpha": 0.6, "top_k": 0}, "`top_k` must be at least 1"),
        ({"contrastive_alpha": 0.6, "top_k": 2.5}, "`top_k` must be a whole number"),
        ({"contrastive_alpha": 0.6, "beam_size": 2}, "no `beam_size`, `temperature`"),
        ({"contrastive_alpha": 0.6, "temperature": 0.5}, "no `beam_size`, `temperature`"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DecodingOptions(5, **options)


def test_models_of_pictures():
    """They have no position for the last token, which no other decoding reads."""
    model = LanguageModel(ImageGPT(ImageGPTConfig(9, 8, num_layers=1, dim=8, num_heads=2)))
    contract.randomise(model, seed=5)
    prompts = np.array([[8, 1, 2], [8, 3, 4]])
    expected = Decoder(model, 5)(prompts)
    np.testing.assert_array_equal(ContrastiveSearch(model, 5, alpha=0.0)(prompts), expected)
    assert Decoder(model, 6)(prompts).shape == (2, 9)
    with pytest.raises(ValueError, match="after 3 tokens `max_new_tokens` must be at most 5; it is 6"):
        ContrastiveSearch(model, 6)(prompts)
    with pytest.raises(TypeError, match="must have a `backbone` and a `head`; a TextToCodes does not"):
        ContrastiveSearch(TextToCodes(DALLE.from_size("tiny")), 3)


def test_a_model_must_give_hidden_states_and_as_many_candidates():
    with pytest.raises(TypeError, match="must have a `backbone` and a `head`; a Markov does not"):
        ContrastiveSearch(markov(), 3)
    with pytest.raises(ValueError, match="`top_k` must be at most 13, the vocabulary; it is 14"):
        ContrastiveSearch(make("gpt2")[0], 3, 0.6, 14)
