"""Images with the class of every pixel: folders of images and of masks, JSON lines that name both, or TFDS.

The image FOLDER/images/NAME.jpg has the mask FOLDER/masks/NAME.png, where NAME may contain subfolders;
instead of FOLDER two folders can be given, the images' first. JSON lines are {"image": path, "mask": path};
paths are relative to the file's folder and must stay inside. Masks are PNGs, see `mask_files`. The lines of
classes.txt, in FOLDER or in the folder of the JSON lines, name the values 0, 1, ...; without it each value
that occurs is a class, named by its number.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import path_within
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.lines import LINES, PREPARED, DataError, files_of, json_lines, numbered_lines
from keras_tfm.data.sources.mask_files import MANY, MaskFiles, decoded_mask, encoded_mask
from keras_tfm.data.sources.mask_values import mixed_values, tell_ignored, too_few, unknown_values, values_of
from keras_tfm.data.sources.pictures import Checked, Picture, checked_pictures, read_pictures
from keras_tfm.data.sources.prepared_images import prepared_masks
from keras_tfm.data.sources.stated_sizes import drawn_on
from keras_tfm.serving.image_headers import Header, Size, turned

KINDS = (
    "a folder with images/ and masks/, PNGs of the same names; two folders, images first; or a .jsonl of "
    '{"image": path, "mask": path}; or tfds:NAME[/CONFIG][:VERSION]#SPLIT'
)
CLASSES = "classes.txt"
STRETCHED = Canvas()


class Masks(NamedTuple):
    """Images, their original (height, width) (N, 2), and the class of every pixel of each.

    Masks are files or an array (N, H, W); their values stand for classes.

    >>> images, sizes = np.zeros((1, 8, 8, 3), "uint8"), np.array([(8, 8)])
    >>> data = keras_tfm.data.Masks(images, sizes, masks=np.ones((1, 8, 8), "uint8"))
    >>> data.images.shape, data.masks.shape
    ((1, 8, 8, 3), (1, 8, 8))
    """

    images: np.ndarray | ImageFiles
    sizes: np.ndarray
    masks: np.ndarray | MaskFiles


def read_masks(
    paths: Any,
    shape: tuple[int, int, int],
    canvas: Canvas = STRETCHED,
    names: Mapping[int, str] | None = None,
    ignored: int = 255,
) -> Masks:
    """Read the images of one or several files or folders, and their masks.

    Skipped, with a warning that counts them and names some, are images without a mask, masks without an
    image, masks of another size than their image or with a value that is no class, and what cannot be
    decoded. Where the EXIF of an image turns it, the size of its mask says whether the mask is turned too;
    where it does not, the image is skipped. A warning says where the value `ignored` may be meant as a class.

    Args:
        paths: folders, or .jsonl files, as the header of this module describes them.
        shape: of the images, (height, width, channels), which are decoded now or, if they are many, when
            they are needed.
        canvas: how an image is placed on this shape.
        names: {value in the masks: name of the class}, by default as in classes.txt.
        ignored: the value of pixels without a class, -1 for none.

    Raises:
        DataError: for a mistake in a file, for a path that leads out of its folder, if no image is left, and
            for masks with values of smoothed edges, as in a JPEG, unless the classes are named.

    >>> image, mask = np.zeros((2, 2, 3), "uint8"), np.array([[0, 1], [1, 1]], "uint8")[..., None]
    >>> tf.io.write_file("cats/images/1.png", tf.io.encode_png(image))
    >>> tf.io.write_file("cats/masks/1.png", tf.io.encode_png(mask))
    >>> data = keras_tfm.data.read_masks("cats", shape=(8, 8, 3), names={0: "background", 1: "cat"})
    >>> data.images.shape, data.sizes.tolist(), next(iter(data.masks)).tolist()
    ((1, 8, 8, 3), [[2, 2]], [[0, 1], [1, 1]])
    """
    files = files_of(paths)
    pictures, named = pictures_in(files)
    names = named if names is None else names
    are_named = names is not None
    counted = [np.zeros((2, MANY), "int64")]

    def check(picture: Picture, header: Header) -> Checked | str:
        mask = decoded_mask(picture.annotation)
        if isinstance(mask, str):
            place = "its mask" if isinstance(picture.annotation, bytes) else picture.annotation
            return f"{place}: {mask}"
        drawn = drawn_on(header, mask.shape, _other_size)
        if isinstance(drawn, str):
            return drawn
        values, is_upright = values_of(mask), drawn.orientation == 1
        counted.append(values)
        part = picture.annotation if is_upright else encoded_mask(turned(mask, drawn.orientation))
        return unknown_values(values[0] > 0, names, ignored) or Checked([part])

    checked = checked_pictures(pictures, files[0], check)
    counts, is_any = np.sum(counted, axis=0), any(isinstance(found, Checked) for found in checked)
    if (not are_named or not is_any) and (problem := mixed_values(counts)):
        raise DataError(files[0], None, problem)
    if names is None:
        names = {value: str(value) for value in np.flatnonzero(counts[0]).tolist() if value != ignored}
    if is_any and (problem := too_few(names, ignored)):
        raise DataError(files[0], None, problem)
    images, sizes, masks = read_pictures(pictures, checked, files[0], shape, canvas, "masks")
    tell_ignored(files[0], counts, ignored, are_named)
    return Masks(images, sizes, MaskFiles([mask for (mask,) in masks], names))


def _other_size(mask: Size, image: Size) -> str | None:
    """Why a mask of that size is not one of an image of this size; None if it is."""
    (height, width), (rows, columns) = image, mask
    is_one = mask == image
    return None if is_one else f"expected a mask of {width} x {height}, as the image, got {columns} x {rows}"


def pictures_in(files: Sequence[str]) -> tuple[list[Picture], dict[int, str] | None]:
    """(The images of files and folders, each with its mask, a path or the bytes of a file; the names of the
    classes or None if there is no classes.txt).
    """
    whole = [path for path in files if not _has_both(path)]
    if len(files) == 2 and len(whole) == 2 and all(map(os.path.isdir, files)):
        return _pairs_of(pathlib.Path(files[0]), pathlib.Path(files[1])), _names_beside(files[1])
    pictures: list[Picture] = []
    names: dict[int, str] | None = None
    for path in files:
        if path.startswith(PREPARED):
            pictures += prepared_masks(path)
            continue
        if path.lower().endswith(LINES):
            pictures += _json_lines(path)
            home = os.path.dirname(path)
        elif _has_both(path):
            pictures += _pairs_of(*_folders(path))
            home = path
        elif not os.path.exists(path):
            raise DataError(path, None, "cannot be read: No such file or directory")
        else:
            raise DataError(path, None, f"expected {KINDS}")
        more = read_names(pathlib.Path(home, CLASSES))
        if names is not None and more not in (None, names):
            raise DataError(path, None, f"expected the {CLASSES} of {files[0]}, got another")
        names = more if names is None else names
    return pictures, names


def images_in(path: str) -> list[tuple[str, str]]:
    """(Path, place) of each image in JSON lines, or in a folder with images/ and masks/."""
    pictures = _json_lines(path) if path.lower().endswith(LINES) else _pairs_of(*_folders(path))
    return [(picture.source, picture.place) for picture in pictures if isinstance(picture.source, str)]


def has_pairs(path: str) -> bool:
    """Whether `read_masks` reads this file or folder by itself."""
    return path.lower().endswith(LINES) or _has_both(path)


def read_names(path: pathlib.Path) -> dict[int, str] | None:
    """{line - 1: name} of a file of names, or None if there is no file; DataError for a blank or repeated
    name.
    """
    if not path.is_file():
        return None
    names: dict[int, str] = {}
    for line, text in numbered_lines(os.fspath(path)):
        if not text.strip() or text.strip() in names.values():
            raise DataError(path, line, f"expected a name of its own, got {brief(text.strip())}")
        names[line - 1] = text.strip()
    if not 2 <= len(names) < MANY:
        raise DataError(path, None, f"expected 2 to {MANY - 1} names of classes, got {len(names):,}")
    return names


def _folders(path: str) -> tuple[pathlib.Path, pathlib.Path]:
    return pathlib.Path(path, "images"), pathlib.Path(path, "masks")


def _has_both(path: str) -> bool:
    return all(folder.is_dir() for folder in _folders(path))


def _names_beside(folder: str) -> dict[int, str] | None:
    """The names in a classes.txt in the folder, or else in the folder around it."""
    path = pathlib.Path(folder).absolute()
    return read_names(path / CLASSES) or read_names(path.parent / CLASSES)


def _pairs_of(images: pathlib.Path, masks: pathlib.Path) -> list[Picture]:
    """The files of two folders, paired by their names without the suffix, in order."""
    found, of_masks = (_by_stem(folder) for folder in (images, masks))
    return [
        Picture(found.get(stem), found.get(stem) or of_masks[stem], of_masks.get(stem))
        for stem in sorted({*found, *of_masks})
    ]


def _by_stem(folder: pathlib.Path) -> dict[str, str]:
    """{path relative to the folder, without the suffix: path} of the visible files in it and its
    subfolders.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in inside.parts) or path.name == CLASSES:
            continue
        stem = os.fspath(inside.with_suffix(""))
        if stem in found:
            raise DataError(folder, None, f"expected one file for each stem, got two {brief(stem)}")
        found[stem] = os.fspath(path)
    return found


def _json_lines(path: str) -> list[Picture]:
    pictures = []
    home = pathlib.Path(path).absolute().parent
    for line, row in json_lines(path):
        names = [row.get(name) if isinstance(row, dict) else None for name in ("image", "mask")]
        if not isinstance(names[0], str) or not isinstance(names[1], str | None):
            raise DataError(path, line, f'expected paths as "image" and "mask", got {brief(row)}')
        place = f"{path}, line {line}"
        image, mask = (None if name is None else path_within(home, name, place) for name in names)
        pictures.append(Picture(image, place, mask))
    return pictures
