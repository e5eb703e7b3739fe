"""XLA's cost analysis of a program of JAX: of the one that it is given, and of the compiled one.

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


def _input(call: Call, index: int) -> Shape:
    """Return the shape of a call's input; raise ValueError if it is unknown."""
    return _xla_tensor_shape(call.inputs[index])


def _xla_result_shape(call: Call) -> Shape:
    """Return the shape of a call's first output; raise ValueError if it is unknown."""
    return _xla_tensor_shape(call.outputs[0])


def _xla_tensor_shape(spec: Any) -> Shape:
    """Return the shape of a tensor; raise ValueError if it is unknown."""
    if spec.shape is None:
        raise ValueError(f"the shape of {spec.name} is not known")
    return cast(Shape, spec.shape)


def _xla_setting_sizes(call: Call, name: str) -> Sequence[int]:
    """Return a setting of an XLA instruction that is a list of sizes."""
    return cast(Sequence[int], call.settings[name])


def _xla_window_sides(call: Call) -> Sequence[Mapping[str, int]]:
    """Return size, stride, padding and dilation of each side of an instruction's window."""
    return cast(Sequence[Mapping[str, int]], call.settings.get("window", ()))


def dot(call: Call) -> int:
    """Return n(out) x the contracted sizes: GetDotFlops, without its factor of two."""
    first = _input(call, 0)
    return prod(first[axis] for axis in _xla_setting_sizes(call, "lhs_contracting")) * prod(
        _xla_result_shape(call)
    )


def xla_convolution_macs(call: Call) -> int:
    """Return (Ci / groups) x Co x (N / batch groups) x valid positions: GetConvolutionFlops,
    halved.
    """
    image, result = _input(call, 0), _xla_result_shape(call)
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
    """Return a setting of an XLA instruction that is an integer."""
    return cast(int, call.settings[name])


def _xla_valid_positions(call: Call) -> int:
    """Return how many pairs of filter and result position read a true element of the image.

    Taps on padding are not counted, nor are taps on the holes that a dilation of the image makes.
    """
    image, weights, result = _input(call, 0), _input(call, 1), _xla_result_shape(call)
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
    """Return how many pairs of filter and result position along one axis read an element."""
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
    """Return how many result positions read a true element of the image at one filter tap.

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
    """Return n(out): HandleElementwiseOp."""
    return prod(_xla_result_shape(call))


def applications(call: Call) -> int:
    """Return how often a reducer is applied: HandleReduce, HandleReduceWindow, HandleScatter,
    HandleMap.

    For a select-and-scatter it is how often its scatter is applied.
    """
    if call.target == "reduce":
        return prod(_input(call, 0)) - prod(_xla_result_shape(call))
    if call.target == "reduce-window":
        return _xla_window_flops(call)
    if call.target == "scatter":
        return prod(_input(call, (len(call.inputs) + 1) // 2))
    if call.target == "select-and-scatter":
        return prod(_input(call, 1))
    return prod(_xla_result_shape(call))


def _xla_window_flops(call: Call) -> int:
    """Return the FLOPs of a windowed reduction.

    In detail: (window - 1) x n(out), and less for a window that is as wide as the whole dimension.
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


def selections(call: Call) -> int:
    """Return n(source) x (window - 1), how often the select is applied: HandleSelectAndScatter."""
    return prod(_input(call, 1)) * (prod(side["size"] for side in _xla_window_sides(call)) - 1)


def scalar_flops(opcodes: Scalar) -> int:
    """Return the flops of a function of scalars: one for each elementwise instruction in it."""
    return sum(opcode in ELEMENTWISE for opcode in cast(Sequence[str], opcodes))


def xla_reduction_flops(call: Call) -> int:
    """Return the flops of a reducer x how often it is applied: ProcessSubcomputation."""
    operations = applications(call) * scalar_flops(call.settings["applied"])
    if call.target == "select-and-scatter":
        operations += selections(call) * scalar_flops(call.settings["selecting"])
    return operations


def sort(call: Call) -> int:
    """Return n ceil(log2 n), n of the first operand as a whole: HandleSort."""
    elements = prod(_input(call, 0))
    return elements * (elements - 1).bit_length() if elements else 0


def fft(call: Call) -> int:
    """Return 8 n(in) x floor(log2) of every length, multiplied: HandleFft."""
    logarithms = prod(length.bit_length() - 1 for length in _xla_setting_sizes(call, "fft_length"))
    return 4 * FLOPS_PER_MAC * logarithms * prod(_input(call, 0))


def cholesky(call: Call) -> int:
    """Return n(a) x its last size / 3, truncated: HandleCholesky."""
    return prod(_input(call, 0)) * _input(call, 0)[-1] // 3


def triangular_solve(call: Call) -> int:
    """Return 2 n(b) x the last size of a: HandleTriangularSolve."""
    return FLOPS_PER_MAC * _input(call, 0)[-1] * prod(_input(call, 1))


def all_reduce(call: Call) -> int:
    """Return n(out), as two replicas are assumed: HandleAllReduce."""
    return sum(prod(_xla_tensor_shape(spec)) for spec in call.outputs)


def custom_call(call: Call) -> int:
    """Return -1, which means "unknown" and is added to the sum: HandleCustomCall."""
    return -1


def _flops_from_macs(amount: Callable[[Call], int]) -> Callable[[Call], int]:
    """Return a formula that gives 2 FLOPs for each MAC of another one."""
    return lambda call: FLOPS_PER_MAC * amount(call)


KINDS: dict[str, Callable[[Call], int]] = {
    **dict.fromkeys(ELEMENTWISE, xla_elementwise_flops),
    **dict.fromkeys(REDUCERS, xla_reduction_flops),
    "dot": _flops_from_macs(dot),
    "convolution": _flops_from_macs(xla_convolution_macs),
    "sort": sort,
    "fft": fft,
    "cholesky": cholesky,
    "triangular-solve": triangular_solve,
    "all-reduce": all_reduce,
    "all-reduce-start": all_reduce,
    "custom-call": custom_call,
}


def flops(call: Call) -> int:
    """Return the flops of an instruction of any kind; 0 for a kind that is not counted."""
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


def _compare_programs(lowered: Iterable[Call], compiled: Iterable[Call]) -> Iterator[Call]:
    """Yield the compiled instructions in their order, then those that compilation `removed`.

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

    def kind(call: Call, repeated: str) -> str:
        """Return how XLA changed an instruction: `repeated`, "rewritten", or "" without FLOPs."""
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
            yield _with_change_facts(call, kind(call, "again"), lowered=False, removed=False)
    for call in before:
        if call.key not in taken and (flops(call) or call.of):
            yield _with_change_facts(
                _to_compiled_call(call), kind(call, "once"), lowered=True, removed=True
            )


def _has_counted_flops(call: Call) -> bool:
    """Return whether XLA counts FLOPs other than 0 for an instruction."""
    return call.settings.get("chosen") is True and flops(call) != 0


def _key_with_names(call: Call) -> Key:
    """Return target, FLOPs and names of an instruction as a key for comparison."""
    return (call.target, flops(call), call.settings["names"])


def _key_without_names(call: Call) -> Key:
    """Return target and FLOPs of an instruction as a key for comparison."""
    return (call.target, flops(call))


def _instruction_pairs(before: Iterable[Call], after: list[Call]) -> Pairs:
    """Return by compiled instruction the lowered one that does the same work.

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
    """Return by compiled instruction's key the lowered instruction with an equal key."""
    waiting: dict[Key, list[Call]] = defaultdict(list)
    for call in reversed(before):
        waiting[key(call)].append(call)
    return {call.key: waiting[key(call)].pop() for call in after if waiting[key(call)]}


def _with_lowered_facts(call: Call, before: Call) -> Call:
    """Return a compiled instruction with settings, module and parent of its lowered one."""
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
    """Return an instruction as one of the compiled program, outside any loop or branch."""
    key = f"compiled:({call.key.partition(':')[2]})"
    settings = {**call.settings, "nest": []}
    return msgspec.structs.replace(call, key=key, level="compiled", settings=settings)


def _with_change_facts(call: Call, change: str, lowered: bool, removed: bool) -> Call:
    """Return an instruction with settings that say how compilation changed it."""
    facts = {"change": change, "lowered": lowered, "removed": removed}
    return msgspec.structs.replace(call, settings={**call.settings, **facts})


def with_branches(calls: Sequence[Call]) -> list[Call]:
    """Return the instructions, each with `chosen`: whether all branches around it are the most
    expensive ones.

    Of branches with equal cost the first one counts. `branched` are those in any branch.
    """
    costs: dict[str, list[int]] = {}
    for call in calls:
        for condition, number, count in _xla_branches(call):
            costs.setdefault(condition, [0] * count)[number] += flops(call)
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
    """Return the branches of a conditional instruction."""
    return cast(Sequence[Branch], call.settings.get("branches", ()))


def read_xla_program(calls: Sequence[Call], trace: Trace) -> list[Call]:
    """The instructions of a program as the analysis counts them.

    Those of a compiled program are compared with the lowered one of the same setting.
    """
    if not any(call.level == "compiled" for call in calls):
        return with_branches(calls)
    settings = {call.setting for call in calls}
    lowered = [
        call for call in trace.observed if call.level == "lowered" and call.setting in settings
    ]
    return list(_compare_programs(with_branches(lowered), with_branches(calls)))


# How counts add up: in single precision, one function of the program at a time (Postprocess,
# ProcessSubcomputation). Doubles hold every number here: the sum and the product of two
# single-precision numbers, rounded to single precision, are then the very numbers that
# single-precision arithmetic gives.

_DIGITS = 24  # of a single-precision number, in binary


def nearest_float32(value: float) -> float:
    """Return the single-precision number nearest to a value; of two the one whose last bit is 0.

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
    """Return the single-precision value that XLA stores for an instruction of `amount` FLOPs.

    For a reduction it is a product of two single-precision numbers: the amount of the reducer, and
    how often it is applied.
    """
    times = applications(call) if call.target in REDUCERS else 0
    if times and not amount % times:
        return nearest_float32(nearest_float32(amount // times) * nearest_float32(times))
    return nearest_float32(amount)


@with_formula(
    "the sum in single precision of all amounts, in the order in which XLA visits instructions"
)
def xla_total_flops(shares: Sequence[Share]) -> int:
    """Return the sum in single precision, in the order in which XLA visits the instructions.

    What a function counts is added up by itself, then to what its caller has so far. Instructions
    that compilation removed stand behind the others, with nothing left of what they held.
    """
    nest: list[str] = []
    sums = [0.0]
    for call, amount in _amounts_by_instruction(shares):
        enclosing = cast(list[str], call.settings["nest"])
        kept = _common_function_depth(nest, enclosing)
        _add_inner_sums(sums, len(nest) - kept)
        sums += [0.0] * (len(enclosing) - kept)
        nest = enclosing
        sums[-1] = nearest_float32(sums[-1] + float32_instruction_flops(call, amount))
    _add_inner_sums(sums, len(nest))
    return int(sums[0])


def _amounts_by_instruction(shares: Sequence[Share]) -> Iterator[tuple[Call, int]]:
    """Yield each instruction with the sum of its shares."""
    for _, group in groupby(shares, key=lambda share: share.call.key):
        booked = list(group)
        yield booked[0].call, sum(int(share.amount) for share in booked)


def _common_function_depth(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many enclosing functions are the same, from the outermost inwards."""
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (left, other) in enumerate(pairs) if left != other),
        min(len(first), len(second)),
    )


def _add_inner_sums(sums: list[float], times: int) -> None:
    """Add the innermost function's FLOPs to its caller's, for the last `times` functions."""
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


def _tool(name: str, level: Level) -> Tool:
    """Return the description of XLA's cost analysis at one level as a tool."""
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


lowered, compiled = _tool("xla-lowered", "lowered"), _tool("xla-compiled", "compiled")


def contraction(call: Site) -> int:
    """F // 2, F the FLOPs of the analysis, which leaves out positions of padding."""
    return flops(call.call) // FLOPS_PER_MAC


def xla_instruction_flops(call: Site) -> int:
    """F, the FLOPs of the analysis for the instruction."""
    return flops(call.call)


def xla_other_flops(call: Site) -> int:
    """F, the FLOPs of the analysis; 0 for products, convolutions and library calls."""
    return 0 if call.target in {*_CONTRACTIONS, "custom-call"} else flops(call.call)


@with_formula("F for an added instruction, -F for a removed one")
def xla_change_flops(call: Site) -> int:
    """Return F of an instruction that compilation put in, -F of one that it removed."""
    return -flops(call.call) if call.settings["removed"] else flops(call.call)


def _analysis(level: Level, *where: Condition) -> Rules:
    """Return a group of rules for the XLA instructions on one level of calls."""
    rules = Rules(level, *where)
    _contractions(rules)
    _declare_component_rules(rules)
    return rules


def _contractions(rules: Rules) -> None:
    """Add the rules for dot products and convolutions of XLA to the group."""
    both, handlers = _CONTRACTIONS, f"{_SOURCE}: GetDotFlops, GetConvolutionFlops"
    branch, dearest = "control.branch", f"{_SOURCE}: HandleConditional"
    cheaper = recorded_as("in a branch that is not the most expensive", chosen=False)
    rules.hides("branch", both, cheaper, cause=branch, source=dearest)
    same, loop = "graph.export-decomposition", f"{_SOURCE}: HandleWhile"
    counts = rules.contraction
    other = recorded_as("in a branch, without a node of the graph", alone=True, branched=True)
    counts(both, other, cause=branch, name="other-branch", source=dearest)(contraction)
    alone = recorded_as("without a node of the graph", alone=True)
    counts(both, alone, cause=same, name="alone", source=handlers)(contraction)
    device = "control.one-device"
    split = recorded_as("split over devices", per_device=True)
    counts(both, split, cause=device, name="per-device", source=handlers)(contraction)
    once = "control.loop-body-once"
    looped = recorded_as("in the body of a loop", in_loop=True)
    counts(both, looped, cause=once, name="in-loop", source=loop)(contraction)
    counts("dot", cause=same, name="dot", source=f"{_SOURCE}: GetDotFlops")(contraction)
    counts(
        "convolution",
        cause="conv.padding-valid-taps",
        name="convolution",
        source=f"{_SOURCE}: GetConvolutionFlops",
    )(contraction)


_WORDS = {
    "layer": "in a layer {}",
    "function": "in a {} function",
    "after": "on the result of a {}",
    "numbers": "of {} numbers",
    "pooled": "by {}",
}


def _xla_settings_text(settings: Mapping[str, Any]) -> str:
    """Return the settings of an instruction in words, "" where it has no special setting."""
    words = [
        _WORDS[name].format(value) for name, value in settings.items() if value and name in _WORDS
    ]
    if "backward" in settings:
        words.insert(0, "in the backward pass" if settings["backward"] else "in the forward pass")
    return ", ".join(words)


def _declare_component_rules(rules: Rules) -> None:
    """Declare the rules for work other than contractions; the first matching kind in this order
    counts.

    The layer that encloses an instruction, the enclosing function of jax.nn, and the target of a
    bias are settings of the call.
    """

    def adds(
        name: str, cause: str, handler: str, targets: tuple[str, ...], **settings: Any
    ) -> None:
        """Add a rule of XLA's handler for other instructions, under the given settings."""
        source = f"{_SOURCE}: {handler}"
        where = recorded_as(_xla_settings_text(settings), chosen=True, **settings)
        rules.adds(targets, where, cause=cause, name=name, source=source)(
            xla_instruction_flops if targets else xla_other_flops
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
        adds(cause, cause, elementwise, (), **forward, layer=layer)
    for cause, function in (
        ("act.relu", "relu"),
        ("act.piecewise-other", "piecewise"),
        ("act.transcendental", "smooth"),
        ("softmax", "softmax"),
        ("embedding.lookup", "lookup"),
    ):
        adds(cause, cause, elementwise, (), **forward, layer="", function=function)
    adds("backward", "scope.backward", elementwise, (), backward=True)
    plain = {**forward, "layer": "", "function": ""}
    for cause, after in (("bias.conv", "convolution"), ("bias.linear", "product")):
        adds(cause, cause, elementwise, ("add",), **plain, after=after)
    for name, cause, targets, numbers in (
        ("arithmetic", "elementwise.add-function", _ARITHMETIC, "real"),
        ("native", "elementwise.native", _NATIVE, "real"),
        ("whole", "graph.shape-arithmetic-counted", (*_ARITHMETIC, *_NATIVE), "whole"),
    ):
        adds(name, cause, elementwise, targets, **plain, after="", numbers=numbers)
    adds("conversion", "elementwise.type-conversion", "HandleConvert", _CONVERSIONS, **plain)
    adds("reduce", "reduce.mean", "HandleReduce", ("reduce",), **plain)
    adds("indexed", "elementwise.native", "HandleScatter", _INDEXED, **plain)
    adds("estimates", "op.estimated", "HandleSort, HandleFft ...", _ESTIMATES, **plain)
    for cause, pooled in (("pool.max", "max"), ("pool.avg", "sum"), ("reduce.mean", "")):
        name, windows = f"window-{pooled or 'other'}", ("reduce-window",)
        adds(name, cause, "HandleReduceWindow", windows, **plain, pooled=pooled)
    adds("library", "op.library-call", "HandleCustomCall", ("custom-call",))


lowered.include(_analysis("lowered"))
compiled.include(_analysis("compiled", recorded_as("also in the lowered program", lowered=True)))

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
    changes.adds(tuple(targets), made, cause=f"xla.{name}", name=name)(xla_change_flops)

CONVENTIONS = (lowered.convention, compiled.convention)
