"""Bad images of roads, and files of lanes, as data; rows as in bad_inputs.py."""

import json

from tests.edges.bad_images import PNG
from tests.edges.bad_inputs import Bad

LANES = "train find-lanes --data {folder}/lanes.json --out {out}"


def beside(**changes):
    """An image and TuSimple's line for it, with `changes`."""
    row = {"raw_file": "a.png", "h_samples": [0, 1], "lanes": [[0, 1]]} | changes
    return {"a.png": PNG, "lanes.json": json.dumps(row)}


BAD = [
    Bad("lanes: no lanes", LANES, "expected lanes, there are none", beside(lanes=[])),
    Bad(
        "lanes: fewer points than heights", LANES, "expected an x for each of 2 heights", beside(lanes=[[1]])
    ),
    Bad("lanes: words", LANES, 'expected lists of numbers as "lanes"', beside(lanes=[["a", "b"]])),
    Bad("lanes: no image", LANES, "b.png: cannot be read", beside(raw_file="b.png")),
    Bad("lanes: outside of the folder", LANES, "a.png", beside(raw_file="../a.png")),
    Bad("lanes: no TuSimple file", LANES, 'a path as "raw_file"', {"lanes.json": '{"image": "a.png"}'}),
]
