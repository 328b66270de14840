"""What only a process of its own shows: readers that leave, Ctrl-C, full disks, what is not imported."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
import tensorflow  # noqa: F401  (now: what it says while it is imported is not the command's)

from keras_tfm.cli import main
from keras_tfm.log import LOG, Bar
from tests.fresh_process import run_fresh

COMMAND = sys.executable, "-m", "keras_tfm"


def started(*arguments):
    """The command as a shell in front starts it: where tests run in the background, SIGINT is ignored."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def unread(*arguments):
    """The exit code, and what is said, where nobody reads standard output."""
    process = started(*arguments)
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read()
    return process.wait(60), said


def test_a_reader_that_leaves_is_no_error():
    """`| head -1`: nothing is said. Argparse itself drops what it cannot print."""
    for arguments in (("--version",), ("train", "translate", "--help")):
        code, said = unread(*arguments)
        assert code in (0, 128 + signal.SIGPIPE) and said == b""


def test_answers_that_nobody_reads(run_of, tmp_path, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    (tmp_path / "asked").write_text("a film\n" * 3)
    with open(writer, "w") as unread, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", unread)
        with pytest.raises(SystemExit) as end:
            main(["predict", str(run_of("classify")), "--data", str(tmp_path / "asked")])
    assert end.value.code == 128 + signal.SIGPIPE and capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["full", pytest.param("closed", marks=pytest.mark.slow)])
def test_answers_that_cannot_be_written(kind, run_of, tmp_path, monkeypatch, capfd):
    (tmp_path / "asked").write_text("a film\n" * 3)
    ask = ["predict", str(run_of("classify")), "--data"]
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full if kind == "full" else None)
        with pytest.raises(SystemExit) as end:
            main([*ask, str(tmp_path / "asked")])
    reason = {"full": "standard output: No space left on device", "closed": "standard output is closed"}[kind]
    (line,) = capfd.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith(f"keras-tfm: error: {reason}")


def test_lines_of_a_closed_input(run_of, monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", None)
    for arguments in (["predict", str(run_of("classify"))], ["vectors", "--data", "-", "--out", "x"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2 and "standard input is closed" in capfd.readouterr().err


@pytest.mark.parametrize(
    "kind",
    [
        "full",
        pytest.param("closed", marks=pytest.mark.slow),
        pytest.param("none", marks=pytest.mark.slow),
        pytest.param("unread", marks=pytest.mark.slow),
    ],
)
def test_a_lost_log_keeps_no_answer_back(kind, run_of, tmp_path, monkeypatch, capfd):
    (tmp_path / "asked").write_text("a film\n\n a film\n")  # the second is reported
    reader, writer = os.pipe()
    os.close(reader)
    with open(os.devnull, "w") as closed:
        pass
    full, unread = open("/dev/full", "w"), open(writer, "w")  # noqa: SIM115
    stream = {"full": full, "closed": closed, "none": None, "unread": unread}[kind]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        main(["predict", str(run_of("classify")), "--data", str(tmp_path / "asked")])
        for bar in (Bar(total=2, desc="epoch"), Bar(total=2, desc="epoch")):
            bar.is_terminal, bar.delay = True, 0
            bar.update()
            bar.refresh()
            LOG.warning("above the bar")
            bar.close()
    for lost in (full, unread):
        lost.close()
    first, blank, last = capfd.readouterr().out.splitlines()
    assert first == last != "" == blank


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path):
    """What a library prints there would be written into it."""
    code = """if True:
        import os, sys
        from keras_tfm.cli import main
        from keras_tfm.cli.console import answering
        with answering():
            with open(sys.argv[1], "w") as file:
                file.write(str(file.fileno()))
            os.write(2, b"a library's words")
        try:
            main(["--version"])
        except SystemExit as end:
            os._exit(end.code or 0)
    """
    for streams in ((0,), (1,), (2,), (0, 1, 2)):
        path = tmp_path / str(len(streams))
        end = subprocess.run(
            [sys.executable, "-c", code, path],
            preexec_fn=lambda streams=streams: [os.close(number) for number in streams],
            check=False,
        )
        assert end.returncode == 0 and int(path.read_text()) > 2


def test_what_needs_no_tensorflow_does_not_import_it():
    code = """if True:
        from keras_tfm.cli import main
        main(sys.argv[1:])
    """
    quick = [("--help",), ("--version",), ("fly",), ("predict",), ("launch", "--workers", "0")]
    quick += [
        (verb, "--help")
        for verb in ("predict", "evaluate", "export", "convert", "quantize", "demo", "launch")
    ]
    for arguments in quick:
        end = run_fresh(code, *arguments, blocked=("tensorflow", "keras"), timeout=60)
        is_right = "--help" in arguments or "--version" in arguments
        assert (end.returncode, end.stderr.count("\n")) == ((0, 0) if is_right else (2, 1)), end.stderr


def test_keras_starts_without_what_the_command_never_uses():
    code = """if True:
        import importlib.util
        from keras_tfm.cli.console import quiet_tensorflow
        quiet_tensorflow()
        for name in ("keras", "sklearn", "matplotlib"):
            print(name in sys.modules, importlib.util.find_spec(name) is not None)
    """
    answer = run_fresh(code, blocked=(), timeout=60)
    assert answer.stdout.split() == ["True", "True", "False", "True", "False", "True"], answer.stderr


def test_reading_is_interrupted(tmp_path):
    """Ctrl-C while a pipe is read."""
    os.mkfifo(tmp_path / "text.txt")
    process = started("train", "generate", "--data", tmp_path / "text.txt", "--out", tmp_path / "out")
    with open(tmp_path / "text.txt", "wb") as pipe:  # it is being read now
        pipe.write(b"A text.\n")
        pipe.flush()
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
    assert (
        process.returncode == 130 and error.decode().splitlines() == ["keras-tfm: interrupted"] and not output
    )
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 256 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param("export", marks=pytest.mark.slow),
        pytest.param("quantize", marks=pytest.mark.slow),
        "convert",
    ],
)
def test_a_full_disk_is_one_line(verb, run_of, small_disk, capfd):
    source = run_of("translate" if verb != "convert" else "bert")
    (small_disk / "ballast").write_bytes(bytes(240_000))
    capfd.readouterr()
    with pytest.raises(SystemExit) as end:
        main([verb, str(source), "--out", str(small_disk / "out")])
    output = capfd.readouterr()
    assert end.value.code == 2 and output.err.count("\n") == 1 and "No space left" in output.err, output.err
    assert not output.out and [path.name for path in small_disk.iterdir()] == ["ballast"]
