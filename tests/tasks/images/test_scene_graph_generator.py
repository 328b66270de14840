"""Scene graphs: what is learnt, answers in pixels, recall by hand, graphs over pictures, wrong input."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.data import RelatedObjects, read_relations
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.worlds.related_shapes import PREDICATES, related_pictures, relations_of
from keras_tfm.heads import RelationDetector
from keras_tfm.models import RelTR, RelTRConfig
from keras_tfm.tasks import SceneGraphGenerator
from keras_tfm.tasks.images.graph_drawing import graph_of
from keras_tfm.tasks.images.relation_recall import relation_recall
from tests.contract import randomise
from tests.fresh_process import ask

NETWORK = {"stem_dim": 8, "dims": (8, 16), "depths": (1, 1), "block": "basic"}
SIZES = {"dim": 16, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "intermediate_dim": 16}
SMALL = RelTRConfig((24, 32), 3, "ResNet", NETWORK, False, num_queries=3, num_triplets=4, **SIZES)
NAMES, ABOVE = ["bright", "dark"], ["above", "below"]


def make():
    keras.utils.set_random_seed(0)
    return SceneGraphGenerator(RelTR(SMALL), NAMES, ABOVE)


def examples(count):
    """A bright square above a dark one, or below it."""
    images = np.full((count, 24, 32, 3), 128, "uint8")
    boxes, relations = [], []
    for row, image in enumerate(images):
        tops = [2, 14] if row % 2 else [14, 2]
        for top, value in zip(tops, (255, 0), strict=True):
            image[top : top + 8, 8:16] = value
        boxes.append([[8.0, float(top), 16.0, float(top + 8)] for top in tops])
        relations.append([(0, ABOVE[0] if row % 2 else ABOVE[1], 1)])
    return images, boxes, [NAMES] * count, relations


@pytest.fixture(scope="module")
def task():
    made = make()
    randomise(made.model, 1)
    return made


def test_a_training_learns(tmp_path):
    made = make()
    history = made.fit(examples(32), 0.25, epochs=2, batch_size=8, run=tmp_path / "run")
    assert history["loss"][-1] < history["loss"][0]
    measures = made.evaluate(examples(4))
    assert measures["r20_of_the_commonest_predicate"] == 50 and {"r20", "r50", "mr20", "mr50"} < {*measures}
    again, kept = (x(examples(2)[0]) for x in (tasks.load(tmp_path / "run"), made))
    for name in ("predicate_logits", "subject_boxes"):
        np.testing.assert_allclose(again[name], kept[name], atol=1e-5)


def test_a_head_of_other_widths_is_kept(tmp_path):
    """In the folder, and for images of another size."""
    head = RelationDetector(RelTR(SMALL), 2, 2, map_filters=(3, 5), map_widths=(7, 6))
    made = SceneGraphGenerator(head, NAMES, ABOVE)
    made.save(tmp_path / "run")
    again, images = tasks.load(tmp_path / "run"), examples(1)[0] / 255
    assert again.model.head_arguments == head.head_arguments
    found, kept = (x(images)["predicate_logits"] for x in (again, made))
    np.testing.assert_allclose(found, kept, atol=1e-5)
    larger = SceneGraphGenerator.adopt(made, None, image_size=40)
    assert larger.model.head_arguments == head.head_arguments and larger.image_shape == (40, 40, 3)


def test_answers_are_in_the_pixels_of_each_picture_and_drawn(task, tmp_path):
    rng = np.random.default_rng(0)
    sizes, paths = [(24, 32), (60, 10)], [tmp_path / "0.png", tmp_path / "1.png"]
    for path, size in zip(paths, sizes, strict=True):
        PIL.Image.fromarray(rng.integers(0, 256, (*size, 3), "uint8")).save(path)
    answers = task.predict(paths, threshold=0.0, draw=tmp_path / "drawn")
    for answer, (height, width), path in zip(answers, sizes, paths, strict=True):
        assert {*answer["subjects"], *answer["objects"]} <= {*NAMES} and {*answer["predicates"]} <= {*ABOVE}
        assert len(answer["scores"]) == 4 and (np.diff(answer["scores"]) <= 0).all()
        for boxes in (answer["subject_boxes"], answer["object_boxes"]):
            assert boxes.shape == (4, 4) and (boxes >= 0).all()
            assert (boxes <= [width, height, width, height]).all()
        assert json.loads(task.as_line(answer))["predicates"] == answer["predicates"]
        # A picture alone may be rounded otherwise.
        (sure,) = task.predict(path, threshold=float(np.mean(answer["scores"][1:3])))
        assert len(sure["scores"]) == 2
        with PIL.Image.open(tmp_path / "drawn" / path.name) as drawn:
            assert min(drawn.size) >= 480


@pytest.mark.slow
def test_the_export_answers_as_the_task(task, tmp_path):
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*size, 3), "uint8") for size in ((24, 32), (9, 50))]
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    task.export(tmp_path / "served")
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    for row, answer in enumerate(task.predict(files, threshold=0.0)):
        for name in ("subject_boxes", "object_boxes", "scores"):
            np.testing.assert_allclose(served[name][row], answer[name], atol=1e-3)
        for name in ("subjects", "predicates", "objects"):
            assert list(served[name][row]) == answer[name]


def truth():
    boxes = [np.array([[0, 0, 0.4, 0.4], [0.5, 0.5, 1, 1]], "float32")] * 2
    relations = [[(0, "above", 1), (1, "below", 0)], [(0, "above", 1)]]
    return RelatedObjects(
        np.zeros((2, 10, 10, 3), "uint8"), np.full((2, 2), 10), boxes, [NAMES] * 2, relations
    )


def answer_of(*triplets):
    """Triplets (subject, predicate, object, left edge of the subject's box), the surest first."""
    ends = {"bright": [0.0, 0, 4, 4], "dark": [5.0, 5, 10, 10]}
    subjects, predicates, others, _ = map(list, zip(*triplets, strict=True)) if triplets else ([],) * 4
    subject_boxes = [[left, *ends[name][1:]] for name, _, _, left in triplets]
    boxes = {"subject_boxes": subject_boxes, "object_boxes": [ends[name] for name in others]}
    names = {"subjects": subjects, "predicates": predicates, "objects": others}
    return names | boxes | {"scores": np.linspace(1, 0.5, len(subjects))}


def test_recall_by_hand():
    right, wrong = ("bright", "above", "dark", 0.0), ("bright", "below", "dark", 0.0)
    found = [answer_of(wrong, right), answer_of(*[wrong] * 20, right)]
    measures = relation_recall(truth(), found)
    assert measures["r20"] == 100 * (0.5 + 0) / 2 and measures["r50"] == 100 * (0.5 + 1) / 2
    # "above" is found in one image of two, or in both; "below" never.
    assert measures["mr20"] == 100 * (0.5 + 0) / 2 and measures["mr50"] == 100 * (1 + 0) / 2
    assert measures["r20_of_the_commonest_predicate"] == 100 * (0.5 + 1) / 2
    near, far = (answer_of(("bright", "above", "dark", left)) for left in (1.9, 2.1))  # IoU 0.525 and 0.475
    assert relation_recall(truth(), [near, far])["r20"] == 25
    assert relation_recall(truth(), [answer_of()] * 2)["r50"] == 0


def test_objects_of_several_triplets_are_one_node():
    nodes, edges = graph_of(
        answer_of(
            ("bright", "above", "dark", 0.0),
            ("dark", "below", "bright", 5.0),
            ("bright", "above", "dark", 3.0),
        )
    )
    assert [name for name, _ in nodes] == ["bright", "dark", "bright"]
    assert edges == [(0, "above", 1), (1, "below", 0), (2, "above", 1)]


def test_made_pictures_have_exact_relations():
    data = related_pictures(40, seed=3)
    assert {p for each in data.relations for _, p, _ in each} == {*PREDICATES}
    for image, boxes, labels, relations in zip(*data, strict=True):
        assert len({*labels}) == len(labels) and relations == relations_of(boxes)
        assert len(relations) == len(labels) * (len(labels) - 1) // 2
        for subject, predicate, other in relations:
            (a, b, c, d), (left, top, right, bottom) = boxes[subject], boxes[other]
            if predicate == "inside":
                assert left <= a and top <= b and c <= right and d <= bottom
            else:
                assert c < left if predicate == "left of" else d < top
        for left, top, right, bottom in np.array(boxes, int):  # the figure fills its box, from edge to edge
            inside = image[top:bottom, left:right].max(-1) > 128
            assert inside.any(0).all() and inside.any(1).all()
    again = related_pictures(40, seed=4)
    assert not np.array_equal(data.images, again.images)
    np.testing.assert_array_equal(data.images[:3], related_pictures(3, seed=3).images)


def test_files_of_both_layouts(tmp_path):
    (tmp_path / "images").mkdir()
    PIL.Image.new("RGB", (10, 10)).save(tmp_path / "images" / "7.jpg")
    boxes = [[0, 0, 4, 4], [5, 5, 5, 9], [4, 4, 9, 9]]  # the second has no area, and is skipped
    line = {"image": "7.jpg", "boxes": boxes, "labels": ["a", "b", "c"]}
    line["relations"] = [[0, "on", 2], [1, "on", 2], [2, "under", 0]]
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    data = read_relations(tmp_path / "x.jsonl", (8, 8, 3))
    assert data.labels == [["a", "c"]] and data.relations == [[(0, "on", 1), (1, "under", 0)]]
    ends = [
        {
            "object_id": number,
            "names": [name],
            "x": box[0],
            "y": box[1],
            "w": box[2] - box[0],
            "h": box[3] - box[1],
        }
        for number, name, box in ((31, "a", boxes[0]), (32, "c", boxes[2]))
    ]
    entry = {"image_id": 7, "relationships": [{"predicate": "on", "subject": ends[0], "object": ends[1]}]}
    entry["relationships"].append({"predicate": "under", "subject": ends[1], "object": ends[0]})
    missing = {**entry, "image_id": 6}
    (tmp_path / "relationships.json").write_text(json.dumps([missing, entry]))
    same = read_relations(tmp_path / "relationships.json", (8, 8, 3))
    assert same.labels == data.labels and same.relations == data.relations
    np.testing.assert_allclose(same.boxes[0], data.boxes[0])


@pytest.mark.parametrize(
    ("relations", "message"),
    [
        ([[0, "on", 2]], "x.jsonl, line 1: relation 1: expected the number of one of 2 boxes, from 0, got 2"),
        ([[0, "on", 1], [-1, "on", 1]], "relation 2: expected the number of one of 2 boxes, from 0, got -1"),
        (
            [[0, " ", 1]],
            "relation 1: expected .subject, predicate, object., two numbers of boxes around a text",
        ),
        ([[0, "on"]], "relation 1: expected .subject, predicate, object."),
        ("on", 'expected a list as "relations", got \'?"?on'),
        ([], "x.jsonl: expected relations between boxes, there are none"),
    ],
)
def test_wrong_files_in_one_line(relations, message, tmp_path):
    PIL.Image.new("RGB", (10, 10)).save(tmp_path / "a.png")
    line = {"image": "a.png", "boxes": [[0, 0, 4, 4], [5, 5, 9, 9]], "labels": ["a", "b"]}
    (tmp_path / "x.jsonl").write_text(json.dumps({**line, "relations": relations}))
    with pytest.raises(DataError, match=message) as caught:
        read_relations(tmp_path / "x.jsonl", (8, 8, 3))
    assert "\n" not in str(caught.value)


def test_wrong_visual_genome_in_one_line(tmp_path):
    PIL.Image.new("RGB", (10, 10)).save(tmp_path / "7.jpg")
    path = tmp_path / "relationships.json"
    for content, message in (
        ([], "expected a list of images with relationships"),
        ([{"image_id": 7}], 'image 1: expected an object with "relationships"'),
        ([{"image_id": "7", "relationships": []}], 'image 1: expected a number as "image_id"'),
        (
            [{"image_id": 7, "relationships": [{"predicate": "on"}]}],
            "image 1, relationship 1: expected a name",
        ),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match=message):
            read_relations(path, (8, 8, 3))


def test_wrong_examples_in_one_line(task):
    images, boxes, labels, relations = examples(2)
    for wrong, message in (
        ((images, boxes, labels, [[(0, "on", 1)], []]), "`relations` must be among .* 'on' is not"),
        ((images, boxes, [["cat", "dark"]] * 2, relations), "`labels` must be among .* 'cat' is not"),
        (
            (images, boxes, labels, [[(0, "above", 3)], []]),
            "image 0: relation 1: expected the number of one of 2",
        ),
        (
            (images, boxes, labels, relations[:1]),
            "boxes, labels and relations of one length, got 2, 2, 2 and 1",
        ),
        (
            (images, boxes, labels, [relations[0] * 5, []]),
            "`relations`: expected at most 4, the model's queries",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            task.evaluate(wrong)
    with pytest.raises(ValueError, match="`predicates` must be different strings"):
        SceneGraphGenerator(RelTR(SMALL), NAMES, ["on", "on"])
    with pytest.raises(ValueError, match="`predicates` must be 2, as the head has them; they are 1"):
        SceneGraphGenerator(task.model, NAMES, ["on"])
