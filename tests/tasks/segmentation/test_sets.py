"""Instances and panoptic segments: targets, answers, folders, exports, refusals."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.data import Segments, SegmentSets
from keras_tfm.data.sources.mask_files import decoded_numbers
from keras_tfm.data.sources.segments import WORDS
from keras_tfm.heads import MaskClassifier, PanopticDetector
from keras_tfm.models import DETR, MaskFormer
from keras_tfm.tasks import Segmenter
from tests.contract import randomise
from tests.fresh_process import ask
from tests.tasks.segmentation import test_segmenter
from tests.tasks.segmenting import MASK_FORMER, PANOPTIC_DETR, SIZE

NAMES = ["bright", "dark", "ground"]
KINDS = {"instances": {}, "panoptic": {"stuff": ["ground"]}}


def examples(count, size=SIZE, seed=0, has_ground=False):
    """Pictures (count, *size) with two rectangles in their halves, bright or dark, and the masks of both;
    with `has_ground` the mask of the rest too.
    """
    rng = np.random.default_rng(seed)
    images, masks, labels = np.full((count, *size), 128, "uint8"), [], []
    for image in images:
        own, names = np.zeros((2, *size), bool), []
        for half, mask in enumerate(own):
            top, left = int(rng.integers(0, size[0] // 2)), int(rng.integers(0, size[1] // 4))
            left += half * (size[1] // 2)
            mask[top : top + size[0] // 2, left : left + size[1] // 4] = True
            names.append(NAMES[rng.integers(2)])
            image[mask] = {"bright": 255, "dark": 0}[names[-1]]
        rest = ~own.any(axis=0)[None]
        masks.append(np.concatenate([own, rest]) if has_ground else own)
        labels.append([*names, "ground"] if has_ground else names)
    return images, masks, labels


def of_kind(kind, *arguments, **options):
    return examples(*arguments, has_ground=kind == "panoptic", **options)


def make(kind, model=None, **options):
    keras.utils.set_random_seed(0)
    if model is None:
        model = MaskClassifier(MaskFormer(MASK_FORMER), 3)
        randomise(model, 4)
        for name, factor in (("class_head", 20), ("mask_head", 4)):  # sure of what it sees
            layer = model.get_layer(name)
            layer.set_weights([factor * weight for weight in layer.get_weights()])
    return Segmenter(model, NAMES, segments=kind, **KINDS[kind], **{"threshold": 0.1, **options})


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    """A task of each kind, of random weights."""
    return make(request.param)


def test_targets_are_sets_of_masks(made):
    """The rectangles' masks, of 1 + the number of their class, and none in the rest of a set."""
    kind = made.config.segments
    images, masks, labels = of_kind(kind, 3)
    masks[0], labels[0] = masks[0][:1], labels[0][:1]
    checked = made.check_examples((images, masks, labels))
    (inputs, targets), *_ = made.batches(checked, made.training, is_validation=True).dataset()
    most = 3 if kind == "panoptic" else 2
    assert inputs.keys() == {"images"} and targets.shape == (3, most, *SIZE)
    for row in range(3):
        for place, target in enumerate(targets.numpy()[row]):
            expected = np.zeros(SIZE, int)
            if place < len(masks[row]):
                expected = masks[row][place] * (1 + NAMES.index(labels[row][place]))
            np.testing.assert_array_equal(target, expected)


def test_answers_are_consistent(made, tmp_path):
    """Areas and boxes fit the masks; pictures of other sizes, files and drawings."""
    kind, sizes = made.config.segments, (SIZE, (40, 30), (9, 50))
    files = [tf.io.encode_png(examples(1, size)[0][0][..., None]).numpy() for size in sizes]
    answers = made.predict(files, draw=tmp_path / "drawn", masks=tmp_path / "masks")
    assert sum(len(answer["labels"]) for answer in answers) > 2
    for row, (answer, size) in enumerate(zip(answers, sizes, strict=True)):
        count = len(answer["labels"])
        masks = answer.get("masks")
        if kind == "panoptic":
            masks = answer["segments"] == np.arange(1, count + 1)[:, None, None]
        assert masks.shape == (count, *size) and set(answer["labels"]) <= set(NAMES)
        np.testing.assert_array_equal(masks.sum(axis=(1, 2)), answer["areas"])
        for mask, box in zip(masks, answer["boxes"].astype(int), strict=True):
            left, top, right, bottom = box
            assert mask[top:bottom, left:right].sum() == mask.sum()
            assert mask[[top, bottom - 1]].any(axis=1).all() and mask[:, [left, right - 1]].any(axis=0).all()
        assert ((answer["scores"] >= 0.1) & (answer["scores"] <= 1)).all()
        line = json.loads(made.as_line(answer))
        assert line["size"] == list(size) and line["areas"] == answer["areas"].tolist()
        numbers = decoded_numbers(str(tmp_path / "masks" / f"{row:06}.png"))
        assert numbers.shape == size and numbers.max() <= count
        np.testing.assert_array_equal(numbers > 0, masks.any(axis=0))
        with PIL.Image.open(tmp_path / "drawn" / f"{row:06}.png") as drawn:
            pixels = np.asarray(drawn.convert("RGB"))
        assert pixels.shape[:2] == size
        assert (pixels.min(-1) < pixels.max(-1))[masks.any(axis=0)].mean() > 0.9 or not count
    assert all(len(answer["labels"]) == 0 for answer in made.predict(files, threshold=1.0))


def test_crowds_are_left_out_of_training_alone(caplog):
    task, (images, masks, labels) = make("instances"), examples(2)
    data = task.check_examples((images, masks, labels))
    sets = data.segments
    crowded = SegmentSets(sets.sizes, sets.segments, sets.names, crowds=[sets.segments[0][:1], []])
    for is_validation, messages in (
        (True, []),
        (False, ["1 crowds are skipped: a model learns single objects alone"]),
    ):
        targets = [
            next(iter(task.batches(each, task.training, is_validation).dataset()))[1]
            for each in (data, data._replace(segments=crowded))
        ]
        np.testing.assert_array_equal(*targets)
        assert caplog.messages == messages


def test_crowds_from_python():
    """A mask whose mark is 1 is a region where nothing is wrong, as in COCO's files."""
    task, (images, masks, labels) = make("instances"), examples(2)
    plain, marked, unmarked = (
        task.check_examples((images, masks, labels, *marks)).segments
        for marks in ((), ([[0, 1], np.array([False, True])],), ([[0, 0]] * 2,))
    )
    assert marked.segments == [each[:1] for each in plain.segments]
    assert marked.crowds == [each[1:] for each in plain.segments]
    assert unmarked.segments == plain.segments and unmarked.crowds == [[], []]
    for marks, message in (
        ([[0, 1], [0]], r"image 1: expected a list of 2 as \"iscrowd\", one for each label, got \[0\]"),
        ([[0, 1]], "of one length, got 2, 2, 2 and 1"),
        ([None, [0, 1]], "`iscrowd`, row 0: expected a list, got None"),
        ([0, 1], "`iscrowd`, row 0: expected a list, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            task.check_examples((images, masks, labels, marks))
    with pytest.raises(ValueError, match=r"expected \(images, masks, labels\), or COCO's"):
        make("panoptic").check_examples((*of_kind("panoptic", 2), [[0, 0, 0]] * 2))


def test_answers_are_measured_one_by_one(made, monkeypatch):
    """Masks of many images would fill the memory."""
    answered, finish = [], made.kind.finish
    monkeypatch.setattr(
        made.kind, "finish", lambda least: lambda *parts: answered.append(least) or finish(least)(*parts)
    )
    monkeypatch.setattr(made.kind, "measure", lambda examples, answers: [len(answered) for _ in answers])
    checked = made.check_examples(of_kind(made.config.segments, 20))
    assert made.measure(checked) == list(range(1, 21))
    assert set(answered) == {made.kind.least_score}


@pytest.mark.slow
@pytest.mark.parametrize("keep_aspect", [False, True])
def test_the_export_answers_as_the_task(made, keep_aspect, tmp_path):
    task = Segmenter(**_arguments(made), keep_aspect=keep_aspect)
    files = [tf.io.encode_png(examples(1, size)[0][0][..., None]).numpy() for size in (SIZE, (30, 20))]
    task.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served")).signatures
    told = {name: x.numpy() for name, x in served["serving_default"](image_bytes=files).items()}
    is_panoptic = task.config.segments == "panoptic"
    for row, answer in enumerate(task.predict(files, threshold=None if is_panoptic else 0.0)):
        check_row(told, row, answer)
        if is_panoptic:
            np.testing.assert_array_equal(decoded_numbers(told["png"][row]), answer["segments"])
        pngs = [] if is_panoptic else told["png"][row][: len(answer["masks"])]
        for file, mask in zip(pngs, answer.get("masks", []), strict=True):
            np.testing.assert_array_equal(tf.io.decode_png(file)[..., 0] == 255, mask)
    images = examples(2)[0]
    floats = tf.constant(images[..., None] / 255, tf.float32)
    told = {name: x.numpy() for name, x in served["images"](images=floats).items()}
    for row, answer in enumerate(task.predict(images, threshold=None if is_panoptic else 0.0)):
        check_row(told, row, answer)
        name = "segments" if is_panoptic else "masks"
        covered = told[name][row] if is_panoptic else told[name][row][: len(answer["labels"])]
        assert np.mean(covered == answer[name]) > 0.999


def _arguments(task):
    return {
        "backbone": task.model,
        "class_names": NAMES,
        "segments": task.config.segments,
        "stuff": task.config.stuff,
        "threshold": 0.1,
    }


def check_row(told, row, answer):
    count = len(answer["labels"])
    assert [label.decode() for label in told["labels"][row][:count]] == list(answer["labels"])
    assert not any(told["labels"][row][count:]) and not told["scores"][row][count:].any()
    for name in ("scores", "areas", "boxes"):
        np.testing.assert_allclose(told[name][row][:count], answer[name], atol=1e-4)


@pytest.mark.slow
def test_a_server_without_this_package_answers(made, tmp_path):
    files = [tf.io.encode_png(examples(1)[0][0][..., None]).numpy()]
    made.export(tmp_path / "served")
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    assert served["scores"].shape[0] == 1 and served["boxes"].shape[-1] == 4


@pytest.mark.slow
def test_folders_and_other_tasks(made, tmp_path):
    made.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == made.config and type(again.kind) is type(made.kind)
    images = examples(2)[0]
    for a, b in zip(again.predict(images), made.predict(images), strict=True):
        np.testing.assert_array_equal(a["boxes"], b["boxes"])
    sets = SegmentSets.of([np.ones((1, *SIZE), bool)], [["dark"]], kind="instances")
    data = Segments(images[:1, ..., None], np.array([SIZE]), sets)
    same = Segmenter.adopt(made, data)
    assert same.config.segments == "instances" and same.model is made.model and same.class_names == NAMES
    others = Segmenter.adopt(made, data._replace(segments=SegmentSets.of([np.ones((1, *SIZE))], [["new"]])))
    assert others.class_names == ["new"] and others.config.segments == "instances"
    for name, is_kept in (("mask_head", True), ("class_head", False)):
        a, b = (x.model.get_layer(name).get_weights()[0] for x in (others, made))
        assert np.array_equal(a, b) == is_kept


def test_folders_of_transformers_keep_the_kind_of_segments(made, tmp_path, caplog):
    made.save_huggingface(tmp_path / "theirs")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert again.config == made.config and not caplog.records
    path = tmp_path / "theirs" / "config.json"
    names = {"id2label": {str(number): f"class {number}" for number in range(3)}}
    path.write_text(json.dumps(json.loads(path.read_text()) | names))  # another has trained it
    others = tasks.from_huggingface(tmp_path / "theirs")
    assert others.config.segments == "semantic" and others.class_names == list(names["id2label"].values())
    assert "does not say of which kind its segments are: taken as classes of pixels" in caplog.text
    caplog.clear()
    assert Segmenter.from_huggingface(tmp_path / "theirs", segments="instances").config.threshold == 0.5
    assert not caplog.records


def test_classes_that_further_examples_do_not_name_stay_stuff():
    made = make("panoptic")
    segments = np.ones((1, *SIZE), bool)
    for name, stuff in (("dark", ("ground",)), ("ground", ())):
        sets = SegmentSets.of([segments], [[name]], [name], kind="panoptic")
        assert Segmenter.adopt(made, (None, None, sets)).config.stuff == stuff
    sets = SegmentSets.of([segments], [["dark"]], ["dark"], stuff=["dark"], kind="panoptic")
    assert Segmenter.adopt(made, (None, None, sets)).config.stuff == ("dark", "ground")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, masks, labels: (images, masks), r"expected \(images, masks, labels\),.* or COCO's"),
        (lambda images, masks, labels: (images, masks[:1], labels), "of one length, got 2, 1 and 2"),
        (lambda images, masks, labels: (images, [m[:, :8] for m in masks], labels),
         r"image 0: expected masks of shape \(M, 16, 24\), 0 or 1, got bool .* \(1 more images are wrong\)"),
        (lambda images, masks, labels: (images, [m * 2 for m in masks], labels), "of 0 and 1, got 0 to 2"),
        (lambda images, masks, labels: (images, [m * 1.0 for m in masks], labels), "got float64"),
        (lambda images, masks, labels: (images, masks, [x[:1] for x in labels]), "a name for each of"),
        (lambda images, masks, labels: (images, masks, [["x"] * len(x) for x in labels]),
         "`labels` must be among .*'x' is not"),
        (lambda images, masks, labels: (images, [m & False for m in masks], labels), "mask 0 has none"),
        (lambda images, masks, labels: (images[:0], [], []), "`images` must not be empty"),
    ],
)  # fmt: skip
def test_examples_that_are_refused(made, change, message):
    with pytest.raises(ValueError, match=message) as refusal:
        made.check_examples(change(*of_kind(made.config.segments, 2)))
    assert "\n" not in str(refusal.value)


def test_refusals(made):
    kind = made.config.segments
    other = {"instances": "panoptic", "panoptic": "instances"}[kind]
    sets = SegmentSets.of([np.ones((1, *SIZE), bool)], [["dark"]], kind=other)
    with pytest.raises(ValueError, match=f"expected {WORDS[kind]}, got {WORDS[other]}"):
        made.check_examples(Segments(np.zeros((1, *SIZE, 1), "uint8"), np.array([SIZE]), sets))
    if kind == "instances":
        rows = np.arange(16)[:, None, None] == np.arange(16)[None, :, None] * np.ones((1, 1, 24))
        with pytest.raises(ValueError, match=r"at most 6, .*, in an image; image 0 has 16"):
            made.check_examples((examples(1)[0], [rows], [["dark"] * 16]))
    if kind == "panoptic":
        images, masks, labels = examples(1)
        masks[0][0] |= masks[0][1]
        with pytest.raises(ValueError, match="share no pixels, got pixels of two"):
            made.check_examples((images, masks, labels))
        images, masks, _ = examples(1)
        with pytest.raises(ValueError, match="expected one segment of 'ground', which is stuff, got 2"):
            made.check_examples((images, masks, [["ground", "ground"]]))


def test_refusals_of_makers():
    semantic = test_segmenter.make()
    with pytest.raises(
        ValueError, match="instances need --family detr, istr, mask2former, maskformer or maxdeeplab; S"
    ):
        Segmenter(semantic.model, NAMES, segments="instances")
    with pytest.raises(ValueError, match="PanopticDetector predicts instances and panoptic segments"):
        Segmenter(PanopticDetector(DETR(PANOPTIC_DETR), 3, num_maps=2), NAMES)
    with pytest.raises(ValueError, match="`stuff` must be among the class names of panoptic segments"):
        make("instances", stuff=["ground"])
    with pytest.raises(ValueError, match="`stuff` must be among the class names of panoptic"):
        tasks.SegmenterConfig(class_names=("a",), segments="panoptic", stuff=("b",))
    images = examples(1)[0]
    with pytest.raises(ValueError, match="`threshold` is of instances and panoptic segments"):
        semantic.predict(images, threshold=0.5)
    sets = SegmentSets.of([np.ones((1, *SIZE), bool)], [["dark"]])
    with pytest.raises(ValueError, match="expected a mask of classes for each image, got COCO's segments"):
        semantic.check_examples(Segments(images[..., None], np.array([SIZE]), sets))
