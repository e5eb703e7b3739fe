"""A process with one order, as bad runs are: `python -m fake_runs`."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from crossflops.workers.conversation import serve_order


class RunAsked(msgspec.Struct, frozen=True):
    """What to do, and where the answer goes."""

    what: str
    answer_path: str
    memory_limit: int | None = None


def answered(order, wait):
    """Do it: the answer is what was asked."""
    print("on stdout")
    if order.what == "crash":
        os.abort()
    if order.what == "exit":
        sys.exit(3)
    if order.what == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(f"{order.answer_path}.child").write_text(str(child.pid))
        time.sleep(600)
    if order.what == "grow":
        return len(bytearray(1 << 40))
    return order.what


if __name__ == "__main__":
    serve_order(RunAsked, answered)
