"""The source of models that are named by a .gguf file: metadata -> config -> model."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from crossflops.errors import TargetError
from crossflops.frontends.frontend import require_packages
from crossflops.frontends.gguf.config import metadata_keys_without_use, transformers_config_content
from crossflops.frontends.gguf.reading import GgufFile, read_gguf_file
from crossflops.frontends.gguf.weights import bytes_by_type, find_storage_types
from crossflops.frontends.named import Library, NamedModel

_FLOATS = ("float32", "float16", "bfloat16")


class GgufFiles(Library):
    """The source `FILE.gguf`: the model of transformers that the metadata describe."""

    prefix = "gguf"
    package = "transformers"
    names_models = False
    suffix = ".gguf"

    def model_names(self) -> Sequence[str]:
        """Return no names: the names are files."""
        return ()

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Return the model of a file without values, its weights in the types of the file."""
        file = read_gguf_file(name)
        content = transformers_config_content(file)
        require_packages(("torch", "transformers"), f"count {name}", "gguf")
        from crossflops.frontends.pytorch.load.libraries import build_transformers_config_model
        from crossflops.frontends.pytorch.load.stored_types import set_storage_types
        from crossflops.frontends.pytorch.load.weight_types import UNPACKED, split_weight_dtype

        named, others = split_weight_dtype(arguments)
        if others:
            raise TargetError(
                f"the file {name} contains its own config, so --arg {next(iter(others))} cannot "
                "be used",
                "leave out that --arg; only dtype can be set, the type of computation, such as "
                "--arg dtype=float16",
            )
        dtype = named or _common_float_matrix_type(file) or UNPACKED
        content["torch_dtype"] = dtype
        built = build_transformers_config_model(content, name, {}, sizes, with_type_note=False)
        layers = int(built.model.config.num_hidden_layers)
        types = find_storage_types(file, built.model.named_parameters(), layers)
        set_storage_types(built.model, types)
        origin = f"its metadata, architecture {file.architecture}"
        notes = (*_notes_on_file(file, dtype), *built.notes)
        return msgspec.structs.replace(built, origin=origin, notes=notes)


def _common_float_matrix_type(file: GgufFile) -> str:
    """Return the float type of all matrices of a file, "" if they are quantized or differ."""
    kinds = {tensor.dtype for tensor in file.tensors.values() if len(tensor.shape) > 1}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= {*_FLOATS} else ""


def _notes_on_file(file: GgufFile, dtype: str) -> Iterator[str]:
    """Yield notes on the types of a file's weights, and on metadata that are not used."""
    stored = ", ".join(
        f"{size} bytes of {kind}" for kind, size in sorted(bytes_by_type(file.tensors).items())
    )
    yield (
        f"the weights of {file.path} are stored as {stored}, and computed in {dtype}: "
        "--arg dtype=float16 sets another type"
    )
    unused = list(metadata_keys_without_use(file))
    if unused:
        yield (
            f"some metadata of {file.path} are not used: {', '.join(unused)}; the count "
            "assumes that they change no size"
        )
