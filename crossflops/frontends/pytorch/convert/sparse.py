"""The sparse tensors of an exported program: one run of the program shows what they store.

A shape does not tell how many elements a sparse tensor stores, and ONNX has no such tensors. So
the program is run once on its weights and inputs, and every operator that takes or gives a sparse
tensor is rewritten before it is exported: a sparse tensor becomes the dense one of its stored
values, an operator that works on stored values alone takes these, and any other one becomes a
node of `torch.ops` with what was observed as attributes (see `operators/sparse.py`).
Source: aten/src/ATen/native/sparse/SparseTensorMath.cpp, SparseMatMul.cpp, SoftMax.cpp.
"""

import functools
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crossflops.errors import NormalizeError
from crossflops.frontends.pytorch.convert.exporter import DOMAIN, single_result_node_schema
from crossflops.frontends.pytorch.load.fakes import is_fake_tensor
from crossflops.frontends.pytorch.load.refusals import brief_error_text
from crossflops.frontends.pytorch.record.data_dependence import program_arguments
from crossflops.frontends.pytorch.record.sparse_constants import has_sparse, is_sparse
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.trace import Call

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

SUFFIX = ".sparse"
# Where the two factors stand among the tensors of a product.
_FACTORS = {
    **dict.fromkeys(("mm", "matmul", "_sparse_mm", "_sparse_sparse_matmul", "mv", "bmm"), (0, 1)),
    **dict.fromkeys(("linear", "smm", "hspmm"), (0, 1)),
    **dict.fromkeys(("addmm", "_sparse_addmm", "addmv", "baddbmm", "sspaddmm"), (1, 2)),
    "sparse_sampled_addmm": (1, 2),
}  # fmt: skip
# Of these the gradient of a compressed factor is computed at its stored places alone.
_SAMPLED = ("_sparse_mm", "_sparse_addmm")
_COALESCE_FIRST = ("bmm", "hspmm")
_GROUPED = ("_sparse_softmax", "_sparse_log_softmax", "_sparse_sum", "sum")


def mark_sparsity_dependent_calls(
    program: "ExportedProgram", calls: dict[str, Call]
) -> dict[str, Call]:
    """Return the calls by name, with `depends_on_inputs` set where the work depends on the
    sparsity of an input.
    """
    names = _sparsity_dependent_names(program) if has_sparse(program) else set()
    return {
        name: msgspec.structs.replace(call, depends_on_inputs=True) if name in names else call
        for name, call in calls.items()
    }


def _sparsity_dependent_names(program: "ExportedProgram") -> set[str]:
    """Return the names of the FX nodes whose work depends on the sparsity of an input."""
    inputs = set(program.graph_signature.user_inputs)
    varying: set[fx.Node] = set()  # tensors whose values depend on an input
    patterns: set[fx.Node] = set()  # sparse tensors whose places do
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            if node.name in inputs:
                varying.add(node)
                if is_sparse(value):
                    patterns.add(node)
            continue
        sources = node.all_input_nodes
        if any(source in varying for source in sources):
            varying.add(node)
        if is_sparse(value):
            of_places = [s for s in sources if is_sparse(s.meta.get("val"))]
            decisive = patterns if of_places else varying
            asked = of_places or (sources[:1] if _is_sparse_constructor(node) else sources)
            if any(source in decisive for source in asked):
                patterns.add(node)
    return {
        node.name
        for node in program.graph.nodes
        if node in patterns or any(source in patterns for source in node.all_input_nodes)
    }


def _is_sparse_constructor(node: "fx.Node") -> bool:
    """Return True if a node makes a sparse COO tensor from indices and values.

    Its first argument are the stored positions.
    """
    return "sparse_coo_tensor" in str(node.target)


def replace_sparse_operators(program: "ExportedProgram") -> None:
    """Replace each sparse operator of a program by `crossflops::on_sparse`, with the numbers of
    elements that a run stores.

    The program is changed. Raises NormalizeError where it cannot be run: one position may be
    stored any number of times, so no shape bounds the work.
    """
    observed = _run_and_observe_sparse_nodes(program)
    _replace_sparse_constants(program, observed)
    mode = next(
        (v.fake_mode for n in program.graph.nodes if hasattr(v := n.meta.get("val"), "fake_mode")),
        None,
    )
    for node in program.graph.nodes:
        real, facts = observed.get(node.name, (None, None))
        if node.op == "call_function" and node.name in observed and real is None:
            program.graph.erase_node(node)  # it asserts something, and gives nothing
            continue
        if facts is not None and not facts["by_value"]:
            _replace_sparse_node(node, facts, real)
        if is_sparse(node.meta.get("val")):
            node.meta["val"] = _fake_stored_values(mode, real)
    program.graph_module.recompile()


class _ObservedResult(NamedTuple):
    """The result of a sparse node in a run, and the facts of its call, None for other nodes."""

    result: Any
    call_facts: dict[str, Any] | None


def _run_and_observe_sparse_nodes(
    program: "ExportedProgram",
) -> dict[str, _ObservedResult]:
    """Run a program; return for each sparse node its result and, if it is a call, the observed
    numbers of elements, by name.
    """
    import torch

    seen: dict[str, _ObservedResult] = {}
    sparse = {
        node.name
        for node in program.graph.nodes
        if any(is_sparse(at.meta.get("val")) for at in (node, *node.all_input_nodes))
    }

    class Observing(torch.fx.Interpreter):
        """An interpreter that notes the operands and results of sparse operators."""

        def run_node(self, n: Any) -> Any:
            """Run an FX node and return its result; store the result and the facts if it is
            sparse.
            """
            result = super().run_node(n)
            if n.name in sparse and n.op != "output":
                args, kwargs = self.fetch_args_kwargs_from_env(n)
                is_call = n.op == "call_function"
                facts = _sparse_call_facts(n, args, kwargs, result) if is_call else None
                seen[n.name] = _ObservedResult(result, facts)
            return result

    provided = list(program_arguments(program))
    if any(is_fake_tensor(value) or getattr(value, "is_meta", False) for value in provided):
        raise _sparse_storage_error("its weights or inputs have no values")
    try:
        with torch.no_grad(), seeding_random_generators():
            Observing(program.graph_module).run(*provided)
    except Exception as error:
        raise _sparse_storage_error(
            f"the exported program does not run ({brief_error_text(error)})"
        ) from error
    return seen


def _sparse_storage_error(reason: str) -> NormalizeError:
    """Return the error that the number of stored elements of sparse tensors is unknown; `reason`
    is the reason.
    """
    return NormalizeError(
        f"the number of elements in the model's sparse tensors is unknown: {reason}",
        "give the model and its inputs values, or use dense tensors instead",
    )


def _sparse_call_facts(node: "fx.Node", args: Any, kwargs: Any, result: Any) -> dict[str, Any]:
    """Return the observed facts of a sparse call, such as numbers of stored elements and of MACs,
    by name.
    """
    tensors = list(_tensors_in_arguments((args, kwargs)))
    name = str(node.target).split(".")[1] if "." in str(node.target) else str(node.target)
    schema = getattr(node.target, "_schema", None)
    provided = dict(zip((a.name for a in schema.arguments), args, strict=False)) if schema else {}
    provided |= kwargs
    stored = [_sparse_storage_size(tensor) for tensor in tensors]
    results = list(_tensors_in_arguments(result))
    terms, sparse_terms = _sparse_product_macs(name, tensors)
    return {
        "by_value": _is_elementwise_on_stored_values(node.target, tensors, results),
        "stored": stored,
        "kept": sum(_sparse_storage_size(tensor) for tensor in results[:1]),
        "distinct": [_sparse_storage_size(_coalesce_tensor(tensor)) for tensor in tensors],
        "terms": terms,
        "masked": sparse_terms,
        "groups": _reduction_group_count(name, tensors, provided),
        "scales": [float(provided.get("beta", 1)), float(provided.get("alpha", 1))],
        "sparse": [int(is_sparse(tensor)) for tensor in tensors],
    }


def _is_elementwise_on_stored_values(target: Any, tensors: list[Any], results: list[Any]) -> bool:
    """Return True if a sparse operator changes the stored values alone, element by element."""
    import torch

    pointwise = torch.Tag.pointwise in getattr(target, "tags", ())
    if not pointwise or len(results) != 1 or not tensors or not is_sparse(tensors[0]):
        return False
    scalars = all(tensor.numel() == 1 and not is_sparse(tensor) for tensor in tensors[1:])
    return (
        scalars
        and _sparse_tensor_values(tensors[0]).shape == _sparse_tensor_values(results[0]).shape
    )


class _SparseProductMacs(NamedTuple):
    """MACs of a product with a sparse factor, and of the factor's gradient; -1 if unknown."""

    product: int
    factor_gradient: int


def _sparse_product_macs(name: str, tensors: list[Any]) -> _SparseProductMacs:
    """Return the MACs of a sparse product and those of the gradient of its sparse factor; -1 if
    unknown or not a product.

    Each stored element of one factor meets a row of the other: all of a dense one, the stored part
    of a sparse one. -1 where it is not a product, or unknown.
    """
    indices = _FACTORS.get(name)
    if indices is None or len(tensors) <= indices[1]:
        return _SparseProductMacs(-1, -1)
    left, right = (tensors[index] for index in indices)
    if name == "linear":
        right = right.t()
    if name in _COALESCE_FIRST:
        left = _coalesce_tensor(left)
    columns = right.shape[-1] if right.dim() > 1 else 1
    dense = prod(left.shape) * columns
    if name == "sparse_sampled_addmm":
        return _SparseProductMacs(_sparse_storage_size(tensors[0]) * left.shape[-1], -1)
    if is_sparse(left) and is_sparse(right):
        return _SparseProductMacs(_product_pair_count(left, right), -1)
    if is_sparse(left):
        terms = _sparse_storage_size(left) * columns
        gradient = terms if name in _SAMPLED and not left.is_sparse else dense
        return _SparseProductMacs(terms, gradient)
    if is_sparse(right):
        return _SparseProductMacs(prod(left.shape[:-1]) * _sparse_storage_size(right), dense)
    terms = _sparse_storage_size(tensors[0]) * left.shape[-1] if is_sparse(tensors[0]) else -1
    return _SparseProductMacs(terms, -1)


def _product_pair_count(left: Any, right: Any) -> int:
    """Return how many pairs of stored elements a product A B of sparse matrices multiplies."""
    import torch

    inner = left.shape[-1]
    columns = torch.bincount(_coordinates_of_stored_elements(left)[-1], minlength=inner)
    rows = torch.bincount(_coordinates_of_stored_elements(right)[0], minlength=inner)
    return int((columns * rows).sum())


def _reduction_group_count(name: str, tensors: list[Any], provided: dict[str, Any]) -> int:
    """Return the number of groups that a sparse softmax or sum reduces; -1 for another operator or
    if unknown.
    """
    import torch

    if name not in _GROUPED or not tensors or not is_sparse(tensors[0]):
        return -1
    dims = provided.get("dim")
    if dims is None or dims == []:
        return 1
    dims = [dims] if isinstance(dims, int) else dims
    rank = tensors[0].dim()
    indices = _coordinates_of_stored_elements(tensors[0])
    folded = {dim % rank for dim in dims}
    if any(dim >= len(indices) for dim in folded):
        return -1
    kept = [index for dim, index in enumerate(indices) if dim not in folded]
    if not kept:
        return 1
    rest = _sparse_storage_size(tensors[0]) // max(indices.shape[1], 1)
    rows: int = torch.stack(kept).unique(dim=1).shape[1]
    return int(rows * rest)


def _coordinates_of_stored_elements(tensor: Any) -> Any:
    """Return the distinct coordinates of a sparse tensor's stored elements, a tensor [axes,
    elements].
    """
    coo = tensor if tensor.is_sparse else tensor.to_sparse_coo()
    return coo.coalesce().indices()


def _coalesce_tensor(tensor: Any) -> Any:
    """Return a sparse COO tensor with duplicate positions summed; another tensor as it is."""
    return tensor.coalesce() if tensor.is_sparse else tensor


def _sparse_tensor_values(tensor: Any) -> Any:
    """Return the stored values of a sparse tensor; a dense tensor as it is."""
    if not is_sparse(tensor):
        return tensor
    return tensor._values() if tensor.is_sparse else tensor.values()


def _sparse_storage_size(tensor: Any) -> int:
    """Return the number of elements that a sparse or dense tensor stores."""
    return int(_sparse_tensor_values(tensor).numel())


def _tensors_in_arguments(values: Any) -> Iterator[Any]:
    """Yield all tensors in nested lists, tuples and dicts of arguments."""
    import torch
    from torch.utils._pytree import tree_leaves

    yield from (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _replace_sparse_constants(
    program: "ExportedProgram", observed: dict[str, _ObservedResult]
) -> None:
    """Replace each sparse weight, constant and example input of a program by its stored values."""
    import torch
    from torch.utils._pytree import tree_map_only

    for stored in (program.state_dict, program.constants):
        for name, tensor in list(stored.items()):
            if is_sparse(tensor):
                values = _sparse_tensor_values(
                    tensor.detach()
                ).clone()  # a view of what has no strides
                parameter = isinstance(tensor, torch.nn.Parameter)
                stored[name] = (
                    torch.nn.Parameter(values, tensor.requires_grad) if parameter else values
                )
    program.example_inputs = tree_map_only(
        torch.Tensor,
        lambda x: _sparse_tensor_values(x.detach()).clone() if is_sparse(x) else x,
        program.example_inputs,
    )


def _fake_stored_values(mode: Any, real: Any) -> Any:
    """Return a fake tensor with the shape of the stored values of `real`."""
    import torch

    values = _sparse_tensor_values(real)
    with mode:
        return torch.empty(values.shape, dtype=values.dtype, device=values.device)


def _replace_sparse_node(node: "fx.Node", facts: dict[str, Any], real: Any) -> None:
    """Make a sparse operator's node a call of `crossflops::on_sparse`, or of `zeros` if it has no
    operands.

    A node without operands makes a tensor that stores nothing, and its values are as many zeros:
    the operator would have no device.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    operands = [leaf for leaf in tree_leaves((node.args, node.kwargs)) if hasattr(leaf, "meta")]
    operands = [leaf for leaf in operands if hasattr(leaf.meta.get("val"), "shape")]
    values = _sparse_tensor_values(real)
    if not operands:
        node.target, node.args = torch.ops.aten.zeros.default, (list(values.shape),)
        node.kwargs = {"dtype": values.dtype, "device": values.device}
        return
    numbers = ("stored", "distinct", "sparse")
    node.args = (
        operands,
        str(node.target),
        list(values.shape),
        values.dtype,
        *(facts[name] for name in numbers),
        [facts[name] for name in ("kept", "terms", "masked", "groups")],
        facts["scales"],
    )
    node.kwargs = {}
    node.target = _sparse_operator()


@functools.cache
def _sparse_operator() -> Any:
    """Return the operator `crossflops::on_sparse`, which has a result shape and does no work."""
    import torch

    library = torch.library.Library("crossflops", "FRAGMENT")
    library.define(
        "on_sparse(Tensor[] operands, str operator, int[] size, ScalarType dtype, int[] stored, "
        "int[] distinct, int[] sparse, int[] observed, float[] scales) -> Tensor"
    )

    def empty_tensor_of_sparse_result(
        operands: Any, operator: str, size: Any, dtype: Any, *facts: Any
    ) -> Any:
        """Return an uninitialized tensor with the size and dtype of a sparse operator's result."""
        return torch.empty(size, dtype=dtype, device=operands[0].device if operands else "cpu")

    library.impl("on_sparse", empty_tensor_of_sparse_result, "CompositeExplicitAutograd")
    _sparse_operator.library = library  # type: ignore[attr-defined]  # what it defines goes with it
    return torch.ops.crossflops.on_sparse.default


def sparse_operator_translations() -> dict[Any, Callable[..., Any]]:
    """Return the function that translates `crossflops::on_sparse` to ONNX, in a dict by that
    operator.
    """
    return {_sparse_operator(): _write_sparse_operator_node}


def _write_sparse_operator_node(
    operands: Any, operator: str, size: Any, dtype: Any, *facts: Any
) -> Any:
    """Write a sparse operator as one ONNX node, with its numbers of stored elements as attributes;
    return the result.
    """
    from onnxscript import values

    name = f"{operator}{SUFFIX}"
    stored, distinct, sparse, observed, scales = facts
    attributes = {
        "stored": list(stored),
        "distinct": list(distinct),
        "sparse": list(sparse),
        **dict(zip(("kept", "terms", "masked", "groups"), map(int, observed), strict=True)),
        "beta": float(scales[0]),
        "alpha": float(scales[1]),
    }
    schema = single_result_node_schema(name, bool(operands), attributes)
    return values.Op(values.Opset(DOMAIN, 1), name, schema)(*operands, **attributes)
