"""What all tasks promise: plain numbers, an answer or a reason for every row, files as for training."""

import copy
import dataclasses
import functools
import inspect
import json
import logging
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import asking, tasks
from keras_tfm.cli import main
from keras_tfm.data import Answer, BERTTokenizer, CLIPTokenizer, DataError, Layout, train_tokenizer
from keras_tfm.heads import FoldingHead
from keras_tfm.models import (
    BERT,
    DETR,
    LSTR,
    MDSR,
    STTN,
    VQGAN,
    ConvTransformer,
    DETRConfig,
    DiT,
    ESM2Config,
    ESMFold,
    ESMFoldConfig,
    FoldingTrunkConfig,
    MaskFormer,
    MaskFormerConfig,
    MiT,
    MiTConfig,
    RelTR,
    RelTRConfig,
    TransT,
    TransTConfig,
    VideoMAE,
    VisTR,
    VisTRConfig,
)
from keras_tfm.tasks import task as base
from keras_tfm.tasks.segmentation.config import RATE_OF_SETS
from keras_tfm.word_vectors import TfIdf
from tests.data.sources.parts import parts
from tests.tasks.image_text.test_captioner import fresh as fresh_captioner
from tests.tasks.image_text.test_matcher import SENTENCES, drawn, fresh
from tests.tasks.tiny import TINY

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "where", "who", "is"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
PAIRS = (["the cat", "the dog"], ["le chat", "le chien"])
SMALL = {"num_layers": 1, "dim": 32, "num_heads": 2}
CONTEXT = "the cat sat on the mat"


def encoder(task, examples=None, **options):
    bert = BERT.from_size("tiny", **TINY, vocabulary_size=len(PIECES), max_length=32, pooler=True)
    tokenizer = BERTTokenizer(PIECES)
    if examples is None:
        return task(bert, tokenizer, task.config_class(max_length=16, **options))
    return task.from_backbone(bert, tokenizer, examples, **options)


def images():
    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1}
    return tasks.ImageClassifier.from_size("tiny", ["a", "b"], num_layers=1, dim=16, num_heads=2, **sizes)


def videos():
    sizes = {"num_frames": 4, "image_size": 8, "tubelet_size": (2, 4, 4), "num_channels": 1}
    model = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
    return tasks.VideoClassifier.from_size("tiny", ["a", "b"], **sizes, **model)


def matcher():
    sizes = {"image_size": (16, 8), "patch_size": 8, "stride": 8, "num_parts": 0}
    model = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
    return tasks.IdentityMatcher.from_size("tiny", ["a", "b"], **sizes, **model)


def lanes():
    backbone = {"stem_dim": 8, "dims": (8,), "depths": (1,), "block": "basic"}
    model = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 8, "num_queries": 3}
    model |= {"image_size": (16, 16), "num_channels": 1, "backbone_config": backbone}
    return tasks.LaneFinder(LSTR.from_size("tiny", **model), heights=[0.5, 0.75, 1.0])


def clouds():
    sizes = {"num_points": 8, "counts": (4,), "num_neighbours": 2}
    model = {"dim": 4, "num_layers": 1, "fused_dim": 8, "head_dims": (8,)}
    return tasks.PointClassifier.from_size("tiny", ["a", "b"], **sizes, **model)


def poses():
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
    return tasks.PoseEstimator.from_poses(POSED, changes=sizes, joint_names=["a", "b", "c"])


def video_pretrainer():
    sizes = {"num_frames": 4, "image_size": 8, "patch_size": 4, "num_channels": 1}
    model = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
    own = tasks.VideoPretrainerConfig(mask_ratio=0.5, decoder_layers=1, decoder_dim=32)
    return tasks.VideoPretrainer(VideoMAE.from_size("B/16", **sizes, **model), own)


def pretrainer():
    config = tasks.ImagePretrainerConfig(method="dino", num_prototypes=8, head_dim=8, bottleneck_dim=4)
    return tasks.ImagePretrainer(images().model.backbone, config)


def generator():
    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_classes": 2}
    model = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
    backbone = DiT.from_size("tiny", **sizes, **model)
    return tasks.ImageGenerator(backbone, class_names=["the cat", "the dog"], steps=2)


def restorer():
    model = MDSR.from_size("tiny", tasks=["x2"], scales=[2], num_layers=1, num_features=4, mean=[0.5])
    return tasks.ImageRestorer(model, restore="x2", crop=8)


def coder():
    sizes = {"image_size": 8, "dim": 4, "factors": [1, 1], "attends": [False, False], "num_groups": 2}
    model = VQGAN.from_size("tiny", **sizes, num_channels=1, latent_dim=4, code_dim=4, num_codes=8)
    return tasks.ImageCoder(model)


FRAMES = {"image_size": 16, "num_frames": 3, "num_channels": 1, "num_layers": 1}


def predictor():
    return tasks.FramePredictor(ConvTransformer.from_size("base", **FRAMES, dim=4, num_heads=2))


def inpainter():
    widths = {"encoder_dims": [4, 4, 4, 4], "decoder_dims": [4, 4, 4], "patch_sizes": [[2, 2]]}
    return tasks.VideoInpainter(STTN.from_size("base", **FRAMES, **widths, num_hints=7))


def folder():
    sizes = {"num_layers": 1, "num_structure_layers": 1, "dim": 8, "head_dim": 4, "pair_dim": 6}
    sizes |= {"pair_head_dim": 3, "structure_dim": 6, "structure_pair_dim": 4, "num_structure_heads": 2}
    config = ESMFoldConfig(ESM2Config(33, 1, 8, 2, 8), FoldingTrunkConfig(**sizes, angle_dim=5))
    model = FoldingHead(ESMFold(config), confidence_dim=4)
    return tasks.ProteinFolder(model, tasks.ProteinFolderConfig(max_length=8, num_recycles=1))


def video_segmenter():
    network = {"stem_dim": 4, "dims": [8], "depths": [1], "block": "basic"}
    sizes = {"num_frames": 2, "num_queries": 4, "dim": 12, "num_heads": 4, "intermediate_dim": 8}
    config = VisTRConfig(16, 1, "ResNet", network, num_layers=1, **sizes)
    return tasks.VideoSegmenter(VisTR(config), ["x", "y"])


def tracker():
    network = {"stem_dim": 4, "dims": [8], "depths": [1], "block": "basic"}
    sizes = {"template_size": 8, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
    return tasks.Tracker(TransT(TransTConfig(16, 1, "ResNet", network, **sizes)))


def detector():
    network = {"stem_dim": 4, "dims": [8], "depths": [1], "block": "basic"}
    sizes = {"num_queries": 2, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
    return tasks.Detector(DETR(DETRConfig(16, 1, "ResNet", network, **sizes)), ["x", "y"])


def relater():
    network = {"stem_dim": 4, "dims": [8], "depths": [1], "block": "basic"}
    sizes = {"num_queries": 2, "num_triplets": 2, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
    config = RelTRConfig(16, 1, "ResNet", network, **sizes, num_layers=1, num_decoder_layers=1)
    return tasks.SceneGraphGenerator(RelTR(config), ["x", "y"], ["on", "by"])


def segmenter():
    sizes = {"dims": (4,), "depths": (1,), "num_heads": (1,), "patch_sizes": (3,), "strides": (2,)}
    config = MiTConfig(8, 1, **sizes, reductions=(1,), mlp_ratios=(2,))
    return tasks.Segmenter(MiT(config), ["x", "y"])


def of_segments(kind):
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8, "num_queries": 2}
    network = {"stem_dim": 4, "dims": [8], "depths": [1], "block": "basic"}
    config = MaskFormerConfig(16, 1, "ResNet", network, **sizes, pyramid_dim=32, mask_dim=4)
    return tasks.Segmenter(MaskFormer(config), ["x", "y"], segments=kind)


MASKS = [np.eye(16, dtype="bool")[None], np.zeros((0, 16, 16), "bool")]
RELATED = [[[2, 2, 8, 8], [9, 9, 12, 12]], []], [["x", "y"], []], [[(0, "on", 1)], []]
POSED = np.eye(3)[None].repeat(4, 0)[..., :2], np.eye(3)[None] * np.arange(1, 5.0)[:, None, None]
LABELLED = ["the cat", "the dog"], ["x", "y"]
SEVERAL = LABELLED[0], [["x"], ["x", "y"]]
TWO = [("the cat", "sat"), ("the dog", "ran")], ["x", "y"]
TAGGED = [["the", "cat"], ["dog"]], [["O", "B-X"], ["B-X"]]
RATED = ["a", "b", "a"], ["x", "x", "y"], [1.0, 5.0, 3.0]
ASKED = ["who sat?", "where is the mat?"], [CONTEXT] * 2, [[Answer("cat", 4)], [Answer("the mat", 15)]]
CHOSEN = ["who sat", "who ran"], [["cat", "mat"], ["dog", "mat"]], [0, 0]
# {name: (the task, what `evaluate` takes)}
MAKERS = {
    "translate": (
        lambda: tasks.Translator.from_pairs(PAIRS, size="tiny", max_length=16, **SMALL, intermediate_dim=32),
        PAIRS,
    ),
    "summarize": (
        lambda: tasks.Summarizer.from_pairs(PAIRS, "gpt2", "tiny", max_length=16, **SMALL), PAIRS
    ),
    "generate": (
        lambda: tasks.TextGenerator.from_texts(
            ["the cat"], tokenizer="characters", max_length=16, **SMALL
        ),
        ["the cat"],
    ),
    "masked-lm": (lambda: encoder(tasks.MaskedLanguageModel, pairs="none"), ["the cat.\nThe dog."] * 3),
    "classify": (lambda: encoder(tasks.TextClassifier, LABELLED, max_length=16), LABELLED),
    "several": (
        lambda: encoder(tasks.TextClassifier, SEVERAL, max_length=16, problem="multi-label"),
        SEVERAL,
    ),
    "number": (
        lambda: encoder(tasks.TextClassifier, (LABELLED[0], [0.5, 1.0]), max_length=16, problem="regression"),
        (LABELLED[0], [0.5, 1.0]),
    ),
    "pairs": (lambda: encoder(tasks.TextClassifier, TWO, max_length=16), TWO),
    "tag": (lambda: encoder(tasks.TokenClassifier, TAGGED, max_length=16), TAGGED),
    "answer": (lambda: encoder(tasks.QuestionAnswerer, ASKED, max_length=16), ASKED),
    "choose": (lambda: encoder(tasks.ChoiceAnswerer, CHOSEN, max_length=16), CHOSEN),
    "sentence-vectors": (lambda: encoder(tasks.SentenceEncoder), None),
    "fold": (folder, None),
    "classify-images": (images, (np.zeros((2, 8, 8), "uint8"), ["a", "b"])),
    "classify-videos": (videos, (np.zeros((2, 5, 8, 8), "uint8"), ["a", "b"])),
    "reidentify": (matcher, (np.zeros((2, 16, 8, 3), "uint8"), ["a", "a"], [1, 2])),
    "classify-points": (clouds, (np.eye(9, 3)[None].repeat(2, 0), ["a", "b"])),
    "keypoints": (poses, POSED),
    "pretrain-images": (pretrainer, (np.eye(8, dtype="uint8")[None].repeat(10, 0), ["a", "b"] * 5)),
    "pretrain-videos": (video_pretrainer, (np.zeros((10, 5, 8, 8), "uint8"), ["a", "b"] * 5)),
    "track": (tracker, (np.zeros((2, 3, 16, 16), "uint8"), [[[1, 1, 2, 2, 8, 8]]] * 2)),
    "detect": (detector, (np.zeros((2, 16, 16), "uint8"), [[[2, 2, 8, 8]], []], [["x"], []])),
    "find-lanes": (lanes, (np.zeros((2, 16, 16), "uint8"), [[8, 16]] * 2, [[[4, 8]], []])),
    "relate": (relater, (np.zeros((2, 16, 16), "uint8"), *RELATED)),
    "segment": (segmenter, (np.zeros((2, 8, 8), "uint8"), np.zeros((2, 8, 8), "uint8"))),
    "instances": (lambda: of_segments("instances"), (np.zeros((2, 16, 16), "uint8"), MASKS, [["x"], []])),
    "panoptic": (lambda: of_segments("panoptic"), (np.zeros((2, 16, 16), "uint8"), MASKS, [["x"], []])),
    "generate-images": (generator, (np.zeros((2, 8, 8), "uint8"), LABELLED[0])),
    "restore-images": (restorer, np.zeros((2, 16, 16), "uint8")),
    "image-codes": (coder, np.zeros((2, 8, 8), "uint8")),
    "segment-videos": (
        video_segmenter,
        (np.zeros((2, 3, 16, 16), "uint8"), [MASKS[0][:, None].repeat(3, 1)] * 2, [["x"]] * 2),
    ),
    "predict-frames": (predictor, np.zeros((2, 5, 16, 16), "uint8")),
    "inpaint-videos": (inpainter, np.zeros((2, 5, 16, 16), "uint8")),
    "match-images": (fresh, drawn(SENTENCES[:6])),
    "caption": (fresh_captioner, drawn(SENTENCES[:6])),
    "recommend": (lambda: tasks.Recommender.from_ratings(RATED, dim=2), RATED),
}  # fmt: skip


@functools.cache
def made(name):
    """The task of a name in MAKERS, with fresh weights."""
    keras.utils.set_random_seed(0)
    return MAKERS[name][0]()


@pytest.mark.parametrize("method", ["predict", "records"])
@pytest.mark.parametrize("name", asking.ASKED)
def test_what_is_asked_for_comes_first_and_how_by_keyword(name, method):
    """So that `predict(images, 32)` cannot mean something else in each task."""
    first, *others = list(inspect.signature(getattr(base.task_called(name), method)).parameters.values())[1:]
    assert first.kind is first.POSITIONAL_ONLY
    assert {other.kind for other in others} <= {first.KEYWORD_ONLY, first.VAR_KEYWORD, first.VAR_POSITIONAL}


@pytest.mark.parametrize("name", [name for name, (_, examples) in MAKERS.items() if examples is not None])
def test_measures_are_plain_numbers_and_strings(name):
    task, examples = made(name), MAKERS[name][1]
    measures = task.evaluate(examples)
    assert measures and {type(value) for value in measures.values()} <= {int, float, str}
    json.dumps(measures, allow_nan=False)


@pytest.fixture
def said():
    """What TensorFlow logs, but for retracing: it counts the traces of a function by its address, which one
    that earlier tests left to the collector of garbage may have had.
    """
    lines = []
    handler = logging.Handler()
    handler.addFilter(lambda record: "triggered tf.function retracing" not in record.getMessage())
    handler.emit = lambda record: lines.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    yield lines
    tf.get_logger().removeHandler(handler)


# Rows that `predict` answers, and between them one that it cannot.
LONG = "the " * 20
RIGHT = {
    "translate": ["the cat", ""],
    "summarize": ["the cat", ""],
    "generate": ["the", "cat"],
    "masked-lm": ["the [MASK]", ""],
    "classify": ["the cat", ""],
    "pairs": ["the cat\tsat", ("the dog", "ran")],
    "tag": ["the cat", ""],
    "answer": [f"who sat\t{CONTEXT}", ("where", "")],
    "choose": ["who sat\tcat\tmat", ("who ran", ["dog", "cat", "mat"])],
    "sentence-vectors": ["the cat", ""],
    "fold": ["MK", "W"],
    "generate-images": ["the cat", "the dog"],
    "recommend": ["a", "b"],
}
WRONG = {
    "fold": {
        "mk": "a row of upper-case letters, got 'm'",
        "": "an empty text",
        "A" * 9: "at most 8 residues, got 9",
    },
    "generate": {
        "": "an empty text",
        "the " * 9: "room for a new one among the model's 16 tokens, got one of 36",
    },
    "classify": {("the cat", "sat"): "expected a string, got tuple of 2"},
    "pairs": {"the cat": "expected a pair of texts", "a\tb\tc": "expected a pair of texts"},
    "answer": {
        "who": "expected a question and a context",
        f"{LONG}\tthe": "expected at most 8 tokens of a question, .* got 20",
    },
    "generate-images": {"a cat": "expected one of the classes the cat, the dog, got 'a cat'"},
    "recommend": {"nobody": "the training had no ratings by 'nobody'"},
    "choose": {"who\tcat": "expected two choices or more, got 1", "": "expected two choices or more, got 0"},
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_row_is_answered_or_refused_by_its_number(name, said):
    task, (first, last) = made(name), RIGHT[name]
    answers = task.predict([first, last])
    assert len(answers) == 2 and not task.refusals([first, last])
    assert all("\n" not in task.as_line(answer) for answer in answers)
    assert not said  # of deprecated arguments, for example
    for wrong, reason in WRONG.get(name, {}).items():
        assert list(task.refusals([first, wrong, last])) == [1]
        with pytest.raises(ValueError, match=rf"^row 1: .*{reason}"):
            task.predict([first, wrong, last])
        with pytest.raises(ValueError, match=r"^row 0: .* \(1 more rows cannot"):
            task.predict([wrong, last, wrong])


# Values unlike the defaults of fields that say how files are read.
OTHERS = {"keep_aspect": True, "ignored": 7, "interpolation": "bicubic", "separator": "|", "normalize": False}
STARTED = [
    "translate", "generate", "masked-lm", "classify", "several", "number", "tag", "answer", "choose",
    "classify-images", "classify-videos", "reidentify", "classify-points", "keypoints", "detect",
    "find-lanes", "relate", "segment", "panoptic", "generate-images", "restore-images", "match-images",
    "caption",
]  # fmt: skip


@pytest.mark.parametrize("name", STARTED)
def test_files_are_read_for_a_start_as_for_what_is_made_of_it(name, tmp_path):
    """So a resumed training, which asks the RUN, finds the same examples."""
    task = copy.copy(made(name))
    changes = {field: value for field, value in OTHERS.items() if hasattr(task.config, field)}
    task.config = dataclasses.replace(task.config, **changes)
    task.save(tmp_path / "run")
    fields = tasks.load(tmp_path / "run").file_fields
    if isinstance(task, tasks.Segmenter):
        del fields["names"]  # masks may have others
    assert type(task).reading(type(task).model_options(), {}, tmp_path / "run") == fields


GENTLE = [
    "generate", "masked-lm", "classify", "tag", "answer", "choose", "classify-images", "classify-videos",
    "detect", "segment", "match-images", "caption",
]  # fmt: skip


def test_these_tasks_have_options_of_their_own_for_given_weights():
    learning = [task for task in base.each_task() if issubclass(task, tasks.LearningTask)]
    assert {task.name for task in learning if task.given_weights} == set(GENTLE)


@pytest.mark.parametrize("name", GENTLE)
def test_weights_that_were_loaded_or_published_are_changed_more_gently(name, tmp_path):
    task = copy.copy(made(name))
    fresh, given = map(type(task).training_of, (False, True))
    assert given.learning_rate < (fresh.learning_rate or RATE_OF_SETS)  # the lower one of a Segmenter
    task.has_given_weights = False  # as what `make` gives
    assert task._told(None, {}) == (fresh, None)
    task.save(tmp_path / "run")
    examples = MAKERS[name][1]
    twins = [tasks.load(tmp_path / "run"), type(task).start_from(tmp_path / "run", examples)]
    if name != "generate":  # theirs have no tokenizer of characters
        task.save_huggingface(tmp_path / "theirs")
        twins.append(type(task).from_huggingface(tmp_path / "theirs"))
    for twin in (*twins, copy.copy(twins[0])):
        assert twin.has_given_weights and twin._told(None, {}) == (given, None)
    assert copy.copy(task)._told(None, {}) == (fresh, None)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))])
@pytest.mark.parametrize("name", ["translate", "classify", "classify-images", "recommend"])
def test_a_task_is_copied_and_pickled_as_its_files(name, copied):
    task = MAKERS[name][0]()
    task.is_trained, task.record = False, {"a": 1}
    twin = copied(task)
    assert type(twin) is type(task) and twin.config == task.config
    names = ("is_trained", "record", "has_given_weights")
    assert [getattr(twin, name) for name in names] == [getattr(task, name) for name in names]
    if name != "recommend":
        before = task.model.get_weights()
        for value, same in zip(before, twin.model.get_weights(), strict=True):
            np.testing.assert_array_equal(value, same)
        twin.model.set_weights([value + 1 for value in before])
        for value, same in zip(before, task.model.get_weights(), strict=True):
            np.testing.assert_array_equal(value, same)
    else:
        assert twin.predict(["a"]) == task.predict(["a"])


@pytest.mark.parametrize("name", ["translate", "summarize", "generate", "caption"])
def test_decoding_refuses_ids_outside_the_vocabulary(name):
    task = made(name)
    asked = [np.zeros((16, 16, 3), "uint8")] if name == "caption" else ["the"]
    for option in ({"suppressed_ids": [3, 10**6]}, {"forced_first_id": 10**6}, {"forced_last_ids": [10**6]}):
        (field,) = option
        with pytest.raises(ValueError, match=rf"`{field}` must lie in \[0, \d+\); it has 1000000"):
            task.predict(asked, max_new_tokens=1, **option)
    if name != "caption":
        for wrong, message in (
            (np.array([[1.0, 2.5]]), "must be integers; they are float64"),
            (np.array([1, 2]), r"must be \(B, P\), P at least 1; its shape is \(2,\)"),
            (np.array([[1, 10**6]]), r"must lie in \[0, \d+\); they span 1 to 1000000"),
            (None, r"must be \(B, P\)"),
        ):
            with pytest.raises(ValueError, match=f"`token_ids` {message}"):
                task.generate_ids(wrong)


def run_predict(task, path, capsys, monkeypatch, *options):
    """The lines of `keras-tfm predict` and what it says on standard error."""
    folder = path.with_name(f"{path.name}-run")
    task.save(folder, overwrite=True)
    monkeypatch.setattr(tasks, "load", lambda *_, **__: task)  # what `made` keeps is quicker
    main(["predict", str(folder), "--data", str(path), *options])
    output = capsys.readouterr()
    assert output.out.endswith("\n")
    return output.out.split("\n")[:-1], output.err


@pytest.mark.parametrize("name", RIGHT)
def test_as_many_lines_come_out_as_went_in(name, tmp_path, capsys, monkeypatch):
    """One wrong line of the middle, and a blank one, are empty, and told by their numbers."""
    right = next(x for x in RIGHT[name] if isinstance(x, str))
    wrong = next((x for x in WRONG.get(name, {}) if isinstance(x, str) and x), " ")
    (tmp_path / "asked.txt").write_text("\n".join([right, wrong, "", right]) + "\n", "utf-8")
    options = ("--max-new-tokens", "3") if name in ("translate", "summarize", "generate") else ()
    lines, said = run_predict(made(name), tmp_path / "asked.txt", capsys, monkeypatch, *options)
    assert len(lines) == 4 and lines[1] == lines[2] == ""
    if name == "generate-images":  # the seed of each picture
        assert [lines[0], lines[3]] == ["0", "1"]
    else:
        assert lines[0] == lines[3]
    told = [line for line in said.splitlines() if "empty line" in line]
    assert [line.split(" gets an")[0] for line in told] == ["line 2", "line 3"]
    assert told[1].endswith(": it is blank")


# Tasks that answer each user, each video, or each picture, alone.
ALONE = "recommend", "track", "restore-images", "predict-frames", "inpaint-videos", "segment-videos"


@pytest.mark.parametrize("name", MAKERS)
def test_predict_refuses_what_is_no_list_of_examples(name):
    """A string, which would be read as its letters, values that are no examples, and a senseless batch."""
    task = made(name)
    wrongs = [{"text": "the cat"}, None, 5]
    if task.reads_lines:
        wrongs.append("the cat")
        right, rows = RIGHT.get(name, RIGHT["classify"])[0], [None, b"the cat"]
    else:  # a string is the path of one image
        kinds = ("video_shape", "image_shape", "point_shape")
        shape = next(getattr(task, kind) for kind in kinds if hasattr(task, kind))
        right, rows = np.zeros(shape, "uint8"), [None, 5]
        right.flat[0] = 1  # points that differ
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"examples: expected a list, got|`images`|`videos`"):
            task.predict(wrong)
    for wrong in rows:
        with pytest.raises(ValueError, match="row 1: expected "):
            task.predict([right, wrong])
    for wrong in (0, -1, 2.0, True, None):
        if name not in ALONE:
            with pytest.raises(ValueError, match=rf"`batch_size` must be .*; it is {wrong}"):
                task.predict([right], batch_size=wrong)


@pytest.mark.parametrize("name", [name for name, (_, examples) in MAKERS.items() if examples is not None])
def test_fit_and_evaluate_refuse_what_is_no_list_of_examples(name):
    """Each column as a string of as many letters, or with None in its last row."""
    task, examples = made(name), MAKERS[name][1]
    wrongs = ["the cat", None, 5]
    if isinstance(examples, tuple):
        wrongs.append(examples[:1])
        for place, column in enumerate(examples):
            for wrong in ("x" * len(column), [*column[:-1], None]):
                wrongs.append((*examples[:place], wrong, *examples[place + 1 :]))
    else:
        wrongs.append([*examples, None])
    for wrong in wrongs:
        for call in (task.evaluate, task.fit):
            with pytest.raises(ValueError, match=r"^(examples|`\w+`|row \d|image \d|mask \d).* "):
                call(wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda text: tasks.Translator.from_pairs((text, ["a"] * len(text))),
        lambda text: tasks.TextGenerator.from_texts(text),
        lambda text: tasks.MaskedLanguageModel.from_documents(text),
        lambda text: tasks.TextClassifier.from_examples((text, ["a"] * len(text))),
        lambda text: tasks.TextClassifier.from_examples((["a"] * len(text), text)),
        lambda text: tasks.TextClassifier.from_examples((["a"], [text]), problem="multi-label"),
        lambda text: tasks.TokenClassifier.from_examples(([text], [["O"] * len(text)])),
        lambda text: tasks.Recommender.from_ratings((text, ["a"] * len(text), [1.0] * len(text))),
        lambda text: BERTTokenizer.train(text),
        lambda text: train_tokenizer(text, "sentencepiece"),
        lambda text: train_tokenizer(text, "bytes"),
        lambda text: train_tokenizer(text, "characters"),
        lambda text: CLIPTokenizer.train(text),
        lambda text: made("match-images").encode_texts(text),
        lambda text: made("match-images").encode_labels(text),
        lambda text: made("match-images").encode_labels(["a"], text),
        lambda text: made("recommend").rate(text, list(text)),
        lambda text: made("sentence-vectors").similarity(["a"], text),
        lambda text: made("masked-lm").candidates(text),
        lambda text: TfIdf().fit(text),
        lambda text: TfIdf().fit_transform(text),
    ],
)  # fmt: skip
def test_a_string_is_never_read_as_its_letters(make):
    with pytest.raises(ValueError, match=r"expected a list, got|expected a list of strings|it is one string"):
        make("{} is a text")


RECORD = {"question": "who sat", "id": "1", "answers": [{"text": "the cat", "answer_start": 0}]}
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [RECORD] * 2}]}]})
BARE = json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [{"question": "who sat"}] * 2}]}]})
CONLL = "-DOCSTART- -X- O\n\nthe DT O\ncat NN B-X\n\n\ndog NN B-Y\n"


@pytest.mark.parametrize(
    ("name", "file", "content", "expected"),
    [
        ("translate", "a.tsv", "the cat\tle chat\nthe dog\tle chien\n", ["the cat", "the dog"]),
        ("translate", "a.tsv", "the cat\nthe dog\n", ["the cat", "the dog"]),
        ("translate", "a.csv", 'fr,en\nle chat,the cat\n"le, chien",the dog\n', ["le chat", "le, chien"]),
        ("translate", "a.csv", "id,source\n1,the cat\n2,\n", ["the cat", ""]),
        ("summarize", "a.jsonl", '{"summary": "a", "text": "the cat"}\n', ["the cat"]),
        ("summarize", "a.jsonl", '{"text": "the cat"}\n{"text": "dog", "summary": 3}\n', ["the cat", "dog"]),
        ("classify", "a.tsv", "the cat\tx\nthe dog\tnever seen\n", ["the cat", "the dog"]),
        ("classify", "a.csv", "label,text\nx,the cat\n,the dog\n", ["the cat", "the dog"]),
        ("classify", "a.csv", "id,text\n7,the cat\n", ["the cat"]),
        ("classify", "a.jsonl", '{"text": "the cat", "label": "x"}\n', ["the cat"]),
        ("classify", "a.txt", "the cat\tx\n", ["the cat\tx"]),
        ("pairs", "a.tsv", "the cat\tsat\n", [("the cat", "sat")]),
        ("pairs", "a.csv", "premise,label,hypothesis\nthe cat,x,sat\n", [("the cat", "sat")]),
        ("pairs", "a.csv", "premise,hypothesis,id\nthe cat,sat,3\n", [("the cat", "sat")]),
        ("tag", "a.conll", CONLL, [["the", "cat"], ["dog"]]),
        ("tag", "a.txt", "the cat sat O\nthe O\n", ["the cat sat O", "the O"]),
        ("answer", "a.json", SQUAD, [("who sat", CONTEXT)] * 2),
        ("answer", "a.json", BARE, [("who sat", CONTEXT)] * 2),
        ("answer", "a.txt", f"who sat\t{CONTEXT}\n", [f"who sat\t{CONTEXT}"]),
        ("choose", "a.jsonl", '{"text": "who", "choices": ["a", "b"], "label": 1}\n', [("who", ["a", "b"])]),
        ("choose", "a.jsonl", '{"question": "who", "options": ["a", "b"]}\n', [("who", ["a", "b"])]),
        ("generate", "a.txt", "the\n\ncat\n", ["the", "", "cat"]),
        ("masked-lm", "a.txt", "the\n\ncat\n", ["the", "", "cat"]),
        ("recommend", "a.txt", "a\n\nb\n", ["a", "", "b"]),
        ("recommend", "a.csv", "item,user,rating\nx,a,1\ny,b,\n", ["a", "b"]),
        ("recommend", "a.jsonl", '{"user": 7}\n{"user": "b"}\n', ["7", "b"]),
    ],
)
def test_predict_takes_what_train_took(name, file, content, expected, tmp_path):
    (tmp_path / file).write_text(content, "utf-8")
    examples, places = parts(made(name).read_inputs(tmp_path / file))
    assert examples == expected and len(places) == len(examples)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("translate", "a.txt", "the cat"),
        ("translate", "a.tsv", "the cat\tx\nthe dog\ty"),
        ("classify", "a.txt", "the cat"),
        ("classify", "a.csv", "the cat,x"),
        ("classify", "a.jsonl", '{"text": "the cat"}'),
        ("tag", "a.txt", "the cat"),
        ("tag", "b.txt", "the O\ncat O\nthe cat sat"),  # may be CoNLL columns, until a line has three words
        ("tag", "a.csv", "word,tag\nthe,O\n\ncat,O"),
        ("answer", "a.txt", "who sat\tthe cat"),
        ("choose", "a.jsonl", '{"text": "who", "choices": ["a", "b"]}'),
        ("recommend", "a.csv", "user,item,rating\na,x,1"),
        ("recommend", "b.csv", "a,x,1"),
        ("generate", "a.txt", "the cat"),
    ],
)
def test_inputs_are_read_when_they_are_asked_for(name, file, content, tmp_path):
    """A mistake is raised at its place, after what comes before it."""
    (tmp_path / file).write_bytes(content.encode() + b"\n\xff\n")
    inputs, found = made(name).read_inputs(tmp_path / file), []
    with pytest.raises(DataError, match="expected UTF-8, got byte 0xff"):
        found.extend(inputs)
    assert found


def test_columns_folders_and_images_are_inputs_too(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\nthe cat,sat,x\n", "utf-8")
    for name, columns, expected in (("pairs", ["a", "b"], ("the cat", "sat")), ("classify", [1], "b"),
                                    ("pairs", ["b", "a", "c"], ("sat", "the cat"))):  # fmt: skip
        assert parts(made(name).read_inputs(tmp_path / "a.csv", columns))[0][0] == expected
    (tmp_path / "b.txt").write_text("one\n\ntwo\n", "utf-8")
    (tmp_path / "c.txt").write_text("three\n", "utf-8")
    examples, places = parts(made("masked-lm").read_inputs(tmp_path))
    assert examples == ["one", "", "two", "three"] and places[-1] == f"{tmp_path / 'c.txt'}, line 1"
    for name in ("tag", "answer", "generate"):
        with pytest.raises(ValueError, match="--columns: "):
            parts(made(name).read_inputs(tmp_path / "b.txt", ["a", "b"]))
        with pytest.raises(ValueError, match="--no-header: "):
            parts(made(name).read_inputs(tmp_path / "b.txt", Layout(header=False)))
    (tmp_path / "images" / "a").mkdir(parents=True)
    for path in ("images/a/1.png", "images/2.png"):
        (tmp_path / path).write_bytes(tf.io.encode_png(np.zeros((9, 9, 1), "uint8")).numpy())
    images, places = parts(made("classify-images").read_inputs(tmp_path / "images"))
    assert list(map(str, images)) == places and [path[-5:] for path in places] == ["2.png", "1.png"]


def test_predict_answers_what_train_was_given(tmp_path, capsys, monkeypatch):
    content = '{"text": "who sat", "choices": ["cat", "mat"], "label": 1}\n'
    content += (
        '{"text": "who", "choices": ["cat"], "label": 0}\n{"text": "who", "choices": ["a", "b", "c"]}\n'
    )
    (tmp_path / "a.jsonl").write_text(content, "utf-8")
    lines, said = run_predict(made("choose"), tmp_path / "a.jsonl", capsys, monkeypatch)
    assert [bool(line) for line in lines] == [True, False, True]
    assert "line 2 gets an empty line: expected two choices or more, got 1" in said
    (tmp_path / "a.json").write_text(SQUAD, "utf-8")
    lines, said = run_predict(made("answer"), tmp_path / "a.json", capsys, monkeypatch)
    assert len(lines) == 2 and not said


def test_many_lines_without_an_answer_are_counted(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("\n" * 100, "utf-8")
    lines, said = run_predict(made("generate"), tmp_path / "a.txt", capsys, monkeypatch)
    assert lines == [""] * 100 and said.count("\n") == 21 and said.endswith("80 more get an empty line\n")
    with pytest.raises(SystemExit):
        run_predict(made("generate"), tmp_path / "a.txt", capsys, monkeypatch, "--whole")
    assert "the text gets no answer" in capsys.readouterr().err


def test_rows_are_refused_by_one_line():
    base.refuse_rows({})
    with pytest.raises(ValueError, match=r"^row 3: why$"):
        base.refuse_rows({3: "why"})
