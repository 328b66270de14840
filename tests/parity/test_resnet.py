"""Live: ResNet and BiT against transformers': outputs, maps, folders both ways."""

import os

import keras
import numpy as np
import pytest
import transformers

from keras_tfm import convert
from tests.parity.images import answer, assert_close, check_way_back, draw_images, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (
    transformers.ResNetModel,
    transformers.ResNetForImageClassification,
    transformers.BitModel,
    transformers.BitForImageClassification,
)


def draw_config(rng, kind, num_labels):
    """Images of any shape, which is no entry of theirs; widths that BiT leaves as they are."""
    num_stages = int(rng.integers(1, 5))
    common = {
        "image_size": [int(side) for side in rng.integers(20, 70, 2)],
        "num_channels": int(rng.integers(1, 4)),
        "depths": [int(x) for x in rng.integers(1, 4, num_stages)],
        "num_labels": num_labels,
    }
    if kind.config_class is transformers.BitConfig:
        widths = [32 * int(x) for x in rng.integers(1, 4, num_stages)]
        groups = int(rng.choice([1, 2, 4]))
        return transformers.BitConfig(
            embedding_size=4 * groups, hidden_sizes=widths, num_groups=groups, drop_path_rate=0.2, **common
        )
    return transformers.ResNetConfig(
        embedding_size=int(rng.integers(1, 9)),
        hidden_sizes=[4 * int(x) for x in rng.integers(1, 9, num_stages)],
        layer_type=str(rng.choice(["basic", "bottleneck"])),
        **common,
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng, kind, int(rng.integers(1, 6)))).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, theirs.config)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=["5GB", "2KB"][rng.integers(2)])
    ours = convert.from_huggingface(tmp_path / "theirs")
    outputs, expected = ours({"images": images}), answer(theirs, images, output_hidden_states=True)
    if "Model" in kind.__name__:
        maps = keras.tree.flatten(keras.Model(ours.input, ours.maps)({"images": images}))
        pairs = [
            (outputs["sequence_output"], expected.last_hidden_state.flatten(2).transpose(1, 2)),
            (outputs["pooled_output"], expected.pooler_output[:, :, 0, 0]),
            *((x, y.permute(0, 2, 3, 1)) for x, y in zip(maps, expected.hidden_states[1:], strict=True)),
        ]
        for x, y in pairs:
            y = y.detach().numpy()
            assert np.abs(x - y).max() <= 1e-5 * max(1, np.abs(y).max())
    else:
        assert_close(outputs, expected.logits)
    back = check_way_back(theirs, ours, tmp_path)
    for name in ("image_size", "num_channels", "depths", "embedding_size", "hidden_sizes", "layer_type"):
        assert list(np.ravel(getattr(back.config, name))) == list(np.ravel(getattr(theirs.config, name)))
