"""Tasks: tokenizer + model + head + decoding; what a user trains, asks, keeps and exports.

task                  name              fit                        predict           evaluate
Translator            translate         (sources, targets): str    [str] -> [str]    (sources, targets)
Summarizer            summarize         (sources, targets): str    [str] -> [str]    (sources, targets)
TextGenerator         generate          texts: [str]               [str] -> [str]    texts
MaskedLanguageModel   masked-lm         documents: [str]           [str] -> [str]    documents
TextClassifier        classify          texts, labels              texts -> labels   texts, labels
TokenClassifier       tag               words, tags: [[str]]       [[str]] -> tags   words, tags
QuestionAnswerer      answer            see data.Questions         pairs -> texts    as for fit
ChoiceAnswerer        choose            see data.Choices           choices -> int    as for fit
SentenceEncoder       sentence-vectors  -                          [str] -> vectors  -
ImageClassifier       classify-images   images, labels: arrays     images -> names   images, labels
"""

from keras_tfm.heads.language_model import LanguageModel
from keras_tfm.tasks.choice_answerer import ChoiceAnswerer, ChoiceAnswererConfig
from keras_tfm.tasks.image_classifier import ImageClassifier, ImageClassifierConfig
from keras_tfm.tasks.masked_language_model import MaskedLanguageModel, MaskedLanguageModelConfig
from keras_tfm.tasks.question_answerer import QuestionAnswerer, QuestionAnswererConfig
from keras_tfm.tasks.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
from keras_tfm.tasks.summarizer import Summarizer
from keras_tfm.tasks.task import Task, TaskError, read_config
from keras_tfm.tasks.text_classifier import TextClassifier, TextClassifierConfig
from keras_tfm.tasks.text_generator import TextGenerator, TextGeneratorConfig
from keras_tfm.tasks.token_classifier import TokenClassifier, TokenClassifierConfig
from keras_tfm.tasks.translator import Translator, TranslatorConfig

TASKS = {
    task.name: task
    for task in (
        Translator,
        Summarizer,
        TextGenerator,
        MaskedLanguageModel,
        TextClassifier,
        TokenClassifier,
        QuestionAnswerer,
        ChoiceAnswerer,
        SentenceEncoder,
        ImageClassifier,
    )
}


def load(folder, quantization=None):
    """The task, of whatever kind, that `save` wrote to `folder`; see `Task.load`."""
    name = read_config(folder)["task"]
    if name not in TASKS:
        raise TaskError(f"{folder}: unknown task {name!r}; known are {', '.join(TASKS)}")
    return TASKS[name].load(folder, quantization)


def from_huggingface(name):
    """The task whose head the folder `name`, or hub id, has; CheckpointError where no task has it."""
    from keras_tfm.convert import CheckpointError, find_folder
    from keras_tfm.convert import from_huggingface as read_model

    model = read_model(find_folder(name))
    for task in (
        MaskedLanguageModel, TextClassifier, TokenClassifier, QuestionAnswerer, ChoiceAnswerer,
    ):  # fmt: skip
        if isinstance(model, task.head_class):
            return task.from_huggingface(name)
    if isinstance(model, LanguageModel):
        is_prompted = "decoder_token_ids" not in model.input
        return (TextGenerator if is_prompted else Translator).from_huggingface(name)
    if "sequence_output" in model.output and not hasattr(model, "step"):  # an encoder without a head
        return SentenceEncoder.from_huggingface(name)
    raise CheckpointError(name, "architectures", "one with the head of a task", type(model).__name__)
