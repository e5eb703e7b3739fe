"""Every key of a configuration with every kind of value: it holds, or two lines refuse it."""

import pytest

from tests.cli.conftest import line as line
from tests.onnx_files import saved, with_weights

MODEL = "g (float[N,3] x, float[3,5] w) => (float[N,5] y) { y = MatMul(x, w) }"
VALUES = (
    "3", "-1", "2.5", "true", "nan", "1979-05-27", '""', '"text"', '"N=1"', "[]", "[3]",
    '["N=1"]', '["2x3"]', '[["2x3"]]', "{}", "{N = 8}", "{N = -1}", "{N = 2.5}", "{N = true}",
    '{N = "8"}', "{N = [1]}", "{N = {M = 1}}", '{If = "else"}', "{batch = 0}",
    '{"" = ["macs <= 1"]}', '{w = ["macs"]}', '["macs <= 1"]', '["macs <= -1"]', '["macs <= 1ms"]',
)  # fmt: skip
# What has the form of each key: the model may have no use for it, which is its row.
FORMED = {
    "rules": ('["macs <= 1"]',),
    "target": ('"text"', '"N=1"'),
    "inputs": ('["2x3"]', '"text"', '"N=1"', '["N=1"]', '["macs <= 1"]', "[]", '""', '["macs"]',
               '["macs <= -1"]', '["macs <= 1ms"]'),
    "inputs_file": ('""', '"text"', '"N=1"'),
    "arguments": ("{}", "{N = 8}", "{N = -1}", "{N = 2.5}", "{N = true}", '{N = "8"}', "{N = [1]}",
                  "{N = {M = 1}}", '{If = "else"}', "{batch = 0}", '{"" = ["macs <= 1"]}',
                  '{w = ["macs"]}'),
    "dims": ("{}", "{N = 8}", "{batch = 0}"),
    "trips": ("{}", "{N = 8}", "{batch = 0}"),
    "branches": ("{}", '{If = "else"}'),
    "sizes": ("{}",),
    "modules": (),
    "operators": (),
    "strange": (),
}  # fmt: skip


@pytest.fixture
def checked(line, tmp_path, monkeypatch):
    """What `check` makes of a configuration: its status, and its lines on both streams."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, with_weights(MODEL, "w"))

    def check(text):
        (tmp_path / "crossflops.toml").write_text(text)
        status, out, err = line("check")
        assert "Traceback" not in out + err
        assert "report it" not in out + err
        return status, out, err

    return check


@pytest.mark.parametrize("key", FORMED)
def test_a_key_takes_its_form_alone(checked, key):
    """What has another form is refused in two lines, which name the key or the rule."""
    for value in VALUES:
        rules = "" if key in ("rules", "modules", "operators") else 'rules = ["macs <= 1"]\n'
        status, out, err = checked(f'[budgets."model.onnx"]\n{rules}{key} = {value}\n')
        if value in FORMED[key]:
            assert status in (1, 2), value
            assert "Error:" not in out, (value, out)
            assert "--" not in out.replace("--update", ""), (value, out)
            continue
        assert (status, out) == (2, ""), (value, out)
        first, second = err.splitlines()
        assert first.startswith("error: ")
        assert second.startswith("hint: ")


@pytest.mark.parametrize("table", ["budgets", "budgets.x", "python", "devices", "nothing"])
def test_a_table_takes_tables_alone(checked, table):
    """Where a value stands in its place, two lines say so; `x = [...]` is a list of rules."""
    for value in VALUES:
        status, out, err = checked(f"{table} = {value}\n")
        if status == 1 or out:
            assert value == '["macs <= 1"]'
            continue
        assert status == 2, value
        assert [text.split(":")[0] for text in err.splitlines()] == ["error", "hint"], (value, err)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dims", ["N=1"]), ("dims", "N=1"), ("dims", {"N": "1"}), ("dims", {"N": -1}), ("dims", 3),
        ("trips", "L=3"), ("trips", ["L=3"]), ("branches", "If=then"), ("branches", 3),
        ("branches", {"If": "maybe"}), ("arguments", ["a"]), ("arguments", {3: 4}),
        ("inputs_file", 3),
    ],
)  # fmt: skip
def test_python_shows_the_right_form(tmp_path, option, value):
    """One line of what is wrong, and one with an example of that option."""
    import crossflops

    with pytest.raises(crossflops.CrossflopsError) as caught:
        crossflops.count(saved(tmp_path, with_weights(MODEL, "w")), **{option: value})
    assert caught.value.message.startswith(f"{option} must be ")
    assert caught.value.hint.startswith(f"write {option}=")


def test_a_path_is_a_target(tmp_path):
    """Of a file: 4 x 3 x 5 MACs."""
    import crossflops

    saved(tmp_path, with_weights(MODEL, "w"))
    assert crossflops.count(tmp_path / "model.onnx", dims={"N": 4}).macs == 60
