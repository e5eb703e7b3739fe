"""Make the consistency reports in reports/: compressed JSON, and the Markdown that it renders to.

    python -m tests.make_reports [NAME ...] [--python TOOL=INTERPRETER ...]

Without names all of them. Tools are whatever is installed, and what `--python` names elsewhere.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(__file__).parent.parent / "reports"
SUFFIX = ".json.gz"
LIMIT = 900  # seconds for one model
IMAGE = ("--input", "1x3x224x224")
TOKENS = ("--input", "input_ids=1x128:int64")


def _row(target, *arguments):
    return SimpleNamespace(target=target, arguments=arguments)


def _torchvision(name, *arguments):
    return _row(f"torchvision.models:{name}", *IMAGE, *arguments)


WEIGHTLESS = ("--arg", "weights=null", "--arg", "init_weights=false")

# Name of the report -> how the comparison is asked for.
REPORTS = {
    "resnet50": _torchvision("resnet50"),
    "resnet18": _torchvision("resnet18"),
    "mobilenet_v2": _torchvision("mobilenet_v2"),
    "vit_b_16": _torchvision("vit_b_16"),
    "vit_b_16-no-grad": _torchvision("vit_b_16", "--no-grad"),
    "swin_t": _torchvision("swin_t"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "swin_v2_t": _torchvision("swin_v2_t"),
    "convnext_tiny": _torchvision("convnext_tiny"),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0"),
    "densenet121": _torchvision("densenet121"),
    "googlenet": _torchvision("googlenet", *WEIGHTLESS),
    "timm-vit_tiny": _row("timm:vit_tiny_patch16_224", *IMAGE),
    "unet": _row("tests/zoo.py:unet", "--input", "1x3x128x128"),
    "lstm": _row("tests/zoo.py:lstm", "--input", "1x40:int64"),
    "gru": _row("tests/zoo.py:gru", "--input", "1x40:int64"),
    "bert": _row("tests/zoo.py:bert", *TOKENS),
    "gpt2": _row("tests/zoo.py:gpt2", *TOKENS),
    "llama": _row("tests/zoo.py:llama", *TOKENS),
}


def crossflops(*arguments):
    """Run the command line. Raises CalledProcessError."""
    line = [sys.executable, "-m", "crossflops", *arguments]
    subprocess.run(line, check=True, cwd=FOLDER.parent, timeout=LIMIT)


def make(name, *options):
    """One report."""
    row, began = REPORTS[name], time.monotonic()
    written = FOLDER / f"{name}{SUFFIX}"
    crossflops("compare", row.target, *row.arguments, *options, "-o", str(written))
    crossflops("render", str(written), "-o", str(FOLDER / f"{name}.md"))
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def main():
    """Make those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REPORTS))
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=INTERPRETER")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(REPORTS)
    if unknown:
        parser.error(f"no report is called {', '.join(sorted(unknown))}")
    options = [part for interpreter in asked.python for part in ("--python", interpreter)]
    for name in asked.names or REPORTS:
        make(name, *options)


if __name__ == "__main__":
    main()
