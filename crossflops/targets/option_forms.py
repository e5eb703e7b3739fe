"""The form of each option of a request, as Python and a configuration write it."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from crossflops.errors import InputError
from crossflops.frontends.named import SIZES

_BRANCHES = ("then", "else", "sum")


class _Form(NamedTuple):
    """The form of an option's values: a test, the name of the kind, and an example."""

    takes: Callable[[Any], bool]
    kind: str
    in_toml: str
    in_python: str


def _is_count(value: Any) -> bool:
    """Return whether the value is an integer of at least 0, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_count_mapping(value: Any) -> bool:
    """Return whether the value is a mapping from names to integers of at least 0."""
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _is_count(number) for name, number in value.items()
    )


def _is_branch_mapping(value: Any) -> bool:
    """Return whether the value is a mapping of If nodes to branches, all of which are texts."""
    return isinstance(value, Mapping) and all(branch in _BRANCHES for branch in value.values())


def _is_size_mapping(value: Any) -> bool:
    """Return whether the value is a mapping from known size names to positive integers."""
    return _is_count_mapping(value) and all(name in SIZES and value[name] for name in value)


def _is_text_or_texts(value: Any) -> bool:
    """Return whether the value is a text or a list of texts."""
    texts = [value] if isinstance(value, str) else value
    return isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)


FORMS = {
    "inputs": _Form(
        _is_text_or_texts, "a list of shapes", '["1x3x224x224"]', '["1x3x224x224"]'
    ),
    "inputs_file": _Form(
        lambda value: isinstance(value, str | os.PathLike),
        "the path of a file",
        '"values.npz"',
        '"values.npz"',
    ),
    "arguments": _Form(
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        "a table of arguments",
        '{width = 64}',
        '{"width": 64}',
    ),
    "dims": _Form(_is_count_mapping, "a table of whole numbers", "{N = 8}", '{"N": 8}'),
    "trips": _Form(_is_count_mapping, "a table of whole numbers", "{Loop_1 = 8}", '{"Loop_1": 8}'),
    "branches": _Form(
        _is_branch_mapping,
        "a table of then, else or sum",
        '{If_3 = "else"}',
        '{"If_3": "else"}',
    ),
    "sizes": _Form(
        _is_size_mapping,
        f"a table of {', '.join(SIZES)}, each above zero",
        "{batch = 8}",
        '{"batch": 8}',
    ),
}  # fmt: skip


_KEY_OF = {  # of an option of the command line
    "--input": "inputs",
    "--inputs": "inputs_file",
    "--arg": "arguments",
    "--dim": "dims",
    "--trips": "trips",
    "--branch": "branches",
    **dict.fromkeys(SIZES.values(), "sizes"),
}
_INPUTS = re.compile(r"--input \S*=\S+(?: --input \S+)*|--input [\dx]+x\d+(?: --input \S+)*")
_PAIR = re.compile(r"(--dim|--trips|--branch|--arg) ([^\s=]+)=([^\s,]+)")
_COMMAND = re.compile(r"crossflops \w+ \S+ (?=\w+ = )")
_OTHERS = re.compile(r"(?: and|,) (?:by )?--(?!update)[a-z][a-z-]*")  # no budget has these
_VARIED = re.compile(r" or --vary \w+")  # a budget is about one size
_FLAG = re.compile(r"--[a-z][a-z-]*")


def with_config_keys(hint: str) -> str:
    """Return a hint of the command line with its flags written as keys of a configuration file.

    >>> with_config_keys("bind dimensions with --dim N=SIZE, or give --input x=1x3")
    'bind dimensions with dims = {N = SIZE}, or give inputs = ["x=1x3"]'
    """

    def input_options_as_key(match: re.Match[str]) -> str:
        """Return the matched `--input` options as `inputs = [...]` of a configuration file."""
        texts = match[0].replace("--input ", "").split()
        return f"inputs = [{', '.join(_double_quote(text) for text in texts)}]"

    hint = _INPUTS.sub(input_options_as_key, hint)
    hint = _PAIR.sub(lambda match: f"{_KEY_OF[match[1]]} = {{{match[2]} = {match[3]}}}", hint)
    hint = _VARIED.sub("", _COMMAND.sub("", hint))
    hint = _FLAG.sub(lambda match: _KEY_OF.get(match[0], match[0]), hint)
    return _OTHERS.sub("", hint)


def _double_quote(text: str) -> str:
    """Return the text in double quotes; punctuation at its end follows the closing quote."""
    plain = text.rstrip(".,;:")
    return f'"{plain}"{text[len(plain) :]}'


def check_option_type(
    option: str, value: Any, name_in_message: str, in_toml: bool = False
) -> None:
    """Raise InputError if an option's value has the wrong type.

    `name_in_message` is the option in the message. Inputs in Python are tensors, too, and are
    not looked at.
    """
    form = FORMS[option]
    if (option == "inputs" and not in_toml) or form.takes(value):
        return
    example = form.in_toml if in_toml else form.in_python
    sign = " = " if in_toml else "="
    raise InputError(
        f"{name_in_message} must be {form.kind}, got {_shorten(value)}",
        f"write {option}{sign}{example}",
    )


def _shorten(value: Any) -> str:
    """Return the repr of a value on one line, cut to 40 characters and "..." if it is longer."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:40]}..."
