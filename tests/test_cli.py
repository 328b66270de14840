"""The command line as it is typed: what goes where, exit codes, and mistakes in one line."""

import json
import re

import pytest

from keras_tfm.cli import main
from keras_tfm.data.worlds.dates import date_pairs
from keras_tfm.tasks import Translator
from tests.tasks.interrupting import interrupting_at


def run(*arguments):
    """The exit code of `keras-tfm ARGUMENTS`."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code
    return 0


def check_refusal(arguments, message, capsys):
    """A training ends by an error with this `message`, in one line, and leaves no run."""
    assert run(*arguments) == 2
    output = capsys.readouterr()
    *said, error = output.err.splitlines()
    assert message in error and not output.out
    assert all(re.search(" read$|weights,|to train on|^baselines|^a new ", line) for line in said)
    assert not arguments[arguments.index("--out") + 1].exists()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two parallel files of 48 dates."""
    folder = tmp_path_factory.mktemp("data")
    for name, lines in zip(("source.txt", "target.txt"), date_pairs(48, seed=3), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "typo.json").write_text('{"dropuot": 0.3}')
    (folder / "labels.tsv").write_text("good\t+\nbad\t-\n" * 4)
    (folder / "changes.json").write_text('{"dim": 32, "intermediate_dim": 64, "num_layers": 1}')
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The RUN folder that `train` wrote."""
    out = tmp_path_factory.mktemp("runs") / "dates"
    assert run(*train(data, out), "--epochs", 1, "--tensorboard") == 0
    return out


def train(data, out):
    files = data / "source.txt", data / "target.txt"
    size = "--size", "tiny", "--config", data / "changes.json", "--vocabulary", 300, "--max-length", 48
    schedule = "--schedule", "constant"  # which more epochs do not change
    return "train", "translate", "--data", *files, "--out", out, *size, *schedule


def test_train_evaluate_predict_export(data, trained, tmp_path, capsys):
    assert {path.name for path in trained.iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.model",
        "metrics.csv",
        "logs",
    }
    assert run("evaluate", trained, "--data", data / "source.txt", data / "target.txt") == 0
    measures = json.loads(capsys.readouterr().out)
    assert measures["pairs"] == 48 and 0 <= measures["bleu"] <= 100

    (tmp_path / "asked").write_text("1 May 2000\n\n" + "long " * 200 + "\n", "utf-8")
    assert run("predict", trained, "--data", tmp_path / "asked") == 0
    output = capsys.readouterr()
    assert output.out.count("\n") == 3 and "1 of 3 texts exceed 48 tokens" in output.err

    assert run("export", trained, "--out", tmp_path / "served") == 0
    assert (tmp_path / "served" / "saved_model.pb").is_file() and not capsys.readouterr().out


def test_resume_goes_on(data, trained, capsys):
    with interrupting_at(1):
        assert run(*train(data, trained), "--resume", "--epochs", 2) == 130
    resume = f"interrupted; to go on: keras-tfm train translate --out {trained} --resume"
    assert resume in capsys.readouterr().err
    assert run("train", "translate", "--out", trained, "--resume") == 0  # as it says
    assert "epoch 2/2" in capsys.readouterr().err
    header, *rows = (trained / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["1", "2"] and "gradient_norm" in header.split(",")


def test_who_interrupts_before_a_run_is_replaced_is_not_told_to_resume_the_old_one(
    data, trained, capsys, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "settled", interrupt)
    assert run(*train(data, trained), "--overwrite") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "keras-tfm: interrupted"


def test_a_launched_training_goes_on_by_launch(data, trained, capsys, monkeypatch):
    def stop(*_):
        raise SystemExit(143)

    monkeypatch.setenv("KERAS_TFM_WORKERS", "2")
    monkeypatch.setattr(Translator, "settled", stop)
    assert run(*train(data, trained), "--resume") == 143
    command = f"to go on: keras-tfm launch --workers 2 -- train translate --out {trained} --resume"
    assert capsys.readouterr().err.splitlines()[-1] == command


def test_resume_refuses_another_model_or_other_data(data, trained, tmp_path, capsys):
    assert run(*train(data, trained), "--resume", "--size", "base", "--max-length", 64) == 2
    error = capsys.readouterr().err
    assert "these differ: --max-length (now 64, then 48), --size (now base, then tiny)\n" in error
    assert run(*train(data, trained), "--resume", "--family", "recurrent", "--size", "tiny") == 2
    assert "--family (now recurrent, then transformer)" in capsys.readouterr().err
    (tmp_path / "target.txt").write_text("".join(f"{i}\n" for i in range(48)))
    files = "--data", data / "source.txt", tmp_path / "target.txt"
    assert run("train", "translate", *files, "--out", trained, "--resume") == 2
    error = capsys.readouterr().err
    assert "these differ: 39 pairs to train on then, 39 pairs now, of /" in error and "source.txt, /" in error


# Language models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator(data, tmp_path_factory):
    """The RUN folder that `train generate` wrote."""
    out = tmp_path_factory.mktemp("runs") / "text"
    assert run(*train_generate(data, out), "--epochs", 1, "--tokenizer", "characters") == 0
    return out


def train_generate(data, out):
    size = "--config", data / "changes.json", "--max-length", 32, "--separator", r"\n"
    return "train", "generate", "--data", data / "source.txt", "--out", out, *size


@pytest.mark.usefixtures("loaded_once")
def test_a_language_model_from_text_to_export(data, generator, tmp_path, capsys):
    assert {path.name for path in generator.iterdir()} >= {"config.json", "tokenizer.characters.json"}
    assert json.loads((generator / "config.json").read_text())["config"]["separator"] == "\n"
    assert run("evaluate", generator, "--data", data / "source.txt") == 0
    measures = json.loads(capsys.readouterr().out)
    assert measures.keys() == {"loss", "perplexity", "bits_per_byte", "tokens", "texts"}
    assert measures["loss"] > 0
    (tmp_path / "asked").write_text("1 May\nJune\n", "utf-8")
    asked = "predict", generator, "--data", tmp_path / "asked", "--max-new-tokens", 5
    answers = []
    for options in ((), ("--beam", 2), ("--temperature", 2, "--seed", 1), ("--temperature", 2, "--seed", 1)):
        assert run(*asked, *options) == 0
        answers.append(capsys.readouterr().out.splitlines())
        assert [answer[:4] for answer in answers[-1]] == ["1 Ma", "June"]
    assert answers[2] == answers[3]
    assert run(*asked, "--draft", generator) == 0
    assert capsys.readouterr().out.splitlines() == answers[0]
    assert run(*asked, "--draft", generator, "--beam", 2) == 2
    assert "Only greedy decoding takes --draft" in capsys.readouterr().err
    assert run(*asked, "--whole") == 0
    assert capsys.readouterr().out.startswith("1 May\nJune")


@pytest.mark.slow
def test_a_language_model_is_exported_and_trained_on(data, generator, tmp_path, capsys):
    assert run("export", generator, "--out", tmp_path / "served", "--max-new-tokens", 4) == 0
    assert (tmp_path / "served" / "saved_model.pb").is_file()
    assert run(*train_generate(data, generator), "--resume", "--epochs", 2) == 0
    assert run(*train_generate(data, generator), "--resume", "--max-length", 64) == 2
    assert "these differ: --max-length (now 64, then 32)" in capsys.readouterr().err


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"\n", ("--whole",), "the text gets no answer: it is blank"),
        (b"long " * 9, ("--whole",), "room for a new one among the model's 32 tokens, got one of 46"),
        (b"a\xff\n", (), "line 1: expected UTF-8"),
        (
            b"a\n",
            ("--max-new-tokens", 0),
            "argument --max-new-tokens: must be at least 1; it is 0",
        ),
        (b"a\n", ("--max-new-tokens", 32), "--max-new-tokens must be at most 30"),
        (b"a\n", ("--beam", 0), "argument --beam: must be at least 1; it is 0"),
        (b"a\n", ("--beam", "x"), "argument --beam: must be a whole number; it is x"),
        (b"a\n", ("--temperature", 0), "argument --temperature: must be above 0; it is 0"),
        (b"a\n", ("--temperature", -1), "argument --temperature: must be above 0; it is -1"),
        (b"a\n", ("--top-p", 1.5), "argument --top-p: must be at most 1; it is 1.5"),
        (b"a\n", ("--min-p", -0.1), "argument --min-p: must be at least 0; it is -0.1"),
        (b"a\n", ("--typical-p", 0), "argument --typical-p: must be above 0; it is 0"),
        (b"a\n", ("--beam", 2, "--min-p", 0.1), "Beam search does not sample"),
        (b"a\n", ("--top-k", 0), "argument --top-k: must be at least 1; it is 0"),
        (b"a\n", ("--beam", 2, "--seed", 1), "Beam search does not sample"),
    ],
)
def test_prompts_that_cannot_be_continued(content, options, message, generator, tmp_path, capsys):
    (tmp_path / "asked").write_bytes(content)
    assert run("predict", generator, "--data", tmp_path / "asked", *options) == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and not output.out


@pytest.mark.slow
def test_options_of_decoding_reach_translations(data, trained, tmp_path, capsys):
    (tmp_path / "asked").write_text("1 May 2000\n", "utf-8")
    assert run("predict", trained, "--data", tmp_path / "asked", "--beam", 2, "--length-penalty", 0.6) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert run("predict", trained, "--data", tmp_path / "asked", "--beam", 0) == 2
    assert "argument --beam: must be at least 1; it is 0" in capsys.readouterr().err
    files = data / "source.txt", data / "target.txt"
    assert run("evaluate", trained, "--data", *files, "--beam", 2, "--max-new-tokens", 3) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 48


@pytest.mark.slow
@pytest.mark.parametrize("family", ["transformer", "gpt2"])
def test_a_summarizer_from_pairs(family, data, tmp_path, capsys):
    lines = zip(*((data / f"{side}.txt").read_text("utf-8").splitlines() for side in ("source", "target")),
                strict=True)  # fmt: skip
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"text": a, "summary": b}) + "\n" for a, b in lines), "utf-8")
    (tmp_path / "changes.json").write_text('{"dim": 32, "num_heads": 2, "num_layers": 1}')
    size = "--size", "tiny", "--config", tmp_path / "changes.json", "--vocabulary", 300, "--max-length", 48
    out = "--out", tmp_path / "run", "--epochs", 1
    assert run("train", "summarize", "--data", path, *out, *size, "--family", family) == 0
    assert run("evaluate", tmp_path / "run", "--data", path, "--max-new-tokens", 4) == 0
    measures = json.loads(capsys.readouterr().out)
    assert {"rouge1", "rouge2", "rougeL", "lead1_rougeL"} <= measures.keys() and measures["pairs"] == 48


ALONE = ("train", "translate", "--data", "a", "--out", "b")


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "fly", "--data", "a"), "invalid choice: 'fly'"),
        (("train", "clasify", "--data", "a"), "(did you mean classify?)"),
        (("predicts", "a"), "(did you mean predict?)"),
        (("train", "text-classification", "--data", "a"), "(did you mean classify?)"),
        (("train", "--data", "{data}/source.txt"), "argument TASK: expected a task before '/"),
        ((*ALONE, "--lr", "1"), "--lr 1 (did you mean --learning-rate?)"),
        (("predict", "{trained}", "a text"), 'from standard input: echo "a text" | keras-tfm predict RUN)'),
        (("predict", "{trained}", "{data}/source.txt"), "source.txt (did you mean --data /"),
        ((*ALONE, "--learnig-rate", "1"), "--learnig-rate 1 (did you mean --learning-rate?)"),
        ((*ALONE, "--family=transfomer"), "(did you mean transformer?)"),
        (("train", "classify", *ALONE[2:], "--size", "tny"), "(did you mean tiny?)"),
        (("train", "classify-images", *ALONE[2:], "--family", "vitt"), "(did you mean vit?)"),
        (("train", "detect", *ALONE[2:], "--family", "detrr"), "(did you mean detr?)"),
        (("train", "classify", "--train", "a", "--out", "b"), "--train a (did you mean --data?)"),
        (("train", "classify", "a.tsv", "--out", "b"), "a.tsv (did you mean --data a.tsv?)"),
        ((*ALONE, "--config", "{data}/typo.json"), "(did you mean dropout?)"),
        (("plot", "nowhere"), "nowhere: there is no such folder"),
        (
            ("train", "classify", "--data", "{data}/labels.tsv", "--out", "{data}/x", "--from", "./nowhere"),
            "./nowhere: there is no such folder",
        ),
        (("predict",), "the following arguments are required: RUN"),
        (("predict", "nowhere"), "nowhere: there is no such folder"),
        (("evaluate", "{trained}", "--data", "{data}/missing.tsv"), "missing.tsv"),
        (
            ("evaluate", "{trained}", "--data", "{data}/source.txt", "--columns", "a"),
            "--columns: expected two",
        ),
        (("export", "{trained}", "--out", "{data}"), "exists already"),
        (("predict", "{trained}", "--data", "{data}/missing"), "missing"),
        (
            ("predict", "{generator}", "--whole", "--data", "{data}/source.txt", "--columns", "text"),
            "--columns: leave it out, since --whole reads and answers one text",
        ),
        (("predict", "{generator}", "--whole", "--quoted"), "--quoted: leave it out, since --whole"),
        (("predict", "{generator}", "--whole", "--draw", "x"), "--draw: leave it out, since --whole"),
        (("evaluate", "{generator}", "--data", "{data}/source.txt", "--beam", "2"), "does not generate text"),
        (
            ("evaluate", "{generator}", "--data", "{data}/source.txt", "--columns", "a,b"),
            "--columns: expected one, A; got a,b",
        ),
        (("train", "generate", "--data", "{data}/missing", "--out", "{data}/x"), "cannot be read"),
        (("launch", "--workers", "0", "--", "train"), "argument --workers: must be at least 1; it is 0"),
        (("launch", "--workers", "2"), "expected -- train …; got no command"),
        (("launch", "--workers", "2", "--", "fly"), "expected -- train …; got fly"),
        (("launch", "--workers", "2", "--", "train", "fly"), "invalid choice: 'fly'"),
        pytest.param(
            ("launch", "--workers", "2", "--", "train", "recommend", "--data", "a", "--out", "b"),
            "launch: the task 'recommend' trains in one process; leave `launch` out",
            marks=pytest.mark.slow,  # a process of its own
        ),
        pytest.param(
            ("launch", "--workers", "2", "--", *ALONE, "--strategy", "mirrored"),
            "train with --strategy multi-worker; got mirrored",
            marks=pytest.mark.slow,  # a process of its own, as `a size for launch` of bad_inputs.py has it
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, data, trained, generator, capsys):
    names = {"data": data, "trained": trained, "generator": generator}
    assert run(*(argument.format(**names) for argument in arguments)) == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and not output.out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"only one column\n", "line 1"),
        (b"a\tb\nc\td\n\xff\xfe\te\n", "line 3"),
        (b"a\tb\n\td\n", "line 2"),
    ],
)
def test_bad_data_leaves_no_run(content, message, tmp_path, capsys):
    (tmp_path / "bad.tsv").write_bytes(content)
    assert run("train", "translate", "--data", tmp_path / "bad.tsv", "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "bad.tsv" in error and message in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tsv"]


def test_what_exists_is_kept(data, trained, tmp_path, capsys):
    before = (trained / "model.safetensors").read_bytes()
    assert run(*train(data, trained)) == 2
    assert "pass --resume or --overwrite" in capsys.readouterr().err
    assert run(*train(data, trained), "--overwrite", "--size", "huge") == 2
    assert "no size 'huge'" in capsys.readouterr().err
    (tmp_path / "unknown.json").write_text('{"wings": 2}')
    assert run(*train(data, trained), "--overwrite", "--config", tmp_path / "unknown.json") == 2
    assert "wings" in capsys.readouterr().err
    assert (trained / "model.safetensors").read_bytes() == before


def test_help_is_quick_and_helps(capsys):
    for arguments in ((), ("train", "translate"), ("predict",), ("demo",)):
        assert run(*arguments, "--help") == 0
    assert "RUN" in capsys.readouterr().out
