"""Speculative decoding of two small Llamas, by hand; against real runs, which take longer, in
test_workload_models.py.
"""

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import crossflops
from crossflops.cli import main
from tests.verbs.language_models import LLAMA

pytestmark = pytest.mark.tools
# MACs of a token in the weights of the layer, and cached bytes of a token in fp8: keys and values
# of 2 heads of 16.
MODEL, DRAFT = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96, 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 48
CACHED = 2 * 2 * 16


def macs_of_pass(weights, new, logits, context):
    """Return the MACs of a pass over `new` tokens, of which the last one sees `context`.

    A graph with a mask computes all pairs of the new tokens and the context, 2 x 64 each.
    """
    return new * weights + 2 * new * context * 64 + logits * 6_400


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_a_smaller_draft_by_hand(tmp_path, capsys):
    """The draft proposes 2 tokens, of which 1 is accepted; the cache is in fp8."""
    for name, width in (("config", 96), ("draft", 48)):
        config = {**LLAMA, "num_hidden_layers": 1, "intermediate_size": width}
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    file = tmp_path / "report.json"
    words = ["count", f"hf:{tmp_path}/config.json", "--prompt", "10", "--generate", "4"]
    words += ["--draft", f"hf:{tmp_path}/draft.json", "--draft-tokens", "2", "--acceptance", "1"]
    assert main([*words, "--cache-dtype", "fp8", "-o", str(file)]) == 0
    workload = crossflops.Report.from_json(file.read_text()).workload
    draft = workload.speculation.draft
    # rounds at 10 and 12 tokens; 14 are the end, so that the second one proposes 1
    assert workload.prefill.amounts.macs == macs_of_pass(MODEL, 12, 3, 12)
    assert workload.decode.amounts.macs == macs_of_pass(MODEL, 2, 2, 13)
    assert draft.prefill.amounts.macs == macs_of_pass(DRAFT, 10, 1, 10)
    steps = (1, 1, 11), (2, 1, 12)
    assert draft.decode.amounts.macs == sum(macs_of_pass(DRAFT, *own) for own in steps)
    assert workload.macs == sum(
        phase.amounts.macs for own in (workload, draft) for phase in (own.prefill, own.decode)
    )
    assert (workload.decode.passes, draft.decode.passes) == (1, 2)
    said = workload.speculation
    assert (said.rounds, said.proposed_tokens, said.accepted_tokens) == (2, 3, 2)
    assert (workload.cache_dtype, workload.model_cache_dtype) == ("fp8", "float32")
    assert (workload.cache_bytes, draft.cache_bytes) == (13 * CACHED, 12 * CACHED)
    # a pass reads what is cached before it, and adds its own tokens
    assert workload.decode.amounts.cache_read == 11 * CACHED
    assert workload.decode.amounts.cache_written == 2 * CACHED
    assert draft.decode.amounts.cache_read == (10 + 10) * CACHED
    capsys.readouterr()
    assert main(["render", str(file)]) == 0
    page = capsys.readouterr().out
    assert "2 rounds of a request have 3 proposed and 2 accepted tokens" in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80
    assert main(["efficiency", "--workload", str(file), "--bandwidth", "9", "--json"]) == 0
    rows = {row["phase"]: row for row in json.loads(capsys.readouterr().out)["phases"]}
    # a token of the model that it draws from the cache in fp8: no precision changes the bytes
    assert rows["decode"]["device_cache_read"] == 11 * CACHED
    assert rows["draft-decode"]["device_cache_read"] == (10 + 10) * CACHED
    assert rows["draft-decode"]["device_bytes"] == draft.decode.moved_bytes
    assert rows["request"]["device_bytes"] == workload.moved_bytes
    assert rows["request"]["tokens"] == 4
