"""List parameters of JAX primitives that jax2onnx loses, and what is done for each.

A test reads the source of every rule, and finds the parameters of `IGNORED` and none beside them.
"""

from collections.abc import Mapping
from typing import Any

from crossflops.frontends.jax.convert.rewrites import EquivalentCode

# What is lost with a parameter that no rule reads, where nothing of the work is.
KERNEL = "which of several algorithms runs, with the same result"
PLACE = "on which devices and where in memory operands and results lie"
GRADIENT = "it is for the backward pass alone, or says how weak a type is"
CALL = "how a function is compiled and called, with the same result"
IMPLIED = "it follows from the operands or the results"
SOURCE = "the generator of the numbers that are drawn, as many from any"
PROMISE = "what the caller promises of the indices"
ALLOWED = "an order or a result that is left open"
OPAQUE = "jax2onnx writes no such operation: it stays one node of the domain jax"
MENDED = "it is read below, or by another form of ours"
TYPE = "the type of the operands is computed in, as `export --verify` says of a model"

IGNORED: Mapping[str, str | Mapping[str, str]] = {
    "aggregate_to_topk": MENDED,
    "algorithm": {"eigh": OPAQUE, "svd": OPAQUE, "rng_bit_generator": SOURCE},
    "check_vma": PLACE,
    "compiler_options_kvs": CALL,
    "context_mesh": PLACE,
    "copy_semantics": PLACE,
    "ctx_mesh": PLACE,
    "devices": PLACE,
    "differentiated": GRADIENT,
    "dimensions": {"reshape": MENDED},
    "donated_invars": CALL,
    "enable_eigvec_derivs": GRADIENT,
    "expand_complex_convolutions": KERNEL,
    "fallback": KERNEL,
    "full_matrices": {"svd": OPAQUE},
    "impl": SOURCE,
    "implementation": KERNEL,
    "in_layouts": PLACE,
    "in_shardings": PLACE,
    "in_specs": {"shard_map": MENDED},
    "indices_are_sorted": PROMISE,
    "inline": CALL,
    "is_stable": ALLOWED,
    "keep_unused": CALL,
    "layout": PLACE,
    "mesh": {"shard_map": MENDED},
    "name": {"jit": CALL},
    "new_dtype": {"convert_element_type": IMPLIED},
    "newly_manual_axes": PLACE,
    "num_carry": {"scan": IMPLIED},
    "num_consts": {"scan": IMPLIED},
    "out_layouts": PLACE,
    "out_sharding": PLACE,
    "out_shardings": PLACE,
    "out_specs": {"shard_map": MENDED},
    "perturb_singular": ALLOWED,
    "policy": GRADIENT,
    "precision": KERNEL,
    "preferred_element_type": TYPE,
    "prevent_cse": CALL,
    "recall_target": ALLOWED,
    "reduction_input_size_override": ALLOWED,
    "rounding_method": {"round": MENDED},
    "sharding": PLACE,
    "sort_eig_vals": OPAQUE,
    "srcs": PLACE,
    "unconstrained_dims": PLACE,
    "unique_indices": PROMISE,
    "unroll": KERNEL,
    "update_consts": MENDED,
    "update_jaxpr": MENDED,
    "use_magma": KERNEL,
    "weak_type": GRADIENT,
}


def node_kind_of_lossy_equation(eqn: Any) -> str | None:
    """Return the type of node for an equation whose work jax2onnx would lose, or None.

    These are functions of selected elements, and the parts of an approximate search.
    """
    name, parameters = eqn.primitive.name, eqn.params
    if name == "scatter" and parameters.get("update_jaxpr") is not None:
        return "scatter_apply"
    if name == "approx_top_k" and not parameters.get("aggregate_to_topk", True):
        return "approx_top_k"
    return None


def permuting_reshape_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return a reshape that permutes axes as transpose + reshape, or None for others."""
    order = eqn.params.get("dimensions")
    if eqn.primitive.name != "reshape" or order is None:
        return None

    def transpose_and_reshape(x: Any) -> Any:
        """Return an array transposed and then reshaped, as lax.reshape with `dimensions` does."""
        from jax import lax

        return lax.reshape(lax.transpose(x, order), eqn.params["new_sizes"])

    return EquivalentCode(transpose_and_reshape)
