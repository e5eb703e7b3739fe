"""Short messages for errors of PyTorch and its exporters: one line of what is wrong, one of what
to do.
"""

import re

from crossflops.errors import NormalizeError, error_location

REFUSED = "torch.export cannot trace the model: "
_LONGEST = 200
PIECES = "DTensor"  # the word in errors about torch.distributed.tensor
# By what the message says: what helps. The first that is found holds.
_HINTS = (
    (
        r"data-dependent|Could not guard|dynamic control flow|DataDependent",
        "control flow on values cannot be exported: write the path out, or use torch.cond",
    ),
    (
        r"'size' failed to unpack",
        "a size is read from a tensor there, as in a packed sequence: give recurrent layers the "
        "padded batch, and write sizes as numbers",
    ),
    (
        r"Inference tensors",
        "make inputs and weights outside of torch.inference_mode(), or clone them there",
    ),
    (
        r"__obj_flatten__|PackedParams|[Qq]uantized",
        "quantized modules hold packed weights: count the model before torch.ao converts it",
    ),
    (
        r"in output, which is not a known type|Unsupported input type|not a known type",
        "give the model tensors, numbers, and lists, tuples and dicts of them",
    ),
    (
        r"data pointer|\.numpy\(\)|data_ptr|not supported for tensor subclasses",
        "the model leaves PyTorch while it runs (NumPy, a custom "
        "kernel): use PyTorch operators instead",
    ),
    (
        PIECES,
        "forward itself works with pieces of tensors: count the model before it is sharded "
        "(by parallelize_module, distribute_tensor)",
    ),
)
_DERIVES = (
    "count the model without that term (a gradient penalty, forces), or write the derivative out "
    "as operators of the forward pass"
)
_FALLBACK = "run torch.export.export(model, inputs, strict=False) to see the whole error"


def untraceable_model_error(error: BaseException, derivative_function: str = "") -> NormalizeError:
    """Return the error for a model that runs, but that torch.export cannot trace.

    `derivative_function` is the function by which the model differentiates while it runs, if any.
    """
    text = f"{type(error).__name__}: {error}"
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, text)), "")
    if derivative_function and not hint:
        message = f"{REFUSED}it differentiates while it runs, by {derivative_function}"
        return NormalizeError(message, _DERIVES)
    message = f"{REFUSED}{brief_error_text(error)}{error_location(error)}"
    return NormalizeError(message, hint or _FALLBACK)


def brief_error_text(error: BaseException) -> str:
    """Return the first sentence of an exception's text, at most 200 characters; its class name if
    there is no sentence.
    """
    name = type(error).__name__
    # Where the text is only what PyTorch stumbled over, the class says what it was.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    # TorchScript puts its own traceback before what went wrong.
    inner = (line for line in lines if line.startswith("RuntimeError: "))
    scripted = lines[0].endswith("failed in the TorchScript interpreter.")
    first = next(inner, lines[0]).removeprefix("RuntimeError: ") if scripted else lines[0]
    sentence = re.split(r"(?<=\w{3}[.!?])\s", first, maxsplit=1)[0].rstrip(".")
    if " " not in sentence:
        return f"{name}: {sentence}".removesuffix(": ")
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST].rstrip()} ..."
