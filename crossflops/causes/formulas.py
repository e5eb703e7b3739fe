"""Causes of formulas over an architecture: why they differ from the work of the same model."""

from crossflops.ir.reconciliation import Cause


def _formula_cause(name: str, title: str, page: str, recognise: str = "") -> Cause:
    """Return a cause with the id "formula.NAME", for a difference between a formula over an
    architecture and the work of its model.
    """
    return Cause(id=f"formula.{name}", title=title, page=page, recognise=recognise)


CAUSES = (
    _formula_cause(
        "embedding-as-matmul",
        "a lookup counted as a matrix product",
        "The formula multiplies all parameters by the tokens, including the table of embeddings. "
        "The model only looks up rows of this table, which multiplies nothing. If the output "
        "matrix and the table are the same storage, the table represents the output product, and "
        "there is no difference.",
        "The amount is FLOPs per MAC x vocabulary x width x tokens.",
    ),
    _formula_cause(
        "norms-as-matmul",
        "parameters of norms counted as matrices",
        "Scales and shifts of norms are in the number of parameters, and so each of them counts "
        "as a multiply-accumulate for every token.",
    ),
    _formula_cause(
        "biases-as-matmul",
        "biases counted as matrices",
        "Biases, attention sinks and the vectors of state spaces are in the number of parameters, "
        "and so each of them counts as a multiply-accumulate for every token.",
    ),
    _formula_cause(
        "all-experts",
        "experts that a token does not use",
        "The formula multiplies the parameters of all experts by the tokens. A token uses only "
        "the few experts that its router chooses.",
        "The amount is by far the largest in a mixture of experts, and zero in a dense model.",
    ),
    _formula_cause(
        "router-missing",
        "the router is not counted",
        "The formula leaves out the product that chooses experts, width x experts for each token "
        "and layer.",
    ),
    _formula_cause(
        "attention-missing",
        "attention without its two products",
        "The formula leaves out queries times keys and attention weights times values: it is "
        "linear in the number of tokens.",
        "The amount grows with the square of the length.",
    ),
    _formula_cause(
        "causal-half",
        "half of the attention square",
        "The formula counts T / 2 keys for each query, about as many as a causal mask keeps. A "
        "graph with a mask computes the whole square.",
    ),
    _formula_cause(
        "causal-triangle",
        "keys after their query are not counted",
        "The formula counts (T + 1) / 2 keys for each query, exactly the keys that a causal mask "
        "keeps. A graph with a mask computes the whole square.",
    ),
    _formula_cause(
        "window-exact",
        "pairs outside of a sliding window are not counted",
        "In layers with a window of W keys the formula counts only the pairs in the window, T W "
        "- W (W - 1) / 2. A graph with a mask computes the whole square.",
    ),
    _formula_cause(
        "window-rectangle",
        "W keys for each query in a window",
        "In layers with a window of W keys the formula counts W keys for each query, also for "
        "the first W queries, which have fewer.",
    ),
    _formula_cause(
        "window-half-rectangle",
        "W / 2 keys for each query in a window",
        "In layers with a window of W keys the formula counts W / 2 keys for each query, as if a "
        "causal mask removed half of the window. It removes almost nothing of it.",
    ),
    _formula_cause(
        "window-smooth",
        "a window without its diagonal",
        "In layers with a window of W keys the formula counts T W - W^2 / 2 pairs, which is W / "
        "2 too few.",
    ),
    _formula_cause(
        "window-all-layers",
        "a window in layers without a window",
        "The formula assumes a sliding window in every layer; some layers of the model attend to "
        "all keys.",
    ),
    _formula_cause(
        "one-attention-matmul",
        "only one of the two products of attention",
        "The formula counts only queries times keys, or it uses half of the factor for both "
        "products.",
    ),
    _formula_cause(
        "attention-twice",
        "attention counted again for frozen weights",
        "The function adds the work of trainable parameters and that of frozen parameters. Both "
        "include the attention of the whole model, even if no parameter is frozen.",
    ),
    _formula_cause(
        "head-missing",
        "the output matrix is not counted",
        "The formula leaves out the product with the output matrix, width x vocabulary for each "
        "token. Some formulas leave it out only if the matrix shares its storage with the table "
        "of embeddings.",
    ),
    _formula_cause(
        "head-forward-only",
        "the output matrix without its backward pass",
        "The formula counts the product with the output matrix only in the forward pass.",
    ),
    _formula_cause(
        "head-scaled",
        "the output matrix with another factor",
        "In the formula the product with the output matrix has a factor that differs from the "
        "three passes of training.",
    ),
    _formula_cause(
        "head-last-token",
        "the output matrix for one token",
        "The formula assumes a server, which computes the logits of only the last token of a "
        "prompt. The graph of the model computes the logits of all tokens.",
    ),
    _formula_cause(
        "glu-as-two-matrices",
        "a gated feed-forward layer as two matrices",
        "A gated layer has three matrices, and the formula counts two: always, or unless it "
        "knows the activation of the gate.",
    ),
    _formula_cause(
        "gate-assumed",
        "a gate that does not exist",
        "The formula counts three matrices in every feed-forward layer; a layer without a gate "
        "has two.",
    ),
    _formula_cause(
        "shared-expert-missing",
        "shared experts are not counted",
        "Each token also uses shared experts, in addition to the experts that its router "
        "chooses. The formula leaves out the shared experts.",
    ),
    _formula_cause(
        "ffn-width",
        "another width of feed-forward layers",
        "The width of the feed-forward layers in the formula is not the width in the model. The "
        "formula uses four times the width of the model, or the width of experts also for dense "
        "layers.",
    ),
    _formula_cause(
        "head-dim-assumed",
        "another depth of heads",
        "The formula uses the width of the model for the total width of heads, or one depth for "
        "queries and values; the config has other values.",
    ),
    _formula_cause(
        "gqa-ignored",
        "keys and values for each query head",
        "Groups of queries share keys and values; the formula counts projections of keys and "
        "values for each query head.",
    ),
    _formula_cause(
        "gqa-integer-division",
        "projections of keys and values lost in a division",
        "The formula divides 2 by the number of queries in a group as integers: with more than "
        "two queries in a group, keys and values cost nothing.",
    ),
    _formula_cause(
        "low-rank",
        "latent projections counted as square matrices",
        "Latent attention uses projections of low rank; the formula counts four square matrices "
        "of the width of the model.",
    ),
    _formula_cause(
        "projection-missing",
        "other projections of attention are not counted",
        "The formula counts four projections of attention: of queries, keys, values and the "
        "output. The model has more of them, such as a gate of the output.",
    ),
    _formula_cause(
        "softmax",
        "softmax counted in addition",
        "The formula adds a few operations for each attention weight. They are not "
        "multiply-accumulates.",
    ),
    _formula_cause(
        "recompute",
        "a recomputed forward pass",
        "The formula counts four passes, because it assumes that the forward pass is recomputed "
        "in the backward pass.",
    ),
    _formula_cause(
        "embedding-lookup",
        "a few operations for each lookup",
        "The formula adds a multiple of the width for each token that is looked up.",
    ),
    _formula_cause(
        "vocab-padded",
        "a vocabulary rounded up",
        "The output matrix has more rows than the vocabulary, so that devices can share the rows "
        "equally; by default the number is a multiple of 128.",
    ),
    _formula_cause(
        "rounded-down",
        "a division that loses its remainder",
        "The formula divides integers for each layer or each token, and loses the remainder.",
    ),
    _formula_cause(
        "other-stack",
        "a decoder's parameters for the tokens of its encoder",
        "The formula multiplies all parameters by the tokens of the main input, which the encoder "
        "reads. The decoder and its output matrix have another number of tokens.",
        "The amount is 0 if both have the same number of tokens.",
    ),
    _formula_cause(
        "idle-experts",
        "experts that run for tokens that did not choose them",
        "The formula counts the experts that a token chooses. The model multiplies each token by "
        "all experts, with zeros for the others, as Llama 4 does in transformers.",
    ),
    _formula_cause(
        "extra-attention",
        "an indexer, or a second pass of attention",
        "The formula counts two products for each pair of tokens. The model has more of them: an "
        "indexer that chooses the keys, as in DeepSeek V3.2, or a second attention with the same "
        "keys, as in DiffLlama.",
    ),
    _formula_cause(
        "other-modality",
        "parts for images, sound or an encoder",
        "The formula multiplies all parameters of the model by the tokens, including those of its "
        "parts for images or sound, or of attention to an encoder that a decoder alone does not "
        "have. The text does not pass these parts.",
    ),
    _formula_cause(
        "shared-layers",
        "shared layers counted once",
        "The formula counts each parameter once for a token. Some layers of the model share "
        "weights, and a token passes them several times.",
    ),
    _formula_cause(
        "scan-missing",
        "state spaces without their scan",
        "The formula leaves out the scan of state spaces, in which no parameter is multiplied: "
        "the state of each head, and its product with the output vector.",
    ),
    _formula_cause(
        "scan-estimated",
        "an estimate of the scan",
        "The formula has a fixed number of operations for each element of the state. The model "
        "scans in chunks, whose work also depends on the length of a chunk.",
    ),
    _formula_cause(
        "convolution-missing",
        "the convolution of state spaces is not counted",
        "The formula leaves out the short convolution before the scan of a state space.",
    ),
    _formula_cause(
        "convolution-ends",
        "a convolution at the end of the sequence",
        "The model pads a sequence on both sides, so the convolution has kernel - 1 results after "
        "the last token, which are dropped. The formula counts its weights once for each token.",
    ),
    _formula_cause(
        "state-space-width",
        "another inner width of state spaces",
        "The formula assumes that a state space is twice as wide as the model.",
    ),
    _formula_cause(
        "model-unsupported",
        "an architecture that the formula does not know",
        "The function has no formula for this kind of model. Some functions raise an exception, "
        "and some return 0.",
    ),
)
