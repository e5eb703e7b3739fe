"""The conformance kit tells how far a convention is off from a tool that has changed."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.rules.conditions import output_elements
from crossflops.rules.rule import Convention, Rule
from crossflops.testing import conformance
from crossflops.testing.conformance import Conformance
from crossflops.testing.probes import probes

pytestmark = pytest.mark.torch
CONVENTION = Convention(
    tool="elements",
    edition="1",
    verified=("1.0",),
    unit=1,
    printed_as="elements",
    sees="module",
    counts_dead=True,
    unseen="functional.invisible",
    rules=(
        Rule(
            id="elements.conv",
            cause="act.relu",
            level="module",
            targets=("torch.nn.modules.activation.ReLU",),
            kind="part",
            amount=output_elements,
        ),
    ),
)


class Elements:
    """Counts the elements of ReLUs; its release 2 counts them twice."""

    name = convention = distribution = "elements"

    def __init__(self, version):
        self._version = version

    def version(self):
        return self._version

    def load(self):
        pass

    def accepts(self, model):
        return True

    def profile(self, model, args, kwargs, setting):
        from torch import nn

        counts = []
        for module in model.modules():
            if type(module) is nn.ReLU:
                module.register_forward_hook(lambda m, i, o: counts.append(o.numel()))
        model(*args, **kwargs)
        times = 1 if self._version == "1.0" else 2
        return Profile(
            tool=self.name,
            version=self._version,
            setting=Setting(),
            total=times * sum(counts),
            printed_as="elements",
        )


@pytest.fixture
def kit(monkeypatch):
    """The kit on a few probes, for a release of the tool."""
    few = {name: probes()[name] for name in ("nn.ReLU", "nn.GELU", "conv_bn_relu")}
    monkeypatch.setattr(conformance, "probes", lambda: few)
    monkeypatch.setattr(conformance, "convention_for_prediction", lambda tool, version: CONVENTION)

    def of(version):
        return type("Kit", (Conformance,), {"adapter": Elements(version)})()

    return of


def test_a_verified_version_is_not_run_for_this(kit):
    """Nothing to say of the version on which the convention was checked."""
    kit("1.0").test_installed_version_is_verified()


def test_of_another_version_it_says_how_far_it_is_off(kit):
    """2048 elements in each of the two models with a ReLU, counted twice."""
    with pytest.raises(pytest.fail.Exception) as caught:
        kit("2.0").test_installed_version_is_verified()
    assert str(caught.value) == (
        "elements 2.0 is not verified; the edition 1 is exact on 1 of 3 probes\n"
        "  nn.ReLU: printed 4096, predicted 2048\n"
        "  conv_bn_relu: printed 4096, predicted 2048"
    )
