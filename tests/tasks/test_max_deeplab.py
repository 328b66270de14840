"""Segmenting by MaX-DeepLab, by the command line."""

import dataclasses
import json

import numpy as np
import PIL.Image
import pytest

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.models import MaxDeepLab
from tests.models.test_max_deeplab import COARSE
from tests.tasks.test_segmenter import examples


@pytest.mark.slow
def test_the_command_line(tmp_path, capsys):
    images, masks = examples(6)
    for name, arrays in (("images", images), ("masks", masks)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for row, array in enumerate(arrays):
            PIL.Image.fromarray(array).save(tmp_path / "data" / name / f"{row}.png")
    config = dataclasses.replace(COARSE, frozen_norms=False)
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    data, run, config = (str(tmp_path / name) for name in ("data", "run", "config.json"))
    train = ["train", "segment", "--train", data, "--out", run, "--family", "maxdeeplab", "--config", config]
    main([*train, "--epochs", "2", "--batch-size", "3"])
    main(["evaluate", run, "--data", data])
    assert json.loads(capsys.readouterr().out).keys() >= {"miou", "pixel_accuracy", "images"}
    task, again = tasks.load(run), tasks.load(run)
    assert type(task.model.backbone) is MaxDeepLab
    for a, b in zip(task.predict(images), again.predict(images), strict=True):
        assert a["mask"].shape == (16, 24) and set(np.unique(a["mask"])) <= {0, 7, 200}
        np.testing.assert_array_equal(a["mask"], b["mask"])
