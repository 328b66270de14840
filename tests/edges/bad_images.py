"""Bad images and sets of them as data; rows as in bad_inputs.py. Pillow makes the files."""

import io
import json

import numpy as np
import PIL.Image

from tests.edges.bad_inputs import IMAGES, Bad, option


def image(kind="PNG", size=(8, 8)):
    """A small image's file."""
    buffer = io.BytesIO()
    pixels = np.resize(np.arange(192, dtype="uint8"), (size[1], size[0], 3))
    PIL.Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


PNG, JPEG, WIDE = image(), image("JPEG"), image(size=(128, 64))
GENERATE = IMAGES.replace("classify-images", "generate-images")
RESTORE = IMAGES.replace("classify-images", "restore-images")
PRETRAIN = IMAGES.replace("classify-images", "pretrain-images")
BOMB = PNG[:16] + (2**20).to_bytes(4, "big") * 2 + PNG[24:]
TWO = {"a/1.png": PNG, "b/1.png": PNG}
WHOLE = "expected a whole PNG or JPEG image"


def archive(**arrays):
    """A function that makes an .npz."""

    def make():
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    return make


def source(name):
    """The training by one file."""
    return IMAGES.replace("--data {folder}", f"--data {{folder}}/{name}")


DETECT = "train detect --data {folder}/boxes.jsonl --out {out}"


SEGMENT = "train segment --data {folder} --out {out}"


def mask(values):
    """The file of a mask."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(np.array(values, "uint8")).save(buffer, "PNG")
    return buffer.getvalue()


PAIR = {"images": PNG, "masks": mask(np.full((8, 8), 255) * (np.arange(8) > 3))}


def boxes(message, line, name):
    """JSON lines of boxes, of which one is wrong."""
    return Bad(name, DETECT, message, {"boxes.jsonl": line, "1.png": PNG})


def coco_segments(name, changes, message):
    """A file of COCO's instances, of which a part is wrong."""
    content = {"images": [{"id": 1, "file_name": "1.png"}], "annotations": []}
    content |= {"categories": [{"id": 2, "name": "x"}]} | changes
    return Bad(
        name,
        SEGMENT.replace("{folder} ", "{folder}/a.json "),
        message,
        {"a.json": json.dumps(content), "1.png": PNG},
    )


BAD = [
    Bad("no folder of images", source("none"), "none: cannot be read: No such file"),
    Bad(
        "images in one class",
        IMAGES,
        "for each of two classes or more, got 1",
        {"a/1.png": PNG},
    ),
    Bad("images without classes", IMAGES, "for each of two classes or more, got 0", {"1.png": PNG}),
    Bad("an empty class", IMAGES, "b: expected images, the folder is empty", {"a/1.png": PNG, "b/.x": b""}),
    Bad("a class of texts", IMAGES, f"b/1.txt: {WHOLE}", {"a/1.png": PNG, "b/1.txt": b"text"}),
    Bad("a class of cut images", IMAGES, f"b/1.jpg: {WHOLE}", {"a/1.png": PNG, "b/1.jpg": JPEG[:-20]}),
    Bad(
        "a class of bombs",
        IMAGES,
        "67,108,864 pixels at most, got 1,048,576 x 1,048,576",
        {"a/1.png": PNG, "b/1.png": BOMB},
    ),
    Bad(
        "a file as a folder",
        source("a.txt"),
        "a.txt: expected a folder of images by class; .npz, idx",
        {"a.txt": b"x"},
    ),
    Bad(
        "an archive of others",
        source("a.npz"),
        "expected arrays images and labels, got 'q'",
        {"a.npz": archive(q=[1])},
    ),
    Bad(
        "an archive cut short",
        source("a.npz"),
        "expected an .npz of images and labels",
        {"a.npz": archive(images=[1])()[:40]},
    ),
    Bad(
        "idx files that are none",
        source("t-images-idx3-ubyte"),
        "expected an idx file of bytes",
        {"t-images-idx3-ubyte": b"x"},
    ),
    boxes("expected a path within", '{"image": "../1.png"}', "a path that leads out of the folder"),
    boxes(
        "line 1: expected a box of four numbers, got [1]",
        '{"image": "1.png", "boxes": [[1]], "labels": ["a"]}',
        "a box of one number",
    ),
    boxes("expected boxes, there are none", '{"image": "1.png"}', "images without boxes"),
    Bad(
        "a size of a detector", f"{DETECT} --size 52", "DeformableDETR has no size '52'; it has tiny, 50", TWO
    ),
    Bad(
        "a kind of detector",
        f"{DETECT} --family yolo",
        "there are deformable-detr, conditional-detr, detr, smca, rt-detr",
        TWO,
    ),
    Bad(
        "COCO's file without images",
        DETECT.replace("boxes.jsonl", "a.json"),
        'a.json: expected a list of objects as "images", got None',
        {"a.json": "{}"},
    ),
    option("--queries 0", "must be at least 1", DETECT),
    Bad("images without masks", SEGMENT, "expected a folder with images/ and masks/", {"images/1.png": PNG}),
    Bad(
        "a mask of another size",
        SEGMENT,
        "1.png: expected a mask of 8 x 8, as the image, got 2 x 1",
        {"images/1.png": PNG, "masks/1.png": mask([[0, 1]])},
    ),
    Bad(
        "masks of one class",
        SEGMENT,
        "expected masks with two classes or more, got 0 alone; 255 is ignored unless --ignored is -1",
        {f"{part}/{i}.png": x for part, x in PAIR.items() for i in range(4)},
    ),
    Bad(
        "a mask that leads out of the folder",
        SEGMENT.replace("{folder} ", "{folder}/a.jsonl "),
        "a.jsonl, line 1: expected a path within",
        {"a.jsonl": '{"image": "1.png", "mask": "../1.png"}', "1.png": PNG},
    ),
    coco_segments(
        "an image without a file", {"images": [{"id": 1}]}, '"images", item 1: expected "id" and "file_name"'
    ),
    coco_segments(
        "an image that leads out of the folder",
        {"images": [{"id": 1, "file_name": "../1.png"}]},
        "a.json, image 1: expected a path within",
    ),
    coco_segments(
        "segments of a category that is none",
        {"annotations": [{"image_id": 1, "category_id": 7}] * 3},
        'annotation 1 has 7 as "category_id" (2 more annotations are alike)',
    ),
    coco_segments(
        "segments that are no polygons",
        {"annotations": [{"image_id": 1, "category_id": 2, "segmentation": 3}]},
        'a.json, image 1, segment 1: expected polygons or an RLE as "segmentation", got 3',
    ),
    option("--least-area 0", "must be at least 0.01", SEGMENT),
    option("--ignored 256", "must be at most 255", SEGMENT),
    Bad("a decoder of maps", f"{SEGMENT} --decoder fpn", "invalid choice: 'fpn'"),
    option("--threshold 2", "must be at most 1", DETECT),
    Bad("a family of models", f"{IMAGES} --family nosuch", "There is no family 'nosuch'; there are", TWO),
    Bad(
        "a size of a family",
        f"{IMAGES} --family deit --size nosuch",
        "DeiT has no size 'nosuch'; it has tiny, Ti, S, B",
        TWO,
    ),
    Bad(
        "a model of texts",
        f"{IMAGES} --from {{run}}",
        "--from: a 'classify' task reads no images",
        TWO,
        "classify",
    ),
    Bad(
        "a teacher that is not there",
        f"{IMAGES} --teacher {{folder}}/none",
        "--teacher must be the folder of a task; ",
        TWO,
    ),
    Bad(
        "a model of texts to pre-train",
        f"{PRETRAIN} --from {{run}}",
        "--from: a 'classify' task reads no images",
        {"1.png": PNG},
        "classify",
    ),
    Bad("no pictures to learn", GENERATE, "expected images, the folder is empty", {".x": b""}),
    Bad("a family that makes none", f"{GENERATE} --family vit", "There is no family 'vit'", {"1.png": PNG}),
    option("--class-dropout 1", "must be below 1", GENERATE),
    option("--guidance nan", "must be a number", GENERATE),
    option("--steps 10000", "must be at most 1,000", GENERATE),
    option("--steps 0", "must be at least 1", "predict {run}"),
    option("--guidance inf", "must be a number", "predict {run}"),
    Bad("no pictures to mend", RESTORE, "expected images, the folder is empty", {".x": b""}),
    Bad(
        "pictures too small for a crop",
        RESTORE,
        "1.png: expected at least 96 x 96 pixels, got 8 x 8",
        {"1.png": PNG},
    ),
    Bad("a broken picture to mend", RESTORE, f"1.jpg: {WHOLE}", {"1.jpg": JPEG[:-20]}),
    Bad("a family that mends nothing", f"{RESTORE} --family vit", "There is no family 'vit'", {"1.png": PNG}),
    Bad("what is mended", f"{RESTORE} --restore x5", "--restore must be some of x2, x3, x4", {"1.png": PNG}),
    Bad("mended twice", f"{RESTORE} --restore x2,x2", "--restore must be different names", {"1.png": PNG}),
    Bad(
        "what a reference is for",
        f"{RESTORE} --family ttsr --restore x2",
        "--restore must be x4, which is all that ttsr mends; it is 'x2'",
        {"1.png": WIDE},
    ),
    Bad(
        "a picture without room for its reference",
        f"{RESTORE} --family ttsr --size tiny",
        "1.png: expected at least 32 x 64 pixels, got 8 x 8",
        {"1.png": PNG},
    ),
    Bad(
        "a broken reference",
        f"{RESTORE} --family ttsr --size tiny".replace("{folder}", "{folder}/pairs.csv"),
        "1.png: its reference: expected a whole PNG or JPEG image",
        {"pairs.csv": b"image,reference\n1.png,2.jpg\n", "1.png": WIDE, "2.jpg": JPEG[:-20]},
    ),
    option("--crop 4", "must be at least 8", RESTORE),
    option("--crops 0", "must be at least 1", RESTORE),
    Bad("no images to pre-train on", PRETRAIN, "expected images, the folder is empty", {".x": b""}),
    Bad("a method", f"{PRETRAIN} --method simclr", "invalid choice: 'simclr'"),
    Bad(
        "a decoder's width",
        f"{PRETRAIN} --decoder-dim 40",
        "--decoder-dim must be a multiple of 32; it is 40",
    ),
    option("--teacher-momentum 2", "must be at most 1", PRETRAIN),
    Bad(
        "areas of crops",
        f"{PRETRAIN} --least-area 0.5",
        "--least-area must be at most --parting-area, 0.4; it is 0.5",
    ),
    Bad(
        "timm has no classifiers of texts",
        "convert {run} --to-timm {out}",
        "timm has no counterpart of the task 'classify'",
        {},
        "classify",
    ),
    option("--image-size 0", "must be at least 1", IMAGES),
    option("--crop-fraction 0", "must be at least 0.1", IMAGES),
    option("--mixup -1", "must be at least 0", IMAGES),
    option("--cutmix 2", "must be at most 1", IMAGES),
    option("--least-area 0", "must be at least 0.01", IMAGES),
    option("--teacher-temperature 0", "must be above 0", IMAGES),
    option("--teacher-weight 2", "must be at most 1", IMAGES),
    Bad("an augmentation", f"{IMAGES} --augment much", "invalid choice: 'much'"),
    Bad("an interpolation", f"{IMAGES} --interpolation nearest", "invalid choice: 'nearest'"),
    Bad(
        "predict: no image",
        "predict {run} --data {folder}/none.png",
        "none.png: cannot be read: No such file",
        {},
        "classify-images",
    ),
]
