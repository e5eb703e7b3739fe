"""The functions that ptflops' backend "pytorch" replaces: pytorch_engine.py: patch_functional.

A replaced function is seen where it is called by its attribute; what it counts is not divided.
"""

from typing import Any

from crossflops.ir.convention import Clause, Match
from crossflops.tools.operators import VMAP

_OPS = "ptflops/pytorch_ops.py"
_COMPLEX = ("complex64", "complex128")
_TWICE = "attention.double-counted"


def _function(
    name: str,
    cause: str,
    targets: tuple[str, ...],
    formula: str,
    *,
    again: str = "functional.double-counted",
    kind: Any = "part",
    **match: Any,
) -> Clause:
    """A replaced function, seen where it is called by its attribute."""
    functional = targets[0].startswith("torch.nn.functional.")
    table = "FUNCTIONAL_MAPPING" if functional else "TENSOR_OPS_MAPPING"
    return Clause(
        id=f"ptflops-pytorch.{name}",
        cause=cause,
        level="function",
        match=Match(targets=targets, reached="attribute", **match),
        kind=kind,
        formula=f"ptflops.{formula}",
        again=again,
        in_total_only=True,
        reference=f"{_OPS}: {table}",
    )


def _named(*names: str) -> tuple[str, ...]:
    return tuple(f"torch.nn.functional.{name}" for name in names)


def _methods(*names: str) -> tuple[str, ...]:
    return tuple(f"{owner}.{name}" for name in names for owner in ("torch", "torch.Tensor"))


def _functional() -> tuple[Clause, ...]:
    """Replaced functions of torch.nn.functional: n(input), and interpolation."""
    rows = (
        ("act.relu", _named("relu")),
        ("act.piecewise-other", _named("prelu", "relu6")),
        ("act.transcendental", _named("elu", "gelu", "silu")),
        ("pool.max", _named(*(f"{k}max_pool{d}d" for k in ("", "adaptive_") for d in (1, 2, 3)))),
        ("pool.avg", _named(*(f"avg_pool{d}d" for d in (1, 2, 3)))),
        ("pool.adaptive", _named(*(f"adaptive_avg_pool{d}d" for d in (1, 2, 3)))),
    )
    return (
        *(_function(f"F.{cause}", cause, targets, "input_elements") for cause, targets in rows),
        _function(
            "F.softmax", "softmax", _named("softmax"), "input_elements",
            again=_TWICE,
        ),
        *(
            _function(
                f"F.interpolate.{kind}",
                f"upsample.{kind}",
                _named("interpolate"),
                f"{kind}_interpolation",
            )
            for kind in ("nearest", "linear")
        ),
        # It calls interpolate, which is counted too.
        _function(
            "F.upsample", "functional.double-counted", _named("upsample"), "interpolation"
        ),
    )  # fmt: skip


def _tensors() -> tuple[Clause, ...]:
    """Replaced functions of torch and methods of tensors."""
    products = _methods("matmul", "mm", "bmm")
    added, sums = (*_methods("addmm"), "torch.baddbmm"), _methods("mul", "add")
    rows = []
    for name, targets in (("product", products), ("added_product", added)):
        for suffix, cause, match in (
            (".vmapped", "function.vmap", {"under": (VMAP,)}),
            (".complex", "contraction.complex", {"dtypes": _COMPLEX}),
            ("", "matmul.broadcast-batch-lost", {}),
        ):
            rows.append(
                _function(
                    f"{name}{suffix}", cause, targets, name, again=_TWICE, kind="core", **match
                )
            )
    return (
        *rows,
        _function("added", "bias.linear", added, "added", again=_TWICE),
        _function("elementwise", "elementwise.add-function", sums, "elementwise_result"),
        _function(
            "elementwise.misaligned", "elementwise.broadcast-shape", sums, "elementwise_misaligned"
        ),
    )


FUNCTIONS = (*_functional(), *_tensors())
