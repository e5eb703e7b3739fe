"""The verbs, in order: load, normalize, count, predict, ask the tools, reconcile, report."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.conventions import named
from crossflops.core.formulas import Formulas
from crossflops.core.observation import Run
from crossflops.core.report import Report
from crossflops.core.trace import Setting
from crossflops.normalize.request import Request, asked_for
from crossflops.normalize.targets import imports_restored
from crossflops.pipeline.asked import answered, chosen, made_with
from crossflops.pipeline.counting import Counted, counted, folded, observed
from crossflops.pipeline.counting import report as counted_report
from crossflops.pipeline.exporting import export
from crossflops.pipeline.study import Progress
from crossflops.pipeline.study import report as compared

__all__ = ["compare", "count", "export"]


@imports_restored()
def count(
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
) -> Report:
    """Count a model. With `as_` ("thop@0.0.31") also as a tool does, without the tool.

    Several conventions may be named, and a pattern ("torchstat*") names all that it matches.

    `target` is a model object or a target string, `inputs` tensors (one, a tuple, a dict of
    keyword arguments, or `(args, kwargs)`) or texts such as "1x3x224x224". Of an ONNX file `dims`
    binds named dimensions, `trips` says how often a Loop runs where the graph does not, and
    `branches` which branch of an If counts ("then", "else", "sum") instead of the larger one.
    The totals are also given as polynomials in the dimensions that `vary` names. With `observe`
    the file runs once in onnxruntime, for sizes and iterations that depend on data.
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
    request, formulas, run = _sized(request, vary, observe, inputs_file)
    conventions = named([as_] if isinstance(as_, str) else as_ or ())
    watched = observed(conventions, setting)
    modes = {}

    def mode(training: bool) -> Counted:
        if training not in modes:
            own = [one for one in watched if one.training == training]
            asked = msgspec.structs.replace(setting, training=training)
            modes[training] = counted(request.source(), asked, own)
        return modes[training]

    native = mode(setting.training)
    folds = [folded(one, mode(one.setting(setting).training), setting) for one in conventions]
    report = counted_report(native, folds)
    return msgspec.structs.replace(report, formulas=formulas, observed=run)


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


@imports_restored()
def compare(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    tools: Sequence[str] | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    onnx: str | None = None,
    timeout: float = 300.0,
    memory: int | None = None,
    isolate: bool = True,
    python: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
    on_progress: Progress | None = None,
) -> Report:
    """Count a model, let tools count it, and account for every difference.

    Each tool runs in a worker process, which may build for `timeout` seconds and run for as many,
    in `memory` bytes of address space (None: what the machine has); with `isolate=False` on a
    copy in this process, where nothing bounds its time and memory, and whatever it patches stays
    patched. The prediction of every tool is fixed before it starts. With `between` two tools are
    also set against each other, where both answered; with `module` the report is about that path,
    and with `consensus` it says which number to publish, in a sentence.

    `python` names the interpreter (or the folder of a venv) that runs a tool, which then need
    not be installed here; it goes over the table `[python]` of crossflops.toml, or
    `[tool.crossflops.python]` of pyproject.toml, in the current folder or one above.

    Tools that count an ONNX file get the normalized model, the target where that is a file, or the
    file `onnx`.
    """
    from crossflops.adapters import interpreters
    from crossflops.adapters.choice import choose
    from crossflops.pipeline.asking import Asking

    request = asked_for(
        target,
        inputs,
        inputs_file,
        setting,
        arguments,
        allow_pickle=allow_pickle,
        dims=dims,
        trips=trips,
        branches=branches,
    )
    asking = Asking(
        request=request,
        choice=choose(chosen(tools, between), interpreters.chosen(python)),
        tell=on_progress or (lambda _: None),
        onnx=onnx,
        timeout=timeout,
        memory=memory,
        isolate=isolate,
    )
    own, answers = asking.answers()
    report = msgspec.structs.replace(
        compared(own, request.setting, answers), made_with=made_with(request.is_file)
    )
    return answered(report, between=between, module=module, consensus=consensus)
