"""The tasks of this package: where each stands, and what the command line says of it, what it learns and the
options and files of `predict`.

It stands apart from the tasks, whose import takes seconds, so that `--help` answers at once.
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

from keras_tfm.configs import Between, Config, Count, Natural, Option

TASKS: dict[str, Any] = {}  # {name: class} of the tasks that are imported, users' tasks too
ITEMS = 10  # that are recommended to a user by default
Draw = Annotated[
    str | None,
    Option(
        "folder for pictures: new ones, images with boxes or masks, or clouds or poses from three sides",
        default="none",
        metavar="FOLDER",
    ),
]
Steps = Annotated[int, Between(1, 1_000)]
Guidance = Annotated[float, Between(0, 100)]
Temperature = Annotated[float, Between(0, 1_000, is_above=True)]
Share = Annotated[float, Between(0, 1, is_above=True)]


@dataclasses.dataclass(frozen=True)
class Asking(Config):
    """No options. Fields of a derived class, annotated with `Option`, are arguments of the task's `predict`
    and `records` too, with the same defaults.
    """


@dataclasses.dataclass(frozen=True)
class Batched(Asking):
    """For tasks that answer in batches."""

    batch_size: Annotated[Count, Option("number of inputs that are processed at once")] = 64


@dataclasses.dataclass(frozen=True)
class Labelling(Batched):
    """For tasks that choose among labels."""

    probabilities: Annotated[
        bool, Option("the probabilities of all labels too, printed alone as a JSON object")
    ] = False


@dataclasses.dataclass(frozen=True)
class Showing(Labelling):
    """For tasks that choose among labels of what is drawn beside the answer."""

    draw: Draw = None


@dataclasses.dataclass(frozen=True)
class Finding(Batched):
    """For tasks that find objects in images."""

    batch_size: Annotated[Count, Option("number of inputs that are processed at once")] = 16
    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("lowest score of the objects, lanes or segments that are printed", default="the task's"),
    ] = None
    draw: Draw = None


@dataclasses.dataclass(frozen=True)
class Masking(Finding):
    """What is made of segments."""

    masks: Annotated[
        str | None,
        Option(
            "folder for masks, PNG files of class values or numbers of segments",
            default="none",
            metavar="FOLDER",
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class Following(Asking):
    """For tasks that follow objects through videos."""

    box: Annotated[
        str | None,
        Option(
            "left, top, width and height in pixels of the one object in the first frame",
            default="the file beside the frames",
            metavar="X,Y,W,H",
        ),
    ] = None
    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("lowest score of the objects, lanes or segments that are printed", default="the task's"),
    ] = None
    draw: Draw = None
    tracks: Annotated[
        str | None, Option("folder for answers in MOT's format", default="none", metavar="FOLDER")
    ] = None


@dataclasses.dataclass(frozen=True)
class Making(Batched):
    """For tasks that make pictures. On the command line the last four are options of decoding."""

    batch_size: Annotated[Count, Option("number of inputs that are processed at once")] = 16
    draw: Draw = None
    steps: Annotated[
        Steps | None, Option("steps from noise to a picture, of at most 1,000", default="the task's")
    ] = None
    guidance: Annotated[
        Guidance | None,
        Option(
            "how strongly pictures follow their class or text; 1 is the plain model", default="the task's"
        ),
    ] = None
    complete: Annotated[
        str | None,
        Option(
            "picture whose upper half every new one begins with, for models that write tokens", metavar="FILE"
        ),
    ] = None
    seed: Natural = 0
    temperature: Temperature | None = None
    top_k: Count | None = None
    top_p: Share | None = None


@dataclasses.dataclass(frozen=True)
class Drawing(Batched):
    """For tasks whose answers are drawn: pictures made of codes, poses."""

    draw: Draw = None


@dataclasses.dataclass(frozen=True)
class Mending(Asking):
    """For tasks that mend pictures, one after another."""

    restore: Annotated[
        str | None, Option("what is mended, if the model mends several things", default="the only one")
    ] = None
    draw: Draw = None
    reference: Annotated[
        str | None,
        Option(
            "picture from which a ttsr takes textures, of all inputs without one of their own", metavar="FILE"
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class Foreseeing(Asking):
    """For tasks that predict frames of videos."""

    frames: Annotated[
        Count | None, Option("how many frames follow", default="as many as the model predicts at once")
    ] = None
    draw: Draw = None


@dataclasses.dataclass(frozen=True)
class Filling(Asking):
    """For tasks that fill holes of videos."""

    holes: Annotated[
        str | None,
        Option(
            "masks of what is filled, bright in holes: an image, a video, a folder of frames, or a folder "
            "with some for each video, by its name",
            default="masks/ beside videos/",
            metavar="PATH",
        ),
    ] = None
    draw: Draw = None
    filled: Annotated[
        str | None,
        Option("folder that gets a folder of PNG frames for each video", default="none", metavar="FOLDER"),
    ] = None


@dataclasses.dataclass(frozen=True)
class FindingInVideos(Asking):
    """For tasks that find objects in videos, one after another."""

    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("lowest score of the objects or segments that are printed", default="the task's"),
    ] = None
    draw: Draw = None


@dataclasses.dataclass(frozen=True)
class Tagging(Batched):
    """How words are tagged."""

    repair: Annotated[bool, Option("turn an I- tag that continues no span into B-")] = False


@dataclasses.dataclass(frozen=True)
class Recommending(Asking):
    """What is recommended."""

    num_items: Annotated[Count, Option("items per user", flag="--items")] = ITEMS


class Asked(NamedTuple):
    """Where a task's class stands, "module:Class" in `keras_tfm.tasks`; its `asking`; its `input_files`, what
    its `read_inputs` reads; and its `help`, what it learns, "" if it does not. Both are one line. `writes` is
    its `writes_texts`.
    """

    place: str
    asking: Asking
    input_files: str
    help: str = ""
    writes: bool = False


PAIRS = "lines; or a TABLE"
TEXTS = "lines; or a folder of text files"
TEXTS_OR_TABLE = f"{TEXTS}; or a TABLE"
IMAGES = (
    "an image; a folder of images, or of such folders; .npz or idx files; or a TABLE, with images or with "
    "paths of them"
)
VIDEOS = (
    "a video; a folder of frames; a folder of either, or of such folders; a .txt list; or a TABLE, with "
    "videos or with paths of them"
)
IMAGES_OR_VIDEOS = f"{IMAGES}; for a model of videos: {VIDEOS}"
POSES = (
    ".npz with joints_2d, the joints in images, or with points, a cloud for each pose; or a cloud, a folder "
    "of them, or a TABLE with paths of them"
)
POINTS = "a cloud of points or a mesh; a folder of them, or of such folders; or a TABLE with paths of them"
TRACKED = (
    "a video; a folder of frames, or in MOT's layout, or with img/ and groundtruth.txt; a folder of such "
    "folders; a .json in COCO-video's layout; or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
)
ASKED = {
    "translate": Asked(
        "text.translator:Translator",
        Batched(),
        PAIRS,
        "train a model that maps a text to a text, for example a translator",
        writes=True,
    ),
    "summarize": Asked(
        "text.summarizer:Summarizer",
        Batched(),
        PAIRS,
        "train a model that summarises texts",
        writes=True,
    ),
    "classify": Asked(
        "text.text_classifier:TextClassifier",
        Labelling(),
        "lines, with a tab between two texts; or a TABLE",
        "train or fine-tune an encoder to label texts, or pairs of texts",
    ),
    "tag": Asked(
        "text.token_classifier:TokenClassifier",
        Tagging(),
        "lines, or CoNLL columns; or a TABLE with lists of words, or with a word per row",
        "train or fine-tune an encoder to tag the words of sentences",
    ),
    "answer": Asked(
        "text.question_answerer:QuestionAnswerer",
        Batched(batch_size=16),
        "lines: question, tab, context; or JSON in SQuAD's format; or a TABLE",
        "train or fine-tune an encoder to find the answers to questions in texts",
    ),
    "choose": Asked(
        "text.choice_answerer:ChoiceAnswerer",
        Labelling(batch_size=16),
        "lines: text, tab, choice, tab, choice, ...; or a TABLE with lists of choices",
        "train or fine-tune an encoder to choose one of several texts",
    ),
    "recommend": Asked(
        "ratings.recommender:Recommender",
        Recommending(),
        "lines with one user each; or a TABLE with users",
        "learn from ratings which items each user would like",
    ),
    "forecast": Asked(
        "series.forecaster:Forecaster",
        Asking(),
        "lines with one series each, comma-separated; or a TABLE with a column of numbers",
        "train a model that predicts the next values of a series of numbers",
    ),
    "generate": Asked(
        "text.text_generator:TextGenerator",
        Batched(),
        TEXTS_OR_TABLE,
        "train a language model on plain text; it continues prompts",
        writes=True,
    ),
    "masked-lm": Asked(
        "text.masked_language_model:MaskedLanguageModel",
        Batched(),
        TEXTS_OR_TABLE,
        "pre-train an encoder on documents: masked words, pairs of texts",
    ),
    "sentence-vectors": Asked("text.sentence_encoder:SentenceEncoder", Batched(), TEXTS),
    "fold": Asked(
        "proteins.protein_folder:ProteinFolder",
        Batched(batch_size=1),
        "lines with the residues of a protein each, one letter for each; or a FASTA file",
    ),
    "detect": Asked(
        "images.detector:Detector",
        Finding(),
        "an image, a folder of images, COCO's JSON, JSON lines with images; or a TABLE",
        "train a detector: boxes around objects in images, and what they are",
    ),
    "find-lanes": Asked(
        "images.lane_finder:LaneFinder",
        Finding(),
        "an image, a folder of images, TuSimple's JSON lines; or a TABLE",
        "train a model that finds the lines between lanes of roads, as curves",
    ),
    "relate": Asked(
        "images.scene_graph_generator:SceneGraphGenerator",
        Finding(),
        "an image, a folder of images, JSON lines with images, Visual Genome's JSON; or a TABLE",
        "train a generator of scene graphs: subject, predicate and object of relations in images",
    ),
    "segment": Asked(
        "segmentation.segmenter:Segmenter",
        Masking(),
        "an image, a folder of images or with images/, COCO's JSON, JSON lines with images; or a TABLE",
        "train a segmenter: the class of every pixel of an image, instances, or panoptic segments",
    ),
    "classify-images": Asked(
        "images.image_classifier:ImageClassifier",
        Labelling(),
        IMAGES,
        "train an image classifier: a Transformer, or another model of images",
    ),
    "reidentify": Asked(
        "images.identity_matcher:IdentityMatcher",
        Batched(),
        IMAGES,
        "train a model that finds persons or cars again, in images of other cameras",
    ),
    "classify-videos": Asked(
        "videos.video_classifier:VideoClassifier",
        Labelling(batch_size=8),
        VIDEOS,
        "train a video classifier: a Transformer that sees what happens",
    ),
    "classify-points": Asked(
        "points.point_classifier:PointClassifier",
        Showing(),
        POINTS,
        "train a classifier of clouds of points: a Transformer that sees shapes",
    ),
    "keypoints": Asked(
        "points.pose_estimator:PoseEstimator",
        Drawing(),
        POSES,
        "train a model of poses: the joints of bodies or hands in space, from images or clouds",
    ),
    "track": Asked(
        "tracking.tracker:Tracker",
        Following(),
        TRACKED,
        "train a model that follows objects through videos, all or one",
    ),
    "generate-images": Asked(
        "images.image_generator:ImageGenerator",
        Making(),
        "lines with the class or the text of a picture each; for a model of neither any line for a picture",
        "train a diffusion model that makes pictures, of classes or texts where its images have some",
    ),
    "restore-images": Asked(
        "images.image_restorer:ImageRestorer",
        Mending(),
        f"{IMAGES}; for ttsr also a TABLE with columns image and reference",
        "train a model that mends pictures: enlarges them, removes noise or rain, fills holes",
    ),
    "image-codes": Asked(
        "images.image_coder:ImageCoder",
        Drawing(),
        IMAGES,
        "train a model that makes a grid of codes of a picture, and a picture of codes",
    ),
    "image-vectors": Asked("images.image_encoder:ImageEncoder", Batched(), IMAGES),
    "pretrain-images": Asked(
        "images.image_pretrainer:ImagePretrainer",
        Batched(),
        IMAGES,
        "pre-train an encoder on images without labels",
    ),
    "pretrain-videos": Asked(
        "videos.video_pretrainer:VideoPretrainer",
        Batched(batch_size=8),
        VIDEOS,
        "pre-train an encoder on videos without labels",
    ),
    "segment-videos": Asked(
        "videos.video_segmenter:VideoSegmenter",
        FindingInVideos(),
        VIDEOS,
        "train a model that finds the masks of objects in all frames of a video",
    ),
    "predict-frames": Asked(
        "videos.frame_predictor:FramePredictor",
        Foreseeing(),
        VIDEOS,
        "train a model that predicts the next frames of a video",
    ),
    "inpaint-videos": Asked(
        "videos.video_inpainter:VideoInpainter",
        Filling(),
        VIDEOS,
        "train a model that fills holes of videos, given or drawn ones",
    ),
    "match-images": Asked(
        "image_text.matcher:ImageTextMatcher",
        Batched(),
        IMAGES_OR_VIDEOS,
        "train a model that finds the text of an image, or of a video, and the image of a text",
    ),
    "caption": Asked(
        "image_text.captioner:Captioner",
        Batched(),
        IMAGES_OR_VIDEOS,
        "train a model that writes a text about an image, or a video",
        writes=True,
    ),
}
