"""The verbs of a model that matches images, or videos, and texts: classify-zero-shot, search index, search
query.
"""

import argparse
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from keras_tfm.cli.console import quiet_tensorflow, say, tell_untrained
from keras_tfm.cli.generated import add_options, given
from keras_tfm.configs import Config, Count, Option

AT_ONCE = 1_024  # how many images are read, and their vectors written, at a time
MODEL = "a RUN of match-images, or a folder or hub id of CLIP or SigLIP"
IMAGES = (
    "image files, patterns of them, folders of images, or folders of such folders; for a model of videos the "
    "same with videos"
)


@dataclasses.dataclass(frozen=True)
class Searching(Config):
    """How many images a query prints."""

    top: Annotated[Count, Option("number of images, or videos, to print, the nearest first")] = 5


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm classify-zero-shot, search index and search query."""
    classify = add_verb(
        group, "classify-zero-shot", run_classify, "classify images by any labels, without a training on them"
    )
    classify.add_argument("model", metavar="MODEL", help=MODEL)
    classify.add_argument(
        "--labels", required=True, metavar="FILE", help="a text file with one label per line"
    )
    classify.add_argument("--data", nargs="+", required=True, metavar="FILE", help=IMAGES)
    classify.add_argument(
        "--template",
        nargs="+",
        default=["{}"],
        metavar="TEXT",
        help='text that the model reads for a label, such as "a photo of a {}"; several are averaged '
        "(default: the label alone)",
    )
    classify.add_argument(
        "--json", action="store_true", help="print a JSON object for each image, with all probabilities"
    )

    words = "find images, or videos, by a text or by another image"
    search = group.add_parser("search", help=words, description=words[0].upper() + words[1:] + ".")
    verbs = search.add_subparsers(title="verbs", dest="search_verb", required=True, metavar="VERB")
    index = add_verb(
        verbs,
        "index",
        run_index,
        "compute the vectors of images, or videos, and add to an index what it does not have yet",
    )
    index.add_argument("model", metavar="MODEL", help=MODEL)
    index.add_argument("--data", nargs="+", required=True, metavar="FILE", help=IMAGES)
    index.add_argument(
        "--out", required=True, metavar="INDEX", help="the folder of the index: a new one, or one to add to"
    )
    index.add_argument(
        "--graph",
        action="store_true",
        help="also connect the vectors by a graph: queries are faster, but may miss some of the nearest "
        "images; for hundreds of thousands of images (needs Faiss, the extra search)",
    )
    query = add_verb(verbs, "query", run_query, "print the nearest images of an index: cosine, tab, path")
    query.add_argument("index", metavar="INDEX", help="what search index wrote")
    asked = query.add_mutually_exclusive_group(required=True)
    asked.add_argument("--text", metavar="TEXT", help="a text that describes the images")
    asked.add_argument(
        "--image", "--video", metavar="FILE", help="an image to compare with; of videos, a video"
    )
    query.add_argument("--model", metavar="MODEL", help="the model of the index, if it was moved")
    query.add_argument(
        "--exact", action="store_true", help="compare with all vectors, even if a graph connects them"
    )
    add_options(query, Searching)


def run_classify(arguments: argparse.Namespace) -> None:
    """classify-zero-shot: a line for each image."""
    labels = read_labels(arguments.labels)
    task = matcher_at(arguments.model)
    texts = [template.replace("{}", label) for template in arguments.template for label in labels]
    task.tell_cut(texts)
    vectors = task.encode_labels(labels, arguments.template)
    for paths, encoded in encoded_parts(task, files_in(task, arguments.data)):
        for path, row in zip(paths, task.probabilities(encoded, vectors), strict=True):
            best = int(row.argmax())
            if arguments.json:
                shares = {label: float(f"{x:.6g}") for label, x in zip(labels, row, strict=True)}
                answer = {"image": path, "label": labels[best], "probabilities": shares}
                print(json.dumps(answer, ensure_ascii=False))
            else:
                print(f"{path}\t{labels[best]}\t{row[best]:.4f}")


def run_index(arguments: argparse.Namespace) -> None:
    """search index: add the vectors of the images that the index does not have yet."""
    quiet_tensorflow()
    from keras_tfm.tasks.images.image_index import LEAST, Image, ImageIndex, config_of, unknown_images
    from keras_tfm.tasks.images.vector_graph import needed_faiss
    from keras_tfm.training.folder import refuse_existing

    if arguments.graph:
        needed_faiss()  # before the images are encoded
    is_there = os.path.exists(os.path.join(arguments.out, "index.json"))
    if not is_there:
        refuse_existing(arguments.out)
    task = matcher_at(arguments.model)
    config, files = config_of(task, arguments.model), files_in(task, arguments.data)
    index = ImageIndex(arguments.out) if is_there else ImageIndex.create(arguments.out, config)
    index.check(config)
    before = len(index)
    known = dict(zip(map(os.path.abspath, files), files, strict=True))
    new = [known[image.path] for image in unknown_images(index, known)]
    for paths, vectors in encoded_parts(task, new):
        index.add([Image.at(path) for path in paths], vectors)
    say(f"{len(index) - before:,} {task.seen} are new; {arguments.out} now has {len(index):,}")
    if arguments.graph and not index.connect():
        say(f"no graph was written: it needs at least {LEAST:,} vectors that are in no graph yet")


def run_query(arguments: argparse.Namespace) -> None:
    """search query: the nearest images."""
    quiet_tensorflow()
    from keras_tfm.tasks.images.image_index import ImageIndex, config_of

    index, top = ImageIndex(arguments.index), Searching(**given(arguments, Searching)).top
    if arguments.text is not None and not arguments.text.strip():
        raise ValueError("--text: expected a text, it is blank")
    name = arguments.model or index.config.model
    if os.path.isabs(name) and not os.path.exists(name):
        raise ValueError(f"{arguments.index}: its model is no longer at {name}: give its place by --model")
    task = matcher_at(name)
    index.check(config_of(task, name))
    if arguments.text is not None:
        task.tell_cut([arguments.text])
        (vector,) = task.encode_texts([arguments.text])
    else:
        (vector,) = task.encode_images(
            [image for image, _ in itertools.islice(task.read_inputs(arguments.image), 1)]
        )
    for path, cosine in index.search(vector, top, arguments.exact):
        print(f"{cosine:.4f}\t{path}")


def matcher_at(name: str) -> Any:
    """The task of a RUN, or of a published folder; ValueError for one that does not match."""
    from keras_tfm import tasks
    from keras_tfm.tasks.task_folder import is_task_folder

    if not os.path.exists(name) and (os.path.isabs(name) or name.count("/") > 1):
        raise ValueError(f"expected {MODEL}; there is no {name}")
    quiet_tensorflow()
    if not is_task_folder(name):
        return tasks.ImageTextMatcher.from_huggingface(name)
    task = tasks.load(name)
    if not isinstance(task, tasks.ImageTextMatcher):
        raise ValueError(f"{name}: a {task.name!r} task does not match images and texts")
    tell_untrained(task, name)
    return task


def files_in(task: Any, paths: Sequence[str]) -> list[str]:
    """The files, or folders of frames, that `paths` name; ValueError where there are none."""
    found = [example for example, _ in task.read_inputs(list(paths))]
    if not found or not all(isinstance(example, str | os.PathLike) for example in found):
        got = "got others" if found else "there are none"
        raise ValueError(f"--data: expected {task.seen.removesuffix('s')} files, {got}")
    return list(map(os.fspath, found))


def encoded_parts(task: Any, files: Sequence[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield (paths, vectors (N, E)) of the files that can be decoded, up to `AT_ONCE` at a time.

    A warning counts the others.
    """
    import numpy as np

    from keras_tfm.data.sources.lines import tell_left_out

    problems: dict[str, str] = {}
    for first in range(0, len(files), AT_ONCE):
        part = files[first : first + AT_ONCE]
        paths, vectors = [], []
        for start in range(0, len(part), task.portion):
            some = part[start : start + task.portion]
            refusals, _, rest = task.inspect(some)
            problems |= {some[row]: reason for row, reason in refusals.items()}
            if len(refusals) < len(some):
                paths += [path for row, path in enumerate(some) if row not in refusals]
                vectors.append(task.encode_images(rest))
        if paths:
            yield paths, np.concatenate(vectors)
    if problems:
        tell_left_out(problems, len(files), task.seen)


def read_labels(path: str) -> list[str]:
    """The lines of a file; DataError for a blank line, a repeated label, or fewer than two labels."""
    from keras_tfm.data.sources.lines import DataError, numbered_lines

    lines: dict[str, int] = {}
    for number, text in numbered_lines(path):
        label = text.strip()
        if not label:
            raise DataError(path, number, "expected a label, the line is blank")
        if label in lines:
            raise DataError(path, number, f"the label {label!r:.60} is in line {lines[label]} too")
        lines[label] = number
    if len(lines) < 2:
        raise DataError(path, None, f"expected two labels or more, got {len(lines)}")
    return list(lines)
