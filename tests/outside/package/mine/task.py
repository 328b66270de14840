import dataclasses

import keras
import numpy as np
import tensorflow as tf

from keras_tfm import data, heads, layers, tasks
from keras_tfm.configs import Config, Size
from keras_tfm.models.base import ConfiguredModel, Trace


@dataclasses.dataclass(frozen=True)
class PointsConfig(Config):
    dim: Size = 16


class Points(ConfiguredModel):
    config_class, sizes = PointsConfig, {"tiny": PointsConfig()}

    def __init__(self, config, name="points", **kwargs):
        points = keras.Input([None, 2], name="points")
        mask = keras.Input([None], dtype="bool", name="padding_mask")
        x = keras.layers.Dense(config.dim, name="embedding")(points)
        block = layers.TransformerBlock(2, 2 * config.dim, name="block_0")
        trace = Trace()
        outputs = {"sequence_output": trace.run("encoder", [block], x, mask=mask)}
        inputs = {"points": points, "padding_mask": mask}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


@dataclasses.dataclass(frozen=True)
class ShapeConfig(Config):
    labels: tuple[str, ...] = ()


class ShapeNamer(tasks.AskedTask, tasks.TrainableTask):
    name, config_class, examples_class = "shapes", ShapeConfig, data.LabelledTexts
    help, files, columns = "learn to name what points draw", "points and a name, in .tsv", (2,)

    def __init__(self, backbone, config):
        self.config, self.model = config, heads.Classifier(backbone, len(config.labels), pooling="mean")

    @classmethod
    def make(cls, examples, options, changes, **fields):
        return cls(Points.from_size("tiny"), ShapeConfig(tuple(sorted(set(examples.labels)))))

    @classmethod
    def read_files(cls, paths, columns=None, **fields):
        return data.read_labelled_texts(paths, columns)

    def batches(self, examples, options, is_validation=False):
        labels = np.array([self.config.labels.index(label) for label in examples.labels])
        seed = None if is_validation else options.seed
        return data.ArrayBatches(self.answerer.read(examples.texts), labels, 16, seed)

    def objective(self, training):
        return {"loss": heads.classification_loss()}

    def measure(self, examples):
        return {"accuracy": np.mean(np.array(self.predict(examples.texts)) == examples.labels)}

    def signature(self):
        shapes = {"points": [None, None, 2], "padding_mask": [None, None]}
        return tasks.Signature(
            reads={"kind": "points", "max_length": 32},
            function=lambda inputs: {"logits": self.model(inputs, training=False)},
            inputs={name: tf.TensorSpec(shape) for name, shape in shapes.items()},
            answers={"kind": "shape", "labels": list(self.config.labels)},
            examples=["0,0 1,1", "0,1 0.5,0.2 1,0"],
        )
