"""Convert a Pallas kernel to its body, repeated for each position of its grid.

The interpreter of Pallas makes equations of it (jax/_src/pallas/hlo_interpreter.py): a loop over
the grid that cuts a block out of every array, runs the body, and puts the blocks back. Here the
loop is a scan of known length, and where the blocks lie is worked out before it: no arithmetic
but that of the body is left.
"""

import importlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from crossflops.frontends.jax.convert.rewrites import (
    EquivalentCode,
    gather_along_axis,
    scatter_block,
)
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

KERNEL = "pallas_call"
_MOST_PLACES = 1 << 16  # of a grid: the table of where blocks lie has a row for each
_INTERPRETER = "jax._src.pallas.hlo_interpreter"


def kernel_name(eqn: Any) -> str:
    """Return the name of a Pallas kernel: the one that its call gives it, or else that of its
    function; "" if neither is known.
    """
    if label := eqn.params.get("name"):
        return str(label)
    debug = getattr(eqn.params.get("jaxpr"), "debug_info", None)
    return str(getattr(debug, "func_src_info", None) or "").partition(" ")[0]


def kernel_as_jax_code(eqn: Any) -> EquivalentCode | None:
    """Return a Pallas kernel as JAX code, or None if its grid is unknown or too large."""
    mapping = eqn.params["grid_mapping"]
    if (
        not all(isinstance(size, int) for size in mapping.grid)
        or prod(mapping.grid) > _MOST_PLACES
    ):
        return None
    interpret = importlib.import_module(_INTERPRETER).pallas_call_hlo_interpret
    taken = inspect.signature(interpret).parameters
    params = {name: value for name, value in eqn.params.items() if name in taken}

    def run_kernel_with_grid_scan(*provided: Any) -> Any:
        """Return the results of the kernel by JAX's interpreter, with a scan over its grid."""
        with _running_grid_as_scan(mapping):
            return interpret(*provided, **params)

    return EquivalentCode(run_kernel_with_grid_scan, own=True)


@contextmanager
def _running_grid_as_scan(mapping: Any) -> Iterator[None]:
    """Return a context in which JAX's Pallas interpreter runs a grid as a scan."""
    interpreter: Any = importlib.import_module(_INTERPRETER)
    kind: Any = type(mapping.block_mappings[0]) if mapping.block_mappings else None
    tables = _block_index_tables(mapping)
    rows: dict[int, Any] = {}  # of the place where the body is: where its blocks begin and end

    def scan_grid(_: Any, body: Any, start: Any) -> Any:
        """Return the results of a grid loop's body, scanned over the positions of the grid."""
        return _scan_grid(mapping.grid, tables, rows, body, start)

    steps = {
        "loops": SimpleNamespace(while_loop=scan_grid),
        "_get_next_indices": lambda _, indices: indices,
        "_dynamic_slice": _read_block,
        "_dynamic_update_slice": _write_block,
    }
    with ExitStack() as stack:
        for name, replacement in steps.items():
            stack.enter_context(
                patching_attribute(interpreter, name, replacement, inventory.KERNELS)
            )
        if kind is not None:
            compute = kind.compute_start_indices_interpret
            known = lambda own, *more: rows.get(id(own)) or compute(own, *more)  # noqa: E731
            indices = inventory.KERNEL_PLACES
            stack.enter_context(
                patching_attribute(kind, "compute_start_indices_interpret", known, indices)
            )
        yield


def _grid_positions(grid: tuple[int, ...]) -> Any:
    """Return the positions of a grid as an array [positions, axes], last axis fastest."""
    return np.indices(grid, np.int32).reshape(len(grid), prod(grid)).T


def _block_sizes(block: Any) -> tuple[int, ...]:
    """Return the sizes of a block of a Pallas kernel's operand."""
    core: Any = importlib.import_module("jax._src.pallas.core")
    return tuple(core._get_block_shape(block.block_shape))


def _block_index_tables(mapping: Any) -> dict[int, list[Any]]:
    """Return by id of a block mapping the array indices that each grid position reads.

    One table for each axis, of grid positions x elements. Empty where blocks depend on data that
    is fetched before.
    """
    import jax

    if mapping.num_index_operands or mapping.vmapped_dims:
        return {}
    indices = _grid_positions(mapping.grid)
    tables = {}
    for block in mapping.block_mappings:
        with jax.ensure_compile_time_eval():
            begin = (
                jax.vmap(
                    lambda *index, own=block: own.compute_start_indices_interpret(index),
                    axis_size=len(indices),
                )(*indices.T)
                if len(mapping.grid)
                else [np.zeros(1, np.int32)] * len(_block_sizes(block))
            )
        tables[id(block)] = [
            np.broadcast_to(np.asarray(first), (len(indices),))[:, None] + np.arange(size)
            for first, size in zip(begin, _block_sizes(block), strict=True)
        ]
    return tables


def _scan_grid(
    grid: tuple[int, ...],
    tables: dict[int, list[Any]],
    rows: dict[int, Any],
    body: Any,
    start: Any,
) -> Any:
    """Return the values that a kernel's body carries after a scan over all grid positions."""
    import jax.numpy as jnp
    from jax import lax

    number, before, *carried = start

    def run_grid_position(carry: Any, here: Any) -> Any:
        """Return the carried values after the body at one grid position, and None."""
        index, indices = here
        rows.update({key: tuple(known) for key, known in zip(tables, indices, strict=True)})
        _, _, *results = body((number, tuple(index), *carry))
        return results, None

    # an array for each axis: which place a run is at is then known by the number of the run
    positions = [jnp.asarray(along) for along in _grid_positions(grid).T]
    known = [[jnp.asarray(axis, jnp.int32) for axis in table] for table in tables.values()]
    results, _ = lax.scan(run_grid_position, carried, (positions, known), length=prod(grid))
    return (number, before, *results)


def _block_element_indices(begin: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Return the array indices of a block along each axis, from where it begins."""
    import jax.numpy as jnp

    return [
        first if getattr(first, "ndim", 0) else first + jnp.arange(size, dtype=jnp.int32)
        for first, size in zip(begin, sizes, strict=True)
    ]


def _read_block(begin: Any, sizes: tuple[int, ...], array: Any, dropped: Sequence[bool]) -> Any:
    """Return a block of an array at these start indices, without the dropped axes."""
    from jax import lax

    for axis, indices in enumerate(_block_element_indices(begin, sizes)):
        if array.shape[axis] != sizes[axis]:
            array = gather_along_axis(array, indices, axis)
    return lax.squeeze(array, [axis for axis, gone in enumerate(dropped) if gone])


def _write_block(
    begin: Any, sizes: tuple[int, ...], array: Any, block: Any, dropped: Sequence[bool]
) -> Any:
    """Return an array with a block written at these start indices."""
    from jax import lax

    kept = [axis for axis, gone in enumerate(dropped) if not gone]
    block = lax.broadcast_in_dim(block, sizes, kept)
    if array.shape == tuple(sizes):
        return block
    rank = len(sizes)
    along = [
        lax.broadcast_in_dim(indices, (*sizes, 1), (axis,))
        for axis, indices in enumerate(_block_element_indices(begin, sizes))
    ]
    return scatter_block(array, lax.concatenate(along, rank), block)
