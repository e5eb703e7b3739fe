"""How far a file agrees with its model, in words."""

from collections.abc import Iterator

from crossflops.ir.agreement import Agreement, OutputAgreement

_TOLD = 1e-4  # the share from which rounding is worth a word


def agreement_lines(agreement: Agreement) -> Iterator[str]:
    """Yield a line for each output, and one for all of them."""
    if agreement.problem:
        yield f"{agreement.runtime} does not run the file: {agreement.problem}"
        return
    yield from map(_line, agreement.outputs)
    verdict = "computes" if agreement.holds else "does not compute"
    yield f"in {agreement.runtime} the file {verdict} what the model computes"


def _line(output: OutputAgreement) -> str:
    head = f"output {output.name!r}:"
    if output.problem:
        return f"{head} {output.problem}"
    if output.drawn:
        return f"{head} it depends on random numbers, and is not compared"
    if not output.absolute and output.agrees:
        return f"{head} equal"
    share = f"{output.relative:.2g} of the largest value"
    line = f"{head} largest difference {output.absolute:.2g}, {share}"
    if output.rounding < _TOLD:
        return line
    return f"{line}; rounding alone makes {output.rounding:.2g} in the model itself"
