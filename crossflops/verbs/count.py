"""The native count of a model: normalized, run where that is asked for, counted, warned about."""

import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends import Source, program, title
from crossflops.frontends.inputs import MADE_UP, from_archive
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import Ledger
from crossflops.ir.measurement import Observation, Run
from crossflops.ir.polynomial import Formulas
from crossflops.ir.profile import Folded, FoldedRow
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Setting, Trace, View
from crossflops.ledger.count import count, count_whole
from crossflops.ledger.memory import footprint
from crossflops.report import tables
from crossflops.report.report import Report
from crossflops.rules.prediction import predict, predict_nodes
from crossflops.rules.rule import Convention
from crossflops.targets.request import Request, asked_for
from crossflops.targets.target import imports_restored
from crossflops.tools.registry import named
from crossflops.verbs.provenance import asked, made_with

# One run fills in what shapes do not tell: of a file with `--observe`, of a converted model.

_UNASKED = 120.0  # seconds for a run that nobody asked for: a loop need not end
_DRAWS = "the file draws random numbers (from no seed): another run may have other sizes"


def seen(request: Request, inputs_file: str | None) -> tuple[Request, Run]:
    """The request with what a run of its file showed, and a note of that run.

    Raises InputError unless it is about an ONNX file, and what `measure` raises.
    """
    file = request.source().model if request.is_file else None
    if not isinstance(file, OnnxFile):
        raise InputError(
            "--observe runs an ONNX file, and this is none",
            "leave it out: a PyTorch model is run when it is exported",
        )
    from crossflops.bench.runs import observe

    found = observe(file.path, file.specs, dict(file.dims), inputs_file)
    specs = tuple(TensorSpec(name, one.dtype, one.shape) for name, one in found.inputs.items())
    settled = msgspec.structs.replace(file, dims={}, specs=specs, seen=found)
    request = msgspec.structs.replace(request, given=Source(settled, (), {}), dims={})
    values = MADE_UP
    if inputs_file is not None:
        others = found.inputs.keys() - from_archive(inputs_file).keys()
        values = f"{inputs_file}, {MADE_UP}" if others else inputs_file
    return request, Run(found.runtime, values, (_DRAWS,) if found.draws else ())


def run_of_bytes(data: bytes, feeds: Mapping[str, Any]) -> Observation:
    """What a run of an ONNX model on these arrays shows, by input name; others are made up.

    Raises what `measure` raises.
    """
    import numpy as np

    from crossflops.bench.runs import observe

    with tempfile.TemporaryDirectory(prefix="crossflops-") as folder:
        model, inputs = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
        model.write_bytes(data)
        with zipfile.ZipFile(inputs, "w") as archive:
            for name, array in feeds.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        given = str(inputs) if feeds else None
        return observe(str(model), inputs_file=given, seconds=_UNASKED)


# A model normalized and counted in the modes that conventions need.


class Counted(msgspec.Struct, frozen=True):
    """A model that was normalized and counted in one mode.

    `program` is the ONNX model (of onnx_ir) that the graph was read from; None of a file. `run`
    is there where the values of its inputs decided about it, or a run was found to differ.
    """

    graph: Graph
    trace: Trace
    ledger: Ledger
    program: Any = None
    run: Run | None = None


def counted(source: Source, setting: Setting, observed: Sequence[Setting]) -> Counted:
    """Normalize and count in this setting, and see what the observed ones fuse."""
    model, graph, trace = program(source, setting, observed, run_of_bytes)
    run = None
    if trace.runtime or trace.notes:
        run = Run(trace.runtime, source.values, trace.notes)
    return Counted(graph, trace, count(graph), model, run)


def observed(conventions: Iterable[Convention], asked: Setting) -> list[View]:
    """The real runs that some convention needs."""
    return sorted(
        {view for one in conventions if (view := one.view(asked))},
        key=lambda view: (view.id, view.level),
    )


def report(own: Counted, folds: Iterable[Folded] = ()) -> Report:
    """The report of a count."""
    memory = footprint(own.graph, own.ledger)
    report = tables.report(own.graph, own.trace, own.ledger, tuple(folds), memory)
    return msgspec.structs.replace(report, observed=own.run or UNSET)


def folded(convention: Convention, counted: Counted, asked: Setting) -> Folded:
    """The count as the convention folds it. Raises InputError where no call was recorded."""
    if convention.sees == "node":
        return _folded_nodes(convention, counted)
    of_framework = counted.trace.calls or counted.program is not None
    if of_framework and convention.framework != counted.trace.framework:
        raise InputError(
            f"{convention.tool} counts models of {title(convention.framework)}, and this is one"
            f" of {title(counted.trace.framework)}",
            "name a convention for such models, or one of graph nodes such as exact-2k-1",
        )
    if not counted.trace.calls:
        raise InputError(
            f"{convention.tool} looks at calls of modules and functions, which no file records",
            "give the model as file.py:callable to count it as a tool does",
        )
    prediction = predict(convention, counted.trace, asked, counted.ledger)
    left = prediction.divided()
    rows = [
        FoldedRow(booking.call, booking.path, amount)
        for booking, amount in zip(prediction.bookings, left, strict=True)
        if amount
    ]
    if rounded := int(prediction.total) - sum(left):
        rows.append(FoldedRow("", "", rounded))
    return Folded(
        tool=convention.tool,
        edition=convention.edition,
        total=prediction.total,
        assumed=any(call.assumed for call in counted.trace.calls),
        sees=convention.sees,
        rows=tuple(rows),
    )


def seen_by(convention: Convention, counted: Counted) -> Ledger:
    """One count for each node that a convention of graph nodes sees."""
    return counted.ledger if convention.opens else count_whole(counted.graph)


def _folded_nodes(convention: Convention, counted: Counted) -> Folded:
    """By node, zeros left out. Of nodes of which no rule can say anything nothing is booked."""
    prediction = predict_nodes(convention, counted.graph, seen_by(convention, counted))
    amounts: dict[tuple[str, str], int] = {}
    for booking in prediction.bookings:
        place = booking.call, booking.path
        amounts[place] = amounts.get(place, 0) + prediction.worth(booking)
    return Folded(
        tool=convention.tool,
        edition=convention.edition,
        total=sum(amounts.values()),
        assumed=False,
        sees="node",
        rows=tuple(FoldedRow(*place, amount) for place, amount in amounts.items() if amount),
        uncounted=tuple(prediction.unknown),
    )


# The warnings about a model, kept for its report.

_PACKAGE = str(Path(__file__).parents[1])


@contextmanager
def heard() -> Iterator[list[str]]:
    """The sentences of every CrossflopsWarning of the block, each once, when it ends.

    They are heard whatever is filtered. All warnings are shown as always, then.
    """
    sentences: list[str] = []
    recorded: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always", CrossflopsWarning)
            yield sentences
    finally:
        for one in recorded:
            _tell(one, sentences)


def _tell(one: warnings.WarningMessage, sentences: list[str]) -> None:
    sentence = str(one.message)
    if not issubclass(one.category, CrossflopsWarning):
        warnings.showwarning(one.message, one.category, one.filename, one.lineno)
        return
    if sentence in sentences:
        return
    sentences.append(sentence)
    # whoever filters by module means the package; a warning about a file bears the file's name
    module = "crossflops" if one.filename.startswith(_PACKAGE) else one.filename
    warnings.warn_explicit(sentence, one.category, one.filename, one.lineno, module)


@imports_restored()
def native_count(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    vary: Sequence[str] = (),
    observe: bool = False,
    as_: str | Sequence[str] | None = None,
    allow_pickle: bool = False,
) -> tuple[Report, Counted]:
    """What `crossflops.count` gives, and the graph and the ledger of the mode that was asked for.

    The arguments are those of `crossflops.count`.
    """
    request = asked_for(
        target,
        inputs,
        None if observe else inputs_file,
        setting,
        arguments,
        allow_pickle=allow_pickle,
        dims=dims,
        trips=trips,
        branches=branches,
    )
    wanted = request
    typed = {"vary": vary or None, "observe": observe or None, "as_": as_ or None,
             "inputs": inputs_file}  # fmt: skip
    conventions = named([as_] if isinstance(as_, str) else as_ or ())
    with heard() as told:
        request, formulas, run = _sized(request, vary, observe, inputs_file)
        report, native = _counted(request, conventions)
    report = msgspec.structs.replace(
        report,
        formulas=formulas,
        observed=report.observed if run is UNSET else run,
        request=asked("count", wanted, report.model, typed, target, arguments),
        made_with=made_with(request.is_file),
        warnings=(*report.warnings, *told),
    )
    return report, native


def _counted(request: Request, conventions: Sequence[Convention]) -> tuple[Report, Counted]:
    """The report at definite sizes, also as these conventions fold it, and the native count."""
    setting = request.setting
    watched = observed(conventions, setting)
    modes = {}

    def mode(training: bool) -> Counted:
        if training not in modes:
            own = [one for one in watched if one.training == training]
            here = msgspec.structs.replace(setting, training=training)
            modes[training] = counted(request.source(), here, own)
        return modes[training]

    native = mode(setting.training)
    folds = [folded(one, mode(one.setting(setting).training), setting) for one in conventions]
    return report(native, folds), native


def _sized(
    request: Request, vary: Sequence[str], observe: bool, inputs_file: str | None
) -> tuple[Request, Formulas | UnsetType, Run | UnsetType]:
    """The request at definite sizes: those of the formulas, or of a run."""
    formulas: Formulas | UnsetType = UNSET
    run: Run | UnsetType = UNSET
    if vary:
        from crossflops.verbs.vary import varied

        formulas = varied(request, vary, observe)
        request = msgspec.structs.replace(request, dims={**request.dims, **formulas.at})
    if observe:
        # dropped

        request, run = seen(request, inputs_file)
    return request, formulas, run
