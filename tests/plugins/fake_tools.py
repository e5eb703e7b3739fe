"""Adapters of tools that behave in every way that a tool can, for workers to load."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from crossflops.ir.profile import Entry, Profile

HUGE = 10**30


class Model:
    """Something to be counted: it has a mode and hooks that a tool can meddle with."""

    def __init__(self, macs=42):
        self.macs = macs
        self.training = True
        self.hooks = []
        self.folder = None


def built():
    """A model that leaves a trace of the process that built it."""
    with open(os.environ["BUILT"], "a") as trace:
        trace.write(f"{os.getpid()}\n")
    model = Model(5)
    model.folder = os.path.dirname(os.environ["BUILT"])
    return model


class Honest:
    """Answers with the number in the model."""

    name = "fake"
    convention = "fake"
    distribution = "fake-tool"

    def version(self):
        return "1.0"

    def load(self):
        pass

    def accepts(self, model):
        return isinstance(model, Model)

    def profile(self, model, args, kwargs, setting):
        self.act(model, *args, **kwargs)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=model.macs,
            printed_as="MACs",
            entries=(Entry("", model.macs), Entry("layer", 0.5)),
        )

    def act(self, model, *args, **kwargs):
        pass


class Other(Honest):
    name = "other"


class ReadsAFile(Other):
    """Leaves the time at which it began beside the file."""

    def accepts(self, model):
        return isinstance(model, Path)

    def profile(self, model, args, kwargs, setting):
        model.with_suffix(".began").write_text(str(time.monotonic()))
        return Profile(tool=self.name, version="1.0", setting=setting, total=1, printed_as="MACs")


class Crashes(Honest):
    def act(self, model):
        sys.stdout.write("about to leave\n")
        sys.stdout.flush()
        os._exit(7)


class Segfaults(Honest):
    def act(self, model):
        os.kill(os.getpid(), signal.SIGSEGV)


class IsKilled(Honest):
    def act(self, model):
        os.kill(os.getpid(), signal.SIGKILL)


class Raises(Honest):
    def act(self, model):
        raise ValueError("no rule\nfor Foo")


class Exits(Honest):
    def act(self, model):
        sys.exit("enough")


class SaysAndExits(Honest):
    def act(self, model):
        sys.stderr.write("no such layer\n")
        sys.exit(2)


class WarnsAndRaises(Honest):
    def act(self, model):
        sys.stderr.write("a warning\n")
        raise ValueError("no rule")


class FailsToLoad(Honest):
    def load(self):
        raise RuntimeError("operator torchvision::nms does not exist")


class CrashesInLoad(Honest):
    def load(self):
        os._exit(9)


class HangsInLoad(Honest):
    def load(self):
        time.sleep(600)


class Hangs(Honest):
    """Hangs, and so does the process that it started, which ticks into a file."""

    def act(self, model):
        tick = (
            "import sys, time\n"
            "while True:\n"
            "    open(sys.argv[1], 'a').write('x'); time.sleep(0.02)\n"
        )
        subprocess.Popen([sys.executable, "-c", tick, str(Path(model.folder) / "ticks")])
        time.sleep(600)


class Greedy(Honest):
    def act(self, model):
        bytearray(64 << 30)


class AbortsForMemory(Honest):
    def act(self, model):
        os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
        os.abort()


class Noisy(Honest):
    def act(self, model):
        sys.stdout.write("noise from Python\n")
        os.write(1, b"noise from C\n")
        subprocess.run([sys.executable, "-c", "print('noise from a child')"], check=True)


class Reads(Honest):
    def act(self, model):
        model.macs = len(sys.stdin.read())


class AnswersWithAnInt(Honest):
    def profile(self, model, args, kwargs, setting):
        return model.macs


class AnswersForAnother(Honest):
    def profile(self, model, args, kwargs, setting):
        return Other().profile(model, args, kwargs, setting)


class AnswersWithNan(Honest):
    def act(self, model):
        model.macs = float("nan")


class Counts(Honest):
    """Answers with the number of its inputs."""

    def act(self, model, *args, **kwargs):
        model.macs = 10 * len(args) + len(kwargs)


class Huge(Honest):
    def act(self, model):
        model.macs = HUGE


class Meddles(Honest):
    def act(self, model):
        model.training = False
        model.hooks.append("left behind")


class Reports(Honest):
    """Leaves files: its process id when the model is built, and when it began and ended."""

    def accepts(self, model):
        (Path(model.folder) / f"{self.name}.ready").write_text(str(os.getpid()))
        return True

    def act(self, model):
        begin = time.monotonic()
        time.sleep(0.2)
        times = f"{begin} {time.monotonic()}"
        (Path(model.folder) / f"{self.name}.times").write_text(times)


class ReportsToo(Reports):
    name = "other"


class HangsWhileBuilding(Reports):
    def accepts(self, model):
        super().accepts(model)
        time.sleep(600)


class ClosesItsPipe(Honest):
    """Closes all that it inherited, and goes on."""

    def act(self, model):
        os.closerange(3, 256)
        time.sleep(600)


class ForksItself(Honest):
    """Starts a copy of itself, which outlives it and holds what it held."""

    def act(self, model):
        if not os.fork():
            time.sleep(600)
            os._exit(0)


class Moves(Honest):
    """Changes what belongs to the whole process, and the model."""

    def act(self, model):
        os.chdir("/")
        os.environ["CROSSFLOPS_TEST_MOVED"] = "yes"
        model.macs = 1
        Model.macs = property(lambda self: 1)


SEED = 99


class Unsettles(Honest):
    """Changes the seed and the type in which PyTorch makes numbers, and a function."""

    def act(self, model):
        torch = importlib.import_module("torch")
        torch.manual_seed(SEED)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)
        torch.nn.functional.relu = None


class FindsPyTorch(Honest):
    """Answers with 5 where PyTorch is as in a process that has just begun."""

    name = "other"

    def act(self, model):
        torch = importlib.import_module("torch")
        time.sleep(1)  # the other has begun
        assert torch.nn.functional.relu is not None
        assert torch.initial_seed() != SEED
        assert torch.rand(1).dtype == torch.float32


class MovesInLoad(Honest):
    def load(self):
        os.chdir("/")


class StartsAThreadInLoad(Honest):
    def load(self):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


class KillsItsParent(Honest):
    def act(self, model):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(0.5)


class Witness(Honest):
    """Answers with the number of the model if nothing is as another tool would have left it."""

    name = "other"

    def act(self, model):
        time.sleep(1)  # the other has begun
        assert os.getcwd() != "/"
        assert "CROSSFLOPS_TEST_MOVED" not in os.environ


class TellsItsParent(Honest):
    """Answers with the process that started it."""

    def act(self, model):
        model.macs = os.getppid()


class TellsItsParentToo(TellsItsParent):
    name = "other"


class TellsItsThreads(Honest):
    """Answers with what libraries are told of threads."""

    def act(self, model):
        model.macs = int(os.environ["OMP_NUM_THREADS"])
        assert "MKL_NUM_THREADS" not in os.environ


class Incomplete:
    name = "fake"
    version = "1.0"
