"""In every family the recorded attention weights are the weights by which the layers average.

They are computed once more, in float64, from the scores that the layers compute. Without attention are BiT,
FNet, MLPMixer, ResNet, ResNetVD, Recurrent and Autoregressive. tests/layers/test_deformable.py has the
weights of DeformableDETR's and RTDETR's points by cells; Mask2Former's encoder looks at such points too, and
tests/models/test_mask2former.py has the weights of its decoder; TransTrack's blocks are DeformableDETR's.
tests/models/test_tmt.py has what TMT's attention transfers.
"""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm import models
from keras_tfm.layers import Attention
from keras_tfm.layers.attention.alignment import Alignment
from keras_tfm.tasks import IMAGE_FAMILIES
from keras_tfm.visualize import record_attention
from tests import contract
from tests.models import (
    test_autoformer,
    test_clip,
    test_clip4clip,
    test_conditional_detr,
    test_detr,
    test_mask_former,
    test_mmt,
    test_siglip,
    test_smca,
    test_timesformer,
    test_transt,
    test_trtr,
    test_videomae,
    test_vilbert,
    test_vision_encoder_decoder,
    test_vistr,
    test_vit_mae,
    test_vivit,
)

SMALL = {"vocabulary_size": 9, "dim": 8, "num_heads": 2, "intermediate_dim": 6, "num_layers": 2}
TEXT_FAMILIES = ("ALBERT", "BART", "BERT", "DeBERTa", "DistilBERT", "GPT2", "RoBERTa", "T5", "Transformer")
WITHOUT_ATTENTION = ("bit", "mlpmixer", "resnet", "resnetvd")
# {family: (its small model, the shapes of its inputs)} for families that read more than ids, or than images.
OTHERS = {
    "AutoFormerSupernet": (
        lambda: models.AutoFormerSupernet(test_autoformer.SPACE),
        {"images": (8, 12, 1), "network": (5,)},
    ),
    "CLIP": (lambda: models.CLIP(test_clip.SMALL), {"images": (4, 6, 1), "token_ids": (5,)}),
    "CLIP4Clip": (
        lambda: models.CLIP4Clip(test_clip4clip.SMALL),
        {"videos": (3, 4, 6, 1), "token_ids": (5,)},
    ),
    "ConditionalDETR": (
        lambda: models.ConditionalDETR(test_conditional_detr.SMALL),
        {"images": (20, 24, 1)},
    ),
    "DETR": (lambda: models.DETR(test_detr.SMALL), {"images": (20, 24, 1)}),
    "MaskFormer": (lambda: models.MaskFormer(test_mask_former.SMALL), {"images": (20, 24, 1)}),
    "MMT": (
        lambda: models.MMT(test_mmt.SMALL),
        {"face_features": (7, 5), "sound_features": (3, 3), "token_ids": (5,)},
    ),
    "SigLIP": (lambda: models.SigLIP(test_siglip.SMALL), {"images": (4, 6, 1), "token_ids": (5,)}),
    "SMCA": (lambda: models.SMCA(test_smca.SMALL), {"images": (20, 24, 1)}),
    "TransT": (
        lambda: models.TransT(test_transt.SMALL),
        {"template_images": (12, 16, 1), "images": (20, 24, 1)},
    ),
    "TrTr": (
        lambda: models.TrTr(test_trtr.SMALL),
        {"template_images": (12, 16, 1), "images": (20, 24, 1)},
    ),
    "TimeSformer": (lambda: models.TimeSformer(test_timesformer.DIVIDED), {"videos": (3, 4, 4, 1)}),
    "VideoMAE": (lambda: models.VideoMAE(test_videomae.SMALL), {"videos": (4, 4, 6, 1)}),
    "ViLBERT": (
        lambda: models.ViLBERT(test_vilbert.SMALL),
        {"image_tokens": (4, 6), "text_tokens": (5, 8)},
    ),
    "VisionEncoderDecoder": (
        lambda: models.VisionEncoderDecoder(test_vision_encoder_decoder.SMALL),
        {"images": (12, 12, 1), "decoder_token_ids": (5,)},
    ),
    "VisTR": (lambda: models.VisTR(test_vistr.SMALL), {"videos": (2, 20, 24, 1)}),
    "ViTMAE": (lambda: models.ViTMAE(test_vit_mae.SMALL), {"images": (4, 6, 1), "noise": (6,)}),
    "ViViT": (lambda: models.ViViT(test_vivit.FACTORIZED), {"videos": (4, 4, 6, 1)}),
}
# (Family, whether `make test` asks it): one of each kind of attention is enough there.
QUICK = ("BERT", "T5", "xcit", "swinv2", "ViLBERT")
FAMILIES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in (
        *TEXT_FAMILIES,
        *(name for name in IMAGE_FAMILIES if name not in WITHOUT_ATTENTION),
        *OTHERS,
    )
]


def small_model(name):
    if name in OTHERS:
        return OTHERS[name][0]()
    if name in IMAGE_FAMILIES:
        family = IMAGE_FAMILIES[name]
        return family(models.tiny_config(family))
    config = getattr(models, name).config_class
    fields = {field.name for field in dataclasses.fields(config)}
    return getattr(models, name)(config(**{key: SMALL[key] for key in SMALL.keys() & fields}))


def draw(name, model):
    """Random images or ids; what else the model takes it fills in."""
    rng = np.random.default_rng(0)
    if name in OTHERS:
        shapes = OTHERS[name][1].items()
        return {
            key: rng.integers(4, 9, (2, *shape))
            if key.endswith("_ids") or key == "network"
            else rng.normal(size=(2, *shape)).astype("float32")
            for key, shape in shapes
        }
    if "images" in model.input:
        return {"images": rng.normal(size=(2, *model.input["images"].shape[1:])).astype("float32")}
    names = [name for name in model.input if name.endswith("token_ids")]
    return {name: rng.integers(4, SMALL["vocabulary_size"], (2, 5)) for name in names}


def softmax(scores, mask):
    """In float64; 0 where `mask` is False."""
    scores = np.asarray(scores, "float64")
    parts = np.exp(scores - scores.max(-1, keepdims=True)) * (1 if mask is None else np.asarray(mask))
    return parts / parts.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_recorded_weights_are_those_that_the_layers_average_by(name, monkeypatch):
    model = small_model(name)
    contract.randomise(model, seed=1)
    weighed, averaged = [], []
    weigh, average = Attention.weigh, Attention.average

    def spy_on_weigh(layer, scores, mask=None, training=None):
        weights = weigh(layer, scores, mask, training)
        if layer.on_scores is not None:
            scores = layer.on_scores(scores, **({"mask": mask} if layer.masks_scores else {}))
        weighed.append((softmax(scores, mask), weights, layer.on_weights is None))
        return weights

    def spy_on_average(layer, weights, value, *positions, **options):
        heads = average(layer, weights, value, *positions, **options)
        if layer.position is None:
            averaged.append((np.asarray(weights, "float64") @ np.asarray(value, "float64"), heads))
        return heads

    monkeypatch.setattr(Attention, "weigh", spy_on_weigh)
    monkeypatch.setattr(Attention, "average", spy_on_average)
    with record_attention(model) as recorded:
        model(draw(name, model))
    recorded = [w for found in recorded.values() for w in (found if isinstance(found, list) else [found])]
    assert len(recorded) == len(weighed) > 0
    by_place = sorted(map(id, recorded))
    assert by_place == sorted(id(weights) for _, weights, _ in weighed)
    for expected, weights, is_softmax in weighed:
        if is_softmax:
            np.testing.assert_allclose(ops.convert_to_numpy(weights), expected, atol=1e-6)
    for expected, heads in averaged:
        scale = max(1, np.abs(expected).max())
        np.testing.assert_allclose(ops.convert_to_numpy(heads) / scale, expected / scale, atol=1e-6)


def test_recorded_alignments_are_those_that_the_cells_average_by(monkeypatch):
    """tests/layers/test_recurrent.py computes the weights themselves once more, in float64."""
    model = small_model("RecurrentSeq2Seq")
    contract.randomise(model, seed=1)
    averaged, average = [], Alignment._average

    def spy(layer, weights, cache, query):
        y = average(layer, weights, cache, query)
        averaged.append((weights, np.asarray(weights, "float64") @ np.asarray(cache.value, "float64"), y))
        return y

    monkeypatch.setattr(Alignment, "_average", spy)
    with record_attention(model) as recorded:
        model(draw("RecurrentSeq2Seq", model))
    (steps,) = recorded.values()
    assert len(steps) == len(averaged) > 0
    for weights, (own, expected, y) in zip(steps, averaged, strict=True):
        np.testing.assert_array_equal(weights[:, 0], own)
        np.testing.assert_allclose(y, expected, atol=1e-6)
