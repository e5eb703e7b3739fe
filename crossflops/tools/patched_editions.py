"""The clauses of tools that replace PyTorch's functions, from their rules."""

from typing import Any

import msgspec

from crossflops.ir.convention import Clause, Convention, Match, Parameters
from crossflops.ir.trace import NESTED
from crossflops.tools import layers
from crossflops.tools.operators import CONTRACTIONS, HOOKS, VMAP
from crossflops.tools.patched import EINSUM, Rule

# name, cause, formula and factor of what hooks add for recurrent layers
GATES = ("recurrent.gates", "rnn.gate-elementwise", "patched.gates", 1)
RECURRENT_BIAS = ("recurrent.bias", "bias.rnn", "patched.recurrent_bias", 1)
FIRST_ADDS = ("recurrent.first-adds", "unit.first-add-omitted", "patched.first_adds", -1)

_AT = "torch.Tensor.__matmul__"
# What an encoder calls on nested tensors beside linear, and the formulas of what it drops there.
_IN_ENCODERS = {"relu", "transcendental", "layer_norm"}
_NESTED = {
    "patched.linear": "patched.linear_nested",
    "patched.elements": "patched.elements_dropped",
    "patched.norm": "patched.norm_dropped",
}
FAST_PATHS = ("aten._native_multi_head_attention*", "aten._transformer_encoder_layer*")


class Edition:
    """Writes the clauses of one edition of a tool; `source` is its file.

    `times` is how often a module counts, `hooked_times` a recurrent layer.
    """

    def __init__(self, prefix: str, source: str, times: str | None, hooked_times: str) -> None:
        self._prefix = prefix
        self._source = source
        self._times = times
        self._hooked_times = hooked_times

    def function(self, rule: Rule, name: str = "", factor: int = 1, **match: Any) -> Clause:
        """A rule as a clause: it holds where the function is called by its name."""
        return Clause(
            id=f"{self._prefix}.{name or rule.name}",
            cause=rule.cause,
            level="function",
            match=Match(targets=rule.targets, reached="attribute", **match),
            kind="core" if rule.core else "part",
            formula=rule.formula,
            factor=factor,
            times=self._times,
            reference=f"{self._source}: {rule.source}",
        )

    def products(self, rules: tuple[Rule, ...]) -> tuple[Clause, ...]:
        """Rules for contraction work; under `torch.vmap` a function sees one example of many."""
        found = [
            self.function(
                msgspec.structs.replace(rule, cause="function.vmap"),
                f"{rule.name}.vmapped",
                under=(VMAP,),
            )
            for rule in rules
            if rule.name in {"linear", "convolution", "matmul"}
        ]
        nested = [self.nested(rule) for rule in rules if rule.name == "linear"]
        plain = [self.function(rule) for rule in rules]
        return (*found, *nested, *plain)

    def nested(self, rule: Rule) -> Clause:
        """A rule on a nested tensor, of which an encoder drops what a padding mask covers.

        A product is booked so in the place of its rule, of other work what is dropped beside it.
        """
        dropped = msgspec.structs.replace(
            rule, cause="attention.padding-skipped", formula=_NESTED[str(rule.formula)]
        )
        factor = 1 if rule.core else -1
        return self.function(dropped, f"{rule.name}.nested", factor, fused=(f"{NESTED}*",))

    def parts(self, rules: tuple[Rule, ...]) -> tuple[Clause, ...]:
        """Rules for all other work, those of a layer of an encoder on nested tensors too."""
        nested = [self.nested(rule) for rule in rules if rule.name in _IN_ENCODERS]
        return (*map(self.function, rules), *nested)

    def uncounted(self, rules: tuple[Rule, ...]) -> tuple[Clause, ...]:
        """Rules of which this number has nothing, and which may end the tool all the same."""
        return tuple(self.function(rule, factor=0) for rule in rules)

    def recurrent(
        self, *parts: tuple[str, str, str, int], counted: bool = True
    ) -> tuple[Clause, ...]:
        """The hooks of recurrent layers: their products, if `counted`, and these parts.

        A part is its name, cause, formula and factor.
        """
        rows = [("recurrent", "rnn.fused", "patched.recurrent", 1 if counted else 0), *parts]
        targets = (*layers.RECURRENT, *layers.CELLS)
        return tuple(
            Clause(
                id=f"{self._prefix}.{name}",
                cause=cause,
                level="module",
                match=Match(targets=targets, via="call"),
                kind="core" if name == "recurrent" else "part",
                formula=formula,
                factor=factor,
                times=self._hooked_times,
                stands_for=layers.operators(targets) if name == "recurrent" else (),
                reference=f"{self._source}: _rnn_flops",
            )
            for name, cause, formula, factor in rows
        )

    def unseen(self, replaced: tuple[Rule, ...]) -> tuple[Clause, ...]:
        """Why contraction work is not seen, the most particular reason first."""
        names = tuple(target for rule in replaced for target in rule.targets)
        recurrent = (*layers.RECURRENT, *layers.CELLS)
        fused = layers.operators(recurrent)
        attention = CONTRACTIONS["scaled_dot_product_attention"]
        rows = (
            ("fastpath", "attention.module-fastpath", Match(fused=FAST_PATHS)),
            ("captured", "functional.captured-reference", Match(entry=names, reached="reference")),
            (
                "direct-forward",
                "module.direct-forward",
                Match(targets=fused, within=recurrent, via="forward"),
            ),
            (
                "unregistered",
                "module.unregistered",
                Match(targets=fused, within=recurrent, registered=False),
            ),
            ("subclass", "module.type-unmatched", Match(targets=fused, bases=recurrent)),
            ("attention", "attention.sdpa", Match(targets=attention)),
            *_operators(names),
            ("scripted", "function.opaque", Match(under=("torch.jit.ScriptFunction.__call__",))),
            ("hook", "module.hook-work", Match(under=(HOOKS,))),
        )
        return tuple(
            Clause(
                id=f"{self._prefix}.unseen.{name}",
                cause=cause,
                level="operator",
                match=match,
                kind="unseen",
                reference=f"{self._source}: _patch_functionals",
            )
            for name, cause, match in rows
        )

    def convention(
        self,
        tool: str,
        version: str,
        unit: int,
        printed_as: str,
        clauses: tuple[Clause, ...],
        parameters: Parameters,
    ) -> Convention:
        """The edition of a version: the tool switches to evaluation and hooks every module."""
        return Convention(
            tool=tool,
            edition=version,
            verified=(version,),
            unit=unit,
            printed_as=printed_as,
            sees="function",
            counts_dead=True,
            unseen="op.unregistered-zero",
            forces={"training": False, "hooked": True},
            source=self._source,
            clauses=clauses,
            parameters=parameters,
        )


def _operators(replaced: tuple[str, ...]) -> tuple[tuple[str, str, Match], ...]:
    """The operator @, where torch.matmul would have been seen in its place."""
    if _AT in replaced or "torch.matmul" not in replaced:
        return ()
    return (("operator", "matmul.operator-invisible", Match(entry=(_AT,))),)


def pair(
    tool: str,
    version: str,
    source: str,
    products: tuple[Rule, ...],
    parts: tuple[Rule, ...],
    *,
    times: str | None,
    hooked_times: str,
    parameters: Parameters,
) -> tuple[Convention, Convention]:
    """The two numbers of one run: FLOPs as `tool`, and MACs as `tool`-macs.

    FLOPs are twice the MACs of the products, and all parts. MACs are those of the replaced
    functions alone: neither einsum nor recurrent layers have any.
    """
    flops = Edition(tool, source, times, hooked_times)
    macs = Edition(f"{tool}-macs", source, times, hooked_times)
    return (
        flops.convention(
            tool,
            version,
            2,
            "FLOPs",
            (
                *flops.products((*products, EINSUM)),
                *flops.parts(parts),
                *flops.recurrent(GATES, RECURRENT_BIAS, FIRST_ADDS),
                *flops.unseen((*products, EINSUM)),
            ),
            parameters,
        ),
        macs.convention(
            f"{tool}-macs",
            version,
            1,
            "MACs",
            (
                *macs.products(products),
                *macs.uncounted((EINSUM, *(rule for rule in parts if rule.fails))),
                *macs.recurrent(counted=False),
                *macs.unseen((*products, EINSUM)),
            ),
            parameters,
        ),
    )
