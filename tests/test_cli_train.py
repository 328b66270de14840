"""`keras-tfm train`, whatever the task: what a RUN remembers, what is given again, what may not change."""

import json
import logging
import os
import platform
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import convert, tasks
from keras_tfm.cli import Parser, main, parser, screens
from keras_tfm.cli.command import plan_of
from keras_tfm.cli.train import add_task_options
from keras_tfm.configs import Option, rules_of
from keras_tfm.heads import LanguageModel
from keras_tfm.models import T5, T5Config
from keras_tfm.tasks import LearningTask, TrainableTask
from keras_tfm.tasks.task import each_task, task_called
from tests.data.tokenizers.test_sentencepiece_files import trained as sentence_pieces
from tests.fresh_process import run_fresh
from tests.tasks.tiny import TINY
from tests.test_cli import run

LINES = [f"{'good' if i % 2 else 'bad'} film {i}\t{'good' if i % 2 else 'bad'}" for i in range(24)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of 24 labelled texts, and the fields that make a small model."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.tsv").write_text("\n".join(LINES) + "\n", "utf-8")
    (folder / "valid.tsv").write_text("\n".join(LINES[:4]) + "\n", "utf-8")
    (folder / "changes.json").write_text(json.dumps(TINY))
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A RUN of one epoch, whose rate does not depend on how many there are."""
    out = tmp_path_factory.mktemp("runs") / "texts"
    files = "--data", data / "train.tsv", "--valid", data / "valid.tsv", "--columns", "0,1"
    model = "--size", "tiny", "--config", data / "changes.json", "--vocabulary", 300, "--max-length", 16
    model += "--pooling", "first"  # what transformers has
    training = "--epochs", 1, "--schedule", "constant", "--save-minutes", 5, "--seed", 7
    assert run("train", "classify", *files, "--out", out, *model, *training) == 0
    return out


def test_a_run_remembers_its_command(data, trained):
    record = json.loads((trained / "training.json").read_text())
    assert record["task"] == "classify" and record["options"]["seed"] == 7 and "results" in record
    assert record["command"] == {
        "data": [str(data / "train.tsv")],
        "valid": [str(data / "valid.tsv")],
        "columns": "0,1",
        "layout": {},
        "start": None,
        "changes": TINY,
        "model": {"size": "tiny", "vocabulary_size": 300},
        "fields": {"max_length": 16, "pooling": "first"},
        "run": {"save_minutes": 5.0},
        "strategy": "none",
        "deterministic": False,
    }


def test_a_run_has_a_model_card(trained, tmp_path):
    """In its own folder, in one for transformers, and in one that `save` writes of what was loaded."""
    written = (trained / "README.md").read_text("utf-8")
    assert "- training: 24 examples\n" in written and "At the best epoch, 1 of 1" in written
    assert "`train.tsv`" in written and str(trained.parent) not in written and "## Licence" in written
    tasks.load(trained).save(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text("utf-8") == written
    assert run("convert", trained, "--to-huggingface", tmp_path / "out") == 0
    converted = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert converted == written.replace('library_name: "keras"', 'library_name: "transformers"')
    assert run("convert", trained, "--to-huggingface", tmp_path / "out", "--overwrite") == 0
    (tmp_path / "again" / "training.json").write_text("{")  # the card is no reason not to answer
    assert tasks.load(tmp_path / "again").record == {}


@pytest.mark.slow
def test_options_of_a_run_make_the_same_again(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = "train", "classify", "--options", trained / "training.json", "--out"
    assert run(*again, "same") == 0 and run(*again, "other", "--seed", 8) == 0
    texts = [line.partition("\t")[0] for line in LINES]
    one, same, other = (
        tasks.load(folder).predict(texts, probabilities=True) for folder in (trained, "same", "other")
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-4
    records = [json.loads((folder / "training.json").read_text()) for folder in (trained, tmp_path / "same")]
    assert records[0]["command"] == records[1]["command"] and records[0]["options"] == records[1]["options"]


def plan(task, *arguments):
    """What arguments of `train` come to."""
    return plan_of(task_called(task), parser().parse_args(["train", task, *map(str, arguments)]))


def test_what_is_typed_goes_before_what_is_read(data, trained, tmp_path):
    read = "--options", trained / "training.json", "--out", tmp_path / "new"
    asked = plan(
        "classify", *read, "--size", "mini", "--epochs", 9, "--data", data / "valid.tsv", "--tensorboard"
    )
    assert asked.command.model == {"size": "mini", "vocabulary_size": 300} and asked.command.changes == TINY
    assert asked.command.data == (str(data / "valid.tsv"),) and asked.command.valid == (
        str(data / "valid.tsv"),
    )
    assert (asked.training.epochs, asked.training.seed, asked.training.schedule) == (9, 7, "constant")
    assert (asked.run.save_minutes, asked.run.tensorboard, asked.run.resume) == (5.0, True, False)
    parts = tmp_path / "parts.json"
    parts.write_text('{"options": {"epochs": 4}}')
    asked = plan("classify", "--options", parts, "--data", "a.tsv", "--out", "b")
    assert asked.training.epochs == 4 and asked.model_options.size == "mini"
    asked = plan("classify", *read, "--no-header", "--quoted")
    assert asked.command.layout == {"header": False, "quoted": True} and asked.command.columns == "0,1"
    asked = plan("classify", *read, "--from", os.path.relpath(trained))
    assert asked.command.start == str(trained) and asked.command.model == asked.command.changes == {}


def test_folders_of_options_hold_wherever_the_record_is_read(data, trained, tmp_path):
    typed = "--data", data / "train.tsv", "--out", tmp_path / "new"
    near = os.path.relpath(trained)
    for given, kept in ((near, str(trained)), ("name/of-a-hub", "name/of-a-hub")):
        asked = plan("generate-images", *typed, "--family", "imagen", "--text-encoder", given)
        assert asked.command.model["text_encoder"] == kept
    assert plan("classify-images", *typed, "--teacher", near).training.teacher == str(trained)


def test_a_weight_of_no_class_is_refused_before_the_model_is_made(data, tmp_path, capsys):
    options = "--out", tmp_path / "run", "--size", "tiny", "--class-weight", '{"spam": 5}'
    assert run("train", "classify", "--data", data / "train.tsv", "--columns", "0,1", *options) == 2
    read, error = capsys.readouterr().err.splitlines()
    assert read == "24 examples read"
    assert "--class-weight must name classes of the task, bad, good; it names 'spam'" in error


def test_resume_needs_nothing_else(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trained = shutil.copytree(trained, tmp_path / "texts")  # the others' stays as it is
    assert run("train", "classify", "--out", trained, "--resume", "--epochs", 2) == 0
    said = capsys.readouterr().err
    assert "24 examples read" in said and "4 examples for validation" in said
    assert "Resuming at step" in said and "epoch 2/2" in said
    assert json.loads((trained / "training.json").read_text())["options"]["epochs"] == 2
    assert tasks.load(trained).config.max_length == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--size", "mini"), "--size (now mini, then tiny)"),
        (("--cased",), "unrecognized arguments: --cased"),
        (("--no-lowercase",), "--lowercase (now False, then True)"),
        (("--max-length", "8"), "--max-length (now 8, then 16)"),
        (
            ("--pooling", "max", "--vocabulary", "299"),
            "--pooling (now max, then first), --vocabulary (now 299",
        ),
        (("--from", "{trained}"), "--from (now {trained}, then None)"),
        (("--config", "{data}/other.json"), "--config (now {{'dim': 16}}, then {{'num_layers': 1,"),
        (("--learning-rate", "1"), "learning_rate (now 1.0, then 0.001)"),
        (("--data", "{data}/valid.tsv"), "24 examples to train on then, 4 examples now, of {data}/train.tsv"),
        (("--columns", "1"), "--columns: expected two, A,B or three, A,B,C; got 1"),
    ],
)
def test_resume_refuses_what_may_not_change(options, message, data, trained, capsys):
    (data / "other.json").write_text('{"dim": 16}')
    names = {"data": data, "trained": trained}
    before = sorted(trained.rglob("*"))
    command = "train", "classify", "--out", trained, "--resume"
    assert run(*command, *(option.format(**names) for option in options)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message.format(**names) in error and sorted(trained.rglob("*")) == before


def test_what_was_given_may_be_given_again(data, trained, tmp_path):
    again = "--size", "tiny", "--config", data / "changes.json", "--max-length", 16, "--from"
    asked = plan("classify", "--out", trained, "--resume", *again[:-1])
    assert asked.run.resume and asked.command.model["size"] == "tiny"


@pytest.mark.slow
def test_a_run_made_in_python_is_resumed_with_its_files(data, trained, tmp_path, capsys):
    task = tasks.load(trained)
    task.fit(
        task.read_examples([data / "train.tsv"]), run=tmp_path / "run", epochs=1, schedule="constant", seed=3
    )
    command = "train", "classify", "--out", tmp_path / "run", "--resume", "--epochs", 2
    assert run(*command) == 2
    assert "--data: expected" in capsys.readouterr().err
    assert run(*command, "--data", data / "train.tsv", "--size", "tiny") == 2
    assert "these differ: --size (now tiny, then None)" in capsys.readouterr().err
    assert run(*command, "--data", data / "train.tsv") == 0
    assert "epoch 2/2" in capsys.readouterr().err


def test_quiet_lets_errors_through_alone(data, trained, tmp_path, capsys):
    level = logging.getLogger("keras_tfm").level
    new = "--out", tmp_path / "new", "--from", trained
    assert run("train", "classify", "--data", data / "train.tsv", *new, "--epochs", 1, "--quiet") == 0
    assert run("evaluate", trained, "--data", data / "train.tsv", data / "valid.tsv", "--quiet") == 0
    output = capsys.readouterr()
    assert not output.err and json.loads(output.out)["examples"] == 28
    (tmp_path / "asked").write_text("a film\n\n")
    assert run("predict", trained, "--data", tmp_path / "asked", "--quiet") == 0
    assert capsys.readouterr().err == "line 2 gets an empty line: it is blank\n"
    assert run("export", trained, "--out", tmp_path / "asked", "--quiet") == 2
    assert capsys.readouterr().err.startswith(f"keras-tfm: error: {tmp_path / 'asked'} is a file")
    assert logging.getLogger("keras_tfm").level == level


def test_quiet_hides_progress():
    from keras_tfm.cli.console import hush, speaking
    from keras_tfm.log import Bar

    with speaking():
        hush()
        assert Bar([1]).disable
    assert not Bar([1]).disable


@pytest.mark.slow  # two models; --from is tested with an encoder always
def test_a_translator_of_theirs_learns_to_sum_up(tmp_path):
    """A folder of T5's, converted to a RUN, which another task goes on from; and the folder itself."""
    pairs = [(f"a text of many words {i}", f"words {i}") for i in range(12)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    model = LanguageModel(
        T5(T5Config(900, num_layers=1, dim=16, num_heads=2, key_dim=8, intermediate_dim=20))
    )
    convert.save_huggingface(model, tmp_path / "theirs")
    (tmp_path / "theirs" / "spiece.model").write_bytes(sentence_pieces("t5"))
    assert run("convert", tmp_path / "theirs", "--out", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"] == "translate"
    train = "train", "summarize", "--data", tmp_path / "pairs.tsv", "--epochs", 1, "--max-length", 20
    for start in ("run", "theirs"):
        assert run(*train, "--from", tmp_path / start, "--out", tmp_path / f"from-{start}") == 0
        task = tasks.load(tmp_path / f"from-{start}")
        assert (
            type(task) is tasks.Summarizer
            and isinstance(task.model.backbone, T5)
            and task.config.max_length == 20
        )


@pytest.mark.slow
def test_images_from_folders(tmp_path, capsys):
    generator = np.random.default_rng(0)
    for label, least in (("dark", 0), ("light", 150)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(6):
            image = generator.integers(least, least + 100, (8, 8, 1), "uint8")
            (tmp_path / "images" / label / f"{number}.png").write_bytes(tf.io.encode_png(image).numpy())
    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_layers": 1, "dim": 16, "num_heads": 2}
    (tmp_path / "changes.json").write_text(json.dumps(sizes | {"intermediate_dim": 16}))
    train = "train", "classify-images", "--data", tmp_path / "images", "--epochs", 1, "--batch-size", 4
    model = "--family", "vit", "--config", tmp_path / "changes.json"
    capsys.readouterr()
    assert run(*train, *model, "--out", tmp_path / "run") == 0
    assert "a new ViT, tiny: images become 8 x 8 pixels; --family" in capsys.readouterr().err
    assert run(*train, "--from", tmp_path / "run", "--out", tmp_path / "again", "--max-shift", 1) == 0
    capsys.readouterr()
    assert run("evaluate", tmp_path / "again", "--data", tmp_path / "images") == 0
    assert json.loads(capsys.readouterr().out)["images"] == 12
    assert run("predict", tmp_path / "again", "--data", tmp_path / "images", "--probabilities") == 0
    lines = capsys.readouterr().out.splitlines()  # a file, a tab, its probabilities
    rows = [json.loads(line.partition("\t")[2]) for line in lines]
    assert len(rows) == 12 and all(abs(row["dark"] + row["light"] - 1) < 1e-5 for row in rows)
    assert run("export", tmp_path / "again", "--out", tmp_path / "served") == 0
    serve = tf.saved_model.load(tmp_path / "served").signatures["serving_default"]
    image = (tmp_path / "images" / "dark" / "0.png").read_bytes()
    np.testing.assert_allclose(serve(tf.constant([image]))["probabilities"][0, 0], rows[0]["dark"], rtol=1e-4)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN is for x86 here")
@pytest.mark.parametrize(
    "given, begin, found", [("", "", "1"), ("0", "", "0"), ("", "import tensorflow", "None")]
)
def test_a_training_uses_onednn_unless_that_is_unwanted_or_too_late(monkeypatch, given, begin, found):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if given:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", given)
    code = "import os\nfrom keras_tfm.cli.console import use_onednn\nuse_onednn()\n"
    code += "print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
    result = run_fresh(f"{begin}\n{code}", blocked=())
    assert result.stdout.split()[-1:] == [found], result.stderr


def test_the_tasks_are_listed_without_tensorflow():
    result = run_fresh(
        "from keras_tfm.cli import main; main(['train', '--help'])", blocked=("tensorflow", "keras")
    )
    assert result.returncode == 0, result.stderr
    learning = {task.name for task in each_task() if issubclass(task, LearningTask)}
    assert learning <= set(result.stdout.split()) and "image-vectors" not in result.stdout


LEARNING = [task.name for task in each_task() if issubclass(task, LearningTask)]


def test_the_kept_screens_are_what_the_tasks_declare():
    kept = json.loads(screens.FILE.read_text("utf-8"))
    assert kept == screens.screens(), "options have changed: run python -m keras_tfm.cli.screens"


def test_a_task_says_what_it_takes_without_tensorflow():
    code = "from keras_tfm.cli import main; main(['train', 'classify', '--help'])"
    result = run_fresh(code, blocked=("tensorflow", "keras"))
    assert result.returncode == 0 and "--class-weight" in result.stdout, result.stderr


def test_the_help_names_the_norm_that_gradients_are_clipped_to():
    for name, norm in (
        ("classify", "1.0"),
        ("detect", "0.1"),
        ("translate", "1.0 for each weight's gradient"),
        ("pretrain-images", "1.0 for mae, 1.0 for dino, 0.1 for updetr"),
    ):
        shown = Parser(name)
        screens.show(name, shown)
        help_of_norm = shown.format_help().partition("--clip-norm")[2]
        assert f"to this value (default: {norm})" in " ".join(help_of_norm.split())


@pytest.mark.parametrize("name", LEARNING)
def test_the_kept_screen_is_shown_as_the_options_are(name):
    kept, full = (Parser(name, description=task_called(name).help) for _ in range(2))
    screens.show(name, kept)
    add_task_options(full, task_called(name))
    assert kept.format_help() == full.format_help()


@pytest.mark.parametrize("name", LEARNING)
def test_every_task_says_what_it_takes(name, capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", name, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    task = task_called(name)
    assert (
        end.value.code == 0
        and task.files in said.replace("- ", "-")
        and " ".join(type(task.training).__doc__.split()) in said
    )
    for word in ("--epochs", "--resume", "--options"):
        assert word in said
    is_keras = issubclass(task, TrainableTask)
    for word in ("--from", "--strategy", "--tensorboard", "--learning-rate"):
        assert (word in said) == is_keras
    options = dict(rules_of(type(task.training), Option))
    for field, value in task.given_weights.items():
        usual = options[field].default or getattr(task.training, field)
        assert f"(default: {usual}; {value} with --from)" in said
    assert ("(default: mean; first with --from)" in said) == (name == "classify")
