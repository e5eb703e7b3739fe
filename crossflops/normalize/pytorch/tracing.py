"""A model under torch.export: as it is, and with values where shapes alone decide too little."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.core.trace import Setting
from crossflops.errors import CrossflopsError, NormalizeError
from crossflops.normalize.pytorch import executed
from crossflops.normalize.pytorch.as_run import questions
from crossflops.normalize.pytorch.causality import answered, answers, is_asked
from crossflops.normalize.pytorch.depends import Known, open_sizes
from crossflops.normalize.pytorch.entry_points import recorded
from crossflops.normalize.pytorch.failures import not_traced
from crossflops.normalize.pytorch.model import callable_by_export, duplicate, run, switch
from crossflops.normalize.pytorch.modules import ModuleIndex
from crossflops.normalize.pytorch.operators import MARK
from crossflops.normalize.pytorch.recorder import Recorder
from crossflops.normalize.pytorch.untouched import seeded
from crossflops.normalize.pytorch.valued import has_values, valued

if TYPE_CHECKING:
    from torch import nn

_NAMED = 6  # modules that a note names
_DRAWS = "the model draws random numbers (from seed 0 here): another run may have other sizes"
_OWN_GENERATOR = "the model draws from a generator of its own: a run may have other sizes"


class Asked(msgspec.Struct, frozen=True):
    """The model, with what it is called with and how."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    setting: Setting


class Traced(msgspec.Struct, frozen=True):
    """An exported program, with what was recorded meanwhile.

    `valued` says that values decided, `heard_yes` that the model took notice of being exported,
    `draws` that numbers were drawn at random which the path or sizes may depend on.
    `known` are the operators whose sizes an export without values left open, where there was one;
    `notes` what a reader should know.
    """

    program: Any
    recorder: Recorder
    index: ModuleIndex
    valued: bool = False
    heard_yes: bool = False
    draws: bool = False
    known: Known | None = None
    notes: tuple[str, ...] = ()


def traced(asked: Asked) -> Traced:
    """The model as it is exported, and where that leaves sizes open, is refused, or does other
    products than a run does, as it is exported with the values that it is given.

    Raises InputError when the model raises on these inputs, NormalizeError when it cannot be
    exported.
    """
    try:
        plain = _attempt(asked)
    except NormalizeError:
        again = _with_values(asked)
        if again is None:
            raise
        return _noted(again, _differing(asked, again))
    known = open_sizes(plain.program)
    is_open = any(is_open for _, is_open in known)
    if not is_open and not (plain.heard_yes and _differing(asked, plain)):
        return plain
    again = _with_values(asked)
    if again is None:
        return _noted(plain, [] if is_open else _differing(asked, plain))
    again = _noted(again, _differing(asked, again))
    return msgspec.structs.replace(again, known=known) if is_open else again


def _with_values(asked: Asked) -> Traced | None:
    """With values, and on the path of a run; if that cannot be traced, on that of an export."""
    if not has_values(asked.model, asked.args, asked.kwargs):
        return None
    for denied in (True, False):
        try:
            return _attempt(asked, with_values=True, denied=denied)
        except CrossflopsError:
            continue
    return None


def _differing(asked: Asked, trace: Traced) -> list[str]:
    """The modules in which a run executes other products than the program.

    Nothing where either cannot be watched so, or has no values.
    """
    if not has_values(asked.model, asked.args, asked.kwargs):
        return []
    args, kwargs = asked.args, asked.kwargs
    try:
        with seeded():
            own = switch(duplicate(asked.model), asked.setting.training)
            ran = executed.of_model(own, args, kwargs)
        with seeded():
            done = executed.of_program(trace.program, args, kwargs, trace.recorder)
    except Exception:
        return []
    return executed.differing(ran, done)


def _noted(trace: Traced, differs: list[str]) -> Traced:
    """The trace, with the modules named whose products are others in a run."""
    if not differs:
        return trace
    names = ", ".join(path or "(the model)" for path in differs[:_NAMED])
    rest = f" and {len(differs) - _NAMED} more" if len(differs) > _NAMED else ""
    note = f"a run executes other products than the exported program in {names}{rest}"
    return msgspec.structs.replace(trace, notes=(*trace.notes, note))


def _attempt(asked: Asked, with_values: bool = False, denied: bool = False) -> Traced:
    """One export of a copy of the model."""
    index = ModuleIndex(own := switch(duplicate(asked.model), asked.setting.training))
    recorder = Recorder(index, around=_marked)
    with valued() if with_values else seeded() as drawn, questions(denied) as said:
        program = _export(own, asked, recorder)
    draws = drawn.outside or (with_values and drawn.by_torch)
    own_generator = with_values and bool(recorder.generators)
    return Traced(
        program,
        recorder,
        index,
        valued=with_values,
        heard_yes=said.heard_yes,
        draws=draws or own_generator,
        notes=(*[_DRAWS] * draws, *[_OWN_GENERATOR] * own_generator),
    )


def _export(model: "nn.Module", asked: Asked, recorder: Recorder) -> Any:
    import torch
    from torch.fx.traceback import preserve_node_meta

    args, kwargs = asked.args, asked.kwargs
    whole = callable_by_export(model)
    training = asked.setting.training
    known = answers(model, args, kwargs, training) if is_asked(model) else []
    try:
        with (
            preserve_node_meta(),
            torch.set_grad_enabled(True),
            answered(known),
            recorded(recorder),
        ):
            return torch.export.export(whole, args, dict(kwargs), strict=False)
    except (Exception, SystemExit) as error:
        # Told apart by asking the model itself: does it run on these inputs at all?
        run(model, args, kwargs, asked.setting.grad)
        raise not_traced(error) from error


def _marked(number: int) -> Any:
    from torch.fx.traceback import annotate

    return annotate({MARK: number})
