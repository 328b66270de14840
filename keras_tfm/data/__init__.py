"""Raw data to `tf.data` batches: sources (files) -> tokenizers -> batches.

A batch is a dict of tensors with the same keys for every model; a model fills in what is missing (masks of
ones, segments of zeros). B is the batch, S the length of the source or only sequence, T the length of the
target. A mask is True for tokens and False for padding.

    key                    shape     dtype
    token_ids              (B, S)    int32     sub-word ids; 0 pads on the right
    padding_mask           (B, S)    bool      which token_ids are not padding
    segment_ids            (B, S)    int32     0 for the first text, 1 for the second; or the number of each
                                               text in a packed row
    decoder_token_ids      (B, T)    int32     start token + ids: what the decoder sees before each label
    decoder_padding_mask   (B, T)    bool      which decoder_token_ids are not padding
    images                 (B, height, width, channels)  float32
    pixel_mask             (B, height, width)  bool      which pixels are not padding
    videos                 (B, frames, height, width, channels)  float32
    points                 (B, points, 3)  float32   coordinates
    mask_positions         (B, M)    int32     where a masked language model predicts
    mask_weights           (B, M)    float32   0.0 for positions that only fill up the row
    span_boundaries        (B, M, 2) int32     the tokens before and after the span of each mask position

Training batches are `(inputs, labels, weights)`: labels (B, T) int32 are the decoder's ids shifted by one,
with the end token last; weights (B, T) float32 are 1.0 for labels and 0.0 for padding.
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.data.batches.arrays import ArrayBatches
    from keras_tfm.data.batches.augmentation import Augmentation
    from keras_tfm.data.batches.blocks import TextBlocks
    from keras_tfm.data.batches.canvas import CanvasBatches
    from keras_tfm.data.batches.clips import ClipBatches
    from keras_tfm.data.batches.crops import CropBatches, Crops, MaskedBatches, PatchBatches
    from keras_tfm.data.batches.denoising import Denoising, DenoisingBatches, SpanCorruption
    from keras_tfm.data.batches.epochs import Batches
    from keras_tfm.data.batches.frame_pairs import FramePairs
    from keras_tfm.data.batches.identities import IdentityBatches
    from keras_tfm.data.batches.image_texts import ImageTextBatches, VideoTextBatches
    from keras_tfm.data.batches.images import ImageBatches
    from keras_tfm.data.batches.lanes import LaneBatches
    from keras_tfm.data.batches.masking import NOT_CHOSEN, Masking
    from keras_tfm.data.batches.noises import (
        DocumentRotation,
        OneOf,
        SentencePermutation,
        TextInfilling,
        TokenDeletion,
        TokenMasking,
    )
    from keras_tfm.data.batches.packing import PackedPairs
    from keras_tfm.data.batches.pairs import PairBatches, encode_sources
    from keras_tfm.data.batches.points import PointAugmentation, PointBatches
    from keras_tfm.data.batches.search_windows import TargetPairs
    from keras_tfm.data.batches.segmented_clips import SegmentedClipBatches
    from keras_tfm.data.batches.sentence_pairs import SentencePairs
    from keras_tfm.data.batches.streams import StreamBlocks, StreamSentencePairs
    from keras_tfm.data.sources.alignments import Alignment, read_alignment, read_fasta
    from keras_tfm.data.sources.canvas import Canvas
    from keras_tfm.data.sources.choices import Choices, read_choices
    from keras_tfm.data.sources.documents import read_documents, read_texts, split_sentences
    from keras_tfm.data.sources.files import Pairs, read_lines, read_pairs
    from keras_tfm.data.sources.holed_videos import HoledVideos, read_holed_videos
    from keras_tfm.data.sources.identities import Identities, read_identities
    from keras_tfm.data.sources.image_files import ImageFiles
    from keras_tfm.data.sources.image_texts import (
        ImageTexts,
        VideoTexts,
        read_image_texts,
        read_video_texts,
    )
    from keras_tfm.data.sources.images import (
        LabelledImages,
        decode_image,
        read_image_folder,
        read_labelled_images,
        read_unlabelled_images,
    )
    from keras_tfm.data.sources.labelled import (
        LabelledTexts,
        TaggedWords,
        read_labelled_texts,
        read_tagged_words,
    )
    from keras_tfm.data.sources.lanes import Lanes, read_lanes, write_lanes
    from keras_tfm.data.sources.lines import DataError
    from keras_tfm.data.sources.mask_files import MaskFiles
    from keras_tfm.data.sources.masks import Masks, read_masks
    from keras_tfm.data.sources.mot import MOTBoxes, read_mot, write_mot
    from keras_tfm.data.sources.objects import CrowdedObjects, Objects, read_objects
    from keras_tfm.data.sources.points import (
        LabelledPoints,
        PointClouds,
        read_labelled_points,
    )
    from keras_tfm.data.sources.poses import Joints, Poses, read_poses, write_poses
    from keras_tfm.data.sources.preprocessing import Preprocessing
    from keras_tfm.data.sources.questions import Answer, Questions, read_questions
    from keras_tfm.data.sources.ratings import Ratings, read_ratings
    from keras_tfm.data.sources.relations import RelatedObjects, read_relations
    from keras_tfm.data.sources.rows import Layout
    from keras_tfm.data.sources.segments import Segments, SegmentSets, read_segments
    from keras_tfm.data.sources.text_stream import TextStream
    from keras_tfm.data.sources.tracked_videos import TrackedVideos, checked_tracks, read_tracked_videos
    from keras_tfm.data.sources.video_segments import VideoSegments, read_video_segments
    from keras_tfm.data.sources.videos import (
        FrameSpacing,
        LabelledVideos,
        Sampling,
        VideoFiles,
        read_labelled_videos,
        read_unlabelled_videos,
    )
    from keras_tfm.data.tokenizers.added import AddedToken
    from keras_tfm.data.tokenizers.bert import BERTTokenizer
    from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
    from keras_tfm.data.tokenizers.characters import CharacterTokenizer
    from keras_tfm.data.tokenizers.clip import CLIPTokenizer
    from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer
    from keras_tfm.data.tokenizers.keras_hub import from_keras_hub, to_keras_hub
    from keras_tfm.data.tokenizers.kinds import load_tokenizer, train_tokenizer
    from keras_tfm.data.tokenizers.residues import ResidueTokenizer
    from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
    from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
else:
    on_demand.begin(globals())
