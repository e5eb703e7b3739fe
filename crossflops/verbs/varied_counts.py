"""Count a model at many sizes of its named dimensions, each combination of sizes once.

An ONNX file is read once, and counted in milliseconds. A model of a framework is traced for each
combination, which takes a second or more, so `Sampling` says how many are tried.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from crossflops.errors import InputError
from crossflops.frontends.named import SIZES
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import OpenedFile
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import CountedNode, Ledger
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets.request import UNNAMED_SIZE, Request
from crossflops.threads import filter_warnings


class CountedPoint(NamedTuple):
    """One count: its totals, the cost of each node, and the shapes of the inputs."""

    totals: tuple[int, ...]
    nodes: dict[str, tuple[int, ...]]
    shapes: tuple[tuple[int, ...], ...]


class Sampling(NamedTuple):
    """How sizes are chosen at which a model is counted.

    `starts` are pairs of the smallest size, and whether two sizes are far beyond: a model may need
    more, or take less. Random sizes are up to `reach` multiples further. `highest` is the degree
    beyond which nothing is tried, `spare` the number of points that must lie on a polynomial in
    addition to those that make it, `elsewhere` that of random points at which all dimensions
    differ.
    """

    starts: tuple[tuple[int, bool], ...]
    reach: int
    highest: int
    spare: int
    elsewhere: int


OF_FILES = Sampling(((17, True), (17, False), (67, False), (259, False)), 64, 6, 4, 5)
OF_MODELS = Sampling(((17, False), (67, False), (259, False)), 16, 4, 2, 3)


class PointCounter:
    """Counts a model at sizes of its dimensions, each combination of sizes once.

    `base` has the size of a dimension while another one varies. `caller_sizes` are those of the
    caller, to which the tables of the report belong. Dimensions in neither have the usual size of
    the model. `on_progress` gets a line about each count.
    """

    def __init__(
        self,
        count_at: Callable[[Mapping[str, int]], tuple[Graph, Ledger]],
        base: Mapping[str, int],
        caller_sizes: Mapping[str, int],
        sampling: Sampling,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._count_at = count_at
        self._known: dict[tuple[tuple[str, int], ...], CountedPoint] = {}
        self.base = dict(base)
        self.caller_sizes = dict(caller_sizes)
        self.sampling = sampling
        self._on_progress = on_progress

    def point_at_sizes(self, sizes: Mapping[str, int]) -> CountedPoint:
        """Return the totals and the node costs for these sizes of named dimensions."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            listed = ", ".join(f"{name}={size}" for name, size in sizes.items())
            self._on_progress(f"counting at {listed} (size {len(self._known) + 1})")
            with filter_warnings("ignore"):  # the report's own count tells them, once
                self._known[key] = _point_of_count(*self._count_at(sizes))
        return self._known[key]

    def size_of_tables(self, name: str, sizes: tuple[int, ...]) -> int | None:
        """Return the size of a dimension in the tables of the report: that of the caller, the
        usual one, else the first of `sizes`, at which it was counted.

        None if the usual size is no size of an input.
        """
        if name in self.caller_sizes or name in self.base:
            return self.caller_sizes.get(name, sizes[0])
        first, second, usual = (
            [size for shape in self.point_at_sizes(at).shapes for size in shape]
            for at in ({**self.base, name: sizes[0]}, {**self.base, name: sizes[1]}, self.base)
        )
        if not len(first) == len(second) == len(usual):
            return None
        rows = zip(first, second, usual, strict=True)
        return next(
            (size for smaller, larger, size in rows if (smaller, larger) == sizes[:2]), None
        )

    @property
    def point_count(self) -> int:
        """The number of combinations of sizes that were counted."""
        return len(self._known)


def _point_of_count(graph: Graph, ledger: Ledger) -> CountedPoint:
    """Return the totals of a count, and MACs, FLOPs, bytes read and bytes written of each node."""
    total = ledger.total
    sums = (total.macs, total.flops, total.bytes_read, total.bytes_written, graph.params)
    costs: dict[str, tuple[int, ...]] = {
        counted.node.key: (
            counted.cost.macs,
            counted.cost.flops,
            counted.cost.bytes_read,
            counted.cost.bytes_written,
        )
        for counted in ledger.counts
        if isinstance(counted, CountedNode)
    }
    return CountedPoint(sums, costs, tuple(spec.shape or () for spec in graph.inputs))


def file_counter(
    file: OnnxFile,
    names: tuple[str, ...],
    dims: Mapping[str, int],
    setting: Setting,
    on_progress: Callable[[str], None],
) -> PointCounter:
    """Return a counter of an ONNX file at sizes of these named dimensions; `dims` are the sizes
    that the caller gave.
    """
    opened = OpenedFile(msgspec.structs.replace(file, dims={}))
    fixed = {name: size for name, size in dims.items() if name not in names}

    def count_file(sizes: Mapping[str, int]) -> tuple[Graph, Ledger]:
        """Return the graph of the file at these sizes, and its count."""
        graph, _ = opened.graph_with_dims({**fixed, **sizes}, setting)
        return graph, count(graph)

    caller_sizes = {name: dims[name] for name in names if name in dims}
    base = dict.fromkeys(names, 64)
    return PointCounter(count_file, base, caller_sizes, OF_FILES, on_progress)


def model_counter(
    request: Request, names: tuple[str, ...], on_progress: Callable[[str], None]
) -> PointCounter:
    """Return a counter of the requested model at sizes of its named dimensions: those in the
    shapes of its inputs, of the usual input of a model by name, or arguments of a callable.

    Raises InputError for a name that is none of these.
    """
    from crossflops.verbs.count import ModelBuild  # which imports this module when it varies

    fields = {name: request.field_of_size(name) for name in names}
    for name, field in fields.items():
        if not _can_vary(request, name, field):
            raise _unknown_dimension_error(request, name)
        if name in request.dims and field in ("sizes", "arguments"):
            option = SIZES[name] if field == "sizes" else f"--arg {name}="
            separator = " " if field == "sizes" else ""
            raise InputError(
                f"--dim {name} sets a name in the shape of an input, and no shape has this one",
                f"write {option}{separator}{request.dims[name]}",
            )

    def count_model(sizes: Mapping[str, int]) -> tuple[Graph, Ledger]:
        """Return the graph of the model at these sizes, and its count."""
        sized = msgspec.structs.replace(request.with_sizes(sizes), vary=())
        counted = ModelBuild(sized).count(sized.setting)
        return counted.graph, counted.ledger

    known: dict[str, Mapping[str, object]] = {
        "named_sizes": request.named_sizes,
        "axis_sizes": _sizes_of_axes(request, [n for n in names if fields[n] == "axis_sizes"]),
        "dims": request.dims,
        "sizes": request.sizes,
        "arguments": {**_integer_defaults(request), **request.arguments},
    }
    sizes = {name: known[field].get(name) for name, field in fields.items()}
    caller_sizes = {name: size for name, size in sizes.items() if type(size) is int}
    # a usual input has its own size until it is given another one
    base = {name: UNNAMED_SIZE for name, field in fields.items() if field != "sizes"}
    base = {**base, **caller_sizes}
    return PointCounter(count_model, base, caller_sizes, OF_MODELS, on_progress)


def _sizes_of_axes(request: Request, names: Sequence[str]) -> dict[str, int]:
    """Return the sizes of named axes of tensors: those of the caller, else those of the tensors.

    Raises InputError for an input or an axis that is not there.
    """
    if not names:
        return {}
    from crossflops.targets.axes import axis_size_of_source
    from crossflops.targets.weights import build_source_and_reason_for_values

    source, _ = build_source_and_reason_for_values(request.source, request.weights)
    return {name: axis_size_of_source(source, name, request.axes[name]) for name in names}


def _integer_defaults(request: Request) -> dict[str, int]:
    """Return {name: default} of the arguments of a target's callable whose default is an
    integer.
    """
    defaults = {name: row.default for name, row in request.target_parameters.items()}
    return {name: value for name, value in defaults.items() if type(value) is int}


def _can_vary(request: Request, name: str, field: str) -> bool:
    """Return whether the request has a number of this name: a size of an input, of a model by
    name or of a file, or an argument.
    """
    if field == "arguments":
        return name in request.target_parameters
    if field != "sizes":
        return True
    has_inputs = bool(request.specs) or request.inputs_file is not None
    return name in SIZES and not has_inputs and not (request.target is None and request.has_values)


def _unknown_dimension_error(request: Request, name: str) -> InputError:
    """Return the error for a name of --vary that the model does not have."""
    hint = f"write the name into the shape of an input, such as --input {name}x3x224x224"
    if request.has_values:
        hint = f"name axes of the tensors, such as {name}=0, or {name}=input_ids:1,mask:1"
    elif request.is_named:
        hint += ", or vary batch, seq or image_size without --input"
    elif request.target is not None:
        hint += f", or give the callable an argument {name}"
    return InputError(f"--vary {name}: no input has a size of this name", hint)
