"""Small models of tokens, and what they learn, for the ways to train in `exactness_cases`."""

import math

import numpy as np

V, T, SIZE = 30, 6, 40  # vocabulary, length, examples


def data(seed=0):
    """Token ids with padding (SIZE, T), the next ones as labels, and weights 0.0 to 2.0 with zeros."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, V, (SIZE, T)).astype("int32")
    ids[np.arange(T) >= rng.integers(2, T + 1, (SIZE, 1))] = 0
    weights = rng.integers(0, 3, (SIZE, T)).astype("float32")
    return ids, np.roll(ids, -1, axis=1), weights


def tagger(mask_zero=False, dropout=0.0, **options):
    """A small model of labels for tokens, without weights whose gradient is zero by theory."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(V, 8, mask_zero=mask_zero, name="embedding")(inputs)
    x = keras.layers.Dense(16, activation="tanh", name="hidden", **options)(x)
    x = keras.layers.Dropout(dropout)(x)
    return keras_tfm.Model(inputs, keras.layers.Dense(V, dtype="float32", name="output")(x))


def first_label(ids, labels):
    return labels[:, 0]


def classifier():
    """One label a text."""
    import keras

    model = tagger()
    return type(model)(model.input, keras.layers.GlobalAveragePooling1D()(model.output))


def two_headed():
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(V, 8)(inputs)
    outputs = {
        "tokens": keras.layers.Dense(V, name="tokens")(x),
        "size": keras.layers.Dense(1, name="size")(keras.layers.GlobalAveragePooling1D()(x)),
    }
    return keras_tfm.Model(inputs, outputs)


def adding_loss():
    import keras

    import keras_tfm

    class Activity(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(keras.ops.square(x)))
            return x

    inputs = keras.Input((T,), dtype="int32")
    x = Activity()(keras.layers.Embedding(V, 8)(inputs))
    return keras_tfm.Model(inputs, keras.layers.Dense(V)(x))


def subclassed():
    import keras

    import keras_tfm

    class Tagger(keras_tfm.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.dense = keras.layers.Embedding(V, 8), keras.layers.Dense(V)

        def call(self, x):
            return self.dense(self.embedding(x))

    return Tagger()


def own_train_step():
    """Keras's way to train of one's own: the optimizer sums what the replicas' losses give."""
    import keras
    import tensorflow as tf

    import keras_tfm

    class Own(keras_tfm.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x, y, y_pred)
            variables = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return self.compute_metrics(x, y, y_pred)

    inputs = keras.Input((T,), dtype="int32")
    return Own(inputs, keras.layers.Dense(V)(keras.layers.Embedding(V, 8)(inputs)))


OF_DETR = {
    "image_size": (16, 24),
    "num_channels": 1,
    "backbone_config": {"stem_dim": 8, "dims": (8, 16), "depths": (1, 1), "block": "basic"},
    "num_queries": 7,
    "dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 16,
    "dropout": 0.0,
    "activation": "gelu",
}


def detr():
    """DETR, two blocks each, of tokens' vectors as the pixels of 16 x 24."""
    from keras_tfm import heads, models

    return of_pixels(heads.ObjectDetector(models.DETR(models.DETRConfig(**OF_DETR)), 2))


def deformable_detr():
    """Deformable DETR of the same size, in two stages."""
    from keras_tfm import heads, models

    levels = {"num_maps": 2, "num_levels": 2, "num_points": 2, "refines": True, "proposes": True}
    config = models.DeformableDETRConfig(**OF_DETR, **levels)
    return of_pixels(heads.ReferencedDetector(models.DeformableDETR(config), 2))


def transtrack():
    """TransTrack of the same size; the frame before is this one, mirrored."""
    from keras_tfm import heads, models

    levels = {"num_maps": 2, "num_levels": 2, "num_points": 2, "num_groups": 4}
    return of_pixels(heads.TrackDetector(models.TransTrack(models.TransTrackConfig(**OF_DETR, **levels)), 2))


def of_pixels(detector):
    """A learner of a `detector` for pictures of 16 x 24, whose pixels are numbers of tokens."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    pixels = keras.layers.Embedding(V, 64, keras.initializers.RandomNormal(stddev=1.0))(inputs)
    images = keras.layers.Reshape((16, 24, 1))(pixels)
    frames = {"images": images, "pixel_mask": keras.ops.ones_like(images[..., 0], "bool")}
    learner = detector.learner()
    if "previous_images" in learner.input:
        frames["previous_images"] = keras.ops.flip(images, axis=2)
    return keras_tfm.Model(inputs, learner(frames))


def convolutional():
    """Convolutions of every kind, and pooling, of tokens' vectors as the pixels of 16 x 24."""
    import keras

    import keras_tfm
    from keras_tfm import layers

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(V, 64, keras.initializers.RandomNormal(stddev=1.0))(inputs)
    x = keras.layers.Reshape((16, 24, 1))(x)
    for layer in (
        layers.Convolution(8, activation="gelu"),
        layers.Convolution(8, groups=8, activation="gelu"),
        layers.StandardizedConvolution(8, stride=2, norm=keras.layers.GroupNormalization(2)),
        layers.Convolution(8, groups=2, activation="gelu"),
        layers.MaxPooling(2),
        layers.Convolution(8, kernel_size=1, stride=2),
        keras.layers.Flatten(),
        keras.layers.Dense(T * V),
        keras.layers.Reshape((T, V)),
    ):
        x = layer(x)
    return keras_tfm.Model(inputs, x)


def batch_normalized():
    """Moments over maps, over tokens without their padding, and over rows of blocks that recompute them."""
    import keras

    import keras_tfm
    from keras_tfm import layers

    inputs = keras.Input((T,), dtype="int32")
    embedding = keras.layers.Embedding(V, 64, keras.initializers.RandomNormal(stddev=1.0), mask_zero=True)
    x = layers.BatchNormalization()(embedding(inputs))
    x = keras.layers.Reshape((16, 24, 1))(x)
    x = layers.Convolution(8, stride=2, norm=layers.BatchNormalization(), activation="gelu")(x)
    x = layers.BatchNormalization(axis=1)(x)
    x = keras.layers.Reshape((T, 128))(x)
    x = layers.Block({"part": layers.Residual(layers.NormalizedDense(128, activation="gelu"))})(x)
    return layers.rematerialize(keras_tfm.Model(inputs, keras.layers.Dense(V)(x)))


def objects(ids, labels):
    """Objects in the place of every third token or so, of class 0 or 1, and padding: (B, T, 5)."""
    is_object = (ids % 3 == 1)[..., None]
    sides = np.stack([ids, ids[:, ::-1], ids + 3, ids[:, ::-1] + 5], axis=-1) / (2 * V)
    return np.where(is_object, np.concatenate([ids[..., None] % 2, sides], axis=-1), -1).astype("float32")


def tracks(ids, labels):
    """`objects` of a frame and of the next one, some only in one of them: (B, T, 10)."""
    before, now = objects(ids, labels), objects(ids + 1, labels)
    now[..., 0] = np.where(labels % 3 == 0, -1, before[..., 0])
    return np.concatenate([before, now], axis=-1)


def of_sets(*shape):
    """A model of tokens whose predictions, from 0 to 1, have this shape."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(V, 8)(inputs))
    x = keras.layers.Dense(math.prod(shape), activation="sigmoid")(x)
    return keras_tfm.Model(inputs, keras.layers.Reshape(shape)(x))


def masks(ids, labels):
    """Sets of masks (B, T, 4, 6): a segment in the place of every third token or so, of class 0 or 1."""
    number, label = ids[..., None, None], labels[..., None, None]
    is_inside = (np.arange(4)[:, None] <= number % 4) & (np.arange(6) <= label % 6)
    return np.where((number % 3 == 1) & is_inside, 1 + number % 2, 0).astype("int32")


def segmenter():
    """Logits of 2 x 3 cells of an image, batch-normalised nowhere, of which tokens are the cells."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Dense(16, activation="tanh")(keras.layers.Embedding(V, 8)(inputs))
    return keras_tfm.Model(inputs, keras.layers.Reshape((2, T // 2, V))(keras.layers.Dense(V)(x)))


def pixels(ids, labels):
    """Labels of 4 x T pixels; padding is ignored: their number differs from example to example."""
    labels = np.where(ids > 0, labels, 255).reshape(-1, 2, T // 2)
    return labels.repeat(2, axis=1).repeat(2, axis=2)


def translation():
    from keras_tfm.heads import LanguageModel
    from keras_tfm.models import Transformer

    # Softmax does not see what is added to all keys, so the bias of these has no gradient: plain SGD.
    return LanguageModel(
        Transformer.from_size("tiny", vocabulary_size=V, dim=16, intermediate_dim=32, dropout=0.0)
    )


def quantized():
    """Codes in place of tokens' vectors; the quantizer adds a loss, and counts over all replicas."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras_tfm.layers.VectorQuantizer(4)(keras.layers.Embedding(V, 8)(inputs))
    return keras_tfm.Model(inputs, keras.layers.Dense(V)(x))


def drawn():
    """Draws of a single code, which are 1 whatever the noise: the layer counts them on all replicas."""
    import keras

    import keras_tfm

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(V, 8)(inputs)
    x = x * keras_tfm.layers.GumbelSoftmax()(keras.layers.Dense(1)(x))
    return keras_tfm.Model(inputs, keras.layers.Dense(V)(x))


def blocks(dropout=0.0, rematerialize=True, num_experts=0):
    """A Transformer's block; GELU, whose slope does not jump with a rounding. Experts add a loss."""
    import keras

    import keras_tfm
    from keras_tfm import layers

    inputs = keras.Input((T,), dtype="int32")
    if num_experts:
        feedforward = layers.SwitchFeedForward(num_experts, 16, "gelu", balance=0.5)
    else:
        feedforward = layers.FeedForward(16, "gelu")
    attention = layers.MultiHeadAttention(2, dropout=dropout)
    block = layers.Block(
        {
            "attention": layers.Residual(attention, layers.LayerNormalization(), dropout=dropout),
            "feedforward": layers.Residual(feedforward, layers.LayerNormalization(), dropout=dropout),
        },
    )
    # Vectors of variance 1: Keras's are 1,000 times nearer to zero, and a norm magnifies their roundings.
    embedding = keras.layers.Embedding(V, 8, keras.initializers.RandomNormal(stddev=1.0), mask_zero=True)
    x = block(embedding(inputs))
    model = keras_tfm.Model(inputs, keras.layers.Dense(V)(x))
    return layers.rematerialize(model) if rematerialize else model


def paired(**options):
    """Two vectors of each text, whose products are logits: the whole batch has its negatives."""
    import keras

    import keras_tfm
    from keras_tfm.heads import ContrastiveHead

    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(V, 8, "glorot_normal")(inputs))
    sides = [keras.layers.UnitNormalization()(keras.layers.Dense(4)(x)) for _ in range(2)]
    return keras_tfm.Model(inputs, keras.ops.stack(ContrastiveHead(1.0, **options)(*sides), axis=1))


def clip():
    """A whole CLIP, two blocks a tower, of tokens and of their vectors as the pixels of 8 x 12."""
    import keras

    import keras_tfm
    from keras_tfm import heads, models

    tower = (2, 16, 2, 32)  # blocks, width, heads, hidden width
    sizes = (8, 12), 4, 1, *tower, V, T, *tower
    towers = models.CLIP(models.CLIPConfig(*sizes, embedding_dim=8, end_id=V - 1))
    inputs = keras.Input((T,), dtype="int32")
    pixels = keras.layers.Embedding(V, 16, keras.initializers.RandomNormal(stddev=1.0))(inputs)
    images = keras.layers.Reshape((8, 12, 1))(pixels)
    pairs = {"images": images, "token_ids": inputs, "padding_mask": keras.ops.not_equal(inputs, 0)}
    return keras_tfm.Model(inputs, heads.Contrastive(towers).learner()(pairs))


def adversarial(width=3, rates=(0.01, 0.02), **options):
    """A generator and a discriminator of points (B, `width`), with dense layers alone."""
    import keras

    import keras_tfm
    from keras_tfm.training import Adversarial

    def hidden(x, name):
        inputs = keras.Input((x,), name=name)
        return {name: inputs}, keras.layers.Dense(16, "tanh")(inputs)

    latents, x = hidden(2, "latents")
    generator = keras_tfm.Model(latents, {"points": keras.layers.Dense(width)(x)})
    points, x = hidden(width, "points")
    discriminator = keras_tfm.Model(points, {"scores": keras.layers.Dense(1)(x)})
    model = Adversarial(generator, discriminator, **options)
    optimizers = (keras.optimizers.Adam(rate, 0.5, global_clipnorm=1.0) for rate in rates)
    model.compile(*optimizers)
    return model


def adversarial_codec():
    """A codec of rows (B, 3), whose quantizer adds a loss, and its discriminator."""
    import keras

    import keras_tfm
    from keras_tfm.training import AdversarialCodec

    def player(name, *layers):
        inputs = keras.Input((3,), name="images")
        x = keras.layers.Dense(16, "tanh")(inputs)
        for layer in layers:
            x = layer(x)
        return keras_tfm.Model({"images": inputs}, {name: x})

    quantizer, last = keras_tfm.layers.VectorQuantizer(4), keras.layers.Dense(3)
    codec, discriminator = player("images", quantizer, last), player("scores", keras.layers.Dense(1))
    model = AdversarialCodec(codec, discriminator, last.kernel, after=1)
    model.compile(keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1), {"images": "mse"})
    return model
