"""CTranslate2: the weights of a model that writes texts, for a C++ engine with decoding loops of its own.

`ctranslate2.specs` describes a model to the engine, part by part. What it has no part for, and what it
decodes otherwise than this package, is refused.
"""

import keras
import numpy as np

from keras_tfm.configs import Field, FieldError

RUNTIME = "ctranslate2"

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "gelu_quick": "GELUSigmoid",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
}

# Fields of `DecodingOptions` that CTranslate2 lacks or means otherwise, and the values that ask for nothing.
# Its penalty counts no prompt; its ban of repeated n-grams no start token.
NEVER = {
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "forced_last_ids": (),
    "sequence_bias": (),
    "forbidden_sequences": (),
    "prompt_repetition_penalty": 1.0,
    "prompt_no_repeat_ngram_size": 0,
    "length_decay": None,
    "first_suppressed_ids": (),
    "renormalize": False,
    "processors": (),
}
# With beams it bans tokens before it takes the softmax, not after, and scores no forced token.
NOT_WITH_BEAMS = {"min_new_tokens": 0, "forced_first_id": None, "suppressed_ids": ()}


def write_writer(signature, folder, quantization):
    """Write a task that writes texts, and return the arguments of `keras_tfm.serving.writing.Decoder`;
    ValueError for what it lacks, or would decode otherwise.
    """
    writing = signature.function
    if writing.stop:
        raise ValueError("ctranslate2 ends a text by end tokens alone: there must be no `stop`.")
    decoding = decoding_of(writing.options, writing.end_ids, writing.context is not None)
    ends, length = (writing.start_id, writing.end_ids[0]), signature.reads.get("max_length")
    write(writing.model, folder / "model", quantization, *ends, length)
    return decoding


def decoding_of(options, end_ids, has_source):
    """The arguments of the decoder for `DecodingOptions`; ValueError for what would be decoded otherwise than
    by the task.
    """
    if options.samples or options.contrastive_alpha is not None:
        raise ValueError("ctranslate2: an export writes likely texts, it neither samples nor contrasts.")
    plain = NEVER | (NOT_WITH_BEAMS if options.beam_size > 1 else {})
    for name, value in plain.items():
        if getattr(options, name) != value:
            with_beams = " with beams" if name in NOT_WITH_BEAMS else ""
            raise FieldError(
                "ctranslate2 decodes {}{} otherwise than the task: it must be {!r}; it is {!r}.",
                Field(name),
                with_beams,
                value,
                getattr(options, name),
            )
    if options.forced_first_id is not None and not has_source:
        raise ValueError("ctranslate2 has no `forced_first_id` for prompts.")
    if options.beam_size > 1 and (options.early_stopping is not True or len(end_ids) > 1):
        raise FieldError(
            "ctranslate2 ends a beam search once {beam_size} texts have ended, by one end token: "
            "{early_stopping} must be True, it is {!r}, and there are {} end tokens.",
            options.early_stopping,
            len(end_ids),
        )
    return {
        "has_source": has_source,
        "prefix": [] if options.forced_first_id is None else [options.forced_first_id],
        "end": list(end_ids),
        "beam_size": options.beam_size,
        "length_penalty": options.length_penalty,
        "max_new_tokens": options.max_new_tokens,
        "min_new_tokens": options.min_new_tokens,
        "suppressed": list(options.suppressed_ids),
    }


def write(model, folder, quantization, start_id, end_id, max_length):
    """Write a `LanguageModel` to `folder`; "int8" keeps the weights of products and tables in 8 bits.

    `max_length` is how many positions a model with computed positions gets. ValueError for a family or an
    activation that CTranslate2 lacks.
    """
    backbone = model.backbone
    family = type(backbone).__name__
    if family not in FAMILIES:
        raise ValueError(f"ctranslate2 holds {', '.join(FAMILIES)}; it cannot hold {family}.")
    spec = FAMILIES[family](backbone, max_length)
    _write_head(spec.decoder, model.head)
    target = _names(backbone.output_embedding)
    if family == "GPT2":
        spec.register_vocabulary(target)
    else:
        spec.register_source_vocabulary(_names(backbone.embedding))
        spec.register_target_vocabulary(target)
        spec.config.decoder_start_token = str(start_id)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "0", str(start_id), str(end_id)
    spec.config.layer_norm_epsilon = backbone.config.epsilon
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir()
    spec.save(str(folder))


def _names(embedding):
    """CTranslate2 takes and gives strings: the ids, written out."""
    return list(map(str, range(embedding.vocabulary_size)))


def _transformer(backbone, max_length):
    config = backbone.config
    sizes = config.num_layers, config.num_heads
    spec = _seq2seq(backbone, sizes, sizes, config.normalize_first)
    for side, embedding in ((spec.encoder, backbone.embedding), (spec.decoder, backbone.output_embedding)):
        side.scale_embeddings = embedding.scale
        side.position_encodings.encodings = _positions(embedding.position, max_length + 1, config.dim)
    return spec


def _bart(backbone, max_length):
    config = backbone.config
    sizes = (config.num_layers, config.num_heads), config.decoder_sizes[:2]
    spec = _seq2seq(backbone, *sizes, config.normalize_first, layernorm_embedding=True)
    unused = config.num_positions - config.max_length  # rows in front
    for name, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        side.scale_embeddings = config.scale_embedding
        position = backbone.get_layer(f"{name}_position")
        side.position_encodings.encodings = _positions(position, config.max_length, config.dim, unused)
        _write_norm(side.layernorm_embedding, backbone.get_layer(f"{name}_embedding_norm"))
    return spec


def _t5(backbone, max_length):
    config = backbone.config
    depths = [len(stack.blocks) for stack in (backbone.encoder, backbone.decoder)]
    encoder, decoder = ((depth, config.num_heads) for depth in depths)
    kind = {"rms_norm": True, "relative_attention_bias": True, "ffn_glu": config.gated}
    spec = _seq2seq(backbone, encoder, decoder, True, **kind)
    for side, stack in ((spec.encoder, backbone.encoder), (spec.decoder, backbone.decoder)):
        side.scale_embeddings = False
        for layer in side.layer:  # each has the table of the stack
            layer.self_attention.relative_attention_bias = _array(stack.bias.table)
            layer.self_attention.relative_attention_max_distance = np.int32(stack.bias.max_distance)
    return spec


def _gpt2(backbone, max_length):
    from ctranslate2.specs import TransformerDecoderModelSpec

    config = backbone.config
    spec = TransformerDecoderModelSpec.from_config(
        config.num_layers,
        config.num_heads,
        pre_norm=config.normalize_first,
        activation=_activation(config),
    )
    spec.decoder.scale_embeddings = False
    spec.decoder.embeddings.weight = _table(backbone.embedding)
    position = backbone.embedding.position
    spec.decoder.position_encodings.encodings = _positions(position, config.max_length, config.dim)
    _write_stack(spec.decoder, backbone.decoder)
    return spec


FAMILIES = {"Transformer": _transformer, "BART": _bart, "T5": _t5, "GPT2": _gpt2}


def _seq2seq(backbone, encoder_sizes, decoder_sizes, pre_norm, **kind):
    """The specification with the tokens and the blocks of both stacks; sizes are (layers, heads)."""
    from ctranslate2 import specs

    kind |= {"pre_norm": pre_norm, "activation": _activation(backbone.config)}
    heads = backbone.encoder.blocks[0].attention.branch.projections
    if heads.key_width * heads.num_heads != backbone.config.dim:
        kind["head_dim"] = heads.key_width
    encoder = specs.TransformerEncoderSpec(*encoder_sizes, **kind)
    decoder = specs.TransformerDecoderSpec(*decoder_sizes, **kind)
    encoder.embeddings[0].weight = _table(backbone.embedding)
    decoder.embeddings.weight = _table(backbone.output_embedding)
    _write_stack(encoder, backbone.encoder)
    _write_stack(decoder, backbone.decoder)
    return specs.TransformerSpec(encoder, decoder)


def _activation(config):
    from ctranslate2.specs import Activation

    if config.activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"ctranslate2 has the activations {known}; it has no {config.activation!r}.")
    return Activation[ACTIVATIONS[config.activation]]


def _table(embedding):
    return _array(embedding.token.embeddings)


def _array(x):
    return keras.ops.convert_to_numpy(x).astype("float32")


def _positions(layer, count, dim, first=0):
    """What a layer adds to the vectors (count, dim) at the positions from `first` on."""
    positions = np.arange(first, first + count, dtype="int32")
    return _array(layer(np.zeros((1, count, dim), "float32"), positions=positions[None]))[0]


def _write_stack(spec, stack):
    if stack.norm is not None:
        _write_norm(spec.layer_norm, stack.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _write_attention(layer.self_attention, block.attention)
        if block.context_attention is not None:
            _write_attention(layer.attention, block.context_attention)
        feedforward, spec_of = block.feedforward.branch, layer.ffn
        if feedforward.gated:
            _write_product(spec_of.linear_0, feedforward.gate)
            _write_product(spec_of.linear_0_noact, feedforward.value)
        else:
            _write_product(spec_of.linear_0, feedforward.hidden)
        _write_product(spec_of.linear_1, feedforward.output_projection)
        _write_norm(spec_of.layer_norm, block.feedforward.norm)


def _write_attention(spec, residual):
    attention, heads = residual.branch, residual.branch.projections
    if heads.is_self_attention:
        _write_product(spec.linear[0], heads.query_key_value)
    else:
        _write_product(spec.linear[0], heads.query)
        _write_product(spec.linear[1], heads.key_value)
    _write_product(spec.linear[-1], attention.output_projection)
    _write_norm(spec.layer_norm, residual.norm)
    if attention.scale is not None:
        spec.queries_scale = float(attention.scale)


def _write_product(spec, layer):
    """A dense layer; CTranslate2 keeps the transposed weights."""
    spec.weight = np.ascontiguousarray(_array(layer.kernel).T)
    if layer.bias is not None:
        spec.bias = _array(layer.bias)


def _write_norm(spec, layer):
    spec.gamma = _array(layer.gamma)
    if hasattr(layer, "beta"):
        spec.beta = _array(layer.beta)


def _write_head(spec, head):
    """The product with the vocabulary."""
    if head.embedding is None:
        _write_product(spec.projection, head.dense)
    else:
        spec.projection.weight = _table(head.embedding)
    if head.bias is not None:
        spec.projection.bias = _array(head.bias)
    if head.scale != 1:
        spec.scale_outputs = np.float32(head.scale)
