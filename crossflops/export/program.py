"""Write a file with weights, from a model in memory or from a file whose input sizes are now
fixed.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossflops.errors import CrossflopsError
from crossflops.export.onnx_file import NodeNote, append_parameter_record
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.binding import load_bound_model
from crossflops.frontends.onnx.noted_parameters import ParameterNotes
from crossflops.load.payload import (
    UniformWeight,
    all_graph_tensors,
    fill_tensor_data,
    is_dataless_tensor,
)
from crossflops.load.protobuf import parse_model_proto
from crossflops.load.reader import encode_bytes_field_header

_STACK = "pkg.torch.onnx.stack_trace"  # paths of the machine on which the model was exported
LIMIT = (1 << 31) - (1 << 24)  # protobuf's 2 GiB, less what is no weight


def save_program(
    model: Any,
    target: Path,
    notes: Mapping[str, NodeNote],
    parameters: ParameterNotes | None = None,
    limit: int = LIMIT,
) -> list[Path]:
    """Save a model in memory as an ONNX file, with notes by node key; return the paths of the
    written files.

    Weights of more than `limit` bytes go to a file of external data, NAME.data beside it.
    Returns what was written. Raises CrossflopsError.
    """
    import onnx_ir as ir

    for number, node in enumerate(model.graph):
        node.metadata_props.pop(_STACK, None)
        note = notes.get(node.name or f"{node.op_type}_{number}")
        if note is not None:
            node.metadata_props.update(note.metadata)
    _turn_statistics_into_inputs(model.graph)
    weights = [value.const_value for value in model.graph.initializers.values()]
    size = sum(map(_weight_nbytes, weights))
    additional = f"{target.name}.data" if size > limit else None
    names = [additional, target.name] if additional else [target.name]
    folder = None
    try:
        folder = tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)
        index = os.path.join(folder, target.name)
        if additional:
            ir.save(model, index, external_data=additional)
        else:
            _write_single_file(model, index)
        if parameters is not None:
            append_parameter_record(index, parameters)
        for name in names:  # the data first: a model never stands there without it
            os.replace(os.path.join(folder, name), target.parent / name)
    except OSError as error:
        message = f"cannot write {target}: {error.strerror or error}"
        raise CrossflopsError(message, "choose another file with -o") from error
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        # whatever PyTorch raises where a tensor on meta is asked for its bytes
        raise CrossflopsError(
            f"cannot write the weights: {error}",
            "build the model on the CPU, without torch.device('meta'), so that its weights have "
            "values",
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return [target.parent / name for name in reversed(names)]


def _turn_statistics_into_inputs(graph: Any) -> None:
    """Make running statistics of a training graph inputs with a default value, since a training
    step changes them.

    onnxruntime merges constants that are equal, and writes the new statistics over the old ones:
    over a bias of zeros, too, where it takes a mean of zeros for the same constant.
    Source: onnxruntime/core/optimizer/constant_sharing.cc.
    """
    for node in graph.all_nodes():
        mode = node.attributes.get("training_mode")
        if node.op_type != "BatchNormalization" or node.domain or not (mode and mode.as_int()):
            continue
        for value in node.inputs[3:5]:
            if value.name in graph.initializers and value not in graph.inputs:
                graph.inputs.append(value)


def _weight_nbytes(tensor: Any) -> int:
    """Return the size of a stored tensor in bytes; 0 for strings and for None."""
    import onnx_ir as ir

    return 0 if tensor is None or tensor.dtype == ir.DataType.STRING else int(tensor.nbytes)


_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # numbers of fields in onnx.proto
_LARGE = 1 << 20  # bytes of a weight


def _write_single_file(model: Any, path: str) -> None:
    """Save a model as one file and write its large weights one by one, since all together fill the
    memory.

    A message may have its fields in any order, so the weights are the end of the graph, and the
    graph is the end of the model.
    """
    import onnx_ir as ir

    weights = model.graph.initializers
    large = {
        name: value.const_value
        for name, value in weights.items()
        if _weight_nbytes(value.const_value) > _LARGE
    }
    try:
        for name, tensor in large.items():
            shape, dtype = tensor.shape, tensor.dtype
            weights[name].const_value = ir.ExternalTensor(
                "", None, None, dtype, shape=shape, name=name
            )
        proto = ir.to_proto(model)
    finally:
        for name, tensor in large.items():
            weights[name].const_value = tensor
    _write_model_with_streamed_weights(proto, large, path)


def save_with_uniform_weights(data: bytes, target: Path, hint: str) -> None:
    """Save a model in which large weights have only a shape, each filled with one repeated number.

    Raises CrossflopsError with `hint` beyond the size that a file may have.
    """
    model = parse_model_proto(data)
    uniform = {
        tensor.name: UniformWeight(tensor)
        for tensor in model.graph.initializer
        if is_dataless_tensor(tensor)
    }
    if sum(weight.nbytes for weight in uniform.values()) > LIMIT:
        raise CrossflopsError(
            "the ONNX file of the model would be larger than the limit of 2 GiB",
            hint,
        )
    for tensor in all_graph_tensors(model.graph):
        if is_dataless_tensor(tensor) and tensor.name not in uniform:
            fill_tensor_data(tensor)
    _write_model_with_streamed_weights(model, uniform, str(target))


def _write_model_with_streamed_weights(proto: Any, large: Mapping[str, Any], path: str) -> None:
    """Write a ModelProto to a file, with the data of the `large` weights one after another."""
    heads = []
    for stored in proto.graph.initializer:
        size = 0
        head = b""
        if stored.name in large:
            stored.ClearField("external_data")
            stored.ClearField("data_location")
            size = large[stored.name].nbytes
            head = encode_bytes_field_header(_RAW_DATA, size)
        head = stored.SerializeToString() + head
        heads.append(encode_bytes_field_header(_INITIALIZER, len(head) + size) + head)
    names = [stored.name for stored in proto.graph.initializer]
    proto.graph.ClearField("initializer")
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    full = len(graph) + sum(map(len, heads)) + sum(weight.nbytes for weight in large.values())
    with open(path, "wb") as file:
        file.write(proto.SerializeToString() + encode_bytes_field_header(_GRAPH, full) + graph)
        for name, head in zip(names, heads, strict=True):
            file.write(head)
            if name in large:
                large[name].tofile(file)


# A copy of an ONNX file in which the sizes of the inputs are numbers.


def save_with_bound_sizes(file: OnnxFile, target: Path) -> list[Path]:
    """Write an ONNX model with its weights and with the input sizes that `file` binds; return the
    paths of the written files.

    Raises as `load_bound_model` does.
    """
    import onnx

    model = load_bound_model(file)
    additional = f"{target.name}.data" if model.ByteSize() > LIMIT else None
    onnx.save(model, target, save_as_external_data=additional is not None, location=additional)
    return [target, *([target.with_name(additional)] if additional else [])]
