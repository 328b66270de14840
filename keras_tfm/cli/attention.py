"""`keras-tfm attention`: a page that shows what a trained task attends to."""

import argparse
from typing import Any

from keras_tfm.cli.console import say
from keras_tfm.cli.verbs import add_decoding, add_task_folder, decoding_of, loaded

MOST_PORTS = 65_535


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
        "--serve",
        nargs="?",
        const=0,
        type=int,
        metavar="PORT",
        help="answer on 127.0.0.1, at PORT or a free one, where other texts can be typed",
    )
    verb.add_argument("--target", metavar="TEXT", help="what the model writes, in place of its own answer")
    verb.add_argument(
        "--layer", type=int, metavar="N", help="whose queries and keys are kept of long texts (the last)"
    )
    verb.add_argument("--max-tokens", type=int, metavar="N", help="tokens of a page at most (512)")
    add_decoding(verb)


def run(arguments: argparse.Namespace) -> None:
    """attention: a page in a file, or on this machine's port until it is interrupted."""
    port = arguments.serve
    if port is not None and not 0 <= port <= MOST_PORTS:
        raise ValueError(f"--serve: expected a port, 0 to {MOST_PORTS}; got {port}")
    if port is not None and arguments.image:
        raise ValueError("--serve: texts are typed into the page; an image goes with --out")
    if arguments.max_tokens is not None and arguments.max_tokens < 1:
        raise ValueError(f"--max-tokens: expected 1 or more; got {arguments.max_tokens}")
    task = loaded(arguments.task_folder)
    if bool(arguments.image) != hasattr(task, "check_images"):
        given, wanted = ("--image", "--text") if arguments.image else ("--text", "--image")
        raise ValueError(f"{given}: the task {task.name!r} of {arguments.task_folder} reads {wanted}")
    options = decoding_of(arguments, getattr(task, "generate", task.predict))
    chosen = {name: getattr(arguments, name) for name in ("layer", "max_tokens")}
    options |= {name: value for name, value in chosen.items() if value is not None}

    from keras_tfm.visualize import attention_page

    example = arguments.image or arguments.text
    page = attention_page(task, example, arguments.out, arguments.target, **options)
    if port is None:
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
