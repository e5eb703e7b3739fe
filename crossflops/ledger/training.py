"""From a graph to the work of a training step: which operand of which node has a gradient.

An operand has one where something trained lies upstream and a float output of the model, of which
the loss is the sum, lies downstream. Constants, the model's inputs and what is detached have none.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.ir.graph import (
    START_MISSING,
    TURNED,
    UNSURE,
    WEIGHT_MISSING,
    Checkpoint,
    Function,
    Graph,
    Kept,
    Node,
    TensorSpec,
    TrainingAnnotation,
)
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.trace import Parameter, Trace
from crossflops.ir.training import (
    DIRECTLY,
    NO_STEP,
    OwnBackward,
    OwnBackwards,
    Steps,
    TrainingStep,
    Unknown,
    matches,
)
from crossflops.ledger.checkpoints import (
    CheckpointPart,
    RunAgain,
    enclosing,
    needed_again,
    run_again,
)
from crossflops.ledger.checkpoints import (
    parts as checkpoint_parts,
)
from crossflops.operators import missing, rule
from crossflops.operators.gradient import Gradient, no_gradient
from crossflops.operators.rule import OperatorRule

# The first of the inputs that say how to work, and are stored with a file as weights are.
_SETTINGS = {"Resize": 1, "Upsample": 1, "Clip": 1, "Pad": 1, "Dropout": 1}
_SETTINGS |= {"QuantizeLinear": 1, "DequantizeLinear": 1}  # scales, which observers set
# PyTorch has no gradients for the weights of classes.
_SETTINGS |= {"NegativeLogLikelihoodLoss": 2, "SoftmaxCrossEntropyLoss": 2}
_OPERANDS = "which of its operands have gradients is not known: counted as if all of one shape"
_FLOATS = ("float", "bfloat", "complex")
_ROUNDED = "QuantizeLinear"  # gradients go straight through its whole numbers
_RUN = re.compile(r"\[\d+\]")  # of a loop that was unrolled: Gemm_1@Loop_1[0]
_RECURRENT, _FIRST_STATE = ("LSTM", "GRU", "RNN"), 5


class GradientState(NamedTuple):
    """What training knows of a value: has it a gradient, and does it depend on an input."""

    trained: bool
    varying: bool


FIXED = GradientState(trained=False, varying=False)
Values: TypeAlias = dict[str, GradientState]
Work: TypeAlias = dict[str, TrainingStep]


def real(spec: TensorSpec) -> bool:
    """Whether the elements are numbers that have gradients."""
    return spec.dtype.startswith(_FLOATS)


_DERIVED = "in {}, whose backward is code of its own: counted as derived"
_OTHERS = "other functions run without values"
_CUT = "in an autograd.Function that hands no gradient on: counted as if it did"


class _OwnFunction(NamedTuple):
    """A custom function of the graph, and what its backward pass runs; None where unknown."""

    function: Function
    own: OwnBackward | None

    @property
    def operands(self) -> list[TensorSpec]:
        """What it is given."""
        return [spec for specs in self.function.operands.values() for spec in specs]

    @property
    def runs_anyway(self) -> bool:
        """Whether its backward pass was seen to run, whatever is known of the loss."""
        return self.own is not None and self.own.ran and not self.own.as_needed


class TrainedWeights:
    """Which stored tensors are trained: those that the model trains, unless a pattern says else.

    The patterns match the names of a parameter, all of them where it is tied, or a module around
    it; in a file also the node that uses it and that node's module. `trainable` goes over
    `frozen`. A stored tensor that is no parameter of the model (a buffer) is not trained, and of a
    file a number without axes only where a pattern says so. A model without any parameters may be
    given them: `trainable` also matches its inputs.
    """

    def __init__(self, trace: Trace, frozen: Iterable[str], trainable: Iterable[str]) -> None:
        self._frozen, self._trainable = tuple(frozen), tuple(trainable)
        self._met: set[str] = set()
        self._given = not any(module.params for module in trace.modules)
        self._of_calls = bool(trace.calls)
        self.loops_alike = trace.loops_alike
        self._by_name: dict[str, Parameter] = {}
        self._names: dict[int, set[str]] = {}
        for module in trace.modules:
            for path in module.names:
                for parameter in module.params:
                    name = f"{path}.{parameter.name}".removeprefix(".")
                    self._by_name[name] = parameter
                    self._names.setdefault(parameter.storage, set()).add(name)
                    if not self._of_calls:  # weights of files are named by the file
                        self._by_name.setdefault(parameter.name, parameter)

    def trained(self, spec: TensorSpec, node: Node) -> bool:
        """Whether this input of the node is a stored tensor that is trained."""
        if spec.role != "parameter" or not real(spec):
            return False
        place = next((at for at, given in enumerate(node.inputs) if given is spec), 0)
        if place >= _SETTINGS.get(node.op.type, place + 1):
            return False
        parameter = self._by_name.get(spec.name)
        unknown = parameter is None and bool(self._by_name)
        if unknown and self._of_calls:
            return False
        # 0.125 or an epsilon, as exporters store them: trained where they are named
        number = not self._of_calls and (unknown or spec.shape == ())
        names = {spec.name}
        if parameter is not None:
            names |= self._names[parameter.storage]
        if not self._of_calls and not number:
            names |= {node.path, node.key}
        # what a function reads beside the parameters that it takes is a constant of its own
        given = not self._of_calls if parameter is None else parameter.trainable
        return self._is_trained(names, trainable=given and not number)

    def trains_any(self) -> bool:
        """Whether a parameter of the model is trained, wherever it is used."""
        held = self._by_name.values()
        return any(self._is_trained(self._names[row.storage], row.trainable) for row in held)

    def _is_trained(self, names: Iterable[str], trainable: bool) -> bool:
        named = self._matching(self._trainable, names)
        frozen = self._matching(self._frozen, names)
        return named or (trainable and not frozen)

    def constants(self, graph: Graph) -> set[str]:
        """The results of Constant nodes that are trained: of a file that has all weights in such.

        Beside weights that are stored as such, a Constant is a number of the model's own.
        """
        made = {
            s.name: n
            for n in _everywhere(graph)
            if n.op.type == "Constant"
            for s in n.outputs
            if s
        }
        if self._of_calls or not {held.name for held in self._by_name.values()} <= made.keys():
            return set()
        weights = {name: node for name, node in made.items() if name in self._by_name}
        return {
            name
            for name, node in weights.items()
            if self._is_trained({name, node.path, node.key}, trainable=True)
        }

    def of_input(self, spec: TensorSpec) -> GradientState:
        """Of an input of the model: a parameter, or something that varies."""
        names = {spec.name, spec.name.removeprefix("in_")}  # a converter's, and the argument's
        trained = self._given and real(spec) and self._matching(self._trainable, names)
        return GradientState(trained, varying=not trained)

    def check(self, graph: Graph) -> None:
        """Raises InputError for a pattern that matched no weight, used or not."""
        hint = "give modules or parameters, such as 'layer1*'; count --by module shows them"
        floats = [spec.name.removeprefix("in_") for spec in graph.inputs if real(spec)]
        if self._given and floats:
            hint = f"name an input that holds parameters, such as {floats[0]!r}"
            if self._frozen and self._trainable:
                named = ", ".join(self._frozen)
                raise InputError(
                    f"{graph.name} takes its parameters: of an input, all that --trainable names "
                    f"is trained, and --frozen {named} takes nothing out",
                    "name what is trained alone: --trainable for each part",
                )
        for pattern in (*self._frozen, *self._trainable):
            if pattern not in self._met and not any(matches(n, pattern) for n in self._by_name):
                raise InputError(f"{pattern!r} matches no weight of {graph.name}", hint)

    def _matching(self, patterns: tuple[str, ...], names: Iterable[str]) -> bool:
        met = {pattern for pattern in patterns for name in names if matches(name, pattern)}
        self._met |= met
        return bool(met)


class Everything(TrainedWeights):
    """All parameters are trained, whatever the model says: what a rule of thumb assumes.

    Of its inputs those that `exact` says.
    """

    def __init__(self, trace: Trace, exact: Steps | None = None) -> None:
        super().__init__(trace, (), ("*",))
        self._updated = {spec.name for spec in exact.updated} if exact else set()

    def of_input(self, spec: TensorSpec) -> GradientState:
        """Of an input of the model: a parameter where the exact step has it so."""
        trained = spec.name in self._updated
        return GradientState(trained, varying=not trained)


class AskedWeights(TrainedWeights):
    """The parameters of these names are trained, as `autograd.grad(..., inputs)` has it."""

    def __init__(self, trace: Trace, names: frozenset[str]) -> None:
        super().__init__(trace, (), ())
        self._asked = names

    def _is_trained(self, names: Iterable[str], trainable: bool) -> bool:
        return not self._asked.isdisjoint(names)


def steps(
    graph: Graph,
    weights: TrainedWeights,
    *,
    cuts: bool = True,
    own: OwnBackwards = (),
) -> Steps:
    """The training step of a graph with these weights.

    Without `cuts` gradients flow through what is detached, and from every node. `own` are the
    backward passes of its functions that have one, in their order, or why they are not known.
    Without them, or with those of others, the step is as the forward passes of the functions tell.
    """
    passes, reason = ((), own) if isinstance(own, str) else (own, "")
    if [function.name for function in graph.functions] != [backward.name for backward in passes]:
        passes, reason = (), reason or (_OTHERS if passes else "")
    pairs = zip(graph.functions, passes or (None,) * len(graph.functions), strict=True)
    walk = _GradientWalk(weights, cuts, [_OwnFunction(*pair) for pair in pairs], reason)
    values = {spec.name: weights.of_input(spec) for spec in graph.inputs}
    walk.constants = weights.constants(graph)
    walk.parameters |= {name for name, value in values.items() if value.trained} | walk.constants
    values |= {name: GradientState(True, varying) for name, varying in graph.starts.items()}
    missing = graph.severed if cuts else ()
    ends = {s.name for place, s in enumerate(graph.outputs) if real(s) and place not in missing}
    work, _ = walk.scope("", graph, values, ends, set(ends))
    unknown, updated = tuple(walk.unknown.values()), tuple(walk.updated.values())
    derived = steps(graph, weights) if passes else None
    return Steps(work, unknown, updated, derived)


class _GradientWalk:
    """One pass along the nodes for what has gradients, one back for what reaches the loss."""

    def __init__(
        self, weights: TrainedWeights, cuts: bool, functions: Iterable[_OwnFunction], reason: str
    ) -> None:
        self._weights, self._cuts = weights, cuts
        self._unfollowed = f" ({reason})" if reason else ""
        self._inside: dict[str, _OwnFunction] = {}  # by the keys of its nodes
        self._beside: dict[str, list[_OwnFunction]] = defaultdict(list)  # those without nodes
        for held in functions:
            self._inside |= dict.fromkeys(held.function.nodes, held)
            if not held.function.nodes:
                self._beside[held.function.home].append(held)
        self.unknown: dict[str, Unknown] = {}
        self.updated: dict[str, TensorSpec] = {}
        self.parameters: set[str] = set()  # inputs of the model that are trained, and constants
        self.constants: set[str] = set()  # results of nodes that are trained
        # by the key of a node and the place of an input what another run of its loop says of it
        self._alike: dict[tuple[str, int], GradientState] = {}
        self._joined: dict[str, list[bool]] = {}  # of two tensors in one: which has a gradient
        self._functions: dict[object, Work] = {}
        self._handed_out: dict[str, int] = {}  # by value the reentrant checkpoint it comes from
        self._ungiven: set[int] = set()  # reentrant checkpoints whose arguments have no gradient

    def scope(
        self, prefix: str, graph: Graph, values: Values, ends: set[str], used: set[str]
    ) -> tuple[Work, set[str]]:
        """The work of the nodes of one level, and of all in them, by key; what reaches the loss.

        `values` are those from around the level, and grows; `ends` are names of values that reach
        the loss; what is `used` has a gradient already, and grows.
        """
        ends = set(ends)
        checkpoints = checkpoint_parts(graph) if self._cuts else ()
        starts: dict[str, list[CheckpointPart]] = defaultdict(list)
        stops: dict[str, list[CheckpointPart]] = defaultdict(list)
        for part in checkpoints:
            starts[part.nodes[0].key].append(part)
            stops[part.nodes[-1].key].append(part)
        copies = _copies(graph) if self._weights.loops_alike else []
        unsettled = True
        while unsettled:
            for node in graph.nodes:
                for part in starts[node.key]:
                    self._enter(part, values)
                self._forward(node, values)
                for part in reversed(stops[node.key]):
                    self._leave(part)
            unsettled = self._make_alike(copies, values)
        live: dict[str, set[str]] = {}
        unsettled = True
        while unsettled:
            live = self._reached(graph, stops, values, ends)
            unsettled = _reach_alike(copies, ends)
        again: Counter[str] = Counter()
        asked: set[int] = set()
        for part in reversed(checkpoints):
            again.update(self._again(part, values, live, asked))
        work: Work = {}
        together: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            together[node.conversion.written_for or node.key].append(node)
        for node in graph.nodes:
            parts = together[node.conversion.written_for or node.key]
            for key, plain in self._node(prefix, node, parts, values, live, used):
                step = plain
                if times := again[node.key]:
                    rerun = (plain.forward + self._early(node)) * times
                    step = plain + TrainingStep(recomputed=rerun, checkpointed=rerun)
                work[key] = work.get(key, NO_STEP) + step
        return work, ends

    def _reached(
        self,
        graph: Graph,
        stops: Mapping[str, Sequence[CheckpointPart]],
        values: Values,
        ends: set[str],
    ) -> dict[str, set[str]]:
        """By the key of a node that runs back which of its results reach the loss.

        `ends` are the names of all that does, and grows.
        """
        live: dict[str, set[str]] = {}
        for node in reversed(graph.nodes):
            for part in stops[node.key]:
                if part.kind == "reentrant" and part.results & ends:
                    ends |= part.results  # what misses the loss gets zeros for gradients
            reached = {spec.name for spec in node.outputs if spec and spec.name in ends}
            known = self._known(node)
            if reached or not self._cuts or (known and known.runs_anyway):
                live[node.key] = reached
                wanted = {spec.name: spec for _, spec in self._wanted(node, values)}
                self.updated |= {
                    name: spec
                    for name, spec in wanted.items()
                    if (name not in values and self._value(spec, node, values).trained)
                    or name in self.parameters
                }
                ends |= wanted.keys() | _captured(node)
        return live

    def _make_alike(self, copies: Iterable[Sequence[Node]], values: Values) -> bool:
        """Notes for the runs of a loop what has a gradient in any of them; whether that is new."""
        news = False
        for runs in copies:
            for place in {place for node in runs for place, _ in self._wanted(node, values)}:
                given = [(node, node.inputs[place]) for node in runs]
                states = [self._operand(n, place, spec, values) for n, spec in given if spec]
                joined = reduce(_either, states, FIXED)
                if any(state != joined for state in states):
                    self._alike |= {(node.key, place): joined for node in runs}
                    news = True
        return news

    def _operand(self, node: Node, place: int, spec: TensorSpec, values: Values) -> GradientState:
        """What is known of an input of a node, in whichever run of a loop it stands."""
        known = self._value(spec, node, values)
        return _either(known, self._alike.get((node.key, place), FIXED))

    def _enter(self, part: CheckpointPart, values: Values) -> None:
        """Notes of a reentrant checkpoint that nothing with a gradient goes into it."""
        graded = any(
            self._value(spec, node, values).trained
            for node in part.nodes
            for spec in node.inputs
            if spec is not None and spec.name in part.given and spec.name in values
        )
        if part.checkpoint.weights:
            graded |= any(
                self._weights.trained(spec, node)
                for node in part.nodes
                for spec in node.inputs
                if spec is not None and spec.name not in values
            )
        if part.kind == "reentrant" and not graded:
            self._ungiven.add(part.checkpoint.number)

    def _leave(self, part: CheckpointPart) -> None:
        """All that a reentrant checkpoint hands out has a gradient, as results of one function.

        In the checkpoint itself that is so only for what has one anyway.
        """
        if part.kind == "reentrant" and part.checkpoint.number not in self._ungiven:
            results = dict.fromkeys(part.results, part.checkpoint.number)
            self._handed_out = results | self._handed_out  # the innermost leaves first

    def _again(
        self,
        part: CheckpointPart,
        values: Values,
        live: Mapping[str, set[str]],
        asked: set[int],
    ) -> Iterable[str]:
        """The keys of the nodes of a checkpoint that the backward pass runs once more.

        `asked` are the numbers of the checkpoints that it runs again, and grows.
        """

        def graded(nodes: tuple[Node, ...]) -> bool:
            """Whether PyTorch keeps something for these, whatever the loss."""
            if known := self._known(nodes[0]):
                return self._is_graded(known, nodes[0], values)
            costs = [self._cost(node, values) for node in nodes]
            if any(forward.macs for forward, _ in costs):  # bias alone needs no operand
                return any(macs for _, macs in costs)
            return any(bool(self._wanted(node, values)) for node in nodes)

        asking = [node for node in part.nodes if node.key in live and self._wanted(node, values)]
        if part.kind == "needed":
            places = {n.key: frozenset(at for at, _ in self._wanted(n, values)) for n in asking}
            again = needed_again(part, places)
        else:
            if part.kind != "reentrant":
                keeping = {
                    name for name, nodes in part.pieces(self._piece).items() if graded(nodes)
                }
                asking = [node for node in asking if self._asks(part, node, keeping, asked)]
            again = run_again(part, graded, self._keeps, self._piece) if asking else RunAgain()
        if asking:
            asked.add(part.checkpoint.number)
        for node in again.unsure:
            self._without(node.key, node, "how much of it a checkpoint runs again is not known")
        return [node.key for node in again.nodes]

    def _asks(
        self, part: CheckpointPart, node: Node, keeping: set[str | int], asked: set[int]
    ) -> bool:
        """Whether a node, or the checkpoint that it is in, asks for what is kept in this one.

        `keeping` are the pieces for which PyTorch keeps something: a bias alone asks for nothing.
        """
        inner = part.within(node)
        if inner:
            return inner.number in asked
        return self._keeps(node, None) != "nothing" and self._piece(node) in keeping

    def _keeps(self, node: Node, inner: Checkpoint | None) -> Kept:
        """What a node keeps in a checkpoint, or the checkpoint around it does that stands there.

        A custom function keeps tensors once its forward pass has run.
        """
        if inner is not None:
            if inner.kind != "reentrant":
                return "operands"
            return "nothing" if inner.number in self._ungiven else "results"
        if known := self._known(node):
            return "results" if known.own and known.own.keeps else "nothing"
        return node.training.checkpoint.keeps if node.training.checkpoint else "nothing"

    def _piece(self, node: Node) -> str:
        """What keeps tensors together: a call, or a custom function."""
        known = self._known(node)
        return f"{known.function.home} (function)" if known else node.call

    def _known(self, node: Node) -> _OwnFunction | None:
        """The function in which a node stands whose own backward pass is known."""
        held = self._inside.get(node.key)
        return held if held and held.own else None

    def _derived(self, held: _OwnFunction) -> str:
        """Return why the backward pass of a custom function is that of its forward pass."""
        return _DERIVED.format(held.function.kind) + self._unfollowed

    def _early(self, node: Node) -> Cost:
        """What a custom function makes forward for gradients, at its last node."""
        known = self._known(node)
        if known is None or known.own is None or node.key != known.function.home:
            return ZERO
        return known.own.early

    def _is_ungiven(self, node: Node) -> bool:
        return any(checkpoint.number in self._ungiven for checkpoint in enclosing(node))

    def _is_graded(self, held: _OwnFunction, node: Node, values: Values) -> bool:
        """Whether a custom function is given something with a gradient."""
        return not self._is_ungiven(node) and any(
            self._value(spec, node, values).trained for spec in held.operands
        )

    def _cost(self, node: Node, values: Values) -> tuple[Cost, int]:
        """The forward work of a node, and the MACs of its gradients, whatever the loss."""
        known = rule(node.op)
        try:
            forward = known.formula(node) if known else ZERO
            wanted = self._wanted(node, values)
            if known is None or isinstance(known.backward, str) or not wanted:
                return forward, 0
            gradient = known.backward(node, frozenset(place for place, _ in wanted), forward)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            return ZERO, 0  # which is named where the node is counted
        return forward, sum(gradient.operands.values(), gradient.inner).macs

    def _value(self, spec: TensorSpec, node: Node, values: Values) -> GradientState:
        known = values.get(spec.name)
        if known is None:
            return GradientState(self._weights.trained(spec, node), varying=False)
        number = self._handed_out.get(spec.name)
        if number is None or not real(spec):
            return known
        inside = any(checkpoint.number == number for checkpoint in enclosing(node))
        return known if inside else known._replace(trained=True)

    def _wanted(self, node: Node, values: Values) -> list[tuple[int, TensorSpec]]:
        """The inputs that have a gradient through this node, with their places."""
        severed = node.training.severed if self._cuts and node.stands_for_itself else ()
        if self._is_ungiven(node):
            return []
        if known := self._known(node):
            return list(self._handed_on(known, node, values))
        inputs = (node.training.past.get(place, spec) for place, spec in enumerate(node.inputs))
        return [
            (place, spec)
            for place, spec in enumerate(inputs)
            if spec is not None
            and place not in severed
            and self._operand(node, place, spec, values).trained
        ]

    def _handed_on(
        self, held: _OwnFunction, node: Node, values: Values
    ) -> Iterator[tuple[int, TensorSpec]]:
        """The operands to which a custom function hands gradients, at its last node."""
        if held.own is None or not held.own.ran or node.key != held.function.home:
            return
        for place in sorted(held.own.graded):
            for spec in held.function.operands.get(place, ()):
                if real(spec) and self._value(spec, node, values).trained:
                    yield place, spec

    def _forward(self, node: Node, values: Values) -> None:
        """Which results have a gradient, and which depend on an input."""
        known = rule(node.op)
        stops = known is not None and known.backward is no_gradient and node.stands_for_itself
        trained = node.training.starts or (bool(self._wanted(node, values)) and not stops)
        if held := self._known(node):
            trained = self._is_graded(held, node, values)
            if held.own and held.own.as_needed:  # nothing asks for what it hands on to nobody
                trained = bool(self._wanted(node, values))
        given = [self._value(spec, node, values) for spec in node.inputs if spec is not None]
        if node.op.type == "Concat" and len(given) == 2 and node.outputs[0]:
            self._joined[node.outputs[0].name] = [value.trained for value in given]
        varying = any(value.varying for value in given) or (not node.constant and not given)
        results = [GradientState(trained, varying)] * len(node.outputs)
        if node.bodies:
            results = self._through(node, values, varying)
        straight = {spec.dtype for _, spec in self._wanted(node, values) if not real(spec)}
        for spec, value in zip(node.outputs, results, strict=True):
            if spec is not None:
                graded = real(spec) or node.op.type == _ROUNDED or spec.dtype in straight
                has_one = value.trained or spec.name in self.constants
                values[spec.name] = GradientState(has_one and graded, value.varying)

    def _through(self, node: Node, values: Values, varying: bool) -> list[GradientState]:
        """The results of a node with bodies: a loop is run until nothing new has a gradient."""
        results = [GradientState(False, varying)] * len(node.outputs)
        for body in node.bodies:
            for inner in self._runs(node, body, values):
                ends = body.outputs[_skipped(node)[1] :]
                for place, spec in enumerate(ends[: len(results)]):
                    results[place] = _either(results[place], inner.get(spec.name, FIXED))
        return results

    def _runs(self, node: Node, body: Graph, values: Values) -> list[Values]:
        """The values of a body in its first run, the next one, and on until they stay the same."""
        if node.choice == "function":
            return [self._inner({}, node, body, self._bound(node, body, values))]
        first, results = _skipped(node)
        states = [spec.name for spec in body.inputs][first : first + _carried(node, body)]
        ends = [spec.name for spec in body.outputs][results:]
        given = self._bound(node, body, values)
        runs = [self._inner(values, node, body, given)]
        if self._weights.loops_alike:
            return [
                self._lasting(node, body, values, given, dict(zip(states, ends, strict=False)))
            ]
        while states:
            handed = {
                name: runs[-1].get(end, FIXED) for name, end in zip(states, ends, strict=False)
            }
            if all(given.get(name) == value for name, value in handed.items()):
                break
            given = {**given, **handed}
            if any(all(run.get(n) == v for n, v in given.items()) for run in runs):
                break  # states that change places: the runs before have seen all of it
            runs.append(self._inner(values, node, body, given))
        return runs

    def _lasting(
        self, node: Node, body: Graph, values: Values, given: Values, states: dict[str, str]
    ) -> Values:
        """The values of a body where what has a gradient in one run has it in each."""
        while True:
            run = self._inner(values, node, body, given)
            joined = {
                name: _either(given.get(name, FIXED), run.get(end, FIXED))
                for name, end in states.items()
            }
            if all(given.get(name, FIXED) == value for name, value in joined.items()):
                return run
            given = {**given, **joined}

    def _bound(self, node: Node, body: Graph, values: Values) -> Values:
        """The inputs of a body, as the node gives them to its first run."""
        pairs = zip(body.inputs, node.inputs, strict=False)
        return {
            name.name: self._value(spec, node, values) if spec is not None else FIXED
            for name, spec in pairs
        }

    def _inner(self, around: Values, node: Node, body: Graph, given: Values) -> Values:
        """The values of a body when it has run on these."""
        inner = {**around, **given}
        for below in body.nodes:
            self._forward(below, inner)
        return inner

    def _node(
        self,
        prefix: str,
        node: Node,
        together: Sequence[Node],
        values: Values,
        live: Mapping[str, set[str]],
        used: set[str],
    ) -> Iterable[tuple[str, TrainingStep]]:
        """The work of one node: its own, or that of its bodies, or of what it stands for.

        `together` are the nodes that were written for the same operation.
        """
        if node.bodies and node.stands_for_itself:
            yield from self._bodies(prefix, node, values, live, used)
            return
        if known := self._known(node):
            step = TrainingStep(forward=self._cost(node, values)[0])
            if node.key == known.function.home and node.key in live:
                step = step + self._of_function(prefix, known, node, values, used)
            yield prefix + node.key, step
        else:
            running = [live[part.key] for part in together if part.key in live]
            reached = set().union(*running) if running else None
            for meant in self._meant(node, together, values):
                yield prefix + node.key, self._own(prefix, meant, values, reached, used)
        for held in self._beside.get(node.key, ()):
            yield prefix + node.key, self._of_function(prefix, held, node, values, used)

    def _of_function(
        self, prefix: str, held: _OwnFunction, node: Node, values: Values, used: set[str]
    ) -> TrainingStep:
        """What the own backward pass of a custom function runs.

        It is for weights where it serves nothing but gradients of what no input decides.
        """
        key, own = prefix + node.key, held.own
        graded, given = self._is_graded(held, node, values), held.function.operands
        handed = list(self._handed_on(held, node, values))
        if own is None:
            if graded:
                self.unknown[key] = Unknown(key, node, self._derived(held))
            return NO_STEP
        if own.reason:
            self.unknown[key] = Unknown(key, node, own.reason)
        elif not held.function.nodes and own.ran and graded and not handed:
            self.unknown[key] = Unknown(key, node, _CUT)

        def varies(place: int) -> bool:
            held_by = given.get(place, ())
            inputs = place != DIRECTLY and not held_by
            return inputs or any(self._value(spec, node, values).varying for spec in held_by)

        step, wanted = NO_STEP, {place for place, _ in handed}
        for work in own.work:
            if own.as_needed and work.places.isdisjoint(wanted):
                continue
            if work.again:
                part = TrainingStep(recomputed=work.cost)
            elif not work.places or any(map(varies, work.places)):
                part = TrainingStep(inputs=work.cost)
            else:
                part = TrainingStep(weights=work.cost)
            step = step + part
        for place, spec in handed if held.function.nodes else ():
            if spec.name in used:
                added = Cost(adds=spec.numel)
                step = step + (
                    TrainingStep(inputs=added) if varies(place) else TrainingStep(weights=added)
                )
            used.add(spec.name)
        return step

    def _meant(self, node: Node, together: Sequence[Node], values: Values) -> Iterable[Node]:
        """The node, or the operations that it stands for, on what goes into all of its nodes.

        A converter says which nodes, not which of their operands is which: those of one shape
        are told apart only where some have gradients and some have none.
        """
        operations = node.conversion.stands_for
        if operations is None:
            return (node,)
        made = {spec.name for part in together for spec in part.outputs if spec is not None}
        given = {
            spec.name: spec
            for part in together
            for spec in part.inputs
            if spec is not None and spec.name not in made and real(spec)
        }

        def meant(operation: Node) -> Node:
            inputs, unsure = list(operation.inputs), False
            for place, spec in enumerate(inputs):
                if spec is None or not real(spec):
                    continue
                # complex numbers have an axis of two parts
                shapes = spec.shape, (*(spec.shape or ()), 2)
                alike = [held for held in given.values() if held.shape in shapes]
                alike = alike or list(given.values())
                graded = [held for held in alike if self._value(held, node, values).trained]
                # the converter's own constants have none
                unsure |= 0 < len(graded) < sum(_is_alike(spec, other) for other in inputs)
                chosen = (graded or alike)[place % len(graded or alike)] if alike else spec
                inputs[place] = replace(spec, name=chosen.name, role=chosen.role)
            return replace(
                operation,
                inputs=tuple(inputs),
                call=node.call,
                path=node.path,
                training=TrainingAnnotation(
                    checkpoint=node.training.checkpoint,
                    own_backward=_OPERANDS if unsure else node.training.own_backward,
                ),
            )

        return map(meant, operations)

    def _bodies(
        self,
        prefix: str,
        node: Node,
        values: Values,
        live: Mapping[str, set[str]],
        used: set[str],
    ) -> Iterable[tuple[str, TrainingStep]]:
        if node.op.type in ("Loop", "Scan") and node.trips is None:
            self._without(prefix + node.key, node, "how often it runs depends on data")
            return
        works: list[Work] = []
        reached = live.get(node.key, set())
        for body in node.bodies:
            if node.choice == "function":
                works.append(self._function(node, body, values, reached))
            else:
                works.append(
                    self._looped(f"{prefix}{node.key}/", node, body, values, reached, used)
                )
        if node.op.type == "If" and node.choice == "" and len(works) > 1:
            works = [max(works, key=_forward_size)]  # as the ledger counts it
        for work in works:
            yield from work.items()

    def _function(self, node: Node, body: Graph, values: Values, reached: set[str]) -> Work:
        """The work of a local function, which other nodes may share."""
        (inner,) = self._runs(node, body, values)
        pairs = zip(body.outputs, node.outputs, strict=False)
        ends = {ours.name for ours, its in pairs if its is not None and its.name in reached}
        names = [spec.name for spec in body.inputs]
        key = (id(body), tuple(inner.get(name) for name in names), frozenset(ends))
        if key not in self._functions:
            self._functions[key], _ = self.scope(f"{body.name}/", body, inner, ends, set(ends))
        return self._functions[key]

    def _looped(
        self,
        prefix: str,
        node: Node,
        body: Graph,
        values: Values,
        reached: set[str],
        used: set[str],
    ) -> Work:
        """The work of all runs of a body, from the last one to the first.

        The last run hands on what reaches the loss of the node's own results; each one before
        also the states that have a gradient in the run behind it.
        """
        times = node.trips if node.trips is not None else 1
        runs = self._runs(node, body, values)
        first, results = _skipped(node)
        carried = _carried(node, body)
        inputs = [spec.name for spec in body.inputs][first : first + carried]
        outputs = [spec.name for spec in body.outputs][results:]
        pairs = zip(outputs, node.outputs, strict=False)
        ends = frozenset(ours for ours, its in pairs if its is not None and its.name in reached)
        if self._weights.loops_alike:
            if ends:  # a loop that does not reach the loss has no gradients at all
                handed = outputs[:carried]
                ends |= {end for end in handed if runs[-1].get(end, FIXED).trained}
            work, _ = self.scope(prefix, body, dict(runs[-1]), set(ends), {*used, *ends})
            return {name: step * times for name, step in work.items()}
        lasting = ends - set(outputs[:carried])
        known: dict[tuple[int, frozenset[str], frozenset[str]], tuple[Work, set[str]]] = {}
        outer = frozenset(_captured(node)) - {spec.name for spec in body.inputs}
        summed: Work = {}
        run = max(times, 1) - 1
        while run >= 0:
            phase = min(run, len(runs) - 1)
            key = phase, ends, frozenset(used & outer)
            if key not in known:
                taken = set(used) | set(ends)
                work, alive = self.scope(prefix, body, dict(runs[phase]), set(ends), taken)
                known[key] = work, alive
                used |= taken & outer
            work, alive = known[key]
            states = {end for name, end in zip(inputs, outputs, strict=False) if name in alive}
            before = lasting | states
            same = before == ends and frozenset(used & outer) == key[2] and phase == len(runs) - 1
            count = run - phase + 1 if same else 1
            for name, step in work.items():
                summed[name] = summed.get(name, NO_STEP) + step * min(count, times)
            run, ends = run - count, before
        return summed

    def _own(
        self, prefix: str, node: Node, values: Values, live: set[str] | None, used: set[str]
    ) -> TrainingStep:
        """`live` are the results that reach the loss, None where the node does not run back."""
        key = prefix + node.key
        known = rule(node.op)
        wanted = self._wanted(node, values) if live is not None else []
        if wanted and self._cuts and UNSURE in node.training.severed:
            why = "one of its operands is detached, and which one is not known: counted as if none"
            self.unknown[key] = Unknown(key, node, why)
        reason = node.training.own_backward
        lost = reason == WEIGHT_MISSING and self._weights.trains_any()
        lost |= reason in (START_MISSING, TURNED)
        if (wanted or lost) and reason:
            self.unknown[key] = Unknown(key, node, reason)
        if wanted and (held := self._inside.get(node.key)):
            self.unknown[key] = Unknown(key, node, self._derived(held))
        if known is None:
            return self._without(key, node, missing(node.op)) if wanted else NO_STEP
        try:
            forward = known.formula(node)
            gradient = self._gradient(key, _reaching(node, known, live), known, wanted, forward)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            return self._without(key, node, str(error)) if wanted else NO_STEP
        if gradient.doubt:
            self.unknown[key] = Unknown(key, node, gradient.doubt)
        step = TrainingStep(forward=forward, inputs=gradient.inner, recomputed=gradient.recomputed)
        for place, spec in wanted:
            if place not in gradient.operands:
                continue
            work = gradient.operands[place]
            if spec.name in used:  # a further use: its gradient is added to that of the others
                work = work + Cost(adds=spec.numel)
            used.add(spec.name)
            varies = self._operand(node, place, spec, values).varying
            part = TrainingStep(inputs=work) if varies else TrainingStep(weights=work)
            step = step + part
        return step

    def _gradient(
        self,
        key: str,
        node: Node,
        known: OperatorRule,
        wanted: list[tuple[int, TensorSpec]],
        forward: Cost,
    ) -> Gradient:
        if not wanted:
            return Gradient({})
        if isinstance(known.backward, str):
            self._without(key, node, f"{node.op}: {known.backward}")
            return Gradient({})
        places = frozenset(place for place, _ in wanted)
        if (whole := node.training.derived_as) is not None:
            return _derived(node, whole, places, forward)
        if self._weights.loops_alike and node.op.type in _RECURRENT:
            places |= {_FIRST_STATE}  # handed back as the states after it
        directions = self._directions(node, places)
        if len(directions) == 1:
            return known.backward(node, places, forward)
        operands: dict[int, Cost] = defaultdict(lambda: ZERO)
        inner = ZERO
        for own in filter(None, directions):
            both = known.backward(node, own, forward)
            inner += _half(both.inner)
            for place, cost in both.operands.items():
                operands[place] += _half(cost)
        return Gradient(operands, inner=inner)

    def _directions(self, node: Node, places: frozenset[int]) -> list[frozenset[int]]:
        """What of these has a gradient in each direction of a recurrent layer, or in all of them.

        A converter joins the weights of two directions, of which one may be frozen.
        """
        if node.op.type not in _RECURRENT:
            return [places]
        joined = {
            place: self._joined[spec.name]
            for place, spec in enumerate(node.inputs)
            if spec is not None and spec.name in self._joined
        }
        ways = [
            frozenset(place for place in places if place not in joined or joined[place][way])
            for way in (0, 1)
        ]
        return ways if ways[0] != ways[1] else [places]

    def _without(self, key: str, node: Node, reason: str) -> TrainingStep:
        self.unknown[key] = Unknown(key, node, reason)
        return NO_STEP


def _everywhere(graph: Graph) -> Iterator[Node]:
    """All nodes, also those in bodies."""
    for node in graph.nodes:
        yield node
        for body in node.bodies:
            yield from _everywhere(body)


def _copies(graph: Graph) -> list[list[Node]]:
    """The nodes of loops that were unrolled: each node of a body as often as it runs."""
    copies: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        body, at, runs = node.key.partition("@")
        if at:
            copies[body + _RUN.sub("", runs)].append(node)
    return [nodes for nodes in copies.values() if len(nodes) > 1]


def _reach_alike(copies: Iterable[Sequence[Node]], ends: set[str]) -> bool:
    """Adds what reaches the loss in other runs of a loop; whether anything was added."""
    before = len(ends)
    for runs in copies:
        for results in zip(*(node.outputs for node in runs), strict=False):
            names = {spec.name for spec in results if spec is not None}
            ends |= names if names & ends else set()
    return len(ends) > before


def _reaching(node: Node, known: OperatorRule, live: set[str] | None) -> Node:
    """The node; results that are not `live` have no name, where its rule asks for that."""
    if not known.by_result or not live:
        return node
    outputs = tuple(
        spec if spec is None or spec.name in live else replace(spec, name="")
        for spec in node.outputs
    )
    return replace(node, outputs=outputs)


def _derived(node: Node, whole: Node, places: frozenset[int], forward: Cost) -> Gradient:
    """The gradients of a node's operands, as those of the operation that the node is part of."""
    known = rule(whole.op)
    assert known is not None
    assert callable(known.backward)
    names = [spec.name if spec is not None else "" for spec in node.inputs]
    operands = {
        place: place if names[place : place + 1] == [spec.name] else names.index(spec.name)
        for place, spec in enumerate(whole.inputs)
        if spec is not None and spec.name in names
    }
    wanted = frozenset(place for place, ours in operands.items() if ours in places)
    gradient = known.backward(whole, wanted, forward) if wanted else Gradient({})
    work = {operands[place]: cost for place, cost in gradient.operands.items()}
    return msgspec.structs.replace(gradient, operands=work)


def _half(cost: Cost) -> Cost:
    """The work of one of two equal directions."""
    return Cost(**{kind: amount // 2 for kind, amount in msgspec.structs.asdict(cost).items()})


def _is_alike(spec: TensorSpec, other: TensorSpec | None) -> bool:
    return other is not None and real(other) and other.shape == spec.shape


def _forward_size(work: Work) -> tuple[int, int]:
    forward = sum(work.values(), NO_STEP).forward
    return forward.macs, forward.flops


def _either(left: GradientState, right: GradientState) -> GradientState:
    return GradientState(left.trained or right.trained, left.varying or right.varying)


def _carried(node: Node, body: Graph) -> int:
    """How many states a loop hands from one run of its body to the next one."""
    if node.op.type == "Loop":
        return len(body.inputs) - _skipped(node)[0]
    if node.op.type == "Scan":
        scanned = node.attrs.get("num_scan_inputs", 0)
        return len(body.inputs) - (scanned if isinstance(scanned, int) else 0)
    return 0


def _skipped(node: Node) -> tuple[int, int]:
    """How many inputs and results of a body come before the states: those of a Loop of its own."""
    return (2, 1) if node.op.type == "Loop" and not node.op.domain else (0, 0)


def _captured(node: Node) -> set[str]:
    """What bodies read from around them, and the node itself gives to them."""
    names: set[str] = set()
    for body in node.bodies:
        for inner in body.nodes:
            names |= {spec.name for spec in inner.inputs if spec is not None} | _captured(inner)
    if node.bodies:
        names |= {spec.name for spec in node.inputs if spec is not None}
    return names


def total(step: Steps) -> TrainingStep:
    """The whole model."""
    return sum(step.by_key.values(), NO_STEP)


# The rule of thumb, a backward pass of twice the forward one, and what makes it wrong.


class FlatDifference(msgspec.Struct, frozen=True):
    """MACs by which the exact count of a step differs from the rule of thumb, for one cause.

    `by_key` are those of single nodes.
    """

    cause: str
    macs: int
    by_key: Mapping[str, int] = {}


def beside_parameters(
    graph: Graph, trace: Trace, tokens: int
) -> tuple[int, tuple[FlatDifference, ...]]:
    """6 N D as MACs, 3 for each parameter and token, and what leads from there to 3 x forward.

    `tokens` D is 6 N D's. Parameters meet another number of tokens where they are looked up or
    added, tied, shared by windows or chosen by a router; attention multiplies no parameters.
    Source: Kaplan et al., 2001.08361, 2.1.
    """
    ideal = total(steps(graph, Everything(trace), cuts=False))
    thumb = 3 * graph.params * tokens
    by_cause = {
        "forward.parameters": 3 * ideal.weights.macs - thumb,
        "forward.attention": 3 * (ideal.forward.macs - ideal.weights.macs),
    }
    return thumb, tuple(FlatDifference(cause, macs) for cause, macs in by_cause.items() if macs)


def differences(graph: Graph, trace: Trace, exact: Steps) -> tuple[FlatDifference, ...]:
    """The exact MACs of a step minus 3 x forward, by cause; those of no node are left out.

    Everything trained and nothing cut, against twice the forward pass: operands that need no
    gradient even so, such as the input of the first layer. Then what is cut, then what is frozen,
    then what is run again, then what custom functions do in a way of their own.
    """
    everything = Everything(trace, exact)
    ideal = steps(graph, everything, cuts=False).by_key
    reached = steps(graph, everything).by_key
    derived = (exact.derived or exact).by_key
    by_cause: dict[str, dict[str, int]] = {}
    for key, step in exact.by_key.items():
        flat, whole, trained = (known.get(key, NO_STEP) for known in (ideal, reached, derived))
        again = trained.checkpointed.macs
        causes = {
            "backward.first-layer": flat.backward.macs - 2 * flat.forward.macs,
            "backward.cut": whole.backward.macs - flat.backward.macs,
            "backward.frozen": trained.backward.macs - whole.backward.macs,
            "backward.attention-recomputed": trained.recomputed.macs - again,
            "backward.checkpoint": again,
            "backward.custom-function": step.macs - trained.macs,
        }
        for cause, macs in causes.items():
            by_cause.setdefault(cause, {})[key] = macs
    rows = (FlatDifference(cause, sum(by.values()), by) for cause, by in by_cause.items())
    return tuple(row for row in rows if any(row.by_key.values()))
