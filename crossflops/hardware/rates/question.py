"""The options of a question about a rate, in groups of fields. Each group has options of its own.

The names of the fields are those of the flags (`--peak-tflops` is `peak_tflops`), and no two
groups have one in common, so that `Question.from_fields` takes them all as keyword arguments.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from crossflops.errors import InputError

# The ways to say how fast it ran, of which one is given; the first two are rates.
RATES = ("examples_per_second", "tokens_per_second")
WAYS = (*RATES, "latency_ms", "fwd_ms")
# The rates of the two phases of generated text.
PHASE_RATES = ("prefill_tokens_per_second", "decode_tokens_per_second")

POWERS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_RATE = re.compile(r"(\d*\.?\d*(?:[eE][+-]?\d+)?)\s?([kKMGTP]?)")


def parse_rate(text: str) -> float:
    """Parse a rate such as "2.6M" into a float.

    >>> parse_rate("2.6M"), parse_rate("238.3k"), parse_rate("1e3")
    (2600000.0, 238300.0, 1000.0)

    Raises ValueError for anything else.
    """
    match = _RATE.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    return float(match[1]) * float(10 ** POWERS[match[2]])


class WorkSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of the MACs, by default the native count. Counts are texts, such as 4.112G.

    `macs` are of one example, `pass_macs` of one forward pass over the whole batch.
    """

    macs: str | None = None
    pass_macs: str | None = None
    as_: str | tuple[str, ...] | None = None
    compare: bool = False
    tools: tuple[str, ...] = ()


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The measured speed: a rate of examples or tokens, or the time of a pass or of its parts.

    Rates are those of all devices together, unless `per_device`; None: so, as nobody said it.
    They may be texts, such as 2.6M. `latency_ms` is a forward pass,
    in training a whole step; `fwd_ms` and `bwd_ms` are of one micro-batch, `step_ms` is the
    optimizer's. `batch` is the examples of one (micro-)batch on one data-parallel replica,
    `tokens` those of one example. `runs` is a table of such runs (rates/runs.py), `times` one of
    the forward times of modules (rates/runs.py).
    """

    examples_per_second: float | None = None
    tokens_per_second: float | None = None
    latency_ms: float | None = None
    fwd_ms: float | None = None
    bwd_ms: float | None = None
    step_ms: float | None = None
    batch: int | None = None
    tokens: int | None = None
    per_device: bool | None = None
    runs: str | None = None
    times: str | None = None


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a training step besides the forward pass. Patterns are globs of names of
    parameters or modules.

    `loss` is a callable, or FILE.py:CALLABLE, as in `crossflops.count`.
    """

    train: bool = False
    train_multiplier: str | None = None
    backward: str = ""
    frozen: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    loss: str | Callable[..., Any] = ""
    recompute: str = "none"
    flash: bool = False
    accumulate: int = 1

    @property
    def has_graph_passes(self) -> bool:
        """True if the number of passes is counted for each node where possible; False if it is 3
        for all.
        """
        return self.backward != "flat" or bool(self.frozen or self.loss)


class RunLength(msgspec.Struct, frozen=True, kw_only=True):
    """A whole training run, in tokens, examples or steps, as texts such as 15T.

    `mfu` is the share of the peak that it keeps, as text; `optimizer` is that of every step.
    Without a length the `mfu` is a published one, that gives the speed.
    """

    run_tokens: str | None = None
    run_examples: str | None = None
    run_steps: str | None = None
    mfu: str | None = None
    optimizer: str = ""

    @property
    def is_requested(self) -> bool:
        """True if the length of a whole training run is given."""
        return any((self.run_tokens, self.run_examples, self.run_steps))

    @property
    def has_published_mfu(self) -> bool:
        """Whether the MFU is a published one, from which the speed follows."""
        return self.mfu is not None and not self.is_requested


class Precisions(msgspec.Struct, frozen=True, kw_only=True):
    """The precisions of the work: one for all, one for each pattern of node names, or shares of
    the work.
    """

    precision: str = ""
    precision_of: tuple[str, ...] = ()
    mix: tuple[str, ...] = ()


class Causality(msgspec.Struct, frozen=True, kw_only=True):
    """The counted part of attention: the full square, or the part that a mask or a window
    leaves.
    """

    causal: str = "full"
    window: int | None = None


class PeakSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The device, or the dense peaks in TFLOP/s (a number, or P=X for precision P) and the
    bandwidth in GB/s.

    `catalogue` is a TOML file with devices of one's own.
    """

    device: str | None = None
    catalogue: str | None = None
    peak_tflops: tuple[str, ...] = ()
    bandwidth: float | None = None


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """A transformer language model, given by its sizes: see
    `crossflops.hardware.rates.numerators`.
    """

    params: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    head_dim: int | None = None
    kv_heads: int | None = None
    seq: int | None = None
    context: int | None = None
    param_bytes: float = 2
    cache_bytes: float = 2


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Text that a language model generates: counted for so many tokens, or read from a report.

    `workload` is a file that `count --prompt` wrote. `prompt` and `generate` are tokens of a
    request, and `Speed.batch` is the number of requests. Its prompt begins with so many `images`.
    A `draft` model, another target, proposes `draft_tokens` tokens in a round, of which
    `acceptance` says how many are accepted. `cache_dtype` is the precision in which keys and
    values are kept. The rates are those of prompt tokens, and of new tokens in decoding
    steps; `Speed.tokens_per_second` are new tokens of both phases together.
    """

    prompt: int | None = None
    generate: int | None = None
    images: int | None = None
    draft: str = ""
    draft_tokens: int | None = None
    acceptance: str = ""
    workload: str | None = None
    cache_dtype: str = ""
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None

    @property
    def asks_for_generated_text(self) -> bool:
        """Whether the question is about generated text."""
        return any(value is not None for value in (self.prompt, self.generate, self.workload))


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of the run: world = data x tensor x pipeline parallel."""

    devices: int | None = None
    dp: int | None = None
    tp: int = 1
    pp: int = 1


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the roofline: the byte model, or the bytes of one example as text.

    `what_if` are alternatives such as batch=64, `bench` is a file that `bench` wrote, and `plot`
    the file of a picture. Any of these asks for it, as `roofline` does alone.
    """

    roofline: bool = False
    bytes_: str | None = None
    bytes_per_example: str | None = None
    what_if: tuple[str, ...] = ()
    bench: str | None = None
    plot: str | None = None

    @property
    def is_requested(self) -> bool:
        """True if any option of the roofline is given."""
        return self.roofline or any(
            (self.bytes_, self.bytes_per_example, self.what_if, self.bench, self.plot)
        )


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a rate: the work, its speed, and the peak."""

    work: WorkSource = WorkSource()
    speed: Speed = Speed()
    training: TrainingOptions = TrainingOptions()
    length: RunLength = RunLength()
    precisions: Precisions = Precisions()
    causality: Causality = Causality()
    against: PeakSelection = PeakSelection()
    language: Language = Language()
    generation: Generation = Generation()
    parallel: Parallel = Parallel()
    roof: Roof = Roof()

    @classmethod
    def from_fields(cls, **fields: Any) -> "Question":
        """Build a question from option values, whose keywords are the names of the fields. Raises
        InputError for an unknown name.
        """
        groups = {}
        for group in msgspec.structs.fields(cls):
            provided = {
                name: fields.pop(name) for name in group_field_names(group.type) if name in fields
            }
            groups[group.name] = group.type(
                **{key: _to_field_value(key, value) for key, value in provided.items()}
            )
        if fields:
            known = sorted(
                name
                for group in msgspec.structs.fields(cls)
                for name in group_field_names(group.type)
            )
            raise InputError(
                f"efficiency has no argument {', '.join(fields)}",
                f"write one of: {', '.join(known)}",
            )
        return cls(**groups)

    @property
    def option_values(self) -> dict[str, Any]:
        """The values of all options by name."""
        groups = msgspec.structs.asdict(self).values()
        return {
            name: getattr(group, name)
            for group in groups
            for name in group_field_names(type(group))
        }


_REPEATED = frozenset(
    ("tools", "frozen", "trainable", "precision_of", "mix", "peak_tflops", "what_if")
)
_TEXTS = frozenset(
    (
        *("macs", "pass_macs", "params", "train_multiplier", "bytes_per_example"),
        *("run_tokens", "run_examples", "run_steps", "mfu", "acceptance"),
    )
)


_EMPTY_TEXTS = frozenset(("backward", "optimizer", "loss", "cache_dtype", "draft", "acceptance"))


def _to_field_value(name: str, value: Any) -> Any:
    """Return the value of an option as its field needs it: a tuple for a repeated option, text for
    a count, lower case for a precision.
    """
    if value is None:
        return () if name in _REPEATED else "" if name in _EMPTY_TEXTS else None
    if name in _REPEATED:
        several = value if isinstance(value, list | tuple) else (value,)
        return tuple(map(str, several))
    if name in _TEXTS:
        return str(value)
    if name in (*RATES, *PHASE_RATES) and isinstance(value, str):
        return _parse_speed_rate(name, value)
    return value.casefold() if name in ("precision", "recompute", "cache_dtype") else value


def _parse_speed_rate(name: str, text: str) -> float:
    """Parse the rate of the option `name`, such as "2.6M"; raise InputError if it is not a
    rate.
    """
    try:
        return parse_rate(text)
    except ValueError:
        flag = f"--{name.replace('_', '-')}"
        raise InputError(
            f"{flag} must be a positive rate, got {text!r}", "write, for example, 1325 or 2.6M"
        ) from None


def group_field_names(group: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields of an option group."""
    return group.__struct_fields__
