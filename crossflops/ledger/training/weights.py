"""Which stored tensors of a model a training step updates."""

from collections.abc import Iterable

from crossflops.errors import InputError
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.trace import Parameter, Trace
from crossflops.ir.training import Steps, matches_weight_pattern
from crossflops.ledger.training.loops import nodes_with_bodies
from crossflops.ledger.training.states import GradientState, is_differentiable_tensor

# The first of the inputs that say how to work, and are stored with a file as weights are.
_SETTINGS = {"Resize": 1, "Upsample": 1, "Clip": 1, "Pad": 1, "Dropout": 1}
_SETTINGS |= {"QuantizeLinear": 1, "DequantizeLinear": 1}  # scales, which observers set
# PyTorch has no gradients for the weights of classes.
_SETTINGS |= {"NegativeLogLikelihoodLoss": 2, "SoftmaxCrossEntropyLoss": 2}


class TrainedWeights:
    """The stored tensors that are trained: as the model says, unless a pattern overrides it.

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
        self.is_gradient_equal_in_all_loop_runs = trace.loops_alike
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

    def is_trained_operand(self, spec: TensorSpec, node: Node) -> bool:
        """Return whether this input of the node is a stored tensor that the step trains."""
        if spec.role != "parameter" or not is_differentiable_tensor(spec):
            return False
        index = next((at for at, provided in enumerate(node.inputs) if provided is spec), 0)
        if index >= _SETTINGS.get(node.op.type, index + 1):
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
        provided = not self._of_calls if parameter is None else parameter.trainable
        return self._is_trained(names, trainable=provided and not number)

    def trains_any(self) -> bool:
        """Return whether the step trains any parameter of the model, used or not."""
        stored = self._by_name.values()
        return any(self._is_trained(self._names[row.storage], row.trainable) for row in stored)

    def _is_trained(self, names: Iterable[str], trainable: bool) -> bool:
        """Return whether a weight with these names is trained: by the patterns, else by
        `trainable`.
        """
        named = self._matches_any_name(self._trainable, names)
        frozen = self._matches_any_name(self._frozen, names)
        return named or (trainable and not frozen)

    def names_of_trained_constants(self, graph: Graph) -> set[str]:
        """Return the names of the results of trained Constant nodes, if all weights of a file are
        Constant nodes; else an empty set.

        Beside weights that are stored as such, a Constant is a number of the model's own.
        """
        made = {
            s.name: n
            for n in nodes_with_bodies(graph)
            if n.op.type == "Constant"
            for s in n.outputs
            if s
        }
        if self._of_calls or not {stored.name for stored in self._by_name.values()} <= made.keys():
            return set()
        weights = {name: node for name, node in made.items() if name in self._by_name}
        return {
            name
            for name, node in weights.items()
            if self._is_trained({name, node.path, node.key}, trainable=True)
        }

    def model_input_state(self, spec: TensorSpec) -> GradientState:
        """Return the gradient state of a model input: trained if it holds a parameter, else
        dependent on the input.
        """
        names = {spec.name, spec.name.removeprefix("in_")}  # a converter's, and the argument's
        trained = (
            self._given
            and is_differentiable_tensor(spec)
            and self._matches_any_name(self._trainable, names)
        )
        return GradientState(trained, varying=not trained)

    def check_patterns_match_weights(self, graph: Graph) -> None:
        """Raise InputError if a pattern of the caller matches no weight of the model."""
        hint = "give modules or parameters, such as 'layer1*'; `count --by module` lists them"
        floats = [
            spec.name.removeprefix("in_")
            for spec in graph.inputs
            if is_differentiable_tensor(spec)
        ]
        if self._given and floats:
            hint = f"give the name of an input that holds parameters, such as {floats[0]!r}"
            if self._frozen and self._trainable:
                named = ", ".join(self._frozen)
                raise InputError(
                    f"--frozen {named} and --trainable cannot be combined, because "
                    f"{graph.name} gets its parameters as inputs",
                    "leave out --frozen, and give --trainable once for each input that is trained",
                )
        for pattern in (*self._frozen, *self._trainable):
            if pattern not in self._met and not any(
                matches_weight_pattern(n, pattern) for n in self._by_name
            ):
                raise InputError(f"{pattern!r} matches no weight of {graph.name}", hint)

    def _matches_any_name(self, patterns: tuple[str, ...], names: Iterable[str]) -> bool:
        """Return whether a pattern matches one of the names; remember the patterns that did."""
        met = {
            pattern
            for pattern in patterns
            for name in names
            if matches_weight_pattern(name, pattern)
        }
        self._met |= met
        return bool(met)


class AllTrainable(TrainedWeights):
    """Weights of a rule of thumb, which trains all parameters, whatever the model says.

    Of its inputs those that `exact` says.
    """

    def __init__(self, trace: Trace, exact: Steps | None = None) -> None:
        super().__init__(trace, (), ("*",))
        self._updated = {spec.name for spec in exact.updated} if exact else set()

    def model_input_state(self, spec: TensorSpec) -> GradientState:
        """Return the gradient state of a model input: trained if the exact step updates it, else
        dependent on the input.
        """
        trained = spec.name in self._updated
        return GradientState(trained, varying=not trained)


class RequestedWeights(TrainedWeights):
    """Weights of `autograd.grad(..., inputs)`, which trains the parameters of these names."""

    def __init__(self, trace: Trace, names: frozenset[str]) -> None:
        super().__init__(trace, (), ())
        self._asked = names

    def _is_trained(self, names: Iterable[str], trainable: bool) -> bool:
        """Return whether one of the weight's names is among the requested ones."""
        return not self._asked.isdisjoint(names)
