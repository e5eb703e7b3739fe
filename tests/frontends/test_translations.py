"""What torchlib's forms of operators read: by their source, and by what their files compute."""

import ast
import functools
import importlib
import inspect
import textwrap
import warnings

import numpy as np
import pytest

from crossflops.frontends import load_with_retry
from crossflops.frontends.pytorch.convert.exporter import DOMAIN, convert_to_onnx_program
from crossflops.frontends.pytorch.convert.ignored_arguments import (
    BY_OPERATOR,
    MENDED,
    effect_of_ignored_argument,
)
from crossflops.frontends.pytorch.load.model import suppressing_output
from crossflops.frontends.pytorch.record.dropped_operators import DroppedOperators
from tests.frontends.operator_calls import FILE, Calls, operator
from tests.models import torch

pytestmark = pytest.mark.tools
onnxruntime = pytest.importorskip("onnxruntime")


class Uses(ast.NodeVisitor):
    """Whether each name is first read or written, and as what it is handed on."""

    def __init__(self):
        self.first, self.reads = {}, {}

    def visit_Assign(self, node):
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_Call(self, node):
        self.visit(node.func)
        places = list(enumerate(node.args)) + [(word.arg, word.value) for word in node.keywords]
        for place, value in places:
            if isinstance(value, ast.Name):
                self.read(value.id, (node.func, place))
            else:
                self.visit(value)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.read(node.id, None)
        else:
            self.first.setdefault(node.id, "write")

    def read(self, name, call):
        """Note that a name is read, as an argument of a call or otherwise."""
        if self.first.setdefault(name, "read") == "read":
            self.reads.setdefault(name, []).append(call)


def plain(function):
    """The Python function in what onnxscript made of it."""
    return inspect.unwrap(getattr(function, "function", function))


@functools.cache
def ignored(function) -> frozenset[str]:
    """The parameters that a function never reads, or hands to functions that do not."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    uses = Uses()
    for statement in tree.body:
        uses.visit(statement)
    return frozenset(
        name
        for name in inspect.signature(function).parameters
        if uses.first.get(name) != "read"
        or all(call and drops(function, *call) for call in uses.reads[name])
    )


def drops(function, called, place) -> bool:
    """Whether this place of a call is one that the called function ignores."""
    inner = plain(function.__globals__.get(getattr(called, "id", "")))
    if not inspect.isfunction(inner):
        return False
    names = list(inspect.signature(inner).parameters)
    if not inner.__module__.startswith(("onnxscript", "torch.onnx")) or place == len(names):
        return False
    return (names[place] if isinstance(place, int) else place) in ignored(inner)


def translations():
    """The operators that torchlib translates, each with the function that does it."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    load_with_retry(lambda: importlib.import_module("torchvision"))
    for forms in ONNXRegistry.from_torchlib(23).functions.values():
        for form in forms:
            if hasattr(form.fx_target, "_schema"):
                yield form.fx_target, plain(form.onnx_function)


def test_each_argument_that_a_translation_ignores_is_in_the_list():
    """By the source of all of them; an argument that a function does not have is ignored, too."""
    missing, found = [], set()
    for target, function in translations():
        names = list(inspect.signature(function).parameters)
        for place, argument in enumerate(target._schema.arguments):
            positional = not argument.kwarg_only and place < len(names)
            name = names[place] if positional else argument.name
            if name in names and name not in ignored(function):
                continue
            found.add((str(target), argument.name))
            if effect_of_ignored_argument(str(target), argument.name) is None:
                missing.append(f"{target}: {argument.name}")
    assert missing == []
    assert len(found) > 150  # the sources were read
    stale = {(target, name) for target, names in BY_OPERATOR.items() for name in names} - found
    assert {target for target, _ in stale if not target.startswith("torchvision")} == set()


def test_a_mended_argument_has_a_form_of_our_own():
    """The list and the forms name the same operators."""
    from crossflops.frontends.pytorch.convert.translations import replacement_translations

    forms = set(map(str, replacement_translations()))
    named = {target for target, names in BY_OPERATOR.items() if MENDED in names.values()}
    assert named <= forms


# Calls that no runtime takes, or whose result is another one, and why.
REASONS = {
    "number": "torchlib gives a single number an axis, which onnxruntime refuses",
    "corners": "aligned corners under a filter against aliasing have no form: an opaque node",
}
APART = {
    "aten._upsample_bilinear2d_aa.default(f32[6,3,10,20], [8, 20], True, 0.8, 1.0)": "corners",
    **dict.fromkeys(
        (
            "aten.all.dim(f32[], -1)",
            "aten.all.dim(f32[], 0, True)",
            "aten.any.dim(f32[], 0, True)",
            "aten.linalg_vector_norm.default(f32[], 6, [-1])",
            "aten.nonzero.default(f32[]^)",
            "aten.prod.dim_int(f32[], 0)",
            "aten.prod.dim_int(f32[], 0, True)",
            "aten.scatter.src(f32[], 0, i64[]<1, f32[])",
            "aten.scatter.value(f32[], 0, i64[]<1, 2.5)",
            "aten.scatter_add.default(f32[], 0, i64[]<1, f32[])",
            "aten.topk.default(f32[], 1)",
            "aten.topk.default(f32[], 1, 0)",
        ),
        "number",
    ),
}
SIZE = 90  # calls in one program
LINES = [line for line in FILE.read_text().splitlines() if line not in APART]


def differences(lines):
    """The lines whose file gives something else than PyTorch."""
    torch.manual_seed(0)
    calls = Calls(lines)
    given = tuple(calls.tensors)
    with suppressing_output(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = calls(*(tensor.clone() for tensor in given))
        program = convert_to_onnx_program(
            torch.export.export(calls, given, strict=False), DroppedOperators()
        )
    assert [node.op_type for node in program.model.graph if node.domain == DOMAIN] == []
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in program.model.graph.inputs]
    feeds = {name: tensor.numpy() for name, tensor in zip(names, given, strict=True)}
    results = iter(session.run(None, feeds))
    different = []
    for line, tensors in zip(lines, wanted, strict=True):
        near = [is_near(next(results), tensor) for tensor in tensors]
        if not all(near):
            different.append(line)
    return different


def is_near(result, tensor) -> bool:
    """Whether an output of a file is that of the model, complex numbers being pairs."""
    want = (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).numpy()
    alike = result.shape == want.shape and result.dtype == want.dtype
    return alike and np.allclose(result, want, rtol=1e-3, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("start", range(0, len(LINES), SIZE))
def test_no_argument_of_an_operator_is_ignored(start):
    """Each of their arguments varied: the file computes what PyTorch computes."""
    assert differences(LINES[start : start + SIZE]) == []


def test_the_calls_vary_each_argument():
    """Of an operator with options, some line sets an option to another value than another one."""
    by_operator = {}
    for line in LINES:
        by_operator.setdefault(operator(line), []).append(line)
    assert len(by_operator) > 280
    alone = [lines[0] for lines in by_operator.values() if len(lines) == 1]
    assert len(alone) < len(by_operator) / 3
