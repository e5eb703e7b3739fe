"""Choose and write the ONNX file that tools of graph nodes are given."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.frontends import Source, record_model
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.inference import strict_shapes_by_name, with_shapes_by_name
from crossflops.frontends.onnx.loops import has_operator_at_any_depth
from crossflops.frontends.onnx.parameters import weight_elements_by_node
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.trace import Setting
from crossflops.load import decode_onnx_model, read_onnx_model
from crossflops.reconcile.parameters import Stock
from crossflops.targets.request import Request
from crossflops.threads import filter_warnings
from crossflops.verbs.count import (
    CountedModel,
    count_recording,
    count_source,
    write_onnx_program,
)

NAME = "model.onnx"


class ToolInputFile(msgspec.Struct, frozen=True):
    """The ONNX file that tools get: a given one, or one that will be written to `path`.

    `given` is None where it is the normalized model. `path` is where the tools find it.
    """

    given: OnnxFile | None
    path: Path

    def count_file(self, native: CountedModel, setting: Setting) -> CountedModel:
        """Return the count of the file as tools see it: its functions are not replaced by their
        bodies.

        A converted model is its file, except for loops: the count has their runs, where these
        differ. A module that a formula counts whole has its nodes in the file.
        """
        if self.given is not None:
            return count_source(Source(self.given, (), {}), setting, ())
        program = native.program
        if not native.graph.whole_calls and not _has_onnx_loop(program):
            return native
        self.write_onnx_file(native)
        file = OnnxFile(path=str(self.path), inlined=False)
        with filter_warnings("ignore"):  # as the count of the model has said
            recording = record_model(Source(file, (), {}), setting, ())
            made = count_recording(recording, partial(_with_custom_operators, native.graph))
        return msgspec.structs.replace(made, program=program)

    def tensors_in_file(self, own: CountedModel) -> Stock:
        """Return the stored tensors of the file: initializers, the nodes that use them, and which
        are weights.
        """
        model = read_onnx_model(self.given.path) if self.given else own.program
        if isinstance(model, bytes):
            model = decode_onnx_model(model)
        nodes = _with_stored_input_names(
            own.graph.with_all_nodes_of_file.nodes, dict(_node_and_input_names(model.graph))
        )
        weights: dict[str, int] = {}
        for weights_of_node in weight_elements_by_node(nodes).values():
            weights |= weights_of_node
        return Stock(
            initializers=tuple(_initializer_specs(model)),
            nodes=nodes,
            weights=weights,
            params=own.graph.params,
        )

    def graph_with_inferred_shapes(self, own: CountedModel) -> Graph:
        """Return the graph of the file with the shapes that onnx.shape_inference finds.

        Of a model that was exported these are its own, but for sizes that values decided and for
        what loops give back.
        """
        if self.given is not None:
            shapes = strict_shapes_by_name(self.given.path, self.given.dims, self.given.specs)
        elif any(n.depends_on_inputs or n.op.type == "Loop" for n in own.graph.nodes):
            self.write_onnx_file(own)
            shapes = strict_shapes_by_name(str(self.path), {}, ())
        else:
            shapes = None
        return (
            own.graph
            if shapes is None
            else with_shapes_by_name(own.graph.with_all_nodes_of_file, shapes)
        )

    def write_onnx_file(self, native: CountedModel) -> None:
        """Write the file, unless it is a given one that can be used as it is."""
        if self.given is None:
            hint = "convert the model to ONNX, and give the file with --onnx"
            write_onnx_program(native, self.path, hint)
        elif self.path != Path(self.given.path):
            from crossflops.export.program import save_with_bound_sizes

            save_with_bound_sizes(self.given, self.path)


def _with_custom_operators(native: Graph, file: Graph) -> Graph:
    """Return the graph of a file with what the native one knows of custom operators.

    A file has neither the names of their operands and the defaults of their schemas, which
    formulas read, nor their bodies.
    """
    known = {node.key: node for node in (*native.nodes, *native.replaced) if node.operand_names}

    def copy_operator_details(node: Node) -> Node:
        """Return a node with the operand names, attributes and body of the native one."""
        own = known.get(node.key)
        if own is None or own.op != node.op or len(own.inputs) != len(node.inputs):
            return node
        return msgspec.structs.replace(
            node,
            attrs=own.attrs,
            operand_names=own.operand_names,
            bodies=own.bodies,
            choice=own.choice,
            opened=own.opened,
            closed=own.closed,
        )

    return msgspec.structs.replace(file, nodes=tuple(map(copy_operator_details, file.nodes)))


def _has_onnx_loop(program: Any) -> bool:
    """Return whether the exported model, if it is ONNX bytes, contains a Loop."""
    if not isinstance(program, bytes):
        return False
    return has_operator_at_any_depth(decode_onnx_model(program).graph, "Loop")


def _node_and_input_names(graph: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield (node name, names of its inputs) for each node of an ONNX graph."""
    if hasattr(graph, "initializers"):
        for node in graph:
            yield node.name or "", [value.name if value else "" for value in node.inputs]
        return
    for node in graph.node:
        yield node.name, list(node.input)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else ():
                yield from _node_and_input_names(body)


def _with_stored_input_names(
    nodes: tuple[Node, ...], inputs: Mapping[str, list[str]]
) -> tuple[Node, ...]:
    """Return copies of the nodes whose inputs have the names that the ONNX file has for them."""

    def rename_inputs(node: Node) -> Node:
        """Return a copy of a node, and of the nodes in its bodies, with the input names of the
        ONNX file.
        """
        names = inputs.get(node.key, [])  # a node without a name has another key
        if len(names) != len(node.inputs):
            return node
        specs = tuple(
            spec if spec is None else msgspec.structs.replace(spec, name=name)
            for spec, name in zip(node.inputs, names, strict=True)
        )
        bodies = tuple(
            msgspec.structs.replace(body, nodes=tuple(map(rename_inputs, body.nodes)))
            for body in node.bodies
        )
        return msgspec.structs.replace(node, inputs=specs, bodies=bodies)

    return tuple(map(rename_inputs, nodes))


def _initializer_specs(model: Any) -> Iterator[TensorSpec]:
    """Yield a tensor spec with the name and the shape of each initializer of an ONNX model."""
    values = getattr(model.graph, "initializers", None)
    if values is None:
        for initializer in model.graph.initializer:
            yield TensorSpec(initializer.name, "", tuple(initializer.dims), "parameter")
        return
    for name, value in values.items():
        if value.shape is not None:
            yield TensorSpec(name, "", tuple(value.shape.numpy()), "parameter")


def tool_input_file(request: Request, onnx: str | None, scratch: str) -> ToolInputFile:
    """Return the ONNX file for tools: the one of --onnx, the target itself, or one to be written
    in the folder `scratch`.

    A file whose sizes are bound by the caller is copied with these sizes. Raises InputError.
    """
    if onnx is not None and request.is_file:
        raise InputError(
            f"--onnx cannot be used: {request.target} is already an ONNX file", "leave out --onnx"
        )
    source: Any = request.source().model if request.is_file else None
    if onnx is not None:
        source = OnnxFile(path=onnx)
    if not isinstance(source, OnnxFile):
        return ToolInputFile(None, Path(scratch, NAME))
    source = msgspec.structs.replace(source, inlined=False)
    bound = source.dims or source.specs
    return ToolInputFile(source, Path(scratch, NAME) if bound else Path(source.path).absolute())
