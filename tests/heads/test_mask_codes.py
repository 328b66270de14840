"""Codes of masks: exact ones give the masks back, what is refused; their numbers: tests.parity.golden."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import MaskAutoencoder, PrincipalMaskCode, cosine_code, masks_of_cosines
from keras_tfm.heads.mask_codes import zigzag
from tests.contract import randomise


def blobs(count=12, side=8):
    """Random discs (count, side, side) of 0 and 1."""
    rng = np.random.default_rng(0)
    centres, radii = rng.uniform(2, side - 2, (2, count, 1, 1)), rng.uniform(1.5, 3.5, (count, 1, 1))
    y, x = np.arange(side)[:, None], np.arange(side)
    return ((y - centres[0]) ** 2 + (x - centres[1]) ** 2 < radii**2).astype("float32")


def test_principal_components_of_masks():
    masks = blobs()
    code = PrincipalMaskCode.fit(masks, 11)
    numbers = np.asarray(code.encode(masks))
    np.testing.assert_allclose(numbers.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(numbers.T @ numbers / len(masks), np.eye(11), atol=1e-3)  # whitened
    np.testing.assert_allclose(code.decode(numbers), 0.03 + 0.94 * masks, atol=1e-3)
    errors = [
        np.abs(
            PrincipalMaskCode.fit(masks, k).decode(PrincipalMaskCode.fit(masks, k).encode(masks)) - masks
        ).mean()
        for k in (1, 4, 11)
    ]
    assert errors[0] > errors[1] > errors[2]
    new = code.decode(code.encode(blobs(20)[12:].reshape(2, 4, 8, 8)))
    assert new.shape == (2, 4, 8, 8) and np.all((np.asarray(new) >= 0) & (np.asarray(new) <= 1))


def test_cosines_of_masks():
    masks = blobs()
    numbers = np.asarray(cosine_code(masks, 64))
    np.testing.assert_allclose(masks_of_cosines(numbers, 8), masks, atol=1e-5)
    np.testing.assert_allclose((numbers**2).sum(-1), (masks**2).sum((1, 2)), rtol=1e-4)  # orthonormal
    np.testing.assert_allclose(numbers[:, 0], masks.sum((1, 2)) / 8, rtol=1e-5)
    few = np.asarray(masks_of_cosines(numbers[:, :20], 8))
    assert 0.01 < np.abs(few - masks).mean() < 0.2
    assert zigzag(3, 9).tolist() == [[0, 0], [0, 1], [1, 0], [2, 0], [1, 1], [0, 2], [1, 2], [2, 1], [2, 2]]


def test_the_auto_encoder_loads_again():
    model = MaskAutoencoder(8, 5, widths=(2, 3))
    randomise(model, 1)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    again.set_weights(model.get_weights())
    outputs, others = model(blobs()), again(blobs())
    assert outputs["code"].shape == (12, 5) and outputs["masks"].shape == (12, 8, 8)
    np.testing.assert_array_equal(outputs["masks"], others["masks"])
    decoded = model.get_layer("decoder")(outputs["code"][:, None, None])
    np.testing.assert_allclose(decoded[..., 0], outputs["masks"], atol=1e-6)
    half = MaskAutoencoder(8, 5, widths=(2, 3), dtype="mixed_bfloat16")
    assert half.get_config()["dtype"] and half(blobs())["code"].dtype == "bfloat16"


def test_refusals():
    masks = blobs()
    with pytest.raises(ValueError, match="`num_components` must be 1 to 12; it is 13"):
        PrincipalMaskCode.fit(masks, 13)
    with pytest.raises(ValueError, match="`num_components` must be at most 1"):
        PrincipalMaskCode.fit(masks[[0, 1, 0, 1]], 2)
    with pytest.raises(ValueError, match="`masks` must be"):
        PrincipalMaskCode.fit(masks, 2).encode(masks[:, :4])
    with pytest.raises(ValueError, match="must be 1 to 64; it is 65"):
        cosine_code(masks, 65)
    with pytest.raises(ValueError, match="`side` must be a multiple of 4; it is 10"):
        MaskAutoencoder(10, 5, widths=(2, 3))
