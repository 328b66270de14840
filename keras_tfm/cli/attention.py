"""`keras-tfm attention`: a page that shows what a trained task attends to."""

import argparse
import dataclasses
from typing import Annotated, Any

from keras_tfm.cli.console import say
from keras_tfm.cli.generated import add_options, given
from keras_tfm.cli.verbs import add_decoding, add_task_folder, decoding_of, loaded
from keras_tfm.configs import Between, Config, Length, Option

Place = Annotated[int, Between(0, 10_000)]
Port = Annotated[int, Between(0, 65_535)]


@dataclasses.dataclass(frozen=True)
class Shown(Config):
    """What the page holds, and where it answers."""

    layer: Annotated[
        Place | None, Option("whose queries and keys are kept of long texts, from 0", default="the last")
    ] = None
    max_tokens: Annotated[Length | None, Option("tokens of a page at most", default="512")] = None
    port: Annotated[Port, Option("where --serve answers; 0 for a free one")] = 0


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm attention."""
    verb = add_verb(
        group, "attention", run, "write a page, one HTML file, that shows what a trained task attends to"
    )
    add_task_folder(verb)
    example = verb.add_mutually_exclusive_group(required=True)
    example.add_argument("--text", help="what the model reads; of a pair both texts, a tab between")
    example.add_argument("--image", metavar="FILE", help="the image that it reads")
    where = verb.add_argument_group("where it goes").add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE", help="the page to write, replacing an earlier one")
    where.add_argument(
        "--serve", action="store_true", help="answer on 127.0.0.1, where other texts can be typed"
    )
    verb.add_argument("--target", metavar="TEXT", help="what the model writes, in place of its own answer")
    add_options(verb, Shown)
    add_decoding(verb)


def run(arguments: argparse.Namespace) -> None:
    """attention: a page in a file, or on this machine's port until it is interrupted."""
    shown = dataclasses.asdict(Shown(**given(arguments, Shown)))
    port = shown.pop("port")
    if arguments.serve and arguments.image:
        raise ValueError("--serve: texts are typed into the page; an image goes with --out")
    task = loaded(arguments.task_folder)
    reads_images = hasattr(task, "check_images")
    reads = {"--image": reads_images, "--text": not reads_images or hasattr(task, "encode_texts")}
    typed, wanted = ("--image", "--text") if arguments.image else ("--text", "--image")
    if not reads[typed]:
        raise ValueError(f"{typed}: the task {task.name!r} of {arguments.task_folder} reads {wanted}")
    options = decoding_of(arguments, getattr(task, "generate", task.predict))
    options |= {name: value for name, value in shown.items() if value is not None}

    from keras_tfm.visualize import attention_page

    example = arguments.image or arguments.text
    page = attention_page(task, example, arguments.out, arguments.target, **options)
    if not arguments.serve:
        say(f"the page stands in {arguments.out}: open it in a browser")
        return

    from keras_tfm.visualize.serve import Server

    with Server(page, lambda text: attention_page(task, text, **options), port) as server:
        print(server.url, flush=True)
        say("the page answers there; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
