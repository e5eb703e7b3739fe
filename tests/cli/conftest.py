"""A command line whose verbs the test sets."""

import pytest
from msgspec import UNSET

from crossflops.cli import main
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.reconciliation import Reconciliation
from crossflops.ir.trace import Setting, Trace
from crossflops.report.report import InputInfo, ModelInfo, Report, Totals, UncountedRow
from crossflops.verbs import count
from crossflops.verbs.compare import compare
from crossflops.verbs.count import CountedModel

KINDS = ("adds", "muls", "divs", "compares", "specials")
ZEROS = dict.fromkeys((*KINDS, "bytes_read", "bytes_written", "constant_macs"), 0)
GRAPH = Graph(name="Net", nodes=(), inputs=(), outputs=(), params=3, opset={"": 23})
LEDGER = Ledger("d", ())
TRACE = Trace(calls=(), modules=(), setting=Setting())


class Line:
    """Runs the command line, and keeps what a verb was asked: the request, and the comparison."""

    def __init__(self, capfd):
        self.capfd = capfd
        self.asked = self.comparison = self.tell = None

    def __call__(self, *arguments):
        """Exit status, stdout and stderr."""
        status = main(list(arguments))
        captured = self.capfd.readouterr()
        return status, captured.out, captured.err


@pytest.fixture
def line(capfd, monkeypatch):
    """The command line, on 80 columns, without colour."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Line(capfd)


@pytest.fixture
def answers(line, monkeypatch):
    """Let both verbs return this report, or raise this error."""

    def arrange(result):
        def answer(request, comparison=None, tell=None, still=None):
            line.asked, line.comparison, line.tell = request, comparison, tell
            if isinstance(result, BaseException):
                raise result
            return result

        def native(request, build=None, on_progress=None):
            return answer(request), CountedModel(GRAPH, TRACE, LEDGER)

        monkeypatch.setattr(count, "native_count", native)
        monkeypatch.setattr(compare, "compare_with_tools", answer)

    return arrange


def account(answer):
    """The reconciliation of a tool and its residual."""
    tool, left = answer
    return Reconciliation(
        tool=tool, edition="1", ours=10, theirs=10 + left, predicted=10, explanations=()
    )


@pytest.fixture
def report():
    """A report of 10 MACs: without tools, or with those that are given as residuals."""

    def make(tools=UNSET, failures=(), uncounted=0):
        compared = tools is not UNSET
        tools = tools if compared else {}
        profiles = tuple(
            Profile(tool=tool, version="1", setting=Setting(), total=10 + left, printed_as="MACs")
            for tool, left in tools.items()
        )
        profiles += tuple(
            Failure(tool=tool, stage="crash", message="gone", hint="look") for tool in failures
        )
        return Report(
            model=ModelInfo(
                name="Net", digest="d", inputs=(InputInfo("x", "float32", (1, 2)),), opset={"": 23}
            ),
            totals=Totals(macs=10, flops=20, params=3, **ZEROS),
            macs_by_precision={"float32": 10},
            uncounted=tuple(UncountedRow(f"n{k}", "Odd", "new") for k in range(uncounted)),
            by_op=(),
            modules=(),
            nodes=(),
            setting=Setting() if compared else UNSET,
            profiles=profiles if compared else UNSET,
            reconciliations=tuple(map(account, tools.items())) if compared else UNSET,
        )

    return make
