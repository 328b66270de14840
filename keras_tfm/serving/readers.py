"""What comes before the function of numbers, by its kind: raw inputs as rows, and rows as arrays."""

from typing import Any

from .entries import chosen
from .image_readers import Images, ImagesOnCanvas
from .point_readers import Clouds, PosePoints
from .reading import InMemory, Plain
from .text_readers import Blanks, Choices, Prompts, Questions, Texts, Words
from .video_readers import Videos

READERS: dict[str, Any] = {
    "texts": Texts,
    "words": Words,
    "choices": Choices,
    "blanks": Blanks,
    "questions": Questions,
    "prompts": Prompts,
    "images": Images,
    "canvas": ImagesOnCanvas,
    "videos": Videos,
    "clouds": Clouds,
    "pose points": PosePoints,
}
OF_FILES = "images", "canvas", "videos", "clouds", "pose points"


def reader_of(folder, entries, paths=True):
    """The reader whose "kind", and arguments, are these `entries`; without `paths` one of files refuses them.
    A plugin's is made alike, by `make(folder, **arguments)`, and may be a function, as `Plain` takes it.
    """
    make, arguments = chosen(folder, READERS, entries, "reads", "reader")
    reader = make(folder, **arguments)
    reader = reader if hasattr(reader, "join") else Plain(reader)
    return reader if paths or entries["kind"] not in OF_FILES else InMemory(reader)
