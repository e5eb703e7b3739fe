"""Formulas of a user in adapters: how a tool's own mechanism for formulas is given them.

An adapter that is a `TakesFormulas` can be taught: its `copy_with_formulas` returns one whose
`formulas` its `profile` hands to the tool, each as a function made of those below.
"""

import importlib
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from crossflops.errors import FormulaError
from crossflops.ir.ledger import Cost
from crossflops.tools.teaching import cost_of_call, name_module_operands

if TYPE_CHECKING:
    from crossflops.operators.formula import Formula
    from crossflops.plugins.adapter import Adapter


class TakesFormulas:
    """An adapter whose tool has a mechanism for formulas: `Convention.teaching` names it."""

    formulas: "tuple[Formula, ...]" = ()

    def copy_with_formulas(self, formulas: "Sequence[Formula]") -> Self:
        """Return a copy of the adapter that gives these formulas to its tool."""
        taught = copy(self)
        taught.formulas = tuple(formulas)
        return taught


def can_be_taught(adapter: object) -> bool:
    """Return whether the adapter can give formulas of a user to its tool."""
    return hasattr(adapter, "copy_with_formulas")


def teach_adapter(adapter: "Adapter", names: Sequence[str]) -> "Adapter":
    """Return the adapter with the formulas of these operators; the same adapter if there are none.

    Raises FormulaError for one that this process has not, which a script registers by itself.
    """
    if not names:
        return adapter
    from crossflops.operators.formula_sources import formulas_in_force

    known = {formula.name: formula for formula in formulas_in_force()}
    if missing := [name for name in names if name not in known]:
        raise FormulaError(
            f"the formula of {missing[0]} cannot be loaded by the Python that runs {adapter.name}",
            "write the formula into a file, and give it with --formulas FILE.py",
        )
    teachable: Any = adapter
    taught: Adapter = teachable.copy_with_formulas([known[name] for name in names])
    return taught


def classes_with_formulas(formulas: "Sequence[Formula]") -> "dict[Any, Formula]":
    """Return the formulas by the module class that each is about, limited to classes that are
    imported.
    """
    from crossflops.operators.formula import find_loaded_class

    pairs = ((find_loaded_class(formula.module), formula) for formula in formulas)
    return {kind: formula for kind, formula in pairs if kind is not None}


def operators_with_formulas(formulas: "Sequence[Formula]") -> "dict[Any, Formula]":
    """Return the formulas by the PyTorch operator that each is about, limited to operators that
    exist.
    """
    torch: Any = importlib.import_module("torch")
    packets: dict[Any, Formula] = {}
    for formula in formulas:
        namespace, _, name = formula.name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if packet is not None:
            packets[packet] = formula
    return packets


# The cost of a call, as tools hand it over.


def cost_of_module_call(formula: "Formula", module: Any, inputs: Any, output: Any) -> Cost:
    """Return the cost that a formula gives for one call of a module, from what a forward hook
    receives.
    """
    from crossflops.frontends.pytorch.load.tensors import (
        plain_arguments_by_name,
        torch_tensor_spec,
        torch_tensor_specs,
    )
    from crossflops.frontends.pytorch.record.modules import module_settings
    from crossflops.operators.formula import module_call_attributes

    weights = [torch_tensor_spec(name, value) for name, value in module.named_parameters()]
    operands = name_module_operands(formula, torch_tensor_specs(tuple(inputs)), weights)
    outputs = torch_tensor_specs(output)
    plain = plain_arguments_by_name(tuple(inputs), {})
    attributes = module_call_attributes(formula, module_settings(module), plain)
    return cost_of_call(formula, operands, outputs, attributes)


def cost_of_operator_call(
    formula: "Formula", packet: Any, args: Sequence[Any], kwargs: Any, output: Any
) -> Cost:
    """Return the cost that a formula gives for one call of an operator, from its arguments and its
    result.
    """
    from crossflops.frontends.pytorch.load.tensors import torch_tensor_specs

    schema = getattr(packet, packet.overloads()[0])._schema
    provided: dict[str, Any] = {
        argument.name: argument.default_value
        for argument in schema.arguments
        if argument.has_default_value()
    }
    provided |= dict(zip((argument.name for argument in schema.arguments), args, strict=False))
    provided |= kwargs
    tensors = {name: tuple(torch_tensor_specs(value, name)) for name, value in provided.items()}
    settings = {name: value for name, value in provided.items() if not tensors[name]}
    operands = (spec for argument in schema.arguments for spec in tensors.get(argument.name, ()))
    return cost_of_call(formula, operands, torch_tensor_specs(output), settings)


def cost_of_traced_node(formula: "Formula", outputs: Sequence[Any]) -> Cost:
    """Return the cost that a formula gives for a node of a torch.jit graph, from the node's
    outputs.
    """
    from crossflops.frontends.pytorch.observe.jit_graph import jit_node_to_watched_call

    call = jit_node_to_watched_call(outputs[0].node(), [])
    return cost_of_call(formula, call.inputs, call.outputs, call.settings)
