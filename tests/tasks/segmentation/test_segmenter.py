"""Segmenting: what is learnt, masks of the pictures' own sizes, measures by hand, folders, refusals."""

import dataclasses
import json
import logging

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import models, tasks
from keras_tfm.cli import main
from keras_tfm.data import DataError, MaskFiles
from keras_tfm.data.batches.targets import NONE
from keras_tfm.heads import SemanticSegmenter
from keras_tfm.models import MiT, MiTConfig
from keras_tfm.tasks import ImageClassifier, Segmenter
from keras_tfm.tasks.segmentation.config import overlap
from tests.contract import randomise
from tests.fresh_process import ask
from tests.tasks.segmenting import NAMES, VALUES, examples, write_examples

SMALL = MiTConfig(
    image_size=(16, 24),
    num_channels=1,
    dims=(8, 8),
    depths=(1, 1),
    num_heads=(1, 2),
    patch_sizes=(3, 3),
    strides=(2, 2),
    reductions=(2, 1),
    mlp_ratios=(2, 2),
)


def make(**options):
    keras.utils.set_random_seed(0)
    head = SemanticSegmenter(MiT(SMALL), 3, dim=8)
    return Segmenter(head, NAMES, **{"class_values": VALUES, **options})


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A segmenter that has learnt to distinguish greys, and the folder of its training."""
    made, folder = make(), tmp_path_factory.mktemp("run") / "run"
    made.fit(examples(96), 0.25, epochs=6, batch_size=12, learning_rate=1e-2, run=folder)
    return made, folder


def test_a_training_learns(learnt):
    made, folder = learnt
    measures = made.evaluate(examples(6, seed=1))
    assert measures.keys() == {"miou", "pixel_accuracy", "images"} and measures["images"] == 6
    assert measures["miou"] > 60 and measures["pixel_accuracy"] > 80
    images = examples(2, seed=2)[0]
    again = tasks.load(folder)
    np.testing.assert_allclose(again(images), made(images), atol=1e-5)
    assert again.config == made.config and again.model.head_arguments == made.model.head_arguments


def test_masks_have_the_sizes_of_their_pictures(learnt, tmp_path):
    """Stretched, or whole on the canvas: what is learnt of greys is right at any size."""
    pictures = [examples(1, size, 3) for size in ((16, 24), (40, 30), (9, 50))]
    files = [tf.io.encode_png(images[0][..., None]).numpy() for images, _ in pictures]
    for task in (learnt[0], Segmenter(learnt[0].model, NAMES, class_values=VALUES, keep_aspect=True)):
        answers = task.predict(files, masks=tmp_path / "masks", draw=tmp_path / "drawn", batch_size=2)
        for answer, (_, masks) in zip(answers, pictures, strict=True):
            assert answer["mask"].shape == masks.shape[1:] and set(np.unique(answer["mask"])) <= {*VALUES}
            assert np.mean(answer["mask"] == masks[0]) > 0.6
            assert sum(answer["shares"].values()) == pytest.approx(1, abs=1e-6)
            assert answer["scores"].keys() == answer["shares"].keys()
        line = json.loads(task.as_line(answers[1]))
        assert line["size"] == [40, 30] and line.keys() == {"size", "shares", "scores"}
    for row, answer in enumerate(answers):
        with PIL.Image.open(tmp_path / "masks" / f"{row:06}.png") as kept:
            np.testing.assert_array_equal(np.asarray(kept), answer["mask"])
        with PIL.Image.open(tmp_path / "drawn" / f"{row:06}.png") as drawn:
            assert drawn.size == answer["mask"].shape[::-1]
            assert (np.asarray(drawn).min(-1) < np.asarray(drawn).max(-1)).any()  # colours over greys
    assert len(list((tmp_path / "drawn").iterdir())) == 3  # nothing half-written is left


@pytest.mark.slow
@pytest.mark.parametrize("keep_aspect", [False, True])
def test_the_export_answers_as_the_task(learnt, keep_aspect, tmp_path):
    """Files of any size, in a process without this package."""
    task = Segmenter(learnt[0].model, NAMES, class_values=VALUES, keep_aspect=keep_aspect)
    pictures = [examples(1, size, 3)[0][0] for size in ((16, 24), (30, 20), (9, 50))]
    files = [tf.io.encode_png(picture[..., None]).numpy() for picture in pictures]
    task.export(tmp_path / "served")
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    assert served["masks"].shape == served["scores"].shape == (3, 16, 24)
    assert served["labels"].tolist() == [list(task.class_names)] * 3
    assert served["label_values"].tolist() == [list(task.config.class_values)] * 3
    for row, answer in enumerate(task.predict(files)):
        mask = tf.io.decode_png(served["png"][row].encode("utf-8", "surrogateescape"), 1)[..., 0]
        assert np.mean(np.asarray(mask) == answer["mask"]) > 0.999
    (whole,) = task.predict(files[0])
    np.testing.assert_array_equal(served["masks"][0], whole["mask"])


def test_no_other_format_holds_it(tmp_path):
    with pytest.raises(ValueError, match="The task 'segment' is exported as a SavedModel alone"):
        make().export(tmp_path / "out", format="onnx")
    assert not any(tmp_path.iterdir())


def test_overlaps_by_hand():
    masks = [np.array([[0, 0, 7, 255]], "uint8"), np.array([[7, 7]], "uint8")]
    found = [np.array([[0, 7, 7, 7]], "uint8"), np.array([[7, 0]], "uint8")]
    # 0: one of three pixels, 7: two of four; 200 is nowhere, and 255 counts nowhere.
    expected = {"miou": 100 * (1 / 3 + 2 / 4) / 2, "pixel_accuracy": 60}
    assert overlap(masks, found, VALUES) == pytest.approx(expected)
    assert overlap(masks, masks, VALUES) == {"miou": 100, "pixel_accuracy": 100}


def test_padding_counts_nowhere_and_the_seed_fixes_the_rest():
    task = make(keep_aspect=True)
    images, masks = examples(4, (16, 12))
    checked = task.check_examples((images, masks))
    (inputs, labels), *_ = task.batches(checked, task.training, is_validation=True).dataset()
    assert (labels[:, :, 12:] == NONE).numpy().all() and not inputs["images"].numpy()[:, :, 12:].any()
    np.testing.assert_array_equal(labels[:, :, :12], np.searchsorted(VALUES, masks))
    first, again = (next(iter(task.batches(checked, task.training).dataset())) for _ in range(2))
    for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(again), strict=True):
        np.testing.assert_array_equal(a, b)
    small, few = task.batches(checked, task.training), task.batches(checked, task.training)
    few.labels = tf.constant([tf.io.encode_png(x[..., None]).numpy() for x in small.labels.numpy()])
    for a, b in zip(*(next(iter(x.dataset())) for x in (small, few)), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, a, b)  # masks as PNGs, of many


@pytest.mark.slow
def test_folders_of_transformers_both_ways(learnt, tmp_path):
    task, _ = learnt
    task.save_huggingface(tmp_path / "theirs")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert type(again) is Segmenter and again.config == task.config
    images, masks = examples(2)
    np.testing.assert_allclose(again(images), task(images), atol=1e-5)
    for a, b in zip(again.predict(images), task.predict(images), strict=True):
        np.testing.assert_array_equal(a["mask"], b["mask"])
    named = (None, None, MaskFiles([], {0: "0", 7: "7"}))
    assert Segmenter.from_huggingface(tmp_path / "theirs", named).class_names == NAMES
    others = Segmenter.from_huggingface(tmp_path / "theirs", (None, None, masks + 1))
    assert others.class_names == ["1", "8", "201"] and others.config.class_values == (1, 8, 201)
    for name, is_kept in (("decoder", True), ("classes", False)):
        a, b = (x.model.get_layer(name).get_weights()[0] for x in (others, task))
        assert np.array_equal(a, b) == is_kept
    for name, entries in (
        ("config.json", {"keras_tfm_class_names": None}),  # as others' folders
        ("preprocessor_config.json", {"do_reduce_labels": True}),
    ):
        path = tmp_path / "theirs" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    shifted = tasks.from_huggingface(tmp_path / "theirs").config
    assert (shifted.class_values, shifted.ignored) == ((1, 2, 3), 0)
    with pytest.raises(ValueError, match="stretches images"):
        make(keep_aspect=True).save_huggingface(tmp_path / "padded")


@pytest.mark.slow
def test_other_tasks_go_on(learnt):
    task, _ = learnt
    same = Segmenter.adopt(task, (None, None, MaskFiles([], {7: "bright", 0: "0"})))
    assert same.model is task.model and same.config == task.config
    larger = Segmenter.adopt(task, (None, None, np.array([0, 7, 200])), image_size=32)
    assert larger.image_shape == (32, 32, 1)
    np.testing.assert_array_equal(
        larger.model.get_layer("classes").kernel, task.model.get_layer("classes").kernel
    )
    classifier = ImageClassifier(MiT(SMALL), ["x", "y"])
    randomise(classifier.model, 1)
    made = Segmenter.adopt(classifier, (None, None, MaskFiles([], {0: "a", 9: "b"})))
    assert made.class_names == ["a", "b"] and made.model.backbone is classifier.model.backbone
    with pytest.raises(ValueError, match="two classes or more, got 0 alone; 255 is ignored unless --ig"):
        Segmenter.adopt(classifier, (None, None, np.array([0, 255])))


@pytest.mark.slow
def test_the_command_line(tmp_path, capsys):
    write_examples(tmp_path / "data", 12)
    fields = ("num_channels", "dims", "depths", "num_heads", "patch_sizes", "strides", "reductions")
    config = {name: getattr(SMALL, name) for name in (*fields, "mlp_ratios", "image_size")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    main(["train", "segment", "--data", data, "--out", run, "--config", str(tmp_path / "config.json"),
          "--epochs", "1", "--batch-size", "4", "--decoder", "naive", "--decoder-dim", "8"])  # fmt: skip
    assert "12 images read" in capsys.readouterr().err
    main(["evaluate", run, "--data", f"{data}/images", f"{data}/masks"])
    assert json.loads(capsys.readouterr().out)["images"] == 12
    ask = ["predict", run, "--data", data]
    main([*ask, "--masks", str(tmp_path / "out"), "--draw", str(tmp_path / "drawn")])
    lines = capsys.readouterr().out.splitlines()
    name, answer = lines[0].split("\t")
    assert len(lines) == 12 and name.endswith("0.png") and json.loads(answer)["size"] == [16, 24]
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names[0] == "0.png" and names == sorted(path.name for path in (tmp_path / "drawn").iterdir())
    # No answer replaces an image, a true mask, or without --overwrite an earlier answer.
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    for options, message in (
        (["--masks", f"{data}/masks", "--overwrite"], "masks/0.png is read by this command"),
        (["--draw", f"{data}/images", "--overwrite"], "images/0.png is read by this command"),
        (["--masks", str(tmp_path / "out")], "0.png exists already: choose another name, or pass --overw"),
        (["--masks", "x", "--draw", "./x"], "--draw, --masks: expected two folders"),
    ):
        with pytest.raises(SystemExit):
            main([*ask, *options])
        assert message in capsys.readouterr().err
    assert kept == {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    main([*ask, "--masks", str(tmp_path / "drawn"), "--overwrite"])
    assert (tmp_path / "drawn" / "0.png").read_bytes() == (tmp_path / "out" / "0.png").read_bytes()


def png(mask):
    return tf.io.encode_png(mask[..., None]).numpy()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, masks: (images, masks[:1]), "a mask for each of 2 images, got 1"),
        (lambda images, masks: (images, masks[:, :8]),
         r"mask 0: expected whole numbers of shape \(16, 24\), got uint8 \(8, 24\) \(1 more masks"),
        (lambda images, masks: (images, masks / 2), r"mask 0: expected whole numbers .*, got float64"),
        (lambda images, masks: (images, masks.astype(int) - 1), "values from 0 to 255, got -1 to"),
        (lambda images, masks: (images, masks // 7), "the value 1 and 1 more in the mask is of no class"),
        (lambda images, masks: (images, MaskFiles([png(mask // 7) for mask in masks], {})),
         "the value 1 and 1 more in the mask is of no class"),
        (lambda images, masks: (images, MaskFiles([png(mask[:8]) for mask in masks], {})),
         r"mask 0: expected whole numbers of shape \(16, 24\), got uint8 \(8, 24\)"),
        (lambda images, masks: images, r"expected \(images, masks\), got ndarray of the shape \(2, 16, 24\)"),
        (lambda images, masks: (images[:0], masks[:0]), "`images` must not be empty"),
    ],
)  # fmt: skip
def test_examples_that_are_refused(learnt, change, message):
    with pytest.raises(ValueError, match=message):
        learnt[0].check_examples(change(*examples(2)))


def test_masks_of_several_sizes_are_taken(learnt, caplog, tmp_path):
    pictures = [examples(1, size) for size in ((16, 24), (20, 20))]
    files = [png(images[0]) for images, _ in pictures]
    with caplog.at_level(logging.WARNING):
        checked = learnt[0].check_examples((files, [masks[0] for _, masks in pictures]))
    assert [mask.shape for mask in checked.masks] == [(16, 24), (20, 20)] and not caplog.messages
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for path, (_, masks) in zip(paths, pictures, strict=True):
        path.write_bytes(png(masks[0]))
    again = learnt[0].check_examples((files, paths))
    assert all(map(np.array_equal, again.masks, checked.masks))


def test_refusals(learnt, tmp_path):
    for fields, message in (
        ({"class_names": ["a", "b"]}, "`class_names` must be 3, as the head has them"),
        ({"class_names": ["a", "a", "b"]}, "`class_names` must be different strings, 2 to 255"),
        ({"class_values": [0, 1]}, "`class_values` must be 3 different numbers"),
        ({"class_values": [0, 1, 255]}, "`ignored`, 255, not among them"),
    ):
        with pytest.raises(ValueError, match=message):
            Segmenter(learnt[0].model, **{"class_names": NAMES, **fields})
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.json").write_text('{"images": [], "annotations": [], "categories": []}')
    for name in ("a.jsonl", "b.json"):
        with pytest.raises(DataError, match=f"{name}: expected images, there are none"):
            list(learnt[0].read_inputs(tmp_path / name))
    with pytest.raises(ValueError, match="There is no family 'nosuch'"):
        tasks.segmentation.models.SegmenterOptions(family="nosuch").base()


def test_letters_and_digits_are_not_mirrored_unless_asked(caplog):
    for names, flip in (
        (["ground", "7"], True),
        (["0", "10"], False),
        (["a", "ß"], False),
        (["_", "cat"], True),
    ):
        task = Segmenter(MiT(SMALL), names)
        shape = task.image_shape
        examples = task.check_examples((np.zeros((2, *shape), "uint8"), np.zeros((2, *shape[:2]), "uint8")))
        caplog.clear()
        with caplog.at_level("INFO"):
            assert task.settled(task.training, examples).flip is flip
        assert ("images are not mirrored" in caplog.text) is not flip
        for chosen in (True, False):
            asked = dataclasses.replace(task.training, flip=chosen)
            assert task.settled(asked, examples).flip is chosen


def test_sets_of_masks_learn_at_a_lower_rate_than_heads_of_pixels():
    for backbone, rate in ((MiT(SMALL), 3e-3), (models.MaskFormer.from_size("tiny", image_size=32), 1e-3)):
        task = Segmenter(backbone, ["ground", "cat"])
        shape = task.image_shape
        some = np.zeros((2, *shape), "uint8"), np.zeros((2, *shape[:2]), "uint8")
        some = task.check_examples(some)
        settled = task.settled(task.training, some)
        assert settled.learning_rate == rate and settled.epochs == 100
        chosen = dataclasses.replace(task.training, learning_rate=0.5)
        assert task.settled(chosen, some).learning_rate == 0.5
    assert Segmenter.training_of(is_given=True).learning_rate == 1e-4
