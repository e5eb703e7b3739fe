"""Align two counted models layer by layer: what differs, by which cause, and by how much."""

from collections.abc import Iterable, Iterator, Sequence

from crossflops.ir.reconciliation import Alignment, CauseRow, LayerPair, Place, Shift, Work
from crossflops.reconcile.contractions import (
    FIRST,
    WEIGHTED,
    AlignableModel,
    Contraction,
    Operation,
)
from crossflops.reconcile.pairing import (
    Group,
    pair_contractions,
    pair_operations,
    with_bias_moved_to_norm,
)
from crossflops.reconcile.steps import BATCH, PLACES, Inputs, contraction_shifts

MISSING, WRITTEN, UNUSED = "model.layer-missing", "model.representation", "model.parameters-unused"
BEFORE, NOBODY = "before the first layer", "in no layer"


def align_models(first: AlignableModel, second: AlignableModel) -> Alignment:
    """Return an alignment with one row for each layer of both models; the causes in the rows add
    up to the differences in MACs, FLOPs and parameters.
    """
    groups = (
        Group((FIRST,), (FIRST,)),
        *pair_contractions(first.contractions, second.contractions),
    )
    inputs = _first_input_shapes(first, second)
    shifts = [list(_group_shifts(group, first, second, inputs)) for group in groups]
    differences = pair_operations(first, second, groups, shifts)
    rows = [
        LayerPair(
            first=own[0],
            second=other[0],
            first_work=own[1],
            second_work=other[1],
            shifts=_merge_shifts_by_cause(
                with_bias_moved_to_norm(shifts[number], differences.shifts[number])
            ),
        )
        for number, group in enumerate(groups)
        for own, other in [
            (
                _layer_place_and_work(group.first, first, differences.first[number]),
                _layer_place_and_work(group.second, second, differences.second[number]),
            )
        ]
    ]
    rows += _pair_of_unused_parameters(first, second)
    layers = tuple(row for row in rows if row.first or row.second)
    return Alignment(
        first_work=Work(macs=first.macs, flops=first.flops, params=first.params),
        second_work=Work(macs=second.macs, flops=second.flops, params=second.params),
        causes=_alignment_cause_rows(layers),
        layers=layers,
        uncounted=(first.uncounted, second.uncounted),
    )


def _first_input_shapes(first: AlignableModel, second: AlignableModel) -> Inputs:
    """Return the shapes of the first input of both models, () for a model without inputs."""
    return Inputs(*(ledger.inputs[0] if ledger.inputs else () for ledger in (first, second)))


def _group_shifts(
    group: Group, first: AlignableModel, second: AlignableModel, inputs: Inputs
) -> Iterator[Shift]:
    """Yield the differences in MACs, FLOPs and parameters between the contractions that a group
    pairs, one for each cause.
    """
    if group.first == (FIRST,):
        return
    own = [first.contractions[index] for index in group.first]
    other = [second.contractions[index] for index in group.second]
    if len(own) == len(other) == 1:
        yield from contraction_shifts(own[0], other[0], inputs)
        if not _is_same_operator_kind(own[0], other[0]):
            yield Shift(cause=WRITTEN, note=f"{own[0].op} -> {other[0].op}")
        return
    before, after = _sum_of_work(own), _sum_of_work(other)
    more = after - before
    if own and other:
        grown = BATCH if own[0].batch != other[0].batch else PLACES
        if more.macs:
            yield Shift(cause=grown, macs=more.macs, flops=2 * more.macs)
        yield Shift(
            cause=WRITTEN,
            flops=more.flops - 2 * more.macs,
            params=more.params,
            note=f"{len(own)} {own[0].op} -> {len(other)} {other[0].op}",
        )
        return
    note = "only in the second" if other else "only in the first"
    yield Shift(cause=MISSING, macs=more.macs, flops=more.flops, params=more.params, note=note)


def _is_same_operator_kind(first: Contraction, second: Contraction) -> bool:
    """Return whether two contractions are of one kind: the same operator, two convolutions, or
    MatMul and Gemm.
    """
    families = ({"MatMul", "Gemm"}, {"Conv"})
    names = {first.op.rpartition(".")[2], second.op.rpartition(".")[2]}
    return len(names) == 1 or any(names <= family for family in families)


def _sum_of_work(ones: Iterable[Contraction | Operation]) -> Work:
    """Return the MACs, FLOPs and parameters of these contractions and operations, summed."""
    work = Work()
    for operation in ones:
        macs = operation.macs if isinstance(operation, Contraction) else 0
        work = work + Work(macs=macs, flops=operation.flops, params=operation.params)
    return work


def _layer_place_and_work(
    indices: tuple[int, ...], side: AlignableModel, additional: Sequence[Operation]
) -> tuple[Place | None, Work]:
    """Return (description, work) of a layer in one model: its nodes, path and text, or None if the
    model lacks it; and its MACs, FLOPs and parameters.
    """
    if indices == (FIRST,):
        what = Place(nodes=tuple(operation.node for operation in additional), path="", what=BEFORE)
        return (what if additional else None), _sum_of_work(additional)
    ones = [side.contractions[index] for index in indices]
    if not ones:
        return None, _sum_of_work(additional)
    what = Place(
        nodes=tuple(dict.fromkeys(operation.node for operation in ones)),
        path=ones[0].path,
        what=_contraction_text(ones),
    )
    return what, _sum_of_work([*ones, *additional])


def _contraction_text(ones: list[Contraction]) -> str:
    """Return a text that describes the contractions of a layer, such as "Conv 3x3 64 -> 128 /2,
    28x28".
    """
    operation, more = ones[0], f" and {len(ones) - 1} more" if len(ones) > 1 else ""
    if operation.kind != WEIGHTED:
        return f"{operation.op}{more}"
    text = [operation.op]
    if operation.window:
        text.append("x".join(map(str, operation.window.kernel)))
    text.append(f"{operation.inner * operation.groups} -> {operation.outer}{more}")
    if operation.groups > 1:
        text.append(f"in {operation.groups} groups")
    if operation.window and set(operation.window.strides) != {1}:
        text.append(f"/{'x'.join(map(str, dict.fromkeys(operation.window.strides)))}")
    where = (
        "x".join(map(str, operation.window.after)) if operation.window else str(operation.places)
    )
    return f"{' '.join(text)}, {where}"


def _merge_shifts_by_cause(shifts: Iterable[Shift]) -> tuple[Shift, ...]:
    """Return one difference for each cause, with summed amounts; a cause without amounts and
    without a note is left out.
    """
    by_cause: dict[str, list[Shift]] = {}
    for shift in shifts:
        by_cause.setdefault(shift.cause, []).append(shift)
    joined = (
        Shift(
            cause=cause,
            macs=sum(shift.macs for shift in ones),
            flops=sum(shift.flops for shift in ones),
            params=sum(shift.params for shift in ones),
            note="; ".join(dict.fromkeys(shift.note for shift in ones if shift.note)),
        )
        for cause, ones in by_cause.items()
    )
    return tuple(
        shift for shift in joined if shift.macs or shift.flops or shift.params or shift.note
    )


def _pair_of_unused_parameters(
    first: AlignableModel, second: AlignableModel
) -> Iterator[LayerPair]:
    """Yield one row for the parameters that no node uses, if one of the models has any."""
    if first.rest or second.rest:
        nobody = Place(nodes=(), path="", what=NOBODY)
        more = second.rest - first.rest
        yield LayerPair(
            first=nobody,
            second=nobody,
            first_work=Work(params=first.rest),
            second_work=Work(params=second.rest),
            shifts=(Shift(cause=UNUSED, params=more),) if more else (),
        )


def _alignment_cause_rows(rows: Iterable[LayerPair]) -> tuple[CauseRow, ...]:
    """Return one row for each cause with its sums over all layers, the largest in MACs first, then
    in FLOPs, then in parameters.
    """
    by_cause: dict[str, list[Shift]] = {}
    for row in rows:
        for shift in row.shifts:
            by_cause.setdefault(shift.cause, []).append(shift)
    causes = (
        CauseRow(
            cause=cause,
            macs=sum(shift.macs for shift in ones),
            flops=sum(shift.flops for shift in ones),
            params=sum(shift.params for shift in ones),
            layers=len(ones),
        )
        for cause, ones in by_cause.items()
    )
    return tuple(
        sorted(
            causes,
            key=lambda shift: (
                -abs(shift.macs),
                -abs(shift.flops),
                -abs(shift.params),
                shift.cause,
            ),
        )
    )
