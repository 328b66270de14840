"""Published SentencePiece models, completed so that one model has all ids and all rules of its family.

T5, ALBERT, DeBERTa-v2/v3, mBART and SigLIP add tokens to the pieces of their model, move pieces, or change a
text before the model reads it. Here the model itself is changed instead: it gets all pieces in their final
order, and one table of normalisation that does all of the family's steps. A tokenizer.json of the same kind
is read as such a model, and a model is written as a tokenizer.json. The results differ in two places. At the
ends of a text, SentencePiece keeps a "next line", U+0085, which the `tokenizers` library removes. And the
library looks up a character with its marks and joiners; if all are less than 6 bytes, and the table replaces
their beginning, the rest is lost.
"""

import base64
import binascii
import functools
import io
import pathlib
import re
import string
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.added import FLAGS, AddedToken, appended
from keras_tfm.data.tokenizers.published import Published, write_options
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.data.tokenizers.unigram import chunks
from keras_tfm.training.safetensors import read_json

Kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
NUM_SENTINELS = 100
DEMOTION = 100  # ALBERT takes a piece that ends in a digit and a comma only if there is no other way
MASKS = "[MASK]", "<mask>"
ROLES = {"pad": ("<pad>", "[PAD]"), "bos": ("[CLS]", "<s>"), "eos": ("[SEP]", "</s>")}
# mBART: Liu et al. 2020, table 1; mBART-50: Tang et al. 2020, table 1, in the order of their ids.
LANGUAGES = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM
    ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
MORE_LANGUAGES = """
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE
    sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
CANONICAL = "siglip"  # the name of SigLIP's normalisation: small letters, no punctuation, single spaces
SEPARATOR = "\U0010ffff"  # not a character, so that no rule applies to it


def read_model(folder) -> bytes:
    """The model in a folder's spiece.model, spm.model or sentencepiece.bpe.model, or else tokenizer.json;
    also where tokenizer.json has other pieces.
    """
    folder = pathlib.Path(folder)
    options: dict = {}
    for name in ("config.json", "tokenizer_config.json"):
        options |= read_json(folder / name) if (folder / name).is_file() else {}
    stated = read_json(folder / "tokenizer.json") if (folder / "tokenizer.json").is_file() else {}
    for name, arrange in (
        ("spiece.model", _arrange_spiece),
        ("spm.model", _arrange_spm),
        ("sentencepiece.bpe.model", _arrange_fairseq),
    ):
        path = folder / name
        if path.is_file():
            try:
                proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
                arrange(proto, options)
                if _agree(proto, stated):
                    return _finish(proto, options)
            except Exception as error:  # protobuf's DecodeError is private
                raise DataError(path, None, f"expected a SentencePiece model ({error})") from error
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise DataError(
            folder,
            None,
            "expected spiece.model, spm.model, sentencepiece.bpe.model or tokenizer.json, got none",
        )
    try:
        return _finish(_from_json(stated, path, Published(folder).is_general), options)
    except (ValueError, TypeError, KeyError) as error:
        raise (
            error
            if isinstance(error, DataError)
            else DataError(path, None, f"expected a unigram tokenizer ({error})")
        ) from error


def _agree(proto, stated) -> bool:
    """Whether the content of a tokenizer.json, if any, begins with the pieces of a model or the other way."""
    model = stated.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, list):
        return True
    return all(
        isinstance(entry, list) and entry[:1] == [piece.piece]
        for piece, entry in zip(proto.pieces, vocabulary, strict=False)
    )


def with_tokens(model: bytes, added: Sequence[AddedToken]) -> bytes:
    """The model, and after its pieces the `added` tokens that it does not have, in the order of their ids."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    names = appended(added, [piece.piece for piece in proto.pieces])
    _append(proto, names)
    return proto.SerializeToString(deterministic=True) if names else model


def normalizing_model(model: bytes, characters: Iterable[str]) -> bytes:
    """A model whose pieces are single `characters` and runs of others, of texts normalised as by `model`."""
    proto, own = sentencepiece_model_pb2.ModelProto(), sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.trainer_spec.model_type = proto.trainer_spec.CHAR
    proto.trainer_spec.unk_piece = "no character"
    proto.normalizer_spec.CopyFrom(own.normalizer_spec)
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = False
    proto.pieces.add(piece=proto.trainer_spec.unk_piece, score=0.0, type=Kinds.UNKNOWN)
    for character in sorted({" ", *characters}):
        proto.pieces.add(piece=character, score=0.0, type=Kinds.NORMAL)
    return proto.SerializeToString(deterministic=True)


def train_canonical(lines: list[str], vocabulary_size: int) -> bytes:
    """Train a unigram model of at most `vocabulary_size` pieces like SigLIP's, and return it serialised.

    It reads lower-cased text without punctuation, has no pieces for bytes, and pads with the end token.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=chunks([_without_punctuation(line.lower()) for line in lines]),
        model_writer=model,
        model_type="unigram",
        vocab_size=vocabulary_size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=4,  # fixed: the model depends on it
        minloglevel=2,
    )
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    _arrange_spiece(proto, {"model_type": "siglip"})
    return _finish(proto, {})


def write_model(model: bytes, added: Sequence[AddedToken], special: SpecialTokens, ends_between: int, folder):
    """Write `model` into `folder` as tokenizer.json and tokenizer_config.json, with all its `added` tokens;
    `special` are the ids before and after a text, and `ends_between` ends stand between two.
    """
    import tokenizers
    from tokenizers import decoders, normalizers, pre_tokenizers, processors

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    found, pieces = {token.content for token in added}, list(proto.pieces)
    while pieces[-1].type == Kinds.CONTROL and pieces[-1].piece in found:
        pieces.pop()  # the library would take a token of its model out of any text
    pieces = [(piece.piece, piece.score) for piece in pieces]
    spec = proto.trainer_spec
    whole = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, spec.unk_id, spec.byte_fallback))
    for token in added:
        flags = {name: getattr(token, name) for name in FLAGS}
        whole.add_tokens([tokenizers.AddedToken(token.content, **flags)])
    control = [token.content for token in added if token.special]
    table = sentencepiece.SentencePieceNormalizer(normalizer_spec=proto.normalizer_spec)
    whole.normalizer = normalizers.Sequence(
        [
            # The library looks up one character with its marks at a time; rules for several ASCII characters
            # would never apply, so they are written as replacements before the table.
            *(normalizers.Replace(*rule) for rule in table.Decompile() if rule[0].isascii() and rule[0][1:]),
            normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
            normalizers.Strip(),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    whole.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    if any(token.normalized for token in added):  # white space beside such a token is no piece
        whole.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), whole.pre_tokenizer])
    whole.decoder = decoders.Metaspace(prepend_scheme="always")
    is_pair = "[CLS]" in control  # models of this kind number the second text of a pair as segment 1
    prefix, suffix = ([proto.pieces[i].piece for i in ids] for ids in special)
    between = [*suffix, *[spec.eos_piece] * (ends_between - 1)]
    last = [f"{name}:{int(is_pair)}" for name in suffix]
    whole.post_processor = processors.TemplateProcessing(
        single=[*prefix, "$A", *suffix],
        pair=[*prefix, "$A", *between, f"$B:{int(is_pair)}", *last],
        special_tokens=[(name, whole.token_to_id(name)) for name in {*prefix, *suffix}],
    )
    names = {"pad": spec.pad_piece, "unk": spec.unk_piece}
    names |= dict.fromkeys(("eos", "sep"), spec.eos_piece) | dict.fromkeys(("bos", "cls"), spec.bos_piece)
    names["mask"] = next((name for name in MASKS if name in control), "")
    options = {f"{role}_token": name for role, name in names.items() if name}
    options["tokenizer_class"] = "PreTrainedTokenizerFast"
    options["extra_special_tokens"] = [name for name in control if name not in names.values()]
    whole.save(str(pathlib.Path(folder, "tokenizer.json")))
    write_options(options, folder)


def write_canonical(model: bytes, folder):
    """Write a `model` of SigLIP into `folder` as spiece.model and tokenizer_config.json. `transformers`
    normalises a text too before the model's table does it again.
    """
    pathlib.Path(folder, "spiece.model").write_bytes(model)
    spec = sentencepiece_model_pb2.ModelProto.FromString(model).trainer_spec
    options = {
        "tokenizer_class": "SiglipTokenizer",
        "model_input_names": ["input_ids"],  # no mask: SigLIP reads padding like other tokens
        "do_lower_case": True,
        "eos_token": spec.eos_piece,
        "pad_token": spec.pad_piece,
        "unk_token": spec.unk_piece,
    }
    write_options(options, folder)


def _arrange_spiece(proto, options):
    """Complete the model of a spiece.model: SigLIP's, ALBERT's, which has [CLS], or T5's.

    T5's sentinels come after the pieces, the last one first.
    """
    if "siglip" in f"{options.get('tokenizer_class', '')} {options.get('model_type', '')}".lower():
        if not options.get("do_lower_case", True):
            raise ValueError("expected a tokenizer of lower-cased text, do_lower_case is false")
        _normalize_first(proto, [str.lower, _without_punctuation, _with_spaces])
        proto.normalizer_spec.name = CANONICAL
        return
    if all(piece.piece != "[CLS]" for piece in proto.pieces):
        count = options.get("extra_ids", NUM_SENTINELS)
        _append(proto, [f"<extra_id_{i}>" for i in reversed(range(count))])
        return
    for piece in proto.pieces:
        if piece.piece == "[MASK]":
            piece.type = Kinds.CONTROL
        if len(piece.piece) > 1 and piece.piece.endswith(",") and piece.piece[-2].isdigit():
            piece.score -= DEMOTION
    steps: list = [("``", '"'), ("''", '"')]
    if not options.get("keep_accents", False):
        steps += [_nfkd, _without_marks]
    if options.get("do_lower_case", True):
        steps.append(str.lower)
    _normalize_first(proto, steps)


def _arrange_spm(proto, options):
    """Complete the model of DeBERTa-v2 or -v3: [MASK] comes after the pieces."""
    _append(proto, ["[MASK]"])
    if options.get("do_lower_case", False):
        _normalize_first(proto, [str.lower])


def _arrange_fairseq(proto, options):
    """Complete the model of mBART or XLM-R: fairseq's four special tokens come first, languages and <mask>
    last.
    """
    pieces = list(proto.pieces)[3:]
    unknown = proto.pieces[0]
    del proto.pieces[:]
    _append(proto, ["<s>", "<pad>", "</s>"])
    proto.pieces.append(unknown)
    proto.pieces.extend(pieces)
    family = f"{options.get('tokenizer_class', '')} {options.get('model_type', '')}".lower()
    languages = LANGUAGES + (MORE_LANGUAGES if "mbart50" in family else "") if "mbart" in family else ""
    _append(proto, [*languages.split(), "<mask>"])


def _from_json(content, path, is_general):
    """The model for the content of a tokenizer.json; DataError for another kind of tokenizer. `is_general`
    says that its pre-tokenizer counts, and not the pre-tokenizer of a class.
    """
    model, vocabulary = content.get("model") or {}, (content.get("model") or {}).get("vocab")
    if model.get("type") != "Unigram" or not isinstance(vocabulary, list):
        raise DataError(path, None, f"model type: expected 'Unigram', got {model.get('type')!r}")
    proto = sentencepiece_model_pb2.ModelProto()
    proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
    proto.trainer_spec.byte_fallback = bool(model.get("byte_fallback", False))
    for i, (piece, score) in enumerate(vocabulary):
        is_byte = proto.trainer_spec.byte_fallback and len(piece) == 6 and piece.startswith("<0x")
        kind = Kinds.UNKNOWN if i == model.get("unk_id") else Kinds.BYTE if is_byte else Kinds.NORMAL
        proto.pieces.add(piece=piece, score=score, type=kind)
    for token in sorted(content.get("added_tokens") or [], key=lambda token: token["id"]):
        if token["id"] == len(proto.pieces):
            _append(proto, [token["content"]])
        elif token["id"] > len(proto.pieces) or proto.pieces[token["id"]].piece != token["content"]:
            raise DataError(path, None, f"added_tokens: {token['content']!r} has no place at {token['id']}")
        elif proto.pieces[token["id"]].type != Kinds.UNKNOWN and proto.pieces[token["id"]].score == 0:
            proto.pieces[token["id"]].type = Kinds.CONTROL
    steps, charsmap = _normalization(content, path, is_general)
    proto.normalizer_spec.precompiled_charsmap = charsmap
    if steps:
        _normalize_first(proto, steps)
    return proto


def _normalization(content, path, is_general):
    """(The steps of normalisation in tokenizer.json before its table of characters; that table)."""
    steps: list = []
    charsmap = b""
    for rule in _parts(content.get("normalizer"), "normalizers"):
        kind, pattern = rule.get("type"), rule.get("pattern") or {}
        if kind == "Precompiled":
            try:
                charsmap = base64.b64decode(rule.get("precompiled_charsmap") or "", validate=True)
            except binascii.Error as error:
                raise DataError(path, None, f"precompiled_charsmap: {error}") from error
        elif kind == "Replace" and pattern.get("Regex") == r"\s{2,}|[\n\r\t]":
            steps.append(_without_lines)
        elif kind == "Replace" and "String" in pattern:
            steps.append((pattern["String"], rule["content"]))
        elif kind in STEPS:
            steps.append(STEPS[kind])
        elif kind != "Strip" and pattern.get("Regex") != " {2,}":  # SentencePiece does these two itself
            raise DataError(path, None, f"normalizer: expected SentencePiece's rules, got {kind!r}")
    kinds = []
    for rule in _parts(content.get("pre_tokenizer"), "pretokenizers"):
        kinds.append(rule.get("type"))
        prefix = rule.get("prepend_scheme", "always" if rule.get("add_prefix_space", True) else "never")
        if rule.get("type") == "WhitespaceSplit":
            steps.append(_with_spaces)
        elif rule.get("type") != "Metaspace" or prefix == "never" or (is_general and prefix == "first"):
            raise DataError(path, None, f"pre-tokenizer: expected Metaspace with a prefix, got {rule}")
    if "Metaspace" not in kinds:
        raise DataError(path, None, f"pre-tokenizer: expected Metaspace, got {kinds}")
    return steps, charsmap


def _parts(rule, name) -> Iterable[dict]:
    """The rules of a sequence, or a single rule as a list."""
    if rule is None:
        return []
    return rule.get(name) or [] if rule.get("type") == "Sequence" else [rule]


def _without_punctuation(text):
    return text.translate(dict.fromkeys(map(ord, string.punctuation)))


def _without_marks(text):
    return "".join(x for x in text if not unicodedata.category(x).startswith("M"))


_nfkd = functools.partial(unicodedata.normalize, "NFKD")
_with_spaces = functools.partial(re.sub, r"\s", " ")
_without_lines = functools.partial(re.sub, r"[\n\r\t]", " ")
STEPS = {
    "NFKD": _nfkd,
    "NFC": functools.partial(unicodedata.normalize, "NFC"),
    "NFKC": functools.partial(unicodedata.normalize, "NFKC"),
    "StripAccents": _without_marks,
    "Lowercase": str.lower,
}


def _append(proto, names):
    for name in names:
        proto.pieces.add(piece=name, score=0.0, type=Kinds.CONTROL)


def _normalize_first(proto, steps):
    """Put `steps`, and the model's own normalisation after them, into one table of characters.

    A step is a function of a text, or a pair: the string to replace and its replacement.
    """
    spec = proto.normalizer_spec
    spec.precompiled_charsmap = _joined_table(spec.precompiled_charsmap, tuple(steps))


@functools.lru_cache(maxsize=8)  # a second for all characters there are, and few models differ in it
def _joined_table(charsmap, steps):
    """`charsmap` after `steps`; without a table, the steps alone."""
    spec = sentencepiece_model_pb2.NormalizerSpec(precompiled_charsmap=charsmap)
    options: dict = {"normalizer_spec": spec} if charsmap else {"rule_name": "nfkc"}
    flags = ("add_dummy_prefix", "escape_whitespaces", "remove_extra_whitespaces")
    own = sentencepiece.SentencePieceNormalizer(**options | dict.fromkeys(flags, False))

    def normal(texts):
        joined = SEPARATOR.join(texts)  # joined into one text, since there are hundreds of thousands
        for step in steps:
            joined = joined.replace(*step) if isinstance(step, tuple) else step(joined)
        values = joined.split(SEPARATOR)
        return own.normalize(values) if charsmap else values

    points = (chr(i) for i in range(1, sys.maxunicode))
    characters = [x for x in points if unicodedata.category(x) not in ("Cn", "Cs")]
    single = dict(zip(characters, normal(characters), strict=True))
    rules = {character: value for character, value in single.items() if value != character}
    sequences = [text for text, _ in own.Decompile() if len(text) > 1]
    sequences += [step[0] for step in steps if isinstance(step, tuple)]
    for text, value in zip(sequences, normal(sequences), strict=True):
        if value != "".join(single.get(character, character) for character in text):
            rules[text] = value
    return _charsmap(rules)


def _finish(proto, options) -> bytes:
    """The serialised model, with padding, start and end found by their names; SigLIP pads with the end."""
    ids = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    spec = proto.trainer_spec
    unknown = next((i for i, piece in enumerate(proto.pieces) if piece.type == Kinds.UNKNOWN), None)
    if unknown is None:
        raise ValueError("it has no unknown piece")
    spec.unk_id, spec.unk_piece = unknown, proto.pieces[unknown].piece
    is_canonical = proto.normalizer_spec.name == CANONICAL
    pad = {"pad": (str(options.get("pad_token", "</s>")),)} if is_canonical else {}
    for role, names in (ROLES | pad).items():
        name = next((name for name in names if name in ids), "")
        setattr(spec, f"{role}_piece", name)
        setattr(spec, f"{role}_id", ids.get(name, -1))
        if name:
            proto.pieces[ids[name]].type = Kinds.CONTROL
    if not proto.normalizer_spec.precompiled_charsmap:  # SentencePiece would log a line at every load
        proto.normalizer_spec.precompiled_charsmap = _charsmap({"▁": " "})
    return proto.SerializeToString(deterministic=True)


def _charsmap(rules: dict[str, str]) -> bytes:
    """SentencePiece's table for `rules`; where several fit, it applies the longest."""
    sentencepiece.set_min_log_level(2)
    normalizer = sentencepiece.SentencePieceNormalizer(norm_map=sorted(rules.items()))
    spec = sentencepiece_model_pb2.NormalizerSpec.FromString(normalizer.serialized_normalizer_spec())
    return spec.precompiled_charsmap
