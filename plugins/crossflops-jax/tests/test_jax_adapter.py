"""The adapters of XLA's cost analysis: what they print, in hand-derived and measured numbers."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from crossflops_jax import CompiledProgram, LoweredProgram

from crossflops.errors import MissingExtraError
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.targets import source_from_object

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.jax
TOOLS = (LoweredProgram, CompiledProgram)


def spec(*shape, dtype="float32"):
    """An input of this shape."""
    return jax.ShapeDtypeStruct(shape, dtype)


def profile(tool, model, *args):
    """What the adapter says."""
    source = source_from_object(model, (args, {}))
    return tool().profile(source.model, source.args, source.kwargs, Setting())


@pytest.mark.parametrize("tool", TOOLS)
def test_it_is_found_by_its_name(tool):
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path(tool.name, f"crossflops_jax:{tool.__name__}")
    assert (adapter.name, adapter.version()) == (tool.name, jax.__version__)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_product(tool):
    """2 for each MAC, and one for each element to which a bias is added."""
    printed = profile(tool, lambda x, w, b: x @ w + b, spec(4, 16), spec(16, 8), spec(8))
    assert printed.total == 2 * 4 * 16 * 8 + 32
    assert type(printed.total) is int
    assert (printed.printed_as, printed.params, printed.entries) == ("flops", None, ())


@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_counts(tool):
    """Where nothing is computed there is no such property, which stands for 0."""
    assert profile(tool, lambda x: x[::-1].T, spec(4, 16)).total == 0


def test_single_precision():
    """The exact number of operations is 138 077 003 866."""
    printed = profile(LoweredProgram, lambda x, y: x @ y, spec(4097, 4099), spec(4099, 4111))
    assert printed.total == 138_077_011_968


def test_the_module_stays_as_it_is():
    """Nothing runs, and its weights are arguments of the program: nothing is folded."""
    nnx = pytest.importorskip("flax.nnx")
    module = nnx.BatchNorm(8, rngs=nnx.Rngs(0))
    before = jax.tree.leaves(nnx.state(module))
    # x - mean, rsqrt(var + 1e-5) x scale, their product, and the bias
    assert profile(LoweredProgram, module, spec(4, 8)).total == 3 * 32 + 2 * 8
    after = jax.tree.leaves(nnx.state(module))
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_without_jax(monkeypatch):
    """One line of what is missing, one of what installs it."""

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("crossflops.plugins.adapter.version", missing)
    with pytest.raises(MissingExtraError, match="JAX is not installed") as caught:
        LoweredProgram().version()
    assert caught.value.hint == "pip install jax"


def test_importing_the_plugin_imports_no_framework():
    """It is asked for its version before anybody needs JAX."""
    script = (
        "import sys; from crossflops_jax import LoweredProgram as P\n"
        "P().version(); P().accepts(1); sys.exit('jax' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
