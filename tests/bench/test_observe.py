"""Sizes, iterations and branches from a real run in onnxruntime."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

from crossflops import count
from crossflops.bench.runner import RunOrder, observe_ordered_run
from crossflops.cli import main
from crossflops.errors import CrossflopsError, CrossflopsWarning, NormalizeError
from crossflops.operators import reasons_for_missing_rules
from tests.node_tests import cases, fed, specs, with_learned_shapes
from tests.onnx_files import ledger_of, parsed, saved

MODEL = (
    "g (float[n,4,4] x, float[4,4] w, bool q, int64 t) => (y, z, u) <bool go = {1}> { "
    "f = local.F (w, w) nz = NonZero (x) u = Cast <to = 1> (nz) "
    "y = Loop (t, go, f) <body = b (int64 i, bool c, float[4,4] a) => (d, e) "
    "{ d = Identity (c) e = MatMul (a, w) }> "
    "z = If (q) <then_branch = s () => (p) { o = MatMul (x, w) p = Relu (o) }, "
    "else_branch = l () => (r) { r = Identity (w) }> } "
    '<domain: "local", opset_import: ["": 17]> F (p, q) => (r) { r = MatMul (p, q) }'
)
pytest.importorskip("onnxruntime", reason="the extra [runtime] is not installed")

pytestmark = pytest.mark.onnxruntime


@pytest.fixture
def path(tmp_path):
    """A model whose work depends on values: a loop, an If, and what NonZero finds."""
    return saved(tmp_path, parsed(MODEL))


def values(folder, **changed):
    """Real values for that model, in a file."""
    arrays = {
        "x": np.ones((3, 4, 4), np.float32),
        "w": np.eye(4, dtype=np.float32),
        "q": np.array(True),
        "t": np.array(5),
        **changed,
    }
    file = folder / "values.npz"
    np.savez(file, **arrays)
    return str(file)


def test_a_branch_may_leave_the_type_of_its_result_empty(tmp_path):
    """Some exporters say that it is a tensor, and not of what: onnxruntime refuses the file."""
    model = parsed(
        "g (bool q, float[2,3] x, float[3,3] w) => (float[2,3] y) { y = If (q) "
        "<then_branch = t () => (a) { a = MatMul (x, w) }, "
        "else_branch = e () => (b) { b = Identity (x) }> }"
    )
    for attribute in model.graph.node[0].attribute:
        attribute.g.output[0].type.tensor_type.SetInParent()
    array = {"q": np.array(True), "x": np.ones((2, 3), np.float32), "w": np.eye(3, dtype="f4")}
    np.savez(tmp_path / "true.npz", **array)
    path, given = saved(tmp_path, model), str(tmp_path / "true.npz")
    assert count(path, inputs_file=given, observe=True).macs == 2 * 3 * 3


def test_a_run_makes_the_count_complete(path, tmp_path):
    """One call of F, five of the body, 64 each; three products in the branch that ran."""
    before = count(path, dims={"n": 3})
    assert {row.op for row in before.uncounted} == {"Loop", "NonZero", "Cast"}
    report = count(path, inputs_file=values(tmp_path), observe=True)
    assert report.uncounted == ()
    assert report.macs == 64 + 5 * 64 + 3 * 64
    assert {row.exactness for row in report.nodes} == {"exact"}
    assert report.observed.runtime.startswith("onnxruntime ")
    # u has a column of 4 bytes for each of the 3 coordinates of what is not zero: all 48 of x.
    (cast,) = [row for row in report.nodes if row.op == "Cast"]
    assert cast.bytes_written == 3 * 48 * 4


def test_what_a_run_decided_is_marked(path, tmp_path, capsys, monkeypatch):
    """The loop and the If with what is in them, NonZero and what reads it; not the call of F."""
    file = values(tmp_path)
    report = count(path, inputs_file=file, observe=True)
    kept = [row for row in report.nodes if row.depends_on_inputs is not True]
    assert [(row.op, row.macs) for row in kept] == [("MatMul", 64)]
    assert {row.op for row in report.nodes} >= {"NonZero", "Cast", "Loop", "If", "Relu"}
    before = count(path, dims={"n": 3})
    assert all(row.depends_on_inputs is not True for row in before.nodes)
    monkeypatch.setenv("COLUMNS", "400")  # a path is in one line
    assert main(["count", path, "--observe", "--inputs", file]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Sizes are taken from a run on {file}" in text


def test_made_up_values_are_named(path, tmp_path, capsys):
    """Their seed too; and what a file of inputs leaves out is made up."""
    report = count(path, "x=3x4x4", observe=True)
    assert report.observed.inputs == "random floats (seed 0), and zeros of other types"
    np.savez(tmp_path / "some.npz", x=np.ones((3, 4, 4), np.float32))
    some = str(tmp_path / "some.npz")
    report = count(path, inputs_file=some, observe=True)
    assert report.observed.inputs == f"{some}, random floats (seed 0), and zeros of other types"


def test_a_file_that_draws_its_sizes_says_so(tmp_path):
    """Without a seed in the file, another run has other sizes."""
    text = (
        "g (float[n] x) => (float[m] y) {{ h = Constant <value = float {{0.5}}> () "
        "r = RandomUniformLike {} (x) b = Greater (r, h) y = Compress (x, b) }}"
    )
    for attribute, draws in (("", True), ("<seed = 1.0>", False)):
        file = saved(tmp_path, parsed(text.format(attribute)))
        report = count(file, "x=40", observe=True)
        assert [row.op for row in report.nodes if row.depends_on_inputs is True] == ["Compress"]
        assert any("random" in note for note in report.observed.notes) == draws


def test_other_values_are_another_run(path, tmp_path):
    """No iteration and the other branch: only the function is left."""
    file = values(tmp_path, q=np.array(False), t=np.array(0))
    report = count(path, inputs_file=file, observe=True)
    assert (report.macs, report.uncounted) == (64, ())


def test_without_values_inputs_are_made_up(path, capsys):
    """Zeros for whole numbers, so the loop does not run; the caller's own word comes first."""
    assert main(["count", path, "--observe", "--dim", "n=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["macs"] == 64
    assert count(path, "x=2x4x4", observe=True).macs == 64
    assert count(path, "x=2x4x4", observe=True, trips={"Loop_3": 2}).macs == 64 + 2 * 64


@pytest.mark.parametrize(
    "name",
    [
        *("test_nonzero_example", "test_scan9_sum"),
        *("test_range_float_type_positive_delta", "test_loop11", "test_if"),
        *("test_affine_grid_2d_expanded", "test_blackmanwindow_expanded", "test_reshape_one_dim"),
        *("test_center_crop_pad_crop_expanded", "test_nonmaxsuppression_two_classes"),
    ],
)
def test_node_tests_count_completely(name, tmp_path):
    """Everything is counted, and as with the shapes that ONNX's reference implementation finds."""
    case = cases()[name]
    file = tmp_path / "values.npz"
    np.savez(file, **fed(case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrossflopsWarning)
        report = count(saved(tmp_path, case.model), inputs_file=str(file), observe=True)
        learned = ledger_of(
            saved(tmp_path, with_learned_shapes(case), "b.onnx"), specs=specs(case)
        )
    assert report.uncounted == ()
    if not learned.uncounted:
        assert report.flops == learned.total.flops


def test_what_runs_is_what_is_inferred(tmp_path):
    """Of every seventh node test: no shape of a run contradicts one that follows from inputs.

    Here the runs are in this process. What the runtime does not know, or no array can hold, is
    left out.
    """
    ran = 0
    for name in sorted(cases())[::7]:
        case, file = cases()[name], tmp_path / "values.npz"
        path = saved(tmp_path, case.model)
        order = RunOrder(
            path=path, specs=(), dims={}, inputs_file=str(file), memory_limit=None, answer_path=""
        )
        try:
            np.savez(file, **fed(case))
            seen = observe_ordered_run(order)
        except Exception:  # of several kinds, each with the runtime's own words
            continue
        ran += 1
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "shape mismatch", CrossflopsWarning)
            warnings.filterwarnings("ignore", "shape inference", CrossflopsWarning)
            ledger = ledger_of(path, specs=specs(case), seen=seen)
        left = {str(gap.node.op) for gap in ledger.uncounted}
        assert left <= {"Dropout", *reasons_for_missing_rules()}, name
    assert ran > 150


def test_weights_in_another_file_are_found(tmp_path):
    """External data lies beside the model."""
    import onnx

    model = parsed("g (float[n,8] x) => (y) { y = MatMul (x, w) }")
    weights = np.ones((8, 400), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert count(path, dims={"n": 2}, observe=True).macs == 2 * 8 * 400


def test_what_a_run_contradicts_is_a_warning(tmp_path, monkeypatch):
    """A shape that was seen and another that follows: the node is named."""
    import msgspec

    from crossflops.bench import processes
    from crossflops.ir.measurement import SteadyTensor

    model = parsed("g (float[3,8] x) => (y) { y = Relu (x) }")
    model.graph.node[0].name = "the relu"
    observation = processes.observe_file_run(saved(tmp_path, model))
    wrong = msgspec.structs.replace(observation, values={"y": SteadyTensor("float32", (4, 8))})
    monkeypatch.setattr(processes, "observe_file_run", lambda *_: wrong)
    with pytest.warns(CrossflopsWarning, match=r"shape mismatch for 'y'"):
        count(saved(tmp_path, model), observe=True)


ENDLESS = (
    "g (float[4] x) => (y) <int64 m = {4611686018427387904}, bool go = {1}> "
    "{ y = Loop (m, go, x) <body = b (int64 i, bool c, float[4] a) => (d, e) "
    "{ d = Identity (c) e = Add (a, a) }> }"
)
LARGE = (
    "g (float[4] x) => (y) <int64[1] m = {68719476736}> { e = ConstantOfShape (m) y = Add (e, x) }"
)


def test_a_run_has_limits(tmp_path):
    """A loop without end and a tensor without bound end as a message."""
    from crossflops.bench.processes import observe_file_run

    with pytest.raises(NormalizeError, match="did not finish within 2 s"):
        observe_file_run(saved(tmp_path, parsed(ENDLESS)), seconds=2)
    with pytest.raises(NormalizeError, match=r"onnxruntime|memory|ended with"):
        observe_file_run(saved(tmp_path, parsed(LARGE)), memory=4 << 30)


def test_what_cannot_be_run_is_refused(path, tmp_path):
    """Two lines and no traceback: unbound sizes, a missing file, a model that is none."""
    for options in (
        {},
        {"inputs_file": str(tmp_path / "none.npz")},
        {"inputs_file": values(tmp_path, extra=np.ones(3))},
        {"dims": {"n": 3}, "vary": ["n"]},
    ):
        with pytest.raises(CrossflopsError):
            count(path, observe=True, **options)
    with pytest.raises(CrossflopsError, match="--observe can be used only with an ONNX file"):
        count("some.module:model", "1x2", observe=True)


def test_counting_without_it_imports_no_runtime(path):
    """The runtime stays out of this process even when a run is asked for."""
    code = (
        "import sys; from crossflops import count; "
        f"count({path!r}, dims={{'n': 2}}, observe=True); print('onnxruntime' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
