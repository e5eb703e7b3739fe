"""Rebuild an ONNX file as a torch module with onnx2torch, with inputs of its sizes.

In: an `OnnxFile`, or a model of another framework. Out: a `Source` with the rebuilt module; what
stands for the graph in TensorFlow's operations is in `tensorflow`.
May import: targets, frontends, load, ir, patches, errors, threads.
"""

import importlib
import re
from typing import Any

from crossflops.errors import CrossflopsError, MissingExtraError, NormalizeError
from crossflops.frontends import Source, load_with_retry
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.binding import inputs_given_by_caller, load_bound_model
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.rebuild.nodes import READ_IT
from crossflops.targets import model_source
from crossflops.threads import filter_warnings


def rebuild_as_torch(file: OnnxFile) -> Source:
    """Return the torch module that onnx2torch builds from an ONNX file, in evaluation mode, with
    inputs for it.

    As a rule it has one submodule for each node of the file. It has the weights of the file;
    inputs are random floats, and zeros of other types. Raises MissingExtraError without
    onnx2torch, TargetError where the file or its data cannot be read, InputError where sizes are
    open, NormalizeError where an operator cannot be rebuilt.
    """
    _require_onnx2torch()
    return _build_torch_source(_onnx_model_with_requested_input_sizes(file), file.path)


def _require_onnx2torch() -> None:
    """Import onnx2torch. Raises MissingExtraError if it cannot be imported."""
    try:
        load_with_retry(lambda: importlib.import_module("onnx2torch"))
    except ImportError as error:
        raise MissingExtraError(
            f"cannot rebuild a torch module from a file: {error}",
            "pip install 'crossflops[rebuild]'",
        ) from error


def _build_torch_source(model: Any, name: str) -> Source:
    """Return the torch module that onnx2torch builds from an ONNX model, with inputs for it.
    Raises NormalizeError.
    """
    try:
        with filter_warnings("ignore"):
            module = _convert_to_torch(model)
    except CrossflopsError:
        raise
    except Exception as error:  # onnx2torch, and what rewrites for it, refuse in many ways
        message = f"cannot rebuild a torch module from {name}: {type(error).__name__}: {error}"
        raise NormalizeError(message, READ_IT) from error
    return model_source(module, ProvidedInputs(specs=_positional_input_specs(model.graph)))


# What a model of another framework, or a file, is rebuilt as for the tools of a framework.
REBUILT = {"torch": "a torch module", "tensorflow": "a TensorFlow function"}


def rebuild_in_framework(framework: str, program: Any, graph: Graph) -> Source:
    """Return the model that was counted as `graph`, rebuilt as a module of a framework, with
    inputs for it.

    `program` is a file, or a model with definite sizes: its bytes, or a model of onnx_ir (for
    TensorFlow only). Raises what `rebuild_as_torch` here and in `tensorflow` raise.
    """
    if program is None:
        raise NormalizeError(
            f"the model has no ONNX form, so {REBUILT[framework]} cannot be rebuilt from it",
            "convert the model to ONNX, and give the file",
        )
    if framework == "tensorflow":
        from crossflops.rebuild import tensorflow

        return tensorflow.rebuild_as_tensorflow(program, graph)
    if isinstance(program, OnnxFile):
        return rebuild_as_torch(program)
    _require_onnx2torch()
    import onnx

    return _build_torch_source(onnx.ModelProto.FromString(program), "the model")


def _onnx_model_with_requested_input_sizes(file: OnnxFile) -> Any:
    """Return the ONNX model of a file with its weights and with the requested input sizes."""
    model = load_bound_model(file)
    if file.dims or file.specs:
        del model.graph.value_info[:]  # of other sizes, perhaps
    return model


def _convert_to_torch(model: Any) -> Any:
    """Return a torch module, in evaluation mode, that computes the same as the ONNX model."""
    from crossflops.rebuild.converters import make_convertible, registering_converters

    rewritten = make_convertible(model)
    _rename_nodes_as_modules(rewritten.graph)
    with registering_converters(rewritten):
        return importlib.import_module("onnx2torch").convert(rewritten).eval()


def _rename_nodes_as_modules(graph: Any) -> None:
    """Rename the nodes of a graph so that each name is unique and can be the name of a torch
    module.
    """
    taken: set[str] = set()
    for number, node in enumerate(graph.node):
        name = re.sub(r"\W+", "_", node.name).strip("_") or node.op_type
        if name[0].isdigit() or name in taken:
            name = f"{node.op_type}_{number}_{name}"
        taken.add(name)
        node.name = name


def _positional_input_specs(graph: Any) -> tuple[TensorSpec, ...]:
    """Return the shapes and types of a graph's inputs in their order, named by position: "0", "1"
    ...
    """
    from onnx import helper

    specs = []
    for index, value in enumerate(inputs_given_by_caller(graph)):
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        specs.append(TensorSpec(str(index), dtype, shape, "input"))
    return tuple(specs)
