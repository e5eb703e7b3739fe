"""The loader under atheris (libFuzzer, guided by coverage), for Linux where it is installed.

    python -m tests.fuzz.guided -runs=100000 [-max_len=4096] [CORPUS]

Anything but a CrossflopsError ends it, with the input in a file.
"""

import contextlib
import sys

try:
    import atheris
except ImportError:
    print("atheris is not installed: tests.fuzz.loader needs no more than Python")
    sys.exit(0)

with atheris.instrument_imports(include=["crossflops.load"]):
    from crossflops.errors import CrossflopsError
    from crossflops.load import copy_without_large_data
    from crossflops.load.protobuf import parse_model_proto
    from crossflops.load.validation import validate_and_sort_model


def one(data: bytes) -> None:
    """Read a model from these bytes, as far as it goes."""
    with contextlib.suppress(CrossflopsError):
        model = parse_model_proto(copy_without_large_data(data))
        validate_and_sort_model(model)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
