"""Define the conventions of XLA's cost analysis of a JAX program: of the lowered program, and of
the compiled one.

`jax.jit(f).lower(*args).cost_analysis()["flops"]`, and the same after `.compile()`. The analysis
visits every instruction once, also in the body of a loop, and adds up in single precision.
Products count 2 per MAC, a convolution only where its filter meets an element of the image.
Functions such as exp are a property of their own, "transcendentals", and no flops.
Source: xla/service/hlo_cost_analysis.cc.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import gcd, prod
from struct import pack, unpack
from typing import Any, TypeAlias, cast

import msgspec

from crossflops.ir.trace import Call, Level, Scalar, Trace
from crossflops.rules.conditions import Condition, Site, recorded_as
from crossflops.rules.rule import Rules, Share, Tool, with_formula

Shape = tuple[int, ...]

# One per element of the result: HandleElementwiseUnary, HandleElementwiseBinary and those that
# call HandleElementwiseOp.
ELEMENTWISE = (
    "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert",
    "count-leading-zeros", "divide", "floor", "imag", "is-finite", "maximum", "minimum",
    "multiply", "negate", "not", "or", "popcnt", "real", "reduce-precision", "remainder",
    "round-nearest-afz", "round-nearest-even", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "stochastic-convert", "subtract",
    "xor",
)  # fmt: skip
# One "transcendental" per element, and no flop.
TRANSCENDENTAL = (
    "acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf",
    "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power", "rsqrt",
    "sine", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
REDUCERS = ("map", "reduce", "reduce-window", "scatter", "select-and-scatter")
FLOPS_PER_MAC = 2  # kFmaFlops


def _xla_input_shape(call: Call, index: int) -> Shape:
    """Return the shape of the input at `index`; raise ValueError if it is unknown."""
    return _xla_tensor_shape(call.inputs[index])


def _xla_result_shape(call: Call) -> Shape:
    """Return the shape of the first result; raise ValueError if it is unknown."""
    return _xla_tensor_shape(call.outputs[0])


def _xla_tensor_shape(spec: Any) -> Shape:
    """Return the shape of a tensor; raise ValueError if it is unknown."""
    if spec.shape is None:
        raise ValueError(f"the shape of {spec.name} is not known")
    return cast(Shape, spec.shape)


def _xla_setting_sizes(call: Call, name: str) -> Sequence[int]:
    """Return the setting `name` of an XLA instruction, which is a list of sizes."""
    return cast(Sequence[int], call.settings[name])


def _xla_window_sides(call: Call) -> Sequence[Mapping[str, int]]:
    """Return the window of an XLA instruction: for each axis its size, stride, padding and
    dilation; () without a window.
    """
    return cast(Sequence[Mapping[str, int]], call.settings.get("window", ()))


def xla_dot_macs(call: Call) -> int:
    """Return the MACs that XLA counts for a dot product: result elements x sizes of the summed
    axes.

    In the tool: GetDotFlops, without its factor of two.
    """
    first = _xla_input_shape(call, 0)
    return prod(first[axis] for axis in _xla_setting_sizes(call, "lhs_contracting")) * prod(
        _xla_result_shape(call)
    )


def xla_convolution_macs(call: Call) -> int:
    """Return the MACs that XLA counts for a convolution: input channels per group x output
    channels x batch size per group x pairs of filter and result positions that read an element.

    In the tool: GetConvolutionFlops, halved.
    """
    image, result = _xla_input_shape(call, 0), _xla_result_shape(call)
    channels = image[_xla_integer_setting(call, "input_feature")] // _xla_integer_setting(
        call, "feature_groups"
    )
    batch = image[_xla_integer_setting(call, "input_batch")] // _xla_integer_setting(
        call, "batch_groups"
    )
    return (
        channels
        * result[_xla_integer_setting(call, "output_feature")]
        * batch
        * _xla_valid_positions(call)
    )


def _xla_integer_setting(call: Call, name: str) -> int:
    """Return the setting `name` of an XLA instruction, which is an integer."""
    return cast(int, call.settings[name])


def _xla_valid_positions(call: Call) -> int:
    """Return how many pairs of filter position and result position read a real element of the
    image, not padding.

    Taps on padding are not counted, nor are taps on the holes that a dilation of the image makes.
    """
    image, weights, result = (
        _xla_input_shape(call, 0),
        _xla_input_shape(call, 1),
        _xla_result_shape(call),
    )
    indices = zip(
        _xla_window_sides(call),
        (image[axis] for axis in _xla_setting_sizes(call, "input_spatial")),
        (weights[axis] for axis in _xla_setting_sizes(call, "kernel_spatial")),
        (result[axis] for axis in _xla_setting_sizes(call, "output_spatial")),
        strict=True,
    )
    return prod(_valid_positions_of_axis(window, *limits) for window, *limits in indices)


def _valid_positions_of_axis(
    window: Mapping[str, int], image: int, weights: int, result: int
) -> int:
    """Return how many pairs of filter position and result position along one axis read a real
    element of the image.
    """
    first, step = -window["padding_low"], window["window_dilation"]
    return sum(
        _valid_positions_of_tap(
            window["stride"], first + tap * step, window["base_dilation"], image, result
        )
        for tap in range(weights)
    )


def _valid_positions_of_tap(
    stride: int, first: int, dilation: int, image: int, result: int
) -> int:
    """Return how many result positions along one axis read a real element of the image at one
    filter position.

    Counts `o` below `result` with `o * stride + first == dilation * i` and `i` below `image`.
    """
    divisor = gcd(stride, dilation)
    if first % divisor or not image:
        return 0
    period = dilation // divisor
    begin = max(0, -(first // stride))
    end = min(result - 1, (dilation * (image - 1) - first) // stride)
    phase = -(first // divisor) * pow(stride // divisor, -1, period) % period
    return (end - phase) // period - (begin - 1 - phase) // period if end >= begin else 0


def xla_elementwise_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for an elementwise instruction: the number of result
    elements.

    In the tool: HandleElementwiseOp.
    """
    return prod(_xla_result_shape(call))


def xla_reducer_applications(call: Call) -> int:
    """Return how often the function of a reduction (reduce, reduce-window, scatter, map) is
    applied.

    In the tool: HandleReduce, HandleReduceWindow, HandleScatter, HandleMap.

    For a select-and-scatter it is how often its scatter is applied.
    """
    if call.target == "reduce":
        return prod(_xla_input_shape(call, 0)) - prod(_xla_result_shape(call))
    if call.target == "reduce-window":
        return _xla_window_reducer_applications(call)
    if call.target == "scatter":
        return prod(_xla_input_shape(call, (len(call.inputs) + 1) // 2))
    if call.target == "select-and-scatter":
        return prod(_xla_input_shape(call, 1))
    return prod(_xla_result_shape(call))


def _xla_window_reducer_applications(call: Call) -> int:
    """Return how often the function of a windowed reduction is applied, as XLA counts it.

    That is (window positions - 1) x result elements, and less for a window as wide as the axis.
    """
    elements = prod(_xla_result_shape(call))
    window = _xla_window_sides(call)
    wide = [index for index, side in enumerate(window) if side["size"] != 1]
    padded = [side for side in window if side["padding_low"] or side["padding_high"]]
    if len(wide) == len(padded) == len(call.outputs) == 1:
        side, size = window[wide[0]], _xla_result_shape(call)[wide[0]]
        low, high = side["padding_low"], side["padding_high"]
        if low == high == size - 1 and low and side["size"] == 2 * low + 1:
            return elements // size + size - 1
    return (prod(side["size"] for side in window) - 1) * elements


def xla_selection_count(call: Call) -> int:
    """Return how often the select function of a select-and-scatter is applied: source elements x
    (window positions - 1).

    In the tool: HandleSelectAndScatter.
    """
    return prod(_xla_input_shape(call, 1)) * (
        prod(side["size"] for side in _xla_window_sides(call)) - 1
    )


def xla_flops_per_application(opcodes: Scalar) -> int:
    """Return the FLOPs that XLA counts for one application of a reducer: the number of elementwise
    instructions among `opcodes`.
    """
    return sum(opcode in ELEMENTWISE for opcode in cast(Sequence[str], opcodes))


def xla_reduction_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for a reduction: FLOPs of its function x how often it is
    applied.

    In the tool: ProcessSubcomputation.
    """
    operations = xla_reducer_applications(call) * xla_flops_per_application(
        call.settings["applied"]
    )
    if call.target == "select-and-scatter":
        operations += xla_selection_count(call) * xla_flops_per_application(
            call.settings["selecting"]
        )
    return operations


def xla_sort_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for a sort: n ceil(log2 n), for n elements of the first
    operand.

    In the tool: HandleSort.
    """
    elements = prod(_xla_input_shape(call, 0))
    return elements * (elements - 1).bit_length() if elements else 0


def xla_fft_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for an FFT: 8 x input elements x product of floor(log2) of
    the lengths.

    In the tool: HandleFft.
    """
    logarithms = prod(length.bit_length() - 1 for length in _xla_setting_sizes(call, "fft_length"))
    return 4 * FLOPS_PER_MAC * logarithms * prod(_xla_input_shape(call, 0))


def xla_cholesky_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for a Cholesky factorization: matrix elements x last axis /
    3, rounded down.

    In the tool: HandleCholesky.
    """
    return prod(_xla_input_shape(call, 0)) * _xla_input_shape(call, 0)[-1] // 3


def xla_triangular_solve_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for a triangular solve: 2 x elements of b x last axis of a.

    In the tool: HandleTriangularSolve.
    """
    return FLOPS_PER_MAC * _xla_input_shape(call, 0)[-1] * prod(_xla_input_shape(call, 1))


def xla_all_reduce_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for an all-reduce: the number of result elements, as for
    two devices.

    In the tool: HandleAllReduce.
    """
    return sum(prod(_xla_tensor_shape(spec)) for spec in call.outputs)


def xla_custom_call_flops(call: Call) -> int:
    """Return -1, which XLA adds to its sum for a custom call and which means "unknown".

    In the tool: HandleCustomCall.
    """
    return -1


def _flops_from_macs(amount: Callable[[Call], int]) -> Callable[[Call], int]:
    """Return a function that gives 2 FLOPs for each MAC of the function `amount`."""
    return lambda call: FLOPS_PER_MAC * amount(call)


KINDS: dict[str, Callable[[Call], int]] = {
    **dict.fromkeys(ELEMENTWISE, xla_elementwise_flops),
    **dict.fromkeys(REDUCERS, xla_reduction_flops),
    "dot": _flops_from_macs(xla_dot_macs),
    "convolution": _flops_from_macs(xla_convolution_macs),
    "sort": xla_sort_flops,
    "fft": xla_fft_flops,
    "cholesky": xla_cholesky_flops,
    "triangular-solve": xla_triangular_solve_flops,
    "all-reduce": xla_all_reduce_flops,
    "all-reduce-start": xla_all_reduce_flops,
    "custom-call": xla_custom_call_flops,
}


def xla_call_flops(call: Call) -> int:
    """Return the FLOPs that XLA counts for an instruction; 0 for a kind that it does not count."""
    return KINDS[call.target](call) if call.target in KINDS else 0


# Which branches count, and what compilation changed. The recording of a program says what is in it
# (`branches`); that the most expensive branch of a condition counts is the tool's rule
# (HandleConditional).

Branch: TypeAlias = tuple[str, int, int]  # a condition, the number of the branch, of how many
Key: TypeAlias = tuple[object, ...]
Pairs: TypeAlias = dict[str, Call]  # the lowered instruction by the key of the compiled one
# What is known of an instruction from the lowered program, where more of it can be told.
_FACTS = (
    *("layer", "function", "backward", "numbers", "after", "pooled"),
    *("in_loop", "alone", "per_device"),
)


def _with_compilation_changes(lowered: Iterable[Call], compiled: Iterable[Call]) -> Iterator[Call]:
    """Yield the compiled instructions in their order, then the instructions that compilation
    removed, each with settings that say what compilation changed.

    `change` is "kept", "rewritten" (inserted or removed), "again" (inserted beside an equal one),
    "once" (removed beside an equal one), or "" for an instruction that costs nothing or is in a
    branch that is not counted. Instructions that were `lowered` have the facts of the lowered
    program.
    """
    before, after = list(lowered), list(compiled)
    pairs = _instruction_pairs(
        filter(_has_counted_flops, before), list(filter(_has_counted_flops, after))
    )
    taken = {partner.key for partner in pairs.values()}
    equal = {_key_with_names(partner) for partner in pairs.values()}

    def instruction_change_kind(call: Call, repeated: str) -> str:
        """Return how compilation changed an instruction: `repeated` if the other program has an
        equal one, else "rewritten"; "" if it has no FLOPs.
        """
        return (
            ""
            if not _has_counted_flops(call)
            else repeated
            if _key_with_names(call) in equal
            else "rewritten"
        )

    for call in after:
        if call.key in pairs:
            yield _with_lowered_facts(call, pairs[call.key])
        else:
            yield _with_change_facts(
                call, instruction_change_kind(call, "again"), lowered=False, removed=False
            )
    for call in before:
        if call.key not in taken and (xla_call_flops(call) or call.of):
            yield _with_change_facts(
                _to_compiled_call(call),
                instruction_change_kind(call, "once"),
                lowered=True,
                removed=True,
            )


def _has_counted_flops(call: Call) -> bool:
    """Return whether XLA adds a number other than 0 to its sum for an instruction."""
    return call.settings.get("chosen") is True and xla_call_flops(call) != 0


def _key_with_names(call: Call) -> Key:
    """Return (kind, FLOPs, names) of an instruction, to find equal instructions."""
    return (call.target, xla_call_flops(call), call.settings["names"])


def _key_without_names(call: Call) -> Key:
    """Return (kind, FLOPs) of an instruction, to find equal instructions."""
    return (call.target, xla_call_flops(call))


def _instruction_pairs(before: Iterable[Call], after: list[Call]) -> Pairs:
    """Return {key of a compiled instruction: lowered instruction that does the same work}.

    First those with equal names, then those with equal FLOPs.
    """
    left = list(before)
    pairs: Pairs = {}
    for key in (_key_with_names, _key_without_names):
        pairs |= _pairs_by_key(left, [call for call in after if call.key not in pairs], key)
        taken = Counter(call.key for call in pairs.values())
        left = [call for call in left if call.key not in taken]
    return pairs


def _pairs_by_key(before: list[Call], after: list[Call], key: Callable[[Call], Key]) -> Pairs:
    """Return {key of a compiled instruction: lowered instruction for which the function `key`
    gives the same value}; each is used once.
    """
    waiting: dict[Key, list[Call]] = defaultdict(list)
    for call in reversed(before):
        waiting[key(call)].append(call)
    return {call.key: waiting[key(call)].pop() for call in after if waiting[key(call)]}


def _with_lowered_facts(call: Call, before: Call) -> Call:
    """Return a copy of a compiled instruction with the module, the parent and some settings of its
    lowered instruction `before`.
    """
    facts = {name: before.settings[name] for name in _FACTS if name in before.settings}
    paired = msgspec.structs.replace(
        call,
        settings={**call.settings, **facts},
        parent=before.parent,
        module=before.module,
        of=before.of,
    )
    return _with_change_facts(paired, "kept", lowered=True, removed=False)


def _to_compiled_call(call: Call) -> Call:
    """Return a copy of a lowered instruction as part of the compiled program, outside all loops
    and branches.
    """
    key = f"compiled:({call.key.partition(':')[2]})"
    settings = {**call.settings, "nest": []}
    return msgspec.structs.replace(call, key=key, level="compiled", settings=settings)


def _with_change_facts(call: Call, change: str, lowered: bool, removed: bool) -> Call:
    """Return a copy of an instruction with the settings `change`, `lowered` and `removed`."""
    facts = {"change": change, "lowered": lowered, "removed": removed}
    return msgspec.structs.replace(call, settings={**call.settings, **facts})


def with_chosen_branch_setting(calls: Sequence[Call]) -> list[Call]:
    """Return copies of the instructions with the setting `chosen`: whether all branches around it
    are the most expensive ones, which XLA counts.

    Of branches with equal cost the first one counts. `branched` are those in any branch.
    """
    costs: dict[str, list[int]] = {}
    for call in calls:
        for condition, number, count in _xla_branches(call):
            costs.setdefault(condition, [0] * count)[number] += xla_call_flops(call)
    dearest = {condition: prices.index(max(prices)) for condition, prices in costs.items()}
    return [
        msgspec.structs.replace(
            call,
            settings={
                **call.settings,
                "chosen": all(
                    dearest[condition] == number for condition, number, _ in _xla_branches(call)
                ),
                "branched": bool(_xla_branches(call)),
            },
        )
        for call in calls
    ]


def _xla_branches(call: Call) -> Sequence[Branch]:
    """Return the branches that enclose an instruction, as (key of the condition, number of the
    branch, how many branches).
    """
    return cast(Sequence[Branch], call.settings.get("branches", ()))


@with_formula("The instructions of a program that the analysis counts")
def read_xla_program(calls: Sequence[Call], trace: Trace) -> list[Call]:
    """Return the instructions of a program as XLA's analysis counts them; those of a compiled
    program are compared with the lowered program.

    Those of a compiled program are compared with the lowered one of the same setting.
    """
    if not any(call.level == "compiled" for call in calls):
        return with_chosen_branch_setting(calls)
    settings = {call.setting for call in calls}
    lowered = [
        call for call in trace.observed if call.level == "lowered" and call.setting in settings
    ]
    return list(
        _with_compilation_changes(
            with_chosen_branch_setting(lowered), with_chosen_branch_setting(calls)
        )
    )


# How counts add up: in single precision, one function of the program at a time (Postprocess,
# ProcessSubcomputation). Doubles hold every number here: the sum and the product of two
# single-precision numbers, rounded to single precision, are then the very numbers that
# single-precision arithmetic gives.

_DIGITS = 24  # of a single-precision number, in binary


def nearest_float32(value: float) -> float:
    """Return the single-precision number nearest to a value; of two equally near ones, the one
    whose last bit is 0.

    A whole number of any size is rounded once; by way of a double it might be rounded twice.
    """
    extra = abs(value).bit_length() - _DIGITS if isinstance(value, int) else 0
    if extra <= 0:
        rounded: float = unpack("f", pack("f", value))[0]
        return rounded
    kept, rest = divmod(abs(int(value)), 1 << extra)
    half = 1 << (extra - 1)
    kept += rest > half or (rest == half and kept % 2)
    return float(kept << extra if value > 0 else -kept << extra)


def float32_instruction_flops(call: Call, amount: int) -> float:
    """Return the FLOPs of an instruction as the single-precision number that XLA stores.

    For a reduction it is a product of two single-precision numbers: the amount of the reducer, and
    how often it is applied.
    """
    times = xla_reducer_applications(call) if call.target in REDUCERS else 0
    if times and not amount % times:
        return nearest_float32(nearest_float32(amount // times) * nearest_float32(times))
    return nearest_float32(amount)


@with_formula(
    "the sum in single precision of all amounts, in the order in which XLA visits instructions"
)
def xla_total_flops(shares: Sequence[Share]) -> int:
    """Return the total FLOPs that XLA prints: the sum in single precision, in the order in which
    XLA visits the instructions.

    What a function counts is added up by itself, then to what its caller has so far. Instructions
    that compilation removed stand behind the others, with nothing left of what they held.
    """
    nest: list[str] = []
    sums = [0.0]
    for call, amount in _amounts_by_instruction(shares):
        enclosing = cast(list[str], call.settings["nest"])
        kept = _common_function_depth(nest, enclosing)
        _add_last_sum_to_previous(sums, len(nest) - kept)
        sums += [0.0] * (len(enclosing) - kept)
        nest = enclosing
        sums[-1] = nearest_float32(sums[-1] + float32_instruction_flops(call, amount))
    _add_last_sum_to_previous(sums, len(nest))
    return int(sums[0])


def _amounts_by_instruction(shares: Sequence[Share]) -> Iterator[tuple[Call, int]]:
    """Yield each instruction with the sum of its amounts in `shares`, in FLOPs."""
    for _, group in groupby(shares, key=lambda share: share.call.key):
        booked = list(group)
        yield booked[0].call, sum(int(share.amount) for share in booked)


def _common_function_depth(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many enclosing functions two instructions have in common, from the outermost
    inwards.
    """
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (left, other) in enumerate(pairs) if left != other),
        min(len(first), len(second)),
    )


def _add_last_sum_to_previous(sums: list[float], times: int) -> None:
    """Remove the last sum and add it to the one before, `times` times, in single precision; `sums`
    has the FLOPs of nested functions.
    """
    for _ in range(times):
        inner = sums.pop()
        sums[-1] = nearest_float32(sums[-1] + inner)


_SOURCE = "xla/service/hlo_cost_analysis.cc"
_CONVERSIONS = ("convert", "bitcast-convert", "reduce-precision", "stochastic-convert")
_ARITHMETIC = ("add", "subtract", "multiply", "divide")
_NATIVE = tuple(name for name in ELEMENTWISE if name not in {*_CONVERSIONS, *_ARITHMETIC})
_INDEXED = ("scatter", "map", "select-and-scatter")
_ESTIMATES = ("sort", "fft", "cholesky", "triangular-solve", "all-reduce", "all-reduce-start")
_CONTRACTIONS = ("dot", "convolution")


def _xla_tool(name: str, level: Level) -> Tool:
    """Return the description of XLA's cost analysis as a tool, for the lowered or the compiled
    program.
    """
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
        reads=read_xla_program,
        adds_up=xla_total_flops,
        rounds="precision.float32",
        step="runs",
    )


lowered, compiled = _xla_tool("xla-lowered", "lowered"), _xla_tool("xla-compiled", "compiled")


@with_formula("F // 2, F the FLOPs of the analysis, which leaves out positions of padding")
def xla_contraction_macs(call: Site) -> int:
    """Return the MACs that XLA counts for a dot product or a convolution: half of its FLOPs."""
    return xla_call_flops(call.call) // FLOPS_PER_MAC


@with_formula("F, the FLOPs of the analysis for the instruction")
def xla_instruction_flops(call: Site) -> int:
    """Return the FLOPs that XLA counts for the instruction."""
    return xla_call_flops(call.call)


@with_formula("F, the FLOPs of the analysis; 0 for products, convolutions and library calls")
def xla_flops_except_contractions(call: Site) -> int:
    """Return the FLOPs that XLA counts for the instruction, or 0 for dot products, convolutions
    and custom calls.
    """
    return 0 if call.target in {*_CONTRACTIONS, "custom-call"} else xla_call_flops(call.call)


@with_formula("F for an added instruction, -F for a removed one")
def xla_flops_changed_by_compilation(call: Site) -> int:
    """Return the FLOPs of an instruction that compilation added, or minus the FLOPs of one that it
    removed.
    """
    return -xla_call_flops(call.call) if call.settings["removed"] else xla_call_flops(call.call)


def _xla_rule_group(level: Level, *where: Condition) -> Rules:
    """Return a new group with all rules of XLA's analysis, for instructions on this level."""
    rules = Rules(level, *where)
    _add_contraction_rules(rules)
    _add_component_rules(rules)
    return rules


def _add_contraction_rules(rules: Rules) -> None:
    """Add the rules for dot products and convolutions to the group."""
    both, handlers = _CONTRACTIONS, f"{_SOURCE}: GetDotFlops, GetConvolutionFlops"
    branch, dearest = "control.branch", f"{_SOURCE}: HandleConditional"
    cheaper = recorded_as("in a branch that is not the most expensive", chosen=False)
    rules.hides("branch", both, cheaper, cause=branch, source=dearest)
    same, loop = "graph.export-decomposition", f"{_SOURCE}: HandleWhile"
    counts = rules.contraction
    other = recorded_as("in a branch, without a node of the graph", alone=True, branched=True)
    counts(both, other, cause=branch, name="other-branch", source=dearest)(xla_contraction_macs)
    alone = recorded_as("without a node of the graph", alone=True)
    counts(both, alone, cause=same, name="alone", source=handlers)(xla_contraction_macs)
    device = "control.one-device"
    split = recorded_as("split over devices", per_device=True)
    counts(both, split, cause=device, name="per-device", source=handlers)(xla_contraction_macs)
    once = "control.loop-body-once"
    looped = recorded_as("in the body of a loop", in_loop=True)
    counts(both, looped, cause=once, name="in-loop", source=loop)(xla_contraction_macs)
    counts("dot", cause=same, name="dot", source=f"{_SOURCE}: GetDotFlops")(xla_contraction_macs)
    counts(
        "convolution",
        cause="conv.padding-valid-taps",
        name="convolution",
        source=f"{_SOURCE}: GetConvolutionFlops",
    )(xla_contraction_macs)


_WORDS = {
    "layer": "in a layer {}",
    "function": "in a {} function",
    "after": "on the result of a {}",
    "numbers": "of {} numbers",
    "pooled": "by {}",
}


def _xla_settings_text(settings: Mapping[str, Any]) -> str:
    """Return a text for pages that names the settings of an instruction, such as "in the backward
    pass"; "" if there is nothing to name.
    """
    words = [
        _WORDS[name].format(value) for name, value in settings.items() if value and name in _WORDS
    ]
    if "backward" in settings:
        words.insert(0, "in the backward pass" if settings["backward"] else "in the forward pass")
    return ", ".join(words)


def _add_component_rules(rules: Rules) -> None:
    """Add the rules for work other than dot products and convolutions to the group; of rules that
    fit, the first one counts.

    The layer that encloses an instruction, the enclosing function of jax.nn, and the target of a
    bias are settings of the call.
    """

    def add_component_rule(
        name: str, cause: str, handler: str, targets: tuple[str, ...], **settings: Any
    ) -> None:
        """Add one rule for the instructions with these targets and settings; without targets, for
        all except dot products, convolutions and custom calls.
        """
        source = f"{_SOURCE}: {handler}"
        where = recorded_as(_xla_settings_text(settings), chosen=True, **settings)
        rules.adds(targets, where, cause=cause, name=name, source=source)(
            xla_instruction_flops if targets else xla_flops_except_contractions
        )

    elementwise = "HandleElementwiseOp"
    forward: dict[str, Any] = {"backward": False}
    for cause, layer in (
        ("norm.batch", "BatchNorm"),
        ("norm.layer", "LayerNorm"),
        ("norm.group", "GroupNorm"),
        ("norm.instance", "InstanceNorm"),
        ("norm.rms", "RMSNorm"),
        ("rnn.gate-elementwise", "RNN cell"),
    ):
        add_component_rule(cause, cause, elementwise, (), **forward, layer=layer)
    for cause, function in (
        ("act.relu", "relu"),
        ("act.piecewise-other", "piecewise"),
        ("act.transcendental", "smooth"),
        ("softmax", "softmax"),
        ("embedding.lookup", "lookup"),
    ):
        add_component_rule(cause, cause, elementwise, (), **forward, layer="", function=function)
    add_component_rule("backward", "scope.backward", elementwise, (), backward=True)
    plain = {**forward, "layer": "", "function": ""}
    for cause, after in (("bias.conv", "convolution"), ("bias.linear", "product")):
        add_component_rule(cause, cause, elementwise, ("add",), **plain, after=after)
    for name, cause, targets, numbers in (
        ("arithmetic", "elementwise.add-function", _ARITHMETIC, "real"),
        ("native", "elementwise.native", _NATIVE, "real"),
        ("whole", "graph.shape-arithmetic-counted", (*_ARITHMETIC, *_NATIVE), "whole"),
    ):
        add_component_rule(name, cause, elementwise, targets, **plain, after="", numbers=numbers)
    add_component_rule(
        "conversion", "elementwise.type-conversion", "HandleConvert", _CONVERSIONS, **plain
    )
    add_component_rule("reduce", "reduce.mean", "HandleReduce", ("reduce",), **plain)
    add_component_rule("indexed", "elementwise.native", "HandleScatter", _INDEXED, **plain)
    add_component_rule(
        "estimates", "op.estimated", "HandleSort, HandleFft ...", _ESTIMATES, **plain
    )
    for cause, pooled in (("pool.max", "max"), ("pool.avg", "sum"), ("reduce.mean", "")):
        name, windows = f"window-{pooled or 'other'}", ("reduce-window",)
        add_component_rule(name, cause, "HandleReduceWindow", windows, **plain, pooled=pooled)
    add_component_rule("library", "op.library-call", "HandleCustomCall", ("custom-call",))


lowered.include(_xla_rule_group("lowered"))
compiled.include(
    _xla_rule_group("compiled", recorded_as("also in the lowered program", lowered=True))
)

_CHANGES = {
    "rewritten": "added or removed by the compiler",
    "once": "removed by the compiler as a duplicate",
    "again": "added by the compiler as a duplicate",
}
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
    made = recorded_as(_CHANGES[kind], change=kind)
    changes.adds(tuple(targets), made, cause=f"xla.{name}", name=name)(
        xla_flops_changed_by_compilation
    )

CONVENTIONS = (lowered.convention, compiled.convention)
