"""Words of reports that are no causes, with a page each."""

from crossflops.ir.reconciliation import Cause

CAUSES: tuple[Cause, ...] = ()
WORDS = (
    Cause(
        id="native",
        title="the count that crossflops makes by itself",
        page="The native count is the work that the outputs of a model depend on, in its "
        "normalized ONNX graph: every node has a formula of its own, and the sums are exact "
        "integers. No tool takes part in it.\n\n"
        "Native MACs are the multiply-accumulates of contractions (convolutions, matrix products, "
        "attention, recurrent layers) and of nothing else. Native FLOPs are 2 x MACs and one for "
        "each addition, multiplication, division, comparison and special function (exp, sqrt, "
        "tanh ...) outside of them. Native parameters are those of the source model, each storage "
        "once.\n\n"
        "Work that no output needs is not in it; work that depends on no input is, and is shown "
        "apart. A node without a formula is named as uncounted, which is not zero. 'exact' says "
        "that every node is counted in full; 'an upper bound' and 'an estimate' that the work of "
        "some depends on data, or on an algorithm that is not fixed.",
        recognise="It is the number in the title, and the one that every account of a tool "
        "starts from: `thop = native + 44 558 336`.",
    ),
    Cause(
        id="residual",
        title="what no cause explains",
        page="An account of a tool goes from the native count to the number that it printed, "
        "cause by cause. The residual is what is left: the printed number minus the one that was "
        "predicted before the tool ran. 0 says that every difference is explained, down to the "
        "last integer; 'explained 100 %' in the table says the same.\n\n"
        "Another value is printed, never hidden, with the modules where the tool printed other "
        "numbers than was predicted. It says that the tool does something that its convention "
        "does not know: often a release on which that was not checked. `--strict` ends with "
        "status 1 then.",
        recognise="The last line of every account.",
    ),
)
