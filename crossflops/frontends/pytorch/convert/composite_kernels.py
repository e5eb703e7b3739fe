"""The kernels by which PyTorch keeps composite operators whole, cached so that they are made only
once.

Before PyTorch takes a program apart it gives some 600 operators other kernels, and behind it
takes them back. Both take longer than to trace the few operators of a piece, and the kernels are
the same each time: they are noted the first time, and set from these notes later on.
Source: torch/export/exported_program.py (`_override_composite_implicit_decomp`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from crossflops.patches import inventory
from crossflops.patches.patching import (
    original_attribute,
    patch_owner,
    patching_attribute,
    patching_items,
)


class _OperatorKernels(NamedTuple):
    """The Python kernels of an operator by dispatch key: `usual` ones, and those that PyTorch
    sets, `replaced`.
    """

    operator: Any
    usual: Mapping[Any, Any]
    replaced: Mapping[Any, Any]


class CompositeKernels:
    """The kernels that one table of decompositions needs, cached.

    `composite` has the decompositions of operators that PyTorch can keep whole, `plain` those of
    all others: the two halves of the table.
    """

    def __init__(
        self,
        table: Mapping[Any, Callable[..., Any]],
        composite: Mapping[Any, Callable[..., Any]],
        plain: Mapping[Any, Callable[..., Any]],
    ) -> None:
        """Prepare the kernels of a decomposition table, split into composite and plain."""
        self._table, self._composite, self._plain = dict(table), composite, plain
        self._kernels: tuple[_OperatorKernels, ...] = ()
        self._fake_rules: Mapping[Any, Any] = {}

    @contextmanager
    def decomposing_with_cached_kernels(self) -> Iterator[None]:
        """Make PyTorch decompose programs by this table inside the block, with kernels that are
        cached.
        """
        index = inventory.COMPOSITE_KERNELS
        library = patch_owner(index)
        override = original_attribute(library, "_override_composite_implicit_decomp", index)
        split = original_attribute(library, "_split_decomp_table_to_cia_and_python_decomp", index)

        def override_kernels_from_cache(composite: Mapping[Any, Any]) -> Any:
            """Return a context that gives composite operators other kernels: the cached ones for
            our own table.
            """
            if composite != self._composite:  # a program that another table takes apart
                return override(composite)
            if self._are_cached_kernels_valid():
                return self._setting_cached_kernels()
            return self._caching_overridden_kernels(override)

        def split_decompositions_from_cache(table: dict[Any, Any]) -> Any:
            """Return the composite and the plain decompositions of a table; for our own table they
            are cached.
            """
            if table != self._table:
                return split(table)
            return dict(self._composite), dict(self._plain)

        with (
            patching_attribute(
                library, "_override_composite_implicit_decomp", override_kernels_from_cache, index
            ),
            patching_attribute(
                library,
                "_split_decomp_table_to_cia_and_python_decomp",
                split_decompositions_from_cache,
                index,
            ),
        ):
            yield

    def _are_cached_kernels_valid(self) -> bool:
        """Return True if the kernels are cached and the usual ones have not changed since then."""
        return bool(self._kernels) and all(
            known.operator.py_kernels == known.usual for known in self._kernels
        )

    @contextmanager
    def _caching_overridden_kernels(self, override: Callable[..., Any]) -> Iterator[None]:
        """Let PyTorch's `override` replace the kernels inside the block, and cache the kernels
        that it sets.
        """
        rules = _fake_tensor_functions()
        usual = {operator: dict(operator.py_kernels) for operator in self._composite}
        with override(dict(self._composite)):
            self._kernels = tuple(
                _OperatorKernels(operator, kernels, dict(operator.py_kernels))
                for operator, kernels in usual.items()
            )
            self._fake_rules = {
                operator: rules[operator] for operator in self._composite if operator in rules
            }
            yield

    @contextmanager
    def _setting_cached_kernels(self) -> Iterator[None]:
        """Replace the kernels by the cached ones inside the block."""
        with ExitStack() as undo:
            undo.callback(self._clear_dispatch_caches)
            for known in self._kernels:
                items = patching_items(
                    known.operator.py_kernels, known.replaced, inventory.COMPOSITE_KERNELS
                )
                undo.enter_context(items)
            undo.enter_context(
                patching_items(
                    _fake_tensor_functions(), self._fake_rules, inventory.COMPOSITE_KERNELS
                )
            )
            self._clear_dispatch_caches()
            yield

    def _clear_dispatch_caches(self) -> None:
        """Clear the dispatch caches of the operators, so that they look up their kernels again."""
        for known in self._kernels:
            known.operator._dispatch_cache.clear()


def _fake_tensor_functions() -> dict[Any, Any]:
    """Return PyTorch's table of the functions by which operators run on fake tensors."""
    from torch._subclasses.fake_impls import op_implementations_dict

    rules: dict[Any, Any] = op_implementations_dict
    return rules
