"""The verbs, in order: load, normalize, count, predict, ask the tools, reconcile, report."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.facade import ShownEfficiency, ShownReport
from crossflops.hardware.rates.question import Question
from crossflops.ir.trace import Setting
from crossflops.report.report import Report
from crossflops.targets.request import Request, asked_for
from crossflops.targets.target import imports_restored
from crossflops.verbs.bench.bench import bench
from crossflops.verbs.compare.native import Progress
from crossflops.verbs.compare.native import report as compared
from crossflops.verbs.compare.questions import answered, of_models
from crossflops.verbs.count import Counted, heard, native_count
from crossflops.verbs.efficiency.rate import rated, rated_runs
from crossflops.verbs.export import export
from crossflops.verbs.provenance import asked, made_with

if TYPE_CHECKING:
    from crossflops.verbs.compare.tools import Asking

TIMEOUT = 300.0  # seconds
__all__ = ["bench", "compare", "count", "efficiency", "export"]


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
) -> ShownReport:
    """Count a model. With `as_` ("thop@0.0.31") also as a tool does, without the tool.

    Several conventions may be named, and a pattern ("torchstat*") names all that it matches.

    `target` is a model object or a target string, `inputs` tensors (one, a tuple, a dict of
    keyword arguments, or `(args, kwargs)`) or texts such as "1x3x224x224". Of an ONNX file `dims`
    binds named dimensions, `trips` says how often a Loop runs where the graph does not, and
    `branches` which branch of an If counts ("then", "else", "sum") instead of the larger one.
    The totals are also given as polynomials in the dimensions that `vary` names. With `observe`
    the file runs once in onnxruntime, for sizes and iterations that depend on data.
    """
    counted, _ = native_count(
        target,
        inputs,
        inputs_file=inputs_file,
        setting=setting,
        arguments=arguments,
        dims=dims,
        trips=trips,
        branches=branches,
        vary=vary,
        observe=observe,
        as_=as_,
        allow_pickle=allow_pickle,
    )
    return ShownReport.of(counted)


def efficiency(
    target: Any = None, inputs: Any = (), *, how: Mapping[str, Any] = {}, **asked: Any
) -> ShownEfficiency:
    """Set a count against a device's peak: what `crossflops efficiency` prints, as values.

    `asked` are the flags of the command with underscores (`examples_per_second=1325, train=True,
    device="v100-pcie", precision="fp16"`), `how` options of `count`. Without a target the work is
    given (`macs="4.112G"`). Raises AmbiguousDeviceError, whose `candidates` are the devices that
    are meant, for a name that several bear.
    """
    question = Question.of(**asked)
    rate = rated if question.speed.runs is None else rated_runs
    found = rate(question, target, inputs, how=how)
    if found.trouble is not None:
        raise found.trouble
    return ShownEfficiency.of(found.noun)


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
    timeout: float = TIMEOUT,
    memory: int | None = None,
    isolate: bool = True,
    python: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
    against: Any = None,
    against_options: Mapping[str, Any] | None = None,
    on_progress: Progress | None = None,
) -> ShownReport:
    """Count a model, let tools count it, and account for every difference.

    Each tool runs in a worker process, which may build for `timeout` seconds and run for as many,
    in `memory` bytes of address space (None: what the machine has); with `isolate=False` on a
    copy in this process, where nothing bounds its time and memory; functions of PyTorch that it
    patches are put back, and nothing else that it patches. The prediction of every tool is fixed
    before it starts. With `between` two tools are also set against each other, where both
    answered; with `module` the report is about that path, and with `consensus` it says which
    number to publish, in a sentence.

    `python` names the interpreter (or the folder of a venv) that runs a tool, which then need
    not be installed here; it goes over the table `[python]` of crossflops.toml, or
    `[tool.crossflops.python]` of pyproject.toml, in the current folder or one above.

    Tools that count an ONNX file get the normalized model, the target where that is a file, or the
    file `onnx`.

    With `against`, a second model or target, both are counted, and the report says layer by layer
    how the second is another model, and apart from that what each tool counts otherwise. What
    `against_options` (keywords of this function, from `inputs` to `branches`) does not say is
    taken from the first; `between` then names a tool for each model.
    """
    from crossflops.plugins import interpreters
    from crossflops.plugins.choice import choose
    from crossflops.verbs.compare.tools import Asking

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
    # a wrong name of a tool is told before any model is built
    wanted, where = of_models(tools, between, against is not None), interpreters.chosen(python)
    choice = choose(wanted[0], where)
    others = choice if wanted[0] == wanted[1] else choose(wanted[1], where)
    options = dict(against_options or {})
    two = None if against is None else _second(against, options, request, module, consensus, onnx)
    asking = Asking(
        request=request,
        choice=choice,
        tell=on_progress or (lambda _: None),
        onnx=onnx,
        timeout=timeout,
        memory=memory,
        isolate=isolate,
    )
    native, report = _asked(asking)
    flags = {
        "tools": tools,
        "onnx": onnx,
        "timeout": None if timeout == TIMEOUT else timeout,
        "memory": memory,
        "isolate": None if isolate else False,
        "python": python or None,
        "between": between,
        "module": module,
        "consensus": consensus or None,
        "against": against,
    }
    told = asked("compare", request, report.model, flags, target, arguments)
    report = msgspec.structs.replace(report, request=told)
    if two is None:
        report = answered(report, between=between, module=module, consensus=consensus)
        return ShownReport.of(report)
    from crossflops.verbs.compare.models import against as set_against
    from crossflops.verbs.compare.models import told_of_the_second

    with told_of_the_second():
        other, found = _asked(msgspec.structs.replace(asking, request=two, choice=others))
    told = asked("compare", two, found.model, {}, against, options.get("arguments"))
    found = msgspec.structs.replace(found, request=told)
    return ShownReport.of(set_against(report, found, (native, other), between))


def _second(
    target: Any,
    options: Mapping[str, Any],
    first: Request,
    module: str | None,
    consensus: bool,
    onnx: str | None,
) -> Request:
    """The request for the model to compare with, refused before any tool runs."""
    from crossflops.targets.request import second
    from crossflops.verbs.compare.models import refuse, told_of_the_second

    refuse(module, consensus, onnx)
    with told_of_the_second():
        return second(target, options, first)


def _asked(asking: "Asking") -> tuple[Counted, Report]:
    """The native count in the setting that was asked for, and the report with all answers."""
    request = asking.request
    with heard() as told:
        own, answers = asking.answers()
    report = msgspec.structs.replace(
        compared(own, request.setting, answers),
        made_with=made_with(request.is_file),
        warnings=tuple(told),
    )
    return own.counted[request.setting.training], report
