"""The native count of a model, as a report and as the graph that it was made from."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.conventions import named
from crossflops.core.convention import Convention
from crossflops.core.formulas import Formulas
from crossflops.core.observation import Run
from crossflops.core.report import Report
from crossflops.core.trace import Setting
from crossflops.normalize.request import Request, asked_for
from crossflops.normalize.targets import imports_restored
from crossflops.pipeline.counting import Counted, counted, folded, observed
from crossflops.pipeline.counting import report as counted_report
from crossflops.pipeline.heard import heard
from crossflops.pipeline.provenance import asked, made_with


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
    return counted_report(native, folds), native


def _sized(
    request: Request, vary: Sequence[str], observe: bool, inputs_file: str | None
) -> tuple[Request, Formulas | UnsetType, Run | UnsetType]:
    """The request at definite sizes: those of the formulas, or of a run."""
    formulas: Formulas | UnsetType = UNSET
    run: Run | UnsetType = UNSET
    if vary:
        from crossflops.pipeline.vary import varied

        formulas = varied(request, vary, observe)
        request = msgspec.structs.replace(request, dims={**request.dims, **formulas.at})
    if observe:
        from crossflops.pipeline.running import seen

        request, run = seen(request, inputs_file)
    return request, formulas, run
