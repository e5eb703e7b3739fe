"""A workload whose amounts are round numbers, for tests without a model."""

import json

import msgspec

from crossflops.ir.workload import (
    GenerationPhase,
    LengthPiece,
    Speculation,
    WorkAmounts,
    Workload,
    WorkShare,
)
from crossflops.report.report import Report


def phase_of(passes, tokens, weights, **amounts):
    """A phase whose polynomials and shares nobody reads."""
    empty = dict.fromkeys(
        ("macs", "flops", "bytes_read", "bytes_written", "cache_read", "cache_written")
    )
    work = WorkAmounts(**amounts)
    return GenerationPhase(
        passes=passes,
        tokens=tokens,
        amounts=work,
        weight_bytes=weights,
        moved_bytes=passes * weights + work.cache_read + work.cache_written,
        peak_activation_bytes=None,
        per_request=WorkShare(work.macs, work.flops),
        per_token=WorkShare(work.macs, work.flops),
        pieces=(LengthPiece(along="prompt", first=1, last=2, **empty),),
    )


def round_workload(**changes):
    """4 requests of 100 prompt tokens and 11 new ones: 10 steps; 2 heads in a float32 cache."""
    fields = {
        "kind": "decoder", "prompt": 100, "generate": 11, "batch": 4, "cache_dtype": "float32",
        "cache_bytes": 4_400, "cache_heads": 2, "model_bytes": 90_000, "weight_dtype": "float32",
        "prefill": phase_of(1, 400, 80_000, macs=8_000_000, flops=17_000_000, bytes_read=100_000,
                          bytes_written=24_000, cache_read=0, cache_written=4_000),
        "decode": phase_of(10, 40, 80_000, macs=900_000, flops=1_900_000, bytes_read=900_000,
                         bytes_written=40_400, cache_read=40_000, cache_written=400),
        "decode_macs": None, "decode_flops": None, "macs": 8_900_000, "flops": 18_900_000,
        "moved_bytes": 84_000 + 840_400, "per_request": WorkShare(2_225_000, 4_725_000),
        "per_new_token": WorkShare(1, 1), "counted": 9,
    }  # fmt: skip
    return Workload(**{**fields, **changes})


def drafted_workload(**changes):
    """The same with a draft model of one head: 8 rounds, of which the first is in the prefill."""
    draft = round_workload(
        cache_dtype="float16", cache_bytes=1_000, cache_heads=1, model_bytes=9_000,
        weight_dtype="float16", macs=900_000, moved_bytes=12_000 + 134_000,
        prefill=phase_of(1, 400, 10_000, macs=800_000, flops=1, bytes_read=12_000,
                         bytes_written=2_000, cache_read=0, cache_written=2_000),
        decode=phase_of(12, 44, 10_000, macs=100_000, flops=1, bytes_read=140_000,
                        bytes_written=1_000, cache_read=13_000, cache_written=1_000),
    )  # fmt: skip
    speculation = Speculation(
        draft=draft, target="hf:draft.json", draft_tokens=2, acceptance="1/2", rounds=8,
        proposed_tokens=13, accepted_tokens=3,
    )  # fmt: skip
    fields = {"speculation": speculation, "macs": 9_800_000, "moved_bytes": 924_400 + 146_000}
    return round_workload(**{**fields, **changes})


def write_workload_report(path, counted, workload=round_workload, **changes):
    """Write a saved count, the report of any model, as one with this workload."""
    report = Report.from_json(counted)
    plain = json.loads(report.to_json())
    plain["workload"] = msgspec.to_builtins(workload(**changes))
    path.write_text(json.dumps(plain))
