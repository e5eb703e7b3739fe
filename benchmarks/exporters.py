"""ONNX files as the exporters of PyTorch, Keras and TensorFlow write them, with random weights.

    python benchmarks/exporters.py NAME FOLDER

writes NAME.onnx into the folder. The framework that the name ends with is imported; `torch` and
`torchscript` are PyTorch's newer and older exporter.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

IMAGE = (1, 3, 224, 224)
WORDS = 128
DEEP = {"num_hidden_layers": 150, "hidden_size": 64, "num_attention_heads": 4}


def resnet() -> tuple[Any, Any]:
    """ResNet-50 of torchvision, and an image."""
    import torch

    from crossflops.frontends import load_with_retry

    models = load_with_retry(lambda: import_module("torchvision.models"))
    return models.resnet50(weights=None).eval(), torch.zeros(IMAGE)


def bert(**settings: int) -> tuple[Any, Any]:
    """BERT of transformers, BERT-base where no setting is another, and a text of 128 words.

    With eager attention: onnx-tool cannot count the IsNaN that PyTorch's own attention leaves.
    """
    import torch

    from crossflops.frontends import load_with_retry

    load_with_retry(lambda: import_module("torchvision.models"))  # which transformers imports
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**settings, attn_implementation="eager")).eval(), torch.ones(
        1, WORDS, dtype=torch.int64
    )


def deep() -> tuple[Any, Any]:
    """BERT with 150 narrow layers: about 5000 nodes, or twice that from the older exporter."""
    return bert(**DEEP, intermediate_size=128)


def by_torch(made: tuple[Any, Any], file: Path, dynamo: bool) -> None:
    """What `torch.onnx.export` writes."""
    import torch

    torch.manual_seed(0)
    model, example = made
    inside = {"external_data": False} if dynamo else {}
    torch.onnx.export(model, (example,), file, dynamo=dynamo, **inside)


def by_keras(file: Path) -> None:
    """ResNet-50 of Keras, as its own `export` writes it."""
    import keras

    keras.utils.set_random_seed(0)
    model = keras.applications.ResNet50(weights=None)
    model(keras.ops.zeros((1, 224, 224, 3)))  # it asks to be called before
    image = keras.InputSpec(shape=(1, 224, 224, 3), dtype="float32")  # else the batch stays open
    model.export(str(file), format="onnx", verbose=False, input_signature=[image])


def by_tensorflow(file: Path) -> None:
    """A TensorFlow function over ResNet-50, as tf2onnx writes it."""
    import keras
    import tensorflow as tf
    import tf2onnx

    model = keras.applications.ResNet50(weights=None)
    spec = tf.TensorSpec((1, 224, 224, 3), tf.float32)
    function = tf.function(lambda x: model(x, training=False), input_signature=[spec])
    tf2onnx.convert.from_function(function, [spec], output_path=str(file))


FILES: dict[str, Callable[[Path], None]] = {
    "resnet50-torch": lambda file: by_torch(resnet(), file, dynamo=True),
    "resnet50-torchscript": lambda file: by_torch(resnet(), file, dynamo=False),
    "resnet50-keras": by_keras,
    "resnet50-tensorflow": by_tensorflow,
    "bert-base-torch": lambda file: by_torch(bert(), file, dynamo=True),
    "5000-nodes-torch": lambda file: by_torch(deep(), file, dynamo=True),
}


def main(name: str, folder: str) -> None:
    """Write one of the files."""
    FILES[name](Path(folder, f"{name}.onnx"))


if __name__ == "__main__":
    main(*sys.argv[1:])
