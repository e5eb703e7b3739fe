"""`crossflops schema`."""

import json

import msgspec

from crossflops.report.report import Report


def test_a_report_has_the_keys_that_the_schema_requires(line):
    """The schema of a verb refers to the type of its report, and names its keys."""
    status, out, _ = line("schema", "count")
    schema = json.loads(out)
    assert status == 0
    assert schema["$ref"] == "#/$defs/Report"
    fields = {field.encode_name for field in msgspec.structs.fields(Report)}
    assert schema["$defs"]["Report"]["properties"].keys() == fields


def test_without_a_verb_any_report_fits(line):
    """Each type of report is there once, though `count` and `compare` write the same."""
    _, out, _ = line("schema")
    refs = [item["$ref"] for item in json.loads(out)["anyOf"]]
    assert len(refs) == len(set(refs)) == 7


def test_a_verb_without_a_report_is_refused(line):
    """With the verbs that have one."""
    status, out, err = line("schema", "devices")
    assert (status, out) == (2, "")
    assert "devices writes no report that has a schema" in err
    assert "choose one of count, compare" in err
