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
        "a lookup taken for a matrix product",
        "The formula multiplies all parameters by the tokens, the table of embeddings among them. "
        "Rows of it are looked up, which multiplies nothing. Where the output matrix is the same "
        "storage as the table, it stands for that product and nothing differs.",
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
        "Biases and attention sinks are in the number of parameters, and so each of them counts "
        "as a multiply-accumulate for every token.",
    ),
    _formula_cause(
        "all-experts",
        "experts that a token does not pass",
        "The formula multiplies the parameters of all experts by the tokens. A token passes the "
        "few that its router chooses.",
        "The amount is far above all others in a mixture of experts, and zero in a dense model.",
    ),
    _formula_cause(
        "router-missing",
        "the router is not counted",
        "The product that chooses experts, width x experts for every token and layer, is not in "
        "the formula.",
    ),
    _formula_cause(
        "attention-missing",
        "attention without its two products",
        "Queries times keys and weights times values are not in the formula: it is linear in the "
        "number of tokens.",
        "The amount grows with the square of the length.",
    ),
    _formula_cause(
        "causal-half",
        "half of the square of attention",
        "The formula counts T / 2 keys for each query, about what a causal mask leaves. A graph "
        "with a mask computes the whole square.",
    ),
    _formula_cause(
        "causal-triangle",
        "keys after their query are not counted",
        "The formula counts (T + 1) / 2 keys for each query, exactly those that a causal mask "
        "leaves. A graph with a mask computes the whole square.",
    ),
    _formula_cause(
        "window-exact",
        "pairs outside of a sliding window are not counted",
        "Of layers with a window of W keys exactly the pairs in it are counted, T W - W (W - 1) / "
        "2 of them. A graph with a mask computes the whole square.",
    ),
    _formula_cause(
        "window-rectangle",
        "W keys for every query of a window",
        "Layers with a window of W keys count W keys for each query, for the first ones too.",
    ),
    _formula_cause(
        "window-half-rectangle",
        "W / 2 keys for every query of a window",
        "Layers with a window of W keys count W / 2 keys for each query, as if a causal mask took "
        "half of the window; it takes next to nothing of it.",
    ),
    _formula_cause(
        "window-smooth",
        "a window without its diagonal",
        "Layers with a window of W keys count T W - W^2 / 2 pairs, W / 2 less than there are.",
    ),
    _formula_cause(
        "window-all-layers",
        "a window in layers that have none",
        "The formula takes every layer for one with a sliding window; some of the model see all "
        "keys.",
    ),
    _formula_cause(
        "one-attention-matmul",
        "one of the two products of attention",
        "Queries times keys alone are counted, or half of the factor was passed on.",
    ),
    _formula_cause(
        "attention-twice",
        "attention counted again for frozen weights",
        "The function adds the work of trainable and of frozen parameters, and each has the "
        "attention of the whole model in it, even where nothing is frozen.",
    ),
    _formula_cause(
        "head-missing",
        "the output matrix is not counted",
        "The product with the output matrix, width x vocabulary for each token, is not in the "
        "formula; in some where it shares its storage with the table.",
    ),
    _formula_cause(
        "head-forward-only",
        "the output matrix without its backward pass",
        "The product with the output matrix is counted in the forward pass alone.",
    ),
    _formula_cause(
        "head-scaled",
        "the output matrix with a factor of its own",
        "The product with the output matrix has another factor in the formula than the three "
        "passes of training.",
    ),
    _formula_cause(
        "head-last-token",
        "the output matrix for one token",
        "A server computes logits of the last token of a prompt alone. The graph of the model "
        "computes those of all.",
    ),
    _formula_cause(
        "glu-as-two-matrices",
        "a gated feed-forward layer as two matrices",
        "A gate is a third matrix, and the formula counts two: always, or unless its activation "
        "is one that it knows.",
    ),
    _formula_cause(
        "gate-assumed",
        "a gate that is not there",
        "The formula counts three matrices in every feed-forward layer; without a gate there are "
        "two.",
    ),
    _formula_cause(
        "shared-expert-missing",
        "experts that every token passes are not counted",
        "Beside the experts that its router chooses a token passes shared ones, which the formula "
        "leaves out.",
    ),
    _formula_cause(
        "ffn-width",
        "feed-forward layers of another width",
        "The formula takes another width for the feed-forward layers than the model has: four "
        "times that of the model, or that of experts in dense layers too.",
    ),
    _formula_cause(
        "head-dim-assumed",
        "heads of another depth",
        "The formula takes the width of the model for the heads of a layer, or one depth for "
        "queries and values, where the config has others.",
    ),
    _formula_cause(
        "gqa-ignored",
        "keys and values for every query head",
        "Grouped queries share keys and values; the formula projects as many as there are "
        "queries.",
    ),
    _formula_cause(
        "gqa-integer-division",
        "projections of keys and values lost in a division",
        "The formula divides 2 by the number of queries in a group as integers: with more than "
        "two, keys and values cost nothing.",
    ),
    _formula_cause(
        "low-rank",
        "latent projections taken for square ones",
        "Latent attention projects through low ranks; the formula takes four matrices of the "
        "width of the model.",
    ),
    _formula_cause(
        "softmax",
        "softmax as work of its own",
        "The formula adds a few operations for each attention weight. They are no "
        "multiply-accumulates.",
    ),
    _formula_cause(
        "recompute",
        "a forward pass again",
        "The formula counts four passes, for a forward pass that is run again in the backward "
        "pass.",
    ),
    _formula_cause(
        "embedding-lookup",
        "a few operations for each lookup",
        "The formula adds a multiple of the width for each token that is looked up.",
    ),
    _formula_cause(
        "vocab-padded",
        "a vocabulary rounded up",
        "The output matrix has more rows than the vocabulary, so that they divide among devices; "
        "by default a multiple of 128.",
    ),
    _formula_cause(
        "rounded-down",
        "a division that loses its remainder",
        "The formula divides integers for each layer or each token, and loses the remainder.",
    ),
    _formula_cause(
        "model-unsupported",
        "an architecture that the formula does not know",
        "The function has no formula for this kind of model. Some raise, and some give 0.",
    ),
)
