"""Which kernels ran while a tool counted, on a page."""

import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.ir.trace import Kernel, Setting
from crossflops.render.pages.comparison import lines_on_kernel_changes_by_hooks
from crossflops.render.terminal import terminal

ATTENTION = Kernel("aten._native_multi_head_attention.default", 2, ("a.attn", "b.attn"))
LAYER = Kernel("aten._transformer_encoder_layer_fwd.default", 1, ("",))
PLAIN, HOOKED = Setting(grad=False), Setting(grad=False, hooked=True)


@pytest.fixture
def ran(resnet):
    """thop under hooks, the others without; nobody looked at the last one."""
    first, second, third = resnet.profiles
    return replace(
        resnet,
        setting=PLAIN,
        profiles=(
            replace(first, setting=HOOKED, kernels=(ATTENTION,)),
            replace(second, setting=PLAIN, kernels=(LAYER,)),
            replace(third, setting=PLAIN),
        ),
    )


def test_the_account_names_kernels_and_modules(ran):
    """In words: the setting, the kernel, and how many modules it ran in."""
    text = terminal(ran, 150)
    assert (
        "   in evaluation without gradients, with hooks, aten._native_multi_head_attention ran in "
        "2 modules (a.attn, and 1 more)\n"
    ) in text
    assert (
        "   in evaluation without gradients aten._transformer_encoder_layer_fwd ran in 1 module "
        "(the model)\n"
    ) in text


def test_what_hooks_change_is_said_once(ran):
    """With and without them, and which tools ran so."""
    assert lines_on_kernel_changes_by_hooks(ran.profiles) == [
        "hooks change which kernels run in evaluation without gradients: "
        "aten._native_multi_head_attention x2 (thop) with hooks, "
        "aten._transformer_encoder_layer_fwd x1 (fvcore) without"
    ]
    same = [replace(profile, kernels=()) for profile in ran.profiles]
    assert lines_on_kernel_changes_by_hooks(tuple(same)) == []
    assert "hooks change" in terminal(ran, 80)


def test_it_is_read_back_as_it_was_written(ran, resnet):
    """JSON holds the kernels of a profile, and no key where nobody looked."""
    plain = ran.to_dict()["profiles"]
    (kernel,) = plain[0]["kernels"]
    assert (kernel["name"], kernel["times"]) == ("aten._native_multi_head_attention.default", 2)
    assert list(kernel["modules"]) == ["a.attn", "b.attn"]
    assert "kernels" not in plain[2]
    assert Report.from_json(ran.to_json()) == ran
    assert "ran in" not in terminal(resnet, 80)
