"""Products of PyTorch for which ONNX has no form: complex ones, and those of groups of rows."""

from math import prod

import msgspec

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.core.tensor import TensorSpec
from crossflops.ops.access import given, out_size, result, shape, source
from crossflops.ops.einsum import einsum
from crossflops.ops.operands import sizes
from crossflops.ops.rule import TORCH, TORCH_PAGES, Entry, entry


def _complex(work: Cost) -> Cost:
    """The work on real numbers: a complex product is 4 of them, and their 2 sums are 2 adds.

    In a product of matrices the 4 are accumulated, as the exporter writes those that it takes.
    """
    return Cost(macs=4 * work.macs, muls=4 * work.muls, adds=2 * (work.adds + work.muls))


def complex_linear(node: Node) -> Cost:
    """aten.linear of complex numbers, whose two parts are the last axis: 4*rows*I*O MACs.

    With a bias 2 adds per result. input [..., I, 2], weight [O, I, 2].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html
    """
    outputs, inputs, _ = shape(source(node, 1), rank=3)
    rows = prod(shape(source(node, 0), at_least=2)[:-2])
    added = rows * outputs if given(node, 2) else 0
    return _complex(Cost(macs=rows * inputs * outputs, adds=added))


def complex_einsum(node: Node) -> Cost:
    """aten.einsum of complex numbers, whose two parts are the last axis.

    https://docs.pytorch.org/docs/stable/generated/torch.einsum.html
    """
    parts = {
        field: tuple(_without_parts(one) for one in getattr(node, field))
        for field in ("inputs", "outputs")
    }
    return _complex(einsum(msgspec.structs.replace(node, **parts)))


def _without_parts(spec: TensorSpec | None) -> TensorSpec | None:
    if spec is None or spec.shape is None:
        return spec
    return msgspec.structs.replace(spec, shape=spec.shape[:-1])


def grouped(node: Node) -> Cost:
    """A product whose rows meet the matrix of their group, however many a group has: n(Y)*K.

    self [M, K] or [G, M, K], mat2 [K, N] or [G, K, N]. Two matrices are cut along K instead, and
    the results of the G pieces stand side by side: M*K*N in all.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html
    """
    first, second = shape(source(node, 0), at_least=2), shape(source(node, 1), at_least=2)
    if len(first) == len(second) == 2 and len(shape(result(node))) == 3:
        return Cost(macs=first[0] * first[1] * second[1])
    return Cost(macs=out_size(node) * first[-1])


_GROUPED = "n(Y)*K MACs; two matrices, cut along K: M*K*N"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "aten.linear.default",
        complex_linear,
        "complex: 4*rows*I*O MACs; bias: 2*rows*O adds",
        domain=TORCH,
        page=f"{TORCH_PAGES}nn.functional.linear.html",
        requires=sizes("input[...,I,2] weight[O,I,2] bias[O,2]"),
    ),
    entry(
        "aten.einsum.default",
        complex_einsum,
        "complex: 4 x the MACs and muls of Einsum, 2 adds per mul",
        domain=TORCH,
        page=f"{TORCH_PAGES}einsum.html",
    ),
    entry(
        "aten._int_mm.default",
        grouped,
        "n(Y)*K MACs",
        domain=TORCH,
        page=f"{TORCH_PAGES}mm.html",
        requires=sizes("self[M,K] mat2[K,N]"),
    ),
    *(
        entry(name, grouped, equation, domain=TORCH, page=f"{TORCH_PAGES}{page}.html")
        for name, equation, page in (
            ("aten._grouped_mm.default", _GROUPED, "nn.functional.grouped_mm"),
            # What transformers runs where PyTorch's own does not take the tensors.
            ("transformers.grouped_mm_fallback.default", _GROUPED, "nn.functional.grouped_mm"),
        )
    ),
)
