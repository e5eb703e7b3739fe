"""`--against`: a second model, and how to build and run it where that is not said already."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from crossflops.cli.options import argument, branch, numbered, stacked
from crossflops.errors import InputError

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = {
    "inputs": "--against-input",
    "inputs_file": "--against-inputs",
    "arguments": "--against-arg",
    "dims": "--against-dim",
    "trips": "--against-trips",
    "branches": "--against-branch",
}


def against_options(function: Function) -> Function:
    """A second TARGET, with options like those of the first, for `against` to take."""
    said = "like that of TARGET, which it replaces."
    return stacked(
        function,
        click.option(
            "--against",
            "against",
            metavar="TARGET",
            help="A second model: say what makes it another model, layer by layer, and apart from "
            "that what each tool counts otherwise. It takes the options of the first that are "
            "not given for it, images in the order of axes that it wants.",
        ),
        click.option(
            "--against-input", "against_inputs", multiple=True, metavar="[NAME=]SHAPE[:DTYPE]",
            help=f"An input of the second model, {said}",
        ),
        click.option(
            "--against-inputs", "against_inputs_file", metavar="FILE.npz",
            help=f"Values of its inputs, {said}",
        ),
        click.option(
            "--against-arg", "against_arguments", multiple=True, metavar="KEY=JSON",
            help=f"An argument of its callable, {said}",
        ),
        click.option(
            "--against-dim", "against_dims", multiple=True, metavar="NAME=N",
            help=f"A dimension of its ONNX file, {said}",
        ),
        click.option(
            "--against-trips", "against_trips", multiple=True, metavar="NODE=N",
            help=f"How often a Loop of its file runs, {said}",
        ),
        click.option(
            "--against-branch", "against_branches", multiple=True, metavar="NODE=then|else|sum",
            help=f"Which branch of an If of its file counts, {said}",
        ),
    )  # fmt: skip


def against(fields: dict[str, Any]) -> dict[str, Any]:
    """The values of `against_options` as `pipeline.compare` takes them; nothing without a target.

    Raises InputError for an option of a second model that there is not.
    """
    target = fields.pop("against")
    said = {name: fields.pop(f"against_{name}") for name in _OPTIONS}
    if target is None:
        stray = next((name for name, value in said.items() if value), None)
        if stray is not None:
            raise InputError(
                f"{_OPTIONS[stray]} is about a second model", "name it with --against TARGET"
            )
        return {}
    options: dict[str, Any] = {
        "inputs": tuple(said["inputs"]),
        "inputs_file": said["inputs_file"],
        "arguments": dict(map(argument, said["arguments"])),
        "dims": dict(numbered("--against-dim", text) for text in said["dims"]),
        "trips": dict(numbered("--against-trips", text) for text in said["trips"]),
        "branches": dict(map(branch, said["branches"])),
    }
    given = {name: value for name, value in options.items() if value}
    return {"against": target, "against_options": given}
