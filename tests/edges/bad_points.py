"""Bad clouds of points, and sets of them, as data; rows as in bad_inputs.py."""

from tests.edges.bad_images import PNG
from tests.edges.bad_inputs import Bad

POINTS = "train classify-points --data {folder} --out {out} --num-points 64"
CLOUD = "".join(f"{i} {i * i} {-i}\n" for i in range(20))  # PCT's tiny size looks at 16 neighbours


def beside(name, value):
    """Two classes, of which one has a wrong cloud alone."""
    return {"a/1.xyz": CLOUD, name: value}


BAD = [
    Bad("points: one class", POINTS, "a folder of clouds for each of two classes", {"a/1.xyz": CLOUD}),
    Bad(
        "points: a text",
        POINTS,
        "1.txt: line 2: expected 3 numbers",
        beside("b/1.txt", "1 2 3\nwhat is this"),
    ),
    Bad("points: an image", POINTS, "1.ply: expected a whole file of points", beside("b/1.ply", PNG)),
    Bad("points: NaN", POINTS, "expected finite coordinates, point 1", beside("b/1.xyz", "0 0 0\n1 nan 2\n")),
    Bad("points: few", POINTS, "expected 16 points or more", beside("b/1.xyz", "0 0 0\n" * 15)),
    Bad("points: empty", POINTS, "1.off: expected points, the file has none", beside("b/1.off", "")),
    Bad(
        "points: a file", POINTS.replace("{folder}", "{folder}/a.xyz"), "expected a folder", {"a.xyz": CLOUD}
    ),
    Bad(
        "points: another family",
        f"{POINTS} --family vit",
        "There is no family 'vit'",
        beside("b/1.xyz", CLOUD),
    ),
    Bad(
        "points: fewer than the model samples",
        POINTS.replace("64", "48"),
        "`counts` must be numbers that do not grow, from 48",
        beside("b/1.xyz", CLOUD),
    ),
    Bad(
        "predict: a cloud that is none",
        "predict {run} --data {folder}/1.csv",
        "1.csv, line 1: expected the path of a cloud of points",
        {"1.csv": "1,2\n3,4\n"},
        "classify-points",
    ),
]
