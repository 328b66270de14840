"""GLiT: its published size, layers of attention, of convolution and of both."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import GLiT, GLiTConfig, ViT, ViTConfig
from keras_tfm.models.vision.glit import GatedConvolution, SideBySide
from tests import contract
from tests.contract import Case, floats

SMALL = GLiTConfig(
    (8, 12),
    4,
    1,
    dim=6,
    num_heads=3,
    num_attention_heads=(3, 0, 1),
    expansions=(0.5, 2, 2),
    kernel_sizes=(1, 3, 5),
    mlp_ratios=(2, 1, 1.5),
)
IMAGES = {"images": floats(8, 12, 1)}
BIASES = ("depthwise/convolution/bias",)  # a batch norm follows

test_contract = contract.check_family(
    Case("GLiT", lambda: GLiT(SMALL), IMAGES, attends=True, convolves=True, without_effect=BIASES),
    Case("GatedConvolution", lambda: GatedConvolution(3, 3), {"x": floats(5, 4)}, convolves=True),
)


# The authors' code, with 1,000 classes: 7.3 M.
def test_parameters_of_the_published_size(no_allocation):
    model = Classifier(GLiT.from_size("T"), 1000)
    assert contract.num_parameters(model.trainable_weights) == 7_264_456


def test_outputs_and_states():
    model = GLiT(SMALL)
    images = np.random.default_rng(0).random((3, 8, 12, 1), "float32")
    outputs = model({"images": images})
    assert outputs["sequence_output"].shape == (3, 7, 6)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    kinds = [type(block.attention.branch).__name__ for block in model.blocks["encoder"]]
    assert kinds == ["MultiHeadAttention", "GatedConvolution", "SideBySide"]
    assert len(model.hidden_states["encoder"]) == 4


def test_where_all_heads_attend_it_is_a_vit():
    size = {"image_size": (8, 12), "patch_size": 4, "num_channels": 1, "dim": 6, "num_heads": 3}
    vit = ViT(ViTConfig(num_layers=2, intermediate_dim=12, **size))
    pairs = {
        "num_attention_heads": (3, 3),
        "expansions": (1, 1),
        "kernel_sizes": (1, 1),
        "mlp_ratios": (2, 2),
    }
    glit = GLiT(GLiTConfig(**size, **pairs))
    contract.randomise(vit, seed=1)
    floating = [[w for w in model.weights if "float" in w.dtype] for model in (vit, glit)]
    for theirs, ours in zip(*floating, strict=True):
        assert theirs.path.rsplit("/", 1)[1] == ours.path.rsplit("/", 1)[1]
        ours.assign(theirs)
    images = np.random.default_rng(0).random((2, 8, 12, 1), "float32")
    for name, y in vit({"images": images}).items():
        np.testing.assert_allclose(glit({"images": images})[name], y, atol=2e-6)


def test_a_convolution_sees_its_neighbours_attention_sees_all():
    """The first two features attend, the last two are convolved, three tokens wide."""
    mixed, gated = GLiT(SMALL).blocks["encoder"][2].attention.branch, GatedConvolution(3, 3)
    contract.randomise(mixed, seed=1)
    x = np.random.default_rng(0).normal(size=(1, 7, 6)).astype("float32")
    other = x.copy()
    other[0, 0] += 1
    changed = np.abs(np.asarray(mixed(other)) - np.asarray(mixed(x)))[0] > 1e-6  # (T, D)
    assert changed[:, :2].all()  # the head that attends
    np.testing.assert_array_equal(changed[:, 2:].any(-1), [True] * 3 + [False] * 4)  # five tokens wide
    # By hand: one feature, gates of 0 (a half), a kernel of 1, 2 and 3 and no norm to speak of.
    gated = GatedConvolution(1, 3)
    gated.build((None, 3, 1))
    depthwise = gated.convolution.convolution
    gated.gated.kernel.assign([[2.0, 0.0]])
    depthwise.kernel.assign(np.reshape([1.0, 2.0, 3.0], depthwise.kernel.shape))
    gated.output_projection.kernel.assign([[1.0]])
    sums = np.array([2 * 1 + 3 * 10, 1 + 2 * 10 + 3 * 100, 10 + 2 * 100.0]) / np.sqrt(1 + 1e-5)
    y = gated(np.reshape([1.0, 10.0, 100.0], (1, 3, 1)).astype("float32"))
    np.testing.assert_allclose(np.ravel(y), sums / (1 + np.exp(-sums)), rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="`num_attention_heads` must be at most `num_heads`, 3"):
        dataclasses.replace(SMALL, num_attention_heads=(3, 4, 0))
    with pytest.raises(ValueError, match="`kernel_sizes` must be odd"):
        dataclasses.replace(SMALL, kernel_sizes=(1, 2, 3))
    with pytest.raises(ValueError, match="`num_heads` must divide `dim`, 7"):
        dataclasses.replace(SMALL, dim=7)
    with pytest.raises(ValueError, match="must have a number for each stage"):
        dataclasses.replace(SMALL, mlp_ratios=(1,))
    with pytest.raises(ValueError, match="and `kernel_size` odd; they are 3 and 4"):
        GatedConvolution(3, 4)
    with pytest.raises(ValueError, match="`width` must lie between 0 and the width 4; it is 4"):
        SideBySide(GatedConvolution(3), GatedConvolution(3), 4).build((None, 5, 4))
