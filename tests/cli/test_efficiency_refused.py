"""What `crossflops efficiency` refuses: always with 2, and in two lines."""

import pytest

from crossflops.errors import TargetError

SPEED = ("--examples-per-second", "100")
FP16 = ("--macs", "4.112G", *SPEED, "--precision", "fp16")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (SPEED, "the number of MACs is not given"),
        (("--macs", "4.112G"), "examples-per-second"),
        (("--macs", "4.11X", *SPEED), "a count must be a number"),
        (("--macs", "4.1", *SPEED), "whole number"),
        (("--macs", "4G", "--examples-per-second", "0"), "examples-per-second"),
        (("--macs", "4G", "--examples-per-second", "nan"), "must be a positive"),
        (("--macs", "4G", "--examples-per-second", "inf"), "must be a positive"),
        (("--macs", "4G", *SPEED, "--peak-tflops", "-1"), "peak-tflops"),
        (("--macs", "4G", *SPEED, "--device", "v100-pcie"), "needs a precision"),
        (("--macs", "4G", *SPEED, "--device", "V100"), "needs a precision"),
        (("--macs", "4G", *SPEED, "--device", "NVIDIA X123"), "is unknown"),
        ((*FP16, "--device", "v100-pcie", "--peak-tflops", "1"), "cannot be combined"),
        (("m:f", *SPEED, "--macs", "1", "--as", "thop"), "--macs and --as cannot be combined"),
        (("m:f", *SPEED, "--macs", "1", "--compare"), "cannot be combined"),
        (("m:f", *SPEED, "--as", "thop", "--compare"), "--as and --compare cannot be combined"),
        (("m:f", *SPEED, "--tool", "thop"), "--tool"),
        (("--macs", "4G", *SPEED, "--input", "1x2"), "only with a TARGET"),
        (("--macs", "4G", *SPEED, "-o", "x.xyz"), "format"),
    ],
)
def test_wrong_requests_end_with_two_lines(line, arguments, what):
    """What makes no sense is refused with 2: a line on what, a line on what to do."""
    status, out, err = line("efficiency", *arguments)
    assert (status, out) == (2, "")
    assert what in err
    assert [text.split(":")[0] for text in err.splitlines()] == ["error", "hint"]


def test_a_model_that_fails_is_refused(line, answers):
    """What the pipeline refuses, the verb refuses."""
    answers(TargetError("there is no m", "look"))
    assert line("efficiency", "m:f", *SPEED) == (
        2,
        "",
        "error: there is no m\nhint: look\n",
    )
