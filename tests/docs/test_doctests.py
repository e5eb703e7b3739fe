"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import crossflops
from tests.docs.test_contracts import PUBLIC, WITH_EXAMPLE

pytestmark = pytest.mark.core
FRAMEWORKS = [
    "flax",
    "jax",
    "keras",
    "onnx_ir",
    "onnxruntime",
    "onnxscript",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
]
# What test_contracts runs, with a model and the packages that it needs.
ELSEWHERE = {
    f"{value.__module__}.{value.__qualname__}"
    for value in (*PUBLIC.values(), *WITH_EXAMPLE.values())
}


def module_names():
    """Every module of the package but those that run something when they are imported."""
    for module in pkgutil.walk_packages(crossflops.__path__, "crossflops."):
        if not module.name.endswith("__main__"):
            yield module.name


def import_unless_framework_is_missing(name):
    """Return the module, or None where it needs a framework that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in FRAMEWORKS:
            return None
        raise


def run_examples_of(module):
    """Run the examples of a module but those that test_contracts runs, beside a model.onnx."""
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if test.name not in ELSEWHERE:
            runner.run(test)
    return doctest.TestResults(runner.failures, runner.tries)


def test_examples_in_docstrings_print_what_they_say():
    """Of each module that can be imported without a framework that is not installed here."""
    results = {
        name: run_examples_of(module)
        for name in module_names()
        if (module := import_unless_framework_is_missing(name))
    }
    assert not [name for name, result in results.items() if result.failed]
    assert sum(result.attempted for result in results.values()) > 60
