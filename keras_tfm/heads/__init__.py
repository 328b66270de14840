"""Heads: from hidden states to predictions, each in one file with its loss.

A head is a layer; a model such as `Classifier` is a backbone with a head, and shares the backbone's weights.
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.heads.base import ModelWithHead
    from keras_tfm.heads.candidate_detectors import CellSetDetector, RegionSetDetector
    from keras_tfm.heads.candidate_losses import (
        CellSetPredictionLoss,
        RegionSetPredictionLoss,
        cells_fit,
        centredness_of,
        proposals_fit,
    )
    from keras_tfm.heads.classification import ClassificationHead, Classifier, classification_loss
    from keras_tfm.heads.clip_detector import ClipDetector, ClipSegmenter
    from keras_tfm.heads.clip_losses import ClipMaskLoss, ClipSetPredictionLoss
    from keras_tfm.heads.coded_segmenter import CodedSegmenter, CodedSetLoss
    from keras_tfm.heads.contrastive import Contrastive, ContrastiveHead, SigmoidContrast, SoftmaxContrast
    from keras_tfm.heads.cross_matching import CrossMatcher, LogitContrast
    from keras_tfm.heads.crowd_loss import CrowdSetPredictionLoss
    from keras_tfm.heads.denoiser import Denoiser
    from keras_tfm.heads.denoising_loss import DenoisingSetPredictionLoss
    from keras_tfm.heads.detectors import detector_around
    from keras_tfm.heads.distilled import DistilledClassifier
    from keras_tfm.heads.enhanced_mask_decoder import EnhancedMaskedLM
    from keras_tfm.heads.expert_matching import ExpertMatcher, MarginRanking, expert_similarity
    from keras_tfm.heads.inpainting import InpaintingLoss, SquaredInpaintingLoss
    from keras_tfm.heads.lanes import LaneDetector, LaneLoss, lane_points, lane_positions
    from keras_tfm.heads.language_model import (
        LanguageModel,
        LanguageModelHead,
        TokenCrossEntropy,
        TokenMean,
        token_accuracy,
        token_cross_entropy,
    )
    from keras_tfm.heads.logit_laplace import LogitLaplace, logit_laplace_loss
    from keras_tfm.heads.map_decoders import MLPDecoder, MultiLevelDecoder, NaiveDecoder, ProgressiveDecoder
    from keras_tfm.heads.mask_classifier import MaskClassifier, PointMaskClassifier, class_maps
    from keras_tfm.heads.mask_codes import (
        MaskAutoencoder,
        MaskCodec,
        PrincipalMaskCode,
        cosine_code,
        masks_of_cosines,
    )
    from keras_tfm.heads.mask_losses import dice_loss, focal_loss
    from keras_tfm.heads.mask_set_losses import MaskMatchingLoss, MaskSetLoss, PointMaskSetLoss
    from keras_tfm.heads.masked_autoencoder import MaskedAutoencoder, MaskedVideoAutoencoder, patch_loss
    from keras_tfm.heads.masked_language_model import MaskedLM, MaskedLMHead, NextSentence, NextSentenceHead
    from keras_tfm.heads.matching import match
    from keras_tfm.heads.multi_task import ClassConversion, MultiTaskClassifier
    from keras_tfm.heads.multiple_choice import MultipleChoice
    from keras_tfm.heads.object_detector import (
        CrowdDetector,
        ObjectDetector,
        ReferencedDetector,
        VarifocalDetector,
    )
    from keras_tfm.heads.pair_proposals import best_pairs, pair_overlaps
    from keras_tfm.heads.panoptic_detector import PanopticDetector
    from keras_tfm.heads.panoptic_loss import PanopticSetLoss
    from keras_tfm.heads.patch_classifier import PatchClassifier
    from keras_tfm.heads.patch_detector import PatchDetectionLoss, PatchDetector, PatchQueries, own_queries
    from keras_tfm.heads.pooling import pooled_tokens
    from keras_tfm.heads.reidentification import ReidentificationLoss, Reidentifier
    from keras_tfm.heads.relation_detector import RelationDetector
    from keras_tfm.heads.relation_loss import RelationSetLoss
    from keras_tfm.heads.segmentation import SegmentationLoss, SemanticSegmenter
    from keras_tfm.heads.self_distillation import ProjectionHead, SelfDistillation, SelfDistillationLoss
    from keras_tfm.heads.set_prediction import (
        FocalSetPredictionLoss,
        MatchingLoss,
        SetPredictionLoss,
        VarifocalSetPredictionLoss,
    )
    from keras_tfm.heads.span_boundary import SpanBoundaryHead, SpanMaskedLM
    from keras_tfm.heads.span_finder import SpanCrossEntropy, SpanFinder, best_spans
    from keras_tfm.heads.structure import (
        FoldingHead,
        StructureHead,
        expected_aligned_error,
        expected_score,
        expected_tm,
    )
    from keras_tfm.heads.structure_losses import (
        aligned_error_loss,
        backbone_error,
        confidence_loss,
        distogram_loss,
        frame_aligned_error,
        local_distance_score,
        masked_msa_loss,
        sidechain_error,
        torsion_loss,
    )
    from keras_tfm.heads.target_detector import HeatmapDetector, TargetDetector
    from keras_tfm.heads.target_losses import HeatmapLoss, TargetLoss
    from keras_tfm.heads.text_to_codes import ModalityMask, TextToCodes, TextToCodesLoss
    from keras_tfm.heads.tokens import TokenClassificationHead, TokenTagger
    from keras_tfm.heads.track_detector import TrackDetector, TrackLoss
    from keras_tfm.layers.boxes import box_distance, box_iou, corners_of, generalized_iou
else:
    on_demand.begin(globals())
