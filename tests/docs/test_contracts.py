"""Docstrings of the public names and of the contracts: Google style, with examples that run."""

import doctest
import importlib
import inspect
import re

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import crossflops
from crossflops.frontends import load_with_retry
from crossflops.frontends.frontend import Frontend
from crossflops.operators.formula_sources import STATE, find_formula
from crossflops.operators.rule import Operators
from crossflops.plugins.adapter import Adapter
from crossflops.rules import conditions
from crossflops.rules.conditions import Condition, Site
from crossflops.rules.rule import Rules, Tool

# What an example needs beside the core, by the public name.
NEEDS = {
    "FlopsProfiler": pytest.mark.torch,
    "bench": pytest.mark.onnxruntime,
    "compare": pytest.mark.tools,
    "keras_callback": pytest.mark.tensorflow,
    "lightning_callback": pytest.mark.tools,
    "profile": pytest.mark.torch,
    "trainer_callback": pytest.mark.tools,
}
PUBLIC = {name: getattr(crossflops, name) for name in crossflops.__all__}
FACTORIES = {
    name: value
    for name, value in vars(conditions).items()
    if inspect.isfunction(value)
    and not name.startswith("_")
    and value.__annotations__.get("return") is Condition
}
DECORATORS = ("contraction", "adds", "fails", "hides", "misses", "refuses")
WITH_EXAMPLE = {
    "Adapter": Adapter,
    "Condition": Condition,
    "Frontend": Frontend,
    "Operators": Operators,
    "Operators.__call__": Operators.__call__,
    "Rules": Rules,
    "Tool": Tool,
    "export": importlib.import_module("crossflops.verbs.api").export,
    **{f"Rules.{name}": getattr(Rules, name) for name in DECORATORS},
    **FACTORIES,
}
OTHERS = {
    "Operators.declare_without_rule": Operators.declare_without_rule,
    "Tool.include": Tool.include,
    "Tool.rules": Tool.rules,
    **{
        f"{contract.__name__}.{name}": value
        for contract in (Adapter, Frontend)
        for name, value in vars(contract).items()
        if inspect.isfunction(value) and not name.startswith("_")
    },
}
EVERY = {**PUBLIC, **WITH_EXAMPLE, **OTHERS}


def sections_of(value):
    """Return the sections of a docstring by their heading, "" for the text before them."""
    sections, heading = {"": []}, ""
    for line in inspect.getdoc(value).splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Example):", line):
            heading = line[:-1]
            sections[heading] = []
        else:
            sections[heading].append(line)
    return sections


def described_names(lines):
    """Return the names that a section describes, in their order."""
    return [match[1] for line in lines if (match := re.match(r"    (\w+): \S", line))]


def names_to_describe(value):
    """Return the heading and the names: of a struct or a protocol the fields, else parameters."""
    if isinstance(value, type) and issubclass(value, msgspec.Struct):
        return "Attributes", list(value.__struct_fields__)
    if isinstance(value, type) and getattr(value, "_is_protocol", False):
        return "Attributes", list(value.__annotations__)
    return "Args", [name for name in inspect.signature(value).parameters if name != "self"]


@pytest.mark.parametrize("name", EVERY)
def test_arguments_are_those_of_the_signature(name):
    """Each parameter or field is described once, in the order of the definition."""
    value = EVERY[name]
    heading, names = names_to_describe(value)
    assert sorted(described_names(sections_of(value).get(heading, []))) == sorted(names)


@pytest.mark.parametrize("name", EVERY)
def test_results_are_described(name):
    """A function that returns something says what, in a section of its own."""
    value = EVERY[name]
    if inspect.isfunction(value):
        returned = inspect.signature(value).return_annotation
        assert ("Returns" in sections_of(value)) == (returned not in (None, "None"))


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    """Return a folder with model.onnx, the current one: a MatMul of 4x8 by 8x2 and a Relu."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
         helper.make_node("Relu", ["p"], ["y"], name="relu")],
        "model",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 2])],
        [numpy_helper.from_array(np.ones((8, 2), np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def forget_formulas():
    """Forget the formulas that an example registers."""
    before = dict(vars(STATE))
    yield
    vars(STATE).update(before)
    find_formula.cache_clear()


def run_example(value, name):
    """Run the example of a docstring; fail with what it printed where that differs."""
    module = importlib.import_module(value.__module__)
    parser = doctest.DocTestParser()
    test = parser.get_doctest(inspect.getdoc(value), dict(vars(module)), name, None, None)
    assert test.examples
    printed = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=printed.append)
    assert not runner.failures, "".join(printed)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in PUBLIC]
)
@pytest.mark.usefixtures("model_folder", "forget_formulas")
def test_examples_of_public_names_run(name):
    """A reader can type them beside a model.onnx."""
    if name == "lightning_callback":  # PyPI's torchvision has no operators beside another torch
        load_with_retry(lambda: importlib.import_module("lightning.pytorch"))
    run_example(PUBLIC[name], name)


@pytest.mark.parametrize("name", WITH_EXAMPLE)
@pytest.mark.usefixtures("model_folder")
def test_examples_of_contracts_run(name):
    """The file that a plugin's author copies works."""
    run_example(WITH_EXAMPLE[name], name)


def test_the_parts_of_a_docstring_are_found():
    """A section that lacks a parameter is seen."""

    def example(first, second):  # noqa: D417 - it lacks one on purpose
        """Return a sum.

        Args:
            first: One.

        Returns:
            The sum.
        """

    assert described_names(sections_of(example)["Args"]) == ["first"]
    assert names_to_describe(example) == ("Args", ["first", "second"])
    assert names_to_describe(Site)[0] == "Args"
