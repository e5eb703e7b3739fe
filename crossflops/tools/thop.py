"""thop: a hook on every module whose exact class has a rule.

Two editions of one convention: 0.0.31, which printed 4.112 G for ResNet-50, and 0.1.1. They differ
in biases, batch norm, average pooling, and in whether the root's own rule counts. Sources:
thop/profile.py (`register_hooks`, `profile`, `dfs_count`), thop/vision/basic_hooks.py,
thop/vision/calc_func.py, thop/rnn_hooks.py of each release.
"""

from crossflops.ir.convention import Clause, Convention, Parameters
from crossflops.tools import layers
from crossflops.tools.thop_rules import HOOKS, LINEAR, PROFILE, Edition, unseen


def _v0_1_1() -> tuple[Clause, ...]:
    edition = Edition("0.1.1", root_counts=True)
    norms = (
        ("batch_norm", "norm.batch", layers.BATCH_NORMS, "affine"),
        ("instance_norm", "norm.instance", layers.INSTANCE_NORMS, "affine"),
        ("layer_norm", "norm.layer", layers.LAYER_NORM, "elementwise_affine"),
    )
    return (
        *edition.vmapped("thop.convolution"),
        *edition.nested(norm=4),
        edition.clause(
            "convolution",
            "conv.unbatched-axis",
            layers.CONVOLUTIONS,
            "thop.convolution",
            core=True,
        ),
        edition.clause(
            "transposed",
            "conv.transpose-output-size",
            layers.TRANSPOSED,
            "thop.convolution",
            core=True,
        ),
        edition.clause("linear", "matmul.leading-dims-lost", layers.LINEAR, LINEAR, core=True),
        *edition.recurrent(),
        *(
            edition.clause(
                f"{name}.{'affine' if affine else 'plain'}",
                cause,
                targets,
                "input_elements",
                factor=4 if affine else 2,
                settings={flag: affine},
            )
            for name, cause, targets, flag in norms
            for affine in (True, False)
        ),
        edition.clause(
            "prelu", "act.piecewise-other", (f"{layers.NN}.activation.PReLU",), "input_elements"
        ),
        edition.clause("softmax", "softmax", (f"{layers.NN}.activation.Softmax",), "thop.softmax"),
        edition.clause("average", "pool.avg", layers.AVERAGE_POOLS, "output_elements"),
        edition.clause(
            "adaptive", "pool.adaptive", layers.ADAPTIVE_POOLS, "thop.adaptive_average"
        ),
        *edition.upsample({"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}),
        *unseen(),
    )


def _v0_0_31() -> tuple[Clause, ...]:
    edition = Edition("0.0.31", root_counts=False)
    by_module = "thop.convolution_by_module"
    return (
        *edition.vmapped(by_module),
        *edition.nested(norm=0),
        edition.clause(
            "convolution", "conv.unbatched-axis", layers.CONVOLUTIONS, by_module, core=True
        ),
        edition.clause(
            "transposed", "conv.transpose-output-size", layers.TRANSPOSED, by_module, core=True
        ),
        edition.clause(
            "convolution.bias",
            "bias.conv",
            (*layers.CONVOLUTIONS, *layers.TRANSPOSED),
            "output_elements",
            has=("bias",),
        ),
        edition.clause("linear", "matmul.leading-dims-lost", layers.LINEAR, LINEAR, core=True),
        *edition.recurrent(),
        edition.clause("batch_norm", "norm.batch", layers.BATCH_NORMS, "input_elements", factor=2),
        edition.clause(
            "leaky_relu",
            "act.piecewise-other",
            (f"{layers.NN}.activation.LeakyReLU",),
            "input_elements",
        ),
        edition.clause("average", "pool.avg", layers.AVERAGE_POOLS, "output_elements"),
        edition.clause(
            "adaptive", "pool.adaptive", layers.ADAPTIVE_POOLS, "thop.adaptive_average_floored"
        ),
        *edition.upsample({"linear": 5, "bilinear": 11, "bicubic": 259}),
        *unseen(),
    )


def _convention(edition: str, verified: str, clauses: tuple[Clause, ...]) -> Convention:
    return Convention(
        tool="thop",
        edition=edition,
        verified=(verified,),
        unit=1,
        printed_as="MACs",
        sees="module",
        counts_dead=True,
        unseen="functional.invisible",
        forces={"training": False, "grad": False, "hooked": True},
        source=PROFILE,
        clauses=clauses,
        parameters=Parameters(
            modules=tuple(
                sorted(
                    {
                        name
                        for one in clauses
                        for name in one.match.targets
                        if one.level == "module"
                    }
                )
            ),
            called=True,
            reference=f"{PROFILE}: dfs_count; {HOOKS}: count_parameters",
        ),
    )


CONVENTIONS = (
    _convention("0.1.1", "0.1.1.post2209072238", _v0_1_1()),
    _convention("0.0.31", "0.0.31.post2005241907", _v0_0_31()),
)
