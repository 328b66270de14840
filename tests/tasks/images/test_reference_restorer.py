"""Pictures enlarged with the textures of others: what it learns, its references, its files, its refusals."""

import io
import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import DataError
from keras_tfm.data.worlds.textures import patchworks
from keras_tfm.models import TTSR
from keras_tfm.tasks import ImageRestorer, ReferenceRestorer
from keras_tfm.tasks.images.reference_restorer import parts_of
from keras_tfm.tasks.images.restorer_options import RestorerOptions
from tests.tasks.refusals import refusals

OPTIONS = RestorerOptions("ttsr", "tiny")
WIDER = {"texture_dims": [16, 16, 24], "dim": 16}  # than tiny: it learns in fewer steps
LEARNING = {"epochs": 8, "crops": 1, "batch_size": 8, "learning_rate": 3e-3, "warmup_steps": 4}
GREY = np.random.default_rng(0).integers(0, 256, (40, 48), "uint8")


def fresh():
    keras.utils.set_random_seed(0)
    return ImageRestorer.make(None, OPTIONS, WIDER)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The RUN of a task that has learnt."""
    folder = tmp_path_factory.mktemp("references") / "run"
    fresh().fit(patchworks(64, 1, squares=2), patchworks(4, 2, squares=2), run=folder, **LEARNING)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def test_textures_come_from_the_reference(task):
    measures = task.evaluate(patchworks(8, 3, squares=2))
    assert measures["images"] == 8
    assert measures["x4_psnr"] > measures["x4_rule_psnr"] + 0.3
    assert measures["x4_psnr"] > measures["x4_unrelated_psnr"] + 0.5
    assert task.record["results"]["val_loss"] < task.record["baselines"]["mending by rule"]


@pytest.mark.slow
def test_a_fresh_one_enlarges_bicubically():
    task, (pictures, references) = fresh(), patchworks(2, squares=3)
    assert isinstance(task, ReferenceRestorer) and task.config.restore == "x4"
    enlarged = task.predict([pictures[0][:10, :12]], reference=references[0])[0]["picture"]
    theirs = PIL.Image.fromarray(pictures[0][:10, :12]).resize((48, 40), PIL.Image.Resampling.BICUBIC)
    inner = np.abs(enlarged.astype(int) - np.asarray(theirs))[8:32, 8:40]  # around stands the mirror image
    assert np.mean(inner) < 0.5  # it is not the same where tiles meet


def test_parts_cover_a_reference():
    image = tf.reshape(tf.range(70 * 33), (70, 33, 1))
    parts = parts_of(image, 32)
    assert parts.shape == (3 * 2, 32, 32, 1)
    assert len(np.unique(parts)) == 70 * 33
    np.testing.assert_array_equal(parts[-1], image[-32:, -32:])
    assert parts_of(image[:32, :32], 32).shape == (1, 32, 32, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected a reference of at least 48 x 48"):
        parts_of(image, 48)


@pytest.mark.slow
def test_the_most_similar_part_is_seen(task):
    """A reference beside something black is nearly the reference alone."""
    pictures, references = patchworks(2, 4, squares=2)
    small = np.asarray(PIL.Image.fromarray(pictures[0]).resize((8, 8), PIL.Image.Resampling.BICUBIC))
    black = np.zeros((32, 32, 3), "uint8")
    black[0, 0, 0] = 1  # a reference in colour
    wide = np.concatenate([black, references[0]], axis=1)
    answers = task.predict([{"image": small, "reference": x} for x in (references[0], wide, black)])
    right, beside, wrong = (answer["picture"].astype(int) for answer in answers)
    assert np.mean(np.abs(beside - right)) < 0.3 * np.mean(np.abs(wrong - right))


@pytest.mark.slow
def test_a_picture_alone_is_measured_by_its_other_half(task):
    pictures, _ = patchworks(2, 5, squares=4)
    measures = task.evaluate(list(pictures))
    assert measures == task.evaluate(list(pictures))
    halves = pictures[:, :32], pictures[:, 32:]
    assert measures["x4_psnr"] == task.evaluate(halves)["x4_psnr"]
    assert "x4_unrelated_psnr" not in task.evaluate(list(pictures[:1]))


@pytest.mark.slow
def test_grey_pictures_stay_grey_and_alpha_goes_on(task):
    _, (reference,) = patchworks(1, squares=3)
    rows = [{"image": image, "reference": reference} for image in (GREY[:9, :7], with_alpha(reference))]
    grey, transparent = (answer["picture"] for answer in task.predict(rows))
    assert grey.shape == (36, 28, 3) and np.ptp(grey, axis=-1).max() == 0
    assert transparent.shape == (40, 48, 4) and (transparent[..., 3] == 100).all()
    assert task.predict([GREY], reference=GREY)[0]["picture"].shape == (160, 192, 3)


def with_alpha(image):
    return np.dstack([image[:10, :12], np.full((10, 12), 100, "uint8")])


def png(pixels):
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.slow
def test_a_saved_model_takes_two_files(task, tmp_path):
    task.export(tmp_path / "export")
    pictures, references = patchworks(2, squares=3)
    asked = [(png(pictures[0][:10, :9]), png(references[0])), (png(pictures[1][:6, :7]), png(references[1]))]
    served = serving.load(tmp_path / "export")
    files = served([{"image_bytes": image, "reference_bytes": other} for image, other in asked])["png"]
    answers = task.predict([{"image": image, "reference": other} for image, other in asked])
    for file, answer in zip(files, answers, strict=True):
        np.testing.assert_array_equal(tf.io.decode_png(file), answer["picture"])
    with pytest.raises(ValueError, match=r"expected \{input: value\} of image_bytes, reference_bytes, got"):
        served([asked[0][0]])


@pytest.fixture
def table(tmp_path):
    """A table of pictures with references, a broken one among them, a small one and a grey one."""
    pictures, references = patchworks(6, 6, squares=2)
    lines = []
    for row, parts in enumerate(zip(pictures, references, strict=True)):
        names = [f"{kind}{row}.png" for kind in ("image", "reference")]
        for name, part in zip(names, parts, strict=True):
            PIL.Image.fromarray(part).save(tmp_path / name)
        lines.append(json.dumps(dict(zip(("image", "reference"), names, strict=True))))
    (tmp_path / "reference1.png").write_bytes(b"text")
    PIL.Image.fromarray(references[2][:20]).save(tmp_path / "reference2.png")
    PIL.Image.fromarray(references[3][..., 0]).save(tmp_path / "reference3.png")
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    return tmp_path / "pairs.jsonl"


def test_tables_have_references(table, caplog):
    pairs = ReferenceRestorer.read_files([table], size=8)
    assert [row["reference"] for row in pairs.rows()] == [
        str(table.parent / f"reference{row}.png") for row in (0, 4, 5)
    ]
    assert "3 of 6 images are skipped" in caplog.text
    assert "image1.png (its reference: expected a whole PNG or JPEG image)" in caplog.text
    assert "image2.png (its reference: expected at least 32 x 32 pixels, got 32 x 20)" in caplog.text
    assert "image3.png (expected a reference in colour, as the picture is, got one without" in caplog.text
    (table.parent / "pairs.csv").write_text("image0.png,reference0.png\nimage4.png,reference4.png\n")
    assert len(ReferenceRestorer.read_files([table.parent / "pairs.csv"], [0, 1], size=8).images) == 2


def test_pictures_without_room_for_a_reference(tmp_path):
    PIL.Image.fromarray(patchworks(1, squares=2)[0][0]).save(tmp_path / "1.png")
    with pytest.raises(DataError, match=r"1\.png: expected at least 32 x 64 pixels, got 32 x 32"):
        ReferenceRestorer.read_files([tmp_path], size=8)


@pytest.mark.slow
def test_the_command(table, tmp_path, capsys, caplog):
    out, options = str(tmp_path / "run"), ["--size", "tiny", "--crops", "1", "--epochs", "1"]
    main(["train", "restore-images", "--data", str(table), "--out", out, "--family", "ttsr", *options])
    assert "its extractor starts from drawn weights, not from VGG-19's" in caplog.text
    assert tasks.load(out).config.restore == "x4"
    main(["train", "restore-images", "--data", str(table), "--out", f"{out}2", "--from", out, *options[2:]])
    main(["evaluate", out, "--data", str(table)])
    assert "x4_unrelated_psnr" in capsys.readouterr().out
    main(["predict", out, "--data", str(table), "--draw", str(tmp_path / "drawn")])
    output = capsys.readouterr()
    answered = [line.split("\t")[1] for line in output.out.splitlines()]
    assert answered == [
        str(tmp_path / "drawn" / f"image{row}.png") if row in (0, 4, 5) else "" for row in range(6)
    ]
    assert "image3.png gets an empty line: expected a reference in colour" in output.err
    image, reference = (str(table.parent / f"{kind}0.png") for kind in ("image", "reference"))
    main(["predict", out, "--data", image, "--reference", reference])
    assert capsys.readouterr().out == f"{image}\t128 x 128\n"
    grey = str(table.parent / "reference3.png")
    main(["predict", out, "--data", str(table.parent / "*3.png"), "--reference", grey])
    output = capsys.readouterr()
    assert output.out.splitlines() == [f"{table.parent / 'image3.png'}\t", f"{grey}\t128 x 128"]
    assert "image3.png gets an empty line: expected a reference in colour" in output.err
    with pytest.raises(SystemExit):
        main(["predict", out, "--data", image])
    wanted = "--reference must be a picture, for all that have none of their own; it is left out"
    assert wanted in capsys.readouterr().err
    for wrong, reason in (
        (str(table.parent / "reference1.png"), "its reference: expected a whole PNG or JPEG"),
        ("no.png", "its reference: cannot be read: No such file"),
    ):
        main(["predict", out, "--data", image, "--reference", wrong])
        output = capsys.readouterr()
        assert output.out == f"{image}\t\n" and f"gets an empty line: {reason}" in output.err


PICTURE, REFERENCE = (column[0] for column in patchworks(1, squares=2))
test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.predict([PICTURE]), "`reference` must be a picture, for all that have none of their"),
    (
        lambda task: task.predict([{"image": PICTURE}]),
        "row 0: expected a picture, or {image, reference}, got",
    ),
    (lambda task: task.predict([PICTURE], reference=PICTURE[:20]), "row 0: its reference: expected at least"),
    (lambda task: task.predict([PICTURE], reference=b"text"), "row 0: its reference: expected a whole PNG"),
    (
        lambda task: task.predict([PICTURE], reference="no.png"),
        "row 0: its reference: cannot be read: No such",
    ),
    (lambda task: task.predict([PICTURE], reference=GREY), "row 0: expected a reference in colour, as the"),
    (
        lambda task: task.predict([PICTURE], reference=5),
        "row 0: expected an image, an array or a file's path",
    ),
    (lambda task: task.predict([b"text"], reference=REFERENCE), "row 0: expected a whole PNG or JPEG image"),
    (
        lambda task: task.predict([PICTURE], restore="x2", reference=REFERENCE),
        "`restore` must be x4, as the model",
    ),
    (lambda task: task.fit([PICTURE] * 4), "image 0: expected at least 32 x 64 pixels, got 32 x 32"),
    (lambda task: task.fit(([PICTURE], [REFERENCE] * 2)), "expected images and references of one length"),
    (
        lambda task: task.evaluate(([PICTURE], [GREY])),
        "image 0: expected a reference in colour, as the picture",
    ),
    (lambda task: task.evaluate(([], [])), "`images` must not be empty"),
    (
        lambda task: ReferenceRestorer(task.model, restore="x2"),
        "`restore` must be x4, which is all that ttsr",
    ),
    (
        lambda task: ReferenceRestorer(TTSR.from_size("tiny", reference_size=40)),
        "`model` must be one whose references have 4 times its images' side, 32; it is one of 40 x 40",
    ),
    (lambda task: ImageRestorer(task.model), "`model` must be one of the tasks"),
)


def test_no_other_model_takes_a_reference():
    task = ImageRestorer.make(None, RestorerOptions(size="tiny"), {}, restore="x2", crop=8)
    with pytest.raises(ValueError, match="`reference` must be left out, since the model takes no textures"):
        task.predict([PICTURE], reference=REFERENCE)
