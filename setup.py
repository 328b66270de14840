"""Metadata and version ranges. Exact versions for development and CI stand in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent


def version():
    """Read `__version__` as text: importing the package would import TensorFlow."""
    text = (HERE / "keras_tfm" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE).group(1)


def long_description():
    readme = HERE / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


REQUIREMENTS = [
    # The trainer overrides private methods of keras.Model: Keras is held to the minor version read here.
    # tensorflow-text is bound to TensorFlow's minor version.
    "tensorflow>=2.21,<2.22",
    # The tokenizers' kernels in graphs. It comes later than TensorFlow does for a new Python, and all but
    # SavedModels and streams of texts does without it.
    "tensorflow-text>=2.21,<2.22; python_version < '3.14'",
    "keras>=3.15,<3.16",
    "keras-nlp>=0.32,<0.33",  # brings keras-hub, whose layers and tokenizers go with these
    "tensorflow-datasets>=4.9.9,<5",
    "pyarrow>=16",  # Parquet files; tensorflow-datasets brings it
    "safetensors>=0.5",
    "sentencepiece>=0.2.3",  # trains the sub-word tokenizer, compiles its normalisation
    "tokenizers>=0.22,<0.24",  # trains the byte-level one
    "huggingface_hub",  # finds and downloads folders of models; tokenizers brings it
    "scikit-learn>=1.5",  # the baseline of a text classifier, and F1; seqeval brings it
    "sacrebleu>=2.4,<3",
    "rouge-score>=0.1.2,<0.2",  # Google's ROUGE, of which the papers' numbers are
    "seqeval>=1.2.2,<2",  # whole entities, counted as CoNLL's script does
    "faster-coco-eval>=1.8,<2",  # COCO's average precision, of which detectors' numbers are
    "babel>=2.14",  # the locale data of the embedded demo
    "numpy>=2.0,<3",
    "scipy>=1.15",  # sparse matrices and LAPACK, for word vectors
    "tqdm>=4.66",
]

FAST = ["numba>=0.61"]  # compiles the loops that count words and learn their vectors

PLOT = ["matplotlib>=3.9"]  # keras_tfm.visualize.plots, keras-tfm plot

SEARCH = ["faiss-cpu>=1.12"]  # graphs of vectors, `keras-tfm search index --graph`

VIDEO = ["av>=15"]  # PyAV, which brings FFmpeg: decodes video files

# Formats of `Task.export` besides the SavedModel, each with the runtime that answers from it.
ONNX = ["onnx>=1.18,<2", "onnxruntime>=1.22,<2", "tf2onnx>=1.17,<2"]
LITERT = ["ai-edge-litert>=2.0,<3"]
OPENVINO = ["openvino>=2025.4"]
CTRANSLATE2 = ["ctranslate2>=4.8,<5"]

TEST = [
    *FAST,
    *PLOT,
    *SEARCH,
    *VIDEO,
    *ONNX,
    *LITERT,
    *OPENVINO,
    *CTRANSLATE2,
    "pytest>=8.3",
    "hypothesis>=6.100",
    "pyyaml>=6.0",  # reads the manifests of docs/
    "pillow>=10.4",  # writes the image files that tests read back
    "playwright>=1.49,<2",  # drives Debian's Chromium, where there is one: pages that are drawn
]

DOCS = [
    "sphinx>=8.2,<10",
    "furo>=2025.7",
    "myst-parser>=4.0",  # Markdown
    "latex2mathml>=3.78",  # formulas that browsers draw by themselves
]

DEV = [*TEST, *DOCS, "ruff>=0.6", "mypy>=1.11", "build>=1.2", "pre-commit>=3.8", "uv>=0.5"]

EXAMPLES = [
    *PLOT,
    "scikit-learn>=1.5",  # handwritten digits
]

PARITY = ["torch==2.13.0", "transformers>=5,<6", "timm>=1.0.31,<1.1"]

setup(
    name="keras-tfm",
    version=version(),
    description="Transformers for Keras 3 and TensorFlow, from raw text or images to one SavedModel",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords="transformer attention keras tensorflow translation bert gpt t5 vit savedmodel",
    platforms=["Linux", "macOS"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["keras_tfm", "keras_tfm.*"]),
    package_data={
        "keras_tfm": ["py.typed"],
        "keras_tfm.cli": ["screens.json", "sizes.json"],
        "keras_tfm.visualize": ["web/*"],
    },
    include_package_data=False,
    zip_safe=False,
    # An editable install puts the clone on the path. The default, a finder, is asked last: a script beside a
    # clone in a folder called keras_tfm would import that folder, in which the package is another folder.
    options={"editable_wheel": {"mode": "compat"}},
    install_requires=REQUIREMENTS,
    extras_require={
        "fast": FAST,
        "plot": PLOT,
        "search": SEARCH,
        "video": VIDEO,
        "onnx": ONNX,
        "litert": LITERT,
        "openvino": OPENVINO,
        "ctranslate2": CTRANSLATE2,
        "test": TEST,
        "docs": DOCS,
        "dev": DEV,
        "examples": EXAMPLES,
        "parity": PARITY,
    },
    entry_points={"console_scripts": ["keras-tfm = keras_tfm.cli:main"]},
)
