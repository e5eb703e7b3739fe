"""What an environment offers, told by its own Python, which imports no tool and no framework."""

import os
import sys
from collections.abc import Sequence

import msgspec

from crossflops.adapters import discovery
from crossflops.adapters.failures import failure
from crossflops.adapters.installation import installed_version
from crossflops.core.profile import Failure
from crossflops.errors import CrossflopsError


class Offer(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="offer"):
    """A tool that can be run: the id of its convention, its distribution, and its version."""

    tool: str
    convention: str
    distribution: str
    version: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that were asked for, and the ids of all that have a plugin.

    `version` is that of crossflops, None where it is run from a folder; `home` is that folder.
    """

    version: str | None
    home: str
    plugins: tuple[str, ...]
    answers: dict[str, Offer | Failure]


def inventory(tools: Sequence[str]) -> Inventory:
    """What is here of these tools. A tool without a plugin has no answer."""
    try:
        plugins = tuple(discovery.installed())
    except CrossflopsError as problem:  # two plugins of one name
        answers: dict[str, Offer | Failure] = {one: failure(one, "load", problem) for one in tools}
        plugins = ()
    else:
        answers = {one: _offer(one) for one in tools if one in plugins}
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return Inventory(
        version=installed_version("crossflops"), home=home, plugins=plugins, answers=answers
    )


def _offer(tool: str) -> Offer | Failure:
    adapter = discovery.load(tool)
    if isinstance(adapter, Failure):
        return adapter
    try:
        version = adapter.version()
    except Exception as problem:  # a plugin may do anything
        return failure(tool, "load", problem)
    return Offer(
        tool=tool,
        convention=adapter.convention,
        distribution=adapter.distribution,
        version=version,
    )


def main(tools: Sequence[str]) -> None:
    """Print the inventory of these tools as one line of JSON, which `elsewhere` reads."""
    sys.stdout.write(msgspec.json.encode(inventory(tools)).decode())
