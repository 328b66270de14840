"""Numbers that are too large for the model or the data: one line that names the flag, before long work."""

import json

import numpy as np
import PIL.Image
import pytest

from keras_tfm.tasks import TextGenerator
from tests.test_cli import run

TEXT = {"dim": 32, "num_heads": 2, "intermediate_dim": 64, "num_layers": 1}
IMAGE = {**TEXT, "image_size": 16, "patch_size": 8}


def check_refused(arguments, message, capsys):
    assert run(*arguments.split()) == 2
    *said, error = capsys.readouterr().err.splitlines()
    assert message in error and not any(line.startswith("epoch") for line in said)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a small file, or folder, for each task."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "series.csv").write_text("\n".join(map(str, np.sin(np.arange(60) / 5).round(4))))
    answers = {"text": ["Ada"], "answer_start": [0]}
    question = json.dumps({"question": "who sings", "context": "Ada sings", "answers": answers})
    (folder / "questions.jsonl").write_text("\n".join([question] * 12))
    (folder / "texts.tsv").write_text("\n".join(["good film\tpos", "bad film\tneg"] * 6))
    (folder / "pairs.tsv").write_text("\n".join(["one two\t1 2", "two three\t2 3"] * 6))
    for number in range(12):
        path = folder / "images" / ("red", "blue")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(rng.integers(0, 255, (16, 16, 3), "uint8")).save(path)
    rows = [
        {"image": f"images/red/{number}.png", "boxes": [[1, 1, 9, 9]], "labels": ["cat"]}
        for number in range(0, 12, 2)
    ]
    (folder / "boxes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "text.json").write_text(json.dumps(TEXT))
    (folder / "image.json").write_text(json.dumps(IMAGE))
    return folder


ENCODER = "--size tiny --config {data}/text.json --vocabulary 300"
TRAIN = {  # {task: its arguments}
    "forecast": "--data {data}/series.csv",
    "answer": f"--data {{data}}/questions.jsonl {ENCODER} --max-length 64",
    "classify": f"--data {{data}}/texts.tsv {ENCODER} --max-length 16",
    "translate": "--data {data}/pairs.tsv --size tiny --max-length 8",
    "detect": "--data {data}/boxes.jsonl --image-size 64",
    "classify-images": "--data {data}/images --family vit --size tiny --config {data}/image.json",
    "pretrain-images": "--data {data}/images --family vit --size tiny --config {data}/image.json",
}


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("forecast", "--window 60", "--window must be below 60, the values of the series; it is 60."),
        ("forecast", "--window 54", "--window must be below 54: of the 60 values of the series 6 are "),
        ("forecast", "--warm-up 1000", "--warm-up must be at most 1, the steps of all epochs; it is 1,000."),
        ("answer", "--stride 33", "--stride must lie in 1 to 32; it is 33."),
        ("answer", "--max-length 513", "--max-length must be at most the model's, 512; it is 513."),
        ("answer", "--freeze 2", "--freeze must lie in [0, 1]; it is 2"),
        ("classify", "--lora 33", "--lora must be 1 to 32, the smaller side of the largest kernel"),
        ("classify", "--vocabulary 1000000000", "--vocabulary must be at most 1,048,576; it is 1,000,000,"),
        ("translate", "--vocabulary 1000000000", "--vocabulary must be at most 1,048,576; it is"),
        ("detect", "--queries 1000", "--queries must be at most 80, the cells of all levels"),
        ("detect", "--queries 16385", "--queries must be at most 16,384; it is 16385."),
        ("detect", "--family detr --queries 16385", "--queries must be at most 16,384; it is 16385."),
        ("classify-images", "--max-shift 16", "--max-shift must be below 16, the images' side; it is 16."),
        ("pretrain-images", "--method dino --prototypes 2000000", "--prototypes: must be at most 1,048,576"),
        ("pretrain-images", "--method dino --local-crops 65537", "--local-crops: must be at most 65,536"),
        ("pretrain-images", "--decoder-dim 16416", "--decoder-dim: must be at most 16,384; it is 16416"),
    ],
)  # fmt: skip
def test_what_is_too_large_to_train_is_named_by_its_flag(task, options, message, data, tmp_path, capsys):
    arguments = f"train {task} {TRAIN[task]} --out {tmp_path}/run --epochs 1 {options}".format(data=data)
    check_refused(arguments, message, capsys)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """The RUN of an untrained generator with 9 tokens, of which a text may have 16."""
    folder = tmp_path_factory.mktemp("runs") / "generator"
    task = TextGenerator.from_texts(["a b c d"] * 4, "tiny", tokenizer="characters", max_length=16, **TEXT)
    task.save(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--beam 10", "--beam must be at most 9, the vocabulary; it is 10."),
        ("--max-new-tokens 17", "--max-new-tokens must be at most"),
        ("--contrastive-alpha 0.5 --top-k 10", "--top-k must be at most 9, the vocabulary"),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "export"])
def test_what_is_too_large_to_decode_is_named_by_its_flag(
    verb, options, message, generator, tmp_path, capsys
):
    (tmp_path / "lines.txt").write_text("a b\n")
    files = {"predict": f"--data {tmp_path}/lines.txt", "export": f"--out {tmp_path}/out"}
    arguments = f"{verb} {generator} {files[verb]} {options}"
    check_refused(arguments, message, capsys)
