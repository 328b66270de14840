"""The generator of images: what it learns, what it makes of a class and a seed, its files, its refusals."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import Preprocessing
from keras_tfm.data.batches.noisy_images import NoisyImageBatches
from keras_tfm.models import DiT
from keras_tfm.tasks import ImageClassifier, ImageEncoder, ImageGenerator
from keras_tfm.tasks.images.generator_options import GeneratorOptions
from keras_tfm.tasks.images.set_distances import frechet_distance, kernel_distance
from tests.tasks.interrupting import interrupted_at
from tests.tasks.refusals import refusals

SMALL = {
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 1,
    "num_layers": 1,
    "dim": 32,
    "num_heads": 2,
    "intermediate_dim": 64,
}
LEARNING = {"epochs": 20, "batch_size": 32, "learning_rate": 1e-2}


def examples(size):
    """Images (N, 8, 8), nearly all dark or nearly all light, and which they are."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, size)
    images = rng.integers(0, 40, (size, 8, 8)) + 200 * labels[:, None, None]
    return images.astype("uint8"), np.array(["dark", "light"])[labels]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The RUN of a generator that has learnt."""
    folder = tmp_path_factory.mktemp("generator") / "run"
    keras.utils.set_random_seed(0)
    task = ImageGenerator.make(examples(320), GeneratorOptions(), SMALL)
    task.fit(examples(320), run=folder, **LEARNING)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def test_it_makes_pictures_of_the_class_that_is_asked_for(task):
    assert task.record["results"]["val_loss"] < 0.5 * task.record["baselines"]["the mean"]
    pictures = task.generate(["dark", "light"] * 4, steps=10)
    assert pictures.shape == (8, 8, 8, 1) and pictures.dtype == "uint8"
    light = pictures.reshape(8, -1).mean(-1)
    assert light[::2].max() < 100 and light[1::2].min() > 150
    assert len({picture.tobytes() for picture in pictures}) == 8
    assert task.generate(3, steps=2).shape == (3, 8, 8, 1)  # of no class
    assert task.generate([], steps=2).shape == (0, 8, 8, 1)


def test_a_class_and_a_seed_determine_a_picture(task):
    whole = task.generate(["dark", "light", "dark"], seed=2**31 - 2, steps=2)
    in_parts = task.predict(["dark", "light", "dark"], seed=2**31 - 2, steps=2, batch_size=2)
    assert [answer["seed"] for answer in in_parts] == [2**31 - 2, 2**31 - 1, 0]
    for picture, answer in zip(whole, in_parts, strict=True):
        assert np.abs(answer["picture"].astype(int) - picture).max() <= 1
    alone = task.generate(["light"], seed=2**31 - 1, steps=2)
    assert np.abs(alone[0].astype(int) - whole[1]).max() <= 1


def test_guidance_leads_further_to_the_class(task):
    weak, strong = (task.generate(["dark"] * 4, steps=5, guidance=value) for value in (1, 4))
    assert strong.mean() < weak.mean()


def test_the_loss_is_measured_with_the_same_noise(task):
    first, second = (task.evaluate(examples(64)) for _ in range(2))
    assert first == second and first["images"] == 64
    assert first["percent_of_mean"] == pytest.approx(100 * first["loss"] / first["mean_loss"], rel=1e-3)
    weights = task.model.get_weights()
    for variable in task.model.trainable_variables:
        variable.assign(tf.zeros_like(variable))  # then it predicts 0
    unlearnt = task.evaluate(examples(64))
    task.model.set_weights(weights)
    assert first["percent_of_mean"] < 50 < unlearnt["percent_of_mean"]


def test_made_pictures_are_compared_with_the_data(task, run, loaded_once, tmp_path, capsys):
    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_layers": 1, "dim": 16, "num_heads": 2}
    judge = ImageClassifier.from_size("tiny", ["dark", "light"], **sizes, intermediate_dim=16)
    data = examples(40)
    measures = task.evaluate(data, features=judge, steps=2, guidance=1.0)
    assert {**measures, **task.evaluate(data)} == measures  # and the loss as without features
    features = ImageEncoder.from_task(judge, normalize=False).predict
    images = data[0][..., None]
    made = features(task.generate(data[1].tolist(), steps=2, guidance=1.0))
    assert measures["classify_images_fid"] == pytest.approx(
        frechet_distance(features(images), made), abs=0.01
    )
    assert measures["classify_images_kid"] == pytest.approx(kernel_distance(features(images), made), abs=0.01)
    assert 0 <= measures["classify_images_precision"] <= 1 and 0 <= measures["classify_images_recall"] <= 1
    noise = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1)).astype("uint8")
    assert measures["classify_images_fid"] < frechet_distance(features(images), features(noise))
    with pytest.raises(ValueError, match=r"`features` must be a task that reads images.* 'generate-images'"):
        task.evaluate(data, features=task)
    with pytest.raises(ValueError, match="`features` must be left out for one picture alone"):
        task.evaluate(tuple(column[:1] for column in data), features=judge)
    judge.save(tmp_path / "judge")
    np.savez(tmp_path / "data.npz", images=data[0], labels=data[1])
    asked = ["evaluate", str(run), "--data", str(tmp_path / "data.npz"), "--features"]
    with pytest.raises(SystemExit):
        main([*asked, str(tmp_path / "none")])
    capsys.readouterr()
    main([*asked, str(tmp_path / "judge")])
    assert json.loads(capsys.readouterr().out).keys() == measures.keys()
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "judge"), *asked[2:], str(tmp_path / "judge")])
    assert "--features: the task 'classify-images' makes no pictures" in capsys.readouterr().err


def test_batches_draw_anew_in_training_and_alike_in_validation():
    images, classes = np.arange(6 * 16, dtype="uint8").reshape(6, 4, 4, 1), np.arange(6)
    options = {"prepare": Preprocessing().normalized, "batch_size": 3, "num_steps": 10}

    def drawn(epoch, **more):
        batches = NoisyImageBatches(images, {"classes": classes}, **options, **more).dataset(epoch)
        columns = [{name: x.numpy() for name, x in inputs.items()} for (inputs,) in batches]
        return {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}

    fixed, again, shuffled = drawn(0), drawn(0), drawn(0, seed=1, flip=True)
    for name, value in fixed.items():
        np.testing.assert_array_equal(value, again[name])
    assert fixed["classes"].tolist() == list(range(6)) and fixed["timesteps"].max() < 10
    assert np.abs(fixed["noise"][:3] - fixed["noise"][3:]).min() > 0
    assert np.abs(shuffled["noise"] - drawn(1, seed=1)["noise"]).min() > 0
    whole = np.round((shuffled["images"] + 1) * 127.5)
    flipped = [
        not np.array_equal(image, images[row]) for image, row in zip(whole, shuffled["classes"], strict=True)
    ]
    assert any(flipped) and not all(flipped)
    for image, row, is_flipped in zip(whole, shuffled["classes"], flipped, strict=True):
        np.testing.assert_array_equal(image[:, ::-1] if is_flipped else image, images[row])


def test_the_command_writes_files(run, tmp_path, capsys):
    (tmp_path / "asked.txt").write_text("dark\ngreen\nlight\nlight\n", "utf-8")
    asked = ["predict", str(run), "--data", str(tmp_path / "asked.txt"), "--steps", "2", "--seed", "5"]
    main([*asked, "--draw", str(tmp_path / "new")])
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[1] == "" and "line 2 gets an empty line: expected one of the classes dark, li" in output.err
    names = ["dark.png", "light.png", "light-000003.png"]
    assert [lines[row] for row in (0, 2, 3)] == [str(tmp_path / "new" / name) for name in names]
    picture = np.asarray(PIL.Image.open(tmp_path / "new" / "dark.png"))
    main([*asked, "--json"])
    answers = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
    assert answers == ["5", None, "6", "7"]
    again = tasks.load(run).generate(["dark"], seed=5, steps=2)[0, ..., 0]
    assert np.abs(again.astype(int) - picture).max() <= 1
    with pytest.raises(SystemExit):
        main([*asked, "--draw", str(tmp_path / "new")])
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("portion", [2, 256])
def test_seeds_go_on_from_portion_to_portion(portion, run, tmp_path, capsys, monkeypatch):
    (tmp_path / "asked.txt").write_text("dark\ngreen\ndark\ndark\n\ndark\n", "utf-8")
    monkeypatch.setattr(ImageGenerator, "portion", portion)
    options = ["--steps", "1", "--batch-size", "1"]
    main(["predict", str(run), "--data", str(tmp_path / "asked.txt"), *options])
    assert capsys.readouterr().out.splitlines() == ["0", "", "1", "2", "", "3"]


def test_a_saved_model_answers_with_files(task, tmp_path):
    task.export(tmp_path / "export", steps=2)
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    files = served(classes=tf.constant(["light", "dark"]), seed=tf.constant([3, 8]))["png"]
    assert files.shape == (2,)
    for file, name, seed in zip(files, ("light", "dark"), (3, 8), strict=True):
        picture = tf.io.decode_png(file).numpy().astype(int)
        assert np.abs(picture - task.generate([name], seed=seed, steps=2)[0]).max() <= 1
    by_name = serving.load(tmp_path / "export")([{"classes": "light", "seed": 3}])["png"]
    np.testing.assert_array_equal(tf.io.decode_png(by_name[0]), tf.io.decode_png(files[0]))
    with pytest.raises(ValueError, match=r"row 0: expected \{input: value\} of classes, seed, got 'light'"):
        serving.load(tmp_path / "export")(["light"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected names of classes, got"):
        served(classes=tf.constant(["light", "green"]), seed=tf.constant([3, 8]))
    with pytest.raises(ValueError, match="'generate-images' is exported as a SavedModel alone"):
        task.export(tmp_path / "other", format="onnx")


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("dit", SMALL),
        pytest.param(
            "diffusion-unet",
            {"image_size": 8, "num_channels": 1, "dims": [8, 8], "attends": [False, True], "num_groups": 4},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_images_without_classes_of_other_sizes_and_in_colour(family, changes, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(6):
        PIL.Image.new("RGB", (10 + number, 9), (200, 10, 30)).save(folder / f"{number}.png")
    options = GeneratorOptions(family)
    images = ImageGenerator.read_files([folder], **ImageGenerator.reading(options, {"num_channels": 1}))
    task = ImageGenerator.make(images, options, changes)
    assert type(task.model.backbone) is options.model_class and images.shape == (6, 32, 32, 1)
    task.fit(images, epochs=1)
    assert task.predict(["any", "line"], steps=2)[1]["picture"].shape == (8, 8, 1)
    with pytest.raises(ValueError, match="`guidance` must be left out, as the model has no classes"):
        task.predict(["any"], guidance=2.0)
    task.export(tmp_path / "export", steps=2)
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    picture = tf.io.decode_png(served(seed=tf.constant([4]))["png"][0])
    assert np.abs(picture.numpy().astype(int) - task.generate(1, seed=4, steps=2)[0]).max() <= 1


def test_classes_are_where_the_files_have_them(tmp_path):
    def made(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("L", (8, 8)).save(path)
        return path

    def read(path, columns=None):
        return ImageGenerator.read_files([path], columns, image_shape=(8, 8, 1))

    for name in ("two/a/1.png", "two/b/1.png", "one/a/1.png"):
        made(name)
    images, labels = read(tmp_path / "two")
    assert labels.tolist() == ["a", "b"] and images.shape == read(tmp_path / "two")[0].shape
    assert read(tmp_path / "one").shape == (1, 8, 8, 1)
    np.savez(tmp_path / "both.npz", images=np.zeros((2, 8, 8), "uint8"), labels=np.array([7, 1]))
    assert read(tmp_path / "both.npz")[1].tolist() == ["7", "1"]
    assert read(tmp_path / "both.npz", ["images"]).shape == (2, 8, 8, 1)
    table = "image,label\n" + "".join(f"two/{name}/1.png,{name}\n" for name in "ab")
    (tmp_path / "table.csv").write_text(table, "utf-8")
    assert read(tmp_path / "table.csv")[1].tolist() == ["a", "b"]
    numbered = ImageGenerator.make((images, [10, 9]), GeneratorOptions(), SMALL)
    assert numbered.config.class_names == ("9", "10") and numbered.evaluate((images, [10, 9]))["images"] == 2
    assert read(tmp_path / "table.csv", ["image"]).shape == (2, 8, 8, 1)


test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.generate(["green"]), "row 0: expected one of the classes dark, light, got 'gree"),
    (lambda task: task.generate("dark"), "expected a list, got a single one, 'dark'"),
    (lambda task: task.generate(0), "`asked` must be classes, or a number of pictures of at least"),
    (lambda task: task.generate(["dark"], steps=0), "`steps` must be at least 1; it is 0"),
    (lambda task: task.generate(["dark"], steps=10_000), "`steps` must be at most 1,000; it is 10000"),
    (lambda task: task.generate(["dark"], guidance=np.nan), "`guidance` must be a number; it is nan"),
    (lambda task: task.generate(["dark"], guidance=-1), "`guidance` must be at least 0; it is -1"),
    (lambda task: task.generate(["dark"], seed=2**31), "`seed` must be below 2,147,483,648; it is 2147"),
    (lambda task: task.fit(examples(1)), "At least 2 examples are needed"),
    (lambda task: task.fit((examples(2)[0][0], ["dark"] * 8)), r"`images` must have the shape \(B, H"),
    (lambda task: task.fit(examples(4)[0]), r"expected \(images, labels\), got ndarray"),
    (lambda task: task.evaluate((examples(2)[0], ["dark", "green"])), "`labels`: expected one of the"),
    (lambda task: ImageGenerator(task.model.backbone), "`backbone` must be a model of 0 classes"),
    (lambda task: ImageGenerator(DiT.from_size("tiny", **SMALL), mean=(0.0,)), "`mean` must be 0.5, and"),
    (
        lambda task: ImageGenerator(DiT.from_size("tiny", **SMALL), temperature=0.5),
        "`temperature` must be left out, as the model makes pictures of noise; it is 0.5",
    ),
    (
        lambda task: ImageGenerator(DiT.from_size("tiny", **SMALL), class_dropout=0.5),
        "`class_dropout` must be left out, as the model has no classes; it is 0.5",
    ),
    (lambda task: GeneratorOptions("dot").base(), "There is no family 'dot'"),
    (
        lambda task: ImageGenerator.make(
            None, GeneratorOptions("diffusion-unet", "stable-diffusion-1"), {"dims": [32] * 4}
        ),
        "`backbone` must be a model of 0 classes.* that reads nothing else; it is one of 0 and reads",
    ),
    (
        lambda task: ImageGenerator.adopt(task, (examples(2)[0], np.array(["dark", "green"]))),
        "--from: its classes are .*, the data's",
    ),
)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path):
    def trained(name, **options):
        keras.utils.clear_session()  # a checkpoint names seed generators, which Keras numbers in a process
        keras.utils.set_random_seed(0)
        task = ImageGenerator.make(examples(64), GeneratorOptions(), SMALL)
        task.fit(examples(64), run=tmp_path / name, **{**LEARNING, "epochs": 4}, **options)
        return task

    whole = trained("whole")
    with interrupted_at(2):
        trained("broken")
    resumed = trained("broken", resume=True)
    for one, other in zip(resumed.model.trainable_variables, whole.model.trainable_variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_training_goes_on_from_a_run(task, run):
    more = ImageGenerator.start_from(run, examples(32), guidance=3.0)
    assert more.config.guidance == 3.0 and more.config.class_names == task.config.class_names
    for one, other in zip(more.model.trainable_variables, task.model.trainable_variables, strict=True):
        np.testing.assert_array_equal(one, other)
