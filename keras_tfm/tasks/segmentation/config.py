"""What `Segmenter` is configured by, and what it asks of examples and answers."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from keras_tfm.configs import Between, FieldError, Option, Positive
from keras_tfm.data.batches.targets import NONE, on_canvas
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.mask_files import MANY, MaskFiles, encoded_mask
from keras_tfm.data.sources.mask_values import too_few, unknown_values
from keras_tfm.data.sources.segments import MOST_NAMES, PANOPTIC, SegmentSets
from keras_tfm.training.folder import MARK
from keras_tfm.training.options import PEAK_RATE, LeastArea, MirroredTraining

Value = Annotated[int, Between(0, MANY - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmenterConfig(Canvas):
    """`class_names` are strings, in the order of the logits; `class_values` are the values by which masks
    have them, by default 0, 1, ... Pixels of the value `ignored` are of no class, -1 where all are of one.
    `segments` is the kind of segmentation: "semantic", the class of every pixel, "instances" or "panoptic"
    segments, in which each of the classes `stuff` is one segment of an image. Answers have the instances that
    score `threshold` or more, and the panoptic segments whose class has this probability.
    """

    class_names: tuple[str, ...]
    class_values: tuple[Value, ...] = ()
    ignored: Annotated[
        Annotated[int, Between(-1, MANY - 1)],
        Option("pixels of this value in masks are neither learnt nor measured; -1 for none"),
    ] = 255
    segments: Literal["semantic", "instances", "panoptic"] = "semantic"
    stuff: tuple[str, ...] = ()
    threshold: Annotated[
        Annotated[float, Between(0, 1)],
        Option("the score, from 0 to 1, from which predict returns an instance or a panoptic segment"),
    ] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.class_names)
        least, most = (2, MANY - 1) if self.segments == "semantic" else (1, MOST_NAMES)
        if not least <= len(set(self.class_names)) == count <= most:
            raise ValueError(
                f"`class_names` must be different strings, {least} to {most}; they are {self.class_names}."
            )
        if not set(self.stuff) <= set(self.class_names if self.segments == PANOPTIC else ()):
            raise ValueError(
                f"`stuff` must be among the class names of panoptic segments; it is {self.stuff}."
            )
        if not self.class_values:
            object.__setattr__(self, "class_values", tuple(range(count)))
        values = self.class_values
        if len(set(values)) != count or len(values) != count or self.ignored in values:
            raise FieldError(
                "{class_values} must be {} different numbers, {ignored}, {}, not among them; they are {}.",
                count,
                self.ignored,
                values,
            )

    @property
    def names(self) -> dict[int, str]:
        """{value in a mask: name of its class}."""
        return dict(zip(self.class_values, self.class_names, strict=True))


OWN = ("class_names", "class_values", "ignored", "segments", "stuff", "threshold")
ENTRIES = {
    name: f"{MARK}_{name}" for name in OWN
}  # in a published config.json, where transformers ignores them
# A head of pixels learns soonest at a rate at which sets of masks learn nothing.
RATE_OF_PIXELS, RATE_OF_SETS = 3e-3, 1e-3


@dataclasses.dataclass(frozen=True)
class SegmentationTraining(MirroredTraining):
    """By default the warm-up takes a tenth of the steps."""

    learning_rate: Annotated[
        Positive | None,
        Option(PEAK_RATE, default=f"{RATE_OF_PIXELS} with a --decoder, {RATE_OF_SETS} for families of masks"),
    ] = None  # type: ignore[assignment]
    least_area: LeastArea = 0.5
    most_area: Annotated[
        Annotated[float, Between(1, 16)],
        Option(
            "largest share of an image's area in a crop; above 1 images are shrunk, what surrounds them is "
            "ignored"
        ),
    ] = 1.0


def numbers_of(values: Sequence[int]) -> np.ndarray:
    """(256,) the class number of each value in a mask; NONE for other values."""
    table = np.full(MANY, NONE, "uint8")
    table[list(values)] = np.arange(len(values))
    return table


def names_in(masks: Any) -> dict[int, str]:
    """{value: name} of the classes that masks, files or arrays, have."""
    if isinstance(masks, MaskFiles):
        return masks.names
    return {value: str(value) for value in np.unique(np.asarray(masks)).tolist()}


def are_known(examples: Any, config: SegmenterConfig) -> bool:
    """Whether a task of the configuration has the classes of the examples, of masks by their values. Names
    that are the values are none of their own.
    """
    if isinstance(examples[-1], SegmentSets):
        return set(examples[-1].names) <= set(config.class_names)
    return all(
        value in config.names and name in (config.names[value], str(value))
        for value, name in names_in(examples[-1]).items()
    )


def kind_of(examples: Any, stuff: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a configuration that say of which kind the segments of examples are. Classes that the
    examples do not name stay `stuff`.
    """
    sets = examples[-1]
    if isinstance(sets, SegmentSets):
        more = [name for name in stuff if name not in sets.names] if sets.kind == PANOPTIC else []
        return {"segments": sets.kind, "stuff": (*sets.stuff, *more)}
    return {"segments": "semantic", "stuff": ()}


def with_classes(fields: Mapping[str, Any], examples: Any) -> dict[str, Any]:
    """`fields` of a configuration with the classes of `examples`, and their kind; ValueError where masks have
    not two.
    """
    fields = {**fields, **kind_of(examples)}
    if isinstance(examples[-1], SegmentSets):
        return {**fields, "class_names": examples[-1].names, "class_values": (), "ignored": -1}
    ignored = fields.get("ignored", SegmenterConfig.ignored)
    names = {value: name for value, name in names_in(examples[-1]).items() if value != ignored}
    if problem := too_few(names, ignored):
        raise ValueError(problem)
    return {**fields, "class_names": tuple(names.values()), "class_values": tuple(names)}


def checked_masks(masks: Any, sizes: np.ndarray, config: SegmenterConfig) -> np.ndarray | MaskFiles:
    """Masks of images of these `sizes` (N, 2), as an array or as files; ValueError for others."""
    if isinstance(masks, list | tuple) and masks and isinstance(masks[0], str | bytes | os.PathLike):
        masks = MaskFiles(masks, config.names)
    elif not isinstance(masks, np.ndarray | MaskFiles):
        masks = [np.asarray(mask) for mask in masks]
    if len(masks) != len(sizes):
        raise ValueError(f"examples: expected a mask for each of {len(sizes)} images, got {len(masks)}")
    checked = []
    problems: dict[int, str] = {}
    for row, (mask, size) in enumerate(zip(masks, sizes.tolist(), strict=True)):
        if mask.dtype.kind not in "iu" or mask.shape != tuple(size):
            problems[row] = f"expected whole numbers of shape {tuple(size)}, got {mask.dtype} {mask.shape}"
        elif mask.size and not 0 <= mask.min() <= mask.max() < MANY:
            problems[row] = f"expected values from 0 to {MANY - 1}, got {mask.min()} to {mask.max()}"
        else:
            occurs = np.bincount(mask.ravel().astype("uint8"), minlength=MANY) > 0
            if problem := unknown_values(occurs, config.names, config.ignored):
                problems[row] = problem
            elif not isinstance(masks, MaskFiles):  # files are decoded again when they are needed
                checked.append(mask.astype("uint8"))
    for row, problem in problems.items():
        others = f" ({len(problems) - 1:,} more masks are wrong)" if len(problems) > 1 else ""
        raise ValueError(f"mask {row}: {problem}{others}")
    if isinstance(masks, MaskFiles):
        return masks
    return np.stack(checked) if len({mask.shape for mask in checked}) == 1 else encoded(checked, config)


def encoded(masks: Iterable[np.ndarray], config: SegmenterConfig) -> MaskFiles:
    """Masks of several sizes, as files in memory."""
    return MaskFiles([encoded_mask(mask) for mask in masks], config.names)


def labels_on_canvas(
    masks: Iterable[np.ndarray], config: SegmenterConfig, canvas: Canvas, shape: tuple[int, int, int]
) -> np.ndarray | list[bytes]:
    """Numbers of classes as `CanvasBatches` takes them, of masks of the images' own sizes."""
    table = numbers_of(config.class_values)
    count = len(masks)  # type: ignore[arg-type]
    labels = on_canvas((table[mask][None] for mask in masks), count, 1, canvas, shape)
    return labels[:, 0] if isinstance(labels, np.ndarray) else labels


def summary(mask: np.ndarray, scores: np.ndarray, names: Mapping[int, str]) -> dict[str, Any]:
    """An answer: a mask (H, W), with what classes have of it and, by `scores` (H, W), how sure they are, the
    largest first.
    """
    counts = np.bincount(mask.ravel(), minlength=MANY)
    sums = np.bincount(mask.ravel(), scores.ravel(), minlength=MANY)
    order = sorted((value for value in names if counts[value]), key=lambda value: -counts[value])
    return {
        "mask": mask,
        "shares": {names[value]: float(counts[value] / mask.size) for value in order},
        "scores": {names[value]: float(sums[value] / counts[value]) for value in order},
    }


def overlap(
    masks: Iterable[np.ndarray], answers: Iterable[np.ndarray], values: Sequence[int]
) -> dict[str, float]:
    """{"miou", "pixel_accuracy"}, from 0 to 100, of masks and what is answered, by the `values` of classes.

    The intersection over the union of all pixels of a class, averaged over the classes that either has; the
    share of pixels that are right. Pixels whose value in the mask is no class do not count.
    """
    table, count = numbers_of(values), len(values)
    pairs = np.zeros((count, count), "int64")  # [class in the mask, class in the answer]
    for mask, answer in zip(masks, answers, strict=True):
        truth, found = table[mask], table[answer]
        numbers = truth[truth != NONE].astype("int64") * count + found[truth != NONE]
        pairs += np.bincount(numbers, minlength=count * count).reshape(count, count)
    common, union = np.diag(pairs), pairs.sum(0) + pairs.sum(1) - np.diag(pairs)
    shares = common[union > 0] / union[union > 0]
    return {
        "miou": 100 * float(shares.mean()) if len(shares) else 0.0,
        "pixel_accuracy": 100 * float(common.sum() / max(pairs.sum(), 1)),
    }
