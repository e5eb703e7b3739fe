"""Find and search the named causes for which two counts differ. Each module of this folder defines
`CAUSES`.

Plugins add causes of their tools by entry points of the group `crossflops.causes`.

In: an id, or words that describe a cause. Out: causes, each with its page and its example.
May import: ir, errors.
"""

import functools
import re
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

from crossflops.errors import CrossflopsWarning, UnknownNameError
from crossflops.ir.reconciliation import Cause

GROUP = "crossflops.causes"  # entry points of plugins that bring causes along


@functools.cache
def package_causes() -> dict[str, Cause]:
    """Return the causes of this package as {id: cause}."""
    by_id: dict[str, Cause] = {}
    for module in iter_modules(__path__):
        for cause in import_module(f"{__name__}.{module.name}").CAUSES:
            if cause.id in by_id:
                raise ValueError(f"two causes are called {cause.id!r}")
            by_id[cause.id] = cause
    return by_id


@functools.cache
def _causes_by_id() -> dict[str, Cause]:
    """Return the causes of this package and of plugins as {id: cause}.

    If two have the same id, the first one is kept, with a warning.
    """
    by_id = dict(package_causes())
    for source, cause in _plugin_causes():
        if by_id.setdefault(cause.id, cause) != cause:
            _warn_about_causes(
                f"{source} adds a cause with the id {cause.id!r}, which already exists: rename it"
            )
    return by_id


def _plugin_causes() -> Iterator[tuple[str, Cause]]:
    """Yield (name of the plugin's entry point, cause) for each cause that a plugin adds."""
    for point in entry_points(group=GROUP):
        try:
            brought = tuple(point.load())
        except Exception as problem:  # a plugin may do anything, and reports do without its words
            _warn_about_causes(f"cannot load the causes of the plugin {point.value}: {problem!r}")
            continue
        for cause in brought:
            if isinstance(cause, Cause):
                yield point.value, cause
            else:
                _warn_about_causes(f"{point.value} contains {cause!r}, which is not a Cause")


def _warn_about_causes(text: str) -> None:
    """Show a `CrossflopsWarning` with this text."""
    warnings.warn(text, CrossflopsWarning, stacklevel=2)


def all_causes() -> tuple[Cause, ...]:
    """Return all causes of this package and of plugins, sorted by id."""
    return tuple(cause for _, cause in sorted(_causes_by_id().items()))


def find_cause(id: str) -> Cause:
    """Return the cause with this id; raise UnknownNameError if there is none."""
    known = (
        package_causes() if id in package_causes() else _causes_by_id()
    )  # plugins are loaded for their own ids alone
    if id in known:
        return known[id]
    family = id.partition(".")[0]
    near = [name for name in known if name.startswith(family)] or sorted(known)
    raise UnknownNameError(
        f"no cause is called {id!r}", f"write one of the names: {', '.join(near)}"
    )


# how people write what a page spells out
_ALSO = {
    "twice": ("double", "again"),
    "double": ("twice",),
    "doubled": ("double", "twice"),
    "bn": ("batchnormalization",),
    "ln": ("layernormalization",),
    "mha": ("multiheadattention",),
    "sdpa": ("scaleddotproductattention",),
    "2x": ("2permultiplyaccumulate",),
    "factor2": ("2permultiplyaccumulate",),
    "gqa": ("kvcache",),
    "dead": ("neverused", "deadcode"),
    "unused": ("neverused",),
}
_NAME, _PAGE = 4, 1  # what a word is worth where it stands


def search_causes(words: str, causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return the causes that contain every one of the words in id, title or page, the best match
    first.

    Only letters and digits are compared, so "batchnorm" is found in "batch normalization". If the
    names and titles of some causes have all words, only these are returned; if the title of
    exactly one begins with them, only that one.
    """
    requested = [plain for word in words.split() if (plain := _plain_search_text(word))]
    scored = [
        (score, cause)
        for cause in causes
        if requested and (score := _match_score(requested, cause))
    ]
    begun = [cause for _, cause in scored if _title_begins_with("".join(requested), cause)]
    if len(begun) == 1:
        return tuple(begun)
    named = [pair for pair in scored if pair[0] >= _NAME * len(requested)]
    return tuple(
        cause for _, cause in sorted(named or scored, key=lambda pair: (-pair[0], pair[1].id))
    )


def _match_score(requested: list[str], cause: Cause) -> int:
    """Return how well a cause matches the words: a higher number is better, 0 means that a word is
    missing.
    """
    name = _plain_search_text(f"{cause.id} {cause.title}")
    page = _plain_search_text(f"{cause.page} {cause.recognise}")
    worths = [
        max(_word_points(form, name, page) for form in _word_forms(word)) for word in requested
    ]
    return sum(worths) if all(worths) else 0


def _word_points(form: str, name: str, page: str) -> int:
    """Return the points for a word: 4 if it is in the cause's id or title, 1 if it is in its page,
    else 0.
    """
    return _NAME if form in name else _PAGE if form in page else 0


def _word_forms(word: str) -> tuple[str, ...]:
    """Return the word and other forms to search for: synonyms, "average" for "avg", and the word
    without a plural s.
    """
    singular = (word[:-1],) if len(word) > 4 and word.endswith("s") else ()
    spelled = (word.replace("avg", "average"),) if "avg" in word else ()
    return (word, *_ALSO.get(word, ()), *spelled, *singular)


def _title_begins_with(words: str, cause: Cause) -> bool:
    """Return whether the title of the cause begins with the words, or with another form of
    them.
    """
    return any(_plain_search_text(cause.title).startswith(form) for form in _word_forms(words))


def _plain_search_text(text: str) -> str:
    """Return the text in lower case, with only the characters a-z and 0-9."""
    return re.sub(r"[^a-z0-9]", "", text.casefold())


# Words of reports that are no causes, with a page each.
WORDS = (
    Cause(
        id="native",
        title="the count of crossflops itself",
        page="The native count is the work that the outputs of a model depend on, in its "
        "normalized ONNX graph: every node has a formula of its own, and the sums are exact "
        "integers. No tool takes part in it.\n\n"
        "Native MACs are the multiply-accumulates of contractions (convolutions, matrix "
        "products, attention, recurrent layers) and of nothing else. Native FLOPs are 2 x MACs "
        "and one for each addition, multiplication, division, comparison and special function "
        "(exp, sqrt, tanh ...) outside of them. Native parameters are those of the source model, "
        "each storage once.\n\n"
        "Work that no output needs is not included. Work that depends on no input is included, "
        "and shown separately. A node without a formula is listed as uncounted, which does not "
        "mean zero. 'exact' says that every node is counted in full. 'an upper bound' says that "
        "the work of some nodes depends on data, and 'an estimate' that it depends on an "
        "algorithm that is not fixed.",
        recognise="It is the number in the title, and every account of a tool starts from it: "
        "`thop = native + 44 558 336`.",
    ),
    Cause(
        id="residual",
        title="the difference that no cause explains",
        page="An account of a tool goes from the native count to the number that it printed, "
        "cause by cause. The residual is the printed number minus the number that was predicted "
        "before the tool ran. 0 says that every difference is explained exactly; 'explained 100 "
        "%' in the table says the same.\n\n"
        "Any other value is printed, with the modules for which the tool printed other numbers "
        "than predicted. It says that the tool does something that its convention does not "
        "describe. Often the convention was not checked with that release of the tool. "
        "`--strict` then ends with status 1.",
        recognise="The last line of every account.",
    ),
    Cause(
        id="mfu",
        title="model FLOPs utilization",
        page=(
            "The FLOP/s that the model needs, as a share of the peak of the device: 2 FLOPs for "
            "each MAC of the forward pass and, in training, three times that. Recomputed work "
            "does not count: gradient (activation) checkpointing and flash attention increase "
            "the HFU, not the MFU. The term is from the PaLM paper, whose formula for a training "
            "token is 6 N + 12 L H Q T."
        ),
        recognise=("`crossflops efficiency` prints it, with every factor."),
    ),
    Cause(
        id="hfu",
        title="hardware FLOPs utilization",
        page=(
            "The FLOP/s that are executed, as a share of the peak of the device. They include "
            "the work that gradient (activation) checkpointing, recomputation and flash "
            "attention compute again. The HFU is never below the MFU."
        ),
        recognise=(
            "`crossflops efficiency --recompute full` or `--flash` prints it next to the MFU."
        ),
    ),
    Cause(
        id="mbu",
        title="memory bandwidth utilization",
        page=(
            "The bytes that must move per second, as a share of the bandwidth of the memory. In "
            "a decoding step these are mainly the weights and the KV cache."
        ),
        recognise=("`crossflops efficiency --context T` prints it."),
    ),
    Cause(
        id="roofline",
        title="the limit of a device: peak or bandwidth",
        page=(
            "A step takes at least FLOPs / peak and at least bytes / bandwidth. Arithmetic "
            "intensity is FLOPs per byte. Above the ridge the peak is the limit (compute-bound), "
            "below it the bandwidth (memory-bound)."
        ),
        recognise=("`crossflops efficiency --roofline` prints it, node by node."),
    ),
    Cause(
        id="6nd",
        title="6 N D, the rule of thumb of a training run",
        page=(
            "6 FLOPs for each of N parameters in matrix products and each of D tokens: 2 forward "
            "and 4 backward (Kaplan et al.; Hoffmann et al., Chinchilla). It leaves out "
            "attention: PaLM and nanoGPT add 12 L H Q T for each token, and Megatron and MaxText "
            "add half of that if the mask is causal."
        ),
        recognise=(
            "`crossflops count --train` prints 6 N D for a model of tokens, and each cause of "
            "its difference from the counted step."
        ),
    ),
    Cause(
        id="causal",
        title="masked attention: the full square, or half of it",
        page=(
            "A causal mask hides about half of the scores. Native attention counts the full "
            "square, which is the work of a kernel that does not skip the masked part; flash "
            "attention and FlexAttention may skip it. Megatron and MaxText count half, PaLM "
            "counts all."
        ),
        recognise=("`crossflops efficiency --causal half` prints both MFUs."),
    ),
    Cause(
        id="kv-cache",
        title="cached keys and values that a decoding step reads",
        page=(
            "With a KV cache a step computes only its new token, and attends to all T tokens "
            "before it. Its bytes are B x T x 2 L Hkv Q x the bytes of an element. Grouped "
            "queries (GQA, MQA) have fewer heads Hkv of keys and values. That makes the cache "
            "smaller, but not the products of attention."
        ),
        recognise=("`crossflops efficiency --context T` counts a decoding step."),
    ),
    Cause(
        id="lora",
        title="adapters added to frozen weights",
        page=(
            "With LoRA the base weights are frozen: a step computes no gradients of these "
            "weights, but gradients of inputs still pass through. So a frozen product costs 2 x "
            "forward, a frozen product before the first adapter 1 x, and the small matrices and "
            "the products of attention 3 x. The products with the small matrices are additional "
            "work until they are merged."
        ),
        recognise=(
            "`crossflops count --train` counts by `requires_grad`; `crossflops explain "
            "backward.frozen` describes the difference from 3 x forward."
        ),
    ),
    Cause(
        id="moe",
        title="a mixture of experts: active and stored parameters",
        page=(
            "Each token goes through some of the experts. The native count has the products of "
            "the experts that run. The number of parameters includes all stored experts, and the "
            "N of 6 N only the experts that a token uses."
        ),
        recognise=(
            "The number of parameters in the title is much larger than the MACs of one token."
        ),
    ),
    Cause(
        id="sparse",
        title="products of sparse tensors, and zeros that are counted",
        page=(
            "A product of a sparse tensor (COO, CSR, CSC, BSR) with a matrix of F columns is nnz "
            "x F MACs, where nnz is the number of stored values. Zeros in a dense tensor, for "
            "example after pruning, are multiplied like other values, and are in the native "
            "count. The sparse peak of a device (2:4) applies only if the weights are pruned in "
            "that pattern and a sparse kernel runs. Only `--precision bf16_sparse` compares a "
            "rate with the sparse peak."
        ),
        recognise="The graph has nodes such as `sparse.mm`, or a dense product has many zeros in "
        "its weights.",
    ),
    Cause(
        id="memory",
        title="bytes: memory traffic, peak activation memory, model bytes",
        page=(
            "Memory traffic is the bytes that all nodes read and write, each node separately and "
            "without fusion. Peak activation memory is the largest total size of the tensors "
            "that are alive while a node runs, in the order of the graph, without the "
            "parameters. Model bytes are the bytes of the parameters as they are stored. The "
            "peak is that of a forward pass; a training step also keeps activations for its "
            "backward pass."
        ),
        recognise="`crossflops count` prints all three, and `check` has budgets for them.",
    ),
    Cause(
        id="swiglu",
        title="a gated feed-forward layer (GLU, GEGLU): three matrices instead of two",
        page=(
            "A gate, an up and a down projection are 3 h f MACs for each token and layer of "
            "width h and inner width f; a layer without a gate has 2 h f. The activation and the "
            "product with the gate add FLOPs, but no MACs. A formula with two matrices leaves "
            "out a third of the layer."
        ),
        recognise="The result of such a formula is h f MACs below the count for each token and "
        "layer.",
    ),
    Cause(
        id="rope",
        title="rotary position embeddings",
        page=(
            "Queries and keys are rotated by multiplications and additions of each element. "
            "These are FLOPs, but not MACs, and formulas over sizes do not count them. A model "
            "may multiply positions by frequencies as a matrix product, as Llama in transformers "
            "does. That product has T x Q / 2 MACs for T positions and heads of size Q."
        ),
        recognise="A small MatMul in `rotary_emb`, and Mul and Add nodes in attention.",
    ),
    Cause(
        id="quantization",
        title="integers instead of floats",
        page=(
            "A quantized product has as many MACs as the product in floats; they are listed "
            "under their own precision (int8 ...). Quantization and dequantization are "
            "additional work. Weights and activations take fewer bytes."
        ),
        recognise=("`bytes` and the precisions of a report show the stored types."),
    ),
)
