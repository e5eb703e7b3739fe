"""What a caller asks for, and what contradicts itself or does not fit."""

import numpy as np
import pytest

from crossflops.errors import InputError
from crossflops.frontends import normalize
from crossflops.ir.trace import Setting
from crossflops.targets import load_target_source, source_from_object
from crossflops.targets.request import Request
from tests.models import Apply, nn, torch

pytestmark = pytest.mark.torch


def refused(function, *arguments, **options):
    """The message and the hint."""
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    return caught.value.message, caught.value.hint


def asked(target, inputs=(), inputs_file=None, arguments=None, **options):
    """A request."""
    return Request.from_arguments(
        target, inputs, inputs_file=inputs_file, arguments=arguments, **options
    )


@pytest.mark.parametrize("option", [{"arguments": {"width": 1}}, {"dims": {"n": 1}}])
def test_a_model_object_is_not_called_with_arguments(option):
    """They would be ignored."""
    message, _ = refused(asked, nn.Linear(2, 2), ["1x2"], **option)
    assert message == "arguments and dims cannot be used with a model object"


def test_inputs_and_a_file_of_inputs_are_one_too_many(tmp_path):
    """For an object and for a target."""
    np.savez(tmp_path / "x.npz", np.zeros((1, 2), np.float32))
    path = str(tmp_path / "x.npz")
    for target in (nn.Linear(2, 2), "targets:linear"):
        message, _ = refused(asked, target, ["1x2"], path)
        assert message == "inputs and a file of inputs (--inputs) cannot be combined"
    assert asked(nn.Linear(2, 2), (), path).given.args[0].shape == (1, 2)


def test_tensors_for_a_target_replace_its_own(tmp_path):
    """A target with tensors is built once, and its own inputs are not asked for."""
    path = tmp_path / "models.py"
    path.write_text("import torch\ndef make(): return torch.nn.Linear(2, 2), torch.zeros(1, 2)")
    request = asked(f"{path}:make", torch.zeros(5, 2))
    assert request.given.args[0].shape == (5, 2)


class Two(nn.Module):
    """An input, and one by name."""

    def forward(self, x, *, scale=None):
        return x


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ((), "missing a required argument: 'x'"),
        (("1x2", "1x2"), "too many positional arguments"),
        (("x=1x2", "y=1x2"), "got an unexpected keyword argument 'y'"),
        (("1x2", "x=1x2"), "multiple values for argument 'x'"),
    ],
)
def test_inputs_that_do_not_fit_the_forward_are_told_at_once(inputs, reason):
    """With the names that the model takes."""
    message, hint = refused(asked, Two(), inputs)
    assert message == f"the inputs do not fit Two.forward(x, scale): {reason}"
    assert "--input" in hint


def test_a_hook_may_give_what_is_missing():
    """Only the model knows what its hooks do: it is not refused."""
    model = Two()
    model.register_forward_pre_hook(lambda module, inputs: (torch.zeros(1, 2),))
    assert source_from_object(model, ()).args == ()


@pytest.mark.parametrize("shape", ["1x3x100000000x100000000", "100000x100000x100"])
def test_an_input_beyond_the_memory_is_refused(shape):
    """Before anything is allocated."""
    message, _ = refused(asked, nn.Identity(), [shape])
    assert message.startswith("the input '0' would take ")


@pytest.mark.parametrize(
    ("model", "dtypes"),
    [
        (nn.Linear(8, 4), ("int64",)),
        (nn.Linear(8, 4), ("float64",)),
        (Apply(lambda s, x, y: x @ y.T), ("float32", "int64")),
        (Apply(lambda s, x, y: torch.mm(x, y.T)), ("bfloat16", "float32")),
    ],
)
def test_types_that_do_not_go_together_are_refused(model, dtypes):
    """The export would let them pass, the model does not."""
    source = source_from_object(
        model, tuple(torch.zeros(2, 8, dtype=getattr(torch, d)) for d in dtypes)
    )
    message, _ = refused(normalize, source, Setting())
    assert message.startswith("the model raised on these inputs: RuntimeError: ")


def test_autocast_brings_types_together():
    """A trace with two types, and a model that runs on them."""

    def forward(s, x):
        with torch.autocast("cpu", torch.bfloat16):
            return s.layer(x.bfloat16())

    graph, _ = normalize(
        source_from_object(Apply(forward, layer=nn.Linear(8, 4)), torch.ones(2, 8)), Setting()
    )
    assert graph.nodes


def test_a_file_and_shapes_contradict_each_other():
    """On the command line, too."""
    message, _ = refused(load_target_source, "m:f", {}, ("spec",), "x.npz")
    assert message == "--input and --inputs cannot be combined"
