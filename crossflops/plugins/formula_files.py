"""The files of formulas that `crossflops.toml` names: `formulas = ["own.py"]`."""

from pathlib import Path

from crossflops.errors import InputError
from crossflops.files import is_configured

_EXAMPLE = 'write, for example, formulas = ["formulas.py"]'


def formulas_of_configuration(folder: Path | None = None) -> tuple[str, ...]:
    """Return the files and modules of formulas that the nearest configuration in this folder or
    above names.

    Paths are taken from the folder of that file. Raises InputError for anything but a list.
    """
    here = folder or Path.cwd()
    if not is_configured("formulas", here):
        return ()
    from crossflops.plugins.elsewhere import find_config_value

    file, provided = find_config_value("formulas", here)
    if provided is None:
        return ()
    if not isinstance(provided, list) or not all(isinstance(item, str) for item in provided):
        raise InputError(f"formulas in {file} must be a list of files", _EXAMPLE)
    return tuple(_formula_path(item, file.parent) for item in provided)


def _formula_path(item: str, folder: Path) -> str:
    """Return a file of formulas as a path from the folder of the configuration; return the name of
    a module unchanged.
    """
    return str(folder / item) if item.endswith(".py") else item
