"""Turn a caller's request for one or two models into models that can be built."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from crossflops.errors import CrossflopsError, InputError, NormalizeError
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
)
from crossflops.targets.target import (
    build_target,
    call_batch_function,
    full_target_name,
    is_batch_function,
    load_target_function,
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
    names. `axes` are the axes of tensors that `vary` names, as `targets.axes` reads them, and
    `axis_sizes` their sizes other than in the tensors. `varied` is the model object of a caller
    whose inputs vary, and `varied_inputs` the values that go with a target that varies.
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
    axes: dict[str, tuple[Any, ...]] = {}
    axis_sizes: dict[str, int] = {}
    varied: Any = None
    varied_inputs: Any = None

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
        has_values = not is_empty_input(inputs) and not written
        if request.vary:
            request = _with_dimension_names(request, has_values)
        if written and texts:
            request, texts = request._with_named_inputs(texts)
        if request.target is None and (request.arguments or request.dims):
            raise InputError(
                "arguments and dims cannot be used with a model object",
                'leave them out, or give the target as text, such as "file.py:callable"',
            )
        other_sizes = [size for size in request.sizes if not has_values or size != "batch"]
        if other_sizes and not is_empty_input(inputs):
            sized = SIZES[other_sizes[0]]
            raise InputError(
                f"{sized} and inputs cannot be combined: {sized} makes the default input of a "
                "model that is given by name",
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
            source = model_source(target, provided, request.sizes)
            request = request._with_source_at_axis_sizes(source)
            return request._keeping_for_vary(target, inputs if has_values else None)
        if written:
            return msgspec.structs.replace(request, specs=parse_inputs(texts))
        if not request.is_file:
            return request._with_source_of_target(inputs)._keeping_for_vary(None, inputs)
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
    def vary_texts(self) -> tuple[str, ...]:
        """The names of --vary with their axes, as the command line has them."""
        if not self.axes:
            return self.vary
        from crossflops.targets.axes import axes_text

        return tuple(axes_text(name, self.axes.get(name, ())) for name in self.vary)

    @property
    def is_named(self) -> bool:
        """Whether the target is a model that a library has by name."""
        if self.target is None or self.is_file:
            return False
        return library_of_target(full_target_name(self.target)) is not None

    def with_sizes(self, sizes: Mapping[str, int]) -> "Request":
        """Return the request with these numbers for named sizes: of its inputs, of an ONNX
        file, of the usual input of a model (`batch`), or for arguments of a callable.
        """
        by_field: dict[str, dict[str, int]] = {}
        for name, size in sizes.items():
            by_field.setdefault(self.field_of_size(name), {})[name] = size
        changed = {
            field: {**getattr(self, field), **numbers} for field, numbers in by_field.items()
        }
        request = msgspec.structs.replace(self, **changed)
        specs: tuple[TensorSpec, ...] = ()
        if "named_sizes" in by_field:
            names = self.input_size_names
            numbers = {**dict.fromkeys(names, UNNAMED_SIZE), **request.named_sizes}
            specs = parse_inputs([with_named_sizes(text, numbers) for text in self.named_inputs])
        if self.given is None:
            return msgspec.structs.replace(request, specs=specs) if specs else request
        if specs or "sizes" in by_field:
            values = None if specs else ()
            provided = ProvidedInputs(specs=specs, values=values)
            sized = {} if specs else request.sizes
            source = model_source(self.varied, provided, sized)
            return request._with_source_at_axis_sizes(source)
        if "arguments" in by_field:
            return request._with_source_of_target(self.varied_inputs)
        return request._with_source_at_axis_sizes(self.given)

    def field_of_size(self, name: str) -> str:
        """Return the field of the request that has the number of a named size."""
        if name in self.input_size_names:
            return "named_sizes"
        if name in self.axes:
            return "axis_sizes"
        if self.is_file:
            return "dims"
        if self.target is None or self.is_named:
            return "sizes"
        return "sizes" if name in SIZES and name not in self.target_parameters else "arguments"

    @property
    def target_parameters(self) -> dict[str, Any]:
        """The parameters by name that the callable of a target can be given; {} without one."""
        if self.target is None or self.is_file or self.is_named or ":" not in self.target:
            return {}
        try:
            parameters = inspect.signature(load_target_function(self.target)).parameters
        except (CrossflopsError, ValueError, TypeError):  # counting says what is wrong with it
            return {}
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {name: row for name, row in parameters.items() if row.kind in kinds}

    def source(self, values: bool = True) -> Source:
        """Return the request's model, with or without weight values, and its inputs.

        Raises ValuesNeededError where it cannot be built so.
        """
        if self.given is not None:
            return self.given
        assert self.target is not None
        source = load_target_source(
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
        return self._at_axis_sizes(source)

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

    def _keeping_for_vary(self, model: Any, inputs: Any) -> "Request":
        """Return a copy of the request that keeps an object and values if they are used again, at
        other sizes.
        """
        if not self.vary:
            return self
        return msgspec.structs.replace(self, varied=model, varied_inputs=inputs)

    @property
    def has_values(self) -> bool:
        """Whether the inputs that vary are values of a caller, and no shapes."""
        return self.varied_inputs is not None

    def _with_source_of_target(self, inputs: Any) -> "Request":
        """Return a copy of the request with the model of its target, built for these values."""
        assert self.target is not None
        model, _ = build_target(self.target, self.arguments, self.allow_pickle)
        source = model_source(model, ProvidedInputs(values=inputs), self.sizes)
        return self._with_source_at_axis_sizes(source)

    def _with_source_at_axis_sizes(self, source: Source) -> "Request":
        """Return a copy of the request for a model that is built already, with its inputs."""
        source = with_control(self._at_axis_sizes(source), self.control)
        return msgspec.structs.replace(self, given=source)

    def _at_axis_sizes(self, source: Source) -> Source:
        """Return a source with inputs in the sizes of named axes that the request has."""
        if not self.axis_sizes:
            return source
        from crossflops.targets.axes import with_axis_sizes  # most counts change no size

        return with_axis_sizes(source, self.axes, self.axis_sizes)


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


def _with_dimension_names(request: Request, has_values: bool) -> Request:
    """Return the request with the names and the axes of --vary; of a model of no file
    `image-size` is `image_size`.

    Of inputs with values `batch` is the first axis. Raises InputError for a name that is there
    twice, and for axes of an ONNX file.
    """
    axes = _axes_by_name(request.vary)
    flags = {} if request.is_file else {flag[2:]: name for name, flag in SIZES.items()}
    names = [flags.get(name, name) for name, _ in axes]
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise InputError(f"--vary names {repeated} twice", "leave out one of the two")
    named = {name: own for name, (_, own) in zip(names, axes, strict=True) if own}
    if named and request.is_file:
        raise InputError(
            f"--vary {next(iter(named))}: an ONNX file is counted from shapes, whose axes have no "
            "numbers here",
            "name a dimension of the file, or write the name into a shape: --input x=batchx64",
        )
    request = msgspec.structs.replace(request, vary=tuple(names))
    values = (has_values or request.inputs_file is not None) and not request.is_file
    if values and "batch" in names and "batch" not in {**named, **request.target_parameters}:
        from crossflops.targets.axes import BATCH

        named["batch"] = BATCH
    if not named:
        return request
    sizes = {name: size for name, size in request.dims.items() if name in named}
    if has_values and "batch" in named and "batch" in request.sizes:
        sizes["batch"] = request.sizes["batch"]
    dims = {name: size for name, size in request.dims.items() if name not in named}
    return msgspec.structs.replace(request, axes=named, axis_sizes=sizes, dims=dims)


def _axes_by_name(vary: Any) -> list[tuple[str, tuple[Any, ...]]]:
    """Return (name, axes) of each dimension of --vary; most have no axes. Raises InputError."""
    texts = (vary,) if isinstance(vary, str) else vary
    if not isinstance(vary, Mapping) and not any("=" in text for text in texts):
        return [(name, ()) for name in texts]
    from crossflops.targets.axes import axes_from_mapping, parse_named_axes

    if isinstance(vary, Mapping):
        return list(axes_from_mapping(vary).items())
    return [parse_named_axes(text) for text in texts]


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
