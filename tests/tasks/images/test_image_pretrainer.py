"""Pre-training on images: what is learnt by both methods, kept, resumed, gone on with, exported, refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.data import ImageFiles
from keras_tfm.heads import MaskedAutoencoder, SelfDistillation
from keras_tfm.models import MiT, ViT, ViTMAE
from keras_tfm.tasks import (
    ImageClassifier,
    ImageEncoder,
    ImagePretrainer,
    ImagePretrainerConfig,
    linear_probe,
    nearest_neighbours,
)
from keras_tfm.tasks.images.image_families import ImageOptions
from tests.fresh_process import ask
from tests.tasks.images.test_image_classifier import NAMES, SMALL, examples
from tests.tasks.interrupting import interrupted_at

SIZES = SMALL | {"patch_size": 2}
METHODS = {
    "mae": {"decoder_layers": 1, "decoder_dim": 32},
    "dino": {"num_prototypes": 16, "head_dim": 32, "bottleneck_dim": 8, "num_local": 2},
}
OPTIONS = {"batch_size": 32, "flip": False, "least_area": 0.2, "learning_rate": 5e-3}


def fresh(method, **changes):
    keras.utils.clear_session()  # a checkpoint names seed generators, which Keras numbers in a process
    keras.utils.set_random_seed(0)
    return ImagePretrainer.make(None, ImageOptions(), SIZES | changes, method=method, **METHODS[method])


@pytest.fixture(scope="module", params=["mae", pytest.param("dino", marks=pytest.mark.slow)])
def run(request, tmp_path_factory):
    """(The task that has learnt, its RUN)."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    task = fresh(request.param)
    task.history = task.fit(examples(96)[0], examples(32, seed=1)[0], epochs=3, run=folder, **OPTIONS)
    return task, folder


def test_the_loss_falls_and_the_run_holds_what_was_learnt(run):
    task, folder = run
    assert np.isfinite(task.history["loss"]).all()
    if task.config.method == "mae":
        assert isinstance(task.model, MaskedAutoencoder)
        assert task.history["val_loss"][-1] < task.history["val_loss"][0]
    else:
        assert isinstance(task.model, SelfDistillation)
        assert task.history["loss"][-1] < task.history["loss"][0]
        moved = [np.abs(np.subtract(*pair)).max() > 1e-5 for pair in task.model.followed]
        assert sum(moved) > len(moved) / 2  # the teacher is behind
    kept = tasks.load(folder)
    assert type(kept) is ImagePretrainer and kept.config == task.config and kept.is_trained
    for one, other in zip(kept.model.weights, task.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_encoder_is_what_was_learnt(run):
    task, _ = run
    images, _ = examples(5, seed=2)
    encoder = task.encoder
    assert type(encoder) is ViT
    prepared = {"images": task.prepare(images[..., None])}
    if task.config.method == "mae":
        expected = task.model.backbone.encoder()(prepared)["pooled_output"]
    else:
        expected = task.model.teacher_backbone(prepared)["pooled_output"]
        assert np.abs(expected - task.model.backbone(prepared)["pooled_output"]).max() > 1e-4
    np.testing.assert_allclose(encoder(prepared)["pooled_output"], expected, atol=1e-5)
    vectors = expected / np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(task.predict(images), vectors, atol=1e-5)
    np.testing.assert_allclose(ImageEncoder.from_task(task).predict(images), vectors, atol=1e-5)
    assert len(task.as_line(vectors[0]).split()) == 16


@pytest.mark.slow
def test_a_run_is_fine_tuned_by_a_classifier(run, tmp_path):
    task, folder = run
    images, labels = examples(6)
    named = images, np.array(NAMES)[labels]
    classifier = ImageClassifier.start_from(folder, named, image_size=12)
    assert classifier.image_shape == (12, 12, 1) and type(classifier.model.backbone) is ViT
    again = ImageClassifier.start_from(folder, named)
    vectors = again.model.backbone({"images": again.prepare(images[..., None])})["pooled_output"]
    vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose(vectors, task.predict(images), atol=1e-5)
    again.save(tmp_path / "classifier")  # its weights have the names that a loaded one has
    loaded = tasks.load(tmp_path / "classifier")
    np.testing.assert_allclose(loaded.probabilities(images), again.probabilities(images), atol=1e-6)


def test_vectors_are_judged_by_labels(run):
    task, _ = run
    images, labels = examples(60, seed=3)
    measures = task.evaluate((images, labels), seed=4)
    order = np.random.default_rng(4).permutation(60)
    asked, known = np.sort(order[:12]), np.sort(order[12:])
    vectors = task.predict(images)
    pixels = images.reshape(60, -1).astype("float32")
    pixels -= pixels.mean(1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    kernel, bias, names = linear_probe(vectors[known], labels[known])
    expected = {
        "neighbour_accuracy": nearest_neighbours(vectors[known], labels[known], vectors[asked]),
        "pixel_accuracy": nearest_neighbours(pixels[known], labels[known], pixels[asked]),
        "probe_accuracy": names[(vectors[asked] @ kernel + bias).argmax(-1)],
    }
    assert measures.pop("images") == 60
    for name, answers in expected.items():
        assert measures.pop(name) == round(float(np.mean(answers == labels[asked])), 4)
    assert not measures
    with pytest.raises(
        ValueError, match=r"expected \(images, labels\), since labels are needed to test the vectors"
    ):
        task.evaluate(images)


@pytest.mark.slow
def test_the_export_gives_vectors(run, tmp_path):
    task, _ = run
    task.export(tmp_path / "served")
    images, _ = examples(3, seed=5)
    files = [tf.io.encode_png(image[..., None]).numpy() for image in images]
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    np.testing.assert_allclose(served["vector"], task.predict(images), atol=1e-5)


@pytest.mark.slow
def test_folders_of_transformers(run, tmp_path):
    task, _ = run
    task.save_huggingface(tmp_path / "published")
    images, _ = examples(3)
    if task.config.method == "mae":
        again = ImagePretrainer.from_huggingface(tmp_path / "published", method="mae")
        assert isinstance(again.model.backbone, ViTMAE)
        np.testing.assert_allclose(again.predict(images), task.predict(images), atol=1e-5)
    else:
        again = ImagePretrainer.from_huggingface(tmp_path / "published", method="dino", **METHODS["dino"])
        np.testing.assert_allclose(again.predict(images), task.predict(images), atol=1e-5)
        np.testing.assert_allclose(
            ImageEncoder.from_huggingface(tmp_path / "published").predict(images),
            task.predict(images),
            atol=1e-5,
        )


def test_going_on_with_another_share_of_hidden_patches():
    task = fresh("mae")
    other = ImagePretrainer.adopt(task, None, mask_ratio=0.5)
    assert other.model.backbone.config.mask_ratio == other.config.mask_ratio == 0.5
    for a, b in zip(other.model.get_weights(), task.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    *_, weights = other.model.examples(np.zeros((1, 8, 8, 1), "float32"))
    assert np.sum(weights) == 8  # of 16


@pytest.mark.slow
def test_going_on_from_runs(run):
    task, _ = run
    assert ImagePretrainer.adopt(task, None) is task
    fields = {"decoder_layers": 2} if task.config.method == "mae" else {"num_prototypes": 8}
    other = ImagePretrainer.adopt(task, None, **fields)
    images, _ = examples(3)
    assert other is not task
    np.testing.assert_allclose(other.predict(images), task.predict(images), atol=1e-5)
    classifier = ImageClassifier.from_size("tiny", NAMES, **SIZES)
    of_labels = ImagePretrainer.adopt(classifier, None, method="dino", **METHODS["dino"])
    assert of_labels.model.backbone is classifier.model.backbone
    with pytest.raises(
        ValueError, match="The method mae needs a ViTMAE, dino takes any model; this one is a ViT"
    ):
        ImagePretrainer.adopt(classifier, None)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_is_the_unbroken_one(method, tmp_path):
    images = examples(48)[0]

    def pretrained(run, resume=False):
        task = tasks.load(tmp_path / run) if resume else fresh(method, dropout=0.1)
        options = OPTIONS | {"epochs": 2, "batch_size": 16, "run": tmp_path / run, "resume": resume}
        task.fit(images, images[:16], **options)
        return task

    whole = pretrained("whole")
    with interrupted_at(1):
        pretrained("broken")
    resumed = pretrained("broken", resume=True)
    kept = tasks.load(tmp_path / "broken")
    for one, two, three in zip(whole.model.weights, resumed.model.weights, kept.model.weights, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@pytest.mark.slow
def test_images_come_with_labels_and_from_files(tmp_path):
    images, labels = examples(4)
    paths = [tmp_path / "a" / f"{number}.png" for number in range(4)]
    paths[0].parent.mkdir()
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(tf.io.encode_png(image[..., None]).numpy())
    task = fresh("mae")
    files = ImageFiles(paths, task.image_shape)
    for form in (images, (images, labels), files, list(map(str, paths)), (files, labels)):
        task.fit(form, form, epochs=1, batch_size=4) if form is images else task.check_examples(form)
        batch = next(
            iter(task.batches(task.check_examples(form), task.training, is_validation=True).dataset())
        )
        np.testing.assert_allclose(batch[0]["images"][..., 0], images / 127.5 - 1, atol=1e-6)
    read = ImagePretrainer.read_files([tmp_path], image_shape=(8, 8, 1))
    np.testing.assert_array_equal(np.asarray(read)[..., 0], images)


@pytest.mark.slow
def test_families_of_one_size_learn_from_themselves_too():
    sizes = {
        "dims": (8, 16),
        "depths": (1, 1),
        "num_heads": (1, 2),
        "mlp_ratios": (2, 2),
        "reductions": (2, 1),
    }
    sizes |= {"patch_sizes": (3, 3), "strides": (2, 2), "image_size": 8, "num_channels": 1}
    config = ImagePretrainerConfig(method="dino", **METHODS["dino"])
    task = ImagePretrainer(MiT(MiT.config_class(**sizes)), config)
    assert task.model.input["local_images"].shape == (None, 2, 8, 8, 1)
    (inputs,) = next(iter(task.batches(task.check_examples(examples(4)[0]), task.training).dataset()))
    assert task.model(inputs).shape == (4, 4, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "mae", "decoder_dim": 40}, "`decoder_dim` must be a multiple of 32; it is 40"),
        ({"method": "simclr"}, "`method` must be"),
        (
            {"method": "mae", "mask_ratio": 0.99},
            r"`mask_ratio` must leave one of 16 patches visible; it is 0\.99",
        ),
    ],
)
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ImagePretrainer.make(None, ImageOptions(), SIZES, **changes)


def test_wrong_inputs_are_refused():
    with pytest.raises(ValueError, match="--method mae needs --family vit; it is 'swin'"):
        ImagePretrainer.make(None, ImageOptions(family="swin"), {}, method="mae")
    task = fresh("mae")
    images, labels = examples(4)
    for wrong, message in (
        (images[:0], "`images` must not be empty"),
        ((images, labels[:3]), r"expected images, or \(images, labels\) of one length"),
        (np.zeros((2, 8, 8, 3), "uint8"), r"`images` must have the shape \(B, H, W\)"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(wrong)
    with pytest.raises(ValueError, match=r"`least_area` must be at most `parting_area`, 0\.4; it is 0\.5"):
        task.fit(images, least_area=0.5)
    with pytest.raises(ValueError, match="a 'recommend' task reads no images"):
        ImagePretrainer.adopt(
            tasks.Recommender.from_ratings((["a", "b"], ["x", "y"], [1.0, 2.0]), dim=2), None
        )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--method mae --family swin", "--method mae needs --family vit; it is 'swin'"),
        ("--method mae --mask-ratio 0.999", "--mask-ratio must leave one of 64 patches visible; it is 0.999"),
        ("--method dino --image-size 30", "not divisible into patches"),
        ("--method mae --from {classifier}", "The method mae needs a ViTMAE, dino takes any model"),
        ("--method dino --from {books}", "a 'recommend' task reads no images"),
    ],
)
def test_models_that_cannot_be_are_refused_before_images_are_read(
    options, told, tmp_path, monkeypatch, capsys
):
    if "{classifier}" in options:
        ImageClassifier.from_size("tiny", NAMES, **SIZES).save(tmp_path / "classifier")
    if "{books}" in options:
        tasks.Recommender.from_ratings((["a"] * 2, ["x", "y"], [1.0, 2.0]), dim=2).save(tmp_path / "books")
    monkeypatch.setattr(ImagePretrainer, "read_files", lambda *_, **__: pytest.fail("images were read"))
    starts = {name: tmp_path / name for name in ("classifier", "books")}
    words = options.format(**starts).split()
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "train",
                "pretrain-images",
                "--data",
                str(tmp_path / "images"),
                "--out",
                str(tmp_path / "run"),
                *words,
            ]
        )
    assert stopped.value.code == 2 and not (tmp_path / "run").exists()
    assert told in capsys.readouterr().err
