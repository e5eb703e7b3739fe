"""Build the pages of `tools` and `doctor`: which tools are known, and what is installed."""

import sys
from typing import Literal

import msgspec

from crossflops.render.page import Column, Command, Heading, Page, Row, Table, Text, Title, Tone

State = Literal["ok", "unverified", "missing", "broken", "no tool"]
_TONES: dict[str, Tone] = {
    "ok": "good",
    "unverified": "warn",
    "missing": "dim",
    "broken": "bad",
    "no tool": "dim",
}


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: the editions of its convention, and its installed version.

    `state` is "ok" for a version on which a convention was checked, "unverified" for another
    one, "broken" when the plugin or the tool does not load (`message` says why), "missing" when
    there is no plugin, "no tool" for a way of counting that no tool prints. `python` is the
    interpreter that runs the tool, "" if none does. `install` is the command that mends "broken"
    and "missing", "" if there is none.
    """

    tool: str
    editions: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    version: str | None = None
    python: str = ""
    state: State = "missing"
    message: str = ""
    install: str = ""


class ToolList(msgspec.Struct, frozen=True):
    """All tools; those with a convention first, in the order of the conventions."""

    tools: tuple[ToolRow, ...]


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A component that crossflops uses if it is installed. `version` is None if it is not.

    `python` is the interpreter itself; `install` the command that brings the part, "" if there
    is none.
    """

    name: str
    version: str | None
    state: State
    python: str = ""
    message: str = ""
    install: str = ""


class PatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute of a library that crossflops replaces, and why.

    `verified` are the releases with which that was tried. `state` compares the installed release
    with one of them, by the text that defines the attribute: "same", "changed" or "gone"
    (`message` says how), "absent" for one that need not be there, "not in source" for what a
    library makes in C++ or when it runs, "not installed".
    """

    library: str
    attribute: str
    why: str
    verified: str
    version: str | None
    state: str
    signature: str = ""
    message: str = ""


class FormulaRow(msgspec.Struct, frozen=True, kw_only=True):
    """The formulas of an installed distribution; `message` says why they cannot be read."""

    distribution: str
    version: str
    operators: tuple[str, ...] = ()
    message: str = ""


class Health(msgspec.Struct, frozen=True):
    """The findings of `doctor`."""

    components: tuple[Component, ...]
    tools: tuple[ToolRow, ...]
    patches: tuple[PatchRow, ...] = ()
    formulas: tuple[FormulaRow, ...] = ()


def tool_list_page(content: ToolList) -> Page:
    """Return the page of `tools`: all tools, other interpreters, install commands."""
    title = Title(("Tools", "`count --as ID@EDITION` works without installing them"))
    tools = content.tools
    return Page(
        (
            title,
            _tool_inventory_table(tools),
            *_other_interpreter_blocks(tools),
            *_install_command_blocks(_tool_install_commands(tools)),
        )
    )


def health_page(content: Health) -> Page:
    """Return the page of `doctor`: packages, tools, replaced attributes, install commands."""
    rows = tuple(
        Row.from_cells(
            component.name,
            component.version or "-",
            component.message or component.state,
            tone=_TONES[component.state],
        )
        for component in content.components
    )
    parts = Table(
        columns=(Column(head="part"), Column(head="version"), Column(head="state", flows=True)),
        rows=rows,
    )
    indices = [
        Command(component.python, f" {component.name}: ")
        for component in content.components
        if component.python
    ]
    missing = [
        (component.name, component.install)
        for component in content.components
        if component.install
    ]
    remedies = _install_command_blocks([*missing, *_tool_install_commands(content.tools)])
    tools = (
        Heading("Tools"),
        _tool_inventory_table(content.tools),
        *_other_interpreter_blocks(content.tools),
    )
    formulas = _formula_inventory_blocks(content.formulas)
    tables = (parts, *indices, *tools, *formulas, *_attribute_patch_blocks(content.patches))
    return Page((*tables, *remedies))


def _formula_inventory_blocks(formulas: tuple[FormulaRow, ...]) -> tuple[Heading | Table, ...]:
    """Return a table of the formulas for custom operators, by installed distribution."""
    if not formulas:
        return ()
    rows = tuple(
        Row.from_cells(
            f"{row.distribution} {row.version}".strip(),
            str(len(row.operators)),
            row.message or ", ".join(row.operators),
            tone="bad" if row.message else "",
        )
        for row in formulas
    )
    columns = (
        Column(head="brings formulas"),
        Column(head="number", right=True),
        Column(head="of", flows=True),
    )
    return Heading("Formulas"), Table(columns=columns, rows=rows)


_CHANGES: dict[str, Tone] = {"changed": "warn", "gone": "bad"}


def _attribute_patch_blocks(patches: tuple[PatchRow, ...]) -> tuple[Heading | Table | Text, ...]:
    """Return a table of the attributes that crossflops replaces in libraries."""
    there = [patch for patch in patches if patch.version is not None]
    absent = dict.fromkeys(patch.library for patch in patches if patch.version is None)
    if not there:
        return ()
    rows = []
    for library in dict.fromkeys(patch.library for patch in there):
        own = [patch for patch in there if patch.library == library]
        verified = ", ".join(dict.fromkeys(patch.verified for patch in own))
        head = f"{library} {own[0].version}, verified with {verified}"
        rows.append(Row.from_cells(head, ""))
        rows += [
            Row.from_cells(
                f"  {patch.attribute}",
                _patch_state_text(patch),
                tone=_CHANGES.get(patch.state, "dim"),
            )
            for patch in own
        ]
    table = Table(
        columns=(Column(head="replaced in", flows=True), Column(head="installed", flows=True)),
        rows=tuple(rows),
    )
    left = (Text(f"not installed: {', '.join(absent)}", " "),) if absent else ()
    return (Heading("Replaced attributes"), table, *left)


def _patch_state_text(patch: PatchRow) -> str:
    """Return the state of a replaced attribute as text, with a message if there is one."""
    return f"{patch.state}: {patch.message}" if patch.message else patch.state


def _tool_inventory_table(tools: tuple[ToolRow, ...]) -> Table:
    """Return a table of tools: conventions, checked versions, installed version, state."""
    return Table(
        columns=(
            Column(head="tool"),
            Column(head="editions", flows=True),
            Column(head="checked with", flows=True, spare=1),
            Column(head="installed"),
            Column(head="state", flows=True),
        ),
        rows=tuple(
            Row.from_cells(
                tool.tool,
                ", ".join(tool.editions) or "-",
                ", ".join(tool.verified) or "-",
                tool.version or "-",
                _tool_state_text(tool),
                tone=_TONES[tool.state],
            )
            for tool in tools
        ),
    )


def _tool_state_text(tool: ToolRow) -> str:
    """Return the state of a tool as text, with the checked versions or a message."""
    if tool.state == "unverified" and tool.verified:
        return f"{tool.state}: checked with {', '.join(tool.verified)}"
    return f"{tool.state}: {tool.message}" if tool.message else tool.state


def _other_interpreter_blocks(tools: tuple[ToolRow, ...]) -> tuple[Heading | Command, ...]:
    """Return the other Python interpreters, and the tools that run in each of them."""
    names: dict[str, list[str]] = {}
    for tool in tools:
        if tool.python not in ("", sys.executable):
            names.setdefault(tool.python, []).append(tool.tool)
    texts = [Command(python, f" {', '.join(run)}: ") for python, run in names.items()]
    return (Heading("In other interpreters"), *texts) if texts else ()


def _tool_install_commands(tools: tuple[ToolRow, ...]) -> list[tuple[str, str]]:
    """Return (tool, install command) pairs of the tools that have such a command."""
    return [(tool.tool, tool.install) for tool in tools if tool.install]


def _install_command_blocks(
    lacking: list[tuple[str, str]],
) -> tuple[Heading | Text | Command, ...]:
    """Return install commands without repetitions, each with the names of what it installs."""
    names: dict[str, list[str]] = {}
    for name, install in lacking:
        names.setdefault(install, []).append(name)
    lines = [
        block
        for install, brought in names.items()
        for block in (Text(f"{', '.join(brought)}:", " "), Command(install, "   "))
    ]
    return (Heading("To install"), *lines) if lines else ()
