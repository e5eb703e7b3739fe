"""The loops that are compiled on the spot: they do all of their work, and no more than fits."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

from crossflops.hardware import peaks as native
from crossflops.hardware.peaks import (
    NoLoopError,
    compiling_peak_loops,
    find_c_compiler,
    numpy_product_rate,
    numpy_sum_bandwidth,
)

needs_compiler = pytest.mark.skipif(find_c_compiler() is None, reason="no C compiler was found")


@needs_compiler
def test_the_loops_run_and_check_themselves():
    """Every loop ends with 0, which it does only where its sums are right."""
    with compiling_peak_loops() as program:
        clock = program.run("clock", 0.05)
        single = program.run("fma32", 0.05)
        double = program.run("fma64", 0.05)
        both = program.run("fma32", 0.05, 2)
        dots = [
            (program.run(kind, 0.05), products)
            for kind, products, there in (("dot16", 2, single.dot16), ("dot8", 4, single.dot8))
            if there
        ]
        triad = program.run("triad", 0.05, 2, 1 << 20)
    # a round: 2 FLOPs x chains x lanes x steps, for every thread
    chains = {512: 24, 256: 12, 128: 12}
    lanes = single.width // 32
    steps = 1 << 17
    assert single.work in {2 * count * lanes * steps for count in (chains[single.width], 24)}
    assert double.work == single.work / 2
    assert both.work == 2 * single.work
    assert triad.work == 3 * (1 << 20) / 16  # a sixteenth of the arrays in each round
    for loop, products in dots:  # of FP32 or INT32 lanes, in 12 chains
        widths = {2 * products * 12 * (bits // 32) * steps for bits in (256, 512)}
        assert loop.work in widths
    assert clock.work == 4 * steps
    assert min(loop.rounds for loop in (clock, single, double, both, triad)) >= 3
    assert all(loop.best <= loop.total for loop in (clock, single, double, both, triad))


@needs_compiler
def test_no_more_than_the_widest_units_can():
    """FLOPs per clock: at most two units of 512 bits, and at least one scalar multiply-add."""
    with compiling_peak_loops() as program:
        clock = max(program.run("clock", 0.1).rate for _ in range(3))
        rate = program.run("fma32", 0.1).rate
    # four units of the width at most (Apple, Neoverse V2: 4 x 128; Intel, AMD: 2 x 512)
    assert 0.25 < rate / clock <= 64 * 1.25


@needs_compiler
def test_the_work_is_in_the_program(tmp_path):
    """The hot loop of the compiled program has as many multiply-adds as there are chains."""
    if not shutil.which("objdump") or native.platform.machine() != "x86_64":
        pytest.skip("reads the assembly of x86-64 by objdump")
    source, target = tmp_path / "peak.c", tmp_path / "peak"
    source.write_bytes(files("crossflops.hardware").joinpath("peak.c").read_bytes())
    command = [
        find_c_compiler(),
        "-O2",
        "-mavx2",
        "-mfma",
        "-pthread",
        str(source),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)
    listing = subprocess.run(["objdump", "-d", target], capture_output=True, text=True).stdout
    for kind in ("ps", "pd"):
        fused = [line for line in listing.splitlines() if "vfmadd" in line and f"{kind} " in line]
        assert len([line for line in fused if "%ymm" in line]) >= 12


@needs_compiler
@pytest.mark.parametrize("arguments", [[], ["fma32"], ["fma32", "0", "1"], ["triad", "1", "1"]])
def test_the_program_refuses_what_it_cannot_do(arguments):
    """Wrong arguments end with 2, and nothing is printed."""
    with compiling_peak_loops() as program:
        done = subprocess.run([program.path, *arguments], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")


def test_no_compiler_is_said(monkeypatch):
    """Without a compiler there is an error that says so."""
    monkeypatch.setattr(native, "find_c_compiler", lambda: None)
    with pytest.raises(NoLoopError, match="no C compiler"), compiling_peak_loops():
        pass


def test_a_compiler_that_fails_is_said(monkeypatch, tmp_path):
    """What the compiler says stands in the error, in one line."""
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'out of\nluck' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with (
        pytest.raises(NoLoopError, match="loops that measure the speed of this machine: out of"),
        compiling_peak_loops(),
    ):
        pass


@pytest.mark.parametrize(
    "script",
    ["exit 4", "echo nothing", "echo '{\"work\": 1}'", "kill -ILL $$"],
)
def test_a_program_that_fails_is_said(tmp_path, script):
    """A wrong sum, an illegal instruction, or an answer that is none."""
    path = tmp_path / "peak"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with pytest.raises(NoLoopError, match="the loop that measures fma32 failed"):
        native.PeakLoops(str(path), "cc").run("fma32", 0.01)


def test_rates_by_hand():
    """Best is work over the fastest round; sustained is all work over all time."""
    text = '{"work": 100, "best": 0.5, "total": 4, "rounds": 3, "width": 128, "fused": true}'
    loop = native.msgspec.convert(json.loads(text), native.Loop)
    assert (loop.rate, loop.mean_rate) == (200, 75)


def test_numpy_gives_rates():
    """What stands in for the loops gives numbers above zero."""
    assert numpy_product_rate("float32", 0.01) > 0
    assert numpy_sum_bandwidth(1 << 16, 0.01) > 0
