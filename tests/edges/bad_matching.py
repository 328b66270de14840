"""Bad images and texts, labels and indexes as data; rows as in bad_inputs.py."""

import json

from tests.edges.bad_images import PNG, WHOLE
from tests.edges.bad_inputs import Bad, option

TRAIN = "train match-images --data {folder}/pairs.tsv --out {out}"
CLASSIFY = "classify-zero-shot {run} --labels {folder}/labels.txt --data {folder}/a.png"
INDEX = "search index {run} --data {folder}/a.png --out {folder}/index"
CAPTION = "train caption --data {folder}/pairs.tsv --out {out}"
SAY = "predict {run} --data {folder}/a.png"
QUERY = "search query {folder}/index --text red"
LABELS = {"labels.txt": "red\nblue\n", "a.png": PNG}
PAIR = {"pairs.tsv": "a.png\ta\n", "a.png": PNG}
OTHER = "a 'recommend' task does not match images and texts"
CONTENT = json.dumps({"model": "/none/at/all", "fingerprint": "x", "width": 16})
DESCRIBED = {"index/index.json": CONTENT}


def table(name, content, message):
    """A table of images and texts, beside the image a.png."""
    return Bad(f"pairs: {name}", TRAIN, message, {"pairs.tsv": content, "a.png": PNG})


def labels(name, content, message, command=CLASSIFY):
    """A file of labels."""
    return Bad(f"labels: {name}", command, message, {**LABELS, "labels.txt": content}, "match-images")


BAD = [
    table("nothing", "", "pairs.tsv: expected images and texts, the file is empty"),
    table("one column", "a.png\n", "expected 2 columns, image and text, got 1"),
    table("an empty caption", "a.png\ta\na.png\t \n", "line 2: expected a text, the text is empty"),
    table("no path", "\ta\n", "line 1: expected a text, the image is empty"),
    table("a missing picture alone", "none.png\ta\n", "none.png: cannot be read: No such file"),
    table("a broken picture alone", "pairs.tsv\ta\n", f"pairs.tsv: {WHOLE}"),
    table("a path out of the folder", "../a.png\ta\n", "expected the path of an image inside"),
    table("an absolute path", "/etc/passwd\ta\n", "expected the path of an image inside"),
    Bad("pairs: a picture", TRAIN.replace("pairs.tsv", "a.png"), "expected a .tsv, .csv, .jsonl", LABELS),
    option("--max-length 0", "must be at least 1", TRAIN),
    option("--family vit", "invalid choice", TRAIN)._replace(message="invalid choice: 'vit'"),
    Bad("match-images: no such size", f"{TRAIN} --size huge", "CLIP has no size 'huge'; it has tiny, B/32"),
    labels("none", "", "labels.txt: expected two labels or more, got 0"),
    labels("one", "red\n", "expected two labels or more, got 1"),
    labels("a blank", "red\n\nblue\n", "labels.txt, line 2: expected a label, the line is blank"),
    labels("one twice", "red\nblue\nred \n", "line 3: the label 'red' is in line 1 too"),
    labels("a template of none", "a\nb\n", "`template` must have {} where", f"{CLASSIFY} --template photo"),
    labels("no picture", "a\nb\n", "none.png: cannot be read", CLASSIFY.replace("a.png", "none.png")),
    labels("no model", "a\nb\n", "CLIP or SigLIP; there is no", CLASSIFY.replace("{run}", "{folder}/none")),
    Bad("zero-shot by another task", CLASSIFY, OTHER, LABELS, "recommend"),
    Bad("index by another task", INDEX, OTHER, LABELS, "recommend"),
    Bad("index of a text", INDEX.replace("a.png", "labels.txt"), WHOLE, LABELS, "match-images"),
    Bad("index over a file", INDEX.replace("/index", "/a.png"), "a.png is a file", LABELS, "match-images"),
    Bad("query of no index", QUERY, "no index of images, it has no index.json"),
    Bad("query of a damaged index", QUERY, "index.json: IndexConfig needs", {"index/index.json": "{}"}),
    Bad("query by a model that is gone", QUERY, "its model is no longer at /none/at/all", DESCRIBED),
    Bad("query by nothing", QUERY.partition(" --")[0], "arguments --text --image/--video is required"),
    Bad(
        "query by another model",
        f"{QUERY} --model {{run}}",
        "the index was made by another model, /none/at/all",
        DESCRIBED,
        "match-images",
    ),
    Bad(
        "query by vectors of another width",
        f"{QUERY} --model {{run}}",
        "the index has vectors of 9 numbers, the model makes 16: make a new one",
        {"index/index.json": CONTENT.replace("16", "9")},
        "match-images",
    ),
    Bad(
        "index of another model",
        INDEX,
        "the index was made by another model",
        LABELS | DESCRIBED,
        "match-images",
    ),
    option("--top 0", "must be at least 1", QUERY),
    Bad("captions: an empty one", CAPTION, "line 1: expected a text", {"pairs.tsv": "a.png\t\n"}),
    Bad("captions: a missing picture alone", CAPTION, "none.png: cannot be", {"pairs.tsv": "none.png\ta\n"}),
    Bad("captions: a path out of the folder", CAPTION, "an image inside", {"pairs.tsv": "../a.png\ta\n"}),
    Bad("captions: a folder of images", CAPTION.replace("/pairs.tsv", ""), "a .txt beside", {"a.png": PNG}),
    Bad("captions: a broken picture", SAY, WHOLE, {"a.png": b"\x89PNG"}, "caption"),
    Bad("captions: more tokens than it holds", f"{SAY} --max-new-tokens 99", "[1, 39]", LABELS, "caption"),
    Bad("captions: beams that draw", f"{SAY} --beam 2 --top-k 2", "Beam search does", LABELS, "caption"),
    Bad("captions: from another task", f"{CAPTION} --from {{run}}", "a 'caption' task", PAIR, "recommend"),
    Bad("captions: no such encoder", f"{CAPTION} --encoder bert", "There is no encoder 'bert'", PAIR),
    option("--decoder t5", "invalid choice", CAPTION)._replace(message="invalid choice: 't5'"),
]  # fmt: skip
