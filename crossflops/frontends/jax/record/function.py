"""Turn a JAX model of any kind into one pure function of arrays."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError, NormalizeError, error_location, error_remedy
from crossflops.frontends.jax.kinds import (
    is_equinox_module,
    is_flax_module,
    is_jax_keras_model,
    is_linen_module,
)
from crossflops.frontends.jax.record.scopes import (
    CalledModules,
    ModuleCalls,
    entering_linen_scopes,
)
from crossflops.frontends.keras_inputs import has_created_variables, to_keras_call_inputs

_HINT = "check the number, the names, the shapes and the types of --input"
FROZEN = "params/frozen"  # the kind of variables that are weights, and are not trained
_TRAINS = "the model trains by default: return (model, {'x': x, 'train': False}) or the like"
# flax/errors.py: batch statistics that change, dropout that draws numbers
_HINTS = {"ModifyScopeVariableError": _TRAINS, "InvalidRngError": _TRAINS}


class Pure(msgspec.Struct, frozen=True):
    """A model as a function of arrays alone, with their shapes, dtypes and names.

    `function(*specs)` may be traced (jax.make_jaxpr, jax.jit(...).lower, jax.eval_shape).
    Equations below a module's call have in their name stack `scopes.MARK` and the path of the
    module.

    `weighted(weights, *specs)` is the same with the arrays that a module holds as an argument, of
    which `weights` are the shapes and types; a plain function has none. `called` are the modules
    of flax.linen that ran when it was traced. `held` are the arrays that it computes with and the
    names of those which may be trained: `named` finds them again in a program.
    """

    function: Callable[..., Any]
    specs: tuple[Any, ...]
    names: tuple[str, ...]
    weighted: Callable[..., Any]
    weights: Any = ()
    called: CalledModules = msgspec.field(default_factory=CalledModules)
    held: tuple[tuple[str, Any], ...] = ()

    def array_names(self, constants: Iterable[Any]) -> Iterator[str]:
        """Yield the model's name for each of these arrays, "" for other arrays.

        A program has other objects for them, but the same memory, read in the same way.
        """
        names = {_memory_key(array): name for name, array in self.held}
        return (names.get(_memory_key(array), "") for array in constants)


def _memory_key(array: Any) -> tuple[Any, ...]:
    """Return a key that is equal for arrays that read the same memory in the same way."""
    import numpy as np

    read = np.asarray(array)
    return read.__array_interface__["data"][0], read.shape, read.strides, read.dtype


def to_pure_function(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    training: bool,
    valued: bool = False,
) -> Pure:
    """Return a model as a function of arrays alone; its other arguments are fixed.

    `args` and `kwargs` hold jax.ShapeDtypeStruct. The function has the weights of the model if it
    is `valued`, otherwise one repeated number in their shapes. Raises InputError where the model
    does not take the arguments, NormalizeError where required weights are missing.
    """
    import jax

    leaves, tree = jax.tree.flatten((args, dict(kwargs)))
    indices = [n for n, leaf in enumerate(leaves) if isinstance(leaf, jax.ShapeDtypeStruct)]
    specs = tuple(_key_words_spec(leaves[n]) for n in indices)

    def arguments_with_arrays(arrays: tuple[Any, ...]) -> Any:
        """Return (args, kwargs) of the model with these arrays filled in."""
        provided = list(leaves)
        for index, array in zip(indices, arrays, strict=True):
            provided[index] = _words_to_random_key(array, leaves[index])
        return jax.tree.unflatten(tree, provided)

    called = CalledModules()
    if is_flax_module(model):
        call, stored = _nnx_module_call(model, training, called.calls)
    elif is_equinox_module(model):
        call, stored = _equinox_module_call(model, training)
    elif is_linen_module(model):
        call, stored = _linen_module_call(model, arguments_with_arrays, specs, valued)
    elif is_jax_keras_model(model):
        call, stored = _keras_model_call(model, arguments_with_arrays, specs, training)
    else:
        call, stored = _plain_function_call(model, training)

    arrays = _arrays_with_values(stored) if valued else _arrays_of_one_number(stored)

    def call_with_weights(weights: Any, *arrays: Any) -> Any:
        """Return the result of the model for these weights and input arrays."""
        positional, named = arguments_with_arrays(arrays)
        with entering_linen_scopes(called):
            return call(weights, *positional, **named)

    pure_model = Pure(
        function=functools.partial(call_with_weights, arrays),
        specs=specs,
        names=_jax_argument_names(args, kwargs, indices),
        weighted=call_with_weights,
        weights=jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), stored),
        called=called,
        held=_arrays_by_name(arrays),
    )
    closed_over = _closure_arrays(pure_model)
    return pure_model if jax.tree.leaves(stored) else replace(pure_model, held=closed_over)


def _is_random_key(spec: Any) -> bool:
    """Return whether an array or a spec has the dtype of a random key of JAX."""
    import jax
    import jax.numpy as jnp

    return bool(jnp.issubdtype(spec.dtype, jax.dtypes.prng_key))


def _key_words_spec(spec: Any) -> Any:
    """Return for a random key the spec (shape and type) of the integers in which JAX stores it;
    any other spec unchanged.
    """
    import jax

    return jax.eval_shape(jax.random.key_data, spec) if _is_random_key(spec) else spec


def random_key_to_words(array: Any) -> Any:
    """Return a random key as an array of its integer words; any other array unchanged."""
    import jax

    return (
        jax.random.key_data(array) if hasattr(array, "dtype") and _is_random_key(array) else array
    )


def _words_to_random_key(array: Any, spec: Any) -> Any:
    """Return integer words as a random key if the spec is one; other arrays unchanged."""
    import jax

    if not _is_random_key(spec):
        return array
    return jax.random.wrap_key_data(array, impl=spec.dtype._impl.name)


def _arrays_by_name(arrays: Any) -> tuple[tuple[str, Any], ...]:
    """Return (dotted name, array) of each array of a module, such as "layers.0.kernel"."""
    import jax

    pairs = zip(array_names_in_tree(arrays), jax.tree.leaves(arrays), strict=True)
    return tuple((name, leaf) for name, leaf in pairs if not isinstance(leaf, _Key))


def array_names_in_tree(arrays: Any) -> tuple[str, ...]:
    """Return the dotted names of the arrays in a tree, in order of its leaves."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(arrays)[0]
    names = (jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves)
    # flax.linen nests parameters in "params", NNX has the array of a variable in its "value"
    return tuple(
        name.removeprefix("params.").removeprefix(f"{FROZEN}.").removesuffix(".value")
        for name in names
    )


def _nnx_module_call(
    model: Any, training: bool, calls: ModuleCalls
) -> tuple[Callable[..., Any], Any]:
    """Return a function that calls an NNX module with given arrays, and these arrays.

    The caller's module is not changed. The arrays are the first argument of the call. The calls of
    modules are recorded in `calls`.
    """
    from flax import nnx

    from crossflops.frontends.jax.record.scopes import entering_module_scopes, mark_module_paths

    definition, stored = nnx.split(model)

    def call_nnx_module(state: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result with these weights, in train or inference mode."""
        own = nnx.merge(definition, _to_jax_arrays(state), copy=True)
        if training:
            own.train()
        else:
            own.eval()
        with entering_module_scopes(mark_module_paths(own), calls):
            return own(*args, **kwargs)

    return call_nnx_module, stored


def _equinox_module_call(model: Any, training: bool) -> tuple[Callable[..., Any], Any]:
    """Return a function that calls an Equinox module with given arrays, and these arrays.

    Dropout and batch normalization are in inference mode outside of training, whatever the module
    says.
    """
    import equinox

    stored, fixed = equinox.partition(
        equinox.nn.inference_mode(model, value=not training), equinox.is_array
    )

    def call_equinox_module(weights: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result with these weights."""
        return equinox.combine(_to_jax_arrays(weights), fixed)(*args, **kwargs)

    return call_equinox_module, stored


def _linen_module_call(
    model: Any, filled: Callable[..., Any], specs: tuple[Any, ...], valued: bool
) -> tuple[Callable[..., Any], Any]:
    """Return a function that calls a linen module with variables, and the variables."""
    import jax
    import jax.numpy as jnp

    def initial_linen_variables(key: Any, *arrays: Any) -> Any:
        """Return newly initialized variables of a linen module for these inputs."""
        positional, named = filled(arrays)
        return model.init({"params": key, "dropout": key}, *positional, **named)

    def initial_arrays_or_specs() -> Any:
        """Return the initial variables of the module: arrays, or their shapes and dtypes."""
        if not valued:
            return jax.eval_shape(initial_linen_variables, jax.random.key(0), *specs)
        return initial_linen_variables(
            jax.random.key(0), *(jnp.zeros(spec.shape, spec.dtype) for spec in specs)
        )

    stored = _run_model_code(initial_arrays_or_specs)
    return (
        lambda stored, *args, **kwargs: model.apply(_to_jax_arrays(stored), *args, **kwargs)
    ), stored


def _keras_model_call(
    model: Any, filled: Callable[..., Any], specs: tuple[Any, ...], training: bool
) -> tuple[Callable[..., Any], Any]:
    """Return a function that calls a Keras model with variables, and the variables.

    The call has the same form as for flax.linen.
    """
    mode = {"training": training} if model._call_has_training_arg else {}
    to_keras_call_inputs(model, *filled(specs))  # which refuses others before anything runs
    if not has_created_variables(model):
        _run_model_code(lambda: _build_keras_model(model, *filled(specs)))
    weights = {id(v) for layer in model._flatten_layers() for v in layer._trainable_variables}
    stored: dict[str, dict[str, Any]] = {"params": {}, FROZEN: {}, "state": {}}
    for variable in model.trainable_variables:
        stored["params"][variable.path] = variable.value
    for variable in model.non_trainable_variables:
        stored[FROZEN if id(variable) in weights else "state"][variable.path] = variable.value

    def call_keras_model(provided: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a Keras model with these variables."""
        arrays = _to_jax_arrays(provided)
        fixed = {**arrays[FROZEN], **arrays["state"]}
        variables = (
            [arrays["params"][variable.path] for variable in model.trainable_variables],
            [fixed[variable.path] for variable in model.non_trainable_variables],
        )
        inputs, named = to_keras_call_inputs(model, args, kwargs)
        return model.stateless_call(*variables, *inputs, **mode, **named)[0]

    return call_keras_model, stored


def _build_keras_model(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Create the variables of a Keras model by a call on symbolic inputs."""
    import jax
    import keras

    def symbolic_tensor(spec: Any) -> Any:
        """Return a symbolic Keras tensor for a spec; a value without a shape unchanged."""
        return keras.KerasTensor(spec.shape, str(spec.dtype)) if hasattr(spec, "shape") else spec

    inputs, named = to_keras_call_inputs(model, args, kwargs)
    model(*jax.tree.map(symbolic_tensor, inputs), **jax.tree.map(symbolic_tensor, named))


def _plain_function_call(model: Any, training: bool) -> tuple[Callable[..., Any], Any]:
    """Return a call of a plain function, and () for its weights. Raises InputError."""
    if training:
        raise InputError(
            "--train-mode cannot be used with a function, which has no training mode",
            "leave out --train-mode",
        )
    return (lambda _, *args, **kwargs: model(*args, **kwargs)), ()


class _Key(msgspec.Struct, frozen=True):
    """A random key: its words, and the name of the generator that they are for."""

    words: Any
    generator: str


def _arrays_of_one_number(stored: Any) -> Any:
    """Return a module's arrays with one repeated number for the floats, stored once."""
    import jax

    return jax.tree.map(_array_of_one_number, stored)


def _arrays_with_values(stored: Any) -> Any:
    """Return a module's arrays with their values. Raises NormalizeError if they have none."""
    import jax
    import jax.numpy as jnp

    def array_or_random_key_words(array: Any) -> Any:
        """Return the array, or a random key as words. Raises NormalizeError without values."""
        if isinstance(array, jax.ShapeDtypeStruct):
            raise NormalizeError(
                "the weights have only shapes, no values", "give the model with its weights"
            )
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            return _Key(jax.random.key_data(array), str(jax.random.key_impl(array)))
        return array

    return jax.tree.map(array_or_random_key_words, stored)


def _array_of_one_number(array: Any) -> Any:
    """Return an array of this shape and dtype that repeats one number, stored once."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        words = jax.eval_shape(jax.random.key_data, array)
        generator = str(jax.random.key_impl(array))
        return _Key(np.zeros(words.shape, words.dtype), generator)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return np.broadcast_to(np.array(0.5, array.dtype), array.shape)
    if isinstance(array, jax.ShapeDtypeStruct):
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)
    return array


def _to_jax_arrays(stored: Any) -> Any:
    """Return the stored values of a tree as JAX arrays and random keys.

    A traced function computes with these, unlike with arrays of NumPy.
    """
    import jax
    import jax.numpy as jnp

    def to_jax_array(leaf: Any) -> Any:
        """Return a stored value as a JAX array or a random key."""
        if isinstance(leaf, _Key):
            return jax.random.wrap_key_data(jnp.asarray(leaf.words), impl=leaf.generator)
        return jnp.asarray(leaf)

    return jax.tree.map(to_jax_array, stored)


def _jax_argument_names(
    args: Any, kwargs: Mapping[str, Any], indices: list[int]
) -> tuple[str, ...]:
    """Return the name of each array argument by position or keyword: "0", "tokens"."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path((args, dict(kwargs)))[0]
    paths = [jax.tree_util.keystr(path[1:], simple=True, separator=".") for path, _ in leaves]
    return tuple(paths[index] for index in indices)


def _closure_arrays(pure: Pure) -> tuple[tuple[str, Any], ...]:
    """Return (name, array) of float arrays that a function closes over. Raises InputError."""
    import jax
    import jax.numpy as jnp

    stored = _run_model_code(lambda: jax.make_jaxpr(pure.function)(*pure.specs).consts)
    floats = [array for array in stored if jnp.issubdtype(array.dtype, jnp.inexact) and array.ndim]
    return tuple((f"constant_{number}", array) for number, array in enumerate(floats))


def _run_model_code(compute: Callable[[], Any]) -> Any:
    """Call `compute()`, which runs code of a model, and return its result. Raises InputError if
    that fails.
    """
    try:
        with isolating_jax_cache():
            return compute()
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise InputError(
            f"the model raised {type(error).__name__}: {text[:300]}{error_location(error)}",
            _HINTS.get(type(error).__name__) or error_remedy(error, _HINT),
        ) from error


def isolating_jax_cache() -> Any:
    """Return a context in which JAX has its own cache of traced functions.

    A function under jax.jit is traced once: jax2onnx's replacement must not be found when the
    model runs, and vice versa.
    """
    return _jax_cache_context()("crossflops")


@functools.cache
def _jax_cache_context() -> Any:
    """Return the context object of JAX that separates its caches; one for the process."""
    import jax

    return jax.make_user_context(None)
