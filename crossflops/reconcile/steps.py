"""Change one contraction into another property by property, and name the cause of each step."""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from crossflops.ir.reconciliation import Shift
from crossflops.reconcile.contractions import SCORES, WEIGHTED, Contraction, Window

BATCH, INPUT = "model.batch", "model.input-size"
STRIDE, PADDING, PLACES = "model.stride", "model.padding", "model.positions"
KERNEL, DILATION = "model.kernel", "model.dilation"
WIDTH, GROUPS, BIAS = "model.width", "model.groups", "model.bias"
SHARING, ELSE = "model.weight-sharing", "model.elementwise"
_FACTOR = Fraction(3, 2)  # sizes that differ by this or more differ by strides, not by padding


class ContractionChange(NamedTuple):
    """A contraction after one of its properties was changed: the cause, and the change as text."""

    cause: str
    contraction: Contraction
    note: str


class PositionChange(NamedTuple):
    """The number of output positions after a change: the cause, and the change as text."""

    cause: str
    positions: int
    note: str


class Inputs(msgspec.Struct, frozen=True):
    """The shapes of the first input of both models."""

    first: tuple[int, ...]
    second: tuple[int, ...]

    @property
    def input_size_ratio(self) -> Fraction:
        """The ratio of the input sizes, second model to first, if all axes that differ have the
        same ratio, else 1.

        Axes of equal sizes are taken away first, so that the order of the axes does not matter.
        The batch is not among them.
        """
        own, other = sorted(self.first[1:]), sorted(self.second[1:])
        if len(own) != len(other):
            return Fraction(1)
        for size in [*own]:
            if size in other:
                own.remove(size)
                other.remove(size)
        ratios = {Fraction(b, a) for a, b in zip(own, other, strict=True) if a and b}
        return ratios.pop() if len(ratios) == 1 else Fraction(1)


def contraction_shifts(first: Contraction, second: Contraction, inputs: Inputs) -> Iterator[Shift]:
    """Yield the differences in MACs, FLOPs and parameters from one contraction to the other, one
    property after the other, each with its cause.

    Batch, sizes, window, groups, channels, bias: each is changed to what the second has, and the
    difference that this makes is booked. A cause may come twice, and may have no amount.
    """
    now = first
    if first.kind not in (WEIGHTED, SCORES):
        yield from _whole_operator_shifts(first, second)
        return
    for cause, then, note in _intermediate_contractions(first, second, inputs):
        yield Shift(
            cause=cause,
            macs=_contraction_macs(then) - _contraction_macs(now),
            flops=_contraction_flops_with_bias(then) - _contraction_flops_with_bias(now),
            params=_contraction_parameters(then) - _contraction_parameters(now),
            note=note,
        )
        now = then
    left = Shift(
        cause=SHARING if bool(first.weights) != bool(second.weights) else ELSE,
        flops=second.flops
        - first.flops
        - _contraction_flops_with_bias(now)
        + _contraction_flops_with_bias(first),
        params=second.params
        - first.params
        - _contraction_parameters(now)
        + _contraction_parameters(first),
    )
    if left.flops or left.params:
        yield left


def _whole_operator_shifts(first: Contraction, second: Contraction) -> Iterator[Shift]:
    """Yield the differences between two operators whose MACs are not a product of sizes, such as
    LSTM, each with its cause.
    """
    more = second.macs - first.macs
    batched = first.macs * (second.batch - first.batch) // first.batch
    if batched:
        note = f"batch {first.batch} -> {second.batch}"
        yield Shift(cause=BATCH, macs=batched, flops=2 * batched, note=note)
    params = second.params - first.params
    flops = second.flops - first.flops - 2 * batched
    if more - batched or params or flops:
        cause = WIDTH if params else PLACES
        yield Shift(cause=cause, macs=more - batched, flops=flops, params=params)


def _contraction_macs(contraction: Contraction) -> int:
    """Return the MACs of a contraction: the product of batch size, positions, kernel positions and
    channels.
    """
    return (
        contraction.batch
        * contraction.places
        * contraction.taps
        * contraction.inner
        * contraction.outer
    )


def _contraction_flops_with_bias(contraction: Contraction) -> int:
    """Return the FLOPs of a contraction: 2 x MACs plus the additions of a bias."""
    biased = contraction.batch * contraction.places * contraction.outer if contraction.bias else 0
    return 2 * _contraction_macs(contraction) + biased


def _contraction_parameters(contraction: Contraction) -> int:
    """Return the number of parameters that the sizes of a contraction give: weights and bias, each
    only if it has parameters of its own.
    """
    facts = (
        contraction.taps * contraction.inner * contraction.outer
        if contraction.kind == WEIGHTED and contraction.weights
        else 0
    )
    return facts + (contraction.outer if contraction.bias_params else 0)


def _intermediate_contractions(
    first: Contraction, second: Contraction, inputs: Inputs
) -> Iterator[ContractionChange]:
    """Yield the contraction after each property in which the two differ: the contraction
    has this and all earlier properties of `second`.
    """
    now = first
    if now.batch != second.batch:
        note = f"batch {now.batch} -> {second.batch}"
        now = replace(now, batch=second.batch)
        yield ContractionChange(BATCH, now, note)
    for cause, indices, note in _output_position_changes(now, second, inputs):
        now = replace(now, places=indices)
        yield ContractionChange(cause, now, note)
    if now.taps * now.inner == second.taps * second.inner and now.groups == second.groups:
        now = replace(
            now, taps=second.taps, inner=second.inner
        )  # the same sums, otherwise laid out
    for cause, then, note in _channel_changes(now, second, _output_position_ratio(first, second)):
        now = then
        yield ContractionChange(cause, now, note)
    if bool(now.bias) != bool(second.bias):
        note = "no bias -> bias" if second.bias else "bias -> no bias"
        now = replace(now, bias=second.bias, bias_params=second.bias_params)
        yield ContractionChange(BIAS, now, note)


def _output_position_ratio(first: Contraction, second: Contraction) -> Fraction:
    """Return the ratio of output positions of the second contraction to those of the first."""
    return Fraction(second.places, first.places) if first.places else Fraction(1)


def _channel_changes(
    now: Contraction, then: Contraction, longer: Fraction
) -> Iterator[ContractionChange]:
    """Yield the contraction after each change of kernel, groups and channels from `now`
    to `then`; `longer` is the ratio of their positions.
    """
    if now.taps != then.taps:
        note = f"kernel {_kernel_size_text(now)} -> {_kernel_size_text(then)}"
        now = replace(now, taps=then.taps)
        yield ContractionChange(KERNEL, now, note)
    depthwise = all(
        contraction.inner == 1 and contraction.groups == contraction.outer
        for contraction in (now, then)
    )
    if depthwise:
        now = replace(now, groups=then.groups)  # as many as there are channels
    elif now.groups != then.groups:
        note = f"groups {now.groups} -> {then.groups}"
        channels = now.inner * now.groups
        inner = channels // then.groups if channels % then.groups == 0 else then.inner
        now = replace(now, inner=inner, groups=then.groups)
        yield ContractionChange(GROUPS, now, note)
    for fact, word in (("inner", "in"), ("outer", "out")):
        first, second = getattr(now, fact), getattr(then, fact)
        if first == second:
            continue
        scores = now.kind != WEIGHTED
        cause = PLACES if scores and Fraction(second, first) == longer else WIDTH
        times = now.groups if fact == "inner" else 1
        now = replace(now, **{fact: second})
        yield ContractionChange(cause, now, f"{word} {first * times} -> {second * times}")


def _kernel_size_text(contraction: Contraction) -> str:
    """Return the kernel size of a contraction as text, such as "3x3", or its number of kernel
    positions if the axes are unknown.
    """
    return (
        "x".join(map(str, contraction.window.kernel))
        if contraction.window
        else str(contraction.taps)
    )


def _output_position_changes(
    now: Contraction, then: Contraction, inputs: Inputs
) -> Iterator[PositionChange]:
    """Yield the output positions after each step that changes the number of
    output positions.
    """
    first, second = now.window, then.window
    if first and second and len(first.kernel) == len(second.kernel):
        same = _product_of_sizes(first.after), _product_of_sizes(second.after)
        if now.places == same[0] and then.places == same[1]:
            yield from _window_changes(first, second, inputs)
            return
    if now.places == then.places:
        return
    note = f"{now.places} -> {then.places} positions"
    grown = _output_position_ratio(now, then)
    powers = {inputs.input_size_ratio**power for power in (1, 2, 3)} - {Fraction(1)}
    yield PositionChange(INPUT if grown in powers else PLACES, then.places, note)


def _window_changes(first: Window, second: Window, inputs: Inputs) -> Iterator[PositionChange]:
    """Yield the output positions after each change of input size, stride,
    dilation and padding between two convolutions.

    The size before it is scaled with the input of the model, then set to the other's: a factor
    comes of a stride that stands elsewhere, some pixels of padding.
    """
    before = tuple(round(size * inputs.input_size_ratio) for size in first.before)
    strided = any(
        max(Fraction(a, b), Fraction(b, a)) >= _FACTOR
        for a, b in zip(before, second.before, strict=True)
        if a and b
    )
    if inputs.input_size_ratio != 1:
        yield PositionChange(
            INPUT,
            _positions_after_window(first, before, first.strides),
            f"input {_equal_sizes_text(first.before)} -> {_equal_sizes_text(before)}",
        )
    if before != second.before:
        note = f"input {_equal_sizes_text(before)} -> {_equal_sizes_text(second.before)}"
        cause = STRIDE if strided else PADDING
        yield PositionChange(
            cause,
            _positions_after_window(first, second.before, first.strides),
            note if strided else "",
        )
    if first.strides != second.strides:
        note = f"stride {_equal_sizes_text(first.strides)} -> {_equal_sizes_text(second.strides)}"
        positions = _positions_after_window(first, second.before, second.strides)
        yield PositionChange(STRIDE, positions, note)
    if first.dilations != second.dilations:
        note = (
            f"dilation {_equal_sizes_text(first.dilations)} "
            f"-> {_equal_sizes_text(second.dilations)}"
        )
        yield PositionChange(DILATION, _product_of_sizes(second.after), note)
    resized = _positions_after_window(first, second.before, second.strides) != _product_of_sizes(
        second.after
    )
    differ = (
        _sizes_with_padding(first) != _sizes_with_padding(second)
        and inputs.input_size_ratio == 1
        and not strided
    )
    if resized or (differ and first.kernel == second.kernel):
        note = (
            f"padded to {_equal_sizes_text(_sizes_with_padding(first))} "
            f"-> {_equal_sizes_text(_sizes_with_padding(second))}"
            if differ
            else ""
        )
        yield PositionChange(
            PADDING if first.kernel == second.kernel else KERNEL,
            _product_of_sizes(second.after),
            note,
        )


def _positions_after_window(
    window: Window, before: tuple[int, ...], strides: tuple[int, ...]
) -> int:
    """Return the number of output positions of a convolution with this window, but with input
    sizes `before` and these strides.

    By axis it is (size + pads - d (k - 1) - 1) / stride + 1, rounded down.
    """
    axes = zip(before, window.pads, window.dilations, window.kernel, strides, strict=True)
    return _product_of_sizes(
        tuple(max((i + p - d * (k - 1) - 1) // s + 1, 0) for i, p, d, k, s in axes)
    )


def _sizes_with_padding(window: Window) -> tuple[int, ...]:
    """Return the input size + padding of a convolution, one number for each spatial axis."""
    return tuple(size + pad for size, pad in zip(window.before, window.pads, strict=True))


def _product_of_sizes(sizes: tuple[int, ...]) -> int:
    """Return the product of the sizes, 1 for ()."""
    product = 1
    for size in sizes:
        product *= size
    return product


def _equal_sizes_text(sizes: tuple[int, ...]) -> str:
    """Return sizes as text: one number such as "3" if all are equal, else joined as in "3x5"."""
    return str(sizes[0]) if len(set(sizes)) == 1 else "x".join(map(str, sizes))
