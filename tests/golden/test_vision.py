"""Vision's families against the stored outputs of their references, made by make_vision.py."""

import json
import pathlib

import numpy as np
import pytest

from keras_tfm.training.safetensors import CheckpointError
from tests.parity.golden import TOLERANCE, errors_of, main

FOLDER = pathlib.Path(__file__).parent
NUM_OUTPUTS = {
    "autoformer": 5,
    "cat": 4,
    "ceit": 8,
    "cmt": 5,
    "deepvit": 7,
    "glit": 7,
    "hvt": 7,
    "kvt": 6,
    "levit": 4,
    "localvit": 6,
    "regionvit": 9,
    "smca": 3,
    "up_detr": 7,
    "vilbert": 6,
    "vilbert_connection_layer": 4,
    "xcit": 7,
}


@pytest.mark.parametrize("family", NUM_OUTPUTS)
def test_family(family):
    _, errors = errors_of(FOLDER / f"{family}.npz")
    assert len(errors) == NUM_OUTPUTS[family]
    assert max(errors.values()) <= TOLERANCE, errors


def test_updetr_of_fewer_patches(tmp_path):
    """Queries attend to queries of their own patch alone, so that the first patches' answers stay."""
    with np.load(FOLDER / "up_detr.npz") as file:
        arrays = dict(file)
    config = json.loads(str(arrays["config"]))
    config["args"]["patches_given"] = 2
    arrays["config"] = np.array(json.dumps(config))
    arrays["patch_features"] = arrays["patch_features"][:, :2]
    arrays["attention_mask_allowed"] = arrays["attention_mask_allowed"][:6, :6]
    arrays["gt_feature"] = arrays["gt_feature"].reshape(3, 3, -1)[:, :2].reshape(6, -1)
    for name in arrays.keys() - {"attention_mask_allowed"}:
        if arrays[name].shape[:2] == (3, 9):  # outputs of three images' nine queries
            arrays[name] = arrays[name][:, :6]
    np.savez(tmp_path / "fewer.npz", **arrays)
    _, errors = errors_of(tmp_path / "fewer.npz")
    assert len(errors) == NUM_OUTPUTS["up_detr"] and max(errors.values()) <= TOLERANCE, errors
    config["args"]["patches_given"] = 4
    np.savez(tmp_path / "more.npz", **arrays | {"config": np.array(json.dumps(config))})
    with pytest.raises(CheckpointError, match="patches_given: expected at most 3, got 4"):
        errors_of(tmp_path / "more.npz")


def test_other_files_are_refused_in_one_line(tmp_path):
    path = tmp_path / "other.npz"
    for write in (lambda: None, lambda: path.write_bytes(b"PK cut short"), lambda: np.savez(path, x=1)):
        write()
        with pytest.raises(SystemExit, match=r"expected an \.npz file with a JSON `config`"):
            main([str(path)])


def test_the_command_tells_what_it_does_not_know_and_what_differs(tmp_path, capsys):
    with np.load(FOLDER / "xcit.npz") as file:
        arrays = dict(file)
    path = tmp_path / "other.npz"
    np.savez(path, **arrays | {"config": json.dumps({"class": "timm.models.xcit.XcitOther", "args": {}})})
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  has no reader in tests.parity.references"]
    np.savez(path, **arrays | {"logits": arrays["logits"] + 1e-3, "features/more": arrays["logits"]})
    assert main([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "more than" in line] == ["logits", "features/more"]
