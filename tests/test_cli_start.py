"""What needs no TensorFlow imports none, nor Keras; and what needs it imports only what it uses."""

import json
import math
import random

import numpy as np
import pytest
from PIL import Image

from keras_tfm import tasks
from keras_tfm.cli import main, sizes
from keras_tfm.cli.models import model_of
from keras_tfm.private.keras import shapes_alone
from keras_tfm.training.metrics_file import write_rows
from keras_tfm.visualize import size_of
from tests.fresh_process import run_fresh
from tests.recorded.record import RUNS

# Each line of standard input is a command; what it prints, and its exit code, follow as one line of JSON.
COMMANDS = """
import contextlib, io, json
from keras_tfm.cli import main
for arguments in json.loads(sys.argv[1]):
    out, error, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), error.getvalue()]))
loaded = [name for name in ("scipy", "matplotlib", "sklearn", "pandas", "numba") if name in sys.modules]
print(json.dumps(loaded))
"""
HELPS = [
    [*verb.split(), "--help"]
    for verb in ("", "info", "plot", "predict", "evaluate", "export", "convert", "attention", "launch")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A RUN with metrics, exports of two tasks, a checkpoint of transformers, and files to ask about."""
    folder = tmp_path_factory.mktemp("start")
    for name in ("classify", "classify-images"):
        task = tasks.load(RUNS / name)
        task.export(folder / f"{name}.onnx", format="onnx")
        if name == "classify":
            task.save(folder / "run")
            task.save_huggingface(folder / "checkpoint")
            task.quantize("int8")
            task.save(folder / "int8")
    write_rows(folder / "run" / "metrics.csv", [{"epoch": "1", "loss": "2.0"}, {"epoch": "2", "loss": "1.5"}])
    (folder / "lines").write_text("the cat sat\n\na dog\n", "utf-8")
    (folder / "a.csv").write_text("text,label\nthe cat sat,a\n", "utf-8")
    (folder / "images").mkdir()
    for name, image in zip("ab", np.random.default_rng(0).integers(0, 256, (2, 8, 8), "uint8"), strict=True):
        Image.fromarray(image).save(folder / "images" / f"{name}.png")
    return folder


def asked(commands, blocked=("tensorflow", "keras", "tensorflow_text")):
    """[(exit code, output, errors)] of commands of the command line in one process, and which of some
    packages it has imported in the end.
    """
    process = run_fresh(COMMANDS, json.dumps(commands), blocked=blocked)
    assert process.returncode == 0, process.stderr
    *lines, loaded = map(json.loads, process.stdout.splitlines())
    return lines, loaded


def test_what_needs_no_tensorflow_imports_none(folder, capsys):
    run, missing = str(folder / "run"), str(folder / "missing")
    lines, images, table = str(folder / "lines"), str(folder / "images"), str(folder / "a.csv")
    answered = [
        ["--version"],
        *HELPS,
        ["info", "bert:tiny", "--json"],
        ["info", "ViT:B/16", "--batch", "8"],
        ["info", run, "--json"],
        ["info", str(folder / "int8"), "--json"],
        ["info", str(folder / "checkpoint"), "--json"],
        ["info", str(folder / "classify.onnx"), "--json"],
        ["predict", str(folder / "classify.onnx"), "--data", lines],
        ["predict", str(folder / "classify-images.onnx"), "--data", images],
    ]
    refused = {
        ("info", "bert:huge"): "BERT has no size 'huge'",
        ("info", "nobody:tiny"): "expected a RUN, or FAMILY:SIZE",
        ("info", "bert:tiny", "--length", "513"): "takes 512 tokens at most",
        ("info", "vit:Ti/16", "--length", "5"): "reads no tokens",
        ("info", str(folder / "checkpoint"), "--batch", "2"): "nothing is counted",
        ("info", str(RUNS / "recommend")): "no Keras model",
        ("plot", missing): "there is no such folder",
        ("plot", run, "--out", f"{missing}/curve.png"): "does not exist",
        ("predict", missing): "there is no such folder",
        ("predict", run, "--data", missing): "cannot be read: No such file or directory",
        ("predict", run, "--data", lines, "--beam", "2"): "'classify' does not generate text",
        ("predict", run, "--data", lines, "--masks", "x"): "--masks: the task 'classify' has no such option",
        ("predict", run, "--data", lines, "--out", "x.txt"): "--out: expected a name that ends in .csv",
        ("predict", run, "--data", lines, "--draft", missing): "there is no such folder",
        ("predict", str(folder / "classify.onnx"), "--beam", "2"): "is an export, which has none",
        ("predict", str(folder / "classify.onnx"), "--data", table): "a.csv: a RUN reads tables, an export",
        ("evaluate", missing, "--data", lines): "there is no such folder",
        ("evaluate", run, "--data", missing): "cannot be read: No such file or directory",
        ("evaluate", run, "--data", lines, "--plot", "x.txt"): "expected a name that ends in .png",
        ("export", missing, "--out", f"{missing}-2"): "there is no such folder",
        ("export", run, "--out", images): "exists already",
        ("export", run, "--out", missing, "--format", "pdf"): "`format` must be one of",
        ("export", run, "--out", missing, "--top-k", "2"): "'classify' does not generate text",
        ("attention", missing, "--text", "a", "--out", f"{missing}.html"): "there is no such folder",
        ("attention", run, "--image", missing, "--out", f"{missing}.html"): "cannot be read",
        ("convert", f"{missing}/a/b", "--out", f"{missing}-2"): "there is no such folder",
        ("train", "classify", "--data", lines, "--out", missing, "--epoch", "1"): "--epoch could match",
        ("train", "classify", "--data", lines, "--out", missing, "--foo"): "unrecognized arguments: --foo",
        ("train", "classify", "--data", lines): "the following arguments are required: --out",
    }
    results, loaded = asked(answered + [list(command) for command in refused])
    assert loaded == []
    for command, (code, _, error) in zip(answered, results, strict=False):
        assert code == 0, (command, error)
    for (command, words), (code, _, error) in zip(refused.items(), results[len(answered) :], strict=True):
        assert code == 2 and words in error, (command, error)
    told = [output for _, output, _ in results[1 + len(HELPS) : len(answered)]]
    whole = tasks.load(run).model
    count = sum(math.prod(weight.shape) for weight in whole.trainable_weights)
    assert json.loads(told[0])["parts"][-1]["parameters"] == 4_385_920
    assert [json.loads(text)["parts"][-1]["parameters"] for text in told[2:4]] == [count] * 2
    assert json.loads(told[4])["architecture"] == "BertForSequenceClassification"
    assert json.loads(told[4])["numbers"] == count and json.loads(told[5])["format"] == "onnx"
    for task, data, text in (("classify", lines, told[6]), ("classify-images", images, told[7])):
        main(["predict", str(RUNS / task), "--data", data])
        assert text == capsys.readouterr().out


def test_a_picture_needs_matplotlib_alone(folder):
    ((code, _, error),), loaded = asked([["plot", str(folder / "run"), "--out", str(folder / "curves.svg")]])
    assert code == 0, error
    assert "matplotlib" in loaded and (folder / "curves.svg").stat().st_size > 1_000


def test_a_run_counted_by_its_file_is_the_model_that_is_made(folder, capsys):
    """By parts, as `size_of` counts the model; in 8 bits as well."""
    for name in ("run", "int8"):
        main(["info", str(folder / name), "--json"])
        by_file = json.loads(capsys.readouterr().out)["parts"]
        main(["info", str(folder / name), "--json", "--batch", "1"])
        made = json.loads(capsys.readouterr().out)["parts"]
        assert by_file == [{key: row[key] for key in ("part", "parameters")} for row in made]
        assert all("multiply_adds" in row for row in made)


LOADED = """
import keras_tfm
from keras_tfm import tasks
task = tasks.load(sys.argv[1])
task.predict(["a line"] if task.reads_lines else np.zeros((1, 8, 8, 1), "uint8"))
"""
OPTIONAL = ("matplotlib", "sklearn", "sacrebleu", "tensorflow_text", "pandas")
SHOWN = """
import json
families = [name for name in sys.modules if name.startswith("keras_tfm.models.")]
print(json.dumps([families, [name for name in sys.modules if name.startswith("keras_tfm.tasks.")]]))
"""


@pytest.mark.parametrize(
    ("name", "family", "its_tasks"),
    [
        ("classify", "text.bert", ["text.text_classifier"]),
        pytest.param("generate", "text.gpt2", ["text.text_generator"], marks=pytest.mark.slow),
        pytest.param(
            "classify-images",
            "vision.vit",
            ["images.image_classifier", "images.image_encoder"],  # the second gives the first its start
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_imports_its_own_family_and_task(name, family, its_tasks):
    """Packages that it does not need are blocked: Keras imports some of them where it finds them."""
    process = run_fresh(f"import numpy as np{LOADED}{SHOWN}", RUNS / name, blocked=OPTIONAL)
    assert process.returncode == 0, process.stderr
    families, some_tasks = json.loads(process.stdout.splitlines()[-1])
    model = json.loads((RUNS / name / "config.json").read_text("utf-8"))["model"]["class"]
    assert f"keras_tfm.models.{family}" in families and model
    others = {"vision.resnet", "vision.swin", "text.t5", "text.llama", "detection.detr", "multimodal.clip"}
    assert not others & {module.removeprefix("keras_tfm.models.") for module in families}
    known = [asked.place.partition(":")[0] for asked in tasks.task.ASKED.values()]
    assert [each for each in known if f"keras_tfm.tasks.{each}" in some_tasks] == its_tasks


def test_the_table_of_sizes_is_of_the_families():
    """All published sizes were counted, for the configurations of now; a few are counted anew."""
    here = {}
    for name, size, family in sizes.published():
        here.setdefault(name, {})[size] = sizes.digest_of(family.sizes[size])
    kept = {
        name: {size: entry["config"] for size, entry in some.items()} for name, some in sizes.table().items()
    }
    assert kept == here, "python -m keras_tfm.cli.sizes counts anew"
    for name in ("BERT:tiny", "ViT:Ti/16", "RecurrentSeq2Seq:tiny"):
        assert_counted(name)


@pytest.mark.slow
def test_sizes_of_every_family_are_counted_anew():
    draw = random.Random(0)
    for name, some in sizes.table().items():
        assert_counted(f"{name}:{draw.choice(list(some))}")


def assert_counted(name):
    family, _, size = name.partition(":")
    with shapes_alone():
        model = model_of(name)
    assert sizes.size_in(sizes.table()[family][size]) == size_of(model), name
