"""Each attribute that no form of tf2onnx reads is in the reviewed list, by the source of forms.

A new release that reads one more, or one less, or has another form, fails here.
"""

import ast
import functools
import inspect
import textwrap

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")

import onnx
import tensorflow as tf
import tf2onnx.tfonnx  # noqa: F401  # registers the forms
from tensorflow.python.framework import op_def_registry
from tf2onnx.graph import Node
from tf2onnx.handler import tf_op

from crossflops.frontends.tensorflow.convert.converter import OPSET
from crossflops.frontends.tensorflow.convert.lost_attributes import IGNORED
from crossflops.verbs.api import export

pytestmark = pytest.mark.tensorflow
# Types are those of the tensors, and functions are bodies, which are converted.
BY_KIND = [name for name, why in IGNORED.items() if not isinstance(why, str)]
OTHERWISE = ("type", "list(type)", "func")


@functools.cache
def words(function):
    """Return the texts in the source of a function, and the names in it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    texts, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return texts, names


def texts_of(form):
    """Return the texts in a form and in all functions of tf2onnx that it names."""
    kind, todo, known, texts = getattr(form, "__self__", object), [form], set(), set()
    while todo:
        function = plain(todo.pop())
        if not inspect.isfunction(function) or function in known:
            continue
        known.add(function)
        if function.__module__.startswith(("tf2onnx", __name__)):
            own, names = words(function)
            texts |= own
            for name in names:
                todo += named(name, function, kind)
    return texts


def named(name, function, kind):
    """What a name may be in a form: a function beside it, a form, its method, or one of a node."""
    beside = function.__globals__.get(name)
    if inspect.isclass(beside) and beside.__module__.startswith("tf2onnx.onnx_opset"):
        yield from vars(beside).values()
    for owner in (kind, Node):
        yield inspect.getattr_static(owner, name, None)
    yield beside


def plain(member):
    """Return the function in a method or a property."""
    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return inspect.unwrap(member) if callable(member) else member


def ignored():
    """Yield each attribute that a form neither reads nor hands on under its name in ONNX."""
    for kind, (form, options) in tf_op.create_mapping(OPSET, []).items():
        definition = op_def_registry.get(kind)
        if definition is None:
            continue
        texts = texts_of(form)
        written = {kind, options.get("onnx_op"), *texts}
        same = {
            name
            for operator in written
            if operator and onnx.defs.has(operator)
            for name in onnx.defs.get_schema(operator, OPSET).attributes
        }
        for attribute in definition.attr:
            if attribute.type not in OTHERWISE and attribute.name not in texts | same:
                yield kind, attribute.name


def test_each_attribute_that_no_form_reads_is_in_the_list():
    """And none that one does read."""
    found = set(ignored())
    missing = [
        f"{kind}.{name}"
        for kind, name in sorted(found)
        if kind not in IGNORED.get(name, ()) and not isinstance(IGNORED.get(name), str)
    ]
    assert not missing
    assert set(IGNORED) == {name for _, name in found}
    listed = {(kind, name) for name in IGNORED for kind in IGNORED[name] if name in BY_KIND}
    assert listed <= found


def reads_nothing(_graph, node):
    """A form that hands all of a node on."""
    return node


def asks(node, name):
    """A function beside forms."""
    return node.get_attr_value(name)


def reads_one(_graph, node):
    """A form that lets another function read."""
    return asks(node, "reverse")


@pytest.mark.parametrize(
    ("form", "left"), [(reads_nothing, {"exclusive", "reverse"}), (reads_one, {"exclusive"})]
)
def test_a_form_that_reads_less_is_found(form, left, monkeypatch):
    """Of Cumsum, which has two settings."""
    monkeypatch.setattr(tf_op, "create_mapping", lambda *_: {"Cumsum": (form, {})})
    assert {name for _, name in ignored()} == left


@pytest.mark.parametrize(
    ("pads", "size"), [([[1, 0], [2, 0]], (10, 11)), ([[1, 1], [0, 1]], (9, 12)), (None, (10, 12))]
)
def test_explicit_padding_of_a_transposed_convolution(pads, size, tmp_path):
    """It is cut off where the operation says so."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    kernel = tf.constant(random.normal(size=(3, 3, 4, 3)).astype("float32"))
    padding = [[0, 0], *pads, [0, 0]] if pads else "SAME"

    @tf.function
    def model(x):
        return tf.nn.conv2d_transpose(x, kernel, [1, *size, 4], 2, padding)

    x = random.normal(size=(1, 5, 6, 3)).astype("float32")
    agreement = export(model, x, to="onnx", file=tmp_path / "m.onnx", verify=True).agreement
    assert agreement.is_proven, agreement
