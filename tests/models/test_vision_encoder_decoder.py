"""The encoder of images before a decoder of text: the contract, every encoder, what joins, folders."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_tfm import models
from keras_tfm.convert import save_huggingface
from keras_tfm.heads import LanguageModel
from keras_tfm.models import BART, GPT2, VisionEncoderDecoder, VisionEncoderDecoderConfig, ViT
from keras_tfm.models.multimodal.vision_encoder_decoder import ENCODERS, OF_ENCODER
from keras_tfm.private.keras import shapes_alone
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise
from tests.models.folders import check_both_ways, check_refusal

VIT = {"patch_size": 4, "num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 6}
RATES = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), 0.0)
SMALL = VisionEncoderDecoderConfig(
    12,
    1,
    vocabulary_size=11,
    max_length=9,
    encoder_config=VIT,
    decoder_config={"num_layers": 1, "dim": 6, "num_heads": 2, "intermediate_dim": 10, **RATES},
)
WITH_BART = dataclasses.replace(
    SMALL,
    decoder="BART",
    decoder_config={"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 10, "dropout": 0.0},
)
INPUTS = {
    "images": floats(12, 12, 1),
    "decoder_token_ids": ids("T", 11),
    "decoder_padding_mask": mask("T"),
}


def model_of(config):
    return LanguageModel(VisionEncoderDecoder(config))


def cache(model, inputs, max_length):
    return model.start(len(inputs["images"]), max_length, {"images": inputs["images"]})


PROMISES = {"attends": True, "causal": "T", "cache": cache}
test_contract = contract.check_family(Case("GPT2", lambda: model_of(SMALL), INPUTS, **PROMISES))
test_contract_of_bart = pytest.mark.slow(
    contract.check_family(Case("BART", lambda: model_of(WITH_BART), INPUTS, **PROMISES))
)


def test_outputs_and_the_projection_of_another_width():
    model = VisionEncoderDecoder(SMALL)
    images = np.random.default_rng(0).normal(size=(2, 12, 12, 1)).astype("float32")
    outputs = model({"images": images, "decoder_token_ids": np.ones((2, 3), int)})
    assert {name: x.shape for name, x in outputs.items()} == {
        "encoder_sequence_output": (2, 10, 6),
        "decoder_sequence_output": (2, 3, 6),
    }
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == {"encoder": 1, "decoder": 1}
    assert any("decoder_projection" in weight.path for weight in model.weights)
    assert not any("decoder_projection" in x.path for x in VisionEncoderDecoder(WITH_BART).weights)
    encoded = model.encoder({"images": images})["sequence_output"]
    np.testing.assert_array_equal(encoded, outputs["encoder_sequence_output"])
    with pytest.raises(ValueError, match="has positions for 9 tokens; 10 are asked for"):
        model.start(2, 10, {"images": images})


def test_the_whole_has_the_weights_of_both():
    for config, family in ((SMALL, GPT2), (WITH_BART, BART)):
        encoder, decoder = ViT(config.of_encoder), family(config.of_decoder)
        randomise(encoder, 1)
        randomise(decoder, 2)
        model = VisionEncoderDecoder.around(encoder, decoder)
        assert model.config == config
        images = np.random.default_rng(0).normal(size=(2, 12, 12, 1)).astype("float32")
        found = keras.Model(model.input["images"], model.hidden_states["encoder"][-1])(images)
        expected = keras.Model(encoder.input, encoder.hidden_states["encoder"][-1])({"images": images})
        np.testing.assert_allclose(found, expected, atol=1e-6)
        ours = {weight.path: weight for weight in model.weights}
        name = "block_0/feedforward/branch/hidden/kernel"
        theirs = next(x for x in decoder.weights if x.path in (name, f"decoder_{name}"))
        np.testing.assert_array_equal(ours[f"decoder_{name}"], theirs)
        np.testing.assert_array_equal(model.embedding.token.embeddings, decoder.embedding.token.embeddings)
    with pytest.raises(ValueError, match=r"`encoder` must be one of ViT, .*; it is a GPT2"):
        VisionEncoderDecoder.around(decoder=encoder, encoder=GPT2(SMALL.of_decoder))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "MiT" else pytest.mark.slow) for name in ENCODERS]
)
def test_any_encoder_of_images(name):
    fields = dataclasses.asdict(models.tiny_config(ENCODERS[name]))
    own = {field: fields.pop(field) for field in OF_ENCODER}
    config = dataclasses.replace(SMALL, **own, encoder=name, encoder_config=fields)
    with shapes_alone():
        model = VisionEncoderDecoder(config)
    assert model.output["encoder_sequence_output"].shape[2] == 6 and "encoder" in model.blocks
    assert VisionEncoderDecoderConfig.from_json(json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_folders_of_transformers_both_ways(tmp_path):
    for number, config in enumerate((SMALL, WITH_BART)):
        model = model_of(config)
        check_both_ways(model, tmp_path / f"{number}")
    fields = dataclasses.asdict(models.tiny_config(models.MiT))
    own = {field: fields.pop(field) for field in OF_ENCODER}
    config = dataclasses.replace(SMALL, **own, encoder="MiT", encoder_config=fields)
    with pytest.raises(ValueError, match=r"has only `encoder` ViT, .*; it is 'MiT'"):
        save_huggingface(VisionEncoderDecoder(config), tmp_path / "mit")


@pytest.mark.parametrize(
    ("side", "changes", "message"),
    [
        ("encoder", {"model_type": "resnet"}, "encoder.model_type: expected one of vit, deit"),
        ("decoder", {"model_type": "t5"}, "decoder.model_type: expected one of gpt2, bart, mbart"),
        ("decoder", {"add_cross_attention": False}, "decoder.add_cross_attention"),
        ("decoder", {"n_positions": 10}, "decoder.transformer.wpe.weight"),
        ("decoder", {"n_layer": 9_000}, "`num_layers` is 9,000, and there are 50 weights"),
        ("encoder", {"hidden_act": "sine"}, "encoder.hidden_act"),
        ("encoder", {"image_size": 16}, "encoder.embeddings.position_embeddings"),
        ("encoder", {"num_channels": 3}, "encoder.embeddings.patch_embeddings.projection.weight"),
    ],
)
def test_configurations_that_the_weights_do_not_bear_out(side, changes, message, tmp_path):
    save_huggingface(model_of(SMALL), tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    check_refusal(tmp_path / "folder", {side: entries[side] | changes}, message)


def test_refusals():
    for wrong, message in (
        ({"encoder": "BERT"}, "`encoder` must be one of ViT, .*; it is 'BERT'"),
        ({"decoder": "T5"}, "`decoder` must be one of GPT2, BART; it is 'T5'"),
        ({"encoder_config": {"image_size": 3}}, "`encoder_config` must leave image_size to the whole model"),
        ({"decoder_config": {"max_length": 3}}, "`decoder_config` must leave max_length to the whole model"),
        ({"decoder_config": {"wings": 2}}, "GPT2Config has no wings"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(SMALL, **wrong)
