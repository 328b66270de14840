"""Re-identification: measures by hand, a matcher that learns drawn people, cameras, folders and exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data.worlds.people import drawn_people, write_drawn_people
from keras_tfm.tasks import IdentityMatcher
from keras_tfm.tasks.images.identity_matcher import IdentityOptions
from keras_tfm.tasks.images.identity_measures import retrieval
from tests.fresh_process import ask

SMALL = {"num_layers": 2, "dim": 32, "num_heads": 2, "intermediate_dim": 64, "num_parts": 2, "patch_size": 16}
SMALL |= {"stride": 12}


@pytest.fixture(scope="module")
def people():
    return drawn_people(12, seed=1, num_cameras=2, num_shots=3)


@pytest.fixture(scope="module")
def task(people):
    keras.utils.set_random_seed(0)
    task = IdentityMatcher.make(people, IdentityOptions(camera_vectors=True), SMALL)
    options = {"identities_in_batch": 8, "images_of_each": 4, "learning_rate": 3e-3}
    repeated = [np.concatenate([column] * 16) for column in people[:3]]
    task.fit(repeated, people[:3], epochs=5, **options)
    return task


def test_measures_by_hand():
    """Two queries: the first one's images stand at places 2 and 3 of 4, the second one's at place 1 of 3."""
    angles = np.deg2rad([0, 10, 20, 30, 40, 1, 90, 85])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    identities = np.array(list("abaaxabb"))
    cameras = np.array([1, 2, 2, 3, 2, 1, 1, 2])
    queries = np.array([True, *[False] * 5, True, False])
    found = retrieval(vectors, identities, cameras, queries)
    # For a: b, a, a, x, b, without the a of camera 1. For b: b at 85 degrees, x, a, ..., b at the end of 5.
    first = (1 / 2 + 2 / 3) / 2
    second = (1 / 1 + 2 / 5) / 2
    assert found["map"] == pytest.approx((first + second) / 2)
    assert (found["rank_1"], found["rank_5"], found["queries"]) == (0.5, 1.0, 2)
    everyone = retrieval(vectors, identities, cameras, np.zeros(8, bool))
    assert everyone["queries"] == 7  # x is alone
    same = retrieval(np.ones((4, 1)), np.array(list("abba")), np.arange(4), np.array([True, *[False] * 3]))
    assert same["map"] == pytest.approx(1 / 3)  # as similar: in their order
    with pytest.raises(ValueError, match="expected images of one identity by several cameras"):
        retrieval(vectors, identities, np.ones(8), queries)


def test_people_are_found_again(task, people):
    found = task.evaluate(people[:3])
    assert found["rank_1"] > 0.8 and found["map"] > 0.7 and found["images"] == found["queries"] == 72
    fresh = IdentityMatcher.make(people, IdentityOptions(camera_vectors=True), SMALL)
    assert fresh.evaluate(people[:3])["rank_1"] < 0.5
    queries = people.cameras == 1
    asked = task.evaluate((*people[:3], queries))
    assert asked["queries"] == queries.sum() and asked["rank_1"] > 0.8


def test_vectors_depend_on_the_camera(task, people, tmp_path):
    image = people.images[0]
    vectors = task.predict([image, image], cameras=[1, 2])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert vectors.shape == (2, 96) and np.abs(vectors[0] - vectors[1]).max() > 1e-3
    path = tmp_path / "0001_c2s1_000001_01.png"
    tf.io.write_file(str(path), tf.io.encode_png(image))
    for examples in ([path], [(image, 2)], [(str(path), 2)]):
        np.testing.assert_allclose(task.predict(examples), vectors[1:], atol=1e-5)
    np.testing.assert_allclose(task.predict([path], cameras=[1]), vectors[:1], atol=1e-5)
    assert list(task.refusals([(image, 1), (image, 3), image])) == [1, 2]
    with pytest.raises(ValueError, match=r"row 1: expected an image by one of the cameras 1, 2, .* got 3"):
        task.predict([(image, 1), (image, 3)])


def test_cameras_have_their_numbers_in_any_order(people):
    backbone = tasks.IdentityMatcher.make(people, IdentityOptions(camera_vectors=True), SMALL).encoder
    turned = IdentityMatcher(backbone, np.unique(people.identities), cameras=[2, 1])
    assert turned.camera_inputs(np.array([1, 2, 2])).tolist() == [1, 0, 0]


def test_what_does_not_fit_is_refused(task, people):
    images, names, cameras, _ = people
    with pytest.raises(ValueError, match=r"`cameras`, row 1: expected one of the cameras \(1, 2\), got 7"):
        task.evaluate((images[:2], names[:2], [1, 7]))
    with pytest.raises(
        ValueError, match="expected images, identities and cameras of one length, got 2, 1 and 2"
    ):
        task.evaluate((images[:2], names[:1], cameras[:2]))
    with pytest.raises(ValueError, match="expected images and queries of one length, got 2 and 1"):
        task.evaluate((images[:2], names[:2], cameras[:2], [True]))
    with pytest.raises(ValueError, match="`identities`, row 0: expected a name or a number, got None"):
        task.evaluate((images[:2], [None, "a"], cameras[:2]))
    with pytest.raises(ValueError, match="`identities` must be identities of the task; '8' is none"):
        task.fit((images[:4], [9, 9, 8, 8], cameras[:4]), 0.5, epochs=1)
    with pytest.raises(ValueError, match="camera_vectors` needs the `family` transreid; it is vit"):
        IdentityMatcher.make(people, IdentityOptions(family="vit", camera_vectors=True), {})
    with pytest.raises(ValueError, match="`cameras` must be as many as the model's, 2; they are 0"):
        IdentityMatcher(task.model, set(names))
    with pytest.raises(ValueError, match="`identities` must be two or more"):
        IdentityMatcher(task.encoder, ["a"], cameras=[1, 2])


def test_another_size_of_images_is_the_model_s_or_refused(people):
    names = list(dict.fromkeys(people.identities))
    vit = IdentityMatcher.make(people, IdentityOptions(family="vit"), {"image_size": 16, "patch_size": 8})
    larger = IdentityMatcher.adopt(vit, people, image_size=32)
    assert larger.image_shape == (32, 32, 3) and larger.config.identities == tuple(names)
    for a, b in zip(*(x.model.get_layer("classes_0").get_weights() for x in (larger, vit)), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="`image_size` must be 64, since weights of TransReID depend on it"):
        IdentityMatcher.adopt(IdentityMatcher.make(people, IdentityOptions(), SMALL), people, image_size=128)


def test_a_run_answers_as_its_task_does_and_trains_on(task, people, tmp_path):
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == task.config
    examples = [(image, camera) for image, camera in zip(people.images[:4], people.cameras[:4], strict=True)]
    np.testing.assert_array_equal(again.predict(examples), task.predict(examples))
    kept = IdentityMatcher.start_from(tmp_path / "run", people)
    assert kept.config.identities == task.config.identities
    other = IdentityMatcher.start_from(tmp_path / "run", drawn_people(3, first=90, num_cameras=2))
    assert other.config.identities == ("0091", "0092", "0093") and other.config.cameras == (1, 2)


def test_a_saved_model_answers_without_this_package(task, people, tmp_path):
    task.export(tmp_path / "export")
    images, cameras = people.images[:3], np.array([1, 2, 2], "int32")
    expected = task.predict(images, cameras=cameras)
    encoded = np.array([tf.io.encode_png(image).numpy() for image in images], object)
    found = ask(tmp_path / "export", of_text=False, image_bytes=encoded, camera=cameras)
    np.testing.assert_allclose(found["vector"], expected, atol=1e-5)
    served = serving.load(tmp_path / "export")
    examples = [{"image_bytes": data, "camera": int(x)} for data, x in zip(encoded, cameras, strict=True)]
    vectors = served([*examples, {**examples[0], "camera": 5}])["vector"]
    np.testing.assert_allclose(vectors[:3], expected, atol=1e-5)
    assert np.isnan(vectors[3]).all()
    with pytest.raises(ValueError, match="The task 'reidentify' is exported as a SavedModel alone"):
        task.export(tmp_path / "onnx", format="onnx")


@pytest.mark.slow
def test_without_cameras_other_formats_carry_it(people, tmp_path):
    task = IdentityMatcher.from_size("tiny", np.unique(people.identities), **SMALL)
    task.export(tmp_path / "onnx", format="onnx")
    served = serving.load(tmp_path / "onnx")
    expected = task.predict(people.images[:3])
    np.testing.assert_allclose(served(list(people.images[:3]))["vector"], expected, atol=1e-4)
    similar = task.similarity(people.images[:3], people.images[:2])
    np.testing.assert_allclose(similar, expected @ expected[:2].T, atol=1e-5)


@pytest.mark.slow
def test_the_command_line_trains_predicts_and_evaluates(tmp_path, capsys):
    write_drawn_people(tmp_path / "people", 6, 3, seed=2, num_cameras=2, num_shots=2)
    run, data = str(tmp_path / "run"), str(tmp_path / "people")
    (tmp_path / "model.json").write_text(
        '{"num_layers": 2, "dim": 32, "num_heads": 2, "intermediate_dim": 32}'
    )
    train = ["train", "reidentify", "--data", data, "--out", run, "--epochs", "2", "--camera-vectors"]
    sizes = ["--config", str(tmp_path / "model.json"), "--identities-in-batch", "3", "--images-of-each", "2"]
    main([*train, *sizes])
    capsys.readouterr()
    main(["evaluate", run, "--data", data])
    assert '"rank_1"' in capsys.readouterr().out
    main(["predict", run, "--data", f"{data}/query"])
    assert len(capsys.readouterr().out.splitlines()) == 6
