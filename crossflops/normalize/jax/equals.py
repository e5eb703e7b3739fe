"""Equations that jax2onnx cannot lower, written in others that it can."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from crossflops.normalize.jax.convolutions import convolved
from crossflops.normalize.jax.inlining import Equal


def equal(eqn: Any) -> Equal | None:
    """A function of JAX that computes the same as an equation; None where nothing does."""
    known = _KNOWN.get(eqn.primitive.name)
    return known(eqn) if known is not None else None


def _compared(name: str) -> Callable[[Any], Equal]:
    """jax/_src/lax/lax.py: `lt_to` and its like also order NaN and the two zeros."""

    def found(eqn: Any) -> Equal:
        from jax import lax

        return Equal(getattr(lax, name))

    return found


def _platform(eqn: Any) -> Equal:
    """`platform_index`: the place of this processor among those that code was written for."""
    import numpy as np

    platforms = eqn.params["platforms"]
    named = [n for n, one in enumerate(platforms) if one is not None and "cpu" in one]
    places = named or [n for n, one in enumerate(platforms) if one is None]
    return Equal(lambda: np.int32(places[0]))


def _switch(eqn: Any) -> Equal | None:
    """A `cond` of three branches or more, as those of two in one another, the last one first."""
    branches = eqn.params.get("branches", ())
    if len(branches) < 3:
        return None

    def chosen(index: Any, *operands: Any) -> Any:
        return _among(list(branches), index, operands)

    return Equal(chosen)


def _among(branches: list[Any], index: Any, operands: Sequence[Any]) -> Any:
    from jax import lax
    from jax.extend.core import jaxpr_as_fun

    *others, last = branches
    if not others:
        return jaxpr_as_fun(last)(*operands)

    def before(*given: Any) -> Any:
        return _among(others, index, given)

    return lax.cond(index >= len(others), jaxpr_as_fun(last), before, *operands)


def _solved(eqn: Any) -> Equal:
    """Of a `custom_linear_solve` only the solution runs, not what its derivatives need."""
    from jax.extend.core import jaxpr_as_fun

    lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    behind = first + lengths.solve + lengths.transpose_solve

    def solution(*given: Any) -> Any:
        return jaxpr_as_fun(solve)(*given[first : first + lengths.solve], *given[behind:])

    return Equal(solution, own=True)


def _forwards(eqn: Any) -> Equal | None:
    """A `scan` that begins at the end, as one of what was turned around."""
    params = eqn.params
    if not params.get("reverse"):
        return None
    stacked = params["num_consts"] + params["num_carry"]

    def run(*given: Any) -> Any:
        from jax import lax

        turned = [lax.rev(one, (0,)) for one in given[stacked:]]
        found = eqn.primitive.bind(*given[:stacked], *turned, **{**params, "reverse": False})
        carried = params["num_carry"]
        return [*found[:carried], *(lax.rev(one, (0,)) for one in found[carried:])]

    return Equal(run)


def _padded(eqn: Any) -> Equal | None:
    """A `pad` between elements: a new axis behind each is padded, and taken away again."""
    sides = eqn.params["padding_config"]
    if not any(inner for *_, inner in sides):
        return None

    def pad(x: Any, value: Any) -> Any:
        from jax import lax

        for axis, (*_, inner) in enumerate(sides):
            if inner and x.shape[axis]:
                x = _spread(x, axis, inner, value)
        return lax.pad(x, value, [(low, high, 0) for low, high, _ in sides])

    return Equal(pad)


def _spread(x: Any, axis: int, inner: int, value: Any) -> Any:
    """`inner` times the value between neighbours along an axis."""
    from jax import lax

    size = x.shape[axis]
    x = lax.expand_dims(x, (axis + 1,))
    x = lax.pad(x, value, [(0, inner * (n == axis + 1), 0) for n in range(x.ndim)])
    x = lax.collapse(x, axis, axis + 2)
    return lax.slice_in_dim(x, 0, size * (inner + 1) - inner, axis=axis)


def _transformed(eqn: Any) -> Equal | None:
    """An `fft` over several axes, one after the other. jax/_src/lax/fft.py."""
    lengths = tuple(eqn.params["fft_lengths"])
    if len(lengths) < 2:
        return None
    from jax import lax

    kind = lax.FftType(eqn.params["fft_type"])
    halved = {lax.FftType.RFFT: lax.FftType.FFT, lax.FftType.IRFFT: lax.FftType.IFFT}
    last = functools.partial(lax.fft, fft_type=kind, fft_lengths=lengths[-1:])
    inner = halved.get(kind, kind)

    def others(x: Any) -> Any:
        for place, length in enumerate(reversed(lengths[:-1])):
            order = list(range(x.ndim))
            order[-1], order[-2 - place] = order[-2 - place], order[-1]
            x = lax.fft(lax.transpose(x, order), inner, (length,)).transpose(order)
        return x

    inverse = kind == lax.FftType.IRFFT
    return Equal((lambda x: last(others(x))) if inverse else (lambda x: others(last(x))))


def _stacked(eqn: Any) -> Equal:
    """`stack`: every array gets the new axis, along which they are joined."""
    axis = eqn.params["axis"]

    def stacked(*given: Any) -> Any:
        from jax import lax

        return lax.concatenate([lax.expand_dims(one, (axis,)) for one in given], axis)

    return Equal(stacked)


def _unstacked(eqn: Any) -> Equal:
    """`unstack`: one slice for each place on an axis, without that axis."""
    axis = eqn.params["axis"]

    def unstacked(x: Any) -> Any:
        from jax import lax

        return [lax.index_in_dim(x, n, axis, keepdims=False) for n in range(x.shape[axis])]

    return Equal(unstacked)


def _tiled(eqn: Any) -> Equal:
    """`tile`: as often as `reps` says along every axis, one after the other."""

    def tiled(x: Any) -> Any:
        from jax import lax

        for axis, times in enumerate(eqn.params["reps"]):
            x = lax.concatenate([x] * times, axis) if times != 1 else x
        return x

    return Equal(tiled)


_KNOWN: dict[str, Callable[[Any], Equal | None]] = {
    **{f"{name}_to": _compared(name) for name in ("lt", "le", "eq")},
    "platform_index": _platform,
    "cond": _switch,
    "custom_linear_solve": _solved,
    "scan": _forwards,
    "pad": _padded,
    "fft": _transformed,
    "conv_general_dilated": convolved,
    "stack": _stacked,
    "unstack": _unstacked,
    "tile": _tiled,
}
