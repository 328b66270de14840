"""I3D: its published sizes, its moments and windows, what it inflates, the names of its port to torch."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.heads import Classifier
from keras_tfm.models import I3D, I3DConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import i3d

BRANCHES = (8, 6, 7, 5, 8, 8)
SMALL = I3DConfig(
    num_frames=9, image_size=(34, 16), num_channels=1, stem_dims=(6, 6, 8), dims=(BRANCHES,) * 9
)

test_contract = contract.check_family(
    Case("I3D", lambda: Classifier(I3D(SMALL), 3), {"videos": floats(9, 34, 16, 1)}, convolves=True)
)


# With Kinetics' 400 classes: the ports to PyTorch have scales, the authors' code has none.
@pytest.mark.parametrize(
    ("size", "scales", "expected"),
    [
        ("rgb", True, 12_697_264),
        ("flow", False, 12_668_032),
    ],
)
def test_parameters_of_the_published_sizes(size, scales, expected, no_allocation):
    model = Classifier(I3D.from_size(size, scales=scales), 400)
    assert contract.num_parameters(model.trainable_weights) == expected


@pytest.fixture(scope="module")
def images():
    """A network of images, on three frames, with drawn weights."""
    model = I3D(dataclasses.replace(SMALL, num_frames=3, inflated=False))
    randomise(model, 1)
    return model


@pytest.fixture(scope="module")
def videos(images):
    return images.inflated(num_frames=144)


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).normal(size=(1, 3, 34, 16, 1)).astype("float32")


def test_moments_and_maps(videos, frames):
    shapes = [x.shape[1:] for x in videos.maps]
    assert shapes == [(72, 5, 2, 31), (36, 3, 1, 31), (18, 2, 1, 31)]
    outputs = videos({"videos": np.resize(frames, (2, 144, 34, 16, 1))})
    assert outputs["sequence_output"].shape == (2, 17, 31)  # windows of 2 of 18 moments, each the whole map
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-5)
    names = [block.name for block in videos.blocks["encoder"]]
    assert names[:3] == ["stage_0_block_0", "stage_0_block_1", "stage_1_block_0"] and len(names) == 9


def test_a_still_video_gives_what_its_image_gave(images, videos, frames):
    """At moments whose 107 frames all lie in the video; nearer to its ends the kernels read zeros."""
    expected = np.asarray(images({"videos": frames})["sequence_output"][:, :1])
    assert np.abs(expected).max() > 1e-3
    moments = np.asarray(videos({"videos": np.repeat(frames[:, :1], 144, axis=1)})["sequence_output"])
    tolerance = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(moments[:, 7:9], np.repeat(expected, 2, axis=1), atol=tolerance)
    assert np.abs(moments[:, :1] - expected).max() > 100 * tolerance
    with pytest.raises(ValueError, match="`inflated` needs a network made with `inflated` False"):
        videos.inflated()


def test_frames_are_apart_before_they_are_inflated(images, frames):
    other = np.array(frames)
    other[:, 1] += 1
    y, changed = (np.asarray(images({"videos": x})["sequence_output"])[0] for x in (frames, other))
    assert [np.abs(a - b).max() > 0 for a, b in zip(y, changed, strict=True)] == [False, True, False]


def test_names_of_the_port_to_torch(videos):
    weights = keymap.save(videos, i3d.rows())
    assert weights["Mixed_4f.b2b.conv3d.weight"].shape == (8, 5, 3, 3, 3) and len(weights) == 57 * 5
    names = ["3b", "3c", *(f"4{letter}" for letter in "bcdef"), "5b", "5c"]
    arguments = {"num_classes": 3, "in_channels": 1, "stem": [6, 6, 8], "average_pool": [2, 7, 7]}
    arguments["mixed"] = {f"Mixed_{name}": [*BRANCHES] for name in names}
    assert i3d.config_of(arguments, (2, 9, 34, 16, 1)) == SMALL
    assert i3d.config_of({}, (1, 64, 224, 224, 3)) == I3D.config_of_size("rgb", image_size=(224, 224))
    with pytest.raises(CheckpointError, match="final_endpoint: expected 'Logits', got 'Mixed_5c'"):
        i3d.config_of({"final_endpoint": "Mixed_5c"}, (1, 64, 224, 224, 3))


def test_refusals():
    with pytest.raises(ValueError, match="`dims` must be the widths of 9 blocks; it is of 8"):
        I3DConfig(dims=(BRANCHES,) * 8)
