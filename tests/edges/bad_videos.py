"""Bad videos and sets of them as data; rows as in bad_inputs.py. PyAV makes the files."""

import pathlib
import tempfile

from tests.data.sources.made_videos import grey_frames, write_sound, write_video
from tests.edges.bad_images import PNG
from tests.edges.bad_inputs import Bad, option

VIDEOS = "train classify-videos --data {folder} --out {out}"
LIST = VIDEOS.replace("{folder}", "{folder}/list.txt")
PREDICT = "predict {run} --data {folder}/"
SAY = "train caption --data {folder}/pairs.tsv --encoder vivit --out {out}"
MATCH = "train match-images --data {folder}/pairs.tsv --out {out}"
UNLABELLED = "train pretrain-videos --data {folder} --out {out}"
OTHER = PNG[:16] + (9).to_bytes(4, "big") + PNG[20:]  # whose header says that it is wider


def content(write, *arguments):
    """A function that gives the bytes of a file that `write` makes."""

    def make():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "video.mp4")
            write(path, *arguments)
            return path.read_bytes()

    return make


VIDEO = content(write_video, grey_frames([0, 90, 180]))
TWO = {"a/1.mp4": VIDEO, "b/1.mp4": VIDEO}


def beside(name, value):
    """Two classes, of which one has a wrong video alone."""
    return {"a/1.mp4": VIDEO, name: value}


BAD = [
    Bad("videos: one class", VIDEOS, "a folder of videos for each of two classes", {"a/1.mp4": VIDEO}),
    Bad("videos: sound", VIDEOS, "1.mp4: expected a video", beside("b/1.mp4", content(write_sound))),
    Bad(
        "videos: one frame",
        VIDEOS,
        "1.mp4: expected two frames or more, got one",
        beside("b/1.mp4", content(write_video, grey_frames([9]))),
    ),
    Bad("videos: no video", VIDEOS, "1.mp4: expected a video", beside("b/1.mp4", "a text")),
    Bad("videos: empty", VIDEOS, "1.mp4: expected a video", beside("b/1.mp4", "")),
    Bad("videos: images of a class", VIDEOS, "1.png: expected a video", beside("b/1.png", PNG)),
    Bad(
        "videos: frames of two sizes",
        LIST,
        "2.png: expected a frame of 8 x 8 pixels, as the first, got 9 x 8",
        {"list.txt": "a x\nb y\n", "a/1.png": PNG, "a/2.png": PNG, "b/1.png": PNG, "b/2.png": OTHER},
    ),
    Bad(
        "videos: no label",
        LIST,
        "list.txt, line 1: expected a label",
        {"list.txt": "1.mp4\n", "1.mp4": VIDEO},
    ),
    Bad("videos: an empty list", LIST, "list.txt: expected", {"list.txt": "\n"}),
    Bad(
        "videos: frames by seconds",
        f"{LIST} --seconds-per-frame 1",
        "expected a video file to choose frames by seconds",
        {"list.txt": "a x\nb y\n", "a/1.png": PNG, "a/2.png": PNG, "b/1.png": PNG, "b/2.png": PNG},
    ),
    Bad(
        "videos: two samplings", f"{VIDEOS} --frame-step 2 --seconds-per-frame 1", "--seconds-per-frame", TWO
    ),
    option("--num-frames 0", "must be at least 1", VIDEOS),
    option("--frame-step 0", "must be at least 1", VIDEOS),
    option("--seconds-per-frame 0", "must be above 0", VIDEOS),
    option("--num-views 0", "must be at least 1", VIDEOS),
    Bad(
        "predict: no video",
        PREDICT + "none.mp4",
        "none.mp4: cannot be read: No such file",
        {},
        "classify-videos",
    ),
    Bad(
        "captions: sound",
        SAY,
        "1.mp4: expected a video",
        {"pairs.tsv": "1.mp4\ta sound\n", "1.mp4": content(write_sound)},
    ),
    Bad(
        "captions: one frame",
        SAY,
        "1.mp4: expected two frames or more, got one",
        {"pairs.tsv": "1.mp4\ta still\n", "1.mp4": content(write_video, grey_frames([9]))},
    ),
    Bad(
        "captions: a video elsewhere",
        SAY,
        "expected the path of a video inside",
        {"pairs.tsv": "../1.mp4\ta\n"},
    ),
    Bad(
        "captions: videos in a model of images",
        f"{SAY} --encoder vit --num-frames 4",
        "'vit' reads images",
        {},
    ),
    Bad("match: frames of images", f"{MATCH} --num-frames 4", "--num-frames must be left out: 'clip'", {}),
    Bad(
        "match: cross layers of images",
        f"{MATCH} --cross-layers 2",
        "--cross-layers must be 0 for 'clip'",
        {},
    ),
    Bad("pre-training: no videos", UNLABELLED, "1.mp4: expected a video", {"1.mp4": "a text"}),
    Bad("pre-training: another family", f"{UNLABELLED} --family vivit", "invalid choice: 'vivit'", {}),
    Bad(
        "pre-training: a decoder",
        f"{UNLABELLED} --decoder-dim 20",
        "--decoder-dim must be a multiple of 32",
        {},
    ),
    Bad(
        "predict: a still image",
        PREDICT + "1.mp4",
        "1.mp4: expected two frames or more, got one",
        {"1.mp4": content(write_video, grey_frames([9]))},
        "classify-videos",
    ),
]
