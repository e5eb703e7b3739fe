"""Turn a caller's request for one or two models into models that can be built."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends import (
    Source,
    library_of_target,
    require_frontend,
    with_control,
)
from crossflops.frontends.inputs import (
    ProvidedInputs,
    parse_inputs,
    size_names_in_inputs,
    with_named_sizes,
)
from crossflops.frontends.named import SIZES
from crossflops.ir.graph import Control, TensorSpec
from crossflops.ir.trace import Setting
from crossflops.targets import (
    is_onnx_target,
    is_pipeline,
    load_target_source,
    model_source,
    source_from_object,
)
from crossflops.targets.target import (
    build_target,
    call_batch_function,
    full_target_name,
    is_batch_function,
    may_contain_pickle,
)

UNNAMED_SIZE = 32  # of a size that varies, until it is chosen


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a caller for one model: the target, its inputs, the way to count it.

    `target` is what was typed, None for an object. `given` is there for an object, and for a
    target with tensors: what was built of it. `dims`, `trips` and `branches` are sizes by
    dimension, by loop and by If, `sizes` those of the usual input of a model by name. `vary`,
    `observe` and `as_` are those of `crossflops.count`; with `observe` an ONNX file is run, and
    takes the real values of `inputs_file`. With `train` a training step is counted, with the
    weights that match `frozen` or `trainable` so, with the step of the `optimizer`, and of this
    `loss` of what the model returns: "" for the sum of all float outputs. `weights` says whether
    a target of PyTorch is built with numbers; None: where shapes do not decide. With `shapes` the
    report has those of every module. With a `prompt` of so many tokens a language model is counted
    as it generates, `generate` new tokens for each request; its batch is in `sizes`. Its prompt
    begins with so many `images`, whose side is in `sizes` as well. Its cache has the precision
    `cache_dtype`, "" for that of the model. With a `draft` model, another target, that proposes
    `draft_tokens` tokens in a round, `acceptance` says how many hold. `named_inputs` has the texts
    of inputs whose shapes have named sizes, `named_sizes` the numbers that were given for these
    names, and `varied` the model object of a caller whose inputs vary.
    """

    target: str | None
    specs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    arguments: dict[str, object] = {}
    allow_pickle: bool = False
    sizes: dict[str, int] = {}
    given: Source | None = None
    dims: dict[str, int] = {}
    trips: dict[str, int] = {}
    branches: dict[str, str] = {}
    setting: Setting = Setting()
    vary: tuple[str, ...] = ()
    observe: bool = False
    as_: str | tuple[str, ...] = ()
    weights: Literal["real", "fake"] | None = None
    train: bool = False
    frozen: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    optimizer: str = ""
    loss: str | Callable[..., Any] = ""
    shapes: bool = False
    prompt: int | None = None
    generate: int | None = None
    images: int | None = None
    cache_dtype: str = ""
    draft: str = ""
    draft_tokens: int | None = None
    acceptance: str = ""
    named_inputs: tuple[str, ...] = ()
    named_sizes: dict[str, int] = {}
    varied: Any = None

    @classmethod
    def from_arguments(cls, target: Any, inputs: Any = (), **options: Any) -> "Request":
        """Build a request from a target, its inputs, and the other options of a verb by name.

        `target` is a model object, a target string or a path, `inputs` are tensors or texts
        ("1x3x224x224"), `options` the other fields, where None is the default of each. Raises
        InputError, and for a target with tensors what building it raises.
        """
        target = os.fspath(target) if isinstance(target, os.PathLike) else target
        formed = [name for name in (*OPTIONS, "sizes") if options.get(name) not in (None, {})]
        if formed:
            from crossflops.targets.option_forms import check_option_type  # most counts set none

            for name in formed:
                check_option_type(name, options[name], name)
        texts = [inputs] if isinstance(inputs, str) else inputs
        written = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        request = cls(
            target=target if isinstance(target, str) else None, **_copy_option_values(options)
        )
        if request.vary:
            request = msgspec.structs.replace(request, vary=_dimension_names(request))
        if written and texts:
            request, texts = request._with_named_inputs(texts)
        if request.target is None and (request.arguments or request.dims):
            raise InputError(
                "arguments and dims cannot be used with a model object",
                'leave them out, or give the target as text, such as "file.py:callable"',
            )
        if request.sizes and (request.target is None or not is_empty_input(inputs)):
            sized = SIZES[next(iter(request.sizes))]
            raise InputError(
                f"{sized} and inputs cannot be combined: {sized} makes the default input of a "
                "model that is given by name"
                if request.target is not None
                else f"{sized} cannot be used with a model object, which has no default input",
                f"leave out {sized}",
            )
        if request.weights is not None and request.target is None:
            raise InputError(
                "weights cannot be used with a model object, which is built already",
                'leave out weights, or give the target as text, such as "file.py:callable"',
            )
        if request.weights is not None and request.is_file:
            raise InputError("--weights cannot be used with an ONNX file", "leave out --weights")
        if request.inputs_file is not None and not is_empty_input(inputs):
            raise InputError(
                "inputs and a file of inputs (--inputs) cannot be combined",
                "give only one of them",
            )
        if request.target is None:
            if request.inputs_file is not None and is_batch_function(request.inputs_file):
                provided = ProvidedInputs(values=call_batch_function(request.inputs_file))
            elif request.inputs_file is not None:
                provided = ProvidedInputs(file=request.inputs_file)
            elif written and texts:
                provided = ProvidedInputs(specs=parse_inputs(texts))
            else:
                provided = ProvidedInputs(values=inputs)
            varied = target if request.named_inputs and request.vary else None
            return msgspec.structs.replace(
                request._with_model_source(model_source(target, provided)), varied=varied
            )
        if written:
            return msgspec.structs.replace(request, specs=parse_inputs(texts))
        if not request.is_file:
            model, _ = build_target(request.target, request.arguments, request.allow_pickle)
            return request._with_model_source(source_from_object(model, inputs))
        raise InputError(
            "an ONNX file is counted from the shapes of its inputs, but values are given",
            'give the shapes as text: ["x=1x3x224x224"]',
        )

    def _with_named_inputs(self, texts: Sequence[str]) -> tuple["Request", list[str]]:
        """Return (request, texts of inputs with numbers for all named sizes).

        A size that varies and that was not given is any number, which is replaced later.
        """
        named = size_names_in_inputs(texts, (*self.dims, *self.vary))
        if not named:
            return self, list(texts)
        caller_sizes = {name: self.dims[name] for name in named if name in self.dims}
        others = {name: size for name, size in self.dims.items() if name not in named}
        sizes = {**dict.fromkeys(named, UNNAMED_SIZE), **caller_sizes}
        request = msgspec.structs.replace(
            self, named_inputs=tuple(texts), named_sizes=caller_sizes, dims=others
        )
        return request, [with_named_sizes(text, sizes) for text in texts]

    @property
    def input_size_names(self) -> tuple[str, ...]:
        """The names of sizes in the shapes of the inputs."""
        return size_names_in_inputs(self.named_inputs, (*self.named_sizes, *self.vary))

    @property
    def is_named(self) -> bool:
        """Whether the target is a model that a library has by name."""
        if self.target is None or self.is_file:
            return False
        return library_of_target(full_target_name(self.target)) is not None

    def with_sizes(self, sizes: Mapping[str, int]) -> "Request":
        """Return the request with these numbers for named sizes: of its inputs, of an ONNX
        file, of the usual input of a model by name (`batch`), or for arguments of a callable.
        """
        inputs = self.input_size_names
        own = {name: size for name, size in sizes.items() if name in inputs}
        others = {name: size for name, size in sizes.items() if name not in inputs}
        field = "dims" if self.is_file else "sizes" if self.is_named else "arguments"
        changed = {field: {**getattr(self, field), **others}} if others else {}
        request = msgspec.structs.replace(self, named_sizes={**self.named_sizes, **own}, **changed)
        if not own:
            return request
        numbers = {**dict.fromkeys(inputs, UNNAMED_SIZE), **request.named_sizes}
        specs = parse_inputs([with_named_sizes(text, numbers) for text in self.named_inputs])
        if self.given is None:
            return msgspec.structs.replace(request, specs=specs)
        source = model_source(self.varied, ProvidedInputs(specs=specs))
        return request._with_model_source(source)

    def source(self, values: bool = True) -> Source:
        """Return the request's model, with or without weight values, and its inputs.

        Raises ValuesNeededError where it cannot be built so.
        """
        if self.given is not None:
            return self.given
        assert self.target is not None
        return load_target_source(
            self.target,
            self.arguments,
            self.specs,
            None if self.observe and self.is_file else self.inputs_file,
            allow_pickle=self.allow_pickle,
            dims=self.dims,
            control=self.control,
            sizes=self.sizes,
            values=values,
        )

    @property
    def control(self) -> Control:
        """The request's choices for loops and branches, in a form that can be pickled."""
        return Control(self.trips, self.branches)

    @property
    def is_file(self) -> bool:
        """Whether the model is an ONNX file, which no framework can run."""
        return self.target is not None and is_onnx_target(self.target)

    @property
    def is_pipeline(self) -> bool:
        """Whether the target is a file that lists the parts of a pipeline."""
        return self.target is not None and is_pipeline(self.target)

    @property
    def superfluous_options(self) -> tuple[str, ...]:
        """The flags that are set but have no effect on this target, as far as its name shows."""
        return tuple(
            flag
            for flag, is_given, is_used in (
                ("--no-grad", not self.setting.grad, not self.is_file),
                ("--train-mode", self.setting.training, not self.is_file),
                ("--allow-pickle", self.allow_pickle, self._may_be_a_pickle),
            )
            if is_given and not is_used
        )

    @property
    def _may_be_a_pickle(self) -> bool:
        """Whether the target may be a pickle file."""
        return self.target is not None and may_contain_pickle(self.target)

    def without_unused_options(self) -> "Request":
        """Return a copy of the request without options that have no effect on its target."""
        unused = self.superfluous_options
        setting = msgspec.structs.replace(
            self.setting,
            grad=self.setting.grad or "--no-grad" in unused,
            training=self.setting.training and "--train-mode" not in unused,
        )
        pickled = self.allow_pickle and "--allow-pickle" not in unused
        return msgspec.structs.replace(self, setting=setting, allow_pickle=pickled)

    def refuse_unused_options(self, *, run_by_tools: bool = False) -> None:
        """Raise InputError if an option is set that has no effect on the target of this request.

        What is `run_by_tools` is run in the mode of the setting, whatever the target is.
        """
        for flag in self.superfluous_options:
            if run_by_tools and flag != "--allow-pickle":
                continue
            raise InputError(
                f"{flag} has no effect on {self.target or 'this model'}, {_WITHOUT[flag]}",
                f"leave out {flag}",
            )

    def _with_model_source(self, source: Source) -> "Request":
        """Return a copy of the request for a model that is built already, with its inputs."""
        return msgspec.structs.replace(self, given=with_control(source, self.control))


_WITHOUT = {
    "--no-grad": "which is a file and is not run in a framework",
    "--train-mode": "which is a file and is not run in a framework",
    "--allow-pickle": "which is not a pickle file",
}


def drop_unused_request_options(requests: Sequence[Request]) -> list[Request]:
    """Return the requests without options that have no effect on their own target.

    Raises InputError for an option that none of them has a use for.
    """
    for flag in requests[0].superfluous_options if requests else ():
        if all(flag in request.superfluous_options for request in requests):
            requests[0].refuse_unused_options()
    return [request.without_unused_options() for request in requests]


def _dimension_names(request: Request) -> tuple[str, ...]:
    """Return the names of --vary; of a model of no file `image-size` is `image_size`. Raises
    InputError for a name that is there twice.
    """
    names = (request.vary,) if isinstance(request.vary, str) else request.vary
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise InputError(f"--vary names {repeated} twice", "leave out one of the two")
    if request.is_file:
        return tuple(names)
    flags = {flag.removeprefix("--"): name for name, flag in SIZES.items()}
    return tuple(flags.get(name, name) for name in names)


def _copy_option_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with lists, dicts and paths copied to tuples, dicts and texts."""
    return {
        name: dict(value)
        if isinstance(value, Mapping)
        else tuple(value)
        if isinstance(value, list)
        else os.fspath(value)
        if isinstance(value, os.PathLike)
        else value
        for name, value in options.items()
        if value is not None
    }


def is_empty_input(inputs: Any) -> bool:
    """Return whether the input is empty: None, or a list, a table or a text without content."""
    return inputs is None or (isinstance(inputs, list | tuple | dict | str) and not inputs)


# The request for a second model, which takes from the first what is not said of it.

OPTION_OF = {
    "inputs": "--input", "inputs_file": "--inputs", "arguments": "--arg", "dims": "--dim",
    "trips": "--trips", "branches": "--branch",
}  # fmt: skip
OPTIONS = ("inputs", "inputs_file", "arguments", "dims", "trips", "branches")
_OF_FILES = ("dims", "trips", "branches")
_LAYOUTS = (3, 4, 5)  # ranks of images, whose channels stand behind the batch or at the end


def build_second_request(target: Any, own_options: Mapping[str, Any], first: Request) -> Request:
    """Build the request of a second model; if it has no inputs, it gets those of the first model.

    Inputs that are taken over are tried as they are, then with the channels moved to the end or
    from there, then without names; a file is asked last for sizes of its own. The first that the
    model takes is used. Raises InputError for an option that there is not.
    """
    unknown = [name for name in own_options if name not in OPTIONS]
    if unknown:
        raise InputError(
            f"unknown option {unknown[0]!r} of the second model",
            f"known: {', '.join(OPTIONS)}",
        )
    own = {name: value for name, value in own_options.items() if not is_empty_input(value)}
    provided = "inputs" in own or "inputs_file" in own
    if not isinstance(target, str) and not provided:
        return _request_of_object(target, first)
    options = {"arguments": _first_model_arguments(target, first), **own}
    base = Request.from_arguments(
        target,
        options.pop("inputs", ()),
        setting=first.setting,
        allow_pickle=first.allow_pickle,
        weights=None if not isinstance(target, str) or is_onnx_target(target) else first.weights,
        **options,
    )
    if not provided:
        return _with_inputs_of_first(base, own, first)
    # a count of one model needs none of it
    from crossflops.targets.weights import build_source_and_reason_for_values

    # what cannot be built is told at once
    build_source_and_reason_for_values(base.source, base.weights)
    return _with_file_options(base, first, own)


def _first_model_arguments(target: Any, first: Request) -> Mapping[str, object]:
    """Return the first model's --arg values if the second model is a callable too, else none."""
    called = isinstance(target, str) and ":" in target and not is_onnx_target(target)
    return first.arguments if called and first.given is None else {}


def _with_file_options(request: Request, first: Request, own: Mapping[str, Any]) -> Request:
    """Return the request with options of ONNX files that only the first request has."""
    if not request.is_file:
        return request
    more = {name: getattr(first, name) for name in _OF_FILES if name not in own}
    return msgspec.structs.replace(request, **more) if first.is_file else request


def _with_inputs_of_first(base: Request, own: Mapping[str, Any], first: Request) -> Request:
    """Return the second model's request with the first model's inputs, in a layout that fits."""
    specs = first.specs if first.given is None else _source_input_specs(first.given)
    full = _with_file_options(base, first, own)
    requests = [msgspec.structs.replace(full, specs=way) for way in input_layout_variants(specs)]
    if first.given is None and first.inputs_file is not None and not base.is_file:
        requests = [msgspec.structs.replace(base, inputs_file=first.inputs_file)]
    if base.is_file:
        requests += [msgspec.structs.replace(full, specs=()), base]
    if len(requests) == 1:
        return requests[0]
    return next((request for request in requests if _can_take_inputs(request)), requests[0])


def _request_of_object(model: Any, first: Request) -> Request:
    """Return a request for a model object with the inputs of the first request."""
    if first.given is not None:
        pair = (first.given.args, first.given.kwargs)
        return Request.from_arguments(model, pair, setting=first.setting)
    if not first.specs:
        raise InputError(
            "the inputs of the models are not given",
            'give inputs=, such as inputs=["1x3x224x224"]',
        )
    ways = ([_input_spec_text(spec) for spec in way] for way in input_layout_variants(first.specs))
    requests = [Request.from_arguments(model, texts, setting=first.setting) for texts in ways]
    return next((request for request in requests if _can_take_inputs(request)), requests[0])


def _input_spec_text(spec: TensorSpec) -> str:
    """Return the specification of an input as text, such as "x=1x3x224x224:float32"."""
    shape = "x".join(map(str, spec.shape or ())) or "scalar"
    name = "" if spec.name.isdecimal() else f"{spec.name}="
    return f"{name}{shape}:{spec.dtype}"


def _source_input_specs(provided: Source) -> tuple[TensorSpec, ...]:
    """Return name, dtype and shape of each tensor among the inputs."""
    named = [
        *((str(index), tensor) for index, tensor in enumerate(provided.args)),
        *provided.kwargs.items(),
    ]
    return tuple(
        TensorSpec(name, str(tensor.dtype).rpartition(".")[2], tuple(tensor.shape), "input")
        for name, tensor in named
        if hasattr(tensor, "shape") and hasattr(tensor, "dtype")
    )


def input_layout_variants(specs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, ...]]:
    """Yield the input shapes as given, channels last, and channels first; then without names.

    >>> image = TensorSpec("0", "float32", (1, 3, 8, 9))
    >>> [[spec.shape for spec in layout] for layout in input_layout_variants([image])]
    [[(1, 3, 8, 9)], [(1, 8, 9, 3)], [(1, 9, 3, 8)]]
    """
    ways: list[tuple[TensorSpec, ...]] = []
    for named in (True, False):
        for move in (None, "last", "first"):
            way = tuple(_with_axis_layout(spec, move, named or len(specs) > 1) for spec in specs)
            if way not in ways:
                ways.append(way)
    yield from ways


def _with_axis_layout(spec: TensorSpec, move: str | None, named: bool) -> TensorSpec:
    """Return an image's input shape with the channel axis moved to the "last" or "first" axis."""
    shape, name = spec.shape or (), spec.name if named else "0"
    image = len(shape) in _LAYOUTS and spec.dtype.startswith(("float", "bfloat"))
    if image and move == "last":
        shape = (shape[0], *shape[2:], shape[1])
    elif image and move == "first":
        shape = (shape[0], shape[-1], *shape[1:-1])
    return msgspec.structs.replace(spec, shape=shape, name=name)


def _can_take_inputs(request: Request) -> bool:
    """Return whether the model of the request accepts its inputs, checked by a run or a trace."""
    from crossflops.targets.weights import build_source_and_reason_for_values

    try:
        source, _ = build_source_and_reason_for_values(request.source, request.weights)
        require_frontend(source.model).check_inputs(source, request.setting)
    except (InputError, NormalizeError):
        return False
    return True
