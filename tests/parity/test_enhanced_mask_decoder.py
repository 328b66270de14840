"""Live: the enhanced mask decoder against transformers' DeBERTa blocks, asked as the released code does.

transformers has no such decoder, but its version 2's blocks take queries of their own. Version 1's take them
too, and fail: they transpose a tensor of three axes.
"""

import os

import numpy as np
import pytest
import torch

from keras_tfm import convert
from keras_tfm.heads import EnhancedMaskedLM
from tests.parity.encoders import REFERENCES

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


@torch.no_grad()
def reference(theirs, inputs, positions, num_layers=2):
    """He et al.'s `EnhancedMaskDecoder.emd_context_layer`, and the head: logits (B, T, V)."""
    token_ids, mask = (torch.from_numpy(inputs[name]).long() for name in ("token_ids", "padding_mask"))
    segments = torch.from_numpy(inputs["segment_ids"]).long() if "segment_ids" in inputs else None
    outputs = theirs.deberta(token_ids, mask, segments, output_hidden_states=True)
    encoder, hidden = theirs.deberta.encoder, outputs.hidden_states[-2]
    query = hidden + torch.from_numpy(positions)[: hidden.shape[1]]
    for _ in range(num_layers):
        query, _ = encoder.layer[-1](
            hidden,
            encoder.get_attention_mask(mask),
            query_states=query,
            relative_pos=encoder.get_rel_pos(hidden),
            rel_embeddings=encoder.get_rel_embedding(),
        )
    return theirs.cls(query).numpy()


@pytest.mark.parametrize("seed", CONFIGS)
def test_logits(seed, tmp_path):
    rng, family = np.random.default_rng(seed), REFERENCES["deberta-v2"]
    entries = family.draw(rng) | {"num_hidden_layers": int(rng.integers(2, 4))}
    theirs = family.draw_model(rng, "MaskedLM", entries)
    theirs.save_pretrained(tmp_path)
    plain = convert.from_huggingface(tmp_path)
    ours = EnhancedMaskedLM(plain.backbone, activation=plain.activation)
    for weight, value in zip(ours.get_layer("mlm").weights, plain.get_layer("mlm").weights, strict=True):
        weight.assign(value)
    table = ours.get_layer("decoder_position").embedding.embeddings
    table.assign(rng.normal(0, 0.3, table.shape))
    inputs = family.draw_inputs(rng, entries, "MaskedLM")
    mask, expected = inputs["padding_mask"], reference(theirs, inputs, table.numpy())
    np.testing.assert_allclose(np.asarray(ours(inputs))[mask], expected[mask], rtol=1e-5, atol=1e-5)
