"""Scheduled sampling: in training a decoder reads some of its own tokens, as it does when it decodes."""

from keras import ops

from keras_tfm.generation.processors import require
from keras_tfm.generation.samplers import Sample
from keras_tfm.layers.compiler.bits import fold_in, uniform_bits
from keras_tfm.layers.signatures import Decodes, Tensor


class ScheduledSampling:
    """Replaces some tokens that a decoder reads in training by its own: `(inputs, step, done) -> inputs`.

    Bengio et al. 2015, "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks", section
    2.4. Each token of `decoder_token_ids` (B, T) after the first is kept with probability epsilon; otherwise
    it is drawn from what `model` predicts after the tokens read so far. 1 - epsilon is `share` times `done`,
    the share of the training that is done ("linear decay"). The draws depend only on `seed` and `step`. They
    come from a separate pass without dropout and, as in the paper, without a gradient.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.T5.from_size("tiny", vocabulary_size=50))
    >>> sampling = keras_tfm.generation.ScheduledSampling(model, share=0.5)
    >>> inputs = {name: keras.ops.ones((2, 5), "int32") for name in model.backbone.input}
    >>> sampling(inputs, step=0, done=0.5)["decoder_token_ids"].shape
    TensorShape([2, 5])
    """

    def __init__(self, model: Decodes, share: float | Tensor, seed: int | Tensor = 0) -> None:
        require("share", share, lambda share: 0 <= share <= 1, "must lie in [0, 1]")
        self.model = model
        self.share = share
        self.seed = seed

    def __call__(self, inputs, step, done):
        token_ids = inputs["decoder_token_ids"]
        num_rows, length = ops.shape(token_ids)
        seeds = fold_in(ops.stack([ops.cast(self.seed, "uint32"), ops.cast(0, "uint32")]), step)
        is_own = ops.cast(uniform_bits((num_rows, length), seeds), "float32") < 2.0**24 * self.share * done
        is_own = is_own & ops.cast(inputs["decoder_padding_mask"], "bool")  # (B, T)
        sample = Sample(ops.cast(ops.right_shift(seeds[1], ops.cast(1, "uint32")), "int32"))
        context = {name: inputs[name] for name in ("token_ids", "padding_mask")}
        columns = ops.arange(length, dtype="int32")

        def write(position, token_ids, cache):
            """Read the token at `position`, and replace the next one if it is to be the model's own."""
            last = ops.take(token_ids, ops.reshape(position, (1,)), axis=1)  # (B, 1)
            logits, cache = self.model.step(last, cache)
            samples = sample(ops.cast(logits[:, -1], "float32"), position)
            is_next = is_own & (columns == position + 1)
            return position + 1, ops.where(is_next, samples[:, None], token_ids), cache

        state = ops.convert_to_tensor(0), token_ids, self.model.start(num_rows, length, context)
        _, token_ids, _ = ops.while_loop(lambda position, *_: position < length - 1, write, state)
        return {**inputs, "decoder_token_ids": token_ids}
