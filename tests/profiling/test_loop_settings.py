"""The block of a DeepSpeed configuration."""

import json

import pytest

from crossflops.errors import InputError
from crossflops.training_loops.deepspeed_settings import read_flops_profiler_settings

DOCUMENTED = {  # deepspeed.ai/docs/config-json, "Flops Profiler"
    "enabled": False,
    "profile_step": 1,
    "module_depth": -1,
    "top_modules": 1,
    "detailed": True,
    "output_file": None,
}


def test_the_documented_block_is_the_default():
    """Each key of the documentation has the value that it has there."""
    read = read_flops_profiler_settings({})
    assert {name: getattr(read, name) for name in DOCUMENTED} == DOCUMENTED


def test_a_file_a_configuration_and_a_block_are_read_alike(tmp_path):
    """The rest of a configuration is not looked at."""
    block = {"enabled": True, "profile_step": 5, "module_depth": 2, "top_modules": 3}
    whole = {"train_batch_size": 8, "flops_profiler": block}
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(whole))
    assert (
        read_flops_profiler_settings(file)
        == read_flops_profiler_settings(whole)
        == read_flops_profiler_settings(block)
    )
    assert read_flops_profiler_settings(file).profile_step == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"flops_profiler": {"profile_stepp": 3}},
        {"flops_profiler": {"profile_step": "five"}},
        {"flops_profiler": {"profile_step": 0}},
        {"flops_profiler": 3},
        [],
    ],
)
def test_what_is_wrong_is_refused(wrong):
    """A key that nobody reads is a mistake, and no default is taken for it."""
    with pytest.raises(InputError):
        read_flops_profiler_settings(wrong)


def test_no_file_and_no_json(tmp_path):
    """In one sentence each."""
    with pytest.raises(InputError, match="cannot read the DeepSpeed configuration"):
        read_flops_profiler_settings(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match="is not valid JSON"):
        read_flops_profiler_settings(tmp_path / "bad.json")
