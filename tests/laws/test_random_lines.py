"""Random command lines of valid options and odd values end with 0, 1, 2 or 3, and in words."""

import random

import click
import pytest

from crossflops.cli import command_group
from tests.laws.test_options import VALUES, flag_of, folder, options_of, run

ODD = (
    "0", "-1", "nan", "inf", "1e400", "", " ", "\u00df\u2202", "a\0b", "9" * 40, "9" * 5000,
    "none.csv",
    "/", ".", "fixed.onnx", "a,,b", "=", "x=", "=3", "fp16=nan", "bf16", "v100-pcie",
    "batch=0", "0x0",
    "-1x2", "4.1G", "150%", "thop@9", "[", "null", "count.json", "rates.json", "x.xyz", "\n",
)  # fmt: skip
TARGETS = ("fixed.onnx", "named.onnx", "loop.onnx", "count.json", "rates.json", "none.onnx", "")
LASTS = {"--measure", "--latency", "--compare", "--observe", "--debug"}  # longer than this takes
NO_TOOL = {"count", "efficiency", "devices", "peak", "bandwidth", "table", "diff", "check",
           "export",
           "render", "explain", "profile"}  # fmt: skip
LINES = 25

__all__ = ["folder"]


def line(verb, draw):
    """A verb with its arguments and up to four of its options."""
    command = command_group.get_command(click.Context(command_group), verb)
    words = [verb]
    for param in command.params:
        if isinstance(param, click.Argument) and (param.required or draw.random() < 0.7):
            words.append(draw.choice(TARGETS if draw.random() < 0.9 else ODD))
    params = [param for param in options_of(verb) if flag_of(param) not in LASTS]
    chosen = draw.sample(params, min(len(params), draw.randrange(5)))
    for param in [*chosen, *(param for param in params if param.required)]:
        words.append(flag_of(param))
        if not param.is_flag:
            usual = VALUES[flag_of(param)]
            words += [
                usual if draw.random() < 0.6 else draw.choice(ODD) for _ in range(param.nargs)
            ]
    return words


@pytest.mark.parametrize("verb", sorted(NO_TOOL))
def test_random_lines_end_in_words(verb, folder):
    """No traceback, and no exception that nobody foresaw."""
    draw = random.Random(verb)
    for _ in range(LINES):
        words = line(verb, draw)
        status, _, err = run(words)
        assert status in (0, 1, 2, 3), words
        assert "please report" not in err, (words, err)
        assert "Traceback" not in err, (words, err)
