"""What a caller asks for, of one model or of a second -> one that a model is made from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends import Source, controlled, require
from crossflops.frontends.inputs import Given, parse
from crossflops.ir.graph import Control
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Setting
from crossflops.targets import from_object, is_file, load, of_model
from crossflops.targets.target import build


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
            control=self.control,
        )

    @property
    def control(self) -> Control:
        """What is said of loops and branches, as it travels from here."""
        return Control(self.trips, self.branches)

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
    control = Control(dict(trips or {}), dict(branches or {}))
    texts = [inputs] if isinstance(inputs, str) else inputs
    written = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
    if not isinstance(target, str):
        if inputs_file is not None:
            given = Given(file=inputs_file)
        elif written and texts:
            given = Given(specs=parse(texts))
        else:
            given = Given(values=inputs)
        return _given(of_model(target, given), setting, control)
    if not written and not is_file(target):
        model, _ = build(target, arguments or {}, allow_pickle)
        return _given(from_object(model, inputs), setting, control)
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
        trips=dict(control.trips),
        branches=dict(control.branches),
    )


def _given(source: Source, setting: Setting, control: Control) -> Request:
    return Request(target=None, given=controlled(source, control), setting=setting)


def is_empty(inputs: Any) -> bool:
    """Whether nothing was given: None, or a list, a table or a text without anything in it."""
    return inputs is None or (isinstance(inputs, list | tuple | dict | str) and not inputs)


# The request for a second model, which takes from the first what is not said of it.

OPTIONS = ("inputs", "inputs_file", "arguments", "dims", "trips", "branches")
_OF_FILES = ("dims", "trips", "branches")
_LAYOUTS = (3, 4, 5)  # ranks of images, whose channels stand behind the batch or at the end


def second(target: Any, said: Mapping[str, Any], first: Request) -> Request:
    """The request for `target`, with the options in `said` and otherwise those of the first.

    Inputs that are taken over are tried as they are, then with the channels moved to the end or
    from there, then without names; a file is asked last for sizes of its own. The first that the
    model takes is used. Raises InputError for an option that there is not.
    """
    unknown = [name for name in said if name not in OPTIONS]
    if unknown:
        raise InputError(
            f"there is no option {unknown[0]!r} of the second model",
            f"there are {', '.join(OPTIONS)}",
        )
    own = {name: value for name, value in said.items() if not is_empty(value)}
    given = "inputs" in own or "inputs_file" in own
    if not isinstance(target, str) and not given:
        return _given_model(target, first)
    base = asked_for(
        target,
        own.get("inputs", ()),
        own.get("inputs_file"),
        first.setting,
        own.get("arguments") or _arguments(target, first),
        allow_pickle=first.allow_pickle,
        **{name: own.get(name) for name in _OF_FILES},
    )
    if not given:
        return _taken_over(base, own, first)
    base.source()  # what cannot be built is told before anything is counted
    return _sized(base, first, own)


def _arguments(target: Any, first: Request) -> Mapping[str, object]:
    """Those of the first model, where the second is called too."""
    called = isinstance(target, str) and ":" in target and not is_file(target)
    return first.arguments if called else {}


def _sized(request: Request, first: Request, own: Mapping[str, Any]) -> Request:
    """What the first says of files, where both are files and the second says nothing."""
    if not request.is_file:
        return request
    more = {name: getattr(first, name) for name in _OF_FILES if name not in own}
    return msgspec.structs.replace(request, **more) if first.is_file else request


def _taken_over(base: Request, own: Mapping[str, Any], first: Request) -> Request:
    """A target on the inputs of the first model."""
    specs = first.specs if first.given is None else _specs(first.given)
    whole = _sized(base, first, own)
    found = [msgspec.structs.replace(whole, specs=way) for way in layouts(specs)]
    if first.inputs_file is not None and not base.is_file:
        found = [msgspec.structs.replace(base, inputs_file=first.inputs_file)]
    if base.is_file:
        found += [msgspec.structs.replace(whole, specs=()), base]
    return (
        next((request for request in found if _fits(request)), found[0])
        if len(found) > 1
        else found[0]
    )


def _given_model(model: Any, first: Request) -> Request:
    if first.given is not None:
        pair = (first.given.args, first.given.kwargs)
        return asked_for(model, pair, None, first.setting, None)
    if not first.specs:
        raise InputError("nobody says which inputs the models take", "give inputs")
    ways = ([_text(spec) for spec in way] for way in layouts(first.specs))
    found = [asked_for(model, texts, None, first.setting, None) for texts in ways]
    return next((request for request in found if _fits(request)), found[0])


def _text(spec: TensorSpec) -> str:
    shape = "x".join(map(str, spec.shape or ())) or "scalar"
    name = "" if spec.name.isdecimal() else f"{spec.name}="
    return f"{name}{shape}:{spec.dtype}"


def _specs(given: Source) -> tuple[TensorSpec, ...]:
    """The shapes of tensors."""
    named = [
        *((str(place), tensor) for place, tensor in enumerate(given.args)),
        *given.kwargs.items(),
    ]
    return tuple(
        TensorSpec(name, str(tensor.dtype).rpartition(".")[2], tuple(tensor.shape), "input")
        for name, tensor in named
        if hasattr(tensor, "shape") and hasattr(tensor, "dtype")
    )


def layouts(specs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, ...]]:
    """The inputs as they are, with channels last, with channels first; then a single one unnamed.

    >>> [[one.shape for one in way] for way in layouts([TensorSpec("0", "float32", (1, 3, 8, 9))])]
    [[(1, 3, 8, 9)], [(1, 8, 9, 3)], [(1, 9, 3, 8)]]
    """
    ways: list[tuple[TensorSpec, ...]] = []
    for named in (True, False):
        for move in (None, "last", "first"):
            way = tuple(_moved(spec, move, named or len(specs) > 1) for spec in specs)
            if way not in ways:
                ways.append(way)
    yield from ways


def _moved(spec: TensorSpec, move: str | None, named: bool) -> TensorSpec:
    shape, name = spec.shape or (), spec.name if named else "0"
    image = len(shape) in _LAYOUTS and spec.dtype.startswith(("float", "bfloat"))
    if image and move == "last":
        shape = (shape[0], *shape[2:], shape[1])
    elif image and move == "first":
        shape = (shape[0], shape[-1], *shape[1:-1])
    return msgspec.structs.replace(spec, shape=shape, name=name)


def _fits(request: Request) -> bool:
    """Whether the model takes the inputs: it is traced or run on them once, a file is read."""
    try:
        source = request.source()
        require(source.model).fits(source, request.setting)
    except (InputError, NormalizeError):
        return False
    return True
