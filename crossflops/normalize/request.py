"""What a caller asks for, in whichever form -> one that a model can be made from."""

from collections.abc import Mapping
from typing import Any

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Setting
from crossflops.errors import InputError
from crossflops.normalize import Source, controlled, from_object, is_file, load, make
from crossflops.normalize.inputs import MADE_UP, from_file, parse
from crossflops.normalize.targets import build


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for: a target, or a model object with its inputs."""

    target: str | None
    specs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    arguments: dict[str, object] = {}
    allow_pickle: bool = False
    given: Source | None = None
    dims: dict[str, int] = {}
    trips: dict[str, int] = {}
    branches: dict[str, str] = {}
    setting: Setting = Setting()

    def source(self) -> Source:
        """The model with its inputs. A target is built afresh."""
        if self.given is not None:
            return self.given
        assert self.target is not None
        return load(
            self.target,
            self.arguments,
            self.specs,
            self.inputs_file,
            allow_pickle=self.allow_pickle,
            dims=self.dims,
            trips=self.trips,
            branches=self.branches,
        )

    @property
    def is_file(self) -> bool:
        """Whether the model is an ONNX file, which no framework can run."""
        return self.target is not None and is_file(self.target)


def asked_for(
    target: Any,
    inputs: Any,
    inputs_file: str | None,
    setting: Setting,
    arguments: Mapping[str, object] | None,
    allow_pickle: bool = False,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
) -> Request:
    """The request behind the arguments of a verb.

    `target` is a model object or a target string, `inputs` tensors or texts ("1x3x224x224"),
    `dims`, `trips` and `branches` sizes by dimension, by loop and by If of an ONNX file.
    Raises InputError, and for a target with tensors what building it raises.
    """
    if not isinstance(target, str) and (arguments or dims):
        raise InputError("arguments and dims are for a target", "this is a model already")
    if inputs_file is not None and not is_empty(inputs):
        raise InputError("inputs and a file of inputs contradict each other", "give one of them")
    if inputs_file is not None and not isinstance(target, str):
        request = _given(target, from_file(inputs_file), setting, trips, branches)
        return _with_values(request, inputs_file)
    texts = [inputs] if isinstance(inputs, str) else inputs
    written = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
    if not isinstance(target, str):
        if not written or not texts:
            return _given(target, inputs, setting, trips, branches)
        request = _given(target, make(target, parse(texts)), setting, trips, branches)
        return _with_values(request, MADE_UP)
    if not written and not is_file(target):
        model, _ = build(target, arguments or {}, allow_pickle)
        return _given(model, inputs, setting, trips, branches)
    if not written:
        raise InputError(
            "an ONNX file is counted by shapes alone", 'give them as texts: ["x=1x3x224x224"]'
        )
    return Request(
        target=target,
        specs=parse(texts),
        inputs_file=inputs_file,
        arguments=dict(arguments or {}),
        allow_pickle=allow_pickle,
        setting=setting,
        dims=dict(dims or {}),
        trips=dict(trips or {}),
        branches=dict(branches or {}),
    )


def _given(
    model: Any,
    inputs: Any,
    setting: Setting,
    trips: Mapping[str, int] | None,
    branches: Mapping[str, str] | None,
) -> Request:
    source = controlled(from_object(model, inputs), trips, branches)
    return Request(target=None, given=source, setting=setting)


def _with_values(request: Request, values: str) -> Request:
    """The request, whose inputs come from where `values` says."""
    assert request.given is not None
    return msgspec.structs.replace(
        request, given=msgspec.structs.replace(request.given, values=values)
    )


def is_empty(inputs: Any) -> bool:
    """Whether nothing was given: None, or a list, a table or a text without anything in it."""
    return inputs is None or (isinstance(inputs, list | tuple | dict | str) and not inputs)
