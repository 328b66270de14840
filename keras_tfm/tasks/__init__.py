"""Tasks: what a user trains, asks, saves and exports. A task joins a tokenizer (or the preprocessing of
images), a model with its head, and the way in which answers are decoded.

Each task is a plain object with `fit`, `predict`, `evaluate`, `save`, `load` and `export`. Its name is used
in config.json and by `keras-tfm train NAME`; a dash means that the task does not learn by itself. "As for
fit" means the same examples that `fit` takes.

task                  name              fit                        predict           evaluate
Translator            translate         (sources, targets): str    [str] -> [str]    (sources, targets)
Summarizer            summarize         (sources, targets): str    [str] -> [str]    (sources, targets)
TextGenerator         generate          texts: [str]               [str] -> [str]    texts
MaskedLanguageModel   masked-lm         documents: [str]           [str] -> [str]    documents
TextClassifier        classify          (texts, labels)            texts -> labels   (texts, labels)
TokenClassifier       tag               (words, tags): [[str]]     [[str]] -> tags   (words, tags)
QuestionAnswerer      answer            see data.Questions         pairs -> texts    as for fit
ChoiceAnswerer        choose            see data.Choices           choices -> int    as for fit
SentenceEncoder       sentence-vectors  -                          [str] -> vectors  -
ProteinFolder         fold              -                          [str]->Structures -
ImageClassifier       classify-images   (images, labels)           images -> names   (images, labels)
IdentityMatcher       reidentify        see data.Identities        images -> vectors as for fit
VideoClassifier       classify-videos   (videos, labels)           videos -> names   (videos, labels)
PointClassifier       classify-points   (clouds, labels)           clouds -> names   (clouds, labels)
PoseEstimator         keypoints         (points, joints)           points -> joints  as for fit
Tracker               track             (videos, boxes)            videos -> tracks  as for fit
ImagePretrainer       pretrain-images   images                     images -> vectors (images, labels)
VideoPretrainer       pretrain-videos   videos                     videos -> vectors (videos, labels)
ImageCoder            image-codes       images                     images -> pictures as for fit
ImageEncoder          image-vectors     -                          images -> vectors -
ImageGenerator        generate-images   images[, labels or texts]  texts -> pictures as for fit
ImageWriter           generate-images   images[, labels or texts]  texts -> pictures as for fit
ImageRestorer         restore-images    images                     images -> pictures as for fit
ReferenceRestorer     restore-images    images[, references]       pairs -> pictures as for fit
VideoSegmenter        segment-videos    videos, masks, labels      videos -> masks  as for fit
FramePredictor        predict-frames    videos                     videos -> frames as for fit
VideoInpainter        inpaint-videos    videos[, masks]            videos -> videos as for fit
ImageTextMatcher      match-images      (images, texts)            images -> vectors (images, texts)
VideoTextMatcher      match-images      (videos, texts)            videos -> vectors (videos, texts)
Captioner             caption           (images, texts)            images -> texts   (images, texts)
VideoCaptioner        caption           (videos, texts)            videos -> texts   (videos, texts)
Detector              detect            (images, boxes, labels)    images -> objects as for fit
LaneFinder            find-lanes        (images, heights, lanes)   images -> lanes   as for fit
SceneGraphGenerator   relate            (images, boxes, labels,    images -> triplets as for fit
                                        relations)
Segmenter             segment           (images, masks[, labels])  images -> masks   as for fit
Recommender           recommend         see data.Ratings           users -> items    as for fit
Forecaster            forecast          a series: numbers (N,)     series -> numbers a series
"""

import os
from typing import TYPE_CHECKING, Any

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.tasks.asking import AskedTask
    from keras_tfm.tasks.image_text.captioner import (
        Captioner,
        CaptionerConfig,
        CaptionerOptions,
        VideoCaptioner,
    )
    from keras_tfm.tasks.image_text.matcher import (
        ImageTextMatcher,
        ImageTextMatcherConfig,
        MatcherOptions,
        VideoTextMatcher,
    )
    from keras_tfm.tasks.images.coder_options import ImageCoderConfig
    from keras_tfm.tasks.images.detector import Detector, DetectorConfig
    from keras_tfm.tasks.images.generator_options import ImageGeneratorConfig
    from keras_tfm.tasks.images.identity_matcher import IdentityMatcher, IdentityMatcherConfig
    from keras_tfm.tasks.images.image_classifier import ImageClassifier, ImageClassifierConfig
    from keras_tfm.tasks.images.image_coder import ImageCoder
    from keras_tfm.tasks.images.image_encoder import ImageEncoder, ImageEncoderConfig
    from keras_tfm.tasks.images.image_families import FAMILIES as IMAGE_FAMILIES
    from keras_tfm.tasks.images.image_generator import ImageGenerator
    from keras_tfm.tasks.images.image_pretrainer import ImagePretrainer
    from keras_tfm.tasks.images.image_restorer import ImageRestorer
    from keras_tfm.tasks.images.image_writer import ImageWriter
    from keras_tfm.tasks.images.lane_finder import LaneFinder, LaneFinderConfig
    from keras_tfm.tasks.images.pretraining import ImagePretrainerConfig
    from keras_tfm.tasks.images.probes import linear_probe, nearest_neighbours
    from keras_tfm.tasks.images.reference_restorer import ReferenceRestorer
    from keras_tfm.tasks.images.restorer_options import ImageRestorerConfig
    from keras_tfm.tasks.images.scene_graph_generator import SceneGraphConfig, SceneGraphGenerator
    from keras_tfm.tasks.learning import LearningTask, ModelOptions
    from keras_tfm.tasks.points.point_classifier import PointClassifier, PointClassifierConfig
    from keras_tfm.tasks.points.point_families import FAMILIES as POINT_FAMILIES
    from keras_tfm.tasks.points.pose_config import PoseEstimatorConfig
    from keras_tfm.tasks.points.pose_estimator import PoseEstimator
    from keras_tfm.tasks.proteins.protein_folder import ProteinFolder, ProteinFolderConfig, Structure
    from keras_tfm.tasks.ratings.recommender import Recommender, RecommenderConfig
    from keras_tfm.tasks.segmentation.config import SegmenterConfig
    from keras_tfm.tasks.segmentation.segmenter import Segmenter
    from keras_tfm.tasks.series.forecaster import Forecaster, ForecasterConfig
    from keras_tfm.tasks.signatures import Signature
    from keras_tfm.tasks.task import Task
    from keras_tfm.tasks.task import load_any as load
    from keras_tfm.tasks.task_folder import TaskError
    from keras_tfm.tasks.text.choice_answerer import ChoiceAnswerer, ChoiceAnswererConfig
    from keras_tfm.tasks.text.masked_language_model import MaskedLanguageModel, MaskedLanguageModelConfig
    from keras_tfm.tasks.text.question_answerer import QuestionAnswerer, QuestionAnswererConfig
    from keras_tfm.tasks.text.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
    from keras_tfm.tasks.text.summarizer import Summarizer
    from keras_tfm.tasks.text.text_classifier import TextClassifier, TextClassifierConfig
    from keras_tfm.tasks.text.text_generator import TextGenerator, TextGeneratorConfig
    from keras_tfm.tasks.text.token_classifier import TokenClassifier, TokenClassifierConfig
    from keras_tfm.tasks.text.translator import Translator
    from keras_tfm.tasks.text.translator_options import TranslatorConfig
    from keras_tfm.tasks.tracking.options import TrackerConfig
    from keras_tfm.tasks.tracking.tracker import Tracker
    from keras_tfm.tasks.trainable import TrainableTask
    from keras_tfm.tasks.videos.frame_predictor import FramePredictor
    from keras_tfm.tasks.videos.frame_task import FrameConfig
    from keras_tfm.tasks.videos.video_classifier import VideoClassifier, VideoClassifierConfig
    from keras_tfm.tasks.videos.video_families import FAMILIES as VIDEO_FAMILIES
    from keras_tfm.tasks.videos.video_inpainter import VideoInpainter, VideoInpainterConfig
    from keras_tfm.tasks.videos.video_pretrainer import VideoPretrainer, VideoPretrainerConfig
    from keras_tfm.tasks.videos.video_segmenter import VideoSegmenter, VideoSegmenterConfig
else:
    on_demand.begin(globals())


def from_huggingface(name: str | os.PathLike[str]) -> Any:
    """The task for the head that the published model in the folder `name` has; `name` may be a hub id.

    Raises:
        CheckpointError: if no task has such a head.

    >>> names, sizes = ["dark", "light"], {"image_size": 8, "patch_size": 4}
    >>> task = keras_tfm.tasks.ImageClassifier.from_size("tiny", names, **sizes)
    >>> task.save_huggingface("vit")  # as transformers would write it
    >>> keras_tfm.tasks.from_huggingface("vit").class_names.tolist()
    ['dark', 'light']
    """
    from keras_tfm.convert import CheckpointError, find_folder
    from keras_tfm.convert import from_huggingface as read_model
    from keras_tfm.convert.sentence_folder import makes_vectors
    from keras_tfm.tasks.task import each_task
    from keras_tfm.tasks.text.sentence_encoder import SentenceEncoder

    folder = find_folder(name)
    if makes_vectors(folder):  # whatever head its config.json names
        return SentenceEncoder.from_huggingface(folder)
    model = read_model(folder)
    kind, task = (
        type(model).__name__,
        next((task for task in each_task() if task.takes(model) and hasattr(task, "from_huggingface")), None),
    )
    if task is None:
        raise CheckpointError(name, "architectures", "one with the head of a task", kind)
    del model  # the task reads its own
    return task.from_huggingface(folder)
