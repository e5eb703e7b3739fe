"""The export of a program to ONNX in memory by PyTorch's exporter, or one line that says why it
fails.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from crossflops.errors import NormalizeError
from crossflops.frontends.pytorch.convert.decomposition import decomposing_by_signature
from crossflops.frontends.pytorch.convert.ignored_arguments import is_argument_ignored
from crossflops.frontends.pytorch.convert.known_forms import (
    WritingPlace,
    tracking_writing_place,
    translation_from_stored_nodes,
)
from crossflops.frontends.pytorch.convert.model_passes import renumbering_opsets
from crossflops.frontends.pytorch.convert.reference import is_reference_export
from crossflops.frontends.pytorch.load.refusals import brief_error_text
from crossflops.frontends.pytorch.record.dropped_operators import (
    DroppedOperators,
    recording_dropped_operators,
)
from crossflops.frontends.pytorch.record.operators import is_third_party_operator
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_attribute

# The table by which PyTorch's exporter looks up the ONNX form of an operator, built once.
#
# `torch.onnx.export` reads the source of some five hundred functions anew for each model, which
# takes as long as all else that it does for a small one.


_BRINGING = ("torchvision", "torch.ao.quantization.fx._decomposed")  # operators of their own


@contextmanager
def reusing_export_registry() -> Iterator[None]:
    """Let all exports inside the block share one table of ONNX translations.

    If PyTorch has no such table at the known place, it builds its own as usual.
    """
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry as Registry
    except ImportError:
        yield
        return
    build = Registry.__dict__.get("from_torchlib")
    if not isinstance(build, classmethod):
        yield
        return

    def copy_cached_registry(registry: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a copy of PyTorch's table of ONNX translations, which is built once for each set
        of imported libraries.
        """
        # what another library brings is in the table only once that has been imported
        there = tuple(name for name in _BRINGING if name in sys.modules)
        return _copy_export_registry(
            _build_export_registry(build, registry, there, args, **kwargs)
        )

    with patching_attribute(
        Registry, "from_torchlib", classmethod(copy_cached_registry), inventory.EXPORT_REGISTRY
    ):
        yield


@contextmanager
def reusing_schema_signatures() -> Iterator[None]:
    """Let exports inside the block derive the signature of each ONNX operator only once.

    If onnx-ir has no such class at the known place, it derives them as usual.
    """
    try:
        from onnx_ir.schemas import OpSignature
    except ImportError:
        yield
        return
    derive = OpSignature.from_op_schema

    def signature_from_cache(schema: Any) -> Any:
        """Return the signature of an ONNX operator's schema, cached for the domains of ONNX
        itself.
        """
        if schema.domain not in _DOMAINS_OF_ONNX:  # two models have other operators of one name
            return derive(schema)
        key = schema.domain, schema.name, schema.since_version
        if key not in _SIGNATURES:
            _SIGNATURES[key] = derive(schema)
        return _SIGNATURES[key]

    replaced = staticmethod(signature_from_cache)
    with patching_attribute(
        OpSignature, "from_op_schema", replaced, inventory.OPERATOR_SIGNATURES
    ):
        yield


_DOMAINS_OF_ONNX = ("", "ai.onnx", "ai.onnx.ml")
_SIGNATURES: dict[tuple[str, str, int], Any] = {}  # one for each operator of ONNX


@functools.cache
def _build_export_registry(
    build: "classmethod[Any, Any, Any]",
    registry: Any,
    with_libraries: tuple[str, ...],
    args: tuple[Any, ...],
    **kwargs: Any,
) -> Any:
    """Return PyTorch's registry of ONNX translations, cached by the arguments and the imported
    libraries.
    """
    return build.__func__(registry, *args, **kwargs)


def _copy_export_registry(table: Any) -> Any:
    """Return a copy of a table of ONNX translations, so that operators can be added to the copy
    alone.
    """
    kind: Any = type(table)
    copied = object.__new__(_registry_class(kind))
    copied.__dict__.update(vars(table))
    copied.functions = {target: list(forms) for target, forms in table.functions.items()}
    return copied


@functools.cache
def _registry_class(registry: Any) -> Any:
    """Return PyTorch's class of registries, with signatures of added translations cached."""

    class Registry(registry):
        """A registry of ONNX translations that derives the signature of each only once."""

        def register_op(self, target: Any, function: Any, is_complex: bool = False) -> None:
            """Add a translation of an operator, before those of PyTorch."""
            try:
                entry = _translation_entry(target, function, is_complex)
            except TypeError:  # a function without a hash
                super().register_op(target, function, is_complex)
            else:
                self._register(target, entry)

    return Registry


@functools.lru_cache(maxsize=1000)
def _translation_entry(target: Any, function: Callable[..., Any], is_complex: bool) -> Any:
    """Return the entry of an added translation in a registry, with its derived signature."""
    from torch.onnx._internal.exporter._registration import OnnxDecompMeta

    return OnnxDecompMeta(
        onnx_function=function,
        fx_target=target,
        signature=None,
        is_custom=True,
        is_complex=is_complex,
    )


# Operators that have no ONNX form, exported as opaque nodes: named in the ledger, not counted.
#
# One operator that the exporter does not know would else cost the whole count.

DOMAIN = "torch.ops"
COMPLEX = ".complex"
IMAGINARY = "_imag"  # ends the name of the attribute with the imaginary part of a number
_UNKNOWN = re.compile(r"<OpOverload\(op='(?P<name>[\w.]+)', overload='(?P<overload>\w+)'\)>")
_PLAIN = re.compile(
    r"(?:Optional\[)?(?:List\[(?P<items>int|float|bool)\]|(?P<one>int|float|number|bool|str))\]?"
)
_TYPES = [
    f"tensor({name})"
    for name in (
        "float", "double", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
        "bool", "complex64", "complex128",
    )
]  # fmt: skip


def operator_without_translation(error: BaseException) -> Any:
    """Return the operator that made an export fail because it has no ONNX translation; None for
    another error.
    """
    import torch

    cause: BaseException | None = error
    while cause is not None:
        match = _UNKNOWN.search(str(cause)) if type(cause).__name__ == "DispatchError" else None
        if match:
            namespace, _, name = match["name"].partition(".")
            packet = getattr(getattr(torch.ops, namespace), name)
            return getattr(packet, match["overload"])
        cause = cause.__cause__
    return None


_TRANSLATED = re.compile(r"Error when translating node .*?\[target=torch\.ops\.(\w+\.\w+\.\w+)\]")


def operator_with_failed_translation(error: BaseException) -> Any:
    """Return the operator whose ONNX translation raised `error`, or None for another error.

    `torch.histc` without bounds takes them from its values, which its form does not support.
    """
    import torch

    cause: BaseException | None = error
    while cause is not None:
        match = _TRANSLATED.match(str(cause))
        if match:
            namespace, name, overload = match[1].split(".")
            return getattr(getattr(getattr(torch.ops, namespace), name), overload)
        cause = cause.__cause__
    return None


@contextmanager
def translating_complex_operators(
    table: Mapping[Any, Callable[..., Any]],
    forms: Mapping[Any, Callable[..., Any]],
    writing_place: WritingPlace,
) -> Iterator[None]:
    """Let the exporter use the translations of `table` before its own inside the block, also for
    complex numbers.

    PyTorch separates these, and `torch.onnx.export` adds none of them to its own. An operator
    without a form for complex arguments becomes an opaque node there, and keeps its form for real
    ones. An operator that has a formula as one node for real numbers gets another name for complex
    ones, whose work differs. `forms` are those of this program in the table.
    """
    from torch.onnx._internal.exporter import _dispatching

    dispatch = original_attribute(_dispatching, "dispatch", inventory.EXPORT_DISPATCH)

    def dispatch_stored_translation(node: Any, registry: Any) -> tuple[Any, str]:
        """Return the function that translates an FX node to ONNX (by stored nodes if they are
        known), or None, and a message.
        """
        if is_reference_export():
            return dispatch_own_table_first(node, registry)
        flags = node.target in table, node.target in forms, registry.opset_version
        return translation_from_stored_nodes(
            node, flags, functools.partial(dispatch_own_table_first, node, registry), writing_place
        )

    def dispatch_own_table_first(node: Any, registry: Any) -> tuple[Any, str]:
        """Return the function that translates an FX node to ONNX (ours if there is one, else
        PyTorch's), or None, and a message.
        """
        if is_argument_ignored(node):
            return opaque_node_translation(node.target), ""
        if node.target in table and node.target not in forms and _list_result_length(node):
            return _opaque_list_translation(node.target, _list_result_length(node)), ""
        known, other = table.get(node.target), str(node.target).startswith((*_KEPT, *_OF_REALS))
        if known is not None and not (other and _has_complex_operand(node)):
            return known, ""
        form, why = dispatch(node, registry)
        if form is None and str(node.target) in _OF_PAIRS and _has_complex_operand(node):
            return _OF_PAIRS[str(node.target)], ""
        if form is None and _has_complex_operand(node) and hasattr(node.target, "_schema"):
            return opaque_node_translation(node.target, COMPLEX if other else ""), ""
        return form, why

    with patching_attribute(
        _dispatching, "dispatch", dispatch_stored_translation, inventory.EXPORT_DISPATCH
    ):
        yield


def _write_complex_unsqueeze(numbers: Any, dim: int) -> Any:
    """Write ONNX nodes for `unsqueeze` of complex numbers, stored as pairs on the last axis;
    return the result.
    """
    from onnxscript.onnx_opset import opset23

    return opset23.Unsqueeze(numbers, opset23.Constant(value_ints=[dim - (dim < 0)]))


# ONNX forms of operators on complex numbers that the exporter has for real ones alone.
_OF_PAIRS = {"aten.unsqueeze.default": _write_complex_unsqueeze}


@contextmanager
def promoting_scalar_operands() -> Iterator[None]:
    """Make the exporter convert number operands to tensors, where an operator takes tensors,
    inside the block.

    `1.0 - x` of integers is `aten.sub.Tensor(1.0, x)` in a program. PyTorch's exporter makes a
    tensor of such a number only where it casts it, and otherwise finds no form of the operator.
    Source: torch/onnx/_internal/fx/passes/type_promotion.py (_maybe_promote_arg).
    """
    import torch

    interpreter = patch_owner(inventory.EXPORT_NUMBERS)
    promote = original_attribute(interpreter, "_maybe_promote_arg", inventory.EXPORT_NUMBERS)

    def promote_scalar_operand(self: Any, node: Any, fx_arg: Any, dtype: Any) -> Any:
        """Return a node with the number as a tensor of `dtype`, if the operator takes a tensor
        there; else PyTorch's result.
        """
        is_number = isinstance(fx_arg, int | float) and dtype is not None
        if not is_number or not _is_number_for_tensor(node, fx_arg):
            return promote(self, node, fx_arg, dtype)
        with node.graph.inserting_before(node):
            scalar = torch.ops.aten.scalar_tensor.default
            return self._create_node(
                node.graph, "call_function", scalar, (fx_arg,), {"dtype": dtype}
            )

    with patching_attribute(
        interpreter, "_maybe_promote_arg", promote_scalar_operand, inventory.EXPORT_NUMBERS
    ):
        yield


def _is_number_for_tensor(node: Any, operand: Any) -> bool:
    """Return True if a node gets this number where its operator takes a tensor."""
    indices = zip(node.target._schema.arguments, node.args, strict=False)
    return any(str(index.type) == "Tensor" and provided is operand for index, provided in indices)


def _has_complex_operand(node: Any) -> bool:
    """Return True if an operand of the FX node is a tensor of complex numbers."""
    values = (source.meta.get("val") for source in node.all_input_nodes)
    return any(_has_dtype_and_shape(value) and value.is_complex() for value in values)


def opaque_node_translation(
    operator: Any, suffix: str = "", result_count: int | None = None
) -> Callable[..., Any]:
    """Return a function that translates calls of an operator to one node of the domain
    `torch.ops`, which no rule opens.

    It has `result_count` results, or as many as the schema has. Its inputs are the tensors among
    the arguments, lists of tensors flattened; its attributes the plain arguments that are passed,
    by their names in the operator's schema. An argument called `self`, the number in `2 ** z`, is
    renamed to `self_`.
    """
    from onnx.defs import OpSchema
    from onnxscript import values

    real = OpSchema.AttrType.FLOAT
    arguments = operator._schema.arguments
    opset, name = values.Opset(DOMAIN, 1), f"{operator}{suffix}"

    def write_opaque_node(*args: Any, **kwargs: Any) -> Any:
        """Write a call as one ONNX node, with tensors as inputs and numbers or texts as
        attributes; return its results.
        """
        provided = (
            dict(zip((argument.name for argument in arguments), args, strict=False)) | kwargs
        )
        named = dict(
            _split_complex_arguments(
                (_argument_attribute_name(name), provided[name]) for name in provided
            )
        )
        flat = [
            x
            for argument in named.values()
            for x in (argument if _is_list_or_tuple(argument) else [argument])
        ]
        tensors = [x for x in flat if _has_dtype_and_shape(x)]
        schema = _opaque_operator_schema(operator, name, bool(tensors), result_count)
        plain = {
            name: float(value) if schema.attributes[name].type == real else value
            for name, value in named.items()
            if name in schema.attributes and _is_attribute_value(value)
        }
        return values.Op(opset, name, schema)(*tensors, **plain)

    return write_opaque_node


def _list_result_length(node: Any) -> int:
    """Return the number of tensors in the list that the operator of another library returns in
    this FX node; 0 for any other node.
    """
    if not is_third_party_operator(node):
        return 0
    returns, value = node.target._schema.returns, node.meta.get("val")
    is_list = len(returns) == 1 and str(returns[0].type) == "List[Tensor]"
    return len(value) if is_list and isinstance(value, list | tuple) else 0


def _opaque_list_translation(operator: Any, result_count: int) -> Callable[..., Any]:
    """Return a function that translates a call which returns a list of this number of tensors to
    one opaque node, with a result for each of them instead of a sequence, whose shapes are
    unknown.
    """
    translate = opaque_node_translation(operator, result_count=result_count)

    def write_opaque_node_of_list(*args: Any, **kwargs: Any) -> Sequence[Any]:
        """Write a call as one ONNX node; return its results, also a single one, in a tuple."""
        results = translate(*args, **kwargs)
        return (results,) if result_count == 1 else tuple(results)

    return write_opaque_node_of_list


def _split_complex_arguments(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield (name, argument); a complex number becomes its real part and, with "_imag" behind the
    name, its imaginary part.
    """
    for name, value in named:
        if isinstance(value, complex):
            yield name, value.real
            yield f"{name}{IMAGINARY}", value.imag
        else:
            yield name, value


def _opaque_operator_schema(
    operator: Any, name: str, has_inputs: bool, result_count: int | None
) -> Any:
    """Return the ONNX schema by which calls of an operator are written as nodes called `name`."""
    from onnx.defs import OpSchema

    if result_count is None:
        result_count = sum("Tensor" in str(result.type) for result in operator._schema.returns)
    return OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[_variadic_input_parameter()] if has_inputs else [],
        outputs=[OpSchema.FormalParameter(f"output{n}", "T") for n in range(result_count)],
        type_constraints=[("T", _TYPES, "")],
        attributes=[
            OpSchema.Attribute(
                f"{_argument_attribute_name(argument.name)}{part}", kind, "", required=False
            )
            for argument in operator._schema.arguments
            if (kind := _argument_attribute_type(str(argument.type))) is not None
            for part in (("", IMAGINARY) if "number" in str(argument.type) else ("",))
        ],
    )


def single_result_node_schema(name: str, has_inputs: bool, attributes: Mapping[str, Any]) -> Any:
    """Return the ONNX schema of a node called `name` with these attributes and one result."""
    from onnx.defs import OpSchema

    kinds = {
        name: _argument_attribute_type(
            f"List[{type(value[0]).__name__}]" if isinstance(value, list) else type(value).__name__
        )
        for name, value in attributes.items()
    }
    return OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[_variadic_input_parameter()] if has_inputs else [],
        outputs=[OpSchema.FormalParameter("output0", "T")],
        type_constraints=[("T", _TYPES, "")],
        attributes=[
            OpSchema.Attribute(name, kind, "", required=False) for name, kind in kinds.items()
        ],
    )


def _variadic_input_parameter() -> Any:
    """Return the schema parameter that accepts any number of input tensors of any types."""
    from onnx.defs import OpSchema

    return OpSchema.FormalParameter(
        "inputs",
        "T",
        param_option=OpSchema.FormalParameterOption.Variadic,
        is_homogeneous=False,
        min_arity=0,
    )


def _argument_attribute_name(argument: str) -> str:
    """Return the attribute name of an argument: its own, or `self_` for `self`."""
    return "self_" if argument == "self" else argument


def _argument_attribute_type(written: str) -> Any:
    """Return the ONNX attribute type for the type of an argument as its schema writes it; None for
    tensors and similar.

    PyTorch's `number`, an int, a float or a complex number, is a float: its real part.
    """
    from onnx.defs import OpSchema

    kind = OpSchema.AttrType
    match = _PLAIN.fullmatch(written)
    if match is None:
        return None
    if match["items"]:
        return kind.FLOATS if match["items"] == "float" else kind.INTS
    return {"float": kind.FLOAT, "number": kind.FLOAT, "str": kind.STRING}.get(
        match["one"], kind.INT
    )


def _is_attribute_value(value: Any) -> bool:
    """Return True if the value is a number, a bool or a text, or a list of these."""
    items = value if _is_list_or_tuple(value) else [value]
    return all(isinstance(item, int | float | str) for item in items)


def _is_list_or_tuple(value: Any) -> bool:
    """Return True if the value is a list or a tuple."""
    return isinstance(value, list | tuple)


def _has_dtype_and_shape(value: Any) -> bool:
    """Return True if the value has a dtype and a shape, as tensors have."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


_SEE_EXPORT = "check whether torch.onnx.export(model, inputs, dynamo=True) can export the model"
_BY_MODULE = (
    "a tensor is quantized by a function imported by name: write "
    "torch.quantize_per_tensor(x, ...) in the forward, or torch.fake_quantize_per_tensor_affine"
)

OPSET = 23  # the first that keeps attention and RMS normalization whole

# Operators that the exporter cannot take apart or does so by a loop whose length it hides:
# those of torch.linalg check their result by an operator without one, a running product becomes
# n^2 elements, products of groups of rows it takes only without offsets, and recurrences on packed
# sequences are taken apart by sizes that are values.
_KEPT = (
    "aten._grouped_mm.",
    "aten.embedding_bag.",
    "aten._embedding_bag.",
    "aten.cumprod.", "aten._trilinear.",
    "aten.lstm.data", "aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data",
    *(
        f"aten.{name}."
        for name in (
            "linalg_inv", "inverse", "linalg_solve", "linalg_cholesky", "linalg_lu_factor",
            "linalg_ldl_factor", "linalg_tensorsolve", "linalg_tensorinv", "linalg_eig",
            "linalg_eigh", "linalg_eigvals", "linalg_lstsq",
        )
    ),
)  # fmt: skip

# Operators without an ONNX form whose formulas hold for real numbers alone.
_OF_REALS = ("aten.linalg_", "aten._linalg_", "aten.geqrf.", "aten._sparse_addmm.")


def convert_to_onnx_program(
    exported: Any,
    dropped: DroppedOperators,
    forms: Mapping[Any, Callable[..., Any]] = {},
    surrounding: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Any:
    """Convert an exported program to an ONNX program; operators without a translation become
    opaque nodes.

    Operators that are eliminated as dead are noted in `dropped`. `forms` are additional ONNX forms
    of operators. `surrounding` returns a context in which the program can be traced again.
    """
    import torch

    from crossflops.frontends.pytorch.convert.translations import replacement_translations

    aten = torch.ops.aten
    _replace_alias_operators(exported)
    _remove_empty_cats(exported)
    _replace_idle_squeezes(exported)
    opaque = set(_operators_without_onnx_form(exported))
    table: dict[Any, Any] = {operator: opaque_node_translation(operator) for operator in opaque}
    table.update(forms)
    table.update(replacement_translations())
    table[torch.ops.aten.affine_grid_generator.default] = _write_affine_grid
    table[torch.ops.aten.conv_tbc.default] = _write_conv_tbc
    if _has_vecdots_and_all_are_real(exported):
        table[torch.ops.aten.linalg_vecdot.default] = _write_dot_products
    table[torch.ops.aten.uniform.default] = _write_uniform
    for operator, form in (
        (aten.linspace.default, _write_linspace),
        (aten.logspace.default, _write_logspace),
    ):
        if _returns_only_floats(exported, operator):
            table[operator] = form
    table[torch.ops.higher_order.map_impl] = _write_map
    table[torch.ops.aten.amin.default] = _SMALLEST
    table[torch.ops.aten.amax.default] = _LARGEST
    table[torch.ops.aten.index_put.default] = _write_index_put
    table[torch.ops.aten._unsafe_index_put.default] = _write_index_put
    table[torch.ops.aten.masked_scatter.default] = _write_masked_scatter
    full: Any = None  # the program before all composite operators in it were taken apart
    refused: Any = None
    while True:
        _drop_unresolved_sizes(exported)
        try:
            # Without gradients, as the decompositions choose kernels by it, and a view that was
            # right for the strides of one kernel is wrong for those of the other.
            with (
                torch.no_grad(),
                tracking_writing_place(exported) as writing_place,
                translating_complex_operators(table, forms, writing_place),
                promoting_scalar_operands(),
                reusing_export_registry(),
                reusing_schema_signatures(),
                recording_dropped_operators(dropped),
                decomposing_by_signature(dropped, surrounding),
                renumbering_opsets(),
            ):
                return torch.onnx.export(
                    exported,
                    dynamo=True,
                    optimize=False,
                    opset_version=OPSET,
                    verbose=False,
                    custom_translation_table=table,
                )
        except Exception as error:
            operator = operator_without_translation(error)
            if operator is None and full is None:
                # An operator has an ONNX form, but not for these arguments (attention on three
                # axes, for one): take all composite operators apart.
                full, refused = exported, operator_with_failed_translation(error)
                dropped.remove_all()
                # It raises for a tied parameter that is changed in place, for one.
                with suppress(Exception), recording_dropped_operators(dropped), surrounding():
                    exported = exported.run_decompositions()
                    continue
            if operator is None and full is not None:
                exported, full, operator = full, None, refused
                dropped.remove_all()
            if operator is None or operator in opaque or operator in forms:
                reason = brief_error_text(_root_export_error(error))
                raise NormalizeError(
                    f"torch.onnx.export failed: {reason}",
                    _BY_MODULE if "torch.q" in reason else _SEE_EXPORT,
                ) from error
            table[operator] = opaque_node_translation(operator)
            opaque.add(operator)


def _write_map(body: Any, mapped: Sequence[Any], others: Sequence[Any]) -> Sequence[Any]:
    """Write a `map` as a scan without a state, for which the exporter has a form; return its
    results.
    """
    from torch.onnx._internal.exporter._torchlib.ops import hop

    results: Sequence[Any] = hop.higher_order_scan(body, [], mapped, others)
    return results


def _drop_unresolved_sizes(exported: Any) -> None:
    """Drop symbolic sizes of the program that its trace left unresolved, since the next trace
    would fail.

    PyTorch looks for them in the next trace, and refuses it if they are missing.
    """
    for node in exported.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            mode.shape_env.pending_fresh_unbacked_symbols.clear()
            return


# Operators under a second name, whose operands the exporter does not bring to one type.
_FIRST_NAMES = {
    "divide": "div", "true_divide": "div", "multiply": "mul", "subtract": "sub", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "not_equal": "ne",
}  # fmt: skip


def _replace_alias_operators(exported: Any) -> None:
    """Replace operators of a second name, such as `divide`, by those with a translation (`div`),
    in place.
    """
    import torch

    for module in exported.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            space, _, rest = str(node.target).partition(".")
            name, _, overload = rest.partition(".")
            if node.op == "call_function" and space == "aten" and name in _FIRST_NAMES:
                packet = getattr(torch.ops.aten, _FIRST_NAMES[name])
                node.target = getattr(packet, overload)


def _replace_idle_squeezes(exported: Any) -> None:
    """Replace each `squeeze` that has no effect, since its axes are longer than 1, by a copy, in
    place.

    The exporter would write a Squeeze that no runtime can run.
    """
    import torch

    aten, graph = torch.ops.aten, exported.graph
    for target in (aten.squeeze.dim, aten.squeeze.dims):
        for node in graph.find_nodes(op="call_function", target=target):
            source, result = (value.meta["val"].shape for value in (node.args[0], node))
            if source == result:
                node.target, node.args = aten.clone.default, node.args[:1]


_PLACES = ("GatherND", "ScatterND")  # their indices are int64 alone


def cast_indices_to_int64(model: Any) -> None:
    """Cast the int32 indices of GatherND and ScatterND nodes to int64, in place."""
    import onnx_ir as ir

    for node in list(model.graph.all_nodes()):
        if node.op_type not in _PLACES or node.inputs[1].dtype != ir.DataType.INT32:
            continue
        indices = node.inputs[1]
        name = f"{indices.name}_of_{node.outputs[0].name}"
        wide = ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64), shape=indices.shape)
        if indices.is_initializer() and indices.const_value is not None:
            numbers = indices.const_value.numpy().astype("int64")
            wide.const_value = ir.tensor(numbers, name=name)
            model.graph.register_initializer(wide)
        else:
            to = ir.AttrInt64("to", int(ir.DataType.INT64))
            notes = dict(node.metadata_props)
            cast = ir.Node("", "Cast", [indices], [to], outputs=[wide], metadata_props=notes)
            node.graph.insert_before(node, cast)
        node.replace_input_with(1, wide)
        if indices.is_initializer() and not indices.uses():
            del model.graph.initializers[indices.name]


def _remove_empty_cats(exported: Any) -> None:
    """Remove each `cat` of empty tensors alone, which the exporter rejects, in place.

    Where the result is as empty as the first of them, a copy of that one replaces it, with its
    name.
    """
    import torch

    aten, graph = torch.ops.aten, exported.graph
    is_changed = False
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
            is_changed = True
    if is_changed:
        exported.graph_module.recompile()


def _write_affine_grid(*args: Any) -> Any:
    """Write the ONNX AffineGrid for theta, size and align_corners; return the grid.

    Decomposed it would be multiplications and a sum.

    The arguments, theta, size and align_corners, have no names of their own here: the exporter
    would make tensors of plain ones by their annotations.
    """
    from onnxscript.onnx_opset import opset23

    theta, size, align_corners = args
    provided = opset23.Constant(value_ints=[int(extent) for extent in size])
    return opset23.AffineGrid(theta, provided, align_corners=int(align_corners))


def _write_conv_tbc(*args: Any) -> Any:
    """Write ONNX nodes for `conv_tbc`, a convolution over data [time, batch, channels]; return the
    result.

    The arguments are the data, the weight, the bias and the padding of both ends.
    """
    from onnxscript.onnx_opset import opset23

    data, weight, bias, *pad = args
    convolved = opset23.Conv(
        opset23.Transpose(data, perm=[1, 2, 0]),
        opset23.Transpose(weight, perm=[2, 1, 0]),
        bias,
        pads=[pad[0] if pad else 0] * 2,
    )
    return opset23.Transpose(convolved, perm=[2, 0, 1])


def _has_vecdots_and_all_are_real(exported: Any) -> bool:
    """Return True if the program has dot products (`linalg.vecdot`), none of them of complex
    vectors.

    Products of complex vectors conjugate.
    """
    import torch

    dots = exported.graph.find_nodes(
        op="call_function", target=torch.ops.aten.linalg_vecdot.default
    )
    return bool(dots) and not any(dot.meta["val"].is_complex() for dot in dots)


def _write_dot_products(first: Any, second: Any, dim: int = -1) -> Any:
    """Write one ONNX Einsum for the dot products of two tensors along an axis; return the result.

    Decomposed they would be elementwise products and a sum.
    """
    from onnxscript.onnx_opset import opset23

    letters = [chr(ord("a") + index) for index in range(max(len(first.shape), len(second.shape)))]
    result = [letter for letter in letters if letter != letters[dim]]
    rows = ("".join(letters[len(letters) - len(x.shape) :]) for x in (first, second))
    return opset23.Einsum(first, second, equation=f"{','.join(rows)}->{''.join(result)}")


def _write_extreme(reduction: str, *args: Any) -> Any:
    """Write the ONNX `reduction` (a minimum or maximum) along axes, of all elements if none are
    given; return the result.

    The exporter accepts no list of axes.
    """
    from onnxscript.onnx_opset import opset23

    x, *rest = args
    dims, kept = (rest[0] if rest else None), (rest[1] if len(rest) > 1 else False)
    axes = opset23.Constant(value_ints=list(dims)) if dims and x.shape else None
    return getattr(opset23, reduction)(x, axes, keepdims=int(kept))


_SMALLEST = functools.partial(_write_extreme, "ReduceMin")
_LARGEST = functools.partial(_write_extreme, "ReduceMax")


def _write_index_put(*args: Any) -> Any:
    """Write ONNX nodes for `index_put`, a Where if it sets one number by a mask; return the
    changed tensor.

    The exporter would search the elements, whose number depends on values. The arguments are the
    tensor, masks or indices, the written values, and whether they are added.
    """
    from onnx_ir import DataType
    from onnxscript.function_libs.torch_lib.ops.core import aten_index_put
    from onnxscript.onnx_opset import opset23

    source, indices, number, *adds = args
    indices = [_write_int64_cast(index) for index in indices]
    args = (source, indices, number, *adds)
    ((position, mask), *others) = [
        (k, index) for k, index in enumerate(indices) if index is not None
    ]
    of_mask = mask.dtype == DataType.BOOL and not others and not any(adds)
    if not of_mask or number.shape is None or any(size != 1 for size in number.shape):
        return aten_index_put(*args)
    more = len(source.shape) - position - len(mask.shape)  # axes behind those of the mask
    if more:
        mask = opset23.Unsqueeze(mask, opset23.Constant(value_ints=range(-more, 0)))
    return opset23.Where(mask, number, source)


def _write_int64_cast(index: Any) -> Any:
    """Return the index cast to int64 if it is of int32, else as it is.

    The exporter adds constants of int64 to indices of int32.
    """
    from onnx_ir import DataType
    from onnxscript.onnx_opset import opset23

    if index is None or index.dtype != DataType.INT32:
        return index
    wide = opset23.Cast(index, to=int(DataType.INT64))
    wide.dtype, wide.shape = DataType.INT64, index.shape
    return wide


def _write_masked_scatter(*args: Any) -> Any:
    """Write ONNX nodes for `masked_scatter`, which puts the source's elements in order where the
    mask is True; return the tensor.

    The exporter would search the elements, whose number depends on values. Here each element of
    the mask knows how many came before it. The arguments are the tensor, the mask, the source.
    """
    from onnx_ir import DataType
    from onnxscript.onnx_opset import opset23

    tensor, mask, source = args
    flat = opset23.Constant(value_ints=[-1])
    first, step = opset23.Constant(value_int=0), opset23.Constant(value_int=1)
    full = opset23.Expand(mask, opset23.Constant(value_ints=list(tensor.shape)))
    counts = opset23.CumSum(
        opset23.Cast(opset23.Reshape(full, flat), to=int(DataType.INT64)), first
    )
    indices = opset23.Max(opset23.Sub(counts, step), first)
    rows = opset23.Gather(opset23.Reshape(source, flat), indices)
    shaped = opset23.Reshape(rows, opset23.Constant(value_ints=list(tensor.shape)))
    return opset23.Where(full, shaped, tensor)


def _write_uniform(*args: Any) -> Any:
    """Write the ONNX node for uniform random numbers between two bounds, in a tensor's shape;
    return them.

    Decomposed they would have no translation.
    """
    from onnxscript.onnx_opset import opset23

    low = float(args[1]) if len(args) > 1 else 0.0
    high = float(args[2]) if len(args) > 2 else 1.0
    return opset23.RandomUniformLike(args[0], low=low, high=high)


def _returns_only_floats(exported: Any, operator: Any) -> bool:
    """Return True if all results of an operator in the program have a float dtype."""
    nodes = exported.graph.find_nodes(op="call_function", target=operator)
    return all(node.meta["val"].is_floating_point() for node in nodes)


def _write_linspace(start: Any, end: Any, steps: int, dtype: int = -1, **options: Any) -> Any:
    """Write ONNX nodes for `linspace` as start + index * step; return the result.

    The exporter computes each element from both ends.
    """
    from onnxscript.onnx_opset import opset23

    dtype = 1 if dtype < 0 else int(dtype)
    indices = opset23.Cast(
        opset23.Range(
            opset23.Constant(value_int=0),
            opset23.Constant(value_int=steps),
            opset23.Constant(value_int=1),
        ),
        to=dtype,
    )
    step = (float(end) - float(start)) / max(steps - 1, 1)
    first, width = (
        opset23.Cast(opset23.Constant(value_float=value), to=dtype)
        for value in (float(start), step)
    )
    return opset23.Add(opset23.Mul(indices, width), first)


def _write_logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, dtype: int = -1, **options: Any
) -> Any:
    """Write ONNX nodes for `logspace`, the base to the power of each element of a `linspace`;
    return the result.
    """
    from onnxscript.onnx_opset import opset23

    exponents = _write_linspace(start, end, steps, dtype)
    return opset23.Pow(
        opset23.CastLike(opset23.Constant(value_float=float(base)), exponents), exponents
    )


def _operators_without_onnx_form(exported: Any) -> set[Any]:
    """Return the operators of a program whose ONNX translation fails or does different work.

    The ONNX LSTM has no projection: the exporter writes the width of the projected state as that
    of the cell.
    """
    import torch

    without_form = set()
    for node in exported.graph.nodes:
        projects = node.target is torch.ops.aten.lstm.input and _has_lstm_projection(*node.args[1])
        inverts = node.target is torch.ops.aten.linalg_matrix_power.default and node.args[1] < 0
        kept = node.op == "call_function" and str(node.target).startswith(_KEPT)
        weighs = node.target is torch.ops.aten.bincount.default and len(node.all_input_nodes) > 1
        if projects or inverts or kept or weighs:
            without_form.add(node.target)
    return without_form


def _has_lstm_projection(hidden: Any, cell: Any) -> bool:
    """Return True if an LSTM's hidden state has another width than its cell state, as a projection
    makes it.
    """
    return bool(hidden.meta["val"].shape[-1] != cell.meta["val"].shape[-1])


def _root_export_error(error: BaseException) -> BaseException:
    """Return the first cause of an export error, at the end of its chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
