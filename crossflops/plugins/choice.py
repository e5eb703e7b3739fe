"""Which tools a comparison runs, where, and by which convention each is predicted."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from crossflops.ir.profile import Failure
from crossflops.plugins import discovery
from crossflops.plugins.adapter import Adapter
from crossflops.plugins.elsewhere import offers
from crossflops.plugins.failures import tool_failure
from crossflops.rules.rule import Convention
from crossflops.tools.registry import convention_for_version, predicting


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that can run: `here` by their adapters, `elsewhere` by their interpreters.

    `conventions` has the edition that predicts each of both; `failures` are the tools that
    cannot run. `named` says whether the caller named them: else they are all that there are.
    """

    here: dict[str, Adapter]
    elsewhere: dict[str, str]
    conventions: dict[str, Convention]
    failures: dict[str, Failure]
    named: bool = True

    def only(self, tools: Collection[str]) -> "Choice":
        """Return the choice with only these tools, and without failures."""
        return Choice(
            here={tool: value for tool, value in self.here.items() if tool in tools},
            elsewhere={tool: value for tool, value in self.elsewhere.items() if tool in tools},
            conventions={tool: value for tool, value in self.conventions.items() if tool in tools},
            failures={},
        )

    def without_failures(self, failures: Mapping[str, Failure]) -> "Choice":
        """Return the choice without the tools that failed, with their failures recorded."""
        return Choice(
            here={tool: value for tool, value in self.here.items() if tool not in failures},
            elsewhere={
                tool: value for tool, value in self.elsewhere.items() if tool not in failures
            },
            conventions={
                tool: value for tool, value in self.conventions.items() if tool not in failures
            },
            failures={**self.failures, **failures},
        )


def choose(tools: Sequence[str] | None, interpreters: Mapping[str, str]) -> Choice:
    """Choose the tools to run: the given ids, or all installed and configured ones.

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
        tool: predicting(value.convention, value.version()) for tool, value in adapters.items()
    }
    for tool, offer in offers(elsewhere).items():
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
