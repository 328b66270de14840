"""The data of `first_day.py`: files of 300, 3,000 and 30,000 examples, others to choose by and to test on.

    python -m benchmarks.first_day_data FOLDER --sst2 train.tsv.xz dev.tsv test.tsv
    python -m benchmarks.first_day_data FOLDER --fashion-mnist IDX_FOLDER
    python -m benchmarks.first_day_data FOLDER --multi30k TEXT_FOLDER
    python -m benchmarks.first_day_data FOLDER --digits        # made pictures, for detect and segment
    python -m benchmarks.first_day_data FOLDER --slots         # made sentences, for tag

Files are named by task and size: `classify/300.tsv`, `classify/choose.tsv`, `classify/test.tsv`; detect and
segment read the same, `digits/300.jsonl`. The rows of a size are the first ones of the next.
"""

import argparse
import gzip
import importlib.util
import json
import lzma
import pathlib

import numpy as np

SIZES = (300, 3_000, 30_000)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def example(name):
    """A module of examples/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(path):
    """A file's text, which gzip or xz may have packed."""
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read()


def phrases(folder, train, dev, test):
    """SST-2's tables, the one to train on shuffled; its dev chooses."""
    header, *rows = text_of(train).splitlines()
    order = np.random.default_rng(0).permutation(len(rows))
    for size in SIZES:
        lines = [header, *(rows[row] for row in order[:size])]
        (folder / f"{size}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    for path, name in ((dev, "choose"), (test, "test")):
        (folder / f"{name}.tsv").write_text(text_of(path), "utf-8")


def clothes(folder, source):
    """Fashion-MNIST in .npz files; 5,000 of the images to train on choose."""
    read = example("image_data").read_folder
    (images, labels), test = read(source)
    order = np.random.default_rng(0).permutation(len(images))
    parts = {str(size): order[:size] for size in SIZES} | {"choose": order[-5_000:]}
    for name, rows in parts.items():
        np.savez(folder / f"{name}.npz", images=images[rows], labels=labels[rows])
    np.savez(folder / "test.npz", images=test[0], labels=test[1])


def translations(folder, source):
    """Multi30k's pairs of German and English; its val chooses."""
    for language in ("de", "en"):
        lines = text_of(source / f"train.{language}.gz").splitlines()
        order = np.random.default_rng(0).permutation(len(lines))
        for size in SIZES:  # there are 29,000
            text = "".join(f"{lines[row]}\n" for row in order[:size])
            (folder / f"{size}.{language}").write_text(text, "utf-8")
        for name, other in (("val", "choose"), ("test_2016_flickr", "test")):
            (folder / f"{other}.{language}").write_text(text_of(source / f"{name}.{language}.gz"), "utf-8")


def digits(folder, most=3_000):
    """Pictures with digits, their boxes for detect, their masks for segment; those of the test are others."""
    import PIL.Image

    world = example("digit_pictures")
    train, test = world.train_and_test(most + 300)
    parts = {str(size): (train, range(size)) for size in SIZES if size <= most}
    parts |= {"choose": (train, range(most, most + 300)), "test": (test, range(300))}
    for name, (made, rows) in parts.items():
        lines = []
        for row in rows:
            for kind, values in (("images", 255 * made.images[row]), ("masks", made.masks[row])):
                path = folder / name / kind / f"{row:05d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                PIL.Image.fromarray(values.astype("uint8")).save(path)
            boxes = [list(map(float, box)) for box in made.boxes[row]]
            names = [str(label) for label in made.labels[row]]
            files = {kind: f"{name}/{kind}s/{row:05d}.png" for kind in ("image", "mask")}
            lines.append(json.dumps(files | {"boxes": boxes, "labels": names}))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


TEMPLATES = (
    "play {song} by {person} in the {room}",
    "play something by {person}",
    "book a table at {place} for {day} at {time}",
    "is {place} open on {day}",
    "call {person} on {day}",
    "remind me to meet {person} at {place} at {time}",
    "wake me at {time} on {day}",
    "switch on the light in the {room} at {time}",
    "how do I get from {place} to {place}",
    "tell {person} that I am in the {room}",
    "add {song} to the list of {person}",
    "who wrote {song}",
    "what is on at {place} on {day} at {time}",
    "the party of {person} begins at {time}",
    "move the meeting with {person} from {day} to {day}",
)
KNOWN = {
    "room": ["kitchen", "living room", "hall", "guest room", "attic", "garden", "bath", "first floor"],
    "day": ["Monday", "Tuesday", "Friday", "Sunday", "tomorrow", "the day after tomorrow", "next Saturday"],
    "time": ["noon", "half past six", "seven", "ten to nine", "midnight", "a quarter to five", "eleven"],
}
SYLLABLES = [
    f"{first}{last}" for first in ("b", "d", "l", "m", "s", "t", "v") for last in ("a", "el", "in", "or")
]


def name_of(kind, rng):
    """A new name: songs and places may have several words, and nobody's name is in a list."""
    words = ["".join(rng.choice(SYLLABLES, rng.integers(2, 4))) for _ in range(rng.integers(1, 4))]
    words = words[:2] if kind == "person" else words
    return " ".join(word if kind == "song" else word.capitalize() for word in words)


def sentences(count, rng):
    """Lists of (word, tag), tags as B-person, I-person and O."""
    for _ in range(count):
        sentence = []
        for word in rng.choice(TEMPLATES).split():
            kind = word.strip("{}")
            if kind == word:
                sentence.append((word, "O"))
                continue
            value = rng.choice(KNOWN[kind]) if kind in KNOWN else name_of(kind, rng)
            sentence += [(part, f"{'I' if i else 'B'}-{kind}") for i, part in enumerate(value.split())]
        yield sentence


def slots(folder):
    """Sentences to a helper at home, of which all slots are asked, in CoNLL columns."""
    parts = {"choose": 1_000, "test": 1_000} | {str(size): size for size in SIZES}
    for seed, (name, count) in enumerate(parts.items()):
        rng = np.random.default_rng(min(seed, 2))  # the sizes have one seed
        blocks = ("".join(f"{word}\t{tag}\n" for word, tag in words) for words in sentences(count, rng))
        (folder / f"{name}.conll").write_text("\n".join(blocks), "utf-8")


def main():
    parser = argparse.ArgumentParser("benchmarks.first_day_data", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sst2", nargs=3, type=pathlib.Path, metavar=("TRAIN", "DEV", "TEST"))
    parser.add_argument("--fashion-mnist", nargs=1, type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--multi30k", nargs=1, type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--digits", action="store_const", const=(), help="pictures of 96 x 96 pixels")
    parser.add_argument("--slots", action="store_const", const=(), help="short sentences")
    options = parser.parse_args()
    makers = {
        "classify": (phrases, options.sst2),
        "classify-images": (clothes, options.fashion_mnist),
        "translate": (translations, options.multi30k),
        "digits": (digits, options.digits),
        "tag": (slots, options.slots),
    }
    for name, (maker, sources) in makers.items():
        if sources is not None:
            folder = options.folder / name
            folder.mkdir(parents=True, exist_ok=True)
            maker(folder, *sources)
            print(folder)


if __name__ == "__main__":
    main()
