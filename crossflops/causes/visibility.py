"""Causes of work that a tool does not see, sees where nobody else does, or sees more than once."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="functional.invisible",
        title="functional calls, no module",
        page="The work runs through a function (F.conv2d, F.linear, torch.matmul ...) and not "
        "through a module that the tool hooks. So do the projections inside "
        "nn.MultiheadAttention, whose out_proj is a module that is never called.",
        references=("Lyken17/pytorch-OpCounter#197", "Lyken17/pytorch-OpCounter#141"),
    ),
    Cause(
        id="matmul.operator-invisible",
        title="x @ y, no function",
        page="The product is written with the operator @, which calls neither a module nor a "
        "function that could be hooked or replaced.",
        references=("microsoft/DeepSpeed#3087", "microsoft/DeepSpeed#4723"),
    ),
    Cause(
        id="module.type-unmatched",
        title="subclasses of known modules",
        page="The tool looks rules up by the exact class of a module. A subclass of nn.Conv2d "
        "has no rule and counts 0. timm's weight-standardized convolutions are such.",
    ),
    Cause(
        id="module.direct-forward",
        title="modules called by .forward()",
        page="Hooks run in __call__. A module whose forward method is called directly does its "
        "work unseen.",
    ),
    Cause(
        id="module.hook-work",
        title="work in the hooks of a module",
        page="A forward hook or pre-hook multiplies (spectral_norm of torch.nn.utils iterates "
        "on the weight in one). A tool that counts a module by its rule counts what forward does; "
        "what hooks of the model do beside it goes unseen.",
    ),
    Cause(
        id="module.unregistered",
        title="modules that are registered nowhere",
        page="The model calls a module that it keeps in a plain list, a dict or a closure. Tools "
        "find modules through their parents, so hooks never reach this one; nor do .to() and "
        "state_dict().",
    ),
    Cause(
        id="function.opaque",
        title="custom autograd functions, scripted functions",
        page="A subclass of torch.autograd.Function and a function compiled by torch.jit.script "
        "are one node in a trace of torch.jit (prim::PythonOp, prim::CallFunction). fvcore looks "
        "at the nodes of that trace and not into these, so whatever they compute counts nothing. "
        "The re-entrant form of torch.utils.checkpoint is such a function.",
    ),
    Cause(
        id="function.vmap",
        title="layers under torch.vmap",
        page="torch.vmap runs Python once for all examples and hides their axis: a hook on a "
        "layer reads the shapes of one example, while the work of all of them is done.",
    ),
    Cause(
        id="module.root-rule-ignored",
        title="the model is itself a layer",
        page="thop 0.0.31 sums its children's counts: when the model passed is itself a layer "
        "with a rule (a lone nn.LSTM, say), nothing is counted.",
    ),
    Cause(
        id="module.shared-parents",
        title="modules registered under several parents",
        page="thop walks children to register hooks and walks them again to sum. A module that "
        "can be reached in p ways is hooked p times and summed p times: p^2 times its work.",
        references=("sovrasov/flops-counter.pytorch#106",),
    ),
    Cause(
        id="attention.sdpa",
        title="score and value products of attention",
        page="scaled_dot_product_attention is one operator. thop hooks modules, fvcore has no "
        "handle for it, and FlopCounterMode has no formula for the fused kernel that the CPU "
        "runs (it has for CUDA's). B x H x Sq x Sk x (D + Dv) MACs are missing.",
        references=("pytorch/pytorch#195460", "Lyken17/pytorch-OpCounter#197"),
    ),
    Cause(
        id="attention.module-fastpath",
        title="attention modules in one fused kernel",
        page="In evaluation without gradients PyTorch runs nn.MultiheadAttention, and a whole "
        "nn.TransformerEncoderLayer, as one native operator, for which the tool has no formula: "
        "projections and products are all missing. Hooks on the modules of an encoder layer "
        "switch that layer's path off, so tools with hooks and tools without see different "
        "executions of one model. With gradients enabled the path is not taken.",
        references=("pytorch/pytorch#195460",),
    ),
    Cause(
        id="conv.string-padding-unsupported",
        title='convolutions with padding="same"',
        page='A convolution with padding="same" or "valid" is traced as another operator '
        "(aten::_convolution_mode), for which fvcore has no handle.",
    ),
    Cause(
        id="op.unregistered-zero",
        title="operators without a rule",
        page="The tool has no rule for the operator and counts nothing. fvcore lists such "
        "operators, FlopCounterMode says nothing.",
        references=("facebookresearch/fvcore#143", "pytorch/pytorch#82951"),
    ),
    Cause(
        id="control.dead-code",
        title="computed, and never used",
        page="The model computes something that no output depends on. Tools that watch the model "
        "run count it; tools that trace a graph, and the native count, do not. fvcore's trace "
        "keeps what is written into a buffer, a parameter or an input (a running mean, a cache).",
    ),
    Cause(
        id="scope.mode-forced-eval",
        title="evaluation mode, whatever was asked",
        page="The tool puts the model into evaluation mode before it counts. A model that takes "
        "another path in training (auxiliary classifiers, for example) does other work there.",
    ),
)
