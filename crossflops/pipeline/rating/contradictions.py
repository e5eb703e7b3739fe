"""What `efficiency` is asked and cannot answer: refused before a model is built."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from crossflops.errors import InputError
from crossflops.hardware.rates.question import Question

_EXCLUSIVE = (  # fields, the second of which makes the first pointless
    ("macs", "pass_macs"),
    ("macs", "as_"),
    ("macs", "compare"),
    ("pass_macs", "as_"),
    ("pass_macs", "compare"),
    ("as_", "compare"),
    ("train_multiplier", "frozen"),
    ("seq", "context"),
)
_OF_TRAINING = (
    "train_multiplier", "frozen", "trainable", "flash", "bwd_ms", "step_ms",
)  # fmt: skip
_MEASURED = (
    "examples_per_second", "tokens_per_second", "latency_ms", "fwd_ms", "bwd_ms", "step_ms",
    "bandwidth", "param_bytes", "cache_bytes",
)  # fmt: skip
_COUNTED = (
    "batch", "tokens", "accumulate", "devices", "dp", "tp", "pp", "window", "layers", "hidden",
    "heads", "head_dim", "kv_heads", "seq", "context",
)  # fmt: skip
_OF_A_GRAPH = ("frozen", "trainable", "precision_of", "backward")


def refuse(question: Question, target: Any, inputs: Any, how: Mapping[str, Any]) -> None:
    """Raises InputError for what contradicts itself, or needs what is not given."""
    asked = question.flat
    _refuse_numbers(asked)
    for one, other in _EXCLUSIVE:
        if asked[one] and asked[other]:
            raise InputError(
                f"{_flag(one)} and {_flag(other)} contradict each other", "leave one out"
            )
    if asked["device"] and any("=" not in one for one in asked["peak_tflops"]):
        raise InputError(
            "--device and --peak-tflops contradict each other",
            "leave one out, or say for which precision: --peak-tflops bf16=X",
        )
    given = asked["macs"] is not None or asked["pass_macs"] is not None
    if target is None and not given and asked["params"] is None:
        raise InputError(
            "there is nothing to count", "give a model, or --macs such as 4.112G, or --params"
        )
    if target is None and (inputs or how.get("inputs_file") or how.get("arguments")):
        raise InputError("inputs and arguments without a model", "give the model too")
    if asked["tools"] and not asked["compare"]:
        raise InputError("--tool runs nothing without --compare", "add --compare, or --as ID")
    if asked["pass_macs"] is not None and asked["batch"] is None:
        raise InputError("--pass-macs are those of a batch", "add --batch B")
    _refuse_training(asked)
    _refuse_without_graph(asked, target is None or given)


def _refuse_numbers(asked: Mapping[str, Any]) -> None:
    for name in _MEASURED:
        value = asked[name]
        if value is not None and not 1e-30 <= value <= 1e30:
            raise InputError(f"{_flag(name)} {value} is no rate or time", "give one above zero")
    for name in _COUNTED:
        value = asked[name]
        if value is not None and (not isinstance(value, int) or not 1 <= value <= 10**18):
            raise InputError(f"{_flag(name)} {value} is no number of them", "give 1 or more")


def _refuse_training(asked: Mapping[str, Any]) -> None:
    if asked["train"]:
        _refuse_multiplier(asked["train_multiplier"])
        return
    for name in _OF_TRAINING:
        if asked[name]:
            raise InputError(f"{_flag(name)} is about training", "add --train")
    if asked["recompute"] != "none" or asked["backward"] != "flat" or asked["accumulate"] != 1:
        raise InputError(
            "--recompute, --backward and --accumulate are about training", "add --train"
        )


def _refuse_multiplier(text: str | None) -> None:
    try:
        found = Fraction(text) if text is not None else Fraction(1)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not Fraction(1, 10**6) <= found <= 10**6:
        raise InputError(
            f"--train-multiplier {text!r} is no number of passes", "give one such as 3 or 2.5"
        )


def _refuse_without_graph(asked: Mapping[str, Any], given: bool) -> None:
    """What tells nodes apart needs the nodes of the native count."""
    whose = "--as" if asked["as_"] else "--compare" if asked["compare"] else ""
    if not given and not whose:
        return
    of = f"the MACs of {whose}" if whose else "MACs that are given"
    sized = asked["params"] is not None and asked["macs"] is asked["pass_macs"] is None
    parts = () if sized and not whose else ("causal", "window", "flash")
    for name in (*_OF_A_GRAPH, *parts):
        if asked[name] and asked[name] not in ("flat", "full"):
            raise InputError(
                f"{_flag(name)} tells nodes apart, which {of} do not",
                "give the model, and leave out --macs, --as and --compare",
            )


def _flag(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"
