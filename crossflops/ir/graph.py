"""A computation graph as a counter needs it: operators, shapes and attributes, no weights.

Of a tensor there is a name, an element type and a shape, and never its values.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

_BITS = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8, "float8e5m2fnuz": 8,
    "float8e8m0": 8, "float6e2m3": 6, "float6e3m2": 6, "float4e2m1": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "uint2": 2,
    "bool": 8, "complex64": 64, "complex128": 128,
}  # fmt: skip
# Types in which weights are stored in blocks with scales of their own: elements and bytes of one.
# Source: ggml/src/ggml-common.h of llama.cpp, the structs block_*.
BLOCK_TYPES: Mapping[str, tuple[int, int]] = {
    "q1_0": (128, 18), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
    "q8_0": (32, 34), "q8_1": (32, 40), "q2_k": (256, 84), "q3_k": (256, 110),
    "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "q8_k": (256, 292),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74),
    "iq2_s": (256, 82), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18),
    "iq4_xs": (256, 136), "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17),
    "nvfp4": (64, 36),
}  # fmt: skip

DIGITS = 18  # of a size that is given: with more it may not fit into 64 bits


class TensorSpec(msgspec.Struct, frozen=True):
    """A tensor without its values.

    `name` says which tensor it is: a value name in a graph, an argument name in a call.
    `shape` is None when it is not known, and `()` for a scalar. `role` is "input",
    "parameter", "constant", "output" or "" for a plain intermediate value. `storage` is the type
    in which memory holds it, where that is not `dtype`: see `crossflops.frontends.quantization`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    role: str = ""
    storage: str = ""

    @property
    def storage_dtype(self) -> str:
        """The element type in which memory holds the tensor."""
        return self.storage or self.dtype

    @property
    def numel(self) -> int:
        """The number of elements. Raises ValueError if the shape is not known."""
        if self.shape is None:
            raise ValueError(f"the shape of {self.name!r} is not known")
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the dense tensor in bytes, with elements below one byte packed; 0 for
        strings.
        """
        if self.shape is None:
            raise ValueError(f"the shape of {self.name!r} is not known")
        return _shape_nbytes(self.storage or self.dtype, self.shape)


@lru_cache(maxsize=4096)  # a graph has few shapes, and asks several times for each tensor
def _shape_nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of a dense tensor of this type and shape, rounded up to whole bytes."""
    if dtype in BLOCK_TYPES:
        elements, size = BLOCK_TYPES[dtype]
        return -(-prod(shape) * size // elements)
    return (prod(shape) * _BITS.get(dtype, 0) + 7) // 8


Attribute: TypeAlias = (
    int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
)


UNSURE = -1  # among severed places: one more is cut, and which one is not known
WEIGHT_MISSING = "the converter wrote no weight of this layer into the file"
START_MISSING = "one of its inputs is a constant with a gradient; counted as if it had no gradient"
TURNED = (
    "the model switches the gradient of its weight on or off while it runs; counted as it "
    "was before the run"
)


class Op(msgspec.Struct, frozen=True):
    """An operator: `domain` is "" for ai.onnx, `since` the version of its schema in force."""

    domain: str
    type: str
    since: int

    def __str__(self) -> str:
        """Return "TYPE", or "DOMAIN.TYPE" outside of the standard domain."""
        return f"{self.domain}.{self.type}" if self.domain else self.type


KeptForBackward: TypeAlias = Literal["nothing", "operands", "results", "parts", "saved"]


class Checkpoint(msgspec.Struct, frozen=True):
    """The part of a model that one checkpoint runs again in the backward pass, by its number.

    A "reentrant" one runs all of it, and has gradients only where one of its arguments has. A
    "stopping" one ends where all is there that operators keep for their backward pass, a "whole"
    one does not; of a "needed" one runs again what some gradient needs, as JAX does it; an
    "unknown" one chooses in a way that is not followed. `keeps` is what a node in it keeps:
    operands, which are there before it runs, or also results; "parts" of one that keeps the
    results of some of its products; what is "saved" stays, and need not be run again. `around`
    is the checkpoint in which this one stands. What a policy has `saved` stays as well, and None
    says that it saves only a part of the node. `weights` says that a parameter is among what it is
    given, beside those that its part holds itself.
    """

    number: int
    kind: Literal["reentrant", "stopping", "whole", "needed", "unknown"]
    keeps: KeptForBackward = "results"
    around: "Checkpoint | None" = None
    saved: bool | None = False
    weights: bool = False


class TrainingAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """Training facts of a node that its operator does not tell.

    Through the inputs at the places in `severed` no gradient flows, since the model detaches them
    or runs the node without gradients; `UNSURE` stands among them where one is not known. `past`
    says by the place of an input from which value gradients see it made, where that was changed
    in place without gradients: a parameter stays one.
    What stands in a `checkpoint` may run again in the backward pass. A result of a node that
    `starts` has a gradient, whatever is trained before it. `own_backward` says why the backward
    pass of a node is not what its operator tells; it is known where the node is `derived_as` part
    of another operation, whose gradients its framework takes: inputs of the node are operands of
    that where they have the same name, and the gradients of its others are part of those.
    """

    severed: tuple[int, ...] = ()
    past: dict[int, TensorSpec] = {}
    starts: bool = False
    checkpoint: Checkpoint | None = None
    own_backward: str = ""
    derived_as: "Node | None" = None


class ConversionAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """The framework operation for which a converter wrote a node.

    A converter may write one operation as many nodes. The first of them `stands_for` that
    operation and costs what it costs, the others stand for nothing, (); None is a node that
    stands for itself. All of them are `written_for` the same one, by its identity.
    """

    stands_for: "tuple[Node, ...] | None" = None
    written_for: str = ""


NO_TRAINING, NO_CONVERSION = TrainingAnnotation(), ConversionAnnotation()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a graph.

    An input that is left out is None. `values` are the whole numbers of small inputs that are
    known without running the model (a shape, axes), by the place of the input. `call` is the key
    of the operator call that produced the node ("" if none is known), `path` the module it
    belongs to. A `constant` node depends on no input of the model: a converter that folds
    constants would remove it. In a loop that may hold for some of its runs alone, `constant_runs`
    says for how many, and of how many. Of an operator that works on some operands by themselves,
    `varying_inputs` are the places of those that depend on an input of the model, with the number
    of the other runs in which they are these. What `depends_on_inputs` would have other sizes for
    other values of the inputs, or may not be there at all. An operand or result of a `sparse` node
    stores only what is not zero: it does at most what it would with dense ones. `objection` is
    what ONNX's inference or the form of its operator says against a node that cannot run, where
    it does, and `remedy` what to do about it, "" where other sizes may do.

    `operand_names` are those of the inputs by the schema of an operator that is none of ONNX: of a
    list of tensors each bears the name of the list. () where nothing knows them. Of a node that is
    `opened` the body is what the kernel of its operator ran, on "fake" or "real" tensors;
    `closed` says why it has none.

    A `folded` node is part of the kernels around it: its first result is in memory what its first
    input is, and it moves its other inputs alone.

    `training` is what a training step knows of the node, and `conversion` what a converter wrote
    it for. On what a `dead` node makes no output of the graph depends: see `Graph.whole`.

    `bodies` are the subgraphs that may run, `trips` says how often. `choice` says which branch of
    an If is counted: "" the larger one; "constant", "asked" or "seen" the only one in `bodies`,
    since the condition is constant, the caller says so, or it alone ran; "sum" both. With
    "function" the body is that of a local function, which other nodes may share.
    """

    key: str
    op: Op
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec | None, ...]
    attrs: dict[str, Attribute] = {}
    values: dict[int, tuple[int, ...]] = {}
    call: str = ""
    path: str = ""
    bodies: tuple["Graph", ...] = ()
    trips: int | None = None
    choice: Literal["", "constant", "asked", "seen", "sum", "function"] = ""
    constant: bool = False
    constant_runs: tuple[int, int] = (0, 1)
    varying_inputs: tuple[tuple[int, frozenset[int]], ...] = ()
    depends_on_inputs: bool = False
    sparse: bool = False
    folded: bool = False
    objection: str = ""
    remedy: str = ""
    training: TrainingAnnotation = NO_TRAINING
    conversion: ConversionAnnotation = NO_CONVERSION
    dead: bool = False
    operand_names: tuple[str, ...] = ()
    opened: Literal["", "fake", "real"] = ""
    closed: str = ""

    @property
    def is_operation_of_model(self) -> bool:
        """Whether the node is itself an operation of the model, not one that a converter wrote
        instead of another operation.
        """
        return self.conversion.stands_for is None

    @property
    def with_source_arguments(self) -> "Node":
        """This node; if it has no attributes and was written for one operation of the same domain,
        a copy with the attributes of that operation.
        """
        operations = self.conversion.stands_for or ()
        if self.attrs or len(operations) != 1 or operations[0].op.domain != self.op.domain:
            return self
        return msgspec.structs.replace(self, attrs=operations[0].attrs)

    @property
    def source_operations(self) -> "tuple[Node, ...]":
        """The framework operations for which a converter wrote this node; the node itself if
        there are none.
        """
        operations = self.conversion.stands_for
        return (self,) if operations is None else operations

    def with_training(self, **changes: Any) -> "Node":
        """Return a copy of the node with these fields of its `training` annotation changed."""
        return replace(self, training=replace(self.training, **changes))


class Function(msgspec.Struct, frozen=True):
    """A custom autograd function that a model applied, by its `kind`.

    `nodes` are the keys of what its forward pass became, which may be nothing; `operands` the
    values that it is given by the place of the argument, of those that may have a gradient.
    `home` is the node whose row has the work of the backward pass. `name` is that of the class in
    its `module`, and `call` the key of the call in the trace, "" where there is none.
    """

    name: str
    nodes: tuple[str, ...]
    operands: dict[int, tuple[TensorSpec, ...]]
    home: str
    kind: str = "an autograd.Function"
    module: str = ""
    call: str = ""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes in topological order.

    `params` is the number of parameters of the model, `param_bytes` what they take in storage,
    by the types of their elements where these are known.
    `idle_params` of them belong to experts that a token does not choose, as far as calls showed.
    `digest` identifies the structure (operators, attributes, shapes), not the weights. `severed`
    are the places of outputs that are detached, so that no gradient flows back from them. Of
    values that have a gradient, whatever they are made of, `starts` says whether they depend on an
    input: constants, inputs, and what is detached, by the names that nodes' `past` gives it.
    `functions` are those with a backward pass of their own, in the order of their calls. `listed`
    are the stored tensors of a file whose elements are written one by one, not as raw bytes.
    `windows` are the keys that a query of a causal attention sees at most, by the path of its
    module, where its mask says so. `unchosen` are products of tokens with all experts, by the
    key of the call: how many experts a token chose, and of how many. `whole_calls` are the keys of
    operator calls within modules and functions that one node stands for, `replaced` the nodes of
    these calls.

    Of a file, nodes on which no output depends are not among the `nodes`. The `whole` graph has
    them, marked, where there are any: a run of the file does their work.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    params: int
    opset: dict[str, int]
    bindings: dict[str, int] = {}
    digest: str = ""
    param_bytes: int = 0
    param_bytes_by_type: Mapping[str, int] = {}
    idle_params: int = 0
    severed: tuple[int, ...] = ()
    starts: Mapping[str, bool] = {}
    functions: tuple[Function, ...] = ()
    listed: frozenset[str] = frozenset()
    windows: Mapping[str, int] = {}
    unchosen: Mapping[str, tuple[int, int]] = {}
    whole_calls: frozenset[str] = frozenset()
    replaced: tuple[Node, ...] = ()
    whole: "Graph | None" = None

    @property
    def with_all_nodes_of_file(self) -> "Graph":
        """The graph with all nodes of its file, also those on which no output depends."""
        return self.whole or self


class Control(msgspec.Struct, frozen=True):
    """A caller's choices for open loops and branches of a graph, by the names of nodes.

    `trips` says how often the body of a Loop, a Scan or a SequenceMap runs, `branches` which
    branch of an If counts: "then", "else" or "sum".
    """

    trips: Mapping[str, int] = {}
    branches: Mapping[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether any option for loops or branches is given."""
        return bool(self.trips or self.branches)
