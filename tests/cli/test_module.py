"""`--module` and `--top`: a comparison about one module, and where tools disagree."""

from msgspec.structs import replace

from crossflops.report.report import ModuleRow


def modules(report):
    """The report with a module."""
    row = ModuleRow(path="a.b", class_="Linear", macs=4, flops=8, params=2)
    return replace(report, modules=(row,))


def test_the_module_reaches_the_pipeline(line, answers, report):
    """The option takes a path, and --top a number that changes the page alone."""
    answers(report({"thop": 0}))
    assert line("compare", "m:f", "--module", "a.b", "--top", "0")[0] == 0
    assert line.comparison.module == "a.b"


def test_a_file_is_asked(line, report, tmp_path):
    """`render` shows one module of a comparison; an unknown one is refused with its like."""
    file = tmp_path / "report.json"
    file.write_text(modules(report({"thop": 0})).to_json())
    status, out, _ = line("render", str(file), "--module", "a.b")
    assert status == 0
    assert out.startswith("a.b of Net · Linear · 2 parameters")
    status, out, err = line("render", str(file), "--module", "a.c")
    assert (status, out) == (2, "")
    assert err == "error: the model has no module 'a.c'\nhint: modules with similar names: a.b\n"
    err = line("render", str(file), "--module", "q")[2]
    assert "similar" not in err
    assert "hint: name one of its modules, such as a" in err
    assert line("render", str(file), "--top", "3")[0] == 0


def test_a_count_has_modules_too(line, report, tmp_path):
    """Of a report without tools the tables of the module are shown."""
    file = tmp_path / "report.json"
    file.write_text(modules(report()).to_json())
    status, out, _ = line("render", str(file), "--module", "a.b")
    assert status == 0
    assert "a.b of Net" in out
    assert "bytes read" not in out
