"""Turn the programs that XLA gets and makes of a JAX model into calls.

These stand in the order in which XLA visits them.

xla/hlo/ir/hlo_instruction.cc: PostOrderDFS; xla/hlo/ir/hlo_computation.cc: HloComputation::Accept.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import NormalizeError
from crossflops.frontends.converted import all_nested_nodes
from crossflops.frontends.jax.observe.hlo import (
    Computation,
    HloProgram,
    Instruction,
    kind_of_biased_operator,
    number_kind,
    pooling_kind,
    read_hlo_program,
)
from crossflops.frontends.jax.observe.training_step import with_jax_gradients
from crossflops.frontends.jax.record.function import Pure, isolating_jax_cache
from crossflops.frontends.jax.record.scopes import innermost_module_path
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import UNWATCHED, Call, Level, Module, Scalar, Setting, Trace, View
from crossflops.ir.training import gradient_call_key, rerun_call_key

# What encloses an instruction, told by its name stack: the key of the call around it, the id of
# the module, and facts that rules ask for.


class NameStackOwner(NamedTuple):
    """The parent call and the module of an instruction, and facts of the tool, by name stack."""

    parent_key: str | None
    module: int
    facts: dict[str, Scalar]


OwnerLookup = Callable[[str], NameStackOwner]

# They hold or hand on what others made, and nothing is ever counted for them.
_SILENT = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
# They apply a function of scalars to elements.
_REDUCERS = ("map", "reduce", "reduce-window", "scatter")
# What stands for the instructions in the computation that it calls.
_INLINED = ("call", "fusion", "async-start")


class ProgramPlace(msgspec.Struct, frozen=True):
    """Where an instruction is in a program: its functions, name stack, loop and branches.

    `place` orders the instructions of a program as it was written. `branches` are the enclosing
    conditions, each with the number of the branch and of all branches.
    """

    nest: tuple[str, ...] = ()
    names: str = ""
    looped: bool = False
    place: tuple[int, ...] = ()
    branches: tuple[tuple[str, int, int], ...] = ()

    def with_computation(self, at: Instruction, number: int = 0, step: str = "") -> "ProgramPlace":
        """Return the place inside a computation that the instruction `at` calls."""
        return ProgramPlace(
            nest=(*self.nest, at.name, step) if step else (*self.nest, at.name),
            names=self.full_name_stack(at.op_name) if at.opcode == "call" else self.names,
            looped=self.looped or at.opcode == "while",
            place=(*self.place, at.id, number),
            branches=self.branches,
        )

    def with_branch_number(self, condition: Instruction, number: int) -> "ProgramPlace":
        """Return the place inside one branch of a conditional."""
        branch = ("/".join(self.nest), number, len(condition.called))
        return msgspec.structs.replace(self, branches=(*self.branches, branch))

    def full_name_stack(self, op_name: str) -> str:
        """Return the name stack of an instruction, preceded by that of its caller."""
        if not self.names or op_name.partition("/")[0] == self.names.partition("/")[0]:
            return op_name
        return f"{self.names}/{op_name}"


def xla_program_calls(
    program: HloProgram, level: Level, setting: str, owner: OwnerLookup
) -> tuple[Call, ...]:
    """Return a call for the program, then one for each instruction that runs.

    Before them is one call for the program as a whole. Among the settings, `branches` gives the
    branches of conditions that an instruction is in, with their numbers, from the outside to the
    inside; `place` orders instructions as the program was written.
    """
    walk = _ProgramWalk(program, level, setting, owner)
    entry = program.computations[program.entry]
    full = Call(
        key=f"{level}:", parent=None, level=level, target="program", module=0, setting=setting
    )
    return (full, *walk.instruction_calls(entry, ProgramPlace()))


class _ProgramWalk:
    """A walk over one program, with what all of its calls share."""

    def __init__(
        self, program: HloProgram, level: Level, setting: str, owner: OwnerLookup
    ) -> None:
        """Take an HLO program, the level and setting of its calls, and a lookup of modules."""
        self._program = program
        self._level = level
        self._setting = setting
        self._owner = owner

    def instruction_calls(self, computation: Computation, site: ProgramPlace) -> Iterator[Call]:
        """Yield the calls of a computation's instructions, also in loops and branches."""
        for instruction in xla_visit_order(computation):
            if instruction.opcode in _INLINED:
                yield from self._calls_in_computation(
                    instruction, 0, site.with_computation(instruction)
                )
            elif instruction.opcode == "while":
                yield from self._calls_in_computation(
                    instruction, 0, site.with_computation(instruction, 0, "body")
                )
                yield from self._calls_in_computation(
                    instruction, 1, site.with_computation(instruction, 1, "condition")
                )
            elif instruction.opcode == "conditional":
                yield from self._branch_calls(instruction, site)
            elif instruction.opcode not in _SILENT:
                yield self._instruction_call(instruction, site)

    def _calls_in_computation(
        self, instruction: Instruction, number: int, site: ProgramPlace
    ) -> Iterator[Call]:
        """Yield the calls in computation `number` of those that an instruction calls."""
        yield from self.instruction_calls(
            self._program.computations[instruction.called[number]], site
        )

    def _branch_calls(self, instruction: Instruction, site: ProgramPlace) -> Iterator[Call]:
        """Yield the calls in all branches of a conditional."""
        # the converter to ONNX begins with the branch for "true", which is the last one here
        for number in range(len(instruction.called)):
            yield from self._calls_in_computation(
                instruction,
                number,
                site.with_computation(instruction, -number).with_branch_number(
                    instruction, number
                ),
            )

    def _instruction_call(self, instruction: Instruction, site: ProgramPlace) -> Call:
        """Return an instruction of an XLA program as a call of an operator, with its module,
        operands and settings.
        """
        names = site.full_name_stack(instruction.op_name)
        parent, module, facts = self._owner(names)
        operands = [self._program.instruction_by_id[key] for key in instruction.operands]
        applied = self._opcodes_of_applied_functions(instruction)
        return Call(
            key=f"{self._level}:{'/'.join((*site.nest, instruction.name))}",
            parent=parent,
            level=self._level,
            target=instruction.opcode,
            module=module,
            setting=self._setting,
            settings={
                **instruction.settings,
                **applied,
                **facts,
                "nest": list(site.nest),
                "place": [*site.place, instruction.id],
                "names": names,
                "branches": [list(branch) for branch in site.branches],
                "in_loop": site.looped,
                "numbers": number_kind(instruction, operands),
                "after": kind_of_biased_operator(operands, self._program)
                if instruction.opcode == "add"
                else "",
                "pooled": pooling_kind(instruction, applied),
            },
            inputs=tuple(_operand_specs(operands)),
            outputs=instruction.results,
        )

    def _opcodes_of_applied_functions(self, instruction: Instruction) -> dict[str, Scalar]:
        """Return by name the opcodes of functions that a reduction or a map applies."""
        if instruction.opcode == "select-and-scatter":
            selecting, scattering = instruction.called
            return {
                "selecting": self._computation_opcodes(selecting),
                "applied": self._computation_opcodes(scattering),
            }
        if instruction.opcode in _REDUCERS:
            return {"applied": self._computation_opcodes(instruction.called[0])}
        return {}

    def _computation_opcodes(self, computation: int) -> list[str]:
        """Return the opcodes of a computation's instructions."""
        inner = self.instruction_calls(self._program.computations[computation], ProgramPlace())
        return [call.target for call in inner]


def _operand_specs(operands: list[Instruction]) -> Iterator[TensorSpec]:
    """Yield the specs of all arrays in the results of the operands."""
    arrays = (result for operand in operands for result in operand.results)
    for number, array in enumerate(arrays):
        yield TensorSpec(f"operand_{number}", array.dtype, array.shape)


def xla_visit_order(computation: Computation) -> Iterator[Instruction]:
    """Yield the instructions of a computation in XLA's order: operands come first."""
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    used = {
        key
        for instruction in computation.instructions
        for key in (*instruction.operands, *instruction.control)
    }
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
            stack += [operand for operand in reversed(before) if operand not in visited]


# To which module an instruction belongs, and what its name stack tells of it.

_CELLS = ("LSTMCell", "OptimizedLSTMCell", "SimpleCell", "GRUCell")
_LAYERS = {
    **{kind: kind for kind in ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm")},
    **dict.fromkeys(_CELLS, "RNN cell"),
}
# Functions of jax.nn and jax.numpy, which stand in name stacks as "jit(NAME)".
_FUNCTIONS = {
    "relu": "relu",
    **dict.fromkeys(
        ("relu6", "leaky_relu", "hard_tanh", "hard_sigmoid", "hard_silu", "hard_swish",
         "squareplus", "soft_sign", "sparse_plus", "sparse_sigmoid"),
        "piecewise",
    ),
    **dict.fromkeys(
        ("sigmoid", "silu", "swish", "gelu", "elu", "selu", "celu", "softplus", "log_sigmoid",
         "mish", "glu"),
        "smooth",
    ),
    **dict.fromkeys(("softmax", "log_softmax"), "softmax"),
    **dict.fromkeys(("_take", "take", "_one_hot", "one_hot"), "lookup"),
}  # fmt: skip
_JITTED = re.compile(r"jit\(([^()]*)\)")
_BACKWARD = "transpose(jvp("


def name_stack_owner(
    rows: tuple[Module, ...], trace: tuple[Call, ...], is_step: bool = False
) -> OwnerLookup:
    """Return a function that gives the parent call, module and facts of a name stack.

    A backward pass is that of a step: a gradient in a model's own code is work of the model.
    """
    ids = {path: row.id for row in rows for path in row.names}
    keys: dict[int, str] = {}
    for call in trace:
        if call.level == "module":
            keys.setdefault(call.module, call.key)
    kinds = {path: _layer_kind(path, rows, ids) for path in ids}

    def owner_of_name_stack(names: str) -> NameStackOwner:
        """Return the parent call, the module and the facts of a name stack."""
        path = innermost_module_path(names) or ""
        module = ids.get(path, 0)
        facts: dict[str, Scalar] = {
            "layer": kinds.get(path, ""),
            "function": _innermost_function_kind(names),
            "backward": is_step and _BACKWARD in names,
        }
        return NameStackOwner(keys.get(module, keys.get(0)), module, facts)

    return owner_of_name_stack


def _layer_kind(path: str, rows: tuple[Module, ...], ids: dict[str, int]) -> str:
    """Return the kind of layer around a path, such as "BatchNorm" or "RNN cell", or ""."""
    for enclosing in _path_ancestors(path):
        bases = rows[ids[enclosing]].bases if enclosing in ids else ()
        for base in bases:
            if (name := base.rpartition(".")[2]) in _LAYERS:
                return _LAYERS[name]
    return ""


def _path_ancestors(path: str) -> Iterator[str]:
    """Yield a dotted module path and its ancestors up to the root ""."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _innermost_function_kind(names: str) -> str:
    """Return the kind of the innermost known function in a name stack ("smooth"), or ""."""
    known = [name for name in _JITTED.findall(names) if name in _FUNCTIONS]
    return _FUNCTIONS[known[-1]] if known else ""


# Which operator call a product or a convolution of an HLO program was lowered from.

_CONTRACTIONS = ("dot", "convolution")
_PRODUCTS = (
    "Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM",
    "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN",
)  # fmt: skip


def contraction_calls(calls: Iterable[Call], graph: Graph) -> list[Call]:
    """Return the operator calls that have a node with matrix products or convolutions."""
    calls_of_products = {
        node.call for node in all_nested_nodes(graph.nodes) if node.op.type in _PRODUCTS
    }
    return [call for call in calls if call.level == "operator" and call.key in calls_of_products]


def link_instructions(instructions: Sequence[Call], operators: Sequence[Call]) -> tuple[Call, ...]:
    """Return XLA's instructions; contractions have the keys of operators they compute.

    Forward and recomputed contractions are in the order of the model, and matched by module and
    size of result. An operator that is lowered to several instructions (attention) is assigned to
    one of them; one without a match is assigned to an instruction in its module, if there is any.
    A contraction without a match, where there are operators, is marked `alone`, and one that runs
    on each of several devices `per_device`.
    """
    contractions = sorted(
        (instruction for instruction in instructions if instruction.target in _CONTRACTIONS),
        key=_written_order_in_program,
    )
    forward, gradients, again = (
        [call for call in contractions if _pass_number(call) == number] for number in _PASSES
    )
    of: dict[str, list[str]] = {contraction.key: [] for contraction in contractions}
    forward = _contractions_of_best_matching_branches(
        forward, lambda some: _match_in_order(some, operators)
    )
    for product, operator in _match_operators(forward, operators):
        of[product.key].append(operator.key)
    gradients = _contractions_of_best_matching_branches(
        gradients, lambda some: _match_gradients(some, forward)
    )
    for product, partner in _match_gradients(gradients, forward):
        of[product.key] += map(gradient_call_key, of[partner.key])
    again = _contractions_of_best_matching_branches(
        again, lambda some: _match_in_order(some, forward)
    )
    for product, partner in _match_in_order(again, forward):
        of[product.key] += map(rerun_call_key, of[partner.key])
    known, shared = bool(operators), _keys_of_operators_on_several_devices(operators)
    return tuple(
        _with_operator_keys(instruction, of[instruction.key], known, shared)
        if instruction.key in of
        else instruction
        for instruction in instructions
    )


def _keys_of_operators_on_several_devices(operators: Iterable[Call]) -> set[str]:
    """Return keys of calls, gradients and reruns of operators that run on several devices."""
    several = [call.key for call in operators if "devices" in call.settings]
    return {name for key in several for name in (key, gradient_call_key(key), rerun_call_key(key))}


def _contractions_of_best_matching_branches(
    contractions: list[Call], matched: Callable[[list[Call]], Iterable[tuple[Call, Call]]]
) -> list[Call]:
    """Return the contractions, of a conditional only those of the branch that matches best.

    All stay where all are counted, and the fewest of those with equally many matches.
    """
    for condition in dict.fromkeys(
        name for call in contractions for name in _branch_by_conditional(call)
    ):
        numbers = {None, *(_branch_by_conditional(call).get(condition) for call in contractions)}
        options = [
            [
                call
                for call in contractions
                if _branch_by_conditional(call).get(condition) in (None, number)
            ]
            for number in numbers
        ]
        contractions = max(
            (contractions, *options), key=lambda some: (sum(1 for _ in matched(some)), -len(some))
        )
    return contractions


def _branch_by_conditional(call: Call) -> dict[object, object]:
    """Return the branch that an instruction is in, by the name of the conditional."""
    enclosing = call.settings["branches"]
    return {name: number for name, number, _ in enclosing} if isinstance(enclosing, list) else {}


_PASSES = FORWARD, BACKWARD, AGAIN = range(3)
_AGAIN = "rematted_computation"  # jax/_src/ad_checkpoint.py


def _pass_number(call: Call) -> int:
    """Return FORWARD, BACKWARD or AGAIN (recomputed): the pass that an instruction is in."""
    if not call.settings["backward"]:
        return FORWARD
    return AGAIN if _AGAIN in str(call.settings["names"]).split("/") else BACKWARD


def _match_gradients(
    gradients: Iterable[Call], forward: Sequence[Call]
) -> Iterator[tuple[Call, Call]]:
    """Yield (backward contraction, forward contraction) pairs that match in sizes.

    They come in the reverse order. The gradient of an operand has the operand's size, and is made
    of the other operand and of a tensor of the size of the result.
    """
    waiting: dict[tuple[object, ...], list[Call]] = {}
    for contraction in forward:
        for operand in contraction.inputs:
            waiting.setdefault(_gradient_match_key(contraction, operand), []).append(contraction)
    for gradient in gradients:
        if left := waiting.get(_gradient_match_key(gradient, gradient.outputs[0])):
            yield gradient, left.pop()


def _gradient_match_key(call: Call, made: TensorSpec) -> tuple[object, ...]:
    """Return a key that is equal for a backward contraction and its forward one."""
    sizes = sorted(spec.numel for spec in (*call.inputs, *call.outputs))
    return (call.module, call.target, call.settings["in_loop"], made.numel, *sizes)


def _match_in_order(
    contractions: Sequence[Call], forward: Sequence[Call]
) -> Iterator[tuple[Call, Call]]:
    """Yield (contraction, forward one) pairs equal in module and size, in their order."""
    first, second = (
        map(_module_and_result_size, contractions),
        map(_module_and_result_size, forward),
    )
    matcher = SequenceMatcher(None, [*first], [*second], autojunk=False)
    for block in matcher.get_matching_blocks():
        for number in range(block.size):
            yield contractions[block.a + number], forward[block.b + number]


def _match_operators(
    contractions: Sequence[Call], operators: Sequence[Call]
) -> Iterator[tuple[Call, Call]]:
    """Yield (contraction, operator) pairs: the contraction computes the operator."""
    left = {operator.key: operator for operator in operators}
    for contraction, operator in _match_in_order(contractions, operators):
        del left[operator.key]
        yield contraction, operator
    owners = {contraction.module: contraction for contraction in contractions}
    for operator in left.values():
        if operator.module in owners:
            yield owners[operator.module], operator


def _written_order_in_program(call: Call) -> tuple[int, ...]:
    """Return the position of a call in its program as written, for sorting."""
    index = call.settings["place"]
    return tuple(index) if isinstance(index, list) else ()


def _module_and_result_size(call: Call) -> tuple[int, int]:
    """Return (module id, number of elements of the result) of a contraction."""
    shape = call.outputs[0].shape if call.outputs else None
    return call.module, call.outputs[0].numel if shape is not None else 0


def _with_operator_keys(call: Call, of: list[str], known: bool, shared: set[str]) -> Call:
    """Return a contraction with the keys `of` of the operators that it computes."""
    more = {"alone": known and not of, "per_device": not shared.isdisjoint(of)}
    return msgspec.structs.replace(call, settings={**call.settings, **more}, of=tuple(of))


LEVELS = ("lowered", "compiled")


def lower_for_xla(pure: Pure) -> Any:
    """Return the model as `jax.jit` lowers it for XLA. Raises NormalizeError."""
    import jax

    try:
        with isolating_jax_cache():
            return jax.jit(pure.weighted).lower(pure.weights, *pure.specs)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"JAX cannot lower the model: {type(error).__name__}: {text[:300]}",
            "call jax.jit(f).lower(...) by itself to see the whole traceback",
        ) from error


def xla_view_calls(
    pure: Pure, trace: Trace, graph: Graph | None, observed: Iterable[Setting]
) -> Iterator[Call]:
    """Yield the instructions of the XLA programs in these settings as calls.

    Those of the lowered program are added for comparison where the compiled one is needed. Each
    product and convolution of it names the operator calls in `trace` whose work it does; without
    the graph these are unknown. For a program that cannot be made one call has the reason: its
    tool fails then, while the count and the other tools continue.
    """
    asked = [view for view in observed if isinstance(view, View) and view.level in LEVELS]
    if not asked:
        return
    step = asked[0].step
    try:
        lowering = lower_for_xla(with_jax_gradients(pure, trace.modules, step) if step else pure)
    except NormalizeError as error:
        for view in asked:
            yield unavailable_program_call(view, str(error))
        return
    index = name_stack_owner(trace.modules, trace.calls, is_step=bool(step))
    operators = contraction_calls(trace.calls, graph) if graph else []
    before = read_hlo_program(lowering.compiler_ir("hlo").as_serialized_hlo_module_proto())
    for setting in dict.fromkeys(view.id for view in asked):
        yield from link_instructions(
            xla_program_calls(before, "lowered", setting, index), operators
        )
    for view in (view for view in asked if view.level == "compiled"):
        try:
            after = compile_xla_program(lowering)
        except NormalizeError as error:
            yield unavailable_program_call(view, str(error))
            continue
        yield from xla_program_calls(after, "compiled", view.id, index)


def unavailable_program_call(view: View, reason: str) -> Call:
    """Return the call that says why an XLA program cannot be made."""
    return Call(
        key=f"{view.level}:",
        parent=None,
        level=view.level,
        target=UNWATCHED,
        module=0,
        setting=view.id,
        settings={"reason": reason},
    )


def compile_xla_program(lowered: Any) -> HloProgram:
    """Return the HLO program that XLA compiles. Raises NormalizeError."""
    try:
        modules = lowered.compile().runtime_executable().hlo_modules()
        return read_hlo_program(modules[0].as_serialized_hlo_module_proto())
    except Exception as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"XLA cannot compile the model: {type(error).__name__}: {text[:300]}",
            "call jax.jit(f).lower(...).compile() by itself to see the whole traceback",
        ) from error
