"""A model and the file that is exported of it, and what of their counts differs."""

import os

import msgspec

from crossflops import count
from crossflops.verbs.api import export

# All models of the laws of exported files; else some of each kind, as an export takes a second.
EVERY = bool(os.environ.get("CROSSFLOPS_EVERY_EXPORT"))
# What dead nodes move is in no total of the file, and in that of the model.
_BYTES = ("bytes_read", "bytes_written")
_NOT_COMPARED = ("dead_macs", "exactness")


def some(names, always, step):
    """Return the names of models that are exported: `always` these, and each so many-th one."""
    names = list(names)
    assert set(always) <= set(names)
    return names if EVERY else sorted({*always, *names[::step]})


def differences(model, inputs, folder):
    """Return what differs between the counts of a model and of its file, as a dict of pairs.

    Where a run of the model decided sizes, one of the file does, too.
    """
    path = str(folder / "model.onnx")
    of_model = count(model, inputs)
    export(model, inputs, to="onnx", file=path)
    of_file = count(path, observe=any(row.depends_on_inputs for row in of_model.nodes))
    kinds = (*of_model.totals.__struct_fields__, "uncounted", "param_bytes")
    pairs = {
        kind: (values[kind], other[kind])
        for values, other in [(_values(of_model), _values(of_file))]
        for kind in kinds
        if kind not in _NOT_COMPARED
    }
    if of_file.totals.dead_macs is not None or len(of_model.nodes) != len(of_file.nodes):
        pairs = {kind: pair for kind, pair in pairs.items() if kind not in _BYTES}
    return {kind: pair for kind, pair in pairs.items() if pair[0] != pair[1]}


def _values(report):
    totals = msgspec.structs.asdict(report.totals)
    reasons = sorted(row.op for row in report.uncounted)
    return totals | {"uncounted": reasons, "param_bytes": report.memory.param_bytes}
