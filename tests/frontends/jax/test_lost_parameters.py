"""Each parameter that no rule of jax2onnx reads is in the reviewed list, by the rules' source.

A new release that reads one more, or one less, or has another rule, fails here.
"""

import ast
import functools
import inspect
import textwrap

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("jax2onnx")

import jax
from jax._src.interpreters import ad, batching, mlir
from jax2onnx.plugins import plugin_system

from crossflops import count
from crossflops.frontends.jax.convert import rules
from crossflops.frontends.jax.convert.lost_parameters import IGNORED
from crossflops.verbs.api import export

pytestmark = pytest.mark.jax
lax = jax.lax
# Names of functions of JAX itself that are shared by primitives, and no parameters of these.
SHARED = {
    *("accuracy", "allow_extended_dtype", "computation", "dtype", "input_dtype", "ip", "loc"),
    *("out_dtype", "platform", "require_same", "result_accuracy", "results", "swap_ans"),
}
BY_KIND = [name for name, why in IGNORED.items() if not isinstance(why, str)]
X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def functions(rule, known, depth=0):
    """Yield the functions that a rule of JAX is made of, with what is given to them beforehand."""
    given = set()
    while isinstance(rule, functools.partial):
        given |= set(rule.keywords)
        for held in (*rule.args, *rule.keywords.values()):
            yield from functions(held, known, depth + 1)
        rule = rule.func
    rule = plain(rule)
    if not inspect.isfunction(rule) or rule in known or depth > 4:
        return
    known.add(rule)
    yield rule, given
    for cell in rule.__closure__ or ():
        held = cell.cell_contents
        if not isinstance(held, type):
            yield from functions(held, known, depth + 1)


def plain(member):
    """Return the function in a method or a wrapped function."""
    member = getattr(member, "__func__", member)
    return inspect.unwrap(member) if callable(member) else member


@functools.cache
def parameters():
    """Return the parameters of each primitive: what its rules take by keyword alone."""
    held = {}
    for table in (mlir._lowerings, *mlir._platform_specific_lowerings.values()):
        for primitive, rule in table.items():
            found = held.setdefault(primitive.name, [primitive.abstract_eval])
            found.append(getattr(rule, "rule", rule))
    for table in (batching.fancy_primitive_batchers, ad.primitive_jvps, ad.primitive_transposes):
        for primitive, rule in table.items():
            if primitive.name in held:
                held[primitive.name].append(rule)
    return {
        name: {
            argument.name
            for rule in found
            for function, given in functions(rule, set())
            for argument in inspect.signature(function).parameters.values()
            if argument.kind is argument.KEYWORD_ONLY and argument.name not in given
        }
        - SHARED
        for name, found in held.items()
    }


@functools.cache
def words(function):
    """Return the texts in the source of a function, and the names in it."""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    constants = {node.value for node in nodes if isinstance(node, ast.Constant)}
    texts = {value for value in constants if isinstance(value, str)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return texts, names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def texts_of(kind):
    """Return the texts in a rule and in all functions of jax2onnx that it names."""
    todo, known, texts = [kind.lower], set(), set()
    while todo:
        function = plain(todo.pop())
        if not inspect.isfunction(function) or function in known:
            continue
        known.add(function)
        if function.__module__.startswith(("jax2onnx", __name__)):
            own, names = words(function)
            texts |= own
            for name in names:
                beside = function.__globals__.get(name)
                todo += [beside, inspect.getattr_static(kind, name, None)]
    return texts


def ignored(registry):
    """Return each primitive with a parameter that its rule does not read."""
    known = parameters()
    return {
        (name, parameter)
        for name, rule in registry.items()
        if name in known and hasattr(type(rule), "lower")
        for parameter in known[name] - texts_of(type(rule))
    }


def test_each_parameter_that_no_rule_reads_is_in_the_list():
    """And none that one does read."""
    rules.load_conversion_rules()
    found = ignored(plugin_system.PLUGIN_REGISTRY)
    missing = [
        f"{kind}: {name}"
        for kind, name in sorted(found)
        if kind not in IGNORED.get(name, ()) and not isinstance(IGNORED.get(name), str)
    ]
    assert not missing
    assert set(IGNORED) == {name for _, name in found}
    assert {(kind, name) for name in BY_KIND for kind in IGNORED[name]} <= found


class ReadsNothing:
    """A rule that hands an equation on."""

    def lower(self, ctx, eqn):
        """Return the equation."""
        return ctx, eqn


class ReadsOne:
    """A rule that asks a function beside it."""

    def lower(self, _ctx, eqn):
        """Return a parameter."""
        return asks(eqn, "slice_sizes")


def asks(eqn, name):
    """Return a parameter."""
    return eqn.params[name]


@pytest.mark.parametrize(("rule", "left"), [(ReadsNothing, 1), (ReadsOne, 0)])
def test_a_rule_that_reads_less_is_found(rule, left):
    """Of dynamic_slice, which has one parameter."""
    assert len(ignored({"dynamic_slice": rule()})) == left


def test_axes_that_are_permuted_before_a_reshape(tmp_path):
    """In the file, too; a movement costs nothing."""
    pytest.importorskip("onnxruntime")

    def model(x):
        return lax.reshape(x, (6, 2), dimensions=(1, 0))

    agreement = export(model, X, to="onnx", file=tmp_path / "m.onnx", verify=True).agreement
    assert agreement.is_proven, agreement
    assert count(model, X).flops == 0


def test_what_a_rule_would_lose_is_named():
    """A function of some rows, taken for a movement; the parts of an approximate search."""
    places = lax.ScatterDimensionNumbers((1,), (0,), (0,))

    def applied(x):
        rows = np.array([[0], [2]])
        return lax.scatter_apply(x, rows, lambda y: y * 3, places, update_shape=(2, 3))

    for model, name in (
        (applied, "scatter_apply"),
        (lambda x: lax.approx_max_k(x, 2, aggregate_to_topk=False), "approx_top_k"),
    ):
        report = count(model, X)
        assert [row.op for row in report.uncounted] == [f"jax.{name}"]
