"""The reasons why no call of a model is seen in a step, such as a compiled function that contains
it.
"""

import sys

_UNSEEN = "the model was not called in the profiled step"
_INLINED = f"{_UNSEEN}, or torch.compile compiled its calls into an enclosing function"
_GIVE_MODULE = "give the profiler the module that the training loop calls"
_COMPILE_MODEL = (
    "compile only the model with torch.compile(model) and call it outside compiled functions, "
    "or set TORCH_COMPILE_DISABLE=1 in the environment"
)


def has_torch_compiled_anything() -> bool:
    """Return True if torch.compile compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and any(utils.counters["frames"].values())


def explain_missing_model_call() -> tuple[str, str]:
    """Return the message and the hint for a step in which no call of the model was seen."""
    return (_INLINED, _COMPILE_MODEL) if has_torch_compiled_anything() else (_UNSEEN, _GIVE_MODULE)
