"""Convert a JAX function to ONNX by jax2onnx, without folding or merging operations."""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from crossflops.errors import NormalizeError
from crossflops.frontends.conversion import silencing_loggers
from crossflops.frontends.jax.convert import rules
from crossflops.frontends.jax.convert.dead_states import dropping_dead_loop_states
from crossflops.frontends.jax.convert.lowering import (
    DOMAIN,
    LoweringRecorder,
    has_complex_elements,
    node_equation_number,
    recording_and_fixing_lowering,
)
from crossflops.frontends.jax.convert.rewrites import naming_resize_methods
from crossflops.frontends.jax.convert.value_searches import finding_producers_without_search
from crossflops.frontends.jax.record.function import Pure, isolating_jax_cache
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

# What jax2onnx writes, tidied: no biases that are never added, no products that ONNX has not.

_SUM = "reduce_window_sum"
_BIASED = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LayerNormalization": 2}


def store_weights_transposed(model: Any) -> None:
    """Replace Transposes of weights by weights that are stored transposed, in place.

    Their order changes, and no node computes.
    """
    for node in list(model.graph):
        if node.op_type == "Transpose" and node.inputs[0].is_initializer():
            _transpose_stored_weight(node)


def drop_zero_biases(model: Any) -> None:
    """Remove the all-zero biases that jax2onnx adds from a model, in place."""
    for node in list(model.graph.all_nodes()):
        index = _BIASED.get(node.op_type)
        if (
            index is not None
            and len(node.inputs) > index
            and _is_added_zero_tensor(node.inputs[index])
        ):
            node.replace_input_with(index, None)


def drop_dropout_mode_inputs(model: Any) -> None:
    """Remove the training mode input of Dropout nodes that drop nothing, in place."""
    for node in list(model.graph.all_nodes()):
        if (
            node.op_type == "Dropout"
            and len(node.inputs) > 2
            and _is_added_zero_tensor(node.inputs[2])
        ):
            node.replace_input_with(2, None)


def replace_vector_gemms(model: Any) -> None:
    """Replace each Gemm of a vector, which ONNX lacks, by a MatMul and an Add, in place."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Gemm" and _value_rank(node.inputs[0]) == 1:
            _replace_gemm_by_matmul(node)


def replace_window_sums_by_average_pools(model: Any, primitives: Sequence[str]) -> None:
    """Replace each Conv that only sums windows by an AveragePool and a Mul, in place.

    `primitives` are those of the equations that the nodes were made for.
    """
    for node in list(model.graph.all_nodes()):
        number = node_equation_number(node)
        if node.op_type == "Conv" and number is not None and primitives[number] == _SUM:
            _replace_conv_by_average_pool(node)


def _is_added_zero_tensor(value: Any) -> bool:
    """Return whether a value is stored, all zeros, and not a variable of the model.

    The variables of a module are noted, whatever numbers they have.
    """
    stored = value.const_value if value is not None else None
    return (
        stored is not None and _WEIGHT not in value.metadata_props and not np.any(stored.numpy())
    )


def _transpose_stored_weight(node: Any) -> None:
    """Replace a Transpose of a weight by a weight stored transposed, in place."""
    import onnx_ir as ir

    result, weight = node.outputs[0], node.inputs[0]
    order = node.attributes.get("perm")
    turned = np.transpose(weight.const_value.numpy(), order and order.as_ints())
    stored_value = ir.tensor(turned, dtype=weight.const_value.dtype, name=result.name)
    stored = ir.Value(
        name=result.name, const_value=stored_value, type=weight.type, shape=ir.Shape(turned.shape)
    )
    if result.is_graph_output():
        return
    graph = node.graph
    stored.metadata_props.update(weight.metadata_props)
    ir.convenience.replace_all_uses_with(result, stored)
    graph.remove(node, safe=True)
    graph.register_initializer(stored)
    if not weight.uses():
        del graph.initializers[weight.name]


def _value_rank(value: Any) -> int | None:
    """Return the number of axes of a value, or None if its shape is unknown."""
    return len(value.shape) if value is not None and value.shape is not None else None


def _replace_gemm_by_matmul(node: Any) -> None:
    """Replace a Gemm by a MatMul and, if it has a bias, an Add, in place."""
    import onnx_ir as ir

    left, right, *rest = node.inputs
    result = node.outputs[0]
    notes = dict(node.metadata_props)
    product = ir.Node("", "MatMul", [left, right], num_outputs=1, metadata_props=dict(notes))
    made = [product]
    product.outputs[0].name = f"{result.name}_product"
    if rest and rest[0] is not None:
        total = ir.Node(
            "", "Add", [product.outputs[0], rest[0]], num_outputs=1, metadata_props=dict(notes)
        )
        made.append(total)
    _replace_ir_node(node, made)


def _replace_conv_by_average_pool(node: Any) -> None:
    """Replace a Conv by an AveragePool times the number of window elements, in place."""
    import onnx_ir as ir

    kernel = [int(size) for size in node.inputs[1].shape[2:]]
    attributes = [attribute for attribute in node.attributes.values() if attribute.name != "group"]
    kept = [attribute for attribute in attributes if attribute.name != "kernel_shape"]
    pool = ir.Node(
        "",
        "AveragePool",
        [node.inputs[0]],
        [*kept, ir.AttrInt64s("kernel_shape", kernel), ir.AttrInt64("count_include_pad", 1)],
        num_outputs=1,
        metadata_props=dict(node.metadata_props),
    )
    pool.outputs[0].name = f"{node.outputs[0].name}_average"
    dtype = node.outputs[0].type.dtype
    size = ir.tensor(
        np.array(np.prod(kernel), dtype.numpy()), dtype=dtype, name=f"{node.outputs[0].name}_size"
    )
    stored = ir.Value(
        name=size.name, const_value=size, type=ir.TensorType(dtype), shape=ir.Shape(())
    )
    node.graph.register_initializer(stored)
    times = ir.Node(
        "",
        "Mul",
        [pool.outputs[0], stored],
        num_outputs=1,
        metadata_props=dict(node.metadata_props),
    )
    _replace_ir_node(node, [pool, times])


def _replace_ir_node(node: Any, made: list[Any]) -> None:
    """Replace a node by other nodes, the last of which makes its result, in place."""
    import onnx_ir as ir

    result = node.outputs[0]
    for replacement in made:
        replacement.outputs[0].shape, replacement.outputs[0].type = result.shape, result.type
    made[-1].outputs[0].name = result.name
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], made, [result], [made[-1].outputs[0]]
    )


OPSET = 23  # the newest that jax2onnx 0.17 takes for granted
# What of jax2onnx's optimizers merges or replaces what computes.
_LEFT_OUT = (
    *("common_subexpression_elimination", "fold_conv_transpose_constant_bias"),
    *("rewrite_mul_sigmoid_as_swish", "rewrite_mul_rsqrt_as_div"),
)
_LARGEST = 1 << 30  # bytes of weights that are written out; protobuf holds 2 GiB
_Converted = TypeVar("_Converted")


def convert_with_first_working_rules(convert: Callable[[bool], _Converted]) -> _Converted:
    """Return convert(opaque) with the first set of jax2onnx's rules that does not fail.

    `convert` is told whether an equation may stay a JAX equation. A failing rule for a whole
    function is left out, and the equations of the function are converted instead. Where an
    equation has no rule, those for whole functions are tried; finally it becomes a node of the
    domain "jax", which is reported as uncounted. Raises NormalizeError where all of that fails.
    """
    first: BaseException | None = None
    with isolating_jax_cache(), silencing_loggers("jax2onnx", "onnx_ir"):
        rules.load_conversion_rules()
        for opaque, begin in _rule_sets_to_attempt():
            left = set(begin)
            while True:
                try:
                    with rules.removing_rules(left):
                        return convert(opaque)
                except NormalizeError:
                    raise
                except (Exception, SystemExit) as error:
                    first = first or error
                    more = rules.failing_rules(error) - left
                if not more:
                    break
                left |= more
    assert first is not None
    raise _jax_conversion_error(first) from first


def _rule_sets_to_attempt() -> Iterator[tuple[bool, set[str]]]:
    """Yield (whether equations may stay JAX nodes, rules left out) for each attempt."""
    yield from (
        (False, left_out)
        for left_out in (
            rules.function_rules_to_skip(),
            rules.function_replacing_rules(),
            set[str](),
        )
    )
    yield from (
        (True, left_out)
        for left_out in (rules.function_rules_to_skip(), rules.function_replacing_rules())
    )


def write_jax_onnx(pure: Pure, opaque: bool, to_run: bool) -> tuple[Any, LoweringRecorder]:
    """Return the onnx_ir model that jax2onnx writes, and the record of its equations.

    One that is `to_run` is also correct in parts that do not change a count.

    Raises NormalizeError where nothing is computed.
    """
    recorder = LoweringRecorder(to_run)
    with (
        recording_and_fixing_lowering(recorder, opaque),
        rules.correcting_product_and_norm_rules(),
        _keeping_computing_nodes(),
        _converting_live_equations(pure),
        finding_producers_without_search(),
        naming_resize_methods(),
    ):
        model = importlib.import_module("jax2onnx").to_onnx(
            pure.function, list(pure.specs), model_name="crossflops", opset=OPSET, return_mode="ir"
        )
    if not len(model.graph):
        raise NormalizeError(
            "the model has no operation: its results are inputs or constants",
            "give a model with at least one operation",
        )
    return model, recorder


class SerializedModel(NamedTuple):
    """An ONNX model as bytes: without inner shapes, and with those that jax2onnx declares."""

    without_inner_shapes: bytes
    with_declared_shapes: bytes


def serialize_jax_model(model: Any) -> SerializedModel:
    """Return an ONNX model as bytes twice: without inner shapes, and with jax2onnx's shapes.

    Where jax2onnx moves a transposition past others, it leaves the shapes of their results
    unchanged: they can be wrong.
    """
    import onnx_ir as ir

    proto = ir.to_proto(model)
    declared = proto.SerializeToString()
    _remove_inferable_shapes(proto.graph)
    return SerializedModel(proto.SerializeToString(), declared)


def give_weights_unique_names(model: Any) -> dict[str, str]:
    """Give each weight a unique name in place; return the model's own names by these."""
    stored = model.graph.initializers
    names: dict[str, str] = {}
    for value in list(stored.values()):
        if _WEIGHT in value.metadata_props:
            del stored[value.name]
            value.name = f"crossflops_weight_{len(names)}"
            stored[value.name] = value
            names[value.name] = value.metadata_props[_WEIGHT]
    return names


def name_model_inputs(model: Any, names: Sequence[str]) -> None:
    """Name the inputs of an ONNX model after the function's arguments, in place."""
    for value, name in zip(model.graph.inputs, names, strict=True):
        value.name = onnx_input_name(name)


def onnx_input_name(name: str) -> str:
    """Return the name that an argument has as an input of the ONNX model."""
    return f"in_{name}" if name[:1].isdigit() else name


def _jax_conversion_error(error: BaseException) -> NormalizeError:
    """Return the error for a model that jax2onnx cannot convert."""
    text = " ".join(str(error).split())
    return NormalizeError(
        f"jax2onnx cannot convert the model: {type(error).__name__}: {text[:300]}",
        "write that part of the model with other operations of JAX",
    )


def declare_opsets(model: Any) -> None:
    """Declare in a model the opset versions that its operators need, in place.

    jax2onnx also writes operators that are newer than the version it declares.
    """
    from onnx.defs import SchemaError, get_schema, onnx_opset_version

    newest = onnx_opset_version()
    for node in model.graph.all_nodes():
        if node.domain == DOMAIN:
            model.opset_imports[DOMAIN] = 1
        elif not node.domain:
            with contextlib.suppress(SchemaError):
                get_schema(node.op_type, max_inclusive_version=model.opset_imports[""])
                continue
            with contextlib.suppress(SchemaError):
                model.opset_imports[""] = get_schema(node.op_type, newest).since_version


def _remove_inferable_shapes(graph: Any) -> None:
    """Remove inner shapes that inference can find again from a graph, in place."""
    known = {name for node in graph.node if node.domain == DOMAIN for name in node.output}
    kept = [value for value in graph.value_info if value.name in known]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _remove_inferable_shapes(attribute.g)


def remove_large_weight_values(model: Any) -> None:
    """Remove the values, not the shapes, of large weights if all exceed 1 GiB, in place."""
    import onnx_ir as ir

    weights = [
        weight for weight in model.graph.initializers.values() if weight.const_value is not None
    ]
    if sum(weight.const_value.nbytes for weight in weights) <= _LARGEST:
        return
    for weight in weights:
        stored = weight.const_value
        if stored.nbytes > 1024:
            weight.const_value = ir.ExternalTensor(
                "weights", 0, stored.nbytes, stored.dtype, shape=stored.shape, name=weight.name
            )


@contextmanager
def _keeping_computing_nodes() -> Iterator[None]:
    """Return a context in which jax2onnx's optimizer keeps all nodes that compute."""
    module: Any = importlib.import_module("jax2onnx.converter.ir_optimizations")
    before = original_attribute(module, "_OPTIMIZER_PASSES", inventory.OPTIMIZERS)
    kept = tuple(step for step in before if step.name not in _LEFT_OUT)
    with patching_attribute(module, "_OPTIMIZER_PASSES", kept, inventory.OPTIMIZERS):
        yield


_WEIGHT = "crossflops.weight"  # notes at a stored tensor which of the model's arrays it is


@contextmanager
def _converting_live_equations(pure: Pure) -> Iterator[None]:
    """Return a context in which jax2onnx converts only equations that a result needs.

    jax2onnx/converter/conversion_api.py: the program of _trace_to_jaxpr is lowered as a whole,
    after _bind_closed_jaxpr_constants has made a stored tensor of each of its constants.
    """
    import onnx_ir as ir

    module: Any = importlib.import_module("jax2onnx.converter.conversion_api")
    trace, bind = module._trace_to_jaxpr, module._bind_closed_jaxpr_constants

    def trace_live_program(**provided: Any) -> Any:
        """Return the traced program of a function without equations that no result needs."""
        traced_values = trace(**provided)
        closed = _without_dead_equations(traced_values.closed_jaxpr)
        return dataclasses.replace(traced_values, closed_jaxpr=closed, jaxpr=closed.jaxpr)

    def bind_complex_and_named_constants(
        ctx: Any, jaxpr: Any, constants: Sequence[Any], **more: Any
    ) -> None:
        """Bind constants to ONNX values: complex ones as pairs, weights with their names."""
        bind(ctx, jaxpr, [_complex_constant_as_pairs(constant) for constant in constants], **more)
        for variable, name in zip(jaxpr.constvars, pure.array_names(constants), strict=True):
            value = ctx.get_value_for_var(variable)
            if name:
                value.metadata_props[_WEIGHT] = name
            if has_complex_elements(variable.aval):
                value.type = ir.TensorType(ir.DataType.FLOAT)
                value.shape = ir.Shape((*variable.aval.shape, 2))

    with (
        patching_attribute(module, "_trace_to_jaxpr", trace_live_program, inventory.TRACES),
        patching_attribute(
            module,
            "_bind_closed_jaxpr_constants",
            bind_complex_and_named_constants,
            inventory.TRACES,
        ),
    ):
        yield


def _complex_constant_as_pairs(constant: Any) -> Any:
    """Return a constant as jax2onnx needs it: complex numbers as (real, imaginary) pairs."""
    if not has_complex_elements(constant):
        return constant
    values = np.asarray(constant)
    return np.stack([values.real, values.imag], -1).astype(np.float32)


def _without_dead_equations(closed: Any) -> Any:
    """Return a JAX program without equations that no result depends on."""
    from jax.extend.core import ClosedJaxpr
    from jax.interpreters import partial_eval

    requested = [True] * len(closed.jaxpr.outvars)
    with dropping_dead_loop_states():
        jaxpr, used, _ = partial_eval.dce_jaxpr_consts(closed.jaxpr, requested, instantiate=True)
    return ClosedJaxpr(
        jaxpr, [constant for constant, kept in zip(closed.consts, used, strict=True) if kept]
    )
