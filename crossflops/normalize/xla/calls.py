"""The instructions of an HLO program as calls, in the order in which XLA's analysis adds them up.

xla/hlo/ir/hlo_instruction.cc: PostOrderDFS; xla/hlo/ir/hlo_computation.cc: HloComputation::Accept.
"""

from collections.abc import Callable, Iterator

import msgspec

from crossflops.conventions.formulas.xla import REDUCERS, flops
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Call, Scalar, Storey
from crossflops.normalize.xla.program import Computation, Instruction, Program

Owner = Callable[[str], tuple[str | None, int]]
# They hold or hand on what others made, and nothing is ever counted for them.
_SILENT = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
# What stands for the instructions in the computations that it calls.
_INLINED = ("call", "fusion", "async-start")
_HANDED_ON = ("reshape", "broadcast", "transpose", "bitcast", "convert", "copy")
_GIVEN = ("parameter", "constant", "get-tuple-element")
_CONTRACTIONS = {"convolution": "convolution", "dot": "product"}
_WHOLE = ("int", "uint", "bool")


class _Site(msgspec.Struct, frozen=True):
    """Where in a program an instruction is: in which calls, under which names, in a loop."""

    nest: tuple[str, ...] = ()
    names: str = ""
    looped: bool = False

    def inside(self, at: Instruction, *steps: str, looped: bool = False) -> "_Site":
        """Within the computations that an instruction calls."""
        names = self.named(at.op_name) if at.opcode == "call" else self.names
        return _Site((*self.nest, at.name, *steps), names, self.looped or looped)

    def named(self, op_name: str) -> str:
        """The whole name stack: names in a function are those of its call, and its own."""
        if not self.names or op_name.partition("/")[0] == self.names.partition("/")[0]:
            return op_name
        return f"{self.names}/{op_name}"


def calls(program: Program, storey: Storey, owner: Owner) -> tuple[Call, ...]:
    """Every instruction that runs, functions inlined, each in the body of a loop once.

    `owner` gives the key of the call of a module and the id of that module for a name stack. Of a
    condition the branches that are not the most expensive one are there with `chosen` false.
    """
    walk = _Walk(program, storey, owner)
    return tuple(walk.of(program.computations[program.entry], _Site()))


class _Walk:
    """One walk over a program; holds what all its instructions share."""

    def __init__(self, program: Program, storey: Storey, owner: Owner) -> None:
        self._program = program
        self._storey = storey
        self._owner = owner

    def of(self, computation: Computation, site: _Site) -> Iterator[Call]:
        for one in in_order(computation):
            if one.opcode in _INLINED:
                yield from self._inner(one, 0, site.inside(one))
            elif one.opcode == "while":
                yield from self._inner(one, 0, site.inside(one, "body", looped=True))
                yield from self._inner(one, 1, site.inside(one, "condition", looped=True))
            elif one.opcode == "conditional":
                yield from self._branches(one, site.inside(one))
            elif one.opcode not in _SILENT:
                yield self._call(one, site)

    def _inner(self, one: Instruction, place: int, site: _Site) -> Iterator[Call]:
        yield from self.of(self._program.computations[one.called[place]], site)

    def _branches(self, one: Instruction, site: _Site) -> Iterator[Call]:
        found = [list(self._inner(one, place, site)) for place in range(len(one.called))]
        costs = [sum(map(flops, branch)) for branch in found]
        dearest = costs.index(max(costs))
        for place, branch in enumerate(found):
            if place == dearest:
                yield from branch
            else:
                yield from map(_unchosen, branch)

    def _call(self, one: Instruction, site: _Site) -> Call:
        names = site.named(one.op_name)
        parent, module = self._owner(names)
        operands = [self._program.by_id[key] for key in one.operands]
        return Call(
            key=f"{self._storey}:{'/'.join((*site.nest, one.name))}",
            parent=parent,
            storey=self._storey,
            target=one.opcode,
            module=module,
            settings={
                **one.settings,
                **self._applied(one),
                "nest": list(site.nest),
                "names": names,
                "chosen": True,
                "in_loop": site.looped,
                "numbers": _numbers(one, operands),
                "after": self._after(operands) if one.opcode == "add" else "",
            },
            inputs=tuple(_operands(operands)),
            outputs=one.results,
        )

    def _applied(self, one: Instruction) -> dict[str, Scalar]:
        """The opcodes of the functions of scalars that it applies to elements."""
        if one.opcode == "select-and-scatter":
            selecting, scattering = one.called
            return {"selecting": self._opcodes(selecting), "applied": self._opcodes(scattering)}
        if one.opcode in REDUCERS:
            return {"applied": self._opcodes(one.called[0])}
        return {}

    def _opcodes(self, computation: int) -> list[str]:
        inner = self.of(self._program.computations[computation], _Site())
        return [one.target for one in inner]

    def _after(self, operands: list[Instruction]) -> str:
        """What made the sum's one term, where the other is a weight that is spread out."""
        for one, other in (operands, operands[::-1]):
            made, given = self._origin(one), self._origin(other)
            if made[0] in _CONTRACTIONS and given[0] in _GIVEN and "broadcast" in given:
                return _CONTRACTIONS[made[0]]
        return ""

    def _origin(self, one: Instruction) -> tuple[str, ...]:
        """The opcode that made a value, and before it those that handed it on."""
        passed: list[str] = []
        while one.opcode in _HANDED_ON:
            passed.append(one.opcode)
            one = self._program.by_id[one.operands[0]]
        return (one.opcode, *passed)


def _unchosen(call: Call) -> Call:
    return msgspec.structs.replace(call, settings={**call.settings, "chosen": False})


def _operands(operands: list[Instruction]) -> Iterator[TensorSpec]:
    arrays = (result for one in operands for result in one.results)
    for number, one in enumerate(arrays):
        yield TensorSpec(f"operand_{number}", one.dtype, one.shape)


def _numbers(one: Instruction, operands: list[Instruction]) -> str:
    """Whether it computes with "whole" numbers (truth values too) or with "real" ones."""
    result = one.results[0].dtype if one.results else ""
    seen = result
    if result == "bool" and operands and operands[0].results:
        seen = operands[0].results[0].dtype
    return "whole" if seen.startswith(_WHOLE) else "real"


def in_order(computation: Computation) -> Iterator[Instruction]:
    """The instructions in the order in which XLA visits them: operands first, dead ones first."""
    by_id = {one.id: one for one in computation.instructions}
    used = {key for one in computation.instructions for key in (*one.operands, *one.control)}
    roots = [key for key in by_id if key not in used and key != computation.root]
    visited: set[int] = set()
    opened: set[int] = set()
    stack = [computation.root, *reversed(roots)]
    while stack:
        key = stack[-1]
        if key in visited:
            stack.pop()
        elif key in opened:
            stack.pop()
            visited.add(key)
            yield by_id[key]
        else:
            opened.add(key)
            before = (*by_id[key].operands, *by_id[key].control)
            stack += [one for one in reversed(before) if one not in visited]
