"""Define the convention of ptflops' backend "aten", which counts products and convolutions that
reach its dispatch mode.

It counts the bias of a convolution and of `aten.addmm`, not that of a linear layer that becomes
`aten.mm` and `aten.add`; a fused CPU kernel counts nothing. Hooks sit on the children of the model
alone. Sources: ptflops/aten_ops.py and ptflops/aten_engine.py of 0.7.5.
"""

from math import prod

from crossflops.rules.conditions import Site, of_complex, recorded_as, run_as
from crossflops.rules.rule import Parameters, Teaching, Tool, with_formula
from crossflops.tools.torch_flop_counter import (
    flop_counter_addmm_macs,
    flop_counter_convolution_macs,
    flop_counter_product_macs,
)

_ENGINE = "ptflops/aten_engine.py"
_CONVOLUTIONS = ("aten.convolution.*", "aten._convolution.*")
_PRODUCTS, _ADDED = ("aten.mm.*", "aten.matmul.*", "aten.bmm.*"), ("aten.addmm.*",)
_SAME = "graph.export-decomposition"

tool = Tool(
    "ptflops-aten",
    edition="0.7.5",
    verified=("0.7.5",),
    prints="MACs",
    per_mac=1,
    level="dispatch",
    unseen="op.unregistered-zero",
    runs={"training": False, "hooked": "children"},
    counts_dead_work=True,
    source=_ENGINE,
    parameters=Parameters(
        trainable=True, reference="ptflops/pytorch_engine.py: get_model_parameters_number"
    ),
    teaching=Teaching(
        mechanism="custom_modules_hooks of get_model_complexity_info",
        takes="operator",
        level="operator",
        keywords=False,
        source=f"{_ENGINE}: FlopCounterMode",
    ),
)
# What a composite consists of, which inference mode alone shows, happens out of sight.
dispatched = tool.rules(
    "dispatch",
    recorded_as("outside of composite operators", composed=False),
    source="ptflops/aten_ops.py: ATEN_OPS_MAPPING",
)
unseen = tool.rules("operator", source=f"{_ENGINE}: FlopCounterMode.__torch_dispatch__")

for name, operators, formula in (
    ("product", _PRODUCTS, flop_counter_product_macs),
    ("addmm", _ADDED, flop_counter_addmm_macs),
):
    dispatched.contraction(
        operators, of_complex(), cause="contraction.complex", name=f"{name}.complex"
    )(formula)
    dispatched.contraction(operators, cause=_SAME, name=name)(formula)
dispatched.contraction(_CONVOLUTIONS, cause=_SAME, name="convolution")(
    flop_counter_convolution_macs
)


@dispatched.adds(_ADDED, cause="bias.linear", name="addmm.input")
@with_formula("rows x out of input + A B, for any beta")
def ptflops_aten_addmm_adds(call: Site) -> int:
    """Return the additions that ptflops counts for addmm (input + A B), for any beta: rows x
    columns of the product.

    addmm_flop.
    """
    return call.shape("1")[0] * call.shape("2")[1]


@dispatched.adds(_CONVOLUTIONS, cause="bias.conv", name="convolution.bias")
@with_formula("x.shape[0] x prod(y.shape[1:]), if there is a bias")
def ptflops_aten_convolution_bias_adds(call: Site) -> int:
    """Return the additions that ptflops counts for the bias of a convolution: batch size x result
    elements of one example, or 0 without a bias.

    conv_flop_count.
    """
    shape = call.result.shape or ()
    return call.shape("0")[0] * prod(shape[1:]) if call.input("2") else 0


unseen.misses(
    "fast-path",
    run_as("aten._native_multi_head*", "aten._transformer_encoder_layer*"),
    cause="attention.module-fastpath",
)
unseen.misses("attention", "aten.scaled_dot_product_attention.default", cause="attention.sdpa")
unseen.misses("recurrent", "aten.lstm.*", cause="rnn.fused")

CONVENTIONS = (tool.convention,)
