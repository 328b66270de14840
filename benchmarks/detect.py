"""Small detectors from scratch for the same minutes on the same pictures: COCO's average precision of each.

    python -m benchmarks.detect BCCD/ImageSets/Main/{train,test}.txt --minutes 15
    python -m benchmarks.detect boxes.jsonl more.jsonl --peers keras_tfm prior

TRAIN and TEST are what `keras-tfm train detect` reads. Every peer has every core for the minutes, reads
pictures of the same side and mirrors half of them; rates fall along half a cosine of the time. "prior" is
the mean box of each class, at each of the places of a grid, whatever the picture. RetinaNet is KerasHub's,
with the smallest ResNet that it takes, a pyramid from 1/8 and anchors as small as the smallest objects; Adam,
by its own losses.
"""

import argparse
import math
import os
import sys
import time

import numpy as np

from benchmarks.rounds import parse, record

BATCH = 8
MANY = 1_000  # epochs: the minutes end them
MOST = 100  # boxes of a picture, as COCO counts them


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", metavar="TRAIN", help="pictures to learn from")
    parser.add_argument("test", metavar="TEST", help="pictures to answer")
    parser.add_argument("--minutes", type=float, default=15.0, help="of training, for each peer")
    parser.add_argument(
        "--side", type=int, default=160, help="of the pictures, in pixels (default: %(default)s)"
    )
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=[*PEERS])
    options = parse(parser, has_gpu_part=False)

    import keras

    from keras_tfm.data import read_objects
    from keras_tfm.data.sources.objects import objects_in
    from keras_tfm.tasks.images.average_precision import average_precision

    shape = (options.side, options.side, 3)
    train, test = (objects_in(read_objects(path, shape)) for path in (options.train, options.test))
    print(f"{len(train.images):,} pictures to learn from, {len(test.images):,} to answer")
    for peer in options.peers:
        keras.utils.set_random_seed(0)
        began = time.perf_counter()
        answers, origin = PEERS[peer](train, test, options.minutes)
        measures = average_precision(test, answers)
        record("small detectors", peer, measures["ap50"], "ap50")
        shown = "  ".join(f"{name} {value:5.1f}" for name, value in measures.items())
        print(f"{peer:10} {shown}  {time.perf_counter() - began:6.0f} s  {origin}", flush=True)


def run_keras_tfm(train, test, minutes):
    """Answers to the pictures of `test`, and what they come from."""
    from keras_tfm.models import DeformableDETR
    from keras_tfm.tasks import Detector
    from keras_tfm.tasks.images.canvas_task import sized

    model = DeformableDETR.from_size("tiny", image_size=train.images.shape[1], num_queries=40)
    detector = Detector(model, names_of(train))
    history = detector.fit(train, None, epochs=MANY, minutes=minutes, batch_size=BATCH, learning_rate=1e-3)
    answers = detector.predict(sized(test), threshold=0.0)
    return answers, f"Deformable DETR, {model.count_params():,} weights, {len(history['loss'])} epochs"


def run_keras_hub(train, test, minutes):
    import keras
    import tensorflow as tf
    from keras_hub import layers, models

    from keras_tfm.data import Canvas, CanvasBatches
    from keras_tfm.data.batches.targets import object_targets
    from keras_tfm.layers.boxes import corners_of
    from keras_tfm.training import TimedSchedule, TimeLimit, WarmupCosineSchedule

    names, shape = names_of(train), train.images.shape[1:]
    side, _, _ = shape
    encoder = models.ResNetBackbone([64], [7], [64, 64, 128, 128], [1, 1, 1, 1], [1, 2, 2, 2], "basic_block")
    pyramid = models.RetinaNetBackbone(encoder, 3, 5, use_p5=False, image_shape=shape)
    model = models.RetinaNetObjectDetector(
        pyramid,
        len(names),
        "xyxy",
        anchor_generator=layers.AnchorGenerator("xyxy", 3, 5, 3, [0.5, 1.0, 2.0], anchor_size=2.0),
        prediction_decoder=layers.NonMaxSuppression("xyxy", True, confidence_threshold=0.01),
    )
    rate = TimedSchedule(WarmupCosineSchedule(1e-3, warmup_steps=300, total_steps=10_000), 10_000)
    limit = TimeLimit(minutes, rate)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=10.0))

    def converted(inputs, targets):
        is_box = targets[..., :1] >= 0
        boxes = tf.where(is_box, side * corners_of(targets[..., 1:]), -1.0)
        return inputs["images"], {"boxes": boxes, "labels": targets[..., 0]}

    numbers = [[names.index(name) for name in labels] for labels in train.labels]
    canvas = Canvas()
    data = CanvasBatches(
        train.images,
        train.sizes,
        object_targets(train.boxes, numbers),
        canvas,
        shape,
        BATCH,
        seed=0,
        flips=True,
        are_objects=True,
    )
    model.fit(
        data.epochs().map(converted),
        epochs=MANY,
        steps_per_epoch=data.num_batches,
        callbacks=[limit],
        verbose=0,
    )
    answers = []
    for first in range(0, len(test.images), BATCH):
        sizes = test.sizes[first : first + BATCH]
        images = canvas.inputs(tf.constant(np.asarray(test.images[first : first + BATCH])), sizes)["images"]
        found = model.decode_predictions(model(images, training=False), images)
        found = {name: np.asarray(x) for name, x in found.items()}
        for row, (height, width) in enumerate(sizes.tolist()):
            count = int(found["num_detections"][row])
            answers.append(
                {
                    "boxes": found["boxes"][row, :count] / side * [width, height, width, height],
                    "labels": [names[number] for number in found["labels"][row, :count]],
                    "scores": found["confidence"][row, :count],
                }
            )
    num_epochs = int(model.optimizer.iterations) // data.num_batches
    return answers, f"RetinaNet, {model.count_params():,} weights, {num_epochs} epochs"


def run_prior(train, test, minutes):
    """The mean box of each class at the places of a grid, more places for commoner classes."""
    names = names_of(train)
    labels = np.array([name for row in train.labels for name in row])
    sides = np.concatenate([boxes[:, 2:] - boxes[:, :2] for boxes in train.boxes])
    boxes, given, scores = [], [], []
    for name in names:
        width, height = sides[labels == name].mean(axis=0)
        count = max(1, round(MOST * np.mean(labels == name)))
        columns = math.ceil(math.sqrt(count))
        for place in range(count):
            x, y = (np.array(divmod(place, columns)) + 0.5) / columns
            boxes.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
            given.append(name)
            scores.append(float(np.mean(labels == name)))
    answers = [
        {"boxes": np.clip(boxes, 0, 1) * [width, height, width, height], "labels": given, "scores": scores}
        for height, width in test.sizes.tolist()
    ]
    return answers, f"{len(boxes)} boxes"


def names_of(examples):
    return sorted({name for names in examples.labels for name in names})


PEERS = {"keras_tfm": run_keras_tfm, "keras_hub": run_keras_hub, "prior": run_prior}

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
