"""Exports in every format answer as the task does, in a process without TensorFlow too."""

import json
import resource
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import layers, serving
from keras_tfm.cli import main
from keras_tfm.data import BERTTokenizer
from keras_tfm.export.description import described, write_around
from keras_tfm.export.needs import NAMES
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.models import BERT, ViT
from keras_tfm.serving import plugins
from keras_tfm.serving.served import inputs_of
from keras_tfm.tasks import ImageClassifier, SentenceEncoder, Task, TextClassifier, TokenClassifier
from keras_tfm.tasks.signatures import Signature
from tests.export.edits import refusals
from tests.fresh_process import run_fresh
from tests.tasks.tiny import TINY

CONVERTED = ("litert", "onnx", "openvino")  # by a converter, which lacks operations and knows 8 bits
FORMATS = CONVERTED
SLOW = pytest.mark.slow
ONE_QUICK = [name if name == "onnx" else pytest.param(name, marks=SLOW) for name in FORMATS]
IN_8_BITS = [name if name == "onnx" else pytest.param(name, marks=SLOW) for name in CONVERTED]
TEXTS = [
    "a warm and funny film",
    "",
    "so bad it hurts, " * 20,
    "Käse 東京 [SEP] no",
    "what a great story",
]
SMALL = {"image_size": 8, "patch_size": 4, "num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(0)
    examples = (
        ["a warm and funny film", "what a great story", "so bad it hurts", "no"] * 4,
        ["+", "+", "-", "-"] * 4,
    )
    return TextClassifier.from_examples(examples, "tiny", 400, changes=TINY, max_length=24, head={})


@pytest.fixture(scope="module")
def images():
    keras.utils.set_random_seed(0)
    return ImageClassifier(ViT.from_size("tiny", **SMALL), ["dark", "light"], interpolation="bicubic")


@pytest.fixture(scope="module")
def exports(classifier, tmp_path_factory):
    """{format: the classifier's folder}."""
    folder = tmp_path_factory.mktemp("exports")
    for name in FORMATS:
        classifier.export(folder / name, format=name)
    return {name: folder / name for name in FORMATS}


@pytest.mark.parametrize(
    ("reads", "example", "packages"),
    [
        ({"kind": "videos"}, np.zeros((8, 64, 64, 3), "uint8"), "numpy onnxruntime pillow av"),
        ({"kind": "pose points"}, np.ones((1200, 2)) / 3, "numpy onnxruntime"),
        ({"kind": "texts", "tokenizer": {"kind": "sentencepiece"}}, "a", "numpy onnxruntime sentencepiece"),
        ({"kind": "prompts", "tokenizer": {"kind": "residues"}}, "MKT", "numpy onnxruntime"),
    ],
)
def test_the_card_s_code_is_python_and_names_what_it_needs(reads, example, packages, tmp_path):
    (tmp_path / "served").mkdir()
    names = {"inputs": ["x"], "outputs": ["y"], "difference": 0.0}
    described = {"task": "a", "format": "onnx", "reads": reads, "answers": {}, **names}
    write_around(tmp_path / "served", described, "onnxruntime", example, "")
    card = (tmp_path / "served" / "README.md").read_text("utf-8")
    assert f"`pip install {packages}`" in card
    compile(card.split("```python")[1].split("```")[0], "card", "exec")
    assert "..." not in card


@pytest.mark.parametrize("kind", ["reader", "answer"])
def test_what_a_plugin_reads_or_answers_names_it(kind, monkeypatch):
    found = {(kind, "mine"): plugins.Plugin(kind, "mine", None, ("a-plugin", "0.1"))}
    monkeypatch.setattr(plugins, "find", lambda *name: found.get(name))
    kinds = {"reader": "texts", "answer": "text"} | {kind: "mine"}
    content = described("a", "ctranslate2", None, *({"kind": x} for x in kinds.values()), decoding={})
    assert content["plugins"] == {"a-plugin": "0.1"} and content["reads"] == {"kind": kinds["reader"]}
    assert "plugins" not in described("a", "onnx", None, {"kind": "texts"}, {"kind": "text"})


@pytest.fixture(scope="module")
def saved_model(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    classifier.export(folder)
    return folder


@pytest.mark.parametrize("name", FORMATS)
def test_texts_are_answered_as_by_the_task(classifier, exports, name):
    served = serving.load(exports[name])
    answers = served(TEXTS * 3)
    np.testing.assert_allclose(
        answers["probabilities"], classifier.predict(TEXTS * 3, probabilities=True), atol=1e-5
    )
    assert answers["label"].tolist() == classifier.predict(TEXTS * 3) and served([]) == {}
    assert answers["labels"].tolist() == [list(classifier.config.labels)] * len(TEXTS) * 3
    np.testing.assert_allclose(served(TEXTS[:1])["probabilities"], answers["probabilities"][:1], atol=1e-6)
    assert served.description["difference"] < 1e-5


@pytest.mark.parametrize("name", FORMATS)
def test_threads_that_share_an_export_get_their_own_answers(exports, name):
    served, texts = serving.load(exports[name], threads=1), TEXTS[::2]
    expected = [served([text])["probabilities"] for text in texts]

    def largest_difference(place):
        """Of 400 answers to one of the texts, which its thread asks for while others ask for theirs."""
        asked = (served([texts[place]])["probabilities"] for _ in range(400))
        return max(np.abs(answer - expected[place]).max() for answer in asked)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(texts)) as pool:
            differences = list(pool.map(largest_difference, range(len(texts))))
    finally:
        sys.setswitchinterval(before)
    np.testing.assert_allclose(differences, 0, atol=1e-6)


def test_a_saved_model_has_the_same_interface(classifier, exports, saved_model):
    served = serving.load(saved_model)
    answers, others = served(TEXTS), serving.load(exports["onnx"])(TEXTS)
    assert answers.keys() == others.keys() == {"label", "labels", "probabilities"}
    assert all(answers[name].tolist() == others[name].tolist() for name in ("label", "labels"))
    np.testing.assert_allclose(answers["probabilities"], others["probabilities"], atol=1e-5)
    assert served([]) == {}
    for answering in (served, serving.load(exports["onnx"])):
        with pytest.raises(ValueError, match="expected a list, got a single one"):
            answering(TEXTS[0])
        with pytest.raises(ValueError, match=r"row 1: expected a .*string.*, got None"):
            answering([TEXTS[0], None])
    with pytest.raises(ValueError, match="`batch_size` must be a whole number of at least 1; it is 0"):
        serving.load(exports["onnx"])(TEXTS, batch_size=0)


def test_the_inputs_of_a_saved_model_follow_its_signature():
    assert inputs_of({"text"}, ["a b", ["a", "b"]]) == {"text": ["a b", "a\tb"]}
    assert inputs_of({"user"}, ["Ada"]) == {"user": ["Ada"]}
    assert inputs_of({"values"}, [[1, 2], [3, 4]])["values"].tolist() == [[1, 2], [3, 4]]
    pairs = [("a", "b"), "c\td"]
    assert inputs_of({"text", "second"}, pairs) == {"text": ("a", "c"), "second": ("b", "d")}
    assert inputs_of({"question", "context"}, pairs) == {"question": ("a", "c"), "context": ("b", "d")}
    asked = [("a", ["b", "c"]), "d\te\tf"]
    assert inputs_of({"text", "choices"}, asked) == {"text": ("a", "d"), "choices": (["b", "c"], ["e", "f"])}


IMAGE = np.zeros((2, 2, 3), "uint8")
ARRAYS = {"images": tf.TensorSpec([None, 2, 2, 3])}
FILES = {"image_bytes": tf.TensorSpec([None], "string")}


@pytest.mark.parametrize(
    ("names", "right", "wrong", "message"),
    [
        ({"text"}, "a", 5, "expected a list of strings, got 5"),
        ({"text"}, "a", ["a", 5], "expected a list of strings, got list of 2"),
        ({"text", "second"}, ("a", "b"), "a", "expected a pair of texts: .* got 'a'"),
        ({"question", "context"}, ("a", "b"), None, "expected a pair of texts: .* got None"),
        ({"text", "choices"}, "d\te\tf", ("a", ["b"]), "expected two choices or more, got 1"),
        ({"text", "choices"}, "d\te\tf", 5, "expected .text, choices., .* got 5"),
        (ARRAYS, IMAGE, IMAGE.astype("int64") + 255, "of uint8 from 0 to 255, or .* got int64 from 255"),
        (ARRAYS, IMAGE, IMAGE + 200.0, "or of floats from 0 to 1, got float64 from 200"),
        (ARRAYS, IMAGE, None, "expected an image, an array or a file's path or bytes, got None"),
        (FILES, tf.io.encode_png(IMAGE).numpy(), 5, "expected the path or the bytes of an image file, got 5"),
    ],
)  # fmt: skip
def test_wrong_inputs_of_a_saved_model_are_refused_by_their_row(names, right, wrong, message):
    with pytest.raises(ValueError, match=f"^row 1: .*{message}"):
        inputs_of(names, [right, wrong])


@pytest.mark.parametrize("name", IN_8_BITS)
def test_eight_bits_are_smaller_and_close(classifier, exports, name, tmp_path, caplog):
    with caplog.at_level("INFO", "keras_tfm"):
        classifier.export(tmp_path / "small", format=name, quantization="int8")
    served = serving.load(tmp_path / "small")
    assert served.description["quantization"] == "int8" and 0 < served.description["difference"] < 0.05
    assert f"{name}: int8, root mean square" in caplog.text
    found = served(TEXTS)["probabilities"]
    assert 0 < np.abs(found - classifier.predict(TEXTS, probabilities=True)).max() < 0.02
    sizes = [
        sum(path.stat().st_size for path in folder.glob("model.*"))
        for folder in (tmp_path / "small", exports[name])
    ]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("name", ONE_QUICK)
def test_images_are_answered_as_by_the_task(images, name, tmp_path):
    images.export(tmp_path / "served", format=name)
    served = serving.load(tmp_path / "served")
    pictures = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), "uint8")
    for given in (pictures, (pictures / 255).astype("float32")):
        found = served(list(given))
        np.testing.assert_allclose(found["probabilities"], images.probabilities(given), atol=1e-5)
        assert found["label"].tolist() == images.predict(given).tolist()


@pytest.mark.parametrize("name", IN_8_BITS)
def test_images_in_eight_bits_are_answered_nearly_so(images, name, tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), "uint8")
    images.export(tmp_path / "small", format=name, quantization="int8")
    found = serving.load(tmp_path / "small")(list(pictures))
    np.testing.assert_allclose(found["probabilities"], images.probabilities(pictures), atol=0.02)


@pytest.mark.slow
def test_image_files_are_resized_as_by_the_task(images, tmp_path):
    """Pillow and TensorFlow differ by a grey level, in few pixels."""
    options = {
        "mean": (0.4, 0.5, 0.6),
        "crop_fraction": 0.8,
        "keep_aspect": True,
        "interpolation": "bilinear",
    }
    task = ImageClassifier(images.model, ["dark", "light"], **options)
    task.export(tmp_path / "served", format="onnx")
    served = serving.load(tmp_path / "served")
    generator = np.random.default_rng(0)
    pictures = [
        generator.integers(0, 256, (*size, 3), "uint8") for size in ((30, 20), (9, 50), (1, 1), (8, 8))
    ]
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    files += [tf.io.encode_png(generator.integers(0, 2**16, (12, 9, 1), "uint16")).numpy()]
    read = served.read(files)["images"] * 255
    expected = [task.preprocessing.decoded(tf.constant(data), 8, 8, 3).numpy() for data in files]
    off = np.abs(read - np.stack(expected))
    assert off[:4].max() < 1.01 and (off[:4] > 0.5).mean() < 0.05 and off.max() < 2.01  # 16 bits by two
    (tmp_path / "one.png").write_bytes(files[0])
    np.testing.assert_array_equal(served.read([tmp_path / "one.png"])["images"], read[:1] / 255)
    with pytest.raises(ValueError, match="row 1: expected a whole PNG or JPEG image"):
        served([files[0], files[1][:40]])


@pytest.mark.slow
def test_pairs_tags_and_vectors(classifier, tmp_path):
    tokenizer, backbone = classifier.tokenizer, classifier.model.backbone
    pairs = [("a warm film", "no"), ("what a great story " * 9, "so bad"), ("no", "it hurts " * 30)]
    task = TextClassifier.from_backbone(backbone, tokenizer, (pairs, ["1", "2", "3"]), max_length=20)
    task.export(tmp_path / "pairs", format="onnx")
    found = serving.load(tmp_path / "pairs")(pairs)
    np.testing.assert_allclose(found["probabilities"], task.predict(pairs, probabilities=True), atol=1e-5)

    words = [["a", "warm", "\x01", "film"], ["it", "hurts"] * 20, []]
    examples = [["a", "film", "."]], [["O", "X", "O"]]
    words += ["a warm film...", " . film. "]
    tagger = TokenClassifier.from_backbone(backbone, tokenizer, examples, max_length=20)
    tagger.export(tmp_path / "tags", format="onnx")
    found = serving.load(tmp_path / "tags")(words)
    assert found["tags"].tolist() == [" ".join(tags) for tags in tagger.predict(words)]

    encoder = SentenceEncoder(backbone, tokenizer)
    encoder.export(tmp_path / "vectors", format="onnx")
    np.testing.assert_allclose(
        serving.load(tmp_path / "vectors")(TEXTS)["vector"], encoder.predict(TEXTS), atol=1e-5
    )


ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from serving import load
for folder in sys.argv[1:]:
    print(json.dumps(load(folder)(["a warm and funny film", "no"])["probabilities"].tolist()))
"""


def test_a_folder_answers_alone(classifier, exports):
    """Where neither TensorFlow nor Keras nor this package can be imported."""
    blocked = ("tensorflow", "keras", "keras_tfm", "tf2onnx")
    done = run_fresh(ASK, *exports.values(), blocked=blocked)
    assert done.returncode == 0, done.stderr
    expected = classifier.predict(["a warm and funny film", "no"], probabilities=True)
    for line in done.stdout.splitlines():
        np.testing.assert_allclose(json.loads(line), expected, atol=1e-5)
    package = "from keras_tfm.serving import load\nimport sys\nload(sys.argv[1])(['no'])"
    done = run_fresh(package, exports["onnx"], blocked=("tensorflow", "keras"))
    assert done.returncode == 0, done.stderr


# What is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"format": "pickle"},
            f"`format` must be one of {', '.join(NAMES)}; it is 'pickle'",
        ),
        (
            {"format": "onnx", "quantization": "int4"},
            "`quantization` must be None or one of int8; it is 'int4'",
        ),
        ({"quantization": "int8"}, "a SavedModel has none"),
    ],
)
def test_unknown_formats(classifier, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        classifier.export(tmp_path / "served", **options)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(classifier, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r'tf2onnx: pip install "keras-tfm\[onnx\]"'):
        classifier.export(tmp_path / "served", format="onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_runtime_is_named(exports, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="This folder needs tokenizers: pip install tokenizers"):
        serving.load(exports["onnx"])


class Numbers(Task):
    """A task that is one function of numbers."""

    def __init__(self, function):
        self.name, self.function = "numbers", function

    def signature(self):
        return Signature(
            reads={
                "kind": "images",
                "shape": (16, 16, 1),
                "interpolation": "bilinear",
                "crop_fraction": 1.0,
                "keep_aspect": False,
            },
            function=lambda inputs: {"y": self.function(inputs["images"])},
            inputs={"images": tf.TensorSpec([None, 16, 16, 1], tf.float32)},
            answers={"kind": "arrays"},
            write_files=lambda folder: None,
            examples=list(np.random.default_rng(0).random((4, 16, 16, 1), "float32")),
        )


@pytest.mark.parametrize("name", CONVERTED)
def test_an_operation_that_a_format_lacks(tmp_path, name):
    task = Numbers(lambda x: tf.linalg.qr(x[..., 0])[1])
    with pytest.raises(ValueError, match=f"{name}.*(?i:qr)"):
        task.export(tmp_path / "served", format=name)
    assert not list(tmp_path.iterdir())


def test_answers_that_differ_too_much(tmp_path):
    """Eight bits of two nearly equal products leave nothing of their difference."""
    kernel = np.random.default_rng(0).standard_normal((256, 64)).astype("float32")
    other = kernel + np.random.default_rng(1).standard_normal((256, 64)).astype("float32") * 3e-2

    def function(x):
        x = tf.reshape(x, [-1, 256])
        return x @ kernel - x @ other

    Numbers(function).export(tmp_path / "whole", format="onnx")
    with pytest.raises(ValueError, match="onnx: its answers differ from the task's by"):
        Numbers(function).export(tmp_path / "small", format="onnx", quantization="int8")
    assert not (tmp_path / "small").exists()
    with pytest.raises(ValueError, match="by nan"):
        Numbers(lambda x: tf.math.log(x - 2)).export(tmp_path / "nan", format="onnx")


def test_tasks_and_tokenizers_that_no_format_carries(tmp_path):
    tokenizer = BERTTokenizer.train(["a film"], 300)
    task = Numbers(None)
    task.signature = lambda: Task.signature(task)
    with pytest.raises(ValueError, match="The task 'numbers' is exported as a SavedModel alone"):
        task.export(tmp_path / "served", format="onnx")
    backbone = BERT.from_size("tiny", **TINY, vocabulary_size=tokenizer.vocabulary_size)
    encoder = SentenceEncoder(backbone, tokenizer)
    encoder.tokenizer = keras.utils  # anything else
    with pytest.raises(ValueError, match="A module reads texts in graphs alone"):
        encoder.export(tmp_path / "served", format="onnx")


def test_sizes_beyond_the_exported(exports):
    served = serving.load(exports["litert"])
    inputs = served.read(TEXTS[:1])
    with pytest.raises(ValueError, match="takes 1 rows at most, it was given 2"):
        served.run({name: np.repeat(x, 2, axis=0) for name, x in inputs.items()})
    with pytest.raises(ValueError, match=r"takes inputs of .*\(1, 24\).*, got \(1, 40\)"):
        served.run({name: np.resize(x, (1, 40)) for name, x in inputs.items()})


def test_other_folders(exports, tmp_path):
    with pytest.raises(
        ValueError, match=r"expected an exported folder, with serving\.json or saved_model\.pb"
    ):
        serving.load(tmp_path)
    content = json.loads((exports["onnx"] / "serving.json").read_text())
    for changed, message in (
        ({**content, "layout": 9}, f"expected layout {serving.LAYOUT}, got 9"),
        ({}, "the file is damaged"),
        ({"layout": serving.LAYOUT}, r"serving\.json: reads: expected an object, got None"),
    ):
        (tmp_path / "serving.json").write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            serving.load(tmp_path)


SPOILT = {
    "litert": "model.tflite",
    "onnx": "model.onnx",
    "openvino": "model.bin",
    "saved_model": "variables/variables.data-00000-of-00001",
}


@pytest.mark.parametrize("name", SPOILT)
def test_files_that_have_changed_are_refused(exports, saved_model, name, tmp_path, capsys):
    """Ten bytes of the weights were changed after they were written; a tokenizer is gone."""
    shutil.copytree((exports | {"saved_model": saved_model})[name], folder := tmp_path / "served")
    (folder / "README.md").write_text("a card of one's own")
    path = folder / SPOILT[name]
    content = bytearray(path.read_bytes())
    whole, place = bytes(content), len(content) // 2
    content[place : place + 10] = bytes(byte ^ 255 for byte in content[place : place + 10])
    path.write_bytes(content)
    message = f"{SPOILT[name]}: expected the file as it was exported, it has changed since"
    with pytest.raises(ValueError, match=message):
        serving.load(folder)
    with pytest.raises(SystemExit):
        main(["info", str(folder)])
    assert message in capsys.readouterr().err
    path.write_bytes(whole)
    main(["info", str(folder), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["task"], told["format"]) == ("classify", name) and told["files"] >= 2
    gone = next(file for file in folder.rglob("*") if file.name in ("tokenizer.json", "fingerprint.pb"))
    gone.unlink()
    with pytest.raises(ValueError, match=f"expected the file '{gone.name}', as it was exported, got none"):
        serving.load(folder)
    assert serving.describe(folder, check=False)["format"] == name


@pytest.mark.parametrize(
    "kind",
    ["texts", "questions", "images"]
    + [pytest.param(kind, marks=pytest.mark.slow) for kind in ("words", "blanks", "choices")],
)
def test_whatever_a_description_says_is_obeyed_or_refused(kind, classifier, exports, images, tmp_path):
    """No edit of an entry, wherever it stands, ends in another error than a ValueError."""
    folder = tmp_path / "served"
    shutil.copytree(exports["onnx"], folder)
    (folder / "symbols.json").write_text(json.dumps(["a", "b"]))
    content = json.loads((folder / "serving.json").read_text())
    reads = {name: x for name, x in content["reads"].items() if name not in ("kind", "pairs")}
    tags = {"kind": "tags", "labels": ["A", "B"], "outside": "O"}
    filled, span = {"kind": "filled", "blank": "[MASK]"}, {"kind": "span", "longest": 3, "threshold": None}
    sizes = {"shape": [8, 8, 3], "interpolation": "bilinear", "crop_fraction": 0.9, "keep_aspect": True}
    own = {
        "texts": ({**reads, "pairs": False}, content["answers"], ["a film"]),
        "words": ({**reads, "unknown": 1, "before": ""}, tags, ["a film"]),
        "blanks": ({**reads, "blank": 4, "most": 2}, filled, ["a [MASK] film"]),
        "choices": ({**reads, "pairs": True}, {"kind": "choice"}, [("a", ["b", "c"])]),
        "questions": ({**reads, "stride": 4}, span, [("a", "b c")]),
        "images": (sizes, {"kind": "arrays"}, [np.zeros((9, 12, 3), "uint8")]),
    }
    reads, answers, examples = own[kind]
    content |= {"reads": {"kind": kind, **reads}, "answers": answers, "files": {}}

    def ask(served):
        served.read(examples)
        if kind == "texts":
            served(examples)

    assert refusals(folder, content, ask) > 100


def test_folders_are_replaced_and_foreign_files_are_not(classifier, exports, tmp_path):
    shutil.copytree(exports["openvino"], tmp_path / "served")
    with pytest.raises(FileExistsError):
        classifier.export(tmp_path / "served", format="openvino")
    (tmp_path / "served" / "mine.txt").write_text("x")
    with pytest.raises(FileExistsError, match=r"mine\.txt"):
        classifier.export(tmp_path / "served", True, format="onnx")
    assert (tmp_path / "served" / "model.xml").exists()
    (tmp_path / "served" / "mine.txt").unlink()
    classifier.export(tmp_path / "served", True, format="onnx")
    assert not (tmp_path / "served" / "model.xml").exists()


@pytest.mark.parametrize("name", ONE_QUICK)
def test_a_full_disk(classifier, tmp_path, name):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises((OSError, ValueError)):
            classifier.export(tmp_path / "served", format=name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


# What makes onnxruntime quick ----------------------------------------------------------------------------


def test_onnxruntime_gets_products_that_it_need_not_copy(tmp_path):
    """Queries, keys and values are products of their own with their biases; a sum before a norm stays one;
    GELU divides before the error function.
    """
    import onnx

    rng = np.random.default_rng(0)
    attend, norm = layers.MultiHeadAttention(2), keras.layers.LayerNormalization()
    for layer in (attend, norm):
        layer.build((None, 16, 16))
        for weight in layer.weights:  # biases too, which are zeros otherwise
            weight.assign(rng.normal(size=weight.shape))
    gelu = activation_of("gelu")
    Numbers(lambda x: gelu(norm(x[..., 0] + attend(x[..., 0])))).export(tmp_path / "served", format="onnx")
    graph = onnx.load(tmp_path / "served" / "model.onnx").graph
    makers = {name: node for node in graph.node for name in node.output}

    def before(kind):
        """What makes the first input of each node of that kind, and what makes the first input of that."""
        found = [makers.get(node.input[0]) for node in graph.node if node.op_type == kind]
        pairs = [(node, makers.get(node.input[0])) for node in found if node is not None]
        return [(node.op_type, other.op_type if other is not None else None) for node, other in pairs]

    assert not before("Split")
    assert [kind for kind, _ in before("Erf")] == ["Div"]
    assert before("Reshape").count(("Add", "MatMul")) == 3
    assert [kind for kind, _ in before("ReduceMean")].count("Sum") == 1


def test_numbers_next_to_zero_are_lost_within_a_call_alone(exports):
    """Processors are slow at them, and the weights of masked keys are such numbers."""
    from keras_tfm.serving.runtimes import _math_library, _without_denormals

    serving.load(exports["onnx"])(TEXTS)
    tiny, one = np.array([1e-39], "float32"), np.array([1.0], "float32")
    assert (tiny * one)[0] > 0
    with _without_denormals():
        within = (tiny * one)[0]
    assert (within == 0) == (_math_library() is not None)
    assert (tiny * one)[0] > 0
