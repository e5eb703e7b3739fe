"""Boosted trees -> a graph of ai.onnx.ml, and a table of one module."""

from functools import lru_cache
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.frontends.boosting.file import BoostedFile
from crossflops.frontends.boosting.reading import read_file_trees, read_model_trees
from crossflops.frontends.boosting.trees import LEAF, BoostedTrees
from crossflops.frontends.converted import parameter_size_fields, with_graph_identity
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.ir.graph import Attribute, Graph, Node, Op, TensorSpec
from crossflops.ir.trace import Module, Parameter, Setting, Trace

_ML, _OPSET, _ML_OPSET = "ai.onnx.ml", 22, 3


def read_boosted_trees(model: Any) -> BoostedTrees:
    """Return the trees of a fitted model or of a model file. Raises TargetError, InputError."""
    return _read_file_once(model) if isinstance(model, BoostedFile) else read_model_trees(model)


@lru_cache(maxsize=1)  # a count asks for the width of a row, then for the trees
def _read_file_once(file: BoostedFile) -> BoostedTrees:
    """Return the trees of a model file; the result is cached."""
    return read_file_trees(file)


def one_row_spec(trees: BoostedTrees, rows: int = 1) -> TensorSpec:
    """Return the spec of an input of one row, or of several, with the features of these trees."""
    return TensorSpec("0", "float32", (rows, trees.features), "input")


def input_rows_spec(trees: BoostedTrees, inputs: ProvidedInputs) -> TensorSpec:
    """Return the spec of the input rows that the caller gave, or of one row if it gave none.
    Raises InputError.
    """
    if inputs.have_only_shapes:
        shapes = [spec.shape for spec in inputs.specs]
    else:
        values = inputs.values
        arrays = values if isinstance(values, tuple | list) else (values,)
        shapes = [value.shape for value in arrays if hasattr(value, "shape")]
    if not shapes:
        return one_row_spec(trees)
    shape = tuple(map(int, shapes[0] or ()))
    if len(shapes) > 1 or len(shape) != 2 or shape[1] != trees.features:
        shown = (
            f"is {len(shapes)} arrays"
            if len(shapes) > 1
            else f"has the shape {'x'.join(map(str, shape))}"
            if shape
            else "is a scalar"
        )
        raise InputError(
            f"the model was fitted on {trees.features} features, but the input {shown}",
            f"give one input of rows with {trees.features} features, such as "
            f"--input 1x{trees.features}",
        )
    return TensorSpec("X", "float32", shape, "input")


def build_tree_graph(model: Any, rows: TensorSpec, setting: Setting) -> tuple[Graph, Trace]:
    """Return the graph of a tree model for inputs of the shape `rows`, and a trace with one
    module.
    """
    if setting.training:
        raise InputError(
            "--train-mode can be used only with models that have a training mode",
            "leave out --train-mode",
        )
    trees = read_boosted_trees(model)
    nodes, result = tree_nodes_and_result(trees, rows)
    graph = Graph(
        name=trees.name,
        nodes=tuple(nodes),
        inputs=(rows,),
        outputs=(msgspec.structs.replace(result, role="output"),),
        params=0,
        opset={"": _OPSET, _ML: _ML_OPSET},
    )
    module = Module(
        id=0,
        names=("",),
        bases=(trees.name,),
        params=tuple(parameters_of_trees(trees)),
        children=(),
        training=False,
        settings={},
    )
    trace = Trace(calls=(), modules=(module,), setting=setting, framework="boosting")
    return with_graph_identity(graph, graph.name, **parameter_size_fields((module,))), trace


def parameters_of_trees(trees: BoostedTrees) -> list[Parameter]:
    """Return the fitted numbers of a tree model as parameters: thresholds and leaf values, or the
    weights of a linear booster.
    """
    sizes = {"weights": trees.linear, "thresholds": trees.thresholds, "leaf_values": trees.values}
    return [
        Parameter(name, (size,), number, trees.dtype)
        for number, (name, size) in enumerate(sizes.items())
        if size
    ]


def tree_nodes_and_result(trees: BoostedTrees, rows: TensorSpec) -> tuple[list[Node], TensorSpec]:
    """Return (the graph nodes of a tree model, the spec of its result) for inputs of the shape
    `rows`.
    """
    count, _ = rows.shape or (0, 0)
    scores = TensorSpec("scores", "float32", (count, trees.outputs))
    nodes: list[Node] = []
    data = rows
    for kind in trees.unknown:
        read = TensorSpec(f"{kind}:features", "float32", rows.shape)
        nodes.append(_unary_node(kind, Op(trees.library, kind, 1), data, read, {}))
        data = read
    if trees.linear:
        weight = TensorSpec("weights", "float32", (trees.features, trees.outputs), "parameter")
        bias = TensorSpec("bias", "float32", (trees.outputs,), "parameter")
        nodes.append(
            Node(
                key="scores",
                op=Op("", "Gemm", _OPSET),
                inputs=(data, weight, bias),
                outputs=(scores,),
                attrs={},
            )
        )
        return _with_transform_of_scores(trees, nodes, scores, count)
    if trees.weighted:
        factors = TensorSpec("factors", "float32", (1, len(trees.trees)), "constant")
        leaves = TensorSpec("leaves", "float32", (count, len(trees.trees)))
        weighted = TensorSpec("weighted", "float32", leaves.shape)
    kind = "TreeEnsembleClassifier" if trees.classes else "TreeEnsembleRegressor"
    is_exponential = trees.transform == "EXP"
    attributes = _tree_ensemble_attributes(trees)
    attributes["post_transform"] = "NONE" if is_exponential else trees.transform
    if trees.has_base:
        attributes["base_values"] = (0.0,) * trees.outputs
    if trees.classes:
        attributes["classlabels_int64s"] = tuple(range(trees.classes))
    else:
        attributes["n_targets"] = trees.outputs
        attributes["aggregate_function"] = "AVERAGE" if trees.averaged else "SUM"
    nodes.append(_unary_node("trees", Op(_ML, kind, _ML_OPSET), data, scores, attributes))
    if trees.weighted:
        nodes.append(
            Node(
                key="dropout",
                op=Op("", "Mul", _OPSET),
                inputs=(leaves, factors),
                outputs=(weighted,),
                attrs={},
            )
        )
    if is_exponential:
        result = TensorSpec("result", "float32", scores.shape)
        nodes.append(_unary_node("exponential", Op("", "Exp", _OPSET), scores, result, {}))
        return nodes, result
    return nodes, scores


def _with_transform_of_scores(
    trees: BoostedTrees, nodes: list[Node], scores: TensorSpec, count: int
) -> tuple[list[Node], TensorSpec]:
    """Return (the nodes, the spec of the result) after adding the node that turns scores into
    results (sigmoid, softmax or exp), if the model has one.
    """
    kinds = {"LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax", "EXP": "Exp"}
    if trees.transform not in kinds:
        return nodes, scores
    result = TensorSpec("result", "float32", (count, trees.outputs))
    kind = kinds[trees.transform]
    return [*nodes, _unary_node("transform", Op("", kind, _OPSET), scores, result, {})], result


def _unary_node(
    key: str, op: Op, data: TensorSpec, result: TensorSpec, attrs: dict[str, Attribute]
) -> Node:
    """Return a graph node with one input and one output."""
    return Node(key=key, op=op, inputs=(data,), outputs=(result,), attrs=attrs)


def _tree_ensemble_attributes(trees: BoostedTrees) -> dict[str, Attribute]:
    """Return the attributes of an ai.onnx.ml tree ensemble node that describe the nodes and leaves
    of the trees.
    """
    name = "class" if trees.classes else "target"
    nodes = [
        (number, node, feature, left, right)
        for number, tree in enumerate(trees.trees)
        for node, (feature, left, right) in enumerate(zip(*tree, strict=True))
    ]
    leaves = [
        (number, leaf, output)
        for number, tree in enumerate(trees.trees)
        for leaf in tree.leaves
        for output in (range(trees.width) if trees.width > 1 else (trees.groups[number],))
    ]
    return {
        "nodes_treeids": tuple(row[0] for row in nodes),
        "nodes_nodeids": tuple(row[1] for row in nodes),
        "nodes_featureids": tuple(row[2] for row in nodes),
        "nodes_truenodeids": tuple(max(row[3], 0) for row in nodes),
        "nodes_falsenodeids": tuple(max(row[4], 0) for row in nodes),
        "nodes_modes": tuple("LEAF" if row[3] == LEAF else "BRANCH_LT" for row in nodes),
        f"{name}_treeids": tuple(row[0] for row in leaves),
        f"{name}_nodeids": tuple(row[1] for row in leaves),
        f"{name}_ids": tuple(row[2] for row in leaves),
    }
