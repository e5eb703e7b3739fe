"""Count a model at many sizes of its named dimensions, each combination of sizes once.

An ONNX file is read once, and counted in milliseconds. A model of a framework is traced for each
combination, which takes a second or more, so `Sampling` says how many are tried.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.frontends.named import SIZES
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import OpenedFile
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import CountedNode, Ledger
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets.request import UNNAMED_SIZE, Request
from crossflops.targets.target import load_target_function
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
    the model.
    """

    def __init__(
        self,
        count_at: Callable[[Mapping[str, int]], tuple[Graph, Ledger]],
        base: Mapping[str, int],
        caller_sizes: Mapping[str, int],
        sampling: Sampling,
    ) -> None:
        self._count_at = count_at
        self._known: dict[tuple[tuple[str, int], ...], CountedPoint] = {}
        self.base = dict(base)
        self.caller_sizes = dict(caller_sizes)
        self.sampling = sampling

    def point_at_sizes(self, sizes: Mapping[str, int]) -> CountedPoint:
        """Return the totals and the node costs for these sizes of named dimensions."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
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
    file: OnnxFile, names: tuple[str, ...], dims: Mapping[str, int], setting: Setting
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
    return PointCounter(count_file, dict.fromkeys(names, 64), caller_sizes, OF_FILES)


def model_counter(request: Request, names: tuple[str, ...]) -> PointCounter:
    """Return a counter of the requested model at sizes of its named dimensions: those in the
    shapes of its inputs, of the usual input of a model by name, or arguments of a callable.

    Raises InputError for a name that is none of these.
    """
    from crossflops.verbs.count import ModelBuild  # which imports this module when it varies

    defaults = _integer_defaults(request)
    for name in names:
        if not _can_vary(request, name, defaults):
            raise _unknown_dimension_error(request, name)
        is_in_shape = name in request.input_size_names or request.is_file
        if name in request.dims and not is_in_shape:
            option = SIZES[name] if request.is_named else f"--arg {name}="
            separator = " " if request.is_named else ""
            raise InputError(
                f"--dim {name} sets a name in the shape of an input, and no shape has this one",
                f"write {option}{separator}{request.dims[name]}",
            )

    def count_model(sizes: Mapping[str, int]) -> tuple[Graph, Ledger]:
        """Return the graph of the model at these sizes, and its count."""
        sized = msgspec.structs.replace(request.with_sizes(sizes), vary=())
        counted = ModelBuild(sized).count(sized.setting)
        return counted.graph, counted.ledger

    options = (defaults, request.arguments, request.dims, request.sizes, request.named_sizes)
    known = {name: size for option in options for name, size in option.items()}
    caller_sizes = {name: size for name in names if isinstance(size := known.get(name), int)}
    has_usual = request.is_named and not request.named_inputs
    base = {} if has_usual else dict.fromkeys(names, UNNAMED_SIZE)
    return PointCounter(count_model, {**base, **caller_sizes}, caller_sizes, OF_MODELS)


def _integer_defaults(request: Request) -> dict[str, int | None]:
    """Return {name: default} of the arguments of a target's callable; None for one whose default
    is no integer.

    () if the target is no callable.
    """
    if request.target is None or request.is_file or request.is_named or ":" not in request.target:
        return {}
    try:
        parameters = inspect.signature(load_target_function(request.target)).parameters
    except (CrossflopsError, ValueError, TypeError):  # counting says what is wrong with it
        return {}
    return {
        name: parameter.default if type(parameter.default) is int else None
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _can_vary(request: Request, name: str, defaults: Mapping[str, int | None]) -> bool:
    """Return whether a name is a size of an input, of a model by name or of a file, or an
    argument.
    """
    if name in request.input_size_names or request.is_file:
        return True
    if not request.is_named:
        return name in defaults
    return name in SIZES and not request.specs and request.inputs_file is None


def _unknown_dimension_error(request: Request, name: str) -> InputError:
    """Return the error for a name of --vary that the model does not have."""
    hint = f"write the name into the shape of an input, such as --input {name}x3x224x224"
    if request.is_named:
        hint += ", or vary batch, seq or image_size without --input"
    elif request.target is not None:
        hint += f", or give the callable an argument {name}"
    return InputError(f"--vary {name}: no input has a size of this name", hint)
