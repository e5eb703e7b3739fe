"""Every option that a verb takes changes its result, or is refused by its name.

The verbs and their options are those that click knows: an option without a value here fails. A
verb is asked in several ways (about a file, a report, sizes ...), and each of its options is added
to each way. `LIMITS` change nothing until something goes wrong: each has a test of its own.
"""

import contextlib
import io
import json
import shlex

import click
import numpy as np
import pytest

from crossflops.cli import VERBS, command_group, main
from tests.onnx_files import saved, with_weights
from tests.workloads import write_workload_report

MODEL = "g (float[%s,4] x, float[4,%d] w) => (float[%s,%d] y) { h = MatMul(x, w) y = Softmax(h) }"
TWICE = """
g (float[2,4] x, float[4,3] w, float[3,3] u) => (float[2,3] y)
{ h = MatMul(x, w) i = MatMul(h, u) y = Softmax(i) }
"""
ODD = "g (float[2,4] x) => (float[2,4] y) { h = local.Odd(x) y = Relu(h) }"
FORMULA = """
import crossflops

@crossflops.operator("local::Odd")
def odd(call):
    return crossflops.Cost(adds=8)
"""
LOOP = """
g (float[2,4] x, int64 n, bool c) => (float[2,4] y) {
  [l] y = Loop(n, c, x) <body = b (int64 i, bool c_in, float[2,4] s) => (bool c_out, float[2,4] t)
    { c_out = Identity(c_in) t = Add(s, s) }>
}
"""
ATTENTION = """
g (float[1,2,6,4] q, float[1,2,6,4] k, float[1,2,6,4] v) => (float[1,2,6,4] y)
{ y = Attention <is_causal = 1> (q, k, v) }
"""
LIMITS = {
    "--strict",
    "--timeout",
    "--memory",
    "--memory-limit",
    "--debug",
    "--catalogue",
    "--if-budgeted",
    "--jobs",
    "--formulas",
}
# What each option is given; a word of a verb goes over that of all.
VALUES = {
    "--input": "3x4", "--inputs": "in.npz", "--arg": "width=16", "--dim": "rows=3",
    "--trips": "loop_1=3", "--formulas": "own.py", "--library": "timm", "--only": "fixed*",
    "--limit": "1", "--store": "store", "--prompt": "8", "--generate": "2",
    "--branch": "if_1=then", "--timeout": "99", "--batch": "4", "--seq": "7", "--image-size": "9",
    "--as": "exact-2k-1", "--vary": "rows", "--weights": "real", "--frozen": "w",
    "--trainable": "w",
    "--loss": "m.py:loss", "--optimizer": "sgd", "--by": "op", "--top": "1", "--depth": "0",
    "--unit": "flops", "--output": "out.md", "--train-multiplier": "2", "--backward": "flat",
    "--recompute": "full", "--accumulate": "4", "--run-tokens": "1G", "--run-examples": "1M",
    "--run-steps": "1000", "--mfu": "0.4", "--examples-per-second": "50",
    "--tokens-per-second": "70", "--latency-ms": "3", "--fwd-ms": "3", "--bwd-ms": "6",
    "--step-ms": "1", "--tokens": "5", "--runs": "runs.csv", "--times": "times.csv",
    "--precision": "fp32", "--precision-of": "MatMul=fp64", "--mix": "fp16=0.5,fp32=0.5",
    "--device": "h100-sxm", "--catalogue": "mine.toml", "--peak-tflops": "7",
    "--bandwidth": "500", "--macs": "4M", "--pass-macs": "8M", "--tool": "thop",
    "--causal": "half", "--window": "3", "--devices": "4", "--dp": "3", "--tensor-parallel": "2",
    "--pp": "2",
    "--params": "7M", "--layers": "3", "--hidden": "48", "--heads": "3", "--head-dim": "5",
    "--workload": "workload.json", "--cache-dtype": "fp8", "--draft": "hf:draft.json",
    "--images": "1", "--draft-tokens": "4", "--acceptance": "2",
    "--prefill-tokens-per-second": "90", "--decode-tokens-per-second": "80",
    "--kv-heads": "2", "--context": "77", "--param-bytes": "1", "--cache-bytes": "1",
    "--bytes": "weights-once", "--bytes-per-example": "1M", "--what-if": "batch=64",
    "--bench": "bench.json", "--plot": "p.svg", "--against": "other.onnx",
    "--against-input": "3x4",
    "--against-inputs": "in.npz", "--against-arg": "width=3", "--against-dim": "rows=2",
    "--against-trips": "loop_1=2", "--against-branch": "if_1=then", "--onnx": "other.onnx",
    "--memory": "8", "--between": "thop fvcore", "--module": "nowhere",
    "--python": "thop=no/python",
    "--batch-dim": "N", "--max-latency-ms": "1", "--memory-limit": "4G", "--threads": "3",
    "--runtime": "torch", "--optimization": "off", "--seconds": "0.02", "--trace": "none.json",
    "--write-trace": "trace.json", "--step": "2", "--by-tool": "exact-2k-1", "--digits": "9",
    "--max-increase": "2%", "--junit": "j.xml", "--code-quality": "q.json",
    "--to": "onnx", "--search": "v100", "--clock": "3GHz", "--units": "3", "--fma": "5",
    "--compare-to": "earlier", "--bus": "7", "--channels": "3", "--transfers": "4", "--jobs": "2",
}  # fmt: skip
OF_VERB = {
    ("devices", "--precision"): "fp64",
    ("profile", "--precision"): "fp16",
    ("efficiency", "--optimizer"): "sgd",
    ("check", "--output"): "out.json",
}
SPEED = "--examples-per-second 100"
PEAK = "--device v100-pcie --precision fp16"
SIZES = "--params 1G --layers 2 --hidden 32"
WAYS = {
    "count": (
        "fixed.onnx", "fixed.onnx --json", "named.onnx --dim rows=2",
        "named.onnx --input 2x4 --json",
        "fixed.onnx --train --json", "loop.onnx --trips l=2", "fixed.onnx --by node --json",
        "pipeline.toml --json",
    ),
    "compare": ("fixed.onnx --no-tools", "fixed.onnx --no-tools --against other.onnx --json"),
    "explain": ("norm.batch",),
    "efficiency": (
        f"fixed.onnx {SPEED} {PEAK} --json", f"fixed.onnx --roofline {PEAK} --json",
        f"fixed.onnx --train --latency-ms 3 {PEAK}", f"fixed.onnx {SPEED} {PEAK} --train --json",
        f"attention.onnx {SPEED} {PEAK} --json", f"attention.onnx --train --backward flat {SPEED}",
        f"fixed.onnx {SPEED} --as exact-2k-1", f"fixed.onnx --macs 5M {SPEED} {PEAK}",
        f"--macs 4G {SPEED} {PEAK} --json", f"--macs 4G --train --fwd-ms 1 --bwd-ms 2 {PEAK}",
        f"--pass-macs 4G --batch 8 --latency-ms 2 {PEAK}",
        f"--macs 4G --train --run-examples 5M {PEAK} --mfu 0.3",
        f"{SIZES} --seq 64 --tokens-per-second 100 {PEAK} --json",
        f"{SIZES} --seq 64 --tokens-per-second 100 --devices 2 --train {PEAK}",
        f"{SIZES} --context 64 --tokens-per-second 100 {PEAK} --json",
        f"{SIZES} --context 64 --kv-heads 4 --head-dim 8 --roofline {PEAK} --json",
        f"--params 1G --tokens-per-second 100 {PEAK} --train --run-tokens 3G",
        "--macs 4G --runs runs.csv",
        f"fixed.onnx --train --batch 2 --run-steps 9 {PEAK}",
        f"--params 1G --layers 2 --heads 4 --head-dim 8 --context 64 {SPEED} {PEAK}",
        "--macs 4G --times macs.csv", f"--workload workload.json {PEAK} --json",
        f"--workload workload.json {PEAK} --tp 2 --tokens-per-second 9 --json",
    ),
    "profile": ("fixed.onnx --fwd-ms 1 --bwd-ms 2 --peak-tflops 1 --json",
                "fixed.onnx --fwd-ms 1 --bwd-ms 2 --peak-tflops 1"),
    "devices": ("", "--json", "a100-sxm4-80gb", "--here --json", "--search a100 --json",
                "--peak-tflops 9"),
    "peak": ("--clock 1GHz --units 2 --fma 2 --json",),
    "bandwidth": ("--clock 1GHz --bus 2 --json",),
    "table": ("fixed.onnx --json", "named.onnx --dim rows=2"),
    "identify": ("42 fixed.onnx --json", "24 named.onnx --dim rows=2"),
    "audit": ("published.csv --json",),
    "sweep": ("suite.toml --store rows --json",),
    "diff": ("fixed.onnx other.onnx --input 2x4 --json", "count.json other.json --json",
             "fixed.onnx other.json --json"),
    "check": ("", "fixed.onnx", "fixed.onnx other.onnx --json --if-budgeted"),
    "export": ("fixed.onnx --to onnx -o x.onnx", "fixed.onnx --to model-explorer -o x.json",
               "named.onnx --dim rows=2 --to onnx --annotate -o x.onnx"),
    "render": ("count.json", "count.json --json", "rates.json", "rates.json --json",
               "step.json --json"),
    "schema": ("count",),
}  # fmt: skip
# What these ways leave out: tools and runtimes have tests of their own.
ELSEWHERE = {"bench", "tools", "doctor", "check-formula"}
# The weights of a file are trained already: a test of its own freezes one first. Of the modules
# of a file there is one at each level, and the usual N of --top is more.
# A file has no other sizes to try, what a store keeps is a folder, and it keeps no failure here:
# tests/verbs have these.
ALREADY = {
    ("count", "--trainable"), ("profile", "--top"), ("identify", "--all"), ("audit", "--store"),
    ("sweep", "--retry-failures"),
}  # fmt: skip
OF_OTHER_TARGETS = {
    "--inputs", "--arg", "--dim", "--trips", "--branch", "--no-grad", "--train-mode",
    "--allow-pickle", "--image-size", "--loss", "--trainable", "--compare", "--tool", "--bench",
}  # fmt: skip
# A revision is one of a repository: tests/cli/test_check_against.py.
# a model by its config: tests/verbs/test_workload.py, tests/hardware/test_generation_rates.py
OF_LANGUAGE = {"--prompt", "--generate", "--images", "--draft", "--draft-tokens", "--acceptance"}
OF_A_MODEL = {"efficiency": OF_OTHER_TARGETS | OF_LANGUAGE, "check": {"--against"}}
# Of these some options change nothing in the files that are asked about here: see their own tests.
OF_FILES = {
    "count", "compare", "profile", "table", "diff", "export", "render", "identify", "audit",
    "sweep",
}  # fmt: skip
OF_TOOLS = {
    "--compare", "--latency", "--observe", "--measure", "--no-tools", "--bench", "--dask", "--ray",
}  # fmt: skip


def options_of(verb):
    """The options of a verb, by their longest flags."""
    command = command_group.get_command(click.Context(command_group), verb)
    return [param for param in command.params if isinstance(param, click.Option)]


def flag_of(param):
    """The longest flag of an option."""
    return max(param.opts, key=len)


def words_of(verb, param):
    """The option as it is typed, with its value."""
    flag = flag_of(param)
    if param.is_flag:
        return [flag]
    value = OF_VERB.get((verb, flag), VALUES[flag])
    if flag == "--mix":
        first, second = value.split(",")
        return [flag, first, flag, second]
    return [flag, *value.split()] if param.nargs == 2 else [flag, value]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with files of every kind, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    fixed = with_weights(TWICE, "w", "u")
    for place, node in enumerate(fixed.graph.node):
        node.name = f"/block{place}/{node.op_type}"
    saved(tmp_path, fixed, "fixed.onnx")
    saved(tmp_path, with_weights(MODEL % ("rows", 3, "rows", 3), "w"), "named.onnx")
    saved(tmp_path, with_weights(MODEL % ("2", 5, "2", 5), "w"), "other.onnx")
    saved(tmp_path, with_weights(LOOP), "loop.onnx")
    saved(tmp_path, with_weights(ATTENTION, opset=23), "attention.onnx")
    saved(tmp_path, with_weights(ODD), "odd.onnx")
    np.savez("in.npz", x=np.ones((2, 4), "float32"))
    texts = {
        "runs.csv": "device,precision,batch,rate\nv100-pcie,fp16,8,100\n",
        "times.csv": "module,ms\n,5\n",
        "macs.csv": "module,ms,macs\na,5,12\n",
        "mine.toml": "[devices.mine]\npeaks = {fp16 = 1e12}\nbandwidth = 1e9\n",
        "m.py": "def loss(outputs):\n    return outputs\n",
        "own.py": FORMULA,
        "pipeline.toml": '[[part]]\ntarget = "fixed.onnx"\ntimes = 3\n',
        "published.csv": "model,macs\nfixed.onnx,42\nother.onnx,100\n",
        "suite.toml": 'tools = []\n[[model]]\ntarget = ["fixed.onnx", "other.onnx"]\n',
        "crossflops.toml": '[budgets."fixed.onnx"]\nrules = ["macs <= 4G"]\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    run(["count", "fixed.onnx", "-o", "count.json"])
    run(["count", "other.onnx", "-o", "other.json"])
    write_workload_report(tmp_path / "workload.json", (tmp_path / "count.json").read_bytes())
    run(["efficiency", "fixed.onnx", "--roofline", *PEAK.split(), "-o", "rates.json"])
    run(["sweep", "suite.toml", "--store", "earlier"])
    step = "fixed.onnx --fwd-ms 1 --bwd-ms 2 --peak-tflops 1 -o step.json"
    run(["profile", *step.split()])
    return tmp_path


def run(words):
    """The exit status, what stdout says without the request itself, and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    return status, body(out.getvalue()), err.getvalue()


def body(text):
    """A page; of JSON what was found, and not what was asked."""
    try:
        return without_request(json.loads(text))
    except ValueError:
        return text


def without_request(value):
    """The same without the keys that tell the request again."""
    if isinstance(value, dict):
        kept = (key for key in value if key not in ("request", "made_with"))
        return {key: without_request(value[key]) for key in kept}
    return [without_request(item) for item in value] if isinstance(value, list) else value


def written(folder):
    """The files of a folder with what is in them, apart from times that are stored."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def outcome(folder, before, words, flags):
    """Whether the words change the result, are refused by their flag, or do nothing.

    A table of times is named by its file and the line that is at fault.
    `before` is the result without the option, and the files; these are as before in the end.
    """
    ran, files = run(words), written(folder)
    restore(folder, before[1], files)
    status, page, err = ran
    if status == 2:
        assert "please report" not in err, (words, err)
        names = [*flags, *(f"{words[-1]}, line" for flag in flags if flag == "--times")]
        names += [f"no module {words[-1]!r}"] if "--module" in flags else []
        # where no plugin is, a tool is named by what installs it
        names += ["the plugin of thop is not installed"] if "--tool" in flags else []
        return "refused" if any(name in err for name in names) else f"refused unnamed: {err}"
    return "effect" if ((status, page), files) != before else "nothing"


def restore(folder, before, after):
    """Let the files of a folder be those of before."""
    for name in after.keys() - before.keys():
        (folder / name).unlink()
    for name, content in before.items():
        if after.get(name) != content:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ELSEWHERE])
def test_every_option_changes_the_result_or_is_refused(verb, folder):
    """In every way to ask a verb; and in some way each option changes something."""
    silent, effects, asked = [], set(), set()
    for way in WAYS[verb]:
        base = [verb, *shlex.split(way)]
        status, page, _ = run(base)
        assert status in (0, 1), base
        before = (status, page), written(folder)
        for param in options_of(verb):
            flag = flag_of(param)
            if any(opt in base for opt in param.opts):
                asked.add(flag)
            elif flag not in LIMITS | OF_TOOLS and (verb, flag) not in ALREADY:
                found = outcome(folder, before, [*base, *words_of(verb, param)], param.opts)
                if found == "effect":
                    effects.add(flag)
                elif found != "refused":
                    silent.append(f"{' '.join(base)} + {flag}: {found}")
    assert not silent, "\n".join(silent)
    if verb not in OF_FILES:
        known = {flag_of(param) for param in options_of(verb)}
        assert known - effects - asked <= LIMITS | OF_TOOLS | OF_A_MODEL.get(verb, set())


def test_every_verb_is_asked():
    """A new verb stands here, or among those that have tests of their own."""
    assert set(VERBS) == set(WAYS) | ELSEWHERE


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        ("count odd.onnx", (), ("--strict",)),
        ("efficiency --macs 4G --roofline --bytes-per-example 1M --precision fp16",
         ("--device", "mine"), ("--device", "mine", "--catalogue", "mine.toml")),
        ("count fixed.onnx --json --train --frozen w", (), ("--trainable", "w")),
        ("check other.onnx", (), ("--if-budgeted",)),
        ("count odd.onnx", (), ("--formulas", "own.py")),
        ("count fixed.onnx --timeout 9 --observe --inputs none.npz", (), ("--debug",)),
    ],
)  # fmt: skip
def test_what_waits_for_something_to_go_wrong(folder, words, before, after):
    """Strictness, a catalogue, a weight that is frozen else, a target that has no budget."""
    first, second = (run([*words.split(), *more]) for more in (before, after))
    assert first != second


@pytest.mark.parametrize(
    "words",
    [
        "count fixed.onnx --timeout 9",
        "table fixed.onnx --timeout 9",
        "table fixed.onnx fixed.onnx --jobs 2",
        "efficiency --macs 4G --examples-per-second 9 --timeout 9",
        f"efficiency --macs 4G {SPEED} --catalogue mine.toml",
        "compare fixed.onnx --no-tools --memory 4",
        "check --if-budgeted",
        "diff count.json other.json --allow-pickle",
        "diff count.json other.json --formulas own.py",
        "efficiency --macs 4G --examples-per-second 9 --formulas own.py",
        "render count.json --llm",
        "render count.json --as palm",
        "count fixed.onnx --llm",
    ],
)
def test_a_limit_of_nothing_is_refused(folder, words):
    """A limit on what does not take place is refused by its name."""
    status, out, err = run(words.split())
    assert (status, out) == (2, "")
    flag = next(word for word in reversed(words.split()) if word.startswith("--"))
    assert flag in err
