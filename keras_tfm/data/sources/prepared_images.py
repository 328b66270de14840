"""Data sets of TFDS that say where things are in an image: boxes around objects, or a mask.

Objects are the feature "objects", a sequence of {"bbox", "label"} and perhaps "is_crowd", as in coco, or
"is_difficult", as in voc; masks are images, "segmentation_mask" for example, as in oxford_iiit_pet.
"""

from collections.abc import Iterator

from keras_tfm.configs import brief
from keras_tfm.data.sources.crowds import BoxDetails
from keras_tfm.data.sources.image_files import size_in
from keras_tfm.data.sources.images import IMAGES, bytes_of
from keras_tfm.data.sources.pictures import Picture
from keras_tfm.data.sources.rows import Columns, Row, one_of_each, read_all

OBJECTS = ("objects",)
FLAGS = ("is_crowd", "is_difficult")  # of each object
MASKS = ("segmentation_mask", "segmentation_label", "mask", "annotation")
PICTURES = (*IMAGES, "image_left")  # of cityscapes


def prepared_objects(path: str) -> Iterator[Picture]:
    """The image of each example of "tfds:NAME#SPLIT", with (boxes in pixels, their names).

    TFDS has boxes as (top, left, bottom, right) in parts of the sides. The names of boxes around crowds,
    and of difficult objects, are `BoxDetails`.
    """
    chosen = Columns(("image", "objects"), one_of_each(PICTURES, OBJECTS))
    for row in read_all(path, chosen, "images and their objects"):
        data, objects = bytes_of(row), row.cells[1]
        if not isinstance(objects, dict) or not {"bbox", "label"} <= objects.keys():
            row.refuse(f'expected a sequence of "bbox" and "label" as {row.names[1]}, got {brief(objects)}')
        height, width = size_in(data) or (1, 1)
        flags = [objects.get(name) or [False] * len(objects["label"]) for name in FLAGS]
        boxes: list[list[float]] = []
        labels: list[str | BoxDetails] = []
        for box, label, *marks in zip(objects["bbox"], objects["label"], *flags, strict=True):
            if label is None:
                row.refuse("expected a label for each box, one has none")
            top, left, bottom, right = box
            boxes.append([left * width, top * height, right * width, bottom * height])
            labels.append(BoxDetails(str(label), None, *marks) if any(marks) else str(label))
        yield Picture(data, _place(row), (boxes, labels))


def prepared_masks(path: str) -> Iterator[Picture]:
    """The image of each example of "tfds:NAME#SPLIT", with the bytes of its mask."""
    chosen = Columns(("image", "mask"), one_of_each(PICTURES, MASKS))
    for row in read_all(path, chosen, "images and their masks"):
        mask = bytes_of(row._replace(cells=row.cells[1:], names=row.names[1:]))
        yield Picture(bytes_of(row), _place(row), mask)


def _place(row: Row) -> str:
    return f"{row.path}, {row.place}"
