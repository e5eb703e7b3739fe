"""XLA's cost analysis of a program of JAX: of the one that is lowered, and of the compiled one.

`jax.jit(f).lower(*args).cost_analysis()["flops"]`, and the same after `.compile()`. HloCostAnalysis
visits every instruction once, also in the body of a loop, and adds up in single precision. Products
count 2 per MAC, and a convolution only where its filter meets an element of the image. Functions
such as exp are a property of their own, "transcendentals", and no flops.
Source: xla/service/hlo_cost_analysis.cc.
"""

from collections.abc import Iterator
from functools import partial
from typing import Literal

import msgspec

from crossflops.conventions.formulas.xla import ELEMENTWISE, KINDS
from crossflops.core.convention import Clause, Convention, Match
from crossflops.core.trace import Scalar

_SOURCE = "xla/service/hlo_cost_analysis.cc"
_CONTRACTIONS = {"dot": "GetDotFlops", "convolution": "GetConvolutionFlops"}
_WORK = tuple(one for one in KINDS if one not in {*_CONTRACTIONS, "custom-call"})
_CONVERSIONS = ("convert", "bitcast-convert", "reduce-precision", "stochastic-convert")
_ARITHMETIC = ("add", "subtract", "multiply", "divide")
_NATIVE = tuple(
    one for one in ELEMENTWISE if one not in {*_CONVERSIONS, *_ARITHMETIC}
)  # fmt: skip
_REDUCTIONS = ("reduce", "reduce-window", "select-and-scatter", "scatter", "map")
_ESTIMATES = ("sort", "fft", "cholesky", "triangular-solve", "all-reduce", "all-reduce-start")
# The layer around an instruction, the function of jax.nn that it is in, what it adds a bias to.
_LAYERS = {
    "norm.batch": "BatchNorm",
    "norm.layer": "LayerNorm",
    "norm.group": "GroupNorm",
    "norm.instance": "InstanceNorm",
    "norm.rms": "RMSNorm",
    "rnn.gate-elementwise": "RNN cell",
}
_FUNCTIONS = {
    "act.relu": "relu",
    "act.piecewise-other": "piecewise",
    "act.transcendental": "smooth",
    "softmax": "softmax",
    "embedding.lookup": "lookup",
}
_BIASES = {"bias.conv": "convolution", "bias.linear": "product"}
# What compilation changes, by the kinds of instructions that come or go.
_CHANGES = {
    "xla.rewritten-contraction": tuple(_CONTRACTIONS),
    "xla.rewritten-reduction": _REDUCTIONS,
    "xla.type-conversion": _CONVERSIONS,
    "xla.rewritten-arithmetic": (*_ARITHMETIC, *_NATIVE),
    "xla.rewritten-algorithm": _ESTIMATES,
    "xla.library-call": ("custom-call",),
}


def _clause(
    kind: Literal["core", "part"],
    name: str,
    cause: str,
    reference: str,
    targets: tuple[str, ...],
    formula: str | None = "xla.flops",
    **settings: Scalar,
) -> Clause:
    """A clause about the instructions of the lowered program with these settings."""
    return Clause(
        id=f"xla-lowered.{name}",
        cause=cause,
        storey="lowered",
        match=Match(targets=targets, settings=settings),
        kind=kind,
        formula=formula,
        reference=f"{_SOURCE}: {reference}",
    )


_core = partial(_clause, "core")


def _contractions() -> Iterator[Clause]:
    for one, function in _CONTRACTIONS.items():
        yield _core(
            f"{one}.branch", "control.branch", "HandleConditional", (one,), None, chosen=False
        )
        formula = f"xla.{one}"
        yield _core(
            f"{one}.alone", "graph.export-decomposition", function, (one,), formula, linked=False
        )
        yield _core(
            f"{one}.in-loop", "control.loop-body-once", "HandleWhile", (one,), formula, in_loop=True
        )
    yield _core("dot", "graph.export-decomposition", "GetDotFlops", ("dot",), "xla.dot")
    yield _core(
        "convolution", "conv.padding-valid-taps", "GetConvolutionFlops", ("convolution",),
        "xla.convolution",
    )  # fmt: skip


def _parts() -> Iterator[Clause]:
    """What is no contraction: of the first kind in this order that it is of."""
    part = partial(_clause, "part", chosen=True)
    elementwise, plain = "HandleElementwiseOp", {"layer": "", "function": "", "backward": False}
    for cause, layer in _LAYERS.items():
        yield part(cause, cause, elementwise, _WORK, backward=False, layer=layer)
    for cause, function in _FUNCTIONS.items():
        settings = {"layer": "", "backward": False, "function": function}
        yield part(cause, cause, elementwise, _WORK, **settings)
    yield part("backward", "scope.backward", elementwise, _WORK, backward=True)
    for cause, after in _BIASES.items():
        yield part(cause, cause, elementwise, ("add",), **plain, after=after)
    real = {**plain, "after": "", "numbers": "real"}
    yield part(
        "arithmetic", "elementwise.add-function", elementwise, _ARITHMETIC, **real
    )  # fmt: skip
    yield part("native", "elementwise.native", elementwise, _NATIVE, **real)
    yield part(
        "whole", "graph.shape-arithmetic-counted", elementwise, (*_ARITHMETIC, *_NATIVE),
        **{**real, "numbers": "whole"},
    )  # fmt: skip
    yield part(
        "conversion", "elementwise.type-conversion", "HandleConvert", _CONVERSIONS, **plain
    )
    yield part("reduce", "reduce.mean", "HandleReduce", ("reduce",), **plain)
    for cause, pooled in (("pool.max", "max"), ("pool.avg", "sum"), ("reduce.mean", "")):
        name = f"window-{pooled or 'other'}"
        yield part(name, cause, "HandleReduceWindow", ("reduce-window",), **plain, pooled=pooled)
    yield part(
        "indexed", "elementwise.native", "HandleScatter", ("scatter", "map", "select-and-scatter"),
        **plain,
    )  # fmt: skip
    yield part("estimates", "op.estimated", "HandleSort, HandleFft ...", _ESTIMATES, **plain)
    yield part("library", "op.library-call", "HandleCustomCall", ("custom-call",))


def _compiled() -> Iterator[Clause]:
    """The same of the compiled program, and what came or went."""
    for one in LOWERED:
        settings = {**one.match.settings, "lowered": True}
        yield msgspec.structs.replace(
            one,
            id=one.id.replace("xla-lowered", "xla-compiled"),
            storey="compiled",
            match=msgspec.structs.replace(one.match, settings=settings),
        )
    every = tuple(KINDS)
    changes = (
        ("gone", -1, _CHANGES),
        ("came", 1, _CHANGES),
        ("once", -1, {"xla.computed-once": every}),
        ("again", 1, {"xla.computed-again": every}),
    )
    for change, factor, causes in changes:
        for cause, targets in causes.items():
            yield Clause(
                id=f"xla-compiled.{change}.{cause.partition('.')[2]}",
                cause=cause,
                storey="compiled",
                match=Match(targets=targets, settings={"change": change}),
                kind="part",
                formula="xla.flops",
                factor=factor,
                reference=f"{_SOURCE}: of the program that was compiled",
            )


LOWERED = (*_contractions(), *_parts())


def _convention(tool: str, **fields: object) -> Convention:
    return Convention(
        tool=tool,
        edition="0.10",
        verified=("0.10.2",),
        unit=2,
        printed_as="flops",
        counts_dead=True,
        unseen="graph.export-decomposition",
        source=_SOURCE,
        framework="jax",
        adds_up="xla.single-precision",
        rounds="precision.float32",
        **fields,  # type: ignore[arg-type]  # fields of a convention, by name
    )


CONVENTIONS = (
    _convention("xla-lowered", sees="lowered", clauses=LOWERED),
    _convention("xla-compiled", sees="compiled", clauses=tuple(_compiled())),
)
