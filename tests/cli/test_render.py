"""`crossflops render`: a written report, shown again."""

import pytest

from crossflops.cli import main


def test_what_is_no_report_costs_two_lines(tmp_path, capsys):
    """A missing file, and a file of something else: what is wrong and what to do, exit 2."""
    other = tmp_path / "other.json"
    other.write_text('{"schema": "other/1"}')
    for path in (tmp_path / "missing.json", other):
        assert main(["render", str(path)]) == 2
        error = capsys.readouterr().err.splitlines()
        assert [line.partition(":")[0] for line in error] == ["error", "hint"]


@pytest.mark.parametrize("name", ["resnet50"])
def test_a_report_is_shown_in_another_format(name, tmp_path, pytestconfig):
    """`-o FILE.md` of a read report is the page that was written when it was made."""
    source = pytestconfig.rootpath / "reports" / f"{name}.json.gz"
    target = tmp_path / "again.md"
    assert main(["render", str(source), "-o", str(target)]) == 0
    assert target.read_text() == source.with_name(f"{name}.md").read_text()
