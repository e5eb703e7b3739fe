"""How often the work of a forward contraction is done in training, from where gradients flow.

A contraction C = A B costs m MACs. Its gradients dA = dC B^T and dB = A^T dC cost m each, and
each is computed only where somebody needs it: a weight that is trained, or an operand that a
trained weight lies above. So the passes of a node are

    k = 1 + [A needs a gradient] + [B needs a gradient]

which is 3 within a network that is trained as a whole, 2 for its first layer (whose input needs
none) and for frozen layers above a trained one, and 1 below the lowest trained weight. The score
and value products of attention have no weights, but gradients for both operands: 3 as well.
Source: Kaplan et al., Scaling Laws for Neural Language Models, 2.1, for the factor; the rule by
operand is what automatic differentiation does (PyTorch, derivatives.yaml: mm, convolution).
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from fractions import Fraction

from crossflops.core.graph import Graph, Node
from crossflops.core.tensor import TensorSpec
from crossflops.errors import InputError
from crossflops.hardware.roofline.scopes import key_before

_FLOATS = ("float", "bfloat", "complex")
_ATTENTION = ("Attention", "FlexAttention", "MultiHeadAttention", "GroupQueryAttention")
_CONTRACTED = {"Gemm": (0, 1), "Conv": (0, 1), "ConvTranspose": (0, 1), "MatMul": (0, 1)}


class Gradients:
    """Which values need a gradient, for weights that are trained unless they are frozen."""

    def __init__(self, frozen: Iterable[str] = (), trainable: Iterable[str] = ()) -> None:
        self._frozen, self._trainable = tuple(frozen), tuple(trainable)
        self._met: set[str] = set()
        self.passes: dict[str, Fraction] = {}

    def of(self, graph: Graph) -> Mapping[str, Fraction]:
        """The passes of every node, by its key in the ledger.

        Raises InputError for a pattern that matches no weight, and where nothing is trained.
        """
        self._scope("", graph, {})
        for pattern in (*self._frozen, *self._trainable):
            if pattern not in self._met:
                raise InputError(
                    f"{pattern!r} matches no weight of {graph.name}",
                    "give modules or parameters, such as 'layer1*'; count --by module shows them",
                )
        return self.passes

    def _scope(self, prefix: str, graph: Graph, needs: dict[str, bool]) -> dict[str, bool]:
        """Walk the nodes in order; `needs` says of names from outside whether they need one."""
        for node in graph.nodes:
            asked = tuple(
                spec is not None and self._needed(spec, node, needs) for spec in node.inputs
            )
            found = self._bodies(prefix, node, asked, needs) if node.bodies else ()
            through = any(asked) or any(found)
            for place, spec in enumerate(node.outputs):
                if spec is not None:
                    inner = found[place] if place < len(found) else False
                    needs[spec.name] = _real(spec) and (inner or (through and not node.bodies))
            own = passes(node, asked)
            self.passes[prefix + node.key] = max(own, self.passes.get(prefix + node.key, own))
        return needs

    def _bodies(
        self, prefix: str, node: Node, asked: tuple[bool, ...], needs: dict[str, bool]
    ) -> tuple[bool, ...]:
        """Whether the outputs need a gradient, of a node with bodies.

        A function takes the inputs of its node in order, so does Scan; Loop has two of its own
        before them, and one result before its others. What a run hands to the next one is followed
        once more. The branches of an If have no inputs.
        """
        skipped = {"Loop": 1}.get(node.op.type, 0)
        results: list[bool] = []
        for body in node.bodies:
            given = dict(zip((one.name for one in body.inputs), asked, strict=False))
            for _ in range(1 if node.choice == "function" else 2):
                outer = {} if node.choice == "function" else dict(needs)
                inner = self._scope(key_before(prefix, node, body), body, {**outer, **given})
                ends = [inner.get(one.name, False) for one in body.outputs][skipped:]
                for one, end in zip(list(given)[2 * skipped :], ends, strict=False):
                    given[one] = given[one] or end
            results = [
                old or new for old, new in zip(results or [False] * len(ends), ends, strict=False)
            ]
        return tuple(results)

    def _needed(self, spec: TensorSpec, node: Node, needs: dict[str, bool]) -> bool:
        if spec.name in needs:
            return needs[spec.name]
        return spec.role == "parameter" and _real(spec) and self._is_trained(spec, node)

    def _is_trained(self, spec: TensorSpec, node: Node) -> bool:
        names = (spec.name, node.path, node.key)
        frozen, trained = (
            self._matching(self._frozen, names),
            self._matching(self._trainable, names),
        )
        return trained or not frozen

    def _matching(self, patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
        found = [one for one in patterns if any(matches(name, one) for name in names)]
        self._met.update(found)
        return bool(found)


def matches(name: str, pattern: str) -> bool:
    """Whether the glob is the name, or a module around it: `layer1` matches `layer1.0.conv1`."""
    return bool(name) and (fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*"))


def passes(node: Node, needed: tuple[bool, ...]) -> Fraction:
    """k of one node, from which of its inputs need a gradient.

    Of attention O = softmax(Q K^T) V both products have the same size (to the depth of a head):
    dV is half of the node's work, dP = dO V^T another half where Q or K need one, dQ and dK half
    each. Operators that this knows nothing about are taken as one contraction of their data with
    their weights.
    """
    if node.op.type in _ATTENTION:
        query, key, value = (*needed, False, False, False)[:3]
        halves = value + (query or key) + query + key
        return 1 + Fraction(int(halves), 2)
    places = _CONTRACTED.get(node.op.type, range(len(needed)))
    return Fraction(1 + min(2, sum(needed[place] for place in places if place < len(needed))))


def _real(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(_FLOATS)
