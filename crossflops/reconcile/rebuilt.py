"""From the count of a model to that of what was rebuilt from it through ONNX, for a tool."""

import msgspec
from msgspec import UNSET

from crossflops.ir.ledger import Ledger
from crossflops.ir.reconciliation import (
    Explanation,
    ParamsExplanation,
    ParamsReconciliation,
    PathRow,
    Reconciliation,
)

REBUILT = "graph.rebuilt"
_BY = {"torch": "onnx2torch", "tensorflow": "crossflops.rebuild.tensorflow"}


def from_file(
    account: Reconciliation, file: Ledger, rebuilt: Ledger, framework: str
) -> Reconciliation:
    """The reconciliation of a tool that ran on the rebuilt module, begun at the file's count.

    `account` begins at the module's. The nodes of the file that are named are those of operators
    whose work is another in the module, and the reference says by how much, operator by operator.
    """
    amount = rebuilt.total.macs - file.total.macs
    if not amount:
        return account
    differences = _by_operator(file, rebuilt)
    step = Explanation(
        cause=REBUILT,
        amount=amount,
        calls=tuple(count.node.key for count in file.counted if count.node.op.type in differences),
        reference=f"{_BY[framework]}: "
        + ", ".join(f"{op} {by:+}" for op, by in differences.items()),
        macs=amount,
    )
    return msgspec.structs.replace(
        account,
        ours=file.total.macs,
        explanations=(step, *account.explanations),
        by_path=tuple(_row(row, amount) for row in account.by_path),
    )


def parameters_from_file(
    account: ParamsReconciliation, params: int, framework: str
) -> ParamsReconciliation:
    """The same for the parameters: begun at those of the model, the module's as a first step."""
    amount = account.ours - params
    if not amount:
        return account
    step = ParamsExplanation(cause=REBUILT, amount=amount, parameters=(), reference=_BY[framework])
    return msgspec.structs.replace(
        account, ours=params, explanations=(step, *account.explanations)
    )


def _by_operator(file: Ledger, rebuilt: Ledger) -> dict[str, int]:
    """The MACs that the module has more of, by operator, where it is not as many."""
    macs: dict[str, int] = {}
    for sign, ledger in ((-1, file), (1, rebuilt)):
        for count in ledger.counted:
            name = count.node.op.type
            macs[name] = macs.get(name, 0) + sign * count.cost.macs
    return {op: macs[op] for op in sorted(macs) if macs[op]}


def _row(row: PathRow, amount: int) -> PathRow:
    """The whole model begins at the file's count; its modules are those of the rebuilt one."""
    if row.path:
        return row
    causes = row.causes if row.causes is UNSET else {REBUILT: amount, **row.causes}
    return msgspec.structs.replace(row, ours=row.ours - amount, causes=causes)
