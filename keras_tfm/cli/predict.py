"""`keras-tfm predict`: a line, or a row of a table, for each line or example."""

import argparse
import collections
import contextlib
import dataclasses
import inspect
import io
import itertools
import os
import select
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from keras_tfm.cli.columns import add_table_options, check_columns, layout_of
from keras_tfm.cli.console import say, warn
from keras_tfm.cli.generated import add_options, flag_of, given, in_flags
from keras_tfm.cli.outputs import pictures_in, refuse_file
from keras_tfm.cli.tables import Write, as_json, check_suffix, holds_values, new_table
from keras_tfm.cli.verbs import Decoding, add_decoding, add_task_folder, decoding_of, loaded
from keras_tfm.configs import Between, Config, Count, Option

# The text below the options in the help.
INPUTS = """\
FILE is what the task of RUN reads (plain, .gz or .xz), or a pattern of such files. Labels in it are ignored,
and may be missing. TABLE is a .tsv, .csv, .jsonl or .parquet file, or tfds:NAME[/CONFIG][:VERSION]#SPLIT.
  translate, summarize   lines; or a TABLE
  classify               lines, with a tab between two texts; or a TABLE
  tag                    lines, or CoNLL columns; or a TABLE with lists of words, or with a word per row
  answer                 lines: question, tab, context; or JSON in SQuAD's format; or a TABLE
  choose                 lines: text, tab, choice, tab, choice, ...; or a TABLE with lists of choices
  recommend              lines with one user each; or a TABLE with users
  forecast               lines with one series each, comma-separated; or a TABLE with a column of numbers
  generate, masked-lm, sentence-vectors   lines; or a folder of text files
  detect                 an image, a folder of images, COCO's JSON, JSON lines with images; or a TABLE
  segment                an image, a folder of images or with images/, COCO's JSON, JSON lines with images;
                         or a TABLE
  classify-images, image-vectors, pretrain-images, match-images, caption
                         an image; a folder of images, or of such folders; .npz or idx files; or a TABLE,
                         with images or with paths of them

Lines of standard input are answered as they arrive; with --seed, when all have arrived. (/dev/stdin is read
like a file.) Each input gets one line of output, that of an image its file's name, a tab and the answer. The
answer is empty (null with --json) if the input is blank or cannot be answered; the reason is written to
standard error. --json and --out give the place or the file of each input, its answer and, where the task has
one, the answer's confidence from 0 to 1; of tag also the words, the scores of their tags and the spans.
"""
MOST_TOLD = 20  # how many inputs without an answer are reported one by one
MOST_AT_ONCE = 1_024  # the largest number of lines of standard input that are answered together
PORTION = 8_192  # lines of a file whose answers are held at once while they are written to a table
# Up to this many answers are computed without XLA, since compiling would take longer than it saves: GPT-2
# with 86 M weights took 3.2 s per line of 64 tokens without XLA, 1.9 s with it, and 7 s to compile.
FEW = 4
PROBABILITY = "probability_"  # what names of columns begin with, before a label


@dataclasses.dataclass(frozen=True)
class Asking(Config):
    """Options for tasks of all kinds."""

    probabilities: Annotated[
        bool,
        Option("the probabilities of all labels too, printed alone as a JSON object (tasks with labels)"),
    ] = False
    repair: Annotated[bool, Option("turn an I- tag that goes on with nothing into B- (tag)")] = False
    num_items: Annotated[Count | None, Option("items per user (recommend)", flag="--items", default="10")] = (
        None
    )
    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option(
            "lowest score of the objects or segments that are printed (detect, segment)", default="the task's"
        ),
    ] = None
    draw: Annotated[
        str | None,
        Option("folder for pictures with boxes or masks drawn (detect, segment)", default="none"),
    ] = None
    masks: Annotated[
        str | None,
        Option(
            "folder for masks, PNG files of class values or numbers of segments (segment)", default="none"
        ),
    ] = None
    batch_size: Annotated[
        Count | None, Option("number of inputs that are processed at once", default="the task's, 16 or 64")
    ] = None


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm predict."""
    predict = add_verb(
        group, "predict", run, "answer each line of standard input, or of a file, with one line"
    )
    add_task_folder(predict)
    predict.epilog = INPUTS
    predict.formatter_class = argparse.RawDescriptionHelpFormatter
    predict.add_argument(
        "--input",
        default="-",
        metavar="FILE",
        help="a text file, a file as for train (see below), or - for standard input (the default)",
    )
    predict.add_argument(
        "--columns",
        metavar="A,B",
        help="a table's columns, by names or numbers from 0: those of train, or all but the label",
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
    add_options(predict, Asking)
    predict.add_argument(
        "--overwrite", action="store_true", help="replace files of --out, --draw and --masks that exist"
    )
    add_decoding(predict)


def run(arguments: argparse.Namespace) -> None:
    """predict: one line for each line, or example, of a file; with --whole one answer for all of it."""
    if arguments.out is not None:
        check_suffix(arguments.out, "--out")
        refuse_file(arguments.out, [arguments.input], arguments.overwrite)
    task = loaded(arguments.task_folder)
    writer = Writer(task, arguments)
    check_columns(task, arguments.columns, (1, 2, 3))
    if arguments.out is None:
        answer_all(task, arguments, writer)
    else:
        with new_table(arguments.out, writer.columns) as writer.write:
            answer_all(task, arguments, writer)
        say(f"{writer.num_read:,} rows are in {arguments.out}")


@in_flags(Decoding, Asking)
def answer_all(task: Any, arguments: argparse.Namespace, writer: "Writer") -> None:
    """Answer the whole input."""
    from keras_tfm.data.sources.files import read_lines

    layout = layout_of(arguments.columns, arguments)
    if arguments.whole:
        if not task.reads_lines:
            raise ValueError(f"--whole: the task {task.name!r} does not read text")
        text = "\n".join(read_lines(arguments.input))
        if reasons := task.refusals([text], **writer.decoding) | blanks([text]):
            raise ValueError(f"the text gets no answer: {reasons[0]}")
        writer.answer([text], ["the text"])
    elif writer.comes_by_lines:
        if layout is not None:
            flag = layout.flag if arguments.columns is None else "--columns"
            raise ValueError(f"{flag}: lines of standard input have none")
        if sys.stdin is None:
            raise ValueError("--input: standard input is closed, expected lines; give a file")
        stream = StandardInput(sys.stdin.buffer)
        for number, (examples, places) in enumerate(arriving(stream)):
            writer.answer(examples, places, is_all=number == 0 and stream.has_ended())
    else:
        inputs = task.read_inputs(arguments.input, layout)
        writer.pictures = pictures_in(writer.folders, inputs.examples, arguments.input, arguments.overwrite)
        count = len(inputs.examples)
        size = writer.portion or max(1, count)
        for first in range(0, count, size):
            rows = slice(first, first + size)
            writer.answer(inputs.examples[rows], inputs.places[rows], is_all=count <= size)
    writer.end()


class Writer:
    """Prints a task's answers in the form that the arguments ask for, or hands them to `write`, and reports
    inputs that it cannot answer.
    """

    write: Write

    def __init__(self, task: Any, arguments: argparse.Namespace):
        self.task, self.arguments = task, arguments
        self.decoding = decoding_of(arguments, task, task.writes_texts)
        self.asking = given(arguments, Asking)
        takes = inspect.signature(task.predict).parameters
        for name in self.asking:
            if name not in takes:
                raise ValueError(f"{flag_of(Asking, name)}: the task {task.name!r} has no such option")
        # Samples depend on which lines are answered together: with a seed, all lines are read first.
        can_come = task.reads_lines and not arguments.whole and "seed" not in self.decoding
        self.comes_by_lines = arguments.input == "-" and can_come
        self.folders: dict[str, str] = {
            name: self.asking[name] for name in ("draw", "masks") if name in self.asking
        }
        self.pictures: dict[str, list] = {}  # {option: the file of each input's picture}
        self.portion = None if "seed" in self.decoding else task.portion
        if can_come and (self.comes_by_lines or arguments.out is not None):
            self.portion = PORTION
        if len(set(map(os.path.realpath, self.folders.values()))) < len(self.folders):
            raise ValueError(
                "--draw, --masks: expected two folders, their files have the same names; got one"
            )
        self.num_read = self.num_cut = self.num_refused = 0

    def answer(self, examples: Any, places: list[str], is_all: bool = True) -> None:
        """Print an answer to each of the examples, whose places in the input are `places`. `is_all` says that
        no more follow.
        """
        from keras_tfm.jit import brief

        reasons = blanks(examples)
        rows = [row for row in range(len(examples)) if row not in reasons]
        asked = examples if not reasons else [examples[row] for row in rows]
        refusals, num_cut, answered = self.task.inspect(asked, **self.decoding)
        reasons |= {rows[place]: reason for place, reason in refusals.items()}
        for row, reason in sorted(reasons.items()):
            self.num_refused += 1
            if self.num_refused <= MOST_TOLD:
                warn(f"{places[row]} gets an empty {self._unit}: {reason}")
        first, self.num_read = self.num_read, self.num_read + len(examples)
        self.num_cut += num_cut
        if self.portion is None:
            self._tell_of_all()
        pictures = {
            name: [path for row, path in enumerate(paths[first : self.num_read]) if row not in reasons]
            for name, paths in self.pictures.items()
        }
        answers: Iterator[Any] = iter(())
        if len(answered):
            with brief() if is_all and len(answered) <= FEW else contextlib.nullcontext():
                answers = iter(self._ask(answered, **self.decoding, **{**self.asking, **pictures}))
        for row, (example, place) in enumerate(zip(examples, places, strict=True)):
            self._tell(example, place, None if row in reasons else next(answers))
        if self.arguments.out is None:
            sys.stdout.flush()

    def end(self) -> None:
        """Report what concerns all examples."""
        if self.portion is not None:
            self._tell_of_all()

    def _tell_of_all(self) -> None:
        if self.num_refused > MOST_TOLD:
            warn(f"{self.num_refused - MOST_TOLD:,} more get an empty {self._unit}")
        if self.num_cut:
            length = self.task.config.max_length
            warn(f"{self.num_cut} of {self.num_read} texts exceed {length} tokens and are cut there")

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
        """The method that answers: that of plain answers where they alone are printed."""
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


def arriving(stream: "StandardInput") -> Iterator[tuple[list[str], list[str]]]:
    """Lines and their places, in groups: it waits for the first line, and adds those that have arrived with
    it.
    """
    from keras_tfm.data.sources.lines import numbered_lines

    lines = numbered_lines("-", standard_input=stream)

    def what_is_there() -> Iterator[tuple[int, str]]:
        yield from itertools.islice(lines, 1)
        while stream.has_line():
            yield from itertools.islice(lines, 1)

    while group := list(itertools.islice(what_is_there(), MOST_AT_ONCE)):
        yield [text for _, text in group], [f"line {number}" for number, _ in group]


class StandardInput:
    """Reads a binary stream line by line, and knows whether another line has arrived already."""

    def __init__(self, stream: Any):
        self.stream, self.is_at_end = stream, False
        self.lines: collections.deque[bytes] = collections.deque()
        self.parts: list[bytes] = []  # of the incomplete line

    def readline(self, most: int) -> bytes:
        """The next line; of a line with more than `most` bytes, at least that many."""
        while not self.lines and sum(map(len, self.parts)) <= most and self._read():
            pass
        if self.lines:
            return self.lines.popleft()
        line, self.parts = b"".join(self.parts), []
        return line

    def has_ended(self) -> bool:
        """Whether no line will follow, as far as that is known without waiting."""
        return not self.has_line() and self.is_at_end

    def has_line(self) -> bool:
        """Whether `readline` returns a line without waiting."""
        while not self.lines and self._is_ready() and self._read():
            pass
        return bool(self.lines or (self.is_at_end and self.parts))

    def _is_ready(self) -> bool:
        try:
            return bool(select.select([self.stream], [], [], 0)[0])
        except io.UnsupportedOperation:  # a stream in memory
            return True

    def _read(self) -> bool:
        """Take what has arrived, or wait for something; return False at the end of the stream."""
        if not self.is_at_end:
            data = self.stream.read1(1 << 16)
            self.is_at_end = not data
            *whole, rest = data.split(b"\n")
            if whole:
                first, self.parts = b"".join([*self.parts, whole[0]]), []
                self.lines.extend(line + b"\n" for line in (first, *whole[1:]))
            self.parts += [rest] if rest else []
        return not self.is_at_end
