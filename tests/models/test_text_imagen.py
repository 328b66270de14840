"""Imagen with its text encoder: what it passes on of a text, and what no text is."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import BERT, Imagen, ImagenConfig, ImagenUNet
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

UNET = {"dims": (4,), "num_layers": (1,), "attends": (False,), "attends_to_context": (True,)}
UNET |= {"num_heads": 2, "key_dim": 3, "condition_dim": 4, "num_time_tokens": 1, "num_sines": 4}
UNET |= {"num_latents": 0, "kernels": (3,)}
ENCODER = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 12}
ENCODER |= {"dropout": 0.0, "attention_dropout": 0.0}
SMALL = ImagenConfig(4, 2, 11, 12, encoder_config=ENCODER, unet_config=UNET)
INPUTS = {"images": floats(4, 4, 2), "log_snr": floats(), "token_ids": ids("S", 11)}
INPUTS |= {"padding_mask": mask("S")}

test_contract = contract.check_family(
    Case(
        "Imagen",
        lambda: Imagen(SMALL),
        INPUTS,
        convolves=True,
        attends=True,
        without_effect=("text_vector/null", "gate/score/bias"),
    ),
    Case(
        "Imagen that enlarges",
        lambda: Imagen(dataclasses.replace(SMALL, is_super_resolution=True)),
        INPUTS | {"low_resolution": floats(4, 4, 2), "low_resolution_log_snr": floats()},
        convolves=True,
        attends=True,
        without_effect=("text_vector/null", "gate/score/bias"),
    ),
)


def test_it_is_its_encoder_before_its_unet():
    model = Imagen(SMALL)
    randomise(model, 1)
    assert type(model.unet) is ImagenUNet and model.encoder.config.dim == model.unet.config.text_dim == 8
    rng = np.random.default_rng(0)
    seen = {
        "images": rng.normal(size=(2, 4, 4, 2)).astype("float32"),
        "log_snr": np.array([1, -2], "float32"),
    }
    tokens = np.array([[3, 4, 5], [6, 0, 0]])
    shown = np.array([[True] * 3, [True, False, False]])
    y = model({**seen, "token_ids": tokens, "padding_mask": shown})["prediction"]
    texts = {name: np.array(x) for name, x in model.encode(tokens, shown).items()}
    assert texts["text"].shape == (2, 3, 8)
    np.testing.assert_allclose(model.unet({**seen, **texts})["prediction"], y, atol=1e-5)
    other = model({**seen, "token_ids": tokens + 1, "padding_mask": shown})["prediction"]
    assert np.abs(other - y).max() > 1e-3
    none = {"padding_mask": np.zeros((2, 3), bool)}
    nothing = [model({**seen, "token_ids": tokens + i, **none})["prediction"] for i in (0, 1)]
    np.testing.assert_allclose(*nothing, atol=1e-6)
    assert np.isfinite(nothing[0]).all()


def test_the_parts_are_configured_apart():
    assert BERT.config_class(11, max_length=12, num_layers=1, dim=8, num_heads=2, intermediate_dim=12) == (
        dataclasses.replace(
            SMALL, encoder="BERT", encoder_config={k: v for k, v in ENCODER.items() if "dropout" not in k}
        ).of_encoder
    )
    again = ImagenConfig.from_json(dataclasses.asdict(SMALL))
    assert again == SMALL and again.of_unet.max_length == 12
    for name, part in (("encoder_config", {"max_length": 3}), ("unet_config", {"text_dim": 3})):
        with pytest.raises(ValueError, match=f"`{name}` must be without {next(iter(part))}"):
            ImagenConfig(**{name: part})
    with pytest.raises(ValueError, match="`encoder` must be one of"):
        ImagenConfig(encoder="T5")
    with pytest.raises(ValueError, match="`image_size` must be multiples of 16"):
        dataclasses.replace(Imagen.sizes["tiny"], image_size=30)
