"""`keras-tfm attention`: write a page that shows what a trained task attends to."""

import argparse
import dataclasses
import pathlib
from typing import Annotated, Any

from keras_tfm.cli.console import say
from keras_tfm.cli.generated import add_options, given
from keras_tfm.cli.outputs import refuse_file
from keras_tfm.cli.refusals import refuse_missing
from keras_tfm.cli.verbs import add_decoding, add_task_folder, decoding_of, loaded, refuse_task
from keras_tfm.configs import Between, Config, Length, Option

Place = Annotated[int, Between(0, 10_000)]
Port = Annotated[int, Between(0, 65_535)]


@dataclasses.dataclass(frozen=True)
class Shown(Config):
    """The content of the page, and the port that serves it."""

    layer: Annotated[
        Place | None,
        Option("layer (from 0) whose queries and keys are kept for long texts", default="the last"),
    ] = None
    max_tokens: Annotated[Length | None, Option("maximum tokens of a page", default="512")] = None
    port: Annotated[Port, Option("port of --serve; 0 chooses a free one")] = 0


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm attention."""
    verb = add_verb(group, "attention", run, "write one HTML file that shows what a trained task attends to")
    add_task_folder(verb)
    example = verb.add_mutually_exclusive_group(required=True)
    example.add_argument("--text", help="the text that the model reads; a tab separates the texts of a pair")
    example.add_argument("--image", metavar="FILE", help="the image that the model reads")
    where = verb.add_argument_group("output").add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE", help="the HTML file to write")
    where.add_argument(
        "--serve", action="store_true", help="serve the page on 127.0.0.1, where you can type other texts"
    )
    verb.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    verb.add_argument(
        "--target", metavar="TEXT", help="a text to read as the model's output, instead of its own answer"
    )
    add_options(verb, Shown)
    add_decoding(verb)


def run(arguments: argparse.Namespace) -> None:
    """attention: write a page to a file, or serve it on this machine until interrupted."""
    shown = dataclasses.asdict(Shown(**given(arguments, Shown)))
    port = shown.pop("port")
    if arguments.serve and arguments.image:
        raise ValueError("--serve: only texts can be typed into the page; use --out for an image")
    if arguments.out is not None:
        refuse_file(arguments.out, [arguments.image], arguments.overwrite)
    refuse_task(arguments)
    refuse_missing([arguments.image])
    task = loaded(arguments.task_folder)
    reads_images = hasattr(task, "check_images")
    reads = {"--image": reads_images, "--text": not reads_images or hasattr(task, "encode_texts")}
    typed, wanted = ("--image", "--text") if arguments.image else ("--text", "--image")
    if not reads[typed]:
        raise ValueError(f"{typed}: the task {task.name!r} of {arguments.task_folder} reads {wanted}")
    options = decoding_of(arguments, task.name, task.writes_texts)
    options |= {name: value for name, value in shown.items() if value is not None}

    from keras_tfm.visualize import attention_page

    # A path is an image's, a string a text, even where it names a file.
    example = pathlib.Path(arguments.image) if arguments.image else arguments.text
    page = attention_page(task, example, arguments.out, arguments.target, **options)
    if not arguments.serve:
        say(f"the page is {arguments.out}: open it in a browser")
        return

    from keras_tfm.visualize.serve import Server

    with Server(page, lambda text: attention_page(task, text, **options), port) as server:
        print(server.url, flush=True)
        say("open this address in a browser; Ctrl-C stops the server")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
