"""Run the verb `explain`: find what a name or some words mean."""

from crossflops.causes import WORDS, all_causes, search_causes
from crossflops.errors import UnknownNameError, nearest_name_hint
from crossflops.ir.reconciliation import Cause
from crossflops.report.matches import Matches
from crossflops.rules.rule import Convention
from crossflops.tools.registry import all_conventions


def find_page_subject(name: str) -> Cause | Convention | Matches:
    """Return what `explain` shows for a name: a cause, a convention, or the causes that match the
    words. Raises UnknownNameError.
    """
    known: dict[str, Cause | Convention] = {}
    for convention in all_conventions():
        known.setdefault(convention.tool, convention)
        known[f"{convention.tool}@{convention.edition}"] = convention
    pages = (*WORDS, *all_causes())
    known.update({cause.id: cause for cause in pages})
    if (spelled := name.strip().casefold().replace(" ", "-")) in known:
        return known[spelled]
    matches = search_causes(name, pages)
    if not matches:
        families = ", ".join(dict.fromkeys(cause.id.partition(".")[0] for cause in all_causes()))
        more = f"write a family of causes ({families}), or a tool of `crossflops tools`"
        raise UnknownNameError(
            f"{name!r} is not the name of a cause, a tool or a convention",
            nearest_name_hint(name, known, more),
        )
    return matches[0] if len(matches) == 1 else Matches(name, matches)
