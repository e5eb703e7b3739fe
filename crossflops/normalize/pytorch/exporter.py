"""An exported program -> an ONNX program in memory."""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.normalize.pytorch.failures import brief
from crossflops.normalize.pytorch.opaque import for_complex_too, opaque, unknown_operator
from crossflops.normalize.pytorch.registry import kept_registry

OPSET = 23  # the first that keeps attention and RMS normalization whole

# Operators that the exporter cannot take apart or does so by a loop whose length it hides:
# those of torch.linalg check their result by an operator without one, a running product becomes
# n^2 elements, and products of groups of rows it takes only without offsets.
_KEPT = (
    "aten._grouped_mm.",
    "aten.embedding_bag.",
    "aten._embedding_bag.",
    "aten.cumprod.",
    *(
        f"aten.{name}."
        for name in (
            "linalg_inv", "inverse", "linalg_solve", "linalg_cholesky", "linalg_lu_factor",
            "linalg_ldl_factor", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_lstsq",
        )
    ),
)  # fmt: skip


def to_onnx(exported: Any) -> Any:
    """The ONNX program. An operator that the exporter does not know becomes an opaque node."""
    import torch

    _without_empty_joins(exported)
    table: dict[Any, Any] = {operator: opaque(operator) for operator in _without_form(exported)}
    table[torch.ops.aten.affine_grid_generator.default] = _affine_grid
    table[torch.ops.aten.uniform.default] = _uniform
    whole = True
    while True:
        try:
            # Without gradients, as the decompositions choose kernels by it, and a view that was
            # right for the strides of one kernel is wrong for those of the other.
            with torch.no_grad(), for_complex_too(table), kept_registry():
                return torch.onnx.export(
                    exported,
                    dynamo=True,
                    optimize=False,
                    opset_version=OPSET,
                    verbose=False,
                    custom_translation_table=table,
                )
        except Exception as error:
            operator = unknown_operator(error)
            if operator is None and whole:
                # An operator has an ONNX form, but not for these arguments (attention on three
                # axes, for one): take all composite operators apart.
                whole, exported = False, exported.run_decompositions()
                continue
            if operator is None or operator in table:
                raise NormalizeError(
                    f"torch.onnx.export failed: {brief(_root(error))}",
                    "see whether torch.onnx.export(model, inputs, dynamo=True) takes the model",
                ) from error
            table[operator] = opaque(operator)


def _without_empty_joins(exported: Any) -> None:
    """The program without `cat` of tensors that are all empty, which the exporter refuses.

    Where the result is as empty as the first of them, a copy of that takes its place and its name.
    """
    import torch

    aten, graph = torch.ops.aten, exported.graph
    for node in list(graph.nodes):
        if node.target is not aten.cat.default or not node.args[0]:
            continue
        first, shape, name = node.args[0][0], node.meta["val"].shape, node.name
        if 0 in shape and first.meta["val"].shape == shape:
            with graph.inserting_before(node):
                copy = graph.call_function(aten.clone.default, (first,))
            copy.meta = node.meta
            node.replace_all_uses_with(copy)
            graph.erase_node(node)
            copy.name = name  # the signature, and the table of calls, know it by this
    exported.graph_module.recompile()


def _affine_grid(*args: Any) -> Any:
    """A product with a grid, as PyTorch computes it: taken apart it would be muls and a sum.

    The arguments, theta, size and align_corners, have no names of their own here: the exporter
    would make tensors of plain ones by their annotations.
    """
    from onnxscript.onnx_opset import opset23

    theta, size, align_corners = args
    given = opset23.Constant(value_ints=[int(extent) for extent in size])
    return opset23.AffineGrid(theta, given, align_corners=int(align_corners))


def _uniform(*args: Any) -> Any:
    """Numbers that are drawn, for a tensor and its bounds: taken apart it would have no form."""
    from onnxscript.onnx_opset import opset23

    low = float(args[1]) if len(args) > 1 else 0.0
    high = float(args[2]) if len(args) > 2 else 1.0
    return opset23.RandomUniformLike(args[0], low=low, high=high)


def _without_form(exported: Any) -> set[Any]:
    """Operators that the exporter fails on, or gives a form that does other work.

    The ONNX LSTM has no projection: the exporter writes the width of the projected state for
    that of the cell.
    """
    import torch

    found = set()
    for node in exported.graph.nodes:
        projects = node.target is torch.ops.aten.lstm.input and _projects(*node.args[1])
        if projects or (node.op == "call_function" and str(node.target).startswith(_KEPT)):
            found.add(node.target)
    return found


def _projects(hidden: Any, cell: Any) -> bool:
    """Whether the state that goes to the next step is narrower than the cell."""
    return bool(hidden.meta["val"].shape[-1] != cell.meta["val"].shape[-1])


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
