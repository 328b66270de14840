"""What encoder-decoders share: the inputs, two stacks of blocks, and decoding. A decoder-only model is one
stack.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfm.layers.cache import PositionCache
from keras_tfm.layers.stacks import start_blocks, step_blocks
from keras_tfm.models.base import ConfiguredModel, Trace


@dataclasses.dataclass(frozen=True)
class Stack:
    """An encoder or a decoder: it embeds tokens, applies its blocks and, last, a norm.

    Args:
        embed: a function of token ids and positions (by default 0, 1, 2, ...) that gives (B, T, D).
        blocks: the blocks, in order.
        norm: a layer after the blocks; None where each block normalises its output.
        bias: a layer called on (B, T, D), whose output all blocks add to the scores of their self-attention.
    """

    embed: Callable
    blocks: list
    norm: Any = None
    bias: Any = None

    def run(self, trace, name, x, mask, **tensors):
        """The output (B, T, D) for embedded tokens `x`, whose stack is called `name` in the `trace`;
        `tensors` are for the blocks' parts besides self-attention.
        """
        bias = None if self.bias is None else self.bias(x)
        attention = {"mask": mask, "bias": bias}
        return self.finish(trace.run(name, self.blocks, x, attention=attention, **tensors))

    def finish(self, x):
        """The last block's output, after the norm if there is one."""
        return x if self.norm is None else self.norm(x)

    def start(self, batch_size, max_length, context=None, context_mask=None):
        """A decoder's cache for up to `max_length` tokens with `context` (B, S, D)."""
        blocks = start_blocks(self.blocks, batch_size, max_length, context, context_mask)
        return DecoderCache(PositionCache.empty(batch_size), blocks)

    def step(self, token_ids, cache, padding_mask=None):
        """A decoder's output (B, T, D) at the next T tokens (B, T), and the new cache."""
        length = ops.shape(token_ids)[1]
        positions, position = cache.position.append(length, padding_mask)
        bias = None
        if self.bias is not None:
            bias = self.bias.bias(*cache.blocks[0].attention.next_positions(length))
        x = self.embed(token_ids, positions)
        x, blocks = step_blocks(self.blocks, x, cache.blocks, padding_mask, bias)
        return self.finish(x), DecoderCache(position, blocks)


class DecoderCache(NamedTuple):
    """The cache of a decoder: where the next token stands, and the caches of the blocks."""

    position: PositionCache
    blocks: Any


class DecodingModel(ConfiguredModel):
    """A model whose `decoder`, a `Stack`, writes token by token. Abstract.

    The decoder has positions for `max_target_length` tokens; None for any number. Of a picture the last token
    is written, but not read (`reads_last`): a decoding loop may ask for one token more.
    """

    decoder: Stack
    max_target_length: int | None
    reads_last = True

    def start(self, batch_size, max_length, context=None):
        """A cache for up to `max_length` tokens. Raises ValueError if the decoder has fewer positions.

        An encoder-decoder encodes the `context` here, {input of the encoder: what it is}.
        """
        return self.decoder.start(batch_size, self.cache_length(max_length), *self.encoded(context))

    def encoded(self, context):
        """What the decoder attends to besides its tokens, if anything, and perhaps its mask."""
        return ()

    def step(self, token_ids, cache, padding_mask=None):
        """The decoder's output (B, T, D) at the next T tokens (B, T), and the new cache."""
        return self.decoder.step(token_ids, cache, padding_mask)

    def cache_length(self, length):
        """How many of `length` tokens are read. Raises ValueError if the decoder has fewer positions."""
        most = self.max_target_length
        if most is None or not isinstance(length, int):
            return length
        if not self.reads_last and length == most + 1:
            return most
        if length > most:
            raise ValueError(f"The decoder has positions for {most} tokens; {length} are asked for.")
        return length


class Seq2SeqModel(DecodingModel):
    """An encoder-decoder: token ids of a source and a target in, hidden states out. Abstract.

    Inputs: `token_ids` (B, S), `padding_mask` (B, S), `decoder_token_ids` (B, T) and `decoder_padding_mask`
    (B, T). Outputs: `encoder_sequence_output` (B, S, D) and `decoder_sequence_output` (B, T, D). The
    encoder's final output is the context of every decoder block.

    Args:
        encoder: a `Stack`, as is `decoder`.
        embedding: the embedding of source tokens; `output_embedding` the embedding of target tokens.
        dropout: a layer applied to the input of each stack's first block.
        drop_outputs: whether it is applied to the outputs of the stacks too.
        max_length: how many tokens the decoder has positions for; None for any number.
    """

    def __init__(
        self,
        config,
        encoder,
        decoder,
        embedding,
        output_embedding,
        dropout,
        drop_outputs=False,
        max_length=None,
        **kwargs,
    ):
        inputs = seq2seq_inputs()
        trace = Trace()
        x = dropout(encoder.embed(inputs["token_ids"]))
        encoded = encoder.run(trace, "encoder", x, inputs["padding_mask"])
        encoded = dropout(encoded) if drop_outputs else encoded
        x = dropout(decoder.embed(inputs["decoder_token_ids"]))
        context = {"context": encoded, "mask": inputs["padding_mask"]}
        mask = inputs["decoder_padding_mask"]
        decoded = decoder.run(trace, "decoder", x, mask, context_attention=context)
        decoded = dropout(decoded) if drop_outputs else decoded
        outputs = {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}
        super().__init__(config, inputs, outputs, trace, **kwargs)
        self.embedding, self.output_embedding = embedding, output_embedding
        self.encoder, self.decoder = encoder, decoder
        self.max_target_length = max_length

    def encode(self, token_ids, padding_mask=None):
        """The encoder's output (B, S, D)."""
        return self.encoder.run(Trace(), "encoder", self.encoder.embed(token_ids), padding_mask)

    def encoded(self, context):
        """Of `context`, {"token_ids", "padding_mask"}: the encoder's output (B, S, D), and the mask."""
        padding_mask = context.get("padding_mask")
        return self.encode(context["token_ids"], padding_mask), padding_mask


def seq2seq_inputs():
    """`token_ids` and `padding_mask`, (B, S), and the decoder's, (B, T)."""
    return {
        f"{side}{name}": keras.Input((None,), dtype=dtype, name=f"{side}{name}")
        for side in ("", "decoder_")
        for name, dtype in (("token_ids", "int32"), ("padding_mask", "bool"))
    }
