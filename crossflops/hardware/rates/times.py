"""Forward times of modules, from a table: what each one reached, and what cannot be true.

Columns are `module` (its path; empty for the whole model) and `ms`; `macs` of a forward pass over
the batch, with all that is in the module, where no model tells them.
"""

from collections.abc import Mapping, Sequence

from crossflops.core.efficiency import ModuleTime
from crossflops.errors import InputError
from crossflops.hardware.rates.numerators import quantity
from crossflops.hardware.rates.runs import lines
from crossflops.hardware.rates.sanity import Timed, above_peak, uncovered

_PATHS = ("module", "path", "name", "layer")
_TIMES = {"ms": 1e-3, "latency_ms": 1e-3, "time_ms": 1e-3, "us": 1e-6, "s": 1.0, "seconds": 1.0}
_HINT = "the first line names columns: module,ms or module,ms,macs"


def read(path: str, macs: Mapping[str, int], batches: float) -> tuple[Timed, ...]:
    """The rows of a file. `macs` are those of the pass that was counted, by module.

    `batches` is how many such passes one timed pass is, on its device. Raises InputError for a row
    that is none, named by its line.
    """
    (_, first), *rest = lines(path, _HINT)
    heads = [head.strip().casefold().replace(" ", "_") for head in first]
    module = next((place for place, head in enumerate(heads) if head in _PATHS), None)
    clock = next((place for place, head in enumerate(heads) if head in _TIMES), None)
    if module is None or clock is None:
        raise InputError(f"{path} has no column of modules, or none of times", _HINT)
    count = heads.index("macs") if "macs" in heads else None
    found = []
    for line, cells in rest:
        where = f"{path}, line {line}"
        if len(cells) != len(heads):
            raise InputError(f"{where}: {len(cells)} cells for {len(heads)} columns", _HINT)
        seconds = _seconds(cells[clock], _TIMES[heads[clock]], where)
        name = cells[module].strip()
        if count is not None and cells[count].strip():
            work = 2 * quantity(cells[count])
        elif name in macs:
            work = round(2 * macs[name] * batches)
        else:
            raise InputError(
                f"{where}: nobody knows the MACs of {name!r}",
                "give the model, whose modules count --by module lists, or a column macs",
            )
        found.append(Timed(path=name, flops=work, seconds=seconds))
    return tuple(found)


def _seconds(text: str, unit: float, where: str) -> float:
    try:
        found = float(text) * unit
    except ValueError:
        found = 0.0
    if not 1e-15 <= found <= 1e15:
        raise InputError(f"{where}: {text.strip()!r} is no time", "give a number above zero")
    return found


def module_times(rows: Sequence[Timed], peak: float | None) -> tuple[ModuleTime, ...]:
    """Each with its rate and its share of the peak."""
    return tuple(
        ModuleTime(
            path=one.path,
            seconds=one.seconds,
            flops=one.flops,
            rate=one.rate,
            ratio=None if peak is None else one.rate / peak,
        )
        for one in rows
    )


def doubts(rows: Sequence[Timed], peak: float | None) -> tuple[str, ...]:
    """Modules above the peak, and those whose parts do not account for their time."""
    return (*(() if peak is None else above_peak(rows, peak)), *uncovered(rows))
