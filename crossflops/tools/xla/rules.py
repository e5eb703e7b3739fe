"""XLA's cost analysis of a program of JAX: of the one that it is given, and of the compiled one.

`jax.jit(f).lower(*args).cost_analysis()["flops"]`, and the same after `.compile()`. The analysis
visits every instruction once, also in the body of a loop, and adds up in single precision.
Products count 2 per MAC, a convolution only where its filter meets an element of the image.
Functions such as exp are a property of their own, "transcendentals", and no flops.
Source: xla/service/hlo_cost_analysis.cc.
"""

from typing import Any

from crossflops.ir.trace import Level
from crossflops.rules.conditions import Condition, Site, setting
from crossflops.rules.rule import Rules, Tool
from crossflops.tools.xla.addition import total
from crossflops.tools.xla.analysis import ELEMENTWISE, FLOPS_PER_MAC, flops
from crossflops.tools.xla.programs import read

_SOURCE = "xla/service/hlo_cost_analysis.cc"
_CONVERSIONS = ("convert", "bitcast-convert", "reduce-precision", "stochastic-convert")
_ARITHMETIC = ("add", "subtract", "multiply", "divide")
_NATIVE = tuple(name for name in ELEMENTWISE if name not in {*_CONVERSIONS, *_ARITHMETIC})
_INDEXED = ("scatter", "map", "select-and-scatter")
_ESTIMATES = ("sort", "fft", "cholesky", "triangular-solve", "all-reduce", "all-reduce-start")
_CONTRACTIONS = ("dot", "convolution")


def _tool(name: str, level: Level) -> Tool:
    return Tool(
        name,
        edition="0.10",
        verified=("0.10.2",),
        prints="flops",
        per_mac=2,
        level=level,
        unseen="graph.export-decomposition",
        counts_dead_work=True,
        source=_SOURCE,
        framework="jax",
        reads=read,
        adds_up=total,
        rounds="precision.float32",
    )


lowered, compiled = _tool("xla-lowered", "lowered"), _tool("xla-compiled", "compiled")


def contraction(call: Site) -> int:
    """The MACs of a product, or of a convolution where its filter meets the image."""
    return flops(call.call) // FLOPS_PER_MAC


def counted(call: Site) -> int:
    """What the analysis counts for the instruction."""
    return flops(call.call)


def work(call: Site) -> int:
    """What it counts for an instruction that is no product, convolution or call of a library."""
    return 0 if call.target in {*_CONTRACTIONS, "custom-call"} else flops(call.call)


def change(call: Site) -> int:
    """What it counts for an instruction that compilation put in, or less that if it is removed."""
    return -flops(call.call) if call.settings["removed"] else flops(call.call)


def _analysis(level: Level, *where: Condition) -> Rules:
    """What is counted in a program on this level."""
    rules = Rules(level, *where)
    _contractions(rules)
    _parts(rules)
    return rules


def _contractions(rules: Rules) -> None:
    both, handlers = _CONTRACTIONS, f"{_SOURCE}: GetDotFlops, GetConvolutionFlops"
    rules.hides(
        "branch",
        both,
        setting(chosen=False),
        cause="control.branch",
        source=f"{_SOURCE}: HandleConditional",
    )
    same, loop = "graph.export-decomposition", f"{_SOURCE}: HandleWhile"
    counts = rules.contraction
    counts(both, setting(alone=True), cause=same, name="alone", source=handlers)(contraction)
    once = "control.loop-body-once"
    counts(both, setting(in_loop=True), cause=once, name="in-loop", source=loop)(contraction)
    counts("dot", cause=same, name="dot", source=f"{_SOURCE}: GetDotFlops")(contraction)
    counts(
        "convolution",
        cause="conv.padding-valid-taps",
        name="convolution",
        source=f"{_SOURCE}: GetConvolutionFlops",
    )(contraction)


def _parts(rules: Rules) -> None:
    """What is no contraction: of the first kind in this order that it is of.

    The layer around an instruction, the function of jax.nn that it is in, and what it adds a bias
    to stand in the settings of the call.
    """

    def adds(
        name: str, cause: str, handler: str, targets: tuple[str, ...], **settings: Any
    ) -> None:
        where, source = setting(chosen=True, **settings), f"{_SOURCE}: {handler}"
        rules.adds(targets, where, cause=cause, name=name, source=source)(
            counted if targets else work
        )

    each = "HandleElementwiseOp"
    forward: dict[str, Any] = {"backward": False}
    for cause, layer in (
        ("norm.batch", "BatchNorm"),
        ("norm.layer", "LayerNorm"),
        ("norm.group", "GroupNorm"),
        ("norm.instance", "InstanceNorm"),
        ("norm.rms", "RMSNorm"),
        ("rnn.gate-elementwise", "RNN cell"),
    ):
        adds(cause, cause, each, (), **forward, layer=layer)
    for cause, function in (
        ("act.relu", "relu"),
        ("act.piecewise-other", "piecewise"),
        ("act.transcendental", "smooth"),
        ("softmax", "softmax"),
        ("embedding.lookup", "lookup"),
    ):
        adds(cause, cause, each, (), **forward, layer="", function=function)
    adds("backward", "scope.backward", each, (), backward=True)
    plain = {**forward, "layer": "", "function": ""}
    for cause, after in (("bias.conv", "convolution"), ("bias.linear", "product")):
        adds(cause, cause, each, ("add",), **plain, after=after)
    for name, cause, targets, numbers in (
        ("arithmetic", "elementwise.add-function", _ARITHMETIC, "real"),
        ("native", "elementwise.native", _NATIVE, "real"),
        ("whole", "graph.shape-arithmetic-counted", (*_ARITHMETIC, *_NATIVE), "whole"),
    ):
        adds(name, cause, each, targets, **plain, after="", numbers=numbers)
    adds("conversion", "elementwise.type-conversion", "HandleConvert", _CONVERSIONS, **plain)
    adds("reduce", "reduce.mean", "HandleReduce", ("reduce",), **plain)
    adds("indexed", "elementwise.native", "HandleScatter", _INDEXED, **plain)
    adds("estimates", "op.estimated", "HandleSort, HandleFft ...", _ESTIMATES, **plain)
    for cause, pooled in (("pool.max", "max"), ("pool.avg", "sum"), ("reduce.mean", "")):
        name, windows = f"window-{pooled or 'other'}", ("reduce-window",)
        adds(name, cause, "HandleReduceWindow", windows, **plain, pooled=pooled)
    adds("library", "op.library-call", "HandleCustomCall", ("custom-call",))


lowered.include(_analysis("lowered"))
compiled.include(_analysis("compiled", setting(lowered=True)))

# What compilation changes, by the kinds of instructions that come or go.
changes = compiled.rules("compiled", source=f"{_SOURCE}: of the program that was compiled")
for kind, name, targets in (
    ("rewritten", "rewritten-contraction", _CONTRACTIONS),
    ("rewritten", "rewritten-reduction", ("reduce", "reduce-window", *_INDEXED)),
    ("rewritten", "type-conversion", _CONVERSIONS),
    ("rewritten", "rewritten-arithmetic", (*_ARITHMETIC, *_NATIVE)),
    ("rewritten", "rewritten-algorithm", _ESTIMATES),
    ("rewritten", "library-call", ("custom-call",)),
    ("once", "computed-once", ()),
    ("again", "computed-again", ()),
):
    changes.adds(tuple(targets), setting(change=kind), cause=f"xla.{name}", name=name)(change)

CONVENTIONS = (lowered.convention, compiled.convention)
