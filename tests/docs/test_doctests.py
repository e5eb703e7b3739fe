"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import crossflops

pytestmark = pytest.mark.core
FRAMEWORKS = [
    "flax",
    "jax",
    "keras",
    "onnxruntime",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
]


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


def test_examples_in_docstrings_print_what_they_say():
    """Of each module that can be imported without a framework that is not installed here."""
    results = {
        name: doctest.testmod(module)
        for name in module_names()
        if (module := import_unless_framework_is_missing(name))
    }
    assert not [name for name, result in results.items() if result.failed]
    assert sum(result.attempted for result in results.values()) > 60
