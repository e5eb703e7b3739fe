"""An ONNX model from wherever it was counted -> one whose every operator has a rule, and names."""

from collections.abc import Mapping
from typing import Any

from crossflops.errors import NormalizeError
from crossflops.load import decoded, read
from crossflops.load.order import label
from crossflops.normalize.onnx_file import OnnxFile, functions
from crossflops.normalize.onnx_file.binding import bind
from crossflops.normalize.rebuilt.bodies import domain_of, opened, opsets
from crossflops.normalize.rebuilt.facts import READ_IT
from crossflops.normalize.rebuilt.refused import refuse
from crossflops.normalize.rebuilt.tensorflow.module import Program
from crossflops.normalize.rebuilt.tensorflow.rules import RULES

_INTO = "TensorFlow function"
_BESIDE = ("Constant",)


def program(model: Any, paths: Mapping[str, str]) -> Program:
    """The program of an ONNX model with definite sizes, changed in place.

    `paths` are the modules by the names of nodes, as far as they are known. Raises
    NormalizeError, naming an operator that has no rule.
    """
    refuse(model, _INTO)
    functions.inline(model, functions.local(model))
    refuse(model, _INTO)
    for number, node in enumerate(model.graph.node):
        node.name = label(node, number)
    made = {one: node.name for node in model.graph.node for one in node.output if one}
    model = _opened(model)
    if lacking := _lacking(model):
        name = min(lacking)
        version = opsets(model).get(name.rpartition(".")[0], 1)
        raise NormalizeError(
            f"nothing converts {name} of opset {version} into operations of TensorFlow", READ_IT
        )
    placed = _placed(model, made, paths)  # which names the nodes
    return Program(data=model.SerializeToString(), paths=placed)


def _opened(model: Any) -> Any:
    try:
        return opened(model, _lacking)
    except Exception as error:  # the types of a body's values do not follow
        what = f"no {_INTO} can be rebuilt: {' '.join(str(error).split())[:200]}"
        raise NormalizeError(what, READ_IT) from error


def _lacking(model: Any) -> set[str]:
    return {
        f"{domain_of(node.domain)}.{node.op_type}".lstrip(".")
        for node in model.graph.node
        if domain_of(node.domain) or node.op_type not in (*RULES, *_BESIDE)
    }


def _placed(model: Any, made: Mapping[str, str], paths: Mapping[str, str]) -> dict[str, str]:
    """The module of every node; what was put in for another node is where that one was.

    The nodes of a body stand where the node stood, and the last of them makes its result.
    """
    found: dict[str, str] = {}
    origin = ""
    for number, node in reversed(list(enumerate(model.graph.node))):
        origin = next((made[one] for one in node.output if one in made), origin)
        if node.name != origin or origin in found:
            node.name = f"{origin}/{node.op_type}_{number}"
        found[node.name] = paths.get(origin, "")
    return dict(reversed(found.items()))


def of_file(file: OnnxFile) -> Any:
    """The model in a file without its weights, its inputs of the sizes that are asked for.

    Raises TargetError, InputError.
    """
    model = read(file.path)
    bind(model.graph, file.dims, file.specs, file.path)
    if file.dims or file.specs:
        del model.graph.value_info[:]  # of other sizes, perhaps
    return model


def of_bytes(data: bytes) -> Any:
    """A model in memory without its weights."""
    return decoded(data)


def of_program(model: Any) -> Any:
    """A model of onnx_ir without its weights, which are said to lie elsewhere meanwhile."""
    import onnx_ir as ir

    held = {name: value.const_value for name, value in model.graph.initializers.items()}
    try:
        for name, tensor in held.items():
            if tensor is not None and tensor.nbytes > 1024:
                model.graph.initializers[name].const_value = ir.ExternalTensor(
                    "weights", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
                )
        proto = ir.serde.serialize_model(model)
    finally:
        for name, tensor in held.items():
            model.graph.initializers[name].const_value = tensor
    return of_bytes(proto.SerializeToString())
