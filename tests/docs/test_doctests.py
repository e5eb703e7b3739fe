"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import crossflops

pytestmark = pytest.mark.core
FRAMEWORKS = ("flax", "jax", "keras", "onnxruntime", "sklearn", "tensorflow", "torch", "transformers")


def module_names():
    """Every module of the package but those that run something when they are imported."""
    for module in pkgutil.walk_packages(crossflops.__path__, "crossflops."):
        if not module.name.endswith("__main__"):
            yield module.name


def test_examples_in_docstrings_print_what_they_say():
    """Of each module that can be imported without a framework that is not installed here."""
    attempted = 0
    for name in module_names():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            assert (error.name or "").partition(".")[0] in FRAMEWORKS, name
            continue
        result = doctest.testmod(module)
        assert result.failed == 0, name
        attempted += result.attempted
    assert attempted > 60
