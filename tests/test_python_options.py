"""The command and the Python functions offer the same: each option is a keyword, and each keyword
an option, but for what is listed here with its reason.
"""

import inspect

import click
import pytest

import crossflops
from crossflops.cli import VERBS, command_group

# Verbs without a function, each with what Python has in its place.
WITHOUT_FUNCTION = {
    "peak": "a product of three numbers",
    "bandwidth": "a product of four numbers",
    "tools": "it describes what a shell would start",
    "doctor": "it describes what a shell would start",
    "schema": "msgspec.json.schema of the type of the result",
    "check-formula": "crossflops.testing.formulas.check_formulas",
}
# Options that are no keyword of any function: what does the same in Python.
IN_OTHER_WORDS = {
    "as_json": "to_dict() of the result",
    "file": "save() of the result",
    "debug": "an error has its traceback",
    "no_grad": "setting=Setting(grad=False)",
    "train_mode": "setting=Setting(training=True)",
    "plot": "plot() of the result",
    "by": "view() and to_pandas() of the result",
    "top": "view() and to_pandas() of the result, page() of a profile",
    "depth": "view() and to_pandas() of the result, page() of a profile",
    "no_detail": "page() of a profile",
    "unit": "view() of the result",
    "strict": "`uncounted` and `residuals` of the result",
}
# The same for one verb alone.
IN_OTHER_WORDS_OF = {
    "count": {"timeout": "the function ends when its caller ends it"},
    "table": {"timeout": "the function ends when its caller ends it"},
    "diff": {"timeout": "the function ends when its caller ends it"},
    "efficiency": {"timeout": "the function ends when its caller ends it"},
    "export": {"timeout": "the function ends when its caller ends it"},
    "identify": {"timeout": "the function ends when its caller ends it"},
    "profile": {
        "timeout": "the function ends when its caller ends it",
        "words": "`target` is the model itself, not a script",
        "step": "`target` is the model itself, not a script",
    },
    "sweep": dict.fromkeys(("dask", "ray"), "executor=, with that of the cluster"),
    "check": {"junit": "to_junit() of the result", "quality": "to_code_quality() of the result"},
    "compare": {
        **{
            f"against_{name}": f"against_options={{{name!r}: ...}}"
            for name in ("inputs", "inputs_file", "arguments", "dims", "trips", "branches")
        },
        "no_tools": "tools=[]",
    },
}
# Options of the command that Python does not have yet: none may be added.
MISSING: dict[str, set[str]] = {}
# A keyword by another name than the parameter of the option.
RENAMED = {
    ("table", "tools"): "by_tool",
    ("diff", "most"): "max_increase",
    ("identify", "is_thorough"): "every",
    ("bench", "memory_limit"): "memory",
    ("render", "file_"): "report",
}
# Keywords that are no option: what they are for.
PYTHON_ALONE = {
    "setting": "--no-grad and --train-mode, and the device",
    "on_progress": "the command shows progress on stderr",
}
PYTHON_ALONE_OF = {
    "sweep": {"executor": "--dask and --ray"},
    "compare": {"isolate": "the command always isolates", "against_options": "--against-..."},
    "profile": {
        "loss": "a script has its own",
        "trainable": "a script says what it trains",
    },
    "export": {"unit": "an option of this verb", "file": "an option of this verb"},
}
FUNCTIONS = sorted(VERBS.keys() - WITHOUT_FUNCTION.keys())


def options_of(verb):
    """Return the parameters of the command by the names that the function would have."""
    command = command_group.get_command(click.Context(command_group), verb)
    named = {RENAMED.get((verb, param.name), param.name) for param in command.params}
    return named - IN_OTHER_WORDS.keys() - IN_OTHER_WORDS_OF.get(verb, {}).keys()


def keywords_of(verb):
    """Return the parameters of the function."""
    parameters = inspect.signature(getattr(crossflops, verb)).parameters
    return parameters.keys() - PYTHON_ALONE.keys() - PYTHON_ALONE_OF.get(verb, {}).keys()


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_every_option_is_a_keyword(verb):
    """What the help of the verb lists can be asked from Python."""
    missing = options_of(verb) - keywords_of(verb)
    assert missing == MISSING.get(verb, set())


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_every_keyword_is_an_option(verb):
    """What Python can ask is in the help of the verb."""
    assert keywords_of(verb) - options_of(verb) == set()


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_keywords_are_named(verb):
    """`help` lists each: none hides in a bag of keywords."""
    for parameter in inspect.signature(getattr(crossflops, verb)).parameters.values():
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, parameter


def test_the_list_has_no_entry_too_many():
    """A verb that got a function, or an option that is gone, is taken off the lists."""
    assert not [verb for verb in WITHOUT_FUNCTION if verb in crossflops.__all__]
    every = {
        param.name
        for verb in FUNCTIONS
        for param in command_group.get_command(click.Context(command_group), verb).params
    }
    assert IN_OTHER_WORDS.keys() <= every
    for verb, names in IN_OTHER_WORDS_OF.items():
        command = command_group.get_command(click.Context(command_group), verb)
        assert names.keys() <= {param.name for param in command.params}, verb
