"""Say in words how far an exported file computes the same as its model."""

from collections.abc import Iterator

from crossflops.ir.agreement import Agreement, OutputAgreement

_TOLD = 1e-4  # the share from which rounding is worth a word


def agreement_lines(agreement: Agreement) -> Iterator[str]:
    """Yield a line on each output of an exported file, then one on all outputs."""
    if agreement.problem:
        yield f"{agreement.runtime} cannot run the file: {agreement.problem}"
        return
    yield from map(_output_agreement_line, agreement.outputs)
    yield f"in {agreement.runtime} {_agreement_verdict(agreement)}"


def _agreement_verdict(agreement: Agreement) -> str:
    """Return a sentence that says whether an exported file computes the same as its model."""
    if not agreement.holds:
        return "the file does not compute what the model computes"
    hiding = [repr(output.name) for output in agreement.outputs if not output.tells]
    if hiding:
        return (
            f"{', '.join(hiding)} cannot be verified, because rounding errors alone change the "
            "output of the model that much; verify on a larger batch, in evaluation mode, or "
            "with trained weights"
        )
    if agreement.outputs and all(output.drawn for output in agreement.outputs):
        return "the file runs, but no output could be compared"
    return "the file computes what the model computes"


def _output_agreement_line(output: OutputAgreement) -> str:
    """Return a line on one output of an exported file: equal, or its largest difference."""
    head = f"output {output.name!r}:"
    if output.problem:
        return f"{head} {output.problem}"
    if output.drawn:
        return f"{head} depends on random numbers and is not compared"
    if not output.absolute and output.agrees:
        return f"{head} equal"
    share = f"{output.relative:.2g} of the {'elements' if output.whole else 'largest value'}"
    line = f"{head} largest difference {output.absolute:.2g}, {share}"
    if output.rounding < _TOLD:
        return line
    return f"{line}; rounding alone changes the model's own output by {output.rounding:.2g}"
