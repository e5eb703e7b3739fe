"""The table of rules: complete, sourced, without doubles."""

import re

import onnx
import pytest

from crossflops.ir.graph import Op
from crossflops.operators import (
    all_operator_rules,
    find_operator_rule,
    missing_rule_reason,
    reasons_for_missing_rules,
)
from crossflops.operators.movement import movement_cost
from crossflops.operators.rule import (
    ADDED,
    BREVITAS,
    EXTINCT,
    FINN,
    JAX,
    MICROSOFT,
    ML,
    NCHWC,
    NHWC,
    PREVIEW,
    QONNX,
    SCIPY,
    TENSORFLOW,
    TORCH,
    TRAINING,
    TRAINING_SCHEMAS,
    Operators,
    merge_operator_rules,
)

SCHEMAS = onnx.defs.get_all_schemas_with_history()
VERSIONS = {(s.domain, s.name, s.since_version) for s in SCHEMAS}
DESCRIBED = ("", ML, TRAINING, PREVIEW)  # the domains whose schemas come with onnx

PAGES_OF_TORCH = (
    "https://docs.pytorch.org/docs/stable/generated/torch.",
    "https://docs.pytorch.org/docs/stable/special.html",
    "https://docs.pytorch.org/docs/stable/sparse.html",
    # of what has no page of its own: the list of all operators
    "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml",
)


@pytest.mark.parametrize("op", list(all_operator_rules()), ids=lambda op: f"{op}-{op.since}")
def test_a_rule_says_its_equation_and_its_page(op):
    """Each rule has an equation, and a page of its own operator."""
    known = all_operator_rules()[op]
    assert known.equation
    if op.domain in (NCHWC, NHWC) or known.page in (EXTINCT, ADDED, TRAINING_SCHEMAS):
        assert known.page.startswith("https://github.com/microsoft/onnxruntime/")
    elif op.domain == TORCH:
        assert known.page.startswith(PAGES_OF_TORCH)
    elif op.domain == JAX:
        assert known.page.startswith("https://docs.jax.dev/en/latest/_autosummary/jax.")
    elif op.domain == TENSORFLOW:
        assert known.page == f"https://www.tensorflow.org/api_docs/python/tf/raw_ops/{op.type}"
    elif op.domain == SCIPY:
        assert known.page.endswith(f"/reference/generated/scipy.{op.type}.html")
    elif op.domain in (QONNX, FINN, BREVITAS):
        assert known.page.startswith("https://github.com/fastmachinelearning/qonnx/")
    elif op.domain == MICROSOFT:
        assert known.page.endswith(f"/docs/ContribOperators.md#com.microsoft.{op.type}")
    else:
        assert re.search(rf"/onnx_\w*_{op.type}\.html(#|$)", known.page)


@pytest.mark.parametrize("op", list(all_operator_rules()), ids=lambda op: f"{op}-{op.since}")
def test_a_rule_begins_at_a_version_that_exists(op):
    """The version from which a rule holds is one of the operator's schemas."""
    if all_operator_rules()[op].page in (EXTINCT, ADDED, TRAINING_SCHEMAS):
        assert op.since == 1
    elif op.domain in DESCRIBED:
        assert (op.domain, op.type, op.since) in VERSIONS


@pytest.mark.parametrize("version", sorted(VERSIONS), ids=lambda v: f"{v[0]}.{v[1]}-{v[2]}")
def test_every_version_of_every_operator_is_a_rule_or_an_explicit_not_yet(version):
    """Silence is impossible: what onnx knows is counted, or its absence has a reason."""
    op = Op(*version)
    assert (find_operator_rule(op) is not None) != (str(op) in reasons_for_missing_rules())


def test_two_rules_for_one_operator_are_refused():
    """A double is an error, not a silent choice."""
    first, second = Operators(), Operators()
    for operator in (first, second):
        operator("Relu", "0")(movement_cost)
    with pytest.raises(ValueError, match="two rules for Relu since version 1"):
        first("Relu", "0")(movement_cost)
    with pytest.raises(ValueError, match="two rules for Relu since version 1"):
        merge_operator_rules([first, second])


def test_the_newest_rule_that_is_old_enough_holds():
    """Softmax changed its meaning in version 13; 11 is under the old rule, 21 the new one."""
    old, new = (
        all_operator_rules()[Op("", "Softmax", 1)],
        all_operator_rules()[Op("", "Softmax", 13)],
    )
    assert find_operator_rule(Op("", "Softmax", 11)) is old
    assert find_operator_rule(Op("", "Softmax", 13)) is new
    assert find_operator_rule(Op("ai.onnx", "Softmax", 21)) is new
    assert find_operator_rule(Op("", "Gelu", 19)) is None


def test_the_reason_names_the_operator():
    """A missing rule says which operator it is, and for the known ones why."""
    assert (
        missing_rule_reason(Op("acme.ops", "BigMatMul", 1)) == "no formula for acme.ops.BigMatMul"
    )
    assert missing_rule_reason(Op("org.pytorch", "Fused", 1)) == "no formula for org.pytorch.Fused"
    assert (
        missing_rule_reason(Op("", "Gelu", 19))
        == "no formula for Gelu before version 20: it is of 19"
    )
    assert missing_rule_reason(Op("ai.onnx", "Loop", 23)).startswith("Loop: ")
    assert missing_rule_reason(Op("com.microsoft", "BeamSearch", 1)).startswith(
        "com.microsoft.BeamSearch: "
    )


# A contraction that states nothing of its operands, and why.
UNCHECKED = {
    "com.microsoft.MatMulFpQ4": "its weights are a blob without sizes",
    "torch.ops.aten.lstm.input": "PyTorch has run it, and its weights come in a list",
    **{
        f"torch.ops.aten.{name}.data": "PyTorch has run it, and its weights come in a list"
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    },
    "torch.ops.aten.einsum.default": "PyTorch has run it",
    "torch.ops.aten._grouped_mm.default": "PyTorch has run it",
    "torch.ops.aten._trilinear.default": "PyTorch has run it",
    "torch.ops.aten.convolution_backward.default": "PyTorch has run it",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (
        "PyTorch has run it"
    ),
    "torch.ops.transformers.grouped_mm_fallback.default": "PyTorch has run it",
    **{
        f"torch.ops.aten.{name}.sparse": "PyTorch has run it, and says what is stored"
        for name in (
            "_sparse_addmm.default",
            "_sparse_mm.default",
            "_sparse_mm.reduce",
            "_sparse_sparse_matmul.default",
            "addmm.default",
            "addmv.default",
            "baddbmm.default",
            "bmm.default",
            "hspmm.default",
            "linear.default",
            "matmul.default",
            "mm.default",
            "mv.default",
            "smm.default",
            "sparse_sampled_addmm.default",
            "sspaddmm.default",
        )
    },
    "tensorflow.SparseTensorDenseMatMul": "TensorFlow has traced it",
    "torch.ops.aten._dyn_quant_matmul_4bit.default": "PyTorch has run it",
    "torch.ops.aten._scaled_mm.default": "PyTorch has run it",
    "torch.ops.aten._weight_int4pack_mm.default": "PyTorch has run it",
    "torch.ops.aten._weight_int4pack_mm_for_cpu.default": "PyTorch has run it",
    "torch.ops.aten._weight_int8pack_mm.default": "PyTorch has run it",
    "torch.ops.aten.linalg_matrix_exp.default": "PyTorch has run it",
    "torch.ops.aten.linalg_matrix_power.default": "PyTorch has run it",
    **{
        f"jax.{name}": "which axes it contracts are attributes, and JAX has traced it"
        for name in (
            "bcoo_dot_general",
            "bcoo_dot_general_sampled",
            "bcoo_spdot_general",
            "bcsr_dot_general",
        )
    },
    "jax.ragged_dot_general": "which axes it contracts are attributes, and JAX has traced it",
}


def test_every_contraction_states_what_it_takes():
    """A number of MACs holds only for operands that fit: which do stands beside it."""
    silent = {
        str(op)
        for op, rule in all_operator_rules().items()
        if "MACs" in rule.equation and not rule.requires
    }
    assert silent == set(UNCHECKED)
