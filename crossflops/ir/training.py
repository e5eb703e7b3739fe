"""A training step as counts: forward, gradients of inputs and of weights, what is run again."""

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.trace import StepSetting

# What a number is about: a whole training step, or its forward pass alone.
Passes: TypeAlias = Literal["training", "forward"]


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one training step, of a node or of all of them, without the optimizer's.

    `inputs` are the gradients of what depends on the inputs of the model, `weights` those of what
    depends on parameters alone. `recomputed` is forward work that the backward pass does again,
    and `checkpointed` what checkpoints have of that.
    """

    forward: Cost = ZERO
    inputs: Cost = ZERO
    weights: Cost = ZERO
    recomputed: Cost = ZERO
    checkpointed: Cost = ZERO

    @property
    def backward(self) -> Cost:
        """The cost of the gradients of inputs and of weights, without recomputed work."""
        return self.inputs + self.weights

    @property
    def macs(self) -> int:
        """The MACs of the whole step: forward, backward and recomputed."""
        return (self.forward + self.backward + self.recomputed).macs

    def __add__(self, other: "TrainingStep") -> "TrainingStep":
        return TrainingStep(
            forward=self.forward + other.forward,
            inputs=self.inputs + other.inputs,
            weights=self.weights + other.weights,
            recomputed=self.recomputed + other.recomputed,
            checkpointed=self.checkpointed + other.checkpointed,
        )

    def __mul__(self, times: int) -> "TrainingStep":
        return TrainingStep(
            forward=self.forward * times,
            inputs=self.inputs * times,
            weights=self.weights * times,
            recomputed=self.recomputed * times,
            checkpointed=self.checkpointed * times,
        )


NO_STEP = TrainingStep()


class Unknown(msgspec.Struct, frozen=True):
    """A node whose backward pass has no count, which is never zero, with the reason."""

    key: str
    node: Node
    reason: str


DIRECTLY = -1  # among the places that work is for: a parameter that is no argument


class OwnWork(msgspec.Struct, frozen=True):
    """Work of a custom function's own backward pass.

    It is for the gradients of the operands at these places, or `again` what its forward pass did.
    """

    places: frozenset[int]
    cost: Cost
    again: bool = False


class OwnBackward(msgspec.Struct, frozen=True):
    """The operations of a custom function's backward pass, where it runs.

    `graded` are the places of operands to which it hands a gradient. It `keeps` tensors of its
    forward pass or none. `reason` says why it is not known in full, where it is not. What its
    forward pass makes for gradients alone is among its work, and `early` by itself: a checkpoint
    runs that again. One that was traced and not run does `as_needed` only what serves a gradient
    that is wanted.
    """

    name: str
    ran: bool
    graded: frozenset[int]
    keeps: bool
    work: tuple[OwnWork, ...]
    reason: str = ""
    early: Cost = ZERO
    as_needed: bool = False


OwnBackwards: TypeAlias = tuple[OwnBackward, ...] | str  # of all functions, or why none is known


class Steps(msgspec.Struct, frozen=True):
    """The training step of a graph: of every node by its key in the ledger.

    `updated` are the stored tensors that get a gradient, each once by its name. Where a function
    has a backward pass of its own that is known, `derived` are the steps as its forward pass tells
    them.
    """

    by_key: dict[str, TrainingStep]
    unknown: tuple[Unknown, ...]
    updated: tuple[TensorSpec, ...] = ()
    derived: "Steps | None" = None

    @property
    def checkpointed(self) -> dict[str, Cost]:
        """The work that checkpoints recompute, by node key; only nodes that have such work."""
        steps = self.by_key.items()
        return {key: step.checkpointed for key, step in steps if step.checkpointed != ZERO}


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """A training step in the two units of a report: exact integers, the four parts apart."""

    forward_macs: int
    backward_input_macs: int
    backward_weight_macs: int
    recomputed_macs: int
    forward_flops: int
    backward_input_flops: int
    backward_weight_flops: int
    recomputed_flops: int

    @classmethod
    def from_step(cls, step: TrainingStep) -> "Training":
        """Return the MACs and FLOPs of a training step as plain integers, for a report."""
        return cls(
            forward_macs=step.forward.macs,
            backward_input_macs=step.inputs.macs,
            backward_weight_macs=step.weights.macs,
            recomputed_macs=step.recomputed.macs,
            forward_flops=step.forward.flops,
            backward_input_flops=step.inputs.flops,
            backward_weight_flops=step.weights.flops,
            recomputed_flops=step.recomputed.flops,
        )

    @property
    def macs(self) -> int:
        """The MACs of the whole step: forward, backward and recomputed."""
        backward = self.backward_input_macs + self.backward_weight_macs
        return self.forward_macs + backward + self.recomputed_macs

    @property
    def flops(self) -> int:
        """The FLOPs of the whole step, a count and not a rate."""
        backward = self.backward_input_flops + self.backward_weight_flops
        return self.forward_flops + backward + self.recomputed_flops


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """Operations by kind with their sum, and bytes; no contraction, so no MACs."""

    flops: int
    adds: int
    muls: int
    divs: int
    compares: int
    specials: int
    bytes_read: int
    bytes_written: int

    @classmethod
    def from_cost(cls, cost: Cost) -> "StepWork":
        """Return a cost as the work of a step, with its FLOPs. Raises ValueError if the cost has
        MACs.
        """
        if cost.macs:
            raise ValueError(f"{cost.macs} MACs, but there are no contractions")
        return cls(**{name: getattr(cost, name) for name in cls.__struct_fields__})


class OptimizerStep(StepWork, frozen=True, kw_only=True):
    """An optimizer's step over all trained parameters, each storage once; exact integers.

    `options` are those of the optimizer, 0 where one is off. `parameters` are the elements that
    are updated, in so many `tensors`. The work is that of the update alone; that of `clipping`,
    where gradients are clipped, stands beside it. `sources` say where the equations are from.
    """

    name: str
    options: dict[str, float]
    parameters: int
    tensors: int
    clipping: StepWork | UnsetType = UNSET
    sources: tuple[str, ...] = ()

    @classmethod
    def from_update(
        cls,
        update: Cost,
        clipping: Cost | None,
        *,
        name: str,
        options: dict[str, float],
        parameters: int,
        tensors: int,
        sources: tuple[str, ...],
    ) -> "OptimizerStep":
        """Return an optimizer's step, from the cost of the update and of gradient clipping (None
        without clipping).
        """
        return cls(
            **msgspec.structs.asdict(StepWork.from_cost(update)),
            clipping=UNSET if clipping is None else StepWork.from_cost(clipping),
            name=name,
            options=options,
            parameters=parameters,
            tensors=tensors,
            sources=sources,
        )

    @property
    def all_flops(self) -> int:
        """The FLOPs of the update and of gradient clipping together."""
        return self.flops + (self.clipping.flops if isinstance(self.clipping, StepWork) else 0)


# What a step does beside the forward pass, as calls: see `crossflops.ledger.step`.

# They begin the target of such a call, and the operator follows. What a checkpoint runs again is a
# call of the operator itself, unless the trace has one that runs it; one that is begun at most is
# told apart.
GRADIENTS, SCORES, AGAIN, BEGUN = "gradients:", "scores:", "again:", "begun:"


def gradient_call_key(call: str) -> str:
    """Return the key of the call that represents the gradients of an operator call."""
    return f"{call} (gradients)"


def score_rerun_key(call: str) -> str:
    """Return the key of the call that represents the attention scores which the backward pass of
    `call` recomputes.
    """
    return f"{call} (scores again)"


def rerun_call_key(call: str) -> str:
    """Return the key of the call that represents the second run of an operator call in a
    checkpoint.
    """
    return f"{call} (run again)"


def rerun_stop_call_key(call: str) -> str:
    """Return the key of the call that represents an operator call at which the recomputation of a
    checkpoint stops.
    """
    return f"{call} (begun again)"


def matches_weight_pattern(name: str, pattern: str) -> bool:
    """Return whether a glob pattern matches a name, or the name of a module that contains it."""
    return bool(name) and (fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*"))


def is_trained(names: Collection[str], trainable: bool, step: StepSetting) -> bool:
    """Return whether a step trains a parameter with these names: by the patterns of the step, else
    by `trainable`.
    """
    frozen, named = (
        any(matches_weight_pattern(name, pattern) for name in names for pattern in patterns)
        for patterns in (step.frozen, step.trainable)
    )
    return named or (trainable and not frozen)
