"""Bad files of poses, as data; rows as in bad_inputs.py."""

import io

import numpy as np

from tests.edges.bad_inputs import Bad

POSES = "train keypoints --data {folder}/poses.npz --out {out}"
CLOUDS = f"{POSES} --family hand-transformer"
GOOD = {"joints": np.eye(3)[None].repeat(4, 0), "joints_2d": np.eye(3)[None, :, :2].repeat(4, 0)}
GOOD["points"] = GOOD["joints"] * 2


def beside(leave_out="", **changes):
    """A file of four poses, with `changes`, and without one array."""
    arrays = {name: x for name, x in (GOOD | changes).items() if name != leave_out}

    def content():
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    return {"poses.npz": content}


def at(row, value, name="joints"):
    """The array of this name, with one wrong number in a row."""
    array = GOOD[name].copy()
    array[row, 1, 1] = value
    return {name: array}


BAD = [
    Bad("poses: NaN", POSES, "`joints`: expected finite numbers, row 2 has nan", beside(**at(2, np.nan))),
    Bad("poses: infinite", POSES, "row 1 has inf", beside(**at(1, np.inf, "joints_2d"))),
    Bad(
        "poses: no rows", POSES, "`joints`: expected poses, there are none", beside(joints=np.ones((0, 3, 3)))
    ),
    Bad("poses: no joints", POSES, "expected an array joints, got", beside("joints")),
    Bad("poses: no places", POSES, "--family hand-transformer reads points", beside("joints_2d")),
    Bad("poses: no clouds", CLOUDS, "--family hot-net reads joints_2d", beside("points")),
    Bad(
        "poses: other joints in the image",
        POSES,
        "expected the same joints in the image and in space, got 2 in the image and 3 in space",
        beside(joints_2d=GOOD["joints_2d"][:, :2]),
    ),
    Bad(
        "poses: fewer clouds",
        CLOUDS,
        "as many points as joints, got 3 and 4",
        beside(points=GOOD["points"][:3]),
    ),
    Bad("poses: flat", POSES, "(N, count, 3), got float64 (4, 3, 2)", beside(joints=GOOD["joints_2d"])),
    Bad("poses: words", POSES, "numbers of the shape", beside(joints=np.full((4, 3, 3), "x"))),
    Bad(
        "poses: equal points",
        CLOUDS,
        "`points`: expected points that differ, row 0 has equal ones alone",
        beside(points=np.ones((4, 9, 3))),
    ),
    Bad("poses: names", POSES, "`joint_names`: expected 3 different ones", beside(joint_names=["a", "b"])),
    Bad("poses: edges", POSES, "`edges`: expected joints from 0 to 2, got 0 to 3", beside(edges=[[0, 3]])),
    Bad("poses: a text", POSES, "expected an .npz of poses", {"poses.npz": "joints"}),
    Bad(
        "poses: another name", POSES.replace("npz", "csv"), "expected an .npz of poses", {"poses.csv": "1,2"}
    ),
    Bad("poses: another family", f"{POSES} --family metro", "There is no family 'metro'", beside()),
    Bad("poses: columns", f"{POSES} --columns a,b", "--columns", beside()),
    Bad(
        "predict: a pose without places",
        "predict {run} --data {folder}/poses.npz",
        "expected an array joints_2d, got joints, points; --family hand-transformer",
        beside("joints_2d"),
        "keypoints",
    ),
]
