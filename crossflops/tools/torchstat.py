"""torchstat 0.0.7: a table of the leaf modules, a convention for each of its columns.

Its "Flops" are MACs and more, its "MAdd" are operations: 2K - 1 for a sum of K products. MemRead
and MemWrite are bytes, `torchstat-memory` is its column "memory" before it becomes megabytes.
Every column stands for the last call of each registered module without children, on an image
that torchstat makes itself: a batch of one. All columns are filled in one run, so that what fails
in one of them leaves none. The totals here are the sums of the columns; in the tool's own last
line, MemRead and MemWrite are those of the last layer. Sources: compute_flops.py, compute_madd.py,
compute_memory.py, and model_hook.py.
"""

from typing import Literal

from crossflops.ir.convention import Clause, Convention, Match, Parameters

_NN = "torch.nn.modules"
_CONV = (f"{_NN}.conv.Conv2d",)
_TRANSPOSED = (f"{_NN}.conv.ConvTranspose2d",)
_LINEAR = (f"{_NN}.linear.Linear",)
_BILINEAR = (f"{_NN}.linear.Bilinear",)
_BATCH_NORM = (f"{_NN}.batchnorm.BatchNorm2d",)
_MAX, _AVERAGE = (f"{_NN}.pooling.MaxPool2d",), (f"{_NN}.pooling.AvgPool2d",)
_RELU = (f"{_NN}.activation.ReLU", f"{_NN}.activation.ReLU6")
_PRELU = (f"{_NN}.activation.PReLU",)
_ELU = (f"{_NN}.activation.ELU", f"{_NN}.activation.LeakyReLU")
_SOFTMAX = (f"{_NN}.activation.Softmax",)
_UPSAMPLE = (f"{_NN}.upsampling.Upsample",)
_KNOWN = (
    *(*_CONV, *_TRANSPOSED, *_LINEAR, *_BILINEAR, *_BATCH_NORM, *_MAX, *_AVERAGE, *_RELU),
    *(*_PRELU, *_ELU, *_SOFTMAX, *_UPSAMPLE),
)
_FLOPS, _MADD = "torchstat/compute_flops.py", "torchstat/compute_madd.py"
_MEMORY, _HOOK = "torchstat/compute_memory.py", "torchstat/model_hook.py"
_STATISTICS = "torchstat/statistics.py"
_TRAFFIC = "memory.layer-traffic"


class _Column:
    """The clauses of one column: what they share is written once."""

    def __init__(self, tool: str, reference: str) -> None:
        self._tool, self._reference = tool, reference

    def clause(
        self,
        name: str,
        cause: str,
        bases: tuple[str, ...],
        formula: str,
        *,
        factor: int = 1,
        kind: Literal["core", "part"] = "part",
        affine: bool | None = None,
        has: tuple[str, ...] = (),
        reference: str = "",
    ) -> Clause:
        """A rule for classes and what inherits from them (`isinstance`)."""
        return Clause(
            id=f"{self._tool}.{name}",
            cause=cause,
            level="module",
            match=Match(
                isa=bases,
                via="call",
                leaf=True,
                last=True,
                has=has,
                settings={} if affine is None else {"affine": affine},
            ),
            kind=kind,
            formula=f"torchstat.{formula}",
            factor=factor,
            times="registered",
            reference=reference or self._reference,
        )

    def fails(self) -> tuple[Clause, ...]:
        """Where the tool ends without a number, whatever the column."""
        source = f"{_HOOK}: ModelHook._sub_module_call_hook"
        return (
            self._failure("image", f"{_STATISTICS}: ModelStat", Match(root=True)),
            self._failure("leaf", source, Match(via="call"), "torchstat.wrapped"),
            self._failure(
                "arguments",
                f"{_FLOPS}, {_MADD}, {_MEMORY}: assert",
                Match(via="call", isa=_KNOWN),
                "torchstat.wrapped",
            ),
            self._failure("recursion", source, Match(via="call"), "torchstat.wrapped_base"),
        )

    def earlier(self) -> Clause:
        """The calls of a module before its last one: their numbers are overwritten."""
        return Clause(
            id=f"{self._tool}.unseen.earlier",
            cause="module.reused",
            level="operator",
            match=Match(isa=(*_CONV, *_TRANSPOSED, *_LINEAR, *_BILINEAR), last=False),
            kind="unseen",
            reference=f"{_HOOK}: wrap_call",
        )

    def _failure(
        self, name: str, reference: str, match: Match, times: str | None = None
    ) -> Clause:
        return Clause(
            id=f"{self._tool}.fails.{name}",
            cause="op.unregistered-zero",
            level="module",
            match=match,
            kind="part",
            formula=f"torchstat.{name}",
            times=times,
            reference=reference,
        )


def _flops() -> tuple[Clause, ...]:
    rule = _Column("torchstat", _FLOPS).clause
    relu = ("ReLU", "act.relu", _RELU), ("other", "act.piecewise-other", (*_PRELU, *_ELU))
    return (
        *_Column("torchstat", _FLOPS).fails(),
        rule("conv2d", "graph.export-decomposition", _CONV, "conv2d", kind="core"),
        rule("conv2d.bias", "bias.conv", _CONV, "output_image", has=("bias",)),
        rule("linear", "graph.export-decomposition", _LINEAR, "linear", kind="core"),
        *(
            rule(
                f"batch_norm.{'affine' if affine else 'plain'}",
                "norm.batch",
                _BATCH_NORM,
                "input_image",
                factor=2 if affine else 1,
                affine=affine,
            )
            for affine in (True, False)
        ),
        rule("max_pool", "pool.max", _MAX, "input_image"),
        rule("avg_pool", "pool.avg", _AVERAGE, "input_image"),
        *(rule(name.lower(), cause, bases, "input_whole") for name, cause, bases in relu),
        rule("upsample", "upsample.nearest", _UPSAMPLE, "upsampled"),
        _Column("torchstat", _FLOPS).earlier(),
    )


def _madd() -> tuple[Clause, ...]:
    rule = _Column("torchstat-madd", _MADD).clause
    first, export = "unit.first-add-omitted", "graph.export-decomposition"
    return (
        *_Column("torchstat-madd", _MADD).fails(),
        rule("conv2d", export, _CONV, "conv2d_sample", kind="core"),
        rule("conv2d.first", first, _CONV, "output_sample", factor=-1),
        rule("conv2d.bias", "bias.conv", _CONV, "output_sample", has=("bias",)),
        rule("transposed", export, _TRANSPOSED, "transposed_sample", kind="core"),
        rule("transposed.first", first, _TRANSPOSED, "transposed_sums", factor=-1),
        rule("transposed.bias", "bias.conv", _TRANSPOSED, "transposed_sums", has=("bias",)),
        rule("linear", export, _LINEAR, "linear_sample", kind="core"),
        rule("linear.first", first, _LINEAR, "output_sample", factor=-1),
        rule("bilinear", export, _BILINEAR, "bilinear_sample", kind="core"),
        rule("bilinear.first", first, _BILINEAR, "output_sample", factor=-1),
        rule("batch_norm", "norm.batch", _BATCH_NORM, "input_image_sample", factor=4),
        rule("max_pool", "pool.max", _MAX, "pooled_sample"),
        rule("max_pool.first", "pool.max", _MAX, "output_sample", factor=-1),
        rule("avg_pool", "pool.avg", _AVERAGE, "pooled_sample"),
        rule("relu", "act.relu", _RELU, "input_sample"),
        rule("softmax", "softmax", _SOFTMAX, "input_sample", factor=3),
        rule("softmax.first", "softmax", _SOFTMAX, "one", factor=-1),
        _Column("torchstat-madd", _MADD).earlier(),
    )


def _read() -> tuple[Clause, ...]:
    rule = _Column("torchstat-memread", _MEMORY).clause
    weights = (*_CONV, *_LINEAR, *_PRELU)
    return (
        *_Column("torchstat-memread", _MEMORY).fails(),
        rule("input", _TRAFFIC, (*_RELU, *_ELU, *_PRELU), "input_bytes"),
        rule("image", _TRAFFIC, (*_CONV, *_BATCH_NORM, *_MAX, *_AVERAGE), "input_image_bytes"),
        rule("row", _TRAFFIC, _LINEAR, "input_row_bytes"),
        rule("parameters", _TRAFFIC, weights, "parameter_bytes"),
        rule("batch_norm", _TRAFFIC, _BATCH_NORM, "channel_bytes", factor=2),
    )


def _write() -> tuple[Clause, ...]:
    rule = _Column("torchstat-memwrite", _MEMORY).clause
    return (
        *_Column("torchstat-memwrite", _MEMORY).fails(),
        rule("input", _TRAFFIC, (*_RELU, *_ELU, *_PRELU), "input_bytes"),
        rule("batch_norm", _TRAFFIC, _BATCH_NORM, "input_image_bytes"),
        rule("image", _TRAFFIC, (*_CONV, *_MAX, *_AVERAGE), "output_image_bytes"),
        rule("row", _TRAFFIC, _LINEAR, "output_row_bytes"),
    )


def _held() -> tuple[Clause, ...]:
    column = _Column("torchstat-memory", f"{_HOOK}: wrap_call")
    return (*column.fails(), column.clause("output", _TRAFFIC, (), "output_sample", factor=4))


def _convention(
    tool: str, printed_as: str, unit: int, clauses: tuple[Clause, ...], source: str
) -> Convention:
    return Convention(
        tool=tool,
        edition="0.0.7",
        verified=("0.0.7",),
        unit=unit,
        printed_as=printed_as,
        sees="module",
        counts_dead=True,
        unseen="op.unregistered-zero",
        forces={"training": False},
        source=source,
        clauses=clauses,
        parameters=Parameters(leaves=True, called=True, reference=f"{_HOOK}: wrap_call"),
    )


CONVENTIONS = (
    _convention("torchstat", "Flops", 1, _flops(), _FLOPS),
    _convention("torchstat-madd", "MAdd", 2, _madd(), _MADD),
    _convention("torchstat-memread", "MemRead", 0, _read(), _MEMORY),
    _convention("torchstat-memwrite", "MemWrite", 0, _write(), _MEMORY),
    _convention("torchstat-memory", "memory", 0, _held(), _HOOK),
)
