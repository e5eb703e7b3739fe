"""Each formula agrees with its reference on random small calls, forwards and backwards.

Six calls of each; with CROSSFLOPS_EVERY_SHAPE=1 50.
"""

import random

import pytest

torch = pytest.importorskip("torch")

from crossflops.ir.ledger import Cost  # noqa: E402
from crossflops.operators.formula_sources import STATE, load_kernel_and_plugin_formulas  # noqa: E402
from tests.operators.kernels import (  # noqa: E402
    attention_kernels,
    flashinfer_kernels,
    gradient_kernels,
    layer_kernels,
    other_kernels,
    recurrent_kernels,
    sampling_kernels,
)
from tests.operators.kernels.calls import (  # noqa: E402
    CASES,
    Case,
    check_against_reference,
    formula_work,
    reference_work,
)
from tests.operators.kernels.held import HELD, WITHOUT_REFERENCE  # noqa: E402

pytestmark = pytest.mark.torch

GROUPS = (
    attention_kernels,
    flashinfer_kernels,
    gradient_kernels,
    recurrent_kernels,
    sampling_kernels,
    other_kernels,
    layer_kernels,
)
KERNELS = [kernel for group in GROUPS for kernel in group.KERNELS]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.operator)
def test_a_formula_agrees_with_its_reference(kernel):
    """The native count of the reference equals the formula, forward and backward."""
    check_against_reference(kernel)


def test_the_page_says_which_formulas_have_a_reference():
    """The operators of this file: docs/kernels.md is written from the list."""
    held = {operator for kernel in KERNELS for operator in kernel.operators}
    assert held | {"torchvision::nms"} == HELD


def test_every_formula_has_a_reference_or_a_reason():
    """The formulas that the package brings."""
    load_kernel_and_plugin_formulas()
    assert HELD.isdisjoint(WITHOUT_REFERENCE)
    assert {formula.name for formula in STATE.shipped} == HELD | WITHOUT_REFERENCE.keys()


def test_boxes_of_which_none_is_suppressed_meet_in_pairs():
    """Without the sort: n*ceil(log2 n) compares."""
    draw = random.Random(0)
    cases = []
    for count in [draw.randint(2, 9) for _ in range(CASES)]:
        first, second = torch.triu_indices(count, count, 1)
        given = {"first": first, "second": second}
        cases.append(Case({"dets": (count, 4)}, (), [(count,)], {}, {}, given))
    whole, _ = reference_work(other_kernels.nms_pairs, cases, backward=False)
    sorts = [count * (count - 1).bit_length() for count in (c.tensors["dets"][0] for c in cases)]
    formulas = sum((formula_work("torchvision::nms", case)[0] for case in cases), Cost())
    assert formulas == whole + Cost(compares=sum(sorts))
