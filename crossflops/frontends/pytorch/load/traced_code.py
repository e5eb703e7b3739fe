"""The Python code of traced graphs, which PyTorch keeps for tracebacks as long as a process lives.

Source: torch/fx/graph_module.py (`_EvalCacheLoader`).
"""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def forgetting_graph_code() -> Iterator[None]:
    """Drop the Python code of graphs that are made inside the block, which PyTorch would keep.

    A process that counts a thousand models would otherwise hold that of all of them.
    """
    import torch.fx.graph_module

    loader: Any = getattr(torch.fx.graph_module, "_loader", None)
    sources = getattr(loader, "eval_cache", None)
    if not isinstance(sources, dict):
        yield
        return
    before = set(sources)
    try:
        yield
    finally:
        for name in [name for name in list(sources) if name not in before]:
            sources.pop(name, None)
            linecache.cache.pop(name, None)
