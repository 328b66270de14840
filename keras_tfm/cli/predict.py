"""`keras-tfm predict`: a line, or a row of a table, for each line or example."""

import argparse
import contextlib
import dataclasses
import functools
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from keras_tfm.asking import ASKED, Asked, Asking
from keras_tfm.cli.columns import (
    TableOptions,
    add_table_options,
    as_trained,
    check_columns,
    layout_of,
    table_flag,
)
from keras_tfm.cli.console import say, tell_untrained, warn
from keras_tfm.cli.generated import add_option, add_options, given, in_flags
from keras_tfm.cli.outputs import pictures_in, refuse_file
from keras_tfm.cli.refusals import asking_of, refuse_missing, task_in
from keras_tfm.cli.standard_input import StandardInput
from keras_tfm.cli.tables import Write, as_json, check_suffix, holds_values, new_table
from keras_tfm.cli.verbs import Decoding, add_decoding, decoding_of, loaded, refuse_task
from keras_tfm.configs import Config, Option, rules_of

# The text below the options in the help, around what each task reads.
BEFORE = """\
FILE is what the task of RUN reads (plain, .gz or .xz), or a pattern of such files. Labels in it are ignored,
and may be missing. TABLE is a .tsv, .csv, .jsonl or .parquet file, or tfds:NAME[/CONFIG][:VERSION]#SPLIT.
"""
AFTER = """
Lines of standard input are answered as they arrive; with --seed {portion:,} of them are answered together, as
the lines of a file are. (/dev/stdin is read like a file.) Each input gets one line of output; for an image it
is the file's name, a tab and the answer. The answer is empty (null with --json) if the input is blank or
cannot be answered; the reason is written to standard error. --json and --out give the place or the file of
each input, its answer and, where the task has one, the answer's confidence from 0 to 1; for tag also the
words, the scores of their tags and the spans.
"""
MOST_TOLD = 20  # how many inputs without an answer are reported one by one
MOST_AT_ONCE = 1_024  # the largest number of lines of standard input that are answered as they arrive
PORTION = 8_192  # inputs that are read and answered together, where the task does not say
# Up to this many answers are computed without XLA, since compiling would take longer than it saves: GPT-2
# with 86 M weights took 3.2 s per line of 64 tokens without XLA, 1.9 s with it, and 7 s to compile.
FEW = 4
KEPT_BYTES = "surrogateescape"  # how lines of standard input keep bytes that are no UTF-8
PICTURES = "draw", "masks", "tracks", "filled"  # options that name folders with a file for each input
DECIDING = "restore", "reference"  # options by which it depends whether an input is answered
PROBABILITY = "probability_"  # what names of columns begin with, before a label


@dataclasses.dataclass(frozen=True)
class Drafting(Config):
    """What helps a model to write."""

    draft: Annotated[
        str | None,
        Option(
            "a smaller model with the same tokenizer, whose guesses are checked (generate)", metavar="RUN"
        ),
    ] = None


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm predict."""
    predict = add_verb(
        group, "predict", run, "answer each line of standard input, or of a file, with one line"
    )
    predict.add_argument(
        "task_folder",
        metavar="RUN",
        help="a folder that train, convert or export wrote; an export reads lines, or files of images, "
        "videos or points",
    )
    predict.epilog = BEFORE + inputs_of(ASKED) + AFTER.format(portion=PORTION)
    predict.formatter_class = argparse.RawDescriptionHelpFormatter
    predict.add_argument(
        "--data",
        default="-",
        metavar="FILE",
        help="a text file, a file as for train (see below), or - for standard input (the default)",
    )
    predict.add_argument(
        "--columns",
        metavar="A,B",
        help="a table's columns, by names or numbers from 0: as for train, or all but the label "
        "(default: as in the training, if the table has these names)",
    )
    add_table_options(predict)
    predict.add_argument(
        "--whole",
        action="store_true",
        help="read the whole input as one text, and print the answer unchanged",
    )
    how = predict.add_mutually_exclusive_group()
    how.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object for each input: place, answer, confidence",
    )
    how.add_argument(
        "--out",
        metavar="FILE",
        help="write the inputs and their answers to a table, .csv, .tsv (with quotes) or .jsonl, instead",
    )
    add_asking(predict, ASKED)
    predict.add_argument(
        "--overwrite",
        action="store_true",
        help="replace files of --out, --draw, --masks and --tracks that exist; folders of --filled stay",
    )
    predict.add_argument(
        "--no-cache",
        action="store_true",
        help="neither use nor keep what an earlier predict of RUN has traced",
    )
    add_options(predict, Drafting)
    add_decoding(predict)


def inputs_of(tasks: Mapping[str, Asked]) -> str:
    """What each of the tasks reads, one line for all tasks that read the same."""
    named: dict[str, list[str]] = {}
    for name, task in tasks.items():
        named.setdefault(task.input_files, []).append(name)
    lines = []
    for files, names in named.items():
        listed, margin = ", ".join(names), " " * 25
        begin = f"  {listed:<22} " if len(listed) <= 22 else margin
        lines += [] if begin != margin else [f"  {listed}"]
        lines += textwrap.wrap(files, 110, initial_indent=begin, subsequent_indent=margin)
    return "\n".join(lines) + "\n"


def add_asking(predict: argparse.ArgumentParser, tasks: Mapping[str, Asked]) -> None:
    """Add the options that the tasks declare in `asking`, each once, with the names of its tasks."""
    having: dict[str, list[str]] = {}
    for task, asked in tasks.items():
        for name, _ in rules_of(type(asked.asking), Option):
            having.setdefault(name, []).append(task)
    for name, some in having.items():
        first = type(tasks[some[0]].asking)
        option, others = dict(rules_of(first, Option))[name], [task for task in tasks if task not in some]
        are_few = len(some) < len(others)
        if listed := ", ".join(some if are_few else others):
            option = option._replace(help=f"{option.help} ({'' if are_few else 'not '}{listed})")
        usual = list(dict.fromkeys(getattr(tasks[task].asking, name) for task in some))
        default = usual[0] if len(usual) == 1 else " or ".join(map(str, sorted(usual)))
        add_option(predict, first, name, option, default, dest=f"{Asking.__name__}.{name}")


def run(arguments: argparse.Namespace) -> None:
    """predict: one line for each line, or example, of a file; with --whole one answer for all of it."""
    if arguments.whole and (flag := table_flag(arguments) or picture_flag(arguments)):
        raise ValueError(f"{flag}: leave it out, since --whole reads and answers one text")
    if arguments.out is not None:
        check_suffix(arguments.out, "--out")
        refuse_file(arguments.out, [arguments.data], arguments.overwrite)
    writer = writer_of(arguments)
    task = writer.task
    with in_flags(Decoding, Drafting, type(task.asking)):
        if arguments.out is None:
            answer_all(task, arguments, writer)
        else:
            with new_table(arguments.out, writer.columns) as writer.write:
                answer_all(task, arguments, writer)
    if arguments.out is not None:
        say(f"{writer.num_read:,} rows are in {arguments.out}")


def writer_of(arguments: argparse.Namespace) -> "Writer":
    """What answers from RUN, or from an export. ValueError for files and options that cannot be, as far as
    possible before TensorFlow is imported.
    """
    refuse_missing([arguments.data])
    from keras_tfm import serving

    if serving.is_export(arguments.task_folder):
        from keras_tfm.cli.exported import exported, refuse_options

        refuse_options(arguments, Decoding, Drafting)
        return Writer(exported(arguments.task_folder), arguments)
    if (name := refuse_task(arguments)) in ASKED:
        asking_of(arguments, name, ASKED[name].asking)
    if (draft := given(arguments, Drafting).get("draft")) is not None:
        task_in(draft)
    place = None
    if is_plain(arguments):
        from keras_tfm.cli import kept_answers

        place = kept_answers.place_of(arguments.task_folder)
        kept = None if place is None else kept_answers.kept_task(arguments.task_folder, place)
        if kept is not None:
            tell_untrained(kept, arguments.task_folder)
            return Writer(kept, arguments)
    task = loaded(arguments.task_folder)
    as_trained(task, arguments, arguments.data, may_lack_label=True)
    check_columns(task, arguments.columns, (1, 2, 3))
    from keras_tfm.jit import brief

    writer = Writer(task, arguments, brief)
    if place is not None:
        kept_answers.trace_apart(task)
        writer.keep = functools.partial(kept_answers.keep, task, place)
    return writer


def picture_flag(arguments: argparse.Namespace) -> str | None:
    """The first of the options in `PICTURES` that was typed, as its flag."""
    return next((f"--{name}" for name in PICTURES if name in given(arguments, Asking)), None)


def is_plain(arguments: argparse.Namespace) -> bool:
    """Whether lines of standard input are to be answered by plain lines."""
    options = {**given(arguments, Decoding), **given(arguments, Drafting), **given(arguments, TableOptions)}
    others = given(arguments, Asking).keys() - {"batch_size"}
    is_other = arguments.whole or arguments.json or arguments.no_cache or arguments.out is not None
    return arguments.data == "-" and arguments.columns is None and not (options or others or is_other)


def answer_all(task: Any, arguments: argparse.Namespace, writer: "Writer") -> None:
    """Answer the whole input."""
    from keras_tfm.data.sources.lines import files_of, numbered_lines

    if arguments.whole:
        if not task.reads_lines:
            raise ValueError(f"--whole: the task {task.name!r} does not read text")
        path, *others = files_of(arguments.data)
        if others:
            raise ValueError(f"--whole: expected one file; got {1 + len(others)} of {arguments.data}")
        text = "\n".join(line for _, line in numbered_lines(path))
        if reasons := task.refusals([text], **writer.decoding) | blanks([text]):
            raise ValueError(f"the text gets no answer: {reasons[0]}")
        writer.answer([(text, "the text")], is_all=True)
    elif arguments.data == "-" and task.reads_lines and not writer.folders:
        answer_standard_input(arguments, writer)
    else:
        inputs = task.read_inputs(arguments.data, layout_of(arguments.columns, arguments))
        if writer.folders:  # the names of all pictures are known before the first is written
            inputs = list(inputs)
            examples = [example for example, _ in inputs]
            how = arguments.overwrite, task.picture_suffixes
            writer.pictures = pictures_in(writer.folders, examples, arguments.data, *how)
        for number, portion in enumerate(portions(inputs, writer.size)):
            writer.answer(portion, is_all=number == 0 and len(portion) <= FEW)
    writer.end()


def answer_standard_input(arguments: argparse.Namespace, writer: "Writer") -> None:
    """Answer lines as they arrive or, since samples depend on which lines are answered together, with a seed
    in the portions of a file.
    """
    from keras_tfm.data.sources.lines import as_inputs, numbered_lines

    if flag := table_flag(arguments):
        raise ValueError(f"{flag}: lines of standard input have none")
    if sys.stdin is None:
        raise ValueError("--data: standard input is closed, expected lines; give a file")
    stream = StandardInput(sys.stdin.buffer)
    lines = as_inputs(numbered_lines("-", standard_input=stream, errors=KEPT_BYTES))
    waits = "seed" in writer.decoding and writer.task.writes_texts
    parts = portions(lines, writer.size) if waits else portions(lines, MOST_AT_ONCE, stream.has_line)
    for number, portion in enumerate(parts):
        writer.answer(portion, is_all=number == 0 and stream.has_ended())


def portions(inputs: Iterable, size: int, has_more: Callable[[], bool] = lambda: True) -> Iterator[list]:
    """The inputs in lists of `size`, or of fewer where no more are there yet. Those before one that cannot be
    read come before the error.
    """
    portion = []
    try:
        for one in inputs:
            portion.append(one)
            if len(portion) == size or not has_more():
                yield portion
                portion = []
    except ValueError:
        if portion:
            yield portion
        raise
    if portion:
        yield portion


class Writer:
    """Prints a task's answers in the form that the arguments ask for, or hands them to `write`, and reports
    inputs that it cannot answer.
    """

    write: Write
    keep: Callable[[], None] = staticmethod(lambda: None)  # called when all is answered

    def __init__(self, task: Any, arguments: argparse.Namespace, brief: Any = contextlib.nullcontext):
        self.task, self.arguments, self.brief = task, arguments, brief
        self.decoding = decoding_of(arguments, task.name, task.writes_texts, type(task.asking))
        if (draft := given(arguments, Drafting).get("draft")) is not None:
            if task.name != "generate":
                raise ValueError(f"--draft: the task {task.name!r} takes no drafts")
            self.decoding["draft"] = loaded(draft)
        self.asking = asking_of(arguments, task.name, task.asking)
        if hasattr(task.asking, "seed"):
            self.decoding.setdefault("seed", task.asking.seed)
        size, batch = task.portion or PORTION, self.asking.get("batch_size", 1)
        self.size = max(batch, size - size % batch)  # how many inputs are read and answered together
        self.folders: dict[str, str] = {name: self.asking[name] for name in PICTURES if name in self.asking}
        self.pictures: dict[str, list] = {}  # {option: the file of each input's picture}
        flags = ", ".join(f"--{name}" for name in self.folders)
        if len(set(map(os.path.realpath, self.folders.values()))) < len(self.folders):
            raise ValueError(f"{flags}: expected two folders, their files have the same names; got one")
        self.num_read = self.num_cut = self.num_refused = 0

    def answer(self, inputs: Sequence[tuple[Any, str]], is_all: bool) -> None:
        """Print an answer to each of the inputs, examples with their places. `is_all` says that no more
        follow. A seed goes on with the number of the row, as within a portion; where no texts are written,
        with the number of the answer.
        """
        decoding = dict(self.decoding)
        if "seed" in decoding:
            done = self.num_read if self.task.writes_texts else self.num_read - self.num_refused
            decoding["seed"] = (decoding["seed"] + done) % 2**31
        examples = [example for example, _ in inputs]
        reasons = blanks(examples) | (other_bytes(examples) if self.task.reads_lines else {})
        rows = [row for row in range(len(examples)) if row not in reasons]
        asked = examples if not reasons else [examples[row] for row in rows]
        deciding = {name: self.asking[name] for name in DECIDING if name in self.asking}
        refusals, num_cut, answered = self.task.inspect(asked, **decoding, **deciding)
        reasons |= {rows[place]: reason for place, reason in refusals.items()}
        for row, reason in sorted(reasons.items()):
            self._refuse(inputs[row][1], reason)
        first, self.num_read = self.num_read, self.num_read + len(examples)
        self.num_cut += num_cut
        pictures = {
            name: [path for row, path in enumerate(paths[first : self.num_read]) if row not in reasons]
            for name, paths in self.pictures.items()
        }
        answers: Iterator[Any] = iter(())
        if len(answered):
            with self.brief() if is_all and len(answered) <= FEW else contextlib.nullcontext():
                answers = iter(self._ask(answered, **decoding, **{**self.asking, **pictures}))
        for row, (example, place) in enumerate(inputs):
            answer = None if row in reasons else next(answers)
            if isinstance(answer, ValueError):  # that the task noticed only as it answered
                self._refuse(place, answer)
                answer = None
            self._tell(example, place, answer)
        if self.arguments.out is None:
            sys.stdout.flush()

    def _refuse(self, place: str, reason: object) -> None:
        """Report that the input at this `place` gets no answer."""
        self.num_refused += 1
        if self.num_refused <= MOST_TOLD:
            warn(f"{place} gets an empty {self._unit}: {reason}")

    def end(self) -> None:
        """Report what concerns all examples, and keep what answered them."""
        if self.num_refused > MOST_TOLD:
            warn(f"{self.num_refused - MOST_TOLD:,} more get an empty {self._unit}")
        if self.num_cut:
            length = self.task.config.max_length
            warn(f"{self.num_cut} of {self.num_read} texts exceed {length} tokens and are cut there")
        self.keep()

    @property
    def _unit(self) -> str:
        return "line" if self.arguments.out is None else "row"

    @property
    def _where(self) -> str:
        """The column that says where an example comes from."""
        return "place" if self.task.reads_lines else "file"

    @property
    def columns(self) -> list[str]:
        """The columns of --out, of .jsonl the names."""
        columns = [self._where, *["input"] * self.task.reads_lines, *self.task.record_fields]
        if self.asking.get("probabilities"):
            names = self.task.answer_names
            columns += ["probabilities"] if names is None else [f"{PROBABILITY}{name}" for name in names]
        return columns

    @property
    def _ask(self) -> Any:
        """The method that answers: `predict` where only plain answers are printed."""
        are_records = self.arguments.json or self.arguments.out is not None
        return self.task.records if are_records else self.task.predict

    def _tell(self, example: Any, place: str, answer: Any) -> None:
        """Print or write what is known of an example; the `answer` is None if it gets none."""
        place = os.fspath(example) if self._where == "file" and is_name(example) else place
        if self.arguments.out is not None:
            self.write(self._row(example, place, answer))
        elif self.arguments.json:
            print(as_json({self._where: place, **(answer or {"answer": None})}))
        else:
            line = "" if answer is None else self._line(answer)
            print(line if self.task.reads_lines else f"{place}\t{line}")

    def _row(self, example: Any, place: str, record: dict[str, Any] | None) -> dict[str, Any]:
        row = {self._where: place} | ({"input": example} if self.task.reads_lines else {})
        if holds_values(self.arguments.out) or record is None:
            return {**row, **(record or {"answer": None})}
        probabilities = record.pop("probabilities", {})
        if self.task.answer_names is not None:
            named = {f"{PROBABILITY}{name}": probability for name, probability in probabilities.items()}
        else:
            named = {"probabilities": probabilities} if probabilities else {}
        answer = record["answer"]
        return {**row, **record, "answer": answer if isinstance(answer, str) else self._text(answer), **named}

    def _text(self, answer: Any) -> str:
        return self.task.as_line(answer) if not isinstance(answer, dict) else as_json(answer)

    def _line(self, answer: Any) -> str:
        """An answer in its printed form."""
        if self.asking.get("probabilities"):
            names = self.task.answer_names or range(len(answer))
            named = zip(names, answer, strict=True)
            return as_json({str(name): float(f"{probability:.6g}") for name, probability in named})
        return answer if self.arguments.whole and isinstance(answer, str) else self.task.as_line(answer)


def is_name(example: Any) -> bool:
    """Whether an example is the path of a file."""
    return isinstance(example, str | os.PathLike)


def blanks(examples: Any) -> dict[int, str]:
    """{row: reason} of the texts that are blank."""
    return {row: "it is blank" for row, x in enumerate(examples) if isinstance(x, str) and not x.strip()}


def other_bytes(texts: Sequence[Any]) -> dict[int, str]:
    """{row: reason} of the lines of standard input that are no UTF-8."""
    from keras_tfm.data.sources.lines import no_utf_8

    reasons = {}
    for row, text in enumerate(texts):
        try:
            if isinstance(text, str):
                text.encode(errors=KEPT_BYTES).decode()
        except UnicodeDecodeError as error:
            reasons[row] = no_utf_8(error)
    return reasons
