"""Files made to hurt: each ends soon, in an exact count, or in an error that says where."""

import random
import re
import resource
import subprocess
import sys
import time

import pytest
from onnx import TensorProto, helper

from crossflops.errors import CrossflopsError
from crossflops.load.wire import length_prefix
from crossflops.normalize.onnx_file import inference
from tests.normalize.test_onnx_control_flow import doubling
from tests.onnx_files import ledger_of, parsed, saved

SECONDS, BYTES = 5, 512 << 20  # of this process: inference in its child has a limit of its own


def chained(levels):
    """Functions that each call the next: as deep as there are levels."""
    imports = '<domain: "local", opset_import: ["": 17, "local": 1]>'
    calls = (f"F{k} (a) => (b) {{ b = local.F{k + 1} (a) }}" for k in range(levels))
    text = "g (float[4] x) => (y) { y = local.F0 (x) } "
    return parsed(text + " ".join(f"{imports} {call}" for call in calls))


def resized(scale):
    """A Resize by a scale that is no number."""
    model = parsed("g (float[1,1,4,4] x) => (y) { y = Resize(x, , s) }")
    scales = helper.make_tensor("s", TensorProto.FLOAT, [4], [1, 1, scale, scale])
    model.graph.initializer.append(scales)
    return model


def nested(depth):
    """If within If, in wire format, since protobuf itself does not nest that deep."""
    inner = helper.make_node("Relu", ["x"], ["y"]).SerializeToString()
    for _ in range(depth):
        graph = length_prefix(1, len(inner)) + inner
        attribute = b"\x0a\x01b\xa0\x01\x05" + length_prefix(6, len(graph)) + graph
        inner = b"\x22\x02If" + length_prefix(5, len(attribute)) + attribute
    graph = length_prefix(1, len(inner)) + inner
    return length_prefix(7, len(graph)) + graph


def looped(trips):
    """A Loop of that many runs, of 64 MACs each."""
    return parsed(
        f"g (float[4,4] x) => (y) <int64 m = {{{trips}}}> {{ y = Loop (m, , x) <body = b "
        "(int64 i, bool c, float[4,4] a) => (d, e) { d = Identity(c) e = MatMul(a, a) }> }"
    )


def large(x, w):
    """A product of huge matrices."""
    return parsed(f"g (float[{x}] x, float[{w}] w) => (y) {{ y = MatMul(x, w) }}")


RANGE = "<int64 a = {0}, int64 n = {100000000000}, int64 s = {1}>"
TIMES = "<int64[2] n = {1000000, 1000000}>"
SHAPE = "<int64[3] s = {1099511627776, 1099511627776, -1}>"
FILES = {
    "doubling functions": (doubling(27), None),
    "functions in a long chain": (chained(5000), "deeper than 100"),
    "a long range": (parsed(f"g () => (y) {RANGE} {{ y = Range(a, n, s) }}"), None),
    "a large tile": (parsed(f"g (float[9,9] x) => (y) {TIMES} {{ y = Tile(x, n) }}"), None),
    "an overflowing input": (large("4611686018427387904,4611686018427387904", "4,4"), "2^63"),
    "a huge product": (large("2147483648,2147483648", "2147483648,2147483648"), None),
    "an infinite scale": (resized(float("inf")), "y"),
    "a scale that is no number": (resized(float("nan")), "y"),
    "an overflowing reshape": (
        parsed(f"g (float[4,4] x) => (y) {SHAPE} {{ y = Reshape(x, s) }}"),
        None,
    ),
    "a Loop without end": (looped(2**62), None),
    "deep nesting": (nested(60), "parsed"),
    "deeper nesting": (nested(5000), "nest"),
    "many tiny fields": (b"\x08\x08" * 5_000_000, "fields"),
    "zeros": (bytes(1_000_000), "byte 0"),
}


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_ends_soon(name, tmp_path):
    """Within five seconds and without a traceback: a ledger, or an error with a place in it."""
    content, words = FILES[name]
    path = saved(tmp_path, content)
    begin = time.process_time()
    if words is None:
        assert ledger_of(path).counts
    else:
        with pytest.raises(CrossflopsError, match=re.escape(words)) as caught:
            ledger_of(path)
        assert caught.value.hint
    assert time.process_time() - begin < SECONDS


def test_huge_counts_are_exact(tmp_path):
    """2^62 runs, and products of 2^93 MACs, are whole numbers like any other."""
    assert ledger_of(saved(tmp_path, looped(2**62))).total.macs == 2**62 * 64
    assert ledger_of(saved(tmp_path, FILES["a huge product"][0])).total.macs == 2**93


@pytest.mark.parametrize("name", ["doubling functions", "a large tile", "many tiny fields"])
def test_a_hostile_file_leaves_the_command_line_whole(name, tmp_path):
    """Exit status 0 or 2, one error and one hint, and memory within bounds."""
    path = saved(tmp_path, FILES[name][0])
    done = subprocess.run(
        [sys.executable, "-m", "crossflops", "count", path],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES)),
    )
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda *_: time.sleep(60), "takes longer"),
        (lambda *_: resource.setrlimit(resource.RLIMIT_CPU, (0, 0)) or hot(), "crashed"),
        (lambda *_: bytearray(1 << 40), "cannot be inferred"),
    ],
)
def test_inference_that_hangs_or_crashes_is_an_error(act, words, tmp_path, monkeypatch):
    """What happens in the child stays there: time, a signal, memory."""

    class Library:
        class shape_inference:  # noqa: N801 - as it is called in onnx
            infer_shapes = staticmethod(act)

    monkeypatch.setattr(inference, "library", lambda: Library)
    monkeypatch.setattr(inference, "_SECONDS", 1.0)
    path = saved(tmp_path, looped(3))
    with pytest.raises(CrossflopsError, match=words):
        ledger_of(path)


def hot():
    """Compute until somebody stops it."""
    while True:
        pass


SEED = (
    "g (float[batch,8,16] x, float[16,16] w) => (y) <int64 m = {3}, int64[3] s = {0, 4, 32}> "
    "{ a = local.F <alpha = 0.5> (x, w) l = Loop (m, , a) <body = b (int64 i, bool c, "
    "float[batch,8,16] v) => (d, e) { d = Identity(c) e = MatMul(v, w) }> y = Reshape(l, s) } "
    '<domain: "local", opset_import: ["": 17]> F <alpha> (p, q) => (r) '
    "{ t = MatMul(p, q) r = LeakyRelu <alpha: float = @alpha> (t) }"
)


def mutants(data, number, seed=0):
    """The same bytes, cut or with a few bits turned."""
    chance = random.Random(seed)
    for _ in range(number):
        changed = bytearray(data)
        if chance.random() < 0.3:
            del changed[chance.randrange(len(changed)) :]
        for _ in range(chance.randint(0, 6)):
            if changed:
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield bytes(changed)


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_mutants_end_in_a_count_or_an_error(tmp_path):
    """500 damaged files: no other exception, no hang."""
    data = parsed(SEED).SerializeToString()
    outcomes = {"counted": 0, "refused": 0}
    for mutant in mutants(data, 500):
        begin = time.process_time()
        try:
            ledger_of(saved(tmp_path, mutant), dims={"batch": 2})
            outcomes["counted"] += 1
        except CrossflopsError:
            outcomes["refused"] += 1
        assert time.process_time() - begin < SECONDS
    assert min(outcomes.values()) > 20
