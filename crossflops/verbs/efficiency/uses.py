"""Say for each option of a question when it has an effect; an option without effect is rejected.

Every field of `crossflops.hardware.rates.question.Question` has a row here, and a test holds that.
A row says when the field changes the answer, and what to do where it does not.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from crossflops.errors import InputError
from crossflops.hardware.rates.question import WAYS, Question
from crossflops.hardware.rates.terms import Piece

_SIZES_ALONE = (
    "leave out {option}, or give --params, --layers and --hidden instead of a model or --macs"
)
_UNTOLD = "needs the counts of nodes, which only a TARGET without --macs, --as and --compare has"
_NODES = "give the model, and leave out --macs, --as and --compare"


class AskedWork(NamedTuple):
    """A question, and where its work comes from: a model, given MACs, or sizes."""

    fields: dict[str, Any]
    question: Question
    has_model: bool

    @property
    def has_given_macs(self) -> bool:
        """Whether the MACs are given as a number."""
        return self.fields["macs"] is not None or self.fields["pass_macs"] is not None

    @property
    def has_only_sizes(self) -> bool:
        """Whether the work is computed from the sizes of a transformer, without a model."""
        return not self.has_model and not self.has_given_macs

    @property
    def has_width(self) -> bool:
        """Whether an option gives the width of attention: the hidden size or the heads."""
        return any(self.fields[name] for name in ("hidden", "heads", "head_dim"))

    @property
    def has_nodes(self) -> bool:
        """Whether the work is the native count of a model's nodes."""
        whose = self.fields["as_"] or self.fields["compare"]
        return self.has_model and not self.has_given_macs and not whose

    @property
    def is_decoding(self) -> bool:
        """Whether the question is about the work of one new token after a context."""
        return self.has_only_sizes and self.fields["context"] is not None

    @property
    def has_rate(self) -> bool:
        """Whether a measured rate is given, in examples or tokens per second."""
        return any(self.fields[name] for name in ("examples_per_second", "tokens_per_second"))

    @property
    def has_time(self) -> bool:
        """Whether a measured time is given: of a pass, of its parts, or in a result of `bench`."""
        return any(self.fields[name] for name in ("latency_ms", "fwd_ms", "bench"))

    @property
    def has_speed(self) -> bool:
        """Whether a rate or a time was measured."""
        measured = any(self.fields[name] is not None for name in WAYS)
        return measured or bool(self.fields["bench"]) or self.question.length.has_published_mfu

    @property
    def has_peak(self) -> bool:
        """Whether a device or a peak is given."""
        return bool(self.fields["device"] or self.fields["peak_tflops"])

    @property
    def has_run_length(self) -> bool:
        """Whether the length of a whole training run is given."""
        return self.question.length.is_requested


class Use(NamedTuple):
    """The condition under which a field has an effect, and the message if it has none."""

    changes: Callable[[AskedWork], Any]
    what: str = ""
    remedy: str = "leave out {option}"


def _has_effect_always(work: AskedWork) -> bool:
    """Return True, for a field that has an effect in every question."""
    return True


def _is_training_work(work: AskedWork) -> bool:
    """Return whether the question is about training, by --train."""
    return bool(work.fields["train"])


ALWAYS = (Use(_has_effect_always),)
_OF_NODES = Use(lambda work: work.has_nodes, f"{_UNTOLD}", _NODES)
_OF_SIZES = Use(
    lambda work: work.has_only_sizes,
    "applies only to a transformer given by its sizes, without a TARGET",
    _SIZES_ALONE,
)
_OF_TRAINING = Use(_is_training_work, "requires --train", "add --train")
_OF_A_CACHE = Use(
    lambda work: work.is_decoding,
    "applies only to decoding with a key and value cache, for a transformer given by its sizes",
    "leave out {option}, or give --params, --layers, --hidden and --context without a TARGET",
)


def _has_attention(work: AskedWork) -> bool:
    """Return whether attention can be counted: the work is from nodes, or from sizes with a
    width.
    """
    return work.has_nodes or (work.has_only_sizes and work.has_width)


_OF_ATTENTION = Use(
    _has_attention,
    f"{_UNTOLD}; without a model the width of attention must be given",
    "give the model without --as and --compare, or add --layers, --hidden and --seq to --params",
)


def _uses_sequence_length(work: AskedWork) -> bool:
    """Return whether a sequence length has an effect on the answer."""
    by_example = work.fields["tokens_per_second"] is None and work.has_speed
    return work.has_model or (
        work.has_only_sizes
        and (work.has_width or by_example or work.fields["run_examples"] or work.fields["batch"])
    )


def _uses_tokens_per_example(work: AskedWork) -> bool:
    """Return whether the number of tokens of an example has an effect on the answer."""
    if work.has_only_sizes and (work.fields["seq"] or work.fields["context"]):
        return False
    return work.has_speed or work.has_run_length


def _has_byte_traffic(work: AskedWork) -> bool:
    """Return whether bytes that move between memory and device are part of the answer."""
    moved = work.is_decoding or (
        work.has_model and not work.has_given_macs and not work.fields["compare"]
    )
    return (
        work.question.roof.is_requested
        or work.fields["step_ms"]
        or (moved and not work.fields["train"])
    )


def _has_run_length_in_examples(work: AskedWork) -> bool:
    """Return whether the length of a training run is given, and is known in examples."""
    known = ("tokens", "seq", "run_examples", "run_steps")
    return work.has_run_length and (
        work.has_given_macs or any(work.fields[name] for name in known)
    )


def _has_several_steps(work: AskedWork) -> bool:
    """Return whether the question is about several steps, or about a batch of which more is
    computed.
    """
    steps = work.fields["run_steps"] or work.fields["pp"] > 1 or work.has_time
    batches = work.fields["batch"] and (work.question.roof.is_requested or work.has_run_length)
    return steps or batches


def _uses_head_numbers(work: AskedWork) -> bool:
    """Return whether the numbers of heads have an effect on work that is computed from sizes."""
    both = work.fields["heads"] and work.fields["head_dim"]
    full = both and not work.fields["hidden"]
    return work.has_only_sizes and (full or work.fields["kv_heads"] or not work.fields["hidden"])


_OF_HEADS = Use(
    _uses_head_numbers,
    "has no effect with --hidden, which already is the number of heads x the dimension of a head",
    "leave out {option}, or add --kv-heads and --context for a cache of fewer heads",
)
_ALL_ALIKE = Use(
    lambda work: (
        work.fields["backward"] != "flat"
        or not any(work.fields[name] for name in ("frozen", "trainable", "loss"))
    ),
    "flat counts three passes of all nodes and ignores --frozen, --trainable and --loss",
    "leave out --backward flat, or leave out those options",
)

_OF_GENERATED_TEXT = Use(
    lambda work: work.question.generation.asks_for_generated_text,
    "applies only to generated text",
    "add --prompt P and --generate G, or --workload FILE.json",
)

USES: dict[str, tuple[Use, ...]] = {
    "macs": ALWAYS,
    "pass_macs": ALWAYS,
    "as_": (Use(lambda work: work.has_model, "requires a TARGET", "give a TARGET"),),
    "compare": (Use(lambda work: work.has_model, "requires a TARGET", "give a TARGET"),),
    "tools": (
        Use(
            lambda work: work.fields["compare"],
            "requires --compare",
            "add --compare, or --as ID",
        ),
    ),
    "examples_per_second": ALWAYS,
    "tokens_per_second": ALWAYS,
    "latency_ms": ALWAYS,
    "fwd_ms": ALWAYS,
    "bwd_ms": (_OF_TRAINING,),
    "step_ms": (_OF_TRAINING,),
    "batch": (
        Use(
            lambda work: (
                work.has_model
                or work.has_time
                or work.is_decoding
                or work.question.roof.is_requested
                or _has_run_length_in_examples(work)
                or any(work.fields[name] for name in ("pass_macs", "runs"))
            ),
            "has no effect: the result does not contain a pass over a batch",
            "leave out {option}, or give a speed or --roofline",
        ),
    ),
    "tokens": (
        Use(
            _uses_tokens_per_example,
            "has no effect: the number of tokens is already known or not needed",
            "leave out {option}, or give a speed or the length of a run in tokens",
        ),
    ),
    "per_device": (
        Use(
            lambda work: (
                work.has_time
                or (work.has_rate and any(work.fields[n] for n in ("devices", "dp")))
                or work.fields["tp"] * work.fields["pp"] > 1
            ),
            "applies only to a measured rate on several devices",
            "leave out {option}, or give --devices N and a rate",
        ),
    ),
    "runs": ALWAYS,
    "times": ALWAYS,
    "train": ALWAYS,
    "train_multiplier": (_OF_TRAINING,),
    "backward": (_OF_TRAINING, _OF_NODES, _ALL_ALIKE),
    "frozen": (_OF_TRAINING, _OF_NODES),
    "trainable": (_OF_TRAINING, _OF_NODES),
    "loss": (_OF_TRAINING, _OF_NODES),
    "recompute": (_OF_TRAINING,),
    "flash": (_OF_TRAINING, _OF_ATTENTION),
    "accumulate": (
        _OF_TRAINING,
        Use(
            _has_several_steps,
            "has no effect: the result does not contain a training step",
            "leave out {option}; or give the time of a step, or --run-steps or --batch with a "
            "whole run",
        ),
    ),
    "run_tokens": ALWAYS,
    "run_examples": ALWAYS,
    "run_steps": ALWAYS,
    "mfu": (
        Use(
            lambda work: work.has_peak,
            "is a share of a peak, and no peak is given",
            "add --device D and --precision P, or --peak-tflops X",
        ),
    ),
    "optimizer": ALWAYS,
    "precision": ALWAYS,
    "precision_of": (_OF_NODES,),
    "mix": ALWAYS,
    "causal": (_OF_ATTENTION,),
    "window": (_OF_ATTENTION,),
    "device": ALWAYS,
    "catalogue": (
        Use(
            lambda work: (
                work.fields["device"] or any("device=" in text for text in work.fields["what_if"])
            ),
            "has no effect: no device is named",
            "add --device D",
        ),
    ),
    "peak_tflops": ALWAYS,
    "bandwidth": (
        Use(
            _has_byte_traffic,
            "has no effect: no bytes are counted",
            "leave out {option}, or add --roofline",
        ),
    ),
    "params": (
        Use(
            lambda work: work.has_only_sizes or work.fields["step_ms"],
            "applies only to a model given by its sizes, without a TARGET and --macs",
            "leave out {option}; the parameters of a TARGET are counted",
        ),
    ),
    "layers": (_OF_SIZES,),
    "hidden": (_OF_SIZES,),
    "heads": (_OF_HEADS,),
    "head_dim": (_OF_HEADS,),
    "kv_heads": (_OF_A_CACHE,),
    "seq": (
        Use(
            _uses_sequence_length,
            "has no effect: the work has no attention and no tokens",
            "add --layers L and --hidden H, or leave out {option}",
        ),
    ),
    "context": (
        Use(
            lambda work: work.has_only_sizes,
            "applies only to a transformer given by its sizes; for a TARGET the inputs decide "
            "what is decoded",
            "give an --input for one new token and the cache, or --params, --layers and --hidden "
            "without a TARGET",
        ),
    ),
    "param_bytes": (_OF_A_CACHE,),
    "cache_bytes": (_OF_A_CACHE,),
    "prompt": ALWAYS,
    "generate": ALWAYS,
    "images": (_OF_GENERATED_TEXT,),
    "draft": (_OF_GENERATED_TEXT,),
    "draft_tokens": (_OF_GENERATED_TEXT,),
    "acceptance": (_OF_GENERATED_TEXT,),
    "workload": ALWAYS,
    "cache_dtype": (_OF_GENERATED_TEXT,),
    "prefill_tokens_per_second": (_OF_GENERATED_TEXT,),
    "decode_tokens_per_second": (_OF_GENERATED_TEXT,),
    "devices": ALWAYS,
    "dp": ALWAYS,
    "tp": ALWAYS,
    "pp": ALWAYS,
    "roofline": ALWAYS,
    "bytes_": (
        Use(
            lambda work: not work.has_only_sizes or not work.fields["roofline"],
            "has no effect without a model: its sizes give only the bytes of weights and caches",
        ),
    ),
    "bytes_per_example": ALWAYS,
    "what_if": ALWAYS,
    "bench": ALWAYS,
    "plot": ALWAYS,
}

_USUAL = Question().option_values


def non_default_fields(question: Question) -> dict[str, Any]:
    """Return {field: value} for the fields of a question that differ from their defaults."""
    return {name: value for name, value in question.option_values.items() if value != _USUAL[name]}


def refuse_unused_options(
    question: Question, *, has_model: bool, shown: Collection[str] = ()
) -> None:
    """Raise InputError for the first option of the question that has no effect on the answer;
    those in `shown` are accepted.
    """
    work = AskedWork(question.option_values, question, has_model)
    for name in (name for name in non_default_fields(question) if name not in shown):
        for use in USES[name]:
            if not use.changes(work):
                raise InputError(
                    f"{flag_of_field(name)} {use.what}",
                    use.remedy.replace("{option}", flag_of_field(name)),
                )


def refuse_without_attention(question: Question, pieces: Sequence[Piece]) -> None:
    """Raise InputError for an option about attention if the model has no attention that it
    changes.
    """
    training, causality = question.training, question.causality
    products = [piece for piece in pieces if piece.scores]
    scores = [piece.scores for piece in pieces if piece.scores]
    asked = {
        "--flash": training.flash,
        "--recompute attention": training.recompute == "attention",
        "--causal half": causality.causal == "half",
        "--window": causality.window,
    }
    for name in (name for name, is_asked in asked.items() if is_asked and not scores):
        raise InputError(f"{name} has no effect: the model has no attention", f"leave out {name}")
    if causality.causal == "half" and not any(
        sizes.can_causal_mask_hide_scores for sizes in scores
    ):
        raise InputError(
            "--causal half has no effect: the model has no attention that can be causal and has "
            "more than one query",
            "leave out --causal",
        )
    width = causality.window
    if width and not any(
        sizes.share_of_remaining_scores(False, width) != sizes.share_of_remaining_scores(False)
        for sizes in scores
    ):
        raise InputError(
            f"--window {width} has no effect: no causal attention of the model has more than "
            f"{width} keys",
            "leave out --window",
        )
    fused = training.has_graph_passes and all((piece.again or 0) % 1 for piece in products)
    if training.flash and fused:
        raise InputError(
            "--flash has no effect: the count of the graph already includes the recomputed scores",
            "leave out --flash, or add --backward flat",
        )


def refuse_options_replaced_by_rows(
    question: Question, by_every_row: Collection[str], table: str
) -> None:
    """Raise InputError for an option whose value every row of the table of runs replaces.

    A device goes over a peak that is given for all precisions alike.
    """
    similar = any("=" not in peak for peak in question.against.peak_tflops)
    for name in non_default_fields(question):
        replaced = name == "peak_tflops" and similar and "device" in by_every_row
        if name in by_every_row or replaced:
            raise InputError(
                f"{flag_of_field(name)} has no effect: every row of --runs {table} sets its own "
                "value",
                f"leave out {flag_of_field(name)}, or leave its cell empty in at least one row",
            )


def flag_of_field(name: str) -> str:
    """Return the command-line option of a field: "--train-multiplier" for "train_multiplier"."""
    return f"--{name.strip('_').replace('_', '-')}" if name != "tools" else "--tool"
