"""Choose the tools that a comparison runs, the Python of each, and the convention that predicts
it.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from crossflops.errors import InputError
from crossflops.ir.profile import Failure, Lesson
from crossflops.plugins import discovery
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.elsewhere import ask_interpreters_for_tools
from crossflops.plugins.failures import tool_failure
from crossflops.plugins.teaching import can_be_taught, teach_adapter
from crossflops.rules.rule import Convention
from crossflops.tools.registry import convention_for_prediction, convention_for_version
from crossflops.tools.teaching import convention_with_formulas, lesson_for_each_formula


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that can run: `here` by their adapters, `elsewhere` by their interpreters.

    `conventions` has the edition that predicts each of both; `failures` are the tools that
    cannot run. `named` says whether the caller named them: else they are all that there are.
    `lessons` are the formulas that each tool was to be taught, `formulas` the files and modules
    that have them.
    """

    here: dict[str, Adapter]
    elsewhere: dict[str, str]
    conventions: dict[str, Convention]
    failures: dict[str, Failure]
    named: bool = True
    lessons: Mapping[str, tuple[Lesson, ...]] = {}
    formulas: tuple[str, ...] = ()

    @property
    def formula_names_by_tool(self) -> dict[str, tuple[str, ...]]:
        """The names of the operators whose formulas a tool is given, by tool; only tools that are
        given some.
        """
        taken = {
            tool: tuple(lesson.formula for lesson in lessons if not lesson.refused)
            for tool, lessons in self.lessons.items()
        }
        return {tool: names for tool, names in taken.items() if names}

    def with_only_tools(self, tools: Collection[str]) -> "Choice":
        """Return the choice limited to these tools, without the failures."""
        return msgspec.structs.replace(
            self,
            here={tool: value for tool, value in self.here.items() if tool in tools},
            elsewhere={tool: value for tool, value in self.elsewhere.items() if tool in tools},
            conventions={tool: value for tool, value in self.conventions.items() if tool in tools},
            failures={},
            named=True,
        )

    def without_failures(self, failures: Mapping[str, Failure]) -> "Choice":
        """Return the choice with these tools moved from the tools that run to the failures."""
        return msgspec.structs.replace(
            self,
            here={tool: value for tool, value in self.here.items() if tool not in failures},
            elsewhere={
                tool: value for tool, value in self.elsewhere.items() if tool not in failures
            },
            conventions={
                tool: value for tool, value in self.conventions.items() if tool not in failures
            },
            failures={**self.failures, **failures},
            named=True,
        )


def choose_tools(tools: Sequence[str] | None, interpreters: Mapping[str, str]) -> Choice:
    """Return the tools to run: those with these ids, or all that are installed or configured.

    A tool with an interpreter need not be installed here. Raises UnknownNameError for an id
    that has neither a plugin here nor an interpreter.
    """
    chosen = [tools] if isinstance(tools, str) else tools
    requested = dict.fromkeys(
        [*discovery.plugin_entry_points(), *interpreters] if chosen is None else chosen
    )
    elsewhere = {tool: interpreters[tool] for tool in requested if tool in interpreters}
    adapters, failures = discovery.adapters_and_failures(
        [tool for tool in requested if tool not in elsewhere]
    )
    conventions: dict[str, Convention] = {
        tool: convention_for_prediction(value.convention, value.version())
        for tool, value in adapters.items()
    }
    for tool, offer in ask_interpreters_for_tools(elsewhere).items():
        if isinstance(offer, Failure):
            failures[tool] = offer
            continue
        try:
            conventions[tool] = convention_for_version(offer.convention, offer.version)
        except Exception as problem:  # a plugin whose convention is not known here
            failures[tool] = tool_failure(tool, "load", problem)
    return Choice(
        here=adapters,
        named=chosen is not None,
        elsewhere={tool: value for tool, value in elsewhere.items() if tool in conventions},
        conventions=conventions,
        failures=failures,
    )


def teach_tools(choice: Choice) -> Choice:
    """Return the choice in which each tool is given the user's formulas, as far as the tool
    accepts formulas.

    Raises InputError where there is no formula of one's own.
    """
    from crossflops.operators.formula_sources import (
        formula_locations_for_workers,
        formulas_of_user,
    )

    formulas = formulas_of_user()
    if not formulas:
        raise InputError(
            "--teach-tools has no effect without --formulas",
            "add --formulas FILE.py, or leave out --teach-tools",
        )
    lessons = {
        tool: lesson_for_each_formula(
            convention,
            formulas,
            is_able=tool in choice.elsewhere or can_be_taught(choice.here[tool]),
        )
        for tool, convention in choice.conventions.items()
    }
    taught = msgspec.structs.replace(
        choice, lessons=lessons, formulas=formula_locations_for_workers()
    )
    taken = {
        tool: [formula for formula in formulas if formula.name in names]
        for tool, names in taught.formula_names_by_tool.items()
    }
    return msgspec.structs.replace(
        taught,
        here={
            tool: teach_adapter(adapter, taught.formula_names_by_tool.get(tool, ()))
            for tool, adapter in choice.here.items()
        },
        conventions={
            tool: convention_with_formulas(convention, taken.get(tool, ()))
            for tool, convention in choice.conventions.items()
        },
    )
