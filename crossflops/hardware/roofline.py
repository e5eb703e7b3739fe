"""The roofline: no step is shorter than its work at the peak, nor than its bytes at the bandwidth.

    t_i    = max(W_i / P_i, Q_i / B)        one node
    t_min  = sum_i t_i                      node after node, each limited by itself
    t      = max(sum_i W_i / P_i, Q / B)    the whole, as if all nodes overlapped: t <= t_min
    I      = W / Q                          intensity, FLOP/byte
    ridge  = P / B                          left of it memory is the limit, right of it compute

W_i = 2 x MACs x k FLOPs, with k passes (1 in inference, 3 in training), as in a required rate;
other operations are not timed, their bytes are. P_i is the peak of the precision of node i, B the
bandwidth, Q_i its bytes under a byte model (step_traffic.py). The P of the whole is
W / sum_i W_i / P_i.

With the batch s times larger W and the bytes of activations and caches M grow s times, those of
weights V do not: I(s) = s W / (V + s M), which stays below W / M and passes the ridge at
s = ridge V / (W - ridge M), if ever. Of the weights of experts more are read by a larger batch:
V is V(s) there, which grows ever more slowly, so that the ridge is passed once.

Source: Williams, Waterman and Patterson, Roofline: an insightful visual performance model for
multicore architectures (CACM 52/4, 2009).

A kernel that ran, and may be fused, moves only what crosses its edge:

    Q = bytes of tensors that its nodes read and none of them makes
      + bytes of tensors that they make and a node outside, or the caller, reads

which for a kernel of one node is what the unfused model says.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil

import msgspec

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.dataflow import trace_element_flow
from crossflops.hardware.devices.catalogue import find_device
from crossflops.hardware.step_traffic import (
    Formats,
    node_loads,
    precision_of_node_peak,
    tensor_byte_count,
)
from crossflops.ir.device import Device
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.ledger import Ledger
from crossflops.ir.roofline import (
    ByteModel,
    Ceiling,
    KernelBound,
    KindBound,
    Load,
    MeasuredStep,
    NodeBound,
    Side,
    StepBound,
)
from crossflops.report.bench import KernelRow

# Nodes that do the same in modules that are alike, as one row of a table.

_PRODUCTS = frozenset(("MatMul", "Gemm", "Einsum"))


def load_kind(load: Load) -> str:
    """Return the kind of a node, which groups similar nodes into one row: its operator and the
    name of its module without numbers.

    A node that reads weights stands in the module that owns them (a layer), and it is what is
    around this that tells sorts apart: q_proj and o_proj are both of self_attn. A product of two
    activations beside them is a sort of its own.

    >>> load_kind(_unit_load_for_doctest("MatMul", "model.layers.3.mlp.up_proj", weighted=True))
    'MatMul (mlp)'
    >>> load_kind(_unit_load_for_doctest("MatMul", "model.layers.3.self_attn"))
    'MatMul of activations (self_attn)'
    >>> load_kind(_unit_load_for_doctest("Conv", "fc", weighted=True))
    'Conv (fc)'
    >>> load_kind(_unit_load_for_doctest("Relu", ""))
    'Relu'
    """
    names = [name for name in re.split(r"[./]", load.path) if name]
    if load.weighted and len(names) > 1:
        names.pop()
    names = [name for name in names if not name.isdigit()] or names
    separate = load.op in _PRODUCTS and not load.weighted
    op = f"{load.op} of activations" if separate else load.op
    return f"{op} ({re.sub(r'[0-9]+', '*', names[-1])})" if names else op


def kind_bounds(nodes: Iterable[NodeBound]) -> tuple[KindBound, ...]:
    """Return for each kind of nodes the sums of their FLOPs, bytes and least seconds, the slowest
    kind first.
    """
    by_kind: dict[str, list[NodeBound]] = {}
    for node in nodes:
        by_kind.setdefault(node.kind, []).append(node)
    rows = (_sum_kind_bounds(name, rows) for name, rows in by_kind.items())
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.kind)))


def _sum_kind_bounds(name: str, rows: list[NodeBound]) -> KindBound:
    """Return the sums of FLOPs, bytes and least seconds over the nodes `rows` of the kind
    `name`.
    """
    return KindBound(
        kind=name,
        nodes=len(rows),
        work=sum(row.work for row in rows),
        bytes=sum(row.bytes for row in rows),
        cache=sum(row.cache for row in rows),
        seconds=sum(row.seconds for row in rows),
        bound=_prevailing_bound(rows),
    )


def _prevailing_bound(rows: list[NodeBound]) -> Side:
    """Return "compute", "memory" or "none": the bound of the nodes that take most of the time."""
    sides: dict[Side, float] = {}
    for row in rows:
        sides[row.bound] = sides.get(row.bound, 0.0) + row.seconds
    return max(sides, key=lambda bound: sides[bound])


def _unit_load_for_doctest(op: str, path: str, weighted: bool = False) -> Load:
    """Return a load with amounts of 1 for the examples of `load_kind`."""
    counts = dict.fromkeys(("macs", "operations", "weights", "cache", "activations"), 1)
    return Load(node="", op=op, path=path, precision="float32", weighted=weighted, **counts)


FLOPS_PER_MAC = 2


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a step: device, batch, passes and precision. `scale` is its batch over the
    counted one.

    `examples` are in the step, `passes` as large as the forward one; `precision` is "" for that
    of the graph. `nodewise` is False where the bytes of single nodes are not known.
    """

    label: str
    ceiling: Ceiling
    examples: int
    scale: Fraction = Fraction(1)
    passes: Fraction = Fraction(1)
    precision: str = ""
    nodewise: bool = True


def node_bounds(loads: Iterable[Load], run: Scenario) -> tuple[NodeBound, ...]:
    """Return for each node its FLOPs, its bytes and the least seconds that it takes in a whole
    step.

    Raises UnknownNameError where the device has no peak for the precision of a node with MACs.
    """
    return tuple(_node_bound(load, run) for load in loads)


def _node_bound(load: Load, run: Scenario) -> NodeBound:
    """Return the FLOPs and bytes of a node in a step, and its least seconds: FLOPs / peak or bytes
    / bandwidth.
    """
    times = run.passes * run.scale
    work = round(FLOPS_PER_MAC * load.macs * times)
    operations = round(load.operations * times)
    cache = round(load.cache * times)
    moved = round(load.weights * run.passes) + round((load.cache + load.activations) * times)
    precision = precision_of_node_peak(load.precision, run.precision)
    peak = ceiling_peak(run.ceiling, precision) if work else None
    computing, moving = (work / peak if peak else 0.0), moved / run.ceiling.bandwidth
    return NodeBound(
        node=load.node,
        op=load.op,
        path=load.path,
        kind=load_kind(load),
        precision=precision,
        work=work,
        operations=operations,
        bytes=moved,
        cache=cache,
        peak=peak,
        intensity=(work or operations) / moved if moved else None,
        bound=longer_side(computing, moving),
        seconds=max(computing, moving),
    )


def ceiling_peak(ceiling: Ceiling, precision: str) -> float:
    """Return the peak of a precision in FLOP/s.

    Raises UnknownNameError where there is none, which is never replaced by another one.
    """
    peak = ceiling.peaks.get(precision, ceiling.peaks.get(""))
    if peak is None:
        raise UnknownNameError(
            f"{ceiling.name} has no peak for {precision or 'the precision of the model'}",
            f"it has {', '.join(ceiling.peaks)}: give one of these with --precision, or with "
            "precision= in --what-if",
        )
    return peak


def longer_side(computing: float, moving: float) -> Side:
    """Return which time is longer, "compute" or "memory"; "none" if both are 0."""
    if not computing and not moving:
        return "none"
    return "compute" if computing >= moving else "memory"


def step_bound(loads: Sequence[Load], run: Scenario) -> StepBound:
    """Return the FLOPs, bytes, intensity (FLOP/byte) and least seconds of a whole step."""
    nodes = node_bounds(loads, run)
    work, moved = sum(node.work for node in nodes), sum(node.bytes for node in nodes)
    if not work and not moved:
        raise InputError(
            "the model has no FLOPs and moves no bytes, so a roofline is not defined",
            "give a model with at least one operation, or leave out the options of the roofline",
        )
    computing = sum(node.work / node.peak for node in nodes if node.peak)
    bandwidth = run.ceiling.bandwidth
    top = _mean_peak(nodes, run)
    shortest = max(computing, moved / bandwidth)
    seconds = sum(node.seconds for node in nodes) if run.nodewise else None
    return StepBound(
        label=run.label,
        examples=run.examples,
        work=work,
        bytes=moved,
        weights=round(sum(load.weights for load in loads) * run.passes),
        cache=sum(node.cache for node in nodes),
        peak=top,
        bandwidth=bandwidth,
        intensity=work / moved if moved else None,
        ridge=top / bandwidth,
        bound=longer_side(computing, moved / bandwidth),
        whole_seconds=shortest,
        seconds=seconds,
        attainable=min(top, work / moved * bandwidth) if moved else top,
        joules=joules_per_example(run.ceiling.tdp, seconds or shortest, run.examples),
    )


def _mean_peak(nodes: Sequence[NodeBound], run: Scenario) -> float:
    """Return the peak in FLOP/s that applies to the whole step: the harmonic mean of the nodes'
    peaks, weighted by their work.
    """
    peaks = {node.peak for node in nodes if node.peak}
    if len(peaks) == 1:
        return peaks.pop()
    computing = sum(node.work / node.peak for node in nodes if node.peak)
    if computing:
        return sum(node.work for node in nodes) / computing
    return run.ceiling.peaks.get(run.precision) or max(run.ceiling.peaks.values())


def joules_per_example(tdp: float | None, seconds: float, examples: int) -> float | None:
    """Return the joules of one example at full TDP (watts), which is an upper bound; None without
    a TDP.
    """
    return None if tdp is None else tdp * seconds / examples


def intensity_limit(loads: Iterable[Load]) -> float | None:
    """Return the intensity (FLOP/byte) that a step approaches as its batch grows; None if it has
    no limit.
    """
    every = tuple(loads)
    grows = sum(load.cache + load.activations for load in every)
    work = FLOPS_PER_MAC * sum(load.macs for load in every)
    return work / grows if grows else None


def compute_bound_batch_size(
    loads: Callable[[Fraction], Iterable[Load]], run: Scenario, ridge: float
) -> int | None:
    """Return the smallest batch size at which the model is compute-bound, or None.

    s = ridge V(s) / (W - ridge M), in examples and rounded up; None where no batch reaches the
    ridge. A larger batch reads more of its experts' weights V, so the least such number is
    approached from one example, each time with the weights that the batch before reads.

    Args:
        loads: The loads of a pass over so many times as many examples as were counted.
        run: The step, of which the examples that were counted follow.
        ridge: FLOPs a byte at which compute and memory take as long.
    """
    counted = run.examples / run.scale
    every = tuple(loads(1 / counted))
    work = FLOPS_PER_MAC * sum(load.macs for load in every)
    grows = sum(load.cache + load.activations for load in every)
    left = work - ridge * grows
    if left <= 0:
        return None
    examples, requested = 0, 1
    while requested > examples:
        examples = requested
        weights = sum(load.weights for load in loads(examples / counted))
        requested = max(1, ceil(ridge * weights / left * float(counted) - 1e-9))
    return examples


def step_efficiencies(step: StepBound, seconds: float, tdp: float | None) -> MeasuredStep:
    """Return the measured seconds of a step with its MFU, its MBU and the share of the roofline
    that it reaches.
    """
    if not seconds > 0:
        raise InputError(
            f"the time of a step must be positive, got {seconds} s", "give a positive time"
        )
    return MeasuredStep(
        seconds=seconds,
        roofline_efficiency=step.shortest_seconds / seconds,
        whole_efficiency=step.whole_seconds / seconds,
        mfu=step.work / (seconds * step.peak),
        mbu=step.bytes / (seconds * step.bandwidth),
        joules=joules_per_example(tdp, seconds, step.examples),
    )


Loads = Callable[[ByteModel, Formats, Fraction], Sequence[Load]]
Look = Callable[[str], Device]  # a device by its name
MODELS: tuple[ByteModel, ...] = ("unfused", "weights-once", "fused-ideal")
_KEYS = ("batch", "precision", "weights", "cache", "device", "bytes")
_HINT = f"write, for example, batch=64 or weights=fp8,cache=fp8; allowed keys: {', '.join(_KEYS)}"


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario with the byte model and the number formats by which its bytes are counted."""

    run: Scenario
    model: ByteModel
    formats: Formats = Formats()


def device_ceiling(device: Device, bandwidth: float | None = None) -> Ceiling:
    """Return the peaks (FLOP/s), the bandwidth (bytes/s) and the TDP of a device.

    Raises UnknownNameError where the bandwidth is unknown.
    """
    chosen = device.bandwidth if bandwidth is None else bandwidth
    if chosen is None:
        raise UnknownNameError(
            f"the memory bandwidth of {device.label} is unknown",
            "describe the device with its bandwidth in a TOML file, and give that file with "
            "--catalogue",
        )
    return Ceiling(name=device.label, peaks=device.peaks, bandwidth=chosen, tdp=device.tdp)


def check_byte_model(name: str) -> ByteModel:
    """Return the name of a byte model (a way to count moved bytes) if it is known. Raises
    UnknownNameError if not.
    """
    for model in MODELS:
        if model == name:
            return model
    raise UnknownNameError(
        f"unknown way to count bytes {name!r}", f"choose one of {', '.join(MODELS)}"
    )


def what_if_bounds(
    texts: Iterable[str],
    base: Variant,
    loads: Loads,
    *,
    fixed: Sequence[str] = (),
    look: Look = find_device,
) -> tuple[StepBound, ...]:
    """Return the bound of the step with the changes of each --what-if text, such as "batch=64".

    What is `fixed`, such as bytes that were given, has no alternative; `look` knows the devices.
    Raises InputError for what cannot be read and UnknownNameError for an unknown name.
    """
    steps = []
    for text in texts:
        changed = variant_with_changes(base, text, fixed=fixed, look=look)
        steps.append(
            step_bound(loads(changed.model, changed.formats, changed.run.scale), changed.run)
        )
    return tuple(steps)


def variant_with_changes(
    base: Variant, text: str, *, fixed: Sequence[str] = (), look: Look = find_device
) -> Variant:
    """Return the variant of a step with the changes of a --what-if text; keys in `fixed` cannot be
    changed.
    """
    changes = _parse_what_if(text)
    stuck = [name for name in changes if name in fixed]
    if stuck:
        raise InputError(
            f"--what-if {text}: --bytes-per-example fixes the bytes, so they cannot be computed "
            f"for another {stuck[0]}",
            "give the model, and leave out --bytes-per-example",
        )
    run, formats = base.run, base.formats
    if "device" in changes:
        run = msgspec.structs.replace(run, ceiling=device_ceiling(look(changes["device"])))
    if "batch" in changes:
        examples = _parse_what_if_batch(changes["batch"], text)
        scale = run.scale * examples / Fraction(run.examples)
        run = msgspec.structs.replace(run, examples=examples, scale=scale)
    if "precision" in changes:
        run = msgspec.structs.replace(run, precision=changes["precision"])
        formats = Formats(
            activations=changes["precision"], weights=formats.weights, cache=formats.cache
        )
    named = {name: changes[name] for name in ("weights", "cache") if name in changes}
    return Variant(
        run=msgspec.structs.replace(run, label=text),
        model=check_byte_model(changes["bytes"]) if "bytes" in changes else base.model,
        formats=msgspec.structs.replace(formats, **named),
    )


def _parse_what_if(text: str) -> Mapping[str, str]:
    """Parse a --what-if text such as "batch=8,device=h100"; return the values by key."""
    changes: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in _KEYS or not value or key in changes:
            raise InputError(f"--what-if must be KEY=VALUE, got {text!r}", _HINT)
        changes[key] = value if key == "device" else value.casefold()
    return changes


def _parse_what_if_batch(value: str, text: str) -> int:
    """Parse the batch size of a --what-if text; raise InputError if it is not a positive
    integer.
    """
    if not (value.isascii() and value.isdigit()) or not 0 < int(value[:13]) < 10**12:
        raise InputError(
            f"--what-if {text}: batch must be a whole number of at least 1, got {value}",
            "give a whole number of at least 1",
        )
    return int(value)


def kernel_bounds(
    graph: Graph,
    ledger: Ledger,
    nodes: Sequence[NodeBound],
    kernels: Iterable[KernelRow],
    run: Scenario,
    formats: Formats,
) -> tuple[KernelBound, ...]:
    """Return for each kernel that runs nodes of the graph its FLOPs, bytes, least seconds and
    measured seconds.

    `nodes` are their bounds in the run. A kernel none of whose nodes is in the graph, or that
    took no time, is left out.
    """
    edge = _KernelBoundary(graph, ledger, run, formats)
    bounds = {node.node: node for node in nodes}
    rows = []
    for row in kernels:
        keys = tuple(key for key in row.nodes if key in edge.nodes)
        if not keys or row.seconds <= 0:
            continue
        work = sum(bounds[key].work for key in keys if key in bounds)
        computing = sum(bounds[k].work / (bounds[k].peak or 1) for k in keys if k in bounds)
        moved = edge.bytes_of_kernel(keys)
        seconds = max(computing, moved / run.ceiling.bandwidth)
        rows.append(
            KernelBound(
                kernel=row.kernel,
                nodes=keys,
                work=work,
                bytes=moved,
                intensity=work / moved if moved else None,
                seconds=seconds,
                measured=row.seconds,
                rate=work / row.seconds,
                efficiency=seconds / row.seconds,
            )
        )
    return tuple(rows)


class _KernelBoundary:
    """The tensors that a set of nodes exchanges with the rest of the graph."""

    def __init__(self, graph: Graph, ledger: Ledger, run: Scenario, formats: Formats) -> None:
        self.nodes: Mapping[str, Node] = {node.key: node for node in graph.nodes}
        self.alone = {
            load.node: load for load in node_loads(graph, ledger, "unfused", formats, run.scale)
        }
        self.flow, self.run, self.formats = trace_element_flow(graph, ledger), run, formats
        self.readers: dict[str, set[str]] = {spec.name: {""} for spec in graph.outputs}
        for node in graph.nodes:
            for spec in node.inputs:
                if spec is not None:
                    self.readers.setdefault(spec.name, set()).add(node.key)

    def bytes_of_kernel(self, keys: Sequence[str]) -> int:
        """Return the bytes that the nodes of a kernel read and write together."""
        times = self.run.passes * self.run.scale
        if len(keys) == 1:
            load = self.alone.get(keys[0])
            if load is None:
                return 0
            return round(load.weights * self.run.passes + (load.cache + load.activations) * times)
        inside = set(keys)
        made = {spec.name: spec for key in keys for spec in self.nodes[key].outputs if spec}
        read = {spec.name: spec for key in keys for spec in self.nodes[key].inputs if spec}
        ends = [spec for name, spec in read.items() if name not in made]
        ends += [spec for name, spec in made.items() if self.readers.get(name, set()) - inside]
        return round(sum(map(self._bytes_of_tensor, ends), Fraction(0)))

    def _bytes_of_tensor(self, spec: TensorSpec) -> Fraction:
        """Return the bytes of a tensor in all passes of a step, in the format that its use has; 0
        if its shape is unknown.
        """
        if spec.shape is None:
            return Fraction(0)
        if self.flow.is_weight(spec):
            return tensor_byte_count(spec, self.formats.format_of_weights()) * self.run.passes
        kept = (
            self.formats.format_of_caches()
            if self.flow.is_cache(spec)
            else self.formats.activations
        )
        return tensor_byte_count(spec, kept) * self.run.passes * self.run.scale
