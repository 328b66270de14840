"""Draw clothes in seven ways that learn from Fashion-MNIST: a table and a picture.

    python examples/draw_clothes.py
    python examples/draw_clothes.py train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz
    python examples/draw_clothes.py --ways dit vitgan --part 0.1

The first command reads Keras's copy, which it downloads; the second anything that `keras-tfm train
classify-images` reads, `tfds:fashion_mnist#train` for example. `--part 0.1` does a tenth of the steps.
Seconds of processor time of a core of an AMD EPYC with AVX2, compiling included, TF_ENABLE_ONEDNN_OPTS=1; of
DiT with `--part 4`; on a core with AVX-512, of Image Transformer and TransGAN with `--part 4`, of ViTGAN with
`--part 6`:

                        seconds      FID     KID  precision  recall   right  bits
    others of the test              1.11  -0.004       0.93    0.92    92.4
    the mean picture              118.81   0.544       0.00    0.00
    noise                         106.85   0.696       0.20    0.00
    VQ + GPT                932     2.01  -0.000       0.87    0.85    89.4  2.73 bits_per_code
    ImageGPT                588    26.92   0.129       0.73    0.55    32.2  1.40 bits_per_pixel
    Image Transformer       635    14.59   0.062       0.69    0.84          3.02 bits_per_dimension
    DDPM                   1136    11.09   0.027       0.80    0.71    61.8
    DiT                    2679     2.10  -0.000       0.93    0.85    92.0
    ViTGAN                 1200    31.45   0.145       0.86    0.05
    TransGAN               1002    35.61   0.162       0.59    0.25

500 pictures of each are compared with 500 test images by the features of a classifier, which is right for
90.6 % of the test images. "right" are pictures that it takes for the class that was asked for, in percent,
with a guidance of 1.5. Bits are of a code, one of 512, of a pixel, one of 16 greys, or of a value, one of
256.

The folder has a RUN for each way, its pictures, its row, and clothes.png, 64 pictures of each. What is there
is not made again, and a training that was stopped goes on: other images or another part need another --out.
"""

import argparse
import functools
import json
import pathlib
import time
from typing import Any, NamedTuple

import keras
import numpy as np
import PIL.Image
import PIL.ImageDraw
import tensorflow as tf

from keras_tfm import models, tasks
from keras_tfm.data import read_labelled_images
from keras_tfm.tasks.images.features import compared, features_of
from keras_tfm.training import Adversarial, Checkpoint, Progress

SIDE, EPOCHS, MADE = 28, 8, 500
GREY: dict[str, Any] = {"image_size": SIDE, "num_channels": 1}


class Recipe(NamedTuple):
    """How a model learns: its title in the table, steps, images a step, peak learning rate, and sizes."""

    title: str
    steps: int
    batch_size: int
    rate: float
    sizes: dict[str, Any]


JUDGE = Recipe("classifier", 5_000, 64, 2e-3, GREY)
CODER = Recipe("VQGAN", 1_600, 32, 2e-3, {**GREY, "code_dim": 16, "attends": [False] * 3})
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
OF_TASKS = {
    "gpt": Recipe("VQ + GPT", 3_200, 32, 1e-3, {"num_layers": 4, "dim": 128, **NO_DROPOUT}),
    "imagegpt": Recipe("ImageGPT", 600, 16, 1e-3, {"num_layers": 3, "dim": 64, **NO_DROPOUT}),
    "image-transformer": Recipe(
        "Image Transformer", 800, 16, 1e-3,
        {"image_size": [SIDE] * 2, "num_channels": 1, "num_layers": 3, "intermediate_dim": 256,
         "block_length": 4 * SIDE, "dropout": 0.0},
    ),
    "diffusion-unet": Recipe("DDPM", 1_200, 32, 2e-3, GREY),
    "dit": Recipe("DiT", 4_000, 32, 2e-3, {**GREY, "num_layers": 4}),
}  # fmt: skip
ADVERSARIAL = {
    "vitgan": Recipe(
        "ViTGAN", 2_000, 32, 5e-4,
        {**GREY, "patch_size": 4, "num_layers": 3, "dim": 64, "num_heads": 4, "intermediate_dim": 128},
    ),
    "transgan": Recipe("TransGAN", 720, 32, 5e-4, {"num_channels": 1, "num_heads": 4, "mlp_ratio": 2}),
}  # fmt: skip
# What the generator and the discriminator have alone, and how they learn.
PLAYERS = {
    "vitgan": (
        models.ViTGAN, {"latent_dim": 64},
        models.ViTGANDiscriminator, {"overlap": 2},
        {"penalty": 0.1, "momentum": 0.995},
    ),
    "transgan": (
        models.TransGAN, {"first_side": 7, "dim": 256, "latent_dim": 64, "largest_map": 14, "window": 14},
        models.TransGANDiscriminator, {"image_size": SIDE, "patch_size": 2, "depths": [1, 1], "dim": 64},
        {"penalty": 10.0, "momentum": 0.99},
    ),
}  # fmt: skip
WAYS = {name: recipe.title for name, recipe in (OF_TASKS | ADVERSARIAL).items()}
GUIDANCE, STEPS = 1.5, 25  # how far pictures are led to their class, and steps from noise to a picture


class Clock(keras.callbacks.Callback):
    """Adds the processor time of a training to a file, epoch by epoch."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_begin(self, logs=None):
        self.last = time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        before, now = float(self.path.read_text()) if self.path.exists() else 0.0, time.process_time()
        self.path.write_text(str(before + now - self.last))
        self.last = now


def read(source, part):
    """Images (N, 28, 28, 1), 8-bit, and their classes as strings; `part` is "train" or "test"."""
    if source is None:
        images, labels = keras.datasets.fashion_mnist.load_data()[part == "test"]
        return images[..., None], labels.astype(str)
    found = read_labelled_images(source, SIDE, SIDE, 1)
    return np.asarray(found.images), np.array(found.class_names)[found.labels]


def split(examples):
    """(Examples to train on, a few that judge the epochs)."""
    columns = examples if isinstance(examples, tuple) else (examples,)
    count = min(128, len(columns[0]) // 5)
    parts = [tuple(x[rows] for x in columns) for rows in (slice(count, None), slice(count))]
    return parts if isinstance(examples, tuple) else [part[0] for part in parts]


def learnt(folder, make, examples, recipe, part):
    """The task in `folder`, which `make` makes; it learns unless it has done so."""
    task = tasks.load(folder) if folder.exists() else make()
    if "results" in task.record:
        return task
    options = {"batch_size": recipe.batch_size, "learning_rate": recipe.rate, "schedule": "cosine"}
    options |= {"epochs": EPOCHS, "epoch_batches": max(1, round(part * recipe.steps / EPOCHS))}
    clock = Clock(folder.with_name(f"{folder.name}.seconds"))
    task.fit(*split(examples), run=folder, resume=folder.exists(), callbacks=[clock], **options)
    return task


def of_task(way, folder, train, test, part):
    """(Pictures of the classes in turn, or of none; these classes, or None; bits), by a task."""
    images, labels = train
    recipe, codes, fields = OF_TASKS[way], None, {}
    sizes = dict(recipe.sizes)
    if way == "gpt":
        codes, options = folder / "codes", tasks.ImageCoder.model_options(num_codes=512, local_codes=True)
        learnt(codes, lambda: tasks.ImageCoder.make(images, options, CODER.sizes), images, CODER, part)
    if way == "imagegpt":  # of 16 grey levels
        images, test = images.repeat(3, -1), (test[0].repeat(3, -1), test[1])
        fields["image_size"] = SIDE
    if way in ("dit", "diffusion-unet"):
        fields["steps"] = STEPS
    has_classes = way != "image-transformer"
    if has_classes:
        fields["guidance"] = GUIDANCE
    train = (images, labels) if has_classes else images
    kind = tasks.ImageGenerator.model_options(way, codes=codes and str(codes), colours=16)
    task = learnt(
        folder / "run", lambda: tasks.ImageGenerator.make(train, kind, sizes, **fields), train, recipe, part
    )
    some = tuple(x[:MADE] for x in test) if has_classes else test[0][:MADE]
    bits = {name: value for name, value in task.evaluate(some).items() if name.startswith("bits")}
    asked = np.resize(np.unique(labels), MADE) if has_classes else None
    pictures = task.generate(MADE if asked is None else asked.tolist(), seed=1, batch_size=100)
    return pictures[..., :1], asked, bits


def of_players(way, folder, train, part):
    """The same by a generator that learns from a discriminator, without classes."""
    recipe = ADVERSARIAL[way]
    family, one, opponent, other, learning = PLAYERS[way]
    generator = family.from_size("tiny", **recipe.sizes | one)
    discriminator = opponent.from_size("tiny", **recipe.sizes | other)
    model = Adversarial(generator, discriminator, **learning)
    players = (keras.optimizers.Adam(recipe.rate, 0.0, 0.99) for _ in range(2))
    model.compile(*players, jit_compile=False)  # which would take longer than it saves
    images = train[0] / np.float32(127.5) - 1
    batches = tf.data.Dataset.from_tensor_slices({"images": images}).shuffle(len(images), seed=0).repeat()
    checkpoint = Checkpoint(folder / "checkpoints", keep=1, resume=True)
    model.fit(
        batches.batch(recipe.batch_size), epochs=EPOCHS, shuffle=False, verbose=0,
        steps_per_epoch=max(1, round(part * recipe.steps / EPOCHS)),
        callbacks=[Progress(), Clock(folder / "run.seconds"), checkpoint],
    )  # fmt: skip
    model.average.save(folder / "generator.keras")
    latents = np.random.default_rng(1).normal(size=(MADE, *generator.input["latents"].shape[1:]))
    pictures = model.predict({"latents": latents.astype("float32")}, verbose=0)["images"]
    return np.uint8(np.round((np.clip(pictures, -1, 1) + 1) * 127.5)), None, {}


def measured(pictures, asked, judge, real):
    """Distances of pictures to `real` ones by the features of the `judge`, and what it sees in them."""
    encoder, _ = features_of(judge)
    measures = compared(encoder.predict(real), encoder.predict(pictures), "judge")
    if asked is not None:
        measures["right"] = 100 * float(np.mean(judge.predict(pictures) == asked))
    return {name.removeprefix("judge_"): value for name, value in measures.items()}


def row_of(way, out, train, test, judge, part):
    """The row of a way, made once."""
    folder = out / way
    if (folder / "row.json").exists():
        return json.loads((folder / "row.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(0)
    if way in OF_TASKS:
        pictures, asked, bits = of_task(way, folder, train, test, part)
    else:
        pictures, asked, bits = of_players(way, folder, train, part)
    np.savez_compressed(folder / "pictures.npz", images=pictures)
    seconds = sum(float(path.read_text()) for path in folder.glob("*.seconds"))
    row = {"way": WAYS[way], "seconds": seconds, **measured(pictures, asked, judge, test[0][:MADE]), **bits}
    (folder / "row.json").write_text(json.dumps(row))
    return row


def refuse_others(file, asked):
    """Keep what is asked for in a `file`; ends the program where something else is kept there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asked))
    if (before := json.loads(file.read_text())) != asked:
        raise SystemExit(
            f"{file.parent} has models of {before}, and {asked} is asked for: choose another --out"
        )


def baselines(train, test, judge):
    """Rows of pictures that nothing has learnt to make."""
    noise = np.random.default_rng(0).integers(0, 256, (MADE, SIDE, SIDE, 1)).astype("uint8")
    mean = np.uint8(train[0].mean(0, keepdims=True)).repeat(MADE, 0)
    rows = {"others of the test": (test[0][MADE : 2 * MADE], test[1][MADE : 2 * MADE])}
    rows |= {"the mean picture": (mean, None), "noise": (noise, None)}
    return [{"way": way, **measured(*made, judge, test[0][:MADE])} for way, made in rows.items()]


def table(rows):
    """Lines of the table."""
    lines = [f"{'':18}  seconds      FID     KID  precision  recall   right  bits"]
    for row in rows:
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        right = f"{row['right']:.1f}" if "right" in row else ""
        bits = " ".join(f"{row[name]:.2f} {name}" for name in row if name.startswith("bits"))
        numbers = f"{row['fid']:7.2f}  {row['kid']:6.3f}  {row['precision']:9.2f}  {row['recall']:6.2f}"
        lines.append(f"{row['way']:18}  {seconds:>7}  {numbers}  {right:>6}  {bits}".rstrip())
    return "\n".join(lines)


def picture(sets, columns=4):
    """{title: pictures} as one image in 16 grey levels, 64 of each."""
    side, height = 8 * (SIDE + 1), 8 * (SIDE + 1) + 16
    image = PIL.Image.new("L", (columns * (side + 8), -(-len(sets) // columns) * height), 255)
    pen = PIL.ImageDraw.Draw(image)
    for place, (title, pictures) in enumerate(sets.items()):
        left, top = place % columns * (side + 8), place // columns * height
        pen.text((left, top + 2), title, 0)
        for i, one in enumerate(255 - pictures[:64, ..., 0]):
            at = left + i % 8 * (SIDE + 1), top + 16 + i // 8 * (SIDE + 1)
            image.paste(PIL.Image.fromarray(one), at)
    return image.quantize(16)


def main(images=None, test=None, ways=(), part=1.0, out=pathlib.Path("runs/clothes")):
    """Train what is asked for, print the table of all that is there, and draw the picture."""
    refuse_others(out / "asked.json", {"images": images, "test": test, "part": part})
    train, test = read(images, "train"), read(test, "test")
    keras.utils.set_random_seed(0)
    make = functools.partial(tasks.ImageClassifier.make, train, tasks.ImageClassifier.model_options(), GREY)
    judge = learnt(out / "judge", make, train, JUDGE, min(1.0, part))
    print(f"the classifier is right for {100 * judge.evaluate(test)['accuracy']:.1f} % of the test images")
    for way in ways or WAYS:
        row_of(way, out, train, test, judge, part)
    there = [way for way in WAYS if (out / way / "row.json").exists()]
    rows = [row_of(way, out, train, test, judge, part) for way in there]
    print(table([*baselines(train, test, judge), *rows]))
    sets = {"Fashion-MNIST": test[0]}
    sets |= {WAYS[way]: np.load(out / way / "pictures.npz")["images"] for way in there}
    picture(sets).save(out / "clothes.png", optimize=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", nargs="?", help="to learn from; by default Keras's Fashion-MNIST")
    parser.add_argument("--test", help="to judge by")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=(), metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--part", type=float, default=1.0, help="of all steps")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/clothes"))
    main(**vars(parser.parse_args()))
