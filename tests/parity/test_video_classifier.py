"""Live: folders of transformers with videos and classes, by the task and back, and their preprocessing."""

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError
from keras_tfm.tasks import VideoClassifier
from tests.parity.images import draw_weights

pytestmark = pytest.mark.parity
SIZES = {"image_size": 12, "num_frames": 4, "hidden_size": 8, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "intermediate_size": 16, "id2label": {0: "up", 1: "down", 2: "still"}}
KINDS = {
    "VideoMAE": {"patch_size": 4, "tubelet_size": 2},
    "Timesformer": {"patch_size": 4},
    "Vivit": {"tubelet_size": [2, 4, 4]},
}
PROCESSORS = {
    "VideoMAE": transformers.VideoMAEImageProcessor(size={"shortest_edge": 15}, crop_size=12),
    "Timesformer": transformers.VideoMAEImageProcessor(
        size={"height": 12, "width": 12}, do_center_crop=False, image_mean=[0.45] * 3, image_std=[0.225] * 3
    ),
    "Vivit": transformers.VivitImageProcessor(size={"shortest_edge": 15}, crop_size=12),
}
CUT = {"size": {"shortest_edge": 15}, "crop_size": {"height": 12, "width": 12}}


def published(kind, folder, suffix="ForVideoClassification"):
    """A folder of theirs, and its model."""
    config = getattr(transformers, f"{kind}Config")(**SIZES, **KINDS[kind])
    model = getattr(transformers, f"{kind}{suffix}")(config).eval()
    draw_weights(np.random.default_rng(0), model)
    model.save_pretrained(folder)
    PROCESSORS[kind].save_pretrained(folder)
    return model


def videos(side):
    """Smooth 8-bit videos, which are resized alike within a grey level."""
    ramp = np.linspace(0, 3, side)
    waves = np.sin(ramp[:, None] + 2 * ramp + np.arange(4)[:, None, None] + np.arange(2)[:, None, None, None])
    return (127 + 120 * waves[..., None] * [1, 0.5, -1]).round().astype("uint8")


def probabilities(model, folder, clips):
    """What theirs answers by the processor in a folder."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    pixels = processor([list(clip) for clip in clips], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixel_values=pixels).logits.softmax(-1).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_with_classes_and_back(kind, tmp_path):
    theirs = published(kind, tmp_path / "theirs")
    ours = tasks.from_huggingface(tmp_path / "theirs")
    assert isinstance(ours, VideoClassifier) and ours.class_names.tolist() == ["up", "down", "still"]
    for side, tolerance in ((12 if kind == "Timesformer" else 15, 1e-5), (40, 0.02)):
        expected = probabilities(theirs, tmp_path / "theirs", videos(side))
        np.testing.assert_allclose(ours.probabilities(videos(side)), expected, atol=tolerance)
    ours.save(tmp_path / "run")
    kept = tasks.load(tmp_path / "run")
    np.testing.assert_array_equal(kept.probabilities(videos(40)), ours.probabilities(videos(40)))
    kept.save_huggingface(tmp_path / "back")
    again = getattr(transformers, f"{kind}ForVideoClassification").from_pretrained(tmp_path / "back")
    assert again.config.id2label == {0: "up", 1: "down", 2: "still"}
    expected = probabilities(again.eval(), tmp_path / "back", videos(40))
    np.testing.assert_allclose(ours.probabilities(videos(40)), expected, atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_a_video_processor(kind, tmp_path):
    """Its file alone, as `AutoVideoProcessor` writes it."""
    theirs = published(kind, tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    getattr(transformers, f"{kind}VideoProcessor")(**CUT).save_pretrained(tmp_path)
    processor = transformers.AutoVideoProcessor.from_pretrained(tmp_path)
    pixels = processor(list(videos(15).transpose(0, 1, 4, 2, 3)), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = theirs(pixel_values=pixels).logits.softmax(-1).numpy()
    ours = tasks.from_huggingface(tmp_path)
    np.testing.assert_allclose(ours.probabilities(videos(15)), expected, atol=1e-5)


def test_a_folder_without_classes_gets_a_head(tmp_path):
    published("VideoMAE", tmp_path / "folder", "Model")
    with pytest.raises(CheckpointError, match="one for 'classify-videos'"):
        VideoClassifier.from_huggingface(tmp_path / "folder")
    examples = videos(12), ["left", "right"]
    task = VideoClassifier.start_from(tmp_path / "folder", examples, frame_step=2)
    assert task.class_names.tolist() == ["left", "right"] and task.config.frame_step == 2
    fields = VideoClassifier.reading(task.model_options(), {}, tmp_path / "folder")
    assert fields["video_shape"] == (4, 12, 12, 3) and fields["preprocessing"] == task.preprocessing
