"""The bricks of which every model is composed: Keras layers that know nothing of models, data or tasks.

Sequences have the shape (B, T, D), feature maps of images (B, rows, columns, D). `OnGrid` applies a layer
for maps to a sequence, `MapAttention` applies attention to a map.

>>> layer = keras_tfm.layers.TransformerBlock(num_heads=2, intermediate_dim=64)
>>> layer(np.ones((1, 5, 16))).shape
TensorShape([1, 5, 16])
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.layers.attention.alignment import (
        AdditiveAttention,
        DotAttention,
        NoAttention,
        StaticAlignment,
        additive_attention_weights,
    )
    from keras_tfm.layers.attention.axial import AxisAttention, DividedAttention, GatedAxialAttention
    from keras_tfm.layers.attention.class_attention import ClassAttention, ClassAttentionBlock
    from keras_tfm.layers.attention.cross_covariance import CrossCovarianceAttention
    from keras_tfm.layers.attention.deformable import DeformableAttention, OffsetRing, sample_bilinear
    from keras_tfm.layers.attention.disentangled import DisentangledAttention, DistanceEmbedding
    from keras_tfm.layers.attention.distance import DistanceAttention, TiedProjections
    from keras_tfm.layers.attention.functional import (
        attention_scores,
        attention_weights,
        bilinear_attention,
        dot_product_attention,
        parameter_free_attention,
    )
    from keras_tfm.layers.attention.gated import GatedAttention, GlobalAttention, OnColumns
    from keras_tfm.layers.attention.gaussian import GaussianBias, gaussian_bias
    from keras_tfm.layers.attention.grid_position import (
        GridPositionBias,
        ImageRelativePosition,
        QuadraticPosition,
    )
    from keras_tfm.layers.attention.grid_rotary import GridRotaryEmbedding
    from keras_tfm.layers.attention.image_buckets import BucketedBias, BucketedContext
    from keras_tfm.layers.attention.invariant_point import InvariantPointAttention
    from keras_tfm.layers.attention.multi_head import Attention, BlockwiseAttention, MultiHeadAttention
    from keras_tfm.layers.attention.on_scores import HeadMixing, SoftCap, TopK
    from keras_tfm.layers.attention.patterns import BlockPattern, GridPattern, PatternAttention, TilePattern
    from keras_tfm.layers.attention.positions import (
        AttentionPosition,
        RelativePositionBias,
        RelativePositionEmbedding,
        RotaryEmbedding,
    )
    from keras_tfm.layers.attention.projections import HeadProjections
    from keras_tfm.layers.base import Layer
    from keras_tfm.layers.blocks import Block, Residual, TransformerBlock
    from keras_tfm.layers.bottleneck import ShortcutBlock
    from keras_tfm.layers.box_geometry import BoxGeometry
    from keras_tfm.layers.cache import BlockCache, ContextCache, KeyValueCache
    from keras_tfm.layers.chain import Chain, ChainBlock, Parallel, ParallelBlock
    from keras_tfm.layers.compiler.blockwise import blockwise_attention
    from keras_tfm.layers.convolution import (
        BatchNormalization,
        Convolution,
        ConvolutionalStem,
        NormalizedDense,
        StandardizedConvolution,
    )
    from keras_tfm.layers.dynamic_convolution import DynamicConvolution
    from keras_tfm.layers.embeddings import LearnedVectors, TokenAndPositionEmbedding, TokenEmbedding
    from keras_tfm.layers.feedforward import FeedForward
    from keras_tfm.layers.frames import (
        Frames,
        frames_of_matrices,
        frames_of_points,
        frames_of_quaternions,
        identity_frames,
        rotation_of_quaternion,
    )
    from keras_tfm.layers.grid import FourierPositions, MapAttention, OnGrid
    from keras_tfm.layers.image_positions import GridPositionEmbedding, GridSines, SineGridPositionEncoding
    from keras_tfm.layers.masks import causal_mask, combine_masks, masked_mean, masked_softmax
    from keras_tfm.layers.mixing import FourierMixing, TokenMixing
    from keras_tfm.layers.modulated_block import ModulatedBlock
    from keras_tfm.layers.noise_schedules import (
        Rates,
        add_noise,
        clean_of,
        cosine_betas,
        cosine_log_snr,
        linear_betas,
        linear_log_snr,
        noise_of,
        prediction_of,
        rates_of_betas,
        rates_of_log_snr,
        scaled_linear_betas,
        sigmoid_betas,
        zero_terminal_snr,
    )
    from keras_tfm.layers.normalization import (
        GroupNormalization,
        LayerNormalization,
        ModulatedNormalization,
        RMSNormalization,
    )
    from keras_tfm.layers.patch_encoder import PatchEncoder, PrependedTokens
    from keras_tfm.layers.patch_masking import PatchMasking, PatchRestoring, is_hidden
    from keras_tfm.layers.patches import (
        PatchEmbedding,
        PatchMerging,
        PixelShuffle,
        combine_patches,
        extract_patches,
        flatten_map,
    )
    from keras_tfm.layers.points import (
        FarthestPoints,
        GatherPoints,
        NearestPoints,
        PointInterpolation,
        VectorAttention,
        farthest_points,
        gather_points,
        interpolate,
        nan_where_points_are_not_finite,
        nearest_points,
        squared_distances,
    )
    from keras_tfm.layers.pooling import AttentionPooling, MaxPooling
    from keras_tfm.layers.positioned_block import PositionedAttention
    from keras_tfm.layers.positions import (
        PositionEmbedding,
        SinePositionEncoding,
        SineTable,
    )
    from keras_tfm.layers.quantizer import GumbelSoftmax, VectorQuantizer, nearest, quantization_loss
    from keras_tfm.layers.recurrent import LSTMAttentionDecoder, RecurrentEncoder
    from keras_tfm.layers.regions import RoIAlign, roi_align
    from keras_tfm.layers.regularization import Dropout, StochasticDepth
    from keras_tfm.layers.relations import attention_cost, attention_from_convolution, local_attention_mask
    from keras_tfm.layers.rematerialization import rematerialize
    from keras_tfm.layers.residual_convolution import ResidualConvolution
    from keras_tfm.layers.residues import residues
    from keras_tfm.layers.scene_graphs import AttentionalMessages, RelationProposal, SceneGraphConvolution
    from keras_tfm.layers.spectral import SpectralConvolution, SpectralDense
    from keras_tfm.layers.stacks import TransformerDecoder, TransformerEncoder
    from keras_tfm.layers.switch import SwitchFeedForward
    from keras_tfm.layers.triangles import PairBias, TriangleAttention, TriangleMultiplication
    from keras_tfm.layers.tubelets import TubeletEmbedding, extract_tubelets
    from keras_tfm.layers.two_tracks import (
        OuterProductMean,
        SequenceToPair,
        SharedDropout,
        TableResidual,
        Transition,
        TwoTrackBlock,
    )
    from keras_tfm.layers.windows import WindowAttention, join_windows, shifted_window_mask, split_windows
else:
    on_demand.begin(globals())
