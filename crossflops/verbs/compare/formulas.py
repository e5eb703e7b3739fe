"""Compare a model with formulas over an architecture; only the model is counted, and no tool
runs.
"""

from collections.abc import Sequence

import msgspec

from crossflops.errors import InputError
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.targets.target import restoring_imports
from crossflops.tools.registry import conventions_from_texts, formula_conventions
from crossflops.verbs.count import native_count
from crossflops.verbs.provenance import build_request_record


@restoring_imports()
def compare_with_formulas(request: Request, names: Sequence[str] = ()) -> Report:
    """Return the report of a language model with the numbers of the named formulas, or of all, and
    their explanations.

    Raises UnknownNameError for a formula that there is not, InputError for a tool that is none,
    and for a model that formulas are not about.
    """
    texts = tuple(names) or tuple(
        f"{convention.tool}@{convention.edition}" for convention in formula_conventions()
    )
    for convention in conventions_from_texts(texts):
        if convention.formula is None:
            raise InputError(
                f"--as {convention.tool}: {convention.tool} is not a formula for language models",
                f"leave out this --as, or use `crossflops count --as {convention.tool}`",
            )
    report, _ = native_count(msgspec.structs.replace(request, as_=texts))
    typed = {"as_": tuple(names)} if names else {"llm": True}
    return msgspec.structs.replace(
        report, request=build_request_record("compare", request, report.model, typed)
    )
