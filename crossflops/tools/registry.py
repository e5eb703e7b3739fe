"""Find the convention of each tool by name: those of this package, and those of plugins."""

import functools
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from crossflops.errors import InputError, UnknownNameError, nearest_name_hint
from crossflops.rules.rule import Convention

GROUP = "crossflops.adapters"  # the entry points of plugins, one for each tool

# The file in this folder that has a tool, by the id of the tool.
_OURS = {
    "calflops": "calflops",
    "calflops-macs": "calflops",
    "deepspeed": "deepspeed",
    "deepspeed-macs": "deepspeed",
    "elementwise-1": "no_tool",
    "exact-2k-1": "no_tool",
    "fvcore": "fvcore",
    "onnx-opcounter": "onnx_opcounter",
    "onnx-tool": "onnx_tool",
    "ptflops-aten": "ptflops_aten",
    "ptflops-pytorch": "ptflops_pytorch",
    "tensorflow": "tensorflow",
    "thop": "thop",
    "torch-flop-counter": "torch_flop_counter",
    "torch-profiler": "torch_profiler",
    "torchinfo": "torchinfo",
    "torchprofile": "torchprofile",
    "torchstat": "torchstat",
    "torchstat-madd": "torchstat",
    "torchstat-memory": "torchstat",
    "torchstat-memread": "torchstat",
    "torchstat-memwrite": "torchstat",
    "ultralytics-thop": "ultralytics_thop",
    "xla-compiled": "xla",
    "xla-lowered": "xla",
    # Formulas over an architecture, which run where they are named alone.
    "6nd": "formulas.by_parameters",
    "aws": "formulas.by_parameters",
    "eu": "formulas.by_parameters",
    "kaplan": "formulas.by_parameters",
    "litgpt": "formulas.by_parameters",
    "llm-foundry": "formulas.by_parameters",
    "nanogpt": "formulas.by_parameters",
    "palm": "formulas.by_parameters",
    "total-flos": "formulas.by_parameters",
    "chinchilla": "formulas.closed_forms",
    "cookbook": "formulas.closed_forms",
    "gpt-neox": "formulas.closed_forms",
    "megatron-deepspeed": "formulas.closed_forms",
    "maxtext": "formulas.half_attention",
    "verl": "formulas.half_attention",
    "megatron-bridge": "formulas.megatron",
    "megatron-lm": "formulas.megatron",
    "nemo": "formulas.megatron",
    "olmo-core": "formulas.by_layer",
    "trl": "formulas.by_layer",
    "vllm": "formulas.by_layer",
    "torchtitan": "formulas.torchtitan",
}


def own_conventions() -> tuple[Convention, ...]:
    """Return the conventions of this package; of each tool, the newest edition first."""
    files = dict.fromkeys(_OURS.values())
    return tuple(convention for file in files for convention in _conventions_of_file(file))


def formula_conventions() -> tuple[Convention, ...]:
    """Return the conventions that are formulas over an architecture, in all editions, sorted by
    tool name.
    """
    known = (convention for convention in own_conventions() if convention.formula is not None)
    return tuple(sorted(known, key=lambda convention: convention.tool))


def all_conventions() -> tuple[Convention, ...]:
    """Return the conventions of this package and of all plugins that can be loaded."""
    points = (point for tool, point in _plugin_entry_points().items() if tool not in _OURS)
    return (
        *own_conventions(),
        *(convention for point in points for convention in _conventions_of_plugin(point)),
    )


@functools.cache
def _conventions_of_file(file: str) -> tuple[Convention, ...]:
    """Return the conventions that the module `file` of crossflops.tools defines."""
    known: tuple[Convention, ...] = import_module(f"crossflops.tools.{file}").CONVENTIONS
    return known


def _plugin_entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of installed plugins, as {tool name: entry point}."""
    return {point.name: point for point in entry_points(group=GROUP)}


@functools.cache
def _conventions_of_plugin(point: EntryPoint) -> tuple[Convention, ...]:
    """Return the conventions of a plugin's entry point, or () if the plugin fails to load."""
    try:
        adapter = point.load()()
    except Exception:  # a plugin may do anything; `crossflops tools` shows its failure
        return ()
    return conventions_of_adapter(adapter)


def conventions_of_adapter(adapter: object) -> tuple[Convention, ...]:
    """Return the conventions that an adapter defines itself; () if it only names a tool of this
    package.
    """
    convention = getattr(adapter, "convention", None)
    if isinstance(convention, tuple):
        return convention
    return (convention,) if isinstance(convention, Convention) else ()


def _editions_of_tool(tool: str) -> tuple[Convention, ...]:
    """Return all editions of a tool's convention, the newest first; () if the tool is unknown."""
    if tool in _OURS:
        known = _conventions_of_file(_OURS[tool])
    else:
        point = _plugin_entry_points().get(tool)
        known = _conventions_of_plugin(point) if point else ()
    return tuple(convention for convention in known if convention.tool == tool)


def find_convention(tool: str, edition: str | None = None) -> Convention:
    """Return the convention of a tool in the given edition, or in the newest one if `edition` is
    None.

    Raises UnknownNameError when there is none.
    """
    editions = _editions_of_tool(tool)
    if not editions:
        known = sorted({convention.tool for convention in all_conventions()})
        raise UnknownNameError(
            f"no convention is known for the tool {tool!r}", nearest_name_hint(tool, known)
        )
    for convention in editions:
        if edition in {None, convention.edition}:
            return convention
    names = ", ".join(f"{convention.tool}@{convention.edition}" for convention in editions)
    raise UnknownNameError(f"{tool} has no version {edition!r}", f"write one of: {names}")


def parse_convention(text: str) -> Convention:
    """Return the convention that a text names, `TOOL` or `TOOL@EDITION`."""
    tool, at, edition = text.partition("@")
    return find_convention(tool, edition if at else None)


def conventions_from_texts(texts: Iterable[str]) -> list[Convention]:
    """Return the conventions that the texts name, each once; a text is `TOOL`, `TOOL@EDITION`, or
    a pattern with "*".

    A pattern stands for the newest edition of every tool that it matches; formulas over an
    architecture have to be named. Raises UnknownNameError, and InputError for one that is named
    twice.
    """
    chosen: dict[tuple[str, str], Convention] = {}
    named: set[tuple[str, str]] = set()
    for text in texts:
        if "*" not in text:
            convention = parse_convention(text)
            key = convention.tool, convention.edition
            if key in named:
                raise InputError(f"--as names {'@'.join(key)} twice", "leave out one of the two")
            named.add(key)
        for convention in _conventions_matching(text) if "*" in text else [parse_convention(text)]:
            chosen[convention.tool, convention.edition] = convention
    return list(chosen.values())


def _conventions_matching(pattern: str) -> list[Convention]:
    """Return the newest convention of each tool whose name matches a pattern with "*"; raise
    UnknownNameError if none does.
    """
    known = list(
        dict.fromkeys(
            convention.tool for convention in all_conventions() if convention.formula is None
        )
    )
    matched = [find_convention(tool) for tool in known if fnmatchcase(tool, pattern)]
    if not matched:
        raise UnknownNameError(
            f"no convention matches {pattern!r}", f"write one of: {', '.join(sorted(known))}"
        )
    return matched


def convention_for_version(tool: str, version: str) -> Convention:
    """Return the edition of a tool's convention for an installed version; raise UnknownNameError
    if the tool is unknown.
    """
    find_convention(tool)
    return _edition_for_version(_editions_of_tool(tool), version)


def _edition_for_version(editions: tuple[Convention, ...], version: str) -> Convention:
    """Return the edition that was checked with this version; else the one of the same release,
    else the newest one.
    """
    for convention in editions:
        if version in convention.verified:
            return convention
    for convention in editions:
        if f"{version}.".startswith(f"{convention.edition}."):
            return convention
    return editions[0]


def convention_for_prediction(
    convention: str | Convention | tuple[Convention, ...], version: str
) -> Convention:
    """Return the convention that predicts an adapter's tool in this version; `convention` is what
    the adapter provides, a tool name or its own conventions.

    Raises UnknownNameError for an unknown name.
    """
    if isinstance(convention, str):
        return convention_for_version(convention, version)
    return _edition_for_version(
        convention if isinstance(convention, tuple) else (convention,), version
    )
