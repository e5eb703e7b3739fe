"""`compare` with tools that count a file: which one they get, and how they are explained."""

import pytest

from crossflops import compare
from crossflops.errors import InputError
from crossflops.export import program
from crossflops.ir.profile import Failure
from tests.models import nn
from tests.onnx_files import parsed, saved
from tests.verbs.small import MACS, ROWS

pytestmark = pytest.mark.torch  # the models beside the files are PyTorch's
FILE = "g (float[N,4] x, float[4,3] w) => (float[N,3] y) { m = MatMul(x, w) y = Relu(m) }"


def reasons(report):
    """Cause and amount of every explanation of the one tool, which leave nothing."""
    (account,) = report.reconciliations
    assert account.residual == 0
    return [(reason.cause, reason.amount) for reason in account.explanations]


class TestModels:
    """The normalized model is written where the tool finds it."""

    MODEL = staticmethod(lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    REASONS = (("op.unregistered-zero", -MACS), ("elementwise.native", 6))

    @pytest.mark.parametrize("isolate", [False, True])
    def test_the_normalized_model_is_counted(self, tools, isolate):
        """24 MACs that the tool does not see, and 2 x 3 elements; both by module."""
        tools("Reader")
        report = compare(self.MODEL(), ROWS, isolate=isolate)
        assert reasons(report) == list(self.REASONS)
        (account,) = report.reconciliations
        assert [(row.path, row.ours, row.predicted, row.theirs) for row in account.by_path] == [
            ("", 24, 6, 6),
            ("0", 24, 0, None),
            ("1", 0, 6, 6),
        ]
        assert account.by_path[0].causes == dict(self.REASONS)
        assert report.profiles[0].digest == report.model.digest

    def test_another_file_is_counted(self, tools, tmp_path):
        """Its 2 x 4 x 5 MACs are 16 more than the model's; then the tool sees none of them."""
        tools("Reader")
        text = "g (float[2,4] x, float[4,5] w) => (float[2,5] y) { m = MatMul(x, w) y = Relu(m) }"
        report = compare(self.MODEL(), ROWS, onnx=saved(tmp_path, parsed(text)), isolate=False)
        assert reasons(report) == [
            ("graph.other-file", 16),
            ("op.unregistered-zero", -40),
            ("elementwise.native", 10),
        ]
        assert report.profiles[0].digest != report.model.digest

    def test_a_file_that_cannot_be_written_fails_its_tools_alone(self, tools, monkeypatch):
        """The others answer."""
        tools("Reader", "Honest")

        def full(*_):
            raise OSError("no space left")

        monkeypatch.setattr(program, "save_program", full)
        report = compare(self.MODEL(), ROWS, isolate=False)
        failure = next(profile for profile in report.profiles if isinstance(profile, Failure))
        assert (failure.tool, failure.stage) == ("reader", "build")
        assert report.residuals == {"honest": 0}


class TestFiles:
    """A target that is a file is counted by the tools that count files."""

    @pytest.mark.parametrize("isolate", [False, True])
    def test_it_gets_sizes(self, tools, tmp_path, isolate):
        """Of 5 rows: 60 MACs unseen, 15 elements."""
        tools("Reader")
        path = saved(tmp_path, parsed(FILE))
        report = compare(path, dims={"N": 5}, isolate=isolate)
        assert reasons(report) == [("op.unregistered-zero", -60), ("elementwise.native", 15)]
        assert not any(isinstance(profile, Failure) for profile in report.profiles)

    def test_it_is_handed_over_as_it_is(self, tools, tmp_path):
        """A file whose sizes are numbers is not copied."""
        tools("Reader")
        path = saved(tmp_path, parsed(FILE.replace("N", "2")))
        report = compare(path)
        assert reasons(report) == [("op.unregistered-zero", -24), ("elementwise.native", 6)]
        assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx"]

    def test_a_training_step_of_a_file_is_refused(self, tools, tmp_path):
        """No tool trains what is rebuilt of one."""
        tools("Reader")
        path = saved(tmp_path, parsed(FILE))
        with pytest.raises(InputError, match="can count a training step of a model of ONNX"):
            compare(path, dims={"N": 5}, train=True, tools=["reader"])

    def test_two_files_contradict_each_other(self, tools, tmp_path):
        """There is nothing to choose."""
        tools("Reader")
        path = saved(tmp_path, parsed(FILE))
        with pytest.raises(InputError, match="already an ONNX file"):
            compare(path, dims={"N": 5}, onnx=path)
