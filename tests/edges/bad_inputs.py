"""Bad inputs of the command line as data: what is typed, the files that it names, and what the error says.

`{folder}` in an argument is a new folder with the row's `files`, `{run}` a copy of the RUN `of`, in whose
config.json `entry`, a path of keys, is set to `value`. Each must end with exit code 2 and one line.
"""

import gzip
import json
import lzma
from typing import Any, NamedTuple

DEPTH = 100_000
DEEP = "[" * DEPTH + "]" * DEPTH
DEEP_OBJECTS = '{"a":' * DEPTH + "1" + "}" * DEPTH


class Bad(NamedTuple):
    """One bad input: its name, the command's arguments, a part of the message."""

    name: str
    arguments: str
    message: str
    files: dict = {}  # name -> text, bytes, or a function that makes them
    of: str | None = None  # the RUN or the folder of Hugging Face's that is copied to {run}
    entry: tuple = ()
    value: Any = None


def zeros(compress):
    """80 MB of zeros in a file of some kilobytes."""
    return lambda: compress(bytes(80_000_000))


PAIRS = "1 May\t2\n3 June\t4\n"
TRANSLATE = "train translate --data {folder}/pairs.tsv --out {out}"
GENERATE = "train generate --data {folder}/text.txt --out {out}"
ASK = "predict RUN"
CONVERT = "convert {run} --out {out}"
CLASSIFY = "train classify --data {folder}/text.tsv --out {out}"
FORECAST = "train forecast --data {folder}/series.csv --out {out}"
IMAGES = "train classify-images --data {folder} --out {out}"
ANSWER = "train answer --data {folder}/squad.json --out {out}"
TEXTS = {"pairs.tsv": PAIRS, "text.txt": "A text.\n", "text.tsv": "good\ta\nbad\tb\n"}


def config(name, content, message, command=TRANSLATE):
    """A --config FILE of this content."""
    content = content if isinstance(content, str) else json.dumps(content)
    command += " --config {folder}/config.json"
    return Bad(f"--config: {name}", command, message, {**TEXTS, "config.json": content})


def run_entry(of, path, value, message):
    """A RUN in whose config.json one entry is another."""
    return Bad(
        f"{of}: {path} = {json.dumps(value):.20}", "predict {run} --data {folder}/text.txt", message,
        TEXTS, of, tuple(path.split(".")), value,
    )  # fmt: skip


def their_entry(path, value, message, of="bert"):
    """A folder of Hugging Face's in whose config.json one entry is another."""
    return Bad(
        f"{of}: {path} = {json.dumps(value):.20}", CONVERT, message,
        {}, of, tuple(path.split(".")), value,
    )  # fmt: skip


def option(text, expected, command=TRANSLATE):
    """An option with a value that it does not take."""
    return Bad(text, f"{command} {text}", f"{text.split()[0]}: {expected}; it is {text.split()[1]}")


def twice(task, file, content, place, key):
    """A file of JSON with an object that has a key twice."""
    kind = "JSON" if file in ("coco.json", "squad.json") else "a JSON object"
    return Bad(
        f"{task}: {key} twice in {file}",
        f"train {task} --data {{folder}}/{file} --out {{folder}}/out",
        f"{place}expected {kind}: the key {key} stands twice",
        {file: content + "\n"},
    )


CONFIGS = [
    config("letters", {"dropout": "x"}, "config.json: `dropout` must be a number; it is 'x'"),
    config("a list", {"num_layers": [1]}, "`num_layers` must be a whole number; it is [1]"),
    config("null", {"dim": None}, "`dim` must be a whole number; it is None"),
    config("a rate of 1", {"dropout": 1.0}, "`dropout` must be below 1; it is 1.0"),
    config("no layers", {"num_layers": 0}, "`num_layers` must be at least 1; it is 0"),
    config("a half", {"num_layers": 1.5}, "`num_layers` must be a whole number; it is 1.5"),
    config("a truth", {"dim": True}, "`dim` must be a whole number; it is True"),
    config("a number as truth", {"normalize_first": 1}, "`normalize_first` must be true or false; it is 1"),
    config("no number", '{"dropout": NaN}', "`dropout` must be a number; it is nan"),
    config("a huge layer", {"dim": 10**12}, "`dim` must be below 2,147,483,648; it is 1000000000000"),
    config("an unknown field", {"wings": 2}, "TransformerConfig has no wings"),
    config("what an option says", {"max_length": 5}, "max_length is set by --max-length"),
    config("what another option says", {"vocabulary_size": 5}, "vocabulary_size is set by --vocabulary"),
    config("an argument's name", {"size": "tiny"}, "TransformerConfig has no size"),
    config("no object", [1], "a JSON object"),
    config("nested lists", DEEP, "deep"),
    config("nested objects", DEEP_OBJECTS, "deep"),
    config("no JSON", "{", "expected JSON"),
    config("heads that do not divide", {"num_heads": 7}, "7", CLASSIFY),
    config("letters of classify", {"dropout": "x"}, "`dropout` must be a number; it is 'x'", CLASSIFY),
    config("letters of generate", {"max_length": "x"}, "`max_length` must be a whole number", GENERATE),
    Bad("--config: JSON", f"{TRANSLATE} --config {{{{}}}}", "--config: expected the name of a", TEXTS),
    Bad("--config: no file", f"{TRANSLATE} --config {{folder}}/none", "none: expected a file to read", TEXTS),
]

RUNS = [
    run_entry("translate", "task", ["translate"], "expected a string as 'task', got ['translate']"),
    run_entry("translate", "task", "fly", "unknown task 'fly'"),
    run_entry("translate", "keras_tfm", "99.0", "written by keras_tfm 99.0, newer than this one"),
    run_entry("translate", "keras_tfm", 1, "expected the version that wrote it"),
    run_entry("translate", "config.max_length", "x", "`max_length` must be a whole number; it is 'x'"),
    run_entry("translate", "config.max_length", 10**12, "`max_length` must be at most 1,048,576"),
    run_entry("translate", "config.decoding.options.beam_size", "x", "`beam_size` must be a whole number"),
    run_entry("translate", "config.decoding.options.beam_size", -1, "`beam_size` must be at least 1"),
    run_entry("translate", "config.decoding.options.wings", 1, "there is no wings"),
    run_entry("translate", "config.decoding.end_ids", [10**9], "must lie in [0, "),
    run_entry("translate", "config.around", [[[1], "x"]], "`around` must be a list of 2"),
    run_entry("translate", "config.wings", 1, "TranslatorConfig has no wings"),
    run_entry("translate", "model.class", ["Transformer"], "unknown model class ['Transformer']"),
    run_entry("translate", "model.class", "Model", "unknown model class 'Model'"),
    run_entry("translate", "model.config", 5, "expected an object of fields, got 5"),
    run_entry("translate", "model.config.dim", 10**12, "`dim` must be below 2,147,483,648"),
    run_entry("translate", "model.config.dim", 10**8, "`dim` is 100,000,000, and no weight has such an axis"),
    run_entry("translate", "model.config.vocabulary_size", 10**9, "and no weight has such an axis"),
    run_entry("translate", "model.config.num_layers", 10**7, "`num_layers` must be at most 10,000"),
    run_entry("translate", "model.config.num_layers", 9_999, "`num_layers` is 9,999, and there are"),
    run_entry("translate", "model.config.num_layers", 2, "model.safetensors"),
    run_entry("translate", "model.config.activation", "nosuch", "nosuch"),
    run_entry("translate", "model.config.normalize_first", "x", "`normalize_first` must be true or false"),
    run_entry("translate", "model.head.tied", "x", "`tied` must be true or false; it is 'x'"),
    run_entry("translate", "model.head", [1], "expected an object of fields, got [1]"),
    run_entry("translate", "model", None, "expected an object as 'model', got None"),
    run_entry(
        "translate", "quantization", "int3", "config.json: `quantization` must be one of int8; it is 'int3'"
    ),
    run_entry("translate", "files", 3, "expected an object as 'files', got 3"),
    run_entry("classify", "config.problem", "nosuch", "`problem` must be one of classes, multi-label, regr"),
    run_entry("classify", "config.labels", 5, "`labels` must be a list; it is 5"),
    run_entry("classify", "config.labels", [1, 2], "`labels`[0] must be a string; it is 1"),
    run_entry("classify", "config.labels", ["a", "a"], "`labels` must be different"),
    run_entry("classify", "config.head", {"dropout": "x"}, "not a configuration of 'classify'"),
    run_entry("classify", "config.head", {"wings": 1}, "wings"),
    run_entry("classify", "config.max_length", 1, "`max_length` must be at least 8; it is 1"),
    run_entry("classify", "model.config.pooler", 3, "`pooler` must be true or false; it is 3"),
    run_entry("classify", "model.config.max_length", 2**20, "it asks for a weight of"),
    run_entry("generate", "config.separator", 3, "`separator` must be a string; it is 3"),
    run_entry("generate", "config.has_tokenizer", "no", "`has_tokenizer` must be true or false"),
    Bad("RUN: nested", "predict {run}", "deep", {"run/config.json": DEEP_OBJECTS}, "translate"),
    Bad("RUN: no object", "predict {run}", "a JSON object", {"run/config.json": "[]"}, "translate"),
    Bad("RUN: empty", "predict {run}", "expected JSON", {"run/config.json": ""}, "translate"),
    Bad(
        "RUN: the tokenizer of another",
        "predict {run}",
        "tokenizer.model: expected the file that was saved with these weights, got another",
        {"run/tokenizer.model": lambda: b"another"},
        "translate",
    ),
    Bad(
        "RUN: weights of nothing",
        "predict {run}",
        "whole safetensors",
        {"run/model.safetensors": ""},
        "translate",
    ),
    Bad(
        "RUN: a nested header",
        "predict {run}",
        "deep",
        {"run/model.safetensors": (2 * DEPTH).to_bytes(8, "little") + DEEP.encode()},
        "translate",
    ),
    Bad(
        "evaluate: images",
        "evaluate {run} --data {folder}",
        "for each of two classes or more, got 1",
        of="classify-images",
    ),
    Bad(
        "predict: images",
        "predict {run} --data {folder}/text.txt",
        "text.txt: expected a whole PNG or JPEG image",
        TEXTS,
        "classify-images",
    ),
    Bad(
        "predict: an image as a text",
        "predict {run} --whole --data {folder}/text.txt",
        "--whole: the task 'classify-images' does not read text",
        TEXTS,
        "classify-images",
    ),
    Bad("evaluate: vectors", "evaluate {run} --data {folder}", "has no metrics", of="sentence-vectors"),
    Bad(
        "export: beams of labels",
        "export {run} --out {out} --beam 2",
        "does not generate text",
        of="classify",
    ),
    Bad(
        "export: a folder that is",
        "export {run} --out {run}",
        "is read from there, and not replaced",
        of="classify",
    ),
    Bad(
        "convert: no counterpart",
        "convert {run} --to-huggingface {out}",
        "transformers has no counterpart of the task 'recommend'",
        of="recommend",
    ),
]

PUBLISHED = [
    their_entry("id2label", 5, "id2label: expected labels by their numbers"),
    their_entry("id2label", {"0": "a", "5": "b"}, "id2label: expected labels by their numbers"),
    their_entry("id2label", {"0": "a", "1": 5}, "id2label: expected names of labels"),
    their_entry("problem_type", "nosuch", "problem_type: expected one of single_label_classification"),
    their_entry("pad_token_id", -7, "pad_token_id: expected the id of a token, got -7"),
    their_entry("classifier_dropout", "x", "classifier_dropout: expected a rate in [0, 1), got 'x'"),
    their_entry("hidden_dropout_prob", 2, "hidden_dropout_prob: expected a rate in [0, 1), got 2"),
    their_entry("hidden_size", 10**12, "hidden_size: expected below 2,147,483,648"),
    their_entry("hidden_size", "x", "hidden_size: expected a whole number, got 'x'"),
    their_entry("num_hidden_layers", 10**7, "10000000"),
    their_entry("num_attention_heads", 0, "num_attention_heads: expected at least 1, got 0"),
    their_entry("num_attention_heads", 7, "7"),
    their_entry("architectures", ["Nosuch"], "architectures: expected one of"),
    their_entry("architectures", [{}], "architectures: expected one of"),
    their_entry("model_type", ["bert"], "model_type: expected one of"),
    Bad("theirs: nested", CONVERT, "deep", {"run/config.json": DEEP_OBJECTS}, "bert"),
    Bad("theirs: a nested tokenizer", CONVERT, "deep", {"run/tokenizer.json": DEEP_OBJECTS}, "bert"),
]

FILES = [
    Bad(
        "rows of nested JSON",
        TRANSLATE.replace(".tsv", ".jsonl"),
        "line 2: expected a JSON object: nested",
        {"pairs.jsonl": '{"source": "a", "target": "b"}\n' + DEEP + "\n"},
    ),
    Bad(
        "a cell of nested JSON",
        TRANSLATE.replace(".tsv", ".jsonl"),
        "line 1: expected a JSON object: nested",
        {"pairs.jsonl": '{"target": "b", "source": ' + "[" * 900 + "]" * 900 + "}\n"},
    ),
    twice(
        "translate", "pairs.jsonl", '{"source": "a", "target": "b", "source": "c"}', "line 1: ", "'source'"
    ),
    twice("classify", "text.jsonl", '{"text": "a", "label": "b", "label": "c"}', "line 1: ", "'label'"),
    twice("tag", "words.jsonl", '{"words": ["a"], "tags": ["b"], "tags": ["c"]}', "line 1: ", "'tags'"),
    twice(
        "recommend", "r.jsonl", '{"user": "a", "item": "b", "item": "c", "rating": 1}', "line 1: ", "'item'"
    ),
    twice("forecast", "series.jsonl", '{"value": 1, "value": 2}', "line 1: ", "'value'"),
    twice(
        "choose",
        "c.jsonl",
        '{"text": "a", "text": "b", "choices": ["c", "d"], "label": 0}',
        "line 1: ",
        "'text'",
    ),
    twice("generate", "t.jsonl", '{"text": "a", "text": "b"}', "line 1: ", "'text'"),
    twice("match-images", "m.jsonl", '{"image": "a", "text": "b", "text": "c"}', "line 1: ", "'text'"),
    twice("detect", "o.jsonl", '{"image": "a.png", "boxes": [], "boxes": []}', "line 1: ", "'boxes'"),
    twice("segment", "m.jsonl", '{"image": "a.png", "mask": "b.png", "mask": "c.png"}', "line 1: ", "'mask'"),
    twice(
        "detect", "coco.json", '{"images": [], "images": [], "annotations": []}', "coco.json: ", "'images'"
    ),
    twice(
        "answer",
        "squad.json",
        '{"data": [{"paragraphs": [], "paragraphs": []}]}',
        "squad.json: ",
        "'paragraphs'",
    ),
    config(
        "a key twice",
        '{"dim": 8, "dim": 16}',
        "config.json: dim: expected one entry of this name, got several",
    ),
    Bad("nested questions", ANSWER, "squad.json: expected JSON: nested", {"squad.json": DEEP}),
    Bad(
        "questions of zeros",
        ANSWER.replace(".json", ".json.xz"),
        "squad.json.xz",
        {"squad.json.xz": zeros(lzma.compress)},
    ),
    Bad(
        "zeros in .xz",
        GENERATE.replace(".txt", ".txt.xz"),
        "text.txt.xz, line 1: expected text, got a line over",
        {"text.txt.xz": zeros(lzma.compress)},
    ),
    Bad(
        "zeros in .gz",
        GENERATE.replace(".txt", ".txt.gz"),
        "text.txt.gz, line 1: expected text, got a line over",
        {"text.txt.gz": zeros(gzip.compress)},
    ),
    Bad(
        "a .gz that is cut",
        GENERATE.replace(".txt", ".txt.gz"),
        "expected a whole compressed file",
        {"text.txt.gz": lambda: gzip.compress(b"A text.\n" * 99)[:-9]},
    ),
    Bad("bytes that are no text", GENERATE, "line 1: expected UTF-8, got byte 0xff", {"text.txt": b"\xff\n"}),
    Bad("a folder as a table", TRANSLATE, "pairs.tsv: cannot be read: Is a directory", {"pairs.tsv/a": b""}),
    Bad("a folder without texts", GENERATE, "expected text files, .txt, .txt.gz", {"text.txt/a": b""}),
    Bad("no file", GENERATE, "text.txt: cannot be read: No such file"),
    Bad("columns that are not there", TRANSLATE + " --columns 0,7", "expected column 7", TEXTS),
    Bad("columns without end", TRANSLATE + " --columns 0,1,2", "--columns: expected two", TEXTS),
]

NUMBER, WHOLE = "must be a number", "must be a whole number"
OPTIONS = [
    option("--minutes -1", "must be at least 0"),
    *(option(f"--minutes {text}", NUMBER) for text in ("nan", "inf", "x")),
    option("--minutes 1e7", "must be at most 1,000,000"),
    *(option(f"--save-minutes {text}", "must be above 0") for text in ("-1", "0")),
    option("--save-minutes nan", NUMBER),
    *(option(f"--learning-rate {text}", "must be above 0") for text in ("-1", "0")),
    *(option(f"--learning-rate {text}", NUMBER) for text in ("nan", "inf", "x", "1e400")),
    option("--label-smoothing 2", "must be below 1"),
    option("--label-smoothing 1", "must be below 1"),
    option("--weight-decay -0.1", "must be at least 0"),
    option("--warm-up 0", "must be at least 1"),
    option("--layer-decay 0", "must be above 0", CLASSIFY),
    option("--freeze -1", "must be at least 0", CLASSIFY),
    option("--lora 0", "must be at least 1", CLASSIFY),
    option("--seed -1", "must be at least 0"),
    option(f"--seed {2**32}", "must be below 2,147,483,648"),
    option("--epochs 0", "must be at least 1"),
    option("--epochs 1.5", WHOLE),
    option("--epochs 0x10", WHOLE),
    option("--patience 0", "must be at least 1"),
    option(f"--batch-tokens {10**30}", "must be below 2,147,483,648"),
    option(f"--max-length {10**9}", "must be at most 1,048,576"),
    option("--vocabulary 0", "must be at least 1"),
    option("--batch-size 0", "must be at least 1", IMAGES),
    option("--max-shift -1", "must be at least 0", IMAGES),
    option("--temperature inf", NUMBER, ASK),
    *(option(f"--temperature {text}", "must be above 0", ASK) for text in ("0", "-1")),
    option("--temperature 1001", "must be at most 1,000", ASK),
    option("--top-p 2", "must be at most 1", ASK),
    option("--top-p 0", "must be above 0", ASK),
    option("--top-p nan", NUMBER, ASK),
    option("--min-p 1.1", "must be at most 1", ASK),
    option("--min-p nan", NUMBER, ASK),
    option("--typical-p 0", "must be above 0", ASK),
    option("--typical-p 2", "must be at most 1", ASK),
    option("--length-penalty nan", NUMBER, ASK),
    option("--length-penalty -101", "must be at least -100", ASK),
    option("--contrastive-alpha 2", "must be at most 1", ASK),
    option("--beam 0", "must be at least 1", ASK),
    option(f"--beam {10**9}", "must be at most 1,000", "export RUN --out DIR"),
    option("--top-k -1", "must be at least 1", "evaluate RUN --data FILE"),
    option("--max-new-tokens 0", "must be at least 1", ASK),
    option("--batch-size 0", "must be at least 1", ASK),
    option("--scheduled-sampling 2", "must be at most 1"),
    option("--clip-norm 0", "must be above 0"),
    option("--grace 0", "must be at least 1", "launch --workers 2"),
    option("--workers 1001", "must be at most 1,000", "launch"),
    Bad("a schedule", f"{TRANSLATE} --schedule nosuch", "invalid choice: 'nosuch'"),
    Bad("a precision", f"{TRANSLATE} --precision float16", "invalid choice: 'float16'"),
    Bad("no files", "train translate --out {out}", "--data: expected two parallel text files; or"),
    Bad("no folder", "train translate --data {folder}/a.tsv", "the following arguments are required: --out"),
    Bad("an option of others", f"{TRANSLATE} --freeze 2", "unrecognized arguments: --freeze 2"),
    Bad(
        "two ways to go on",
        f"{TRANSLATE} --resume --overwrite",
        "--resume continues the run that --overwrite",
    ),
    Bad(
        "two ways to train less",
        f"{CLASSIFY} --lora 2 --freeze 1",
        "--lora freezes all blocks: leave out --freeze",
    ),
    Bad("nothing to resume", f"{TRANSLATE} --resume", "out: there is no such folder", TEXTS),
    Bad(
        "a start of nothing",
        f"{TRANSLATE} --from {{folder}}",
        "a folder of Hugging Face's or a hub id; ",
        TEXTS,
    ),
    Bad(
        "a start that is not there",
        f"{TRANSLATE} --from {{folder}}/a",
        "/a: there is no such folder",
        TEXTS,
    ),
    Bad(
        "two models",
        f"{TRANSLATE} --from {{run}} --size tiny",
        "--size: the model of --from cannot be changed",
        TEXTS,
        "translate",
    ),
    Bad(
        "two models by a file",
        f"{TRANSLATE} --from {{run}} --config {{folder}}/pairs.tsv",
        "expected JSON",
        TEXTS,
        "translate",
    ),
    Bad("a family", f"{TRANSLATE} --family nosuch", "no family 'nosuch'; there are transformer"),
    Bad("a tokenizer", f"{TRANSLATE} --tokenizer nosuch", "invalid choice: 'nosuch'"),
    Bad("a size", f"{TRANSLATE} --size nosuch", "Transformer has no size 'nosuch'; it has tiny, small"),
    Bad(
        "a size of others",
        f"{TRANSLATE} --family recurrent --size base",
        "RecurrentSeq2Seq has no size 'base'",
    ),
    Bad(
        "an encoder family",
        f"{CLASSIFY} --family nosuch",
        "There is no family 'nosuch'; there are bert",
    ),
    Bad("a size of an encoder", f"{CLASSIFY} --family recurrent --size base", "Recurrent has no size 'base'"),
    Bad("a series with NaN", FORECAST, "line 3: expected a finite number", {"series.csv": "value\n1\nnan\n"}),
    Bad(
        "a series with underscores",
        FORECAST,
        "line 3: expected a finite number, got '1_0'",
        {"series.csv": "value\n1\n1_0\n"},
    ),
    Bad(
        "a short series",
        FORECAST,
        "--window must be below 2, the values of the series",
        {"series.csv": "value\n1\n2\n"},
    ),
    Bad("two series", f"{FORECAST} --data a.csv b.csv", "expected one file, a series, got 2"),
    Bad("a size of GPT-2", f"{GENERATE} --size nosuch", "GPT2 has no size 'nosuch'"),
    Bad("a size of BERT", f"{CLASSIFY} --size nosuch", "BERT has no size 'nosuch'"),
    Bad("a size for launch", f"launch --workers 2 -- {CLASSIFY} --size nosuch", "BERT has no size"),
    Bad("devices", f"{TRANSLATE} --strategy nosuch", "--strategy must be none, mirrored, mirrored:N"),
    Bad("a number of devices", f"{TRANSLATE} --strategy mirrored:x", "it is mirrored:x"),
]

BAD = [*OPTIONS, *CONFIGS, *FILES, *RUNS, *PUBLISHED]
