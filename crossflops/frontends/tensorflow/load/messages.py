"""Shorten error messages of Keras and TensorFlow to one line."""

import re

_LIMIT = 300
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_AROUND = re.compile(r"Exception encountered when calling \S+\.\s*|\s*Arguments received by .*$")


def short_error_text(error: BaseException) -> str:
    """Return an error's message on one line, without colours, cut to 300 characters.

    keras/src/utils/traceback_utils.py: inject_argument_info_in_traceback names the layer before
    the message and lists the arguments after it.
    """
    text = " ".join(_COLOUR.sub("", str(error)).split())
    text = _AROUND.sub("", text) or text
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}..."
